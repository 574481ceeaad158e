"""CogVideoX's LoRAs and weights in other programs' files, tensor by tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from workbench.errors import ConfigError
from workbench.families import convert
from workbench.families.base import LoraWeights
from workbench.families.cogvideox import FAMILY
from workbench.families.cogvideox.models import NAMES
from workbench.families.cogvideox.sat import transformer_to_sat, vae_to_sat
from workbench.families.lora_files import weights, without_alpha

Tensors = dict[str, torch.Tensor]
CPU = torch.device("cpu")
FORMATS = [one.id for one in FAMILY.lora_formats]


@pytest.fixture(scope="module", params=FAMILY.toys)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy") / request.param
    FAMILY.toy(folder, request.param)
    return folder


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The variant whose LoRAs go through every format: its blocks' layers are called as the others'."""
    folder = tmp_path_factory.mktemp("toy") / "one"
    FAMILY.toy(folder, FAMILY.toys[0])
    return folder


@pytest.fixture
def transformer(toy: Path) -> Any:
    return FAMILY.load_transformer(toy, CPU, torch.float32)


def drawn(transformer: Any, ranks: dict[str, int], alphas: dict[str, float] | None = None) -> LoraWeights:
    """Make a LoRA that changes every one of the given layers."""
    generator, found = torch.Generator().manual_seed(3), dict[str, torch.Tensor]()
    for layer, rank in ranks.items():
        weight = transformer.get_submodule(layer).weight
        found[f"{layer}.lora_A.weight"] = torch.randn(rank, weight.shape[1], generator=generator)
        found[f"{layer}.lora_B.weight"] = torch.randn(weight.shape[0], rank, generator=generator)
    return weights(found, alphas or {}, "a test", alpha_known=alphas is not None)


def attention(transformer: Any) -> LoraWeights:
    """Make a LoRA on all attention projections."""
    ranks = {f"transformer_blocks.{n}.attn1.{name}": 4 for n in (0, 1) for name in ("to_q", "to_k", "to_v", "to_out.0")}
    return drawn(transformer, ranks, dict.fromkeys(ranks, 8.0))


def mixed(transformer: Any) -> LoraWeights:
    """Make a LoRA with several ranks and alphas, on attention only, so that every format can hold it."""
    ranks = {
        "transformer_blocks.0.attn1.to_q": 2,
        "transformer_blocks.1.attn1.to_v": 5,
        "transformer_blocks.1.attn1.to_out.0": 5,
    }
    return drawn(transformer, ranks, {"transformer_blocks.0.attn1.to_q": 6.0, "transformer_blocks.1.attn1.to_v": 1.0})


def deltas(lora: LoraWeights) -> Tensors:
    """Return what the LoRA adds to each weight, without unchanged layers."""
    found = {
        layer: lora.scale_of(layer)
        * (lora.tensors[f"{layer}.lora_B.weight"].double() @ lora.tensors[f"{layer}.lora_A.weight"].double())
        for layer in lora.layers
    }
    return {layer: delta for layer, delta in found.items() if delta.any()}


def same(found: Tensors, wanted: Tensors) -> None:
    assert found.keys() == wanted.keys()
    for layer, delta in wanted.items():
        torch.testing.assert_close(found[layer], delta, rtol=1e-5, atol=1e-5)


def through(lora: LoraWeights, format: str, folder: Path) -> LoraWeights:
    """Write the LoRA in a format and read it back from the file."""
    tensors, metadata = FAMILY.export_lora(lora, format)
    path = folder / f"lora{next(one.suffix for one in FAMILY.lora_formats if one.id == format)}"
    if path.suffix == ".pt":
        torch.save({"module": tensors}, path)
    else:
        save_file(tensors, path, metadata)
    return FAMILY.lora_weights(*FAMILY.lora_tensors(path))


@pytest.mark.parametrize("kind", [attention, mixed], ids=["alpha is not rank", "ranks and alphas differ"])
@pytest.mark.parametrize("format", FORMATS)
def test_a_format_gives_back_what_it_was_given(format: str, kind: Any, transformer: Any, tmp_path: Path) -> None:
    lora = kind(transformer)
    same(deltas(through(lora, format, tmp_path)), deltas(lora))


def test_comfyuis_names_are_those_of_its_own_model(folder: Path) -> None:
    """Every layer of the transformer has a name, which maps back to the layer."""
    transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
    linear = [name for name, part in transformer.named_modules() if type(part).__name__ in ("Linear", "Conv2d")]
    names = {layer: NAMES.authors_name(layer) for layer in linear}
    assert names["transformer_blocks.0.attn1.to_out.0"] == "blocks.0.attn_out"
    assert names["transformer_blocks.1.ff.net.0.proj"] == "blocks.1.ff_proj"
    assert names["time_embedding.linear_1"] == "time_embedding_linear_1"
    assert all(names.values())
    assert all(NAMES.layer_of(f"diffusion_model.{name}") == layer for layer, name in names.items())
    assert all(NAMES.layer_of("lora_unet_" + str(name).replace(".", "_")) == layer for layer, name in names.items())
    assert all(NAMES.layer_of("lora_unet__" + layer.replace(".", "_")) == layer for layer in linear)
    assert all(NAMES.layer_of("base_model.model." + layer) == layer for layer in linear)


def test_what_diffusers_converts_for_kohya_is_read(transformer: Any) -> None:
    from diffusers.utils.state_dict_utils import convert_state_dict_to_kohya

    lora = without_alpha(mixed(transformer))  # diffusers writes alpha = rank, so the scale must be in the matrices
    given, _ = FAMILY.export_lora(lora, "diffusers")
    found = FAMILY.lora_weights(convert_state_dict_to_kohya(given), {})
    same(deltas(found), deltas(lora))
    assert found.origin == "diffusers' conversion for kohya"


@pytest.mark.parametrize(
    ("prefix", "down", "up"),
    [
        ("", "lora_A.weight", "lora_B.weight"),
        ("base_model.model.", "lora_A.weight", "lora_B.weight"),
        ("base_model.model.transformer.", "lora_A.default.weight", "lora_B.default.weight"),
        ("diffusion_model.", "lora_A.weight", "lora_B.weight"),
        ("transformer.", "lora.down.weight", "lora.up.weight"),
    ],
)
def test_other_spellings_of_the_same_layers_are_read(prefix: str, down: str, up: str, transformer: Any) -> None:
    lora = without_alpha(mixed(transformer))
    ends = {"lora_A.weight": down, "lora_B.weight": up}
    given = {}
    for name, tensor in lora.tensors.items():
        layer, end = name.split(".lora_", 1)
        given[f"{prefix}{layer}.{ends[f'lora_{end}']}"] = tensor
    same(deltas(FAMILY.lora_weights(given, {})), deltas(lora))


def test_a_dora_goes_where_it_can_be_read_and_nowhere_else(transformer: Any, toy: Path, tmp_path: Path) -> None:
    lora = attention(transformer)
    lengths = {f"{layer}.lora_magnitude_vector": torch.rand(32) + 1 for layer in lora.layers}
    dora = weights({**lora.tensors, **lengths}, dict.fromkeys(lora.layers, 8.0), "a test")
    pipeline = FAMILY.load_pipeline(toy, transformer)
    merged = []
    for format in ("diffusers", "portable"):
        back = through(dora, format, tmp_path)
        assert all(torch.equal(back.tensors[name], length) for name, length in lengths.items())
        pipeline.load_lora_weights(tmp_path, weight_name="lora.safetensors", adapter_name=format)
        pipeline.set_adapters([format], [1.0])
        layer = transformer.get_submodule(lora.layers[0])
        generator = torch.Generator().manual_seed(5)
        merged.append(layer(torch.randn(1, layer.in_features, generator=generator)))
        pipeline.unload_lora_weights()
    torch.testing.assert_close(merged[0], merged[1])
    for format in ("kohya", "comfyui", "finetrainers", "sat"):
        with pytest.raises(ConfigError, match="this is a DoRA"):
            FAMILY.export_lora(dora, format)
    with pytest.raises(ConfigError, match="format is 'exl2': use diffusers"):
        FAMILY.export_lora(lora, "exl2")


# ---- files of other programs


QUERY = "transformer_blocks.0.attn1.to_q"


def pair(rank: int = 2, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        f"{QUERY}.lora_A.weight": torch.randn(rank, 32, generator=generator),
        f"{QUERY}.lora_B.weight": torch.randn(32, rank, generator=generator),
    }


def prefixed(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"transformer.{name}": tensor for name, tensor in tensors.items()}


# ---- LoRAs


@pytest.mark.parametrize(
    ("tensors", "match"),
    [
        ({"lora_unet_blocks_0_attn.lora_down.weight": torch.zeros(2, 4)}, "a name that no known trainer uses"),
        ({"lora_te_layers_0.lora_down.weight": torch.zeros(2, 4)}, "only the text encoder"),
        ({"transformer_blocks.1.attn1.to_q.lora_A.weight": torch.zeros(3, 32)}, "has only one of the two matrices"),
        ({**pair(), f"{QUERY}.lora_B.weight": torch.zeros(32, 3)}, "different ranks"),
        ({**pair(), "transformer_blocks.0.attn1.to_q.dora_scale": torch.ones(1, 7)}, "lengths of columns"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(tensors: dict[str, torch.Tensor], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        FAMILY.lora_weights(tensors, {})


def sat_lora(rank: int = 3) -> dict[str, torch.Tensor]:
    """The LoRA of a SAT checkpoint, by the names of SwissArmyTransformer's finetune/lora2.py."""
    generator, found = torch.Generator().manual_seed(1), {}
    for layer in range(2):
        stem = f"model.diffusion_model.transformer.layers.{layer}.attention"
        for module, parts in (("query_key_value", 3), ("dense", 1)):
            for part in range(parts):
                found[f"{stem}.{module}.matrix_A.{part}"] = torch.randn(rank, 32, generator=generator)
                found[f"{stem}.{module}.matrix_B.{part}"] = torch.randn(32, rank, generator=generator)
    return found


def test_a_lora_of_sat_is_read_with_sats_alpha() -> None:
    given = sat_lora()
    base = {"model.diffusion_model.transformer.layers.0.attention.dense.original.weight": torch.zeros(32, 32)}
    found = FAMILY.lora_weights({**given, **base}, {})
    assert (found.rank, found.alpha, found.origin, len(found.tensors)) == (3, 1.0, "SAT", len(given))
    names = {0: "to_q", 1: "to_k", 2: "to_v"}
    for layer in range(2):
        stem = f"model.diffusion_model.transformer.layers.{layer}.attention"
        for part, name in names.items():
            for matrix in "AB":
                ours = found.tensors[f"transformer_blocks.{layer}.attn1.{name}.lora_{matrix}.weight"]
                assert torch.equal(ours, given[f"{stem}.query_key_value.matrix_{matrix}.{part}"])
        ours = found.tensors[f"transformer_blocks.{layer}.attn1.to_out.0.lora_B.weight"]
        assert torch.equal(ours, given[f"{stem}.dense.matrix_B.0"])


def test_a_lora_for_sat_has_the_scale_in_its_matrices(tmp_path: Path) -> None:
    """SAT scales by 1 / r; missing query, key and value matrices are zeros."""
    notes = json.dumps({"transformer.r": 2, "transformer.lora_alpha": 8})
    save_file(prefixed(pair()), tmp_path / "lora.safetensors", metadata={"lora_adapter_metadata": notes})
    FAMILY.convert(tmp_path / "lora.safetensors", tmp_path / "sat.pt", tmp_path)
    found = torch.load(tmp_path / "sat.pt", weights_only=True)["module"]
    stem = "model.diffusion_model.transformer.layers.0.attention.query_key_value"
    ours, sats = pair(), found[f"{stem}.matrix_B.0"] @ found[f"{stem}.matrix_A.0"] / 2
    torch.testing.assert_close(sats, ours[f"{QUERY}.lora_B.weight"] @ ours[f"{QUERY}.lora_A.weight"] * 8 / 2)
    assert len(found) == 6
    assert not found[f"{stem}.matrix_B.2"].any()
    place = "transformer_blocks.0.ff.net.2"
    feed_forward = {f"{place}.lora_A.weight": torch.zeros(2, 4), f"{place}.lora_B.weight": torch.zeros(4, 2)}
    save_file(prefixed(feed_forward), tmp_path / "wide.safetensors")
    with pytest.raises(ConfigError, match="change only attention projections"):
        FAMILY.convert(tmp_path / "wide.safetensors", tmp_path / "c.pt", tmp_path)


# ---- models


def weights_of(folder: Path, part: str) -> dict[str, torch.Tensor]:
    return load_file(next((folder / part).glob("*.safetensors")))


def test_a_model_goes_to_sat_and_back_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    FAMILY.convert(folder, tmp_path / "sat", folder, report=lambda text: None)
    assert (tmp_path / "sat" / "transformer" / "latest").read_text() == "1"
    said = FAMILY.convert(tmp_path / "sat", tmp_path / "back", folder, report=lambda text: None)
    assert said.startswith(f"transformer and vae from SAT, the rest from {folder.name}: ")
    for part in ("transformer", "vae"):
        given, back = weights_of(folder, part), weights_of(tmp_path / "back", part)
        assert given.keys() == back.keys()
        assert all(torch.equal(given[name], back[name]) for name in given)
    model = FAMILY.describe_folder(tmp_path / "back")
    assert model is not None
    FAMILY.load_text_encoder(tmp_path / "back", CPU, torch.float32)
    FAMILY.load_transformer(tmp_path / "back", CPU, torch.float32)
    assert not list(tmp_path.glob(".*"))


def test_each_tensor_has_sats_name_and_order(folder: Path) -> None:
    """Written from SAT's modules (dit_video_concat.py): q, k, v in one matrix; twelve modulations in one layer."""
    ours = weights_of(folder, "transformer")
    theirs = transformer_to_sat(ours)
    prefix = "model.diffusion_model."
    for layer in range(2):
        block, sat = f"transformer_blocks.{layer}", f"{prefix}transformer.layers.{layer}"
        fused = torch.cat([ours[f"{block}.attn1.to_{letter}.weight"] for letter in "qkv"])
        assert torch.equal(theirs[f"{sat}.attention.query_key_value.weight"], fused)
        assert torch.equal(theirs[f"{sat}.attention.dense.bias"], ours[f"{block}.attn1.to_out.0.bias"])
        assert torch.equal(theirs[f"{sat}.mlp.dense_h_to_4h.weight"], ours[f"{block}.ff.net.0.proj.weight"])
        assert torch.equal(theirs[f"{sat}.mlp.dense_4h_to_h.bias"], ours[f"{block}.ff.net.2.bias"])
        assert torch.equal(theirs[f"{sat}.input_layernorm.weight"], ours[f"{block}.norm1.norm.weight"])
        assert torch.equal(theirs[f"{sat}.post_attention_layernorm.bias"], ours[f"{block}.norm2.norm.bias"])
        name = f"{prefix}mixins.adaln_layer.query_layernorm_list.{layer}.weight"
        assert torch.equal(theirs[name], ours[f"{block}.attn1.norm_q.weight"])
        # SAT: shift, scale, gate of attention, then of the feed-forward; the picture's six, then the text's.
        modulations = theirs[f"{prefix}mixins.adaln_layer.adaLN_modulations.{layer}.1.weight"].chunk(12)
        # diffusers: a layer a norm; shift, scale, gate of the picture, then of the text.
        attention, feed_forward = (ours[f"{block}.norm{number}.linear.weight"].chunk(6) for number in (1, 2))
        expected = (*attention[:3], *feed_forward[:3], *attention[3:], *feed_forward[3:])
        assert all(torch.equal(a, b) for a, b in zip(modulations, expected, strict=True))
    assert torch.equal(theirs[f"{prefix}transformer.final_layernorm.weight"], ours["norm_final.weight"])
    assert torch.equal(theirs[f"{prefix}mixins.final_layer.adaLN_modulation.1.bias"], ours["norm_out.linear.bias"])
    assert torch.equal(theirs[f"{prefix}mixins.final_layer.linear.weight"], ours["proj_out.weight"])
    assert torch.equal(theirs[f"{prefix}time_embed.2.weight"], ours["time_embedding.linear_2.weight"])
    assert (f"{prefix}ofs_embed.0.weight" in theirs) == (folder.name == "image-1.5")
    assert (f"{prefix}mixins.pos_embed.pos_embedding" in theirs) == (folder.name == "image")
    named = vae_to_sat(weights_of(folder, "vae"))
    vae = weights_of(folder, "vae")
    for sat, mine in (
        ("decoder.up.0.block.1.conv1.conv.weight", "decoder.up_blocks.2.resnets.1.conv1.conv.weight"),
        ("decoder.up.2.upsample.conv.bias", "decoder.up_blocks.0.upsamplers.0.conv.bias"),
        ("encoder.down.1.downsample.conv.weight", "encoder.down_blocks.1.downsamplers.0.conv.weight"),
        ("decoder.mid.block_2.norm1.conv_y.conv.weight", "decoder.mid_block.resnets.1.norm1.conv_y.conv.weight"),
    ):
        assert torch.equal(named[sat], vae[mine])
    assert len(named) == len(vae)


def test_patches_for_sat_are_what_its_code_of_today_reads(folder: Path) -> None:
    """dit_video_concat.py at e519ece: nn.Linear over "b (t o h p w q) c -> b (t h w) (c o p q)", o being 1 in 1.0."""
    ours, theirs = weights_of(folder, "transformer"), transformer_to_sat(weights_of(folder, "transformer"))
    matrix = theirs["model.diffusion_model.mixins.patch_embed.proj.weight"]
    assert matrix.ndim == 2
    if ours["patch_embed.proj.weight"].ndim == 2:  # 1.5
        assert torch.equal(matrix, ours["patch_embed.proj.weight"])
        return
    hidden, channels, p, q = ours["patch_embed.proj.weight"].shape
    picture = torch.randn(2, channels, 3 * p, 5 * q, generator=torch.Generator().manual_seed(0))
    expected = torch.nn.functional.conv2d(picture, ours["patch_embed.proj.weight"], stride=(p, q))
    rows = picture.view(2, channels, 3, p, 5, q).permute(0, 2, 4, 1, 3, 5).reshape(2, 15, channels * p * q)
    torch.testing.assert_close((rows @ matrix.T).transpose(1, 2).reshape(2, hidden, 3, 5), expected)


def cut(name: str, full: torch.Tensor, count: int) -> list[torch.Tensor]:
    """A tensor as SwissArmyTransformer's mpu/layers.py partitions it: ColumnParallelLinear, RowParallelLinear."""
    if "query_key_value" in name or "dense_h_to_4h" in name:
        strides = [1] * (3 if "query_key_value" in name else 1)
        factor, strided, begin = full.shape[0] // sum(strides), [], 0
        for stride in strides:
            strided.append(full[begin : begin + factor * stride])
            begin += factor * stride
        size = strided[0].shape[0] // count
        return [torch.cat([one[size * rank : size * (rank + 1)] for one in strided]).clone() for rank in range(count)]
    if name.endswith(("attention.dense.weight", "dense_4h_to_h.weight")):
        size = full.shape[1] // count
        return [full[:, size * rank : size * (rank + 1)].clone() for rank in range(count)]
    return [full.clone() for _ in range(count)]


@pytest.mark.parametrize("count", [2, 4])
def test_a_checkpoint_in_pieces_is_joined(folder: Path, tmp_path: Path, count: int) -> None:
    full = transformer_to_sat(weights_of(folder, "transformer"))
    cuts = {name: cut(name, tensor, count) for name, tensor in full.items()}
    assert sum(len({piece.shape for piece in [*pieces, full[name]]}) > 1 for name, pieces in cuts.items()) >= 12
    states = tmp_path / "transformer" / "1000"
    states.mkdir(parents=True)
    (tmp_path / "transformer" / "latest").write_text("1000")
    for rank in range(count):
        pieces = {name: pieces[rank] for name, pieces in cuts.items()}
        torch.save({"module": pieces}, states / f"mp_rank_{rank:02d}_model_states.pt")
    for source in (tmp_path / "transformer", states / "mp_rank_00_model_states.pt"):
        new = tmp_path / f"from {source.name}"
        FAMILY.convert(source, new, folder, report=lambda text: None)
        given, back = weights_of(folder, "transformer"), weights_of(new, "transformer")
        assert all(torch.equal(given[name], back[name]) for name in given)
    torch.save({"module": {name: tensor + 1 for name, tensor in pieces.items()}}, states / "mp_rank_01_model_states.pt")
    with pytest.raises(ConfigError, match="differs between the pieces"):
        FAMILY.convert(tmp_path / "transformer", tmp_path / "never", folder, report=lambda text: None)
    (states / "mp_rank_00_model_states.pt").unlink()
    with pytest.raises(ConfigError, match="lacks the piece mp_rank_00_model_states.pt"):
        FAMILY.convert(states / "mp_rank_01_model_states.pt", tmp_path / "never", folder)


def test_a_training_checkpoint_of_sat_is_taken_and_a_wrong_one_refused(folder: Path, tmp_path: Path) -> None:
    """It also holds other parts and states of generators; versions before November 2024 convolve patches."""
    import numpy as np

    tensors = transformer_to_sat(weights_of(folder, "transformer"))
    patches = "model.diffusion_model.mixins.patch_embed.proj.weight"
    tensors[patches] = tensors[patches].reshape(weights_of(folder, "transformer")["patch_embed.proj.weight"].shape)
    tensors["conditioner.embedders.0.transformer.shared.weight"] = torch.zeros(2)
    tensors["model.diffusion_model.transformer.position_embeddings.weight"] = torch.zeros(2)
    state = {"module": tensors, "iteration": 5, "np_rng_state": np.random.default_rng(0).integers(0, 9, 4, np.uint32)}
    torch.save(state, tmp_path / "states.pt")
    FAMILY.convert(tmp_path / "states.pt", tmp_path / "new", folder, report=lambda text: None)
    given, back = weights_of(folder, "transformer"), weights_of(tmp_path / "new", "transformer")
    assert all(torch.equal(given[name], back[name]) for name in given)

    del tensors["model.diffusion_model.time_embed.0.bias"]
    torch.save(state, tmp_path / "less.pt")
    with pytest.raises(ConfigError, match="they lack 'time_embedding.linear_1.bias'"):
        FAMILY.convert(tmp_path / "less.pt", tmp_path / "never", folder, report=lambda text: None)
    torch.save({"module": {**tensors, **sat_lora()}}, tmp_path / "lora.pt")
    with pytest.raises(ConfigError, match="holds a LoRA, .*end it in .safetensors"):
        FAMILY.convert(tmp_path / "lora.pt", tmp_path / "never", folder)
    assert not (tmp_path / "never").exists()


def test_files_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("no weights")
    torch.save({"module": Path}, tmp_path / "code.pt")  # a class: loading it could run code
    for name, match in (
        ("text.pt", "text.pt"),
        ("code.pt", "code.pt holds more than weights, which could run code"),
        ("missing", "is neither a diffusers model"),
    ):
        with pytest.raises(ConfigError, match=match):
            FAMILY.convert(tmp_path / name, tmp_path / "never", tmp_path)


def test_a_model_is_converted_by_its_name(tmp_path: Path) -> None:
    said = convert("tiny-cogvideox", str(tmp_path / "sat"), report=lambda text: None)
    assert said == f"transformer and vae for SAT: {tmp_path / 'sat'}"
    with pytest.raises(ConfigError, match="like is empty, and .*sat does not say which model it is for: choose tiny"):
        convert(str(tmp_path / "sat"), str(tmp_path / "back"))
    convert(str(tmp_path / "sat"), str(tmp_path / "back"), "tiny-cogvideox", report=lambda text: None)
    assert (tmp_path / "back" / "model_index.json").is_file()

"""Other trainers' LoRA files, and SAT's weights in and out, tensor by tensor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from workbench.errors import ConfigError
from workbench.families import convert
from workbench.families.cogvideox import FAMILY
from workbench.families.cogvideox.sat import transformer_to_sat, vae_to_sat

CPU = torch.device("cpu")
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
        ({"lora_unet_blocks_0_attn.lora_down.weight": torch.zeros(2, 4)}, "a name of no trainer known here"),
        ({"lora_te_layers_0.lora_down.weight": torch.zeros(2, 4)}, "the text encoder alone"),
        ({"transformer_blocks.1.attn1.to_q.lora_A.weight": torch.zeros(3, 32)}, "lacks the other"),
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


def test_a_lora_goes_to_sat_and_back_through_files(tmp_path: Path) -> None:
    torch.save({"module": sat_lora()}, tmp_path / "mp_rank_00_model_states.pt")
    said = FAMILY.convert(tmp_path / "mp_rank_00_model_states.pt", tmp_path / "a.safetensors", tmp_path)
    assert "rank 3 from SAT" in said
    assert FAMILY.convert(tmp_path / "a.safetensors", tmp_path / "b.pt", tmp_path).startswith("a LoRA for SAT: r 3")
    back = torch.load(tmp_path / "b.pt", weights_only=True)["module"]
    assert back.keys() == sat_lora().keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in sat_lora().items())
    with pytest.raises(ConfigError, match=r"a.safetensors is there already: give a new name"):
        FAMILY.convert(tmp_path / "b.pt", tmp_path / "a.safetensors", tmp_path)


def test_a_lora_for_sat_has_the_scale_in_its_matrices(tmp_path: Path) -> None:
    """SAT scales by 1 / r; what the LoRA lacks of query, key and value is zero."""
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
    with pytest.raises(ConfigError, match="change the attention's projections alone"):
        FAMILY.convert(tmp_path / "wide.safetensors", tmp_path / "c.pt", tmp_path)


# ---- models


@pytest.fixture(scope="module", params=FAMILY.toys)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy") / request.param
    FAMILY.toy(folder, request.param)
    return folder


def weights(folder: Path, part: str) -> dict[str, torch.Tensor]:
    return load_file(next((folder / part).glob("*.safetensors")))


def test_a_model_goes_to_sat_and_back_bit_for_bit(folder: Path, tmp_path: Path) -> None:
    FAMILY.convert(folder, tmp_path / "sat", folder, report=lambda text: None)
    assert (tmp_path / "sat" / "transformer" / "latest").read_text() == "1"
    said = FAMILY.convert(tmp_path / "sat", tmp_path / "back", folder, report=lambda text: None)
    assert said.startswith(f"transformer and vae from SAT, the rest from {folder.name}: ")
    for part in ("transformer", "vae"):
        given, back = weights(folder, part), weights(tmp_path / "back", part)
        assert given.keys() == back.keys()
        assert all(torch.equal(given[name], back[name]) for name in given)
    model = FAMILY.describe_folder(tmp_path / "back")
    assert model is not None
    FAMILY.load_text_encoder(tmp_path / "back", CPU, torch.float32)
    FAMILY.load_transformer(tmp_path / "back", CPU, torch.float32)
    assert not list(tmp_path.glob(".*"))


def test_each_tensor_has_sats_name_and_order(folder: Path) -> None:
    """Written from SAT's modules (dit_video_concat.py): q, k, v in one matrix; twelve modulations in one layer."""
    ours = weights(folder, "transformer")
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
    named = vae_to_sat(weights(folder, "vae"))
    vae = weights(folder, "vae")
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
    ours, theirs = weights(folder, "transformer"), transformer_to_sat(weights(folder, "transformer"))
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
    full = transformer_to_sat(weights(folder, "transformer"))
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
        given, back = weights(folder, "transformer"), weights(new, "transformer")
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

    tensors = transformer_to_sat(weights(folder, "transformer"))
    patches = "model.diffusion_model.mixins.patch_embed.proj.weight"
    tensors[patches] = tensors[patches].reshape(weights(folder, "transformer")["patch_embed.proj.weight"].shape)
    tensors["conditioner.embedders.0.transformer.shared.weight"] = torch.zeros(2)
    tensors["model.diffusion_model.transformer.position_embeddings.weight"] = torch.zeros(2)
    state = {"module": tensors, "iteration": 5, "np_rng_state": np.random.default_rng(0).integers(0, 9, 4, np.uint32)}
    torch.save(state, tmp_path / "states.pt")
    FAMILY.convert(tmp_path / "states.pt", tmp_path / "new", folder, report=lambda text: None)
    given, back = weights(folder, "transformer"), weights(tmp_path / "new", "transformer")
    assert all(torch.equal(given[name], back[name]) for name in given)

    del tensors["model.diffusion_model.time_embed.0.bias"]
    torch.save(state, tmp_path / "less.pt")
    with pytest.raises(ConfigError, match="it lacks 'time_embedding.linear_1.bias'"):
        FAMILY.convert(tmp_path / "less.pt", tmp_path / "never", folder, report=lambda text: None)
    torch.save({"module": {**tensors, **sat_lora()}}, tmp_path / "lora.pt")
    with pytest.raises(ConfigError, match="holds a LoRA .*end it in .safetensors"):
        FAMILY.convert(tmp_path / "lora.pt", tmp_path / "never", folder)
    assert not (tmp_path / "never").exists()


def test_files_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("no weights")
    torch.save({"module": Path}, tmp_path / "code.pt")  # a class: loading it could run code
    for name, match in (
        ("text.pt", "text.pt"),
        ("code.pt", "code.pt holds more than weights, which could run code"),
        ("missing", "is neither a model of diffusers"),
    ):
        with pytest.raises(ConfigError, match=match):
            FAMILY.convert(tmp_path / name, tmp_path / "never", tmp_path)


def test_a_model_is_converted_by_its_name(tmp_path: Path) -> None:
    said = convert("tiny-cogvideox", str(tmp_path / "sat"), report=lambda text: None)
    assert said == f"transformer and vae for SAT: {tmp_path / 'sat'}"
    with pytest.raises(ConfigError, match="like is empty, and .*sat does not say which model it is of: choose tiny"):
        convert(str(tmp_path / "sat"), str(tmp_path / "back"))
    convert(str(tmp_path / "sat"), str(tmp_path / "back"), "tiny-cogvideox", report=lambda text: None)
    assert (tmp_path / "back" / "model_index.json").is_file()

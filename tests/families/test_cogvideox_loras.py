"""LoRAs to every other program's format and back: each changes every weight as the LoRA itself does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from workbench.errors import ConfigError
from workbench.families.base import LoraWeights
from workbench.families.cogvideox import FAMILY
from workbench.families.cogvideox.models import NAMES
from workbench.families.lora_files import read_safetensors, weights, without_alpha

Tensors = dict[str, torch.Tensor]
FORMATS = [one.id for one in FAMILY.lora_formats]


@pytest.fixture(scope="module", params=FAMILY.toys)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("toy") / request.param
    FAMILY.toy(folder, request.param)
    return folder


@pytest.fixture
def transformer(folder: Path) -> Any:
    return FAMILY.load_transformer(folder, torch.device("cpu"), torch.float32)


def drawn(transformer: Any, ranks: dict[str, int], alphas: dict[str, float] | None = None) -> LoraWeights:
    """A LoRA on the given layers, with matrices that leave no layer unchanged."""
    generator, found = torch.Generator().manual_seed(3), dict[str, torch.Tensor]()
    for layer, rank in ranks.items():
        weight = transformer.get_submodule(layer).weight
        found[f"{layer}.lora_A.weight"] = torch.randn(rank, weight.shape[1], generator=generator)
        found[f"{layer}.lora_B.weight"] = torch.randn(weight.shape[0], rank, generator=generator)
    return weights(found, alphas or {}, "a test", alpha_known=alphas is not None)


def attention(transformer: Any) -> LoraWeights:
    """On all of the attention's projections."""
    ranks = {f"transformer_blocks.{n}.attn1.{name}": 4 for n in (0, 1) for name in ("to_q", "to_k", "to_v", "to_out.0")}
    return drawn(transformer, ranks, dict.fromkeys(ranks, 8.0))


def mixed(transformer: Any) -> LoraWeights:
    """Several ranks, several alphas, on the attention alone (so that every format can hold it)."""
    ranks = {
        "transformer_blocks.0.attn1.to_q": 2,
        "transformer_blocks.1.attn1.to_v": 5,
        "transformer_blocks.1.attn1.to_out.0": 5,
    }
    return drawn(transformer, ranks, {"transformer_blocks.0.attn1.to_q": 6.0, "transformer_blocks.1.attn1.to_v": 1.0})


def deltas(lora: LoraWeights) -> Tensors:
    """What the LoRA adds to each weight; layers that it does not change are left out."""
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
    """Written in a format, and read back from the file."""
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


def test_comfyuis_names_are_those_of_its_own_model(transformer: Any) -> None:
    """Every layer of the transformer has one, and the way back gives the layer."""
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


def test_a_dora_goes_where_it_can_be_read_and_nowhere_else(transformer: Any, folder: Path, tmp_path: Path) -> None:
    lora = attention(transformer)
    lengths = {f"{layer}.lora_magnitude_vector": torch.rand(32) + 1 for layer in lora.layers}
    dora = weights({**lora.tensors, **lengths}, dict.fromkeys(lora.layers, 8.0), "a test")
    pipeline = FAMILY.load_pipeline(folder, transformer)
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


def test_a_damaged_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"nothing")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_safetensors(tmp_path / "a.safetensors")

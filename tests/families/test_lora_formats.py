"""LoRA files of other trainers: out and back on miniatures, those of Wan, LTX-Video and Phenaki also in the stock
pipeline; what a file holds besides pairs of matrices; files that lack layers or hold two LoRAs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.families import lora_changes
from tests.families.lora_changes import lora_on, same
from tests.families.stock import variants
from workbench.errors import ConfigError
from workbench.families import families
from workbench.families.base import Family
from workbench.families.lora_files import LoraWeights, by_expert, experts_of, of_expert, weights
from workbench.families.lora_names import lines, match_report

CPU = torch.device("cpu")
Tensors = dict[str, torch.Tensor]
FAMILIES = {family.name: family for family in families()}
WAN, LTX = FAMILIES["wan"], FAMILIES["ltx"]


class Toy:
    """A miniature, and a LoRA on every linear layer of its blocks, alpha four times the rank."""

    def __init__(self, family: Family, folder: Path, variant: str) -> None:
        self.family, self.folder = family, folder
        self.model = family.toy(folder, variant)
        self.transformer = family.load_transformer(folder, CPU, torch.float32)
        self.lora = on(self.transformer, "")

    def sizes(self) -> dict[str, tuple[int, int]]:
        return {name: (one.outputs, one.inputs) for name, one in self.family.facts(self.model).named()}

    def added(self, path: Path) -> Tensors:
        """What the stock pipeline adds to each weight with a file."""
        transformer = self.family.load_transformer(self.folder, CPU, torch.float32)
        before = {name: value.clone() for name, value in transformer.state_dict().items()}
        pipeline = self.family.load_pipeline(self.folder, transformer)
        pipeline.load_lora_weights(path.parent, weight_name=path.name, adapter_name="test")
        pipeline.fuse_lora(components=["transformer"])
        pipeline.unload_lora_weights()
        after = transformer.state_dict()
        return {name: delta for name in before if (delta := after[name] - before[name]).abs().max() > 1e-6}


def on(transformer: Any, part: str, rank: int = 2, alpha: float = 8.0) -> LoraWeights:
    """A LoRA on the linear layers of the blocks whose names have `part`."""
    random, found = torch.Generator().manual_seed(3), Tensors()
    for name, module in transformer.named_modules():
        if "blocks" in name and part in name and isinstance(module, torch.nn.Linear):
            found[f"{name}.lora_A.weight"] = torch.randn(rank, module.in_features, generator=random)
            found[f"{name}.lora_B.weight"] = torch.randn(module.out_features, rank, generator=random) * 0.1
    layers = {name.rpartition(".lora_")[0] for name in found}
    return weights(found, dict.fromkeys(layers, alpha), "a test")


def changes(lora: LoraWeights) -> Tensors:
    """What a LoRA adds to each weight and bias."""
    found = {f"{layer}.weight": change for layer, change in lora_changes.changes(lora).items()}
    for layer in lora.layers:
        bias = lora.tensors.get(f"{layer}.lora_B.bias")
        if bias is not None and bias.any():
            found[f"{layer}.bias"] = lora.scale_of(layer) * bias
    return found


@pytest.fixture(scope="module", params=variants(WAN, LTX, FAMILIES["phenaki"]))
def toy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    family, variant = request.param
    return Toy(family, tmp_path_factory.mktemp(variant), variant)


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy(WAN, tmp_path_factory.mktemp("wan"), "text")


def test_every_format_goes_out_and_back_and_changes_the_stock_pipeline_alike(toy: Toy, tmp_path: Path) -> None:
    for format in [one.id for one in toy.family.lora_formats]:
        tensors, metadata = toy.family.export_lora(toy.lora, format)
        same(changes(toy.family.lora_weights(tensors, metadata)), changes(toy.lora))
        if format == "lycoris":  # whose names diffusers refuses
            continue
        if toy.family.facts(toy.model).side and not next(iter(tensors)).startswith("transformer."):
            continue  # diffusers reads a side branch by its own names alone
        save_file(tensors, tmp_path / f"{format}.safetensors", metadata)
        same(toy.added(tmp_path / f"{format}.safetensors"), changes(toy.lora))


# Families whose every linear layer may get a LoRA: parts of the layers' names, and whether ranks and alphas differ.
PARTS = {
    "hunyuan15": [("", False), ("", True), ("1.attn.to_", False), ("0.ff", True), ("refiner", True)],
    "kandinsky5": [("", False), ("text_transformer_blocks", False), ("1.cross_attention.to_", True)]
    + [("out_layer.out_layer", False)],
    "mochi": [("", False), ("", True), ("1.attn1.to_", False), ("0.ff", True)],
}


@pytest.mark.parametrize("name", PARTS)
def test_every_format_goes_out_and_back_on_parts_of_a_model(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    model = family.toy(tmp_path / "toy", "text")
    sizes = {layer: (one.outputs, one.inputs) for layer, one in family.facts(model).named()}
    for part, mixed in PARTS[name]:
        lora = lora_on(family, model, part, mixed, within="blocks" if name == "mochi" else "")
        assert lora.layers, part
        for file_format in family.lora_formats:
            read = family.lora_weights(*family.export_lora(lora, file_format.id))
            same(changes(read), changes(lora))
            report = match_report(read, sizes)
            assert (report["matched"], report["left_out"]) == (len(lora.layers), []), (part, file_format.id)
            if name == "mochi":
                assert report["written_by"] == ("Mochi's fine-tuner" if file_format.id == "comfyui" else read.origin)


def test_a_file_of_musubi_that_lacks_layers_is_read(wan: Toy, tmp_path: Path) -> None:
    """diffusers' own reader raises KeyError for one without every layer of blocks 0 to n."""
    part = on(wan.transformer, "blocks.1.attn2")
    tensors, metadata = WAN.export_lora(part, "kohya")
    found = WAN.lora_weights(tensors, {**metadata, "ss_network_module": "networks.lora_wan"})
    assert found.origin == "musubi-tuner"
    same(changes(found), changes(part))
    tensors, metadata = WAN.export_lora(found, "diffusers")
    save_file(tensors, tmp_path / "part.safetensors", metadata)
    same(wan.added(tmp_path / "part.safetensors"), changes(part))


def lightx2v(transformer: Any) -> tuple[Tensors, Tensors]:
    """(a file as lightx2v writes it, the changes that a LoRA can hold)."""
    tensors, _ = WAN.export_lora(on(transformer, ""), "comfyui")
    wanted = changes(on(transformer, ""))
    shapes = {name: value.shape for name, value in transformer.state_dict().items()}
    for name, theirs, kind in (
        ("blocks.0.attn1.to_q.bias", "blocks.0.self_attn.q", "diff_b"),
        ("proj_out.weight", "head.head", "diff"),
        ("proj_out.bias", "head.head", "diff_b"),
        ("patch_embedding.weight", "patch_embedding", "diff"),
        ("condition_embedder.time_proj.weight", "time_projection.1", "diff"),
    ):
        tensors[f"diffusion_model.{theirs}.{kind}"] = wanted[name] = torch.randn(shapes[name])
    width = shapes["blocks.0.norm2.weight"]
    tensors["diffusion_model.blocks.0.norm3.diff"] = torch.ones(width)
    tensors["diffusion_model.blocks.0.norm3.diff_b"] = torch.ones(width)
    tensors["diffusion_model.blocks.1.norm3.diff"] = torch.zeros(width)  # changes nothing, so it is not missed
    tensors["diffusion_model.blocks.1.modulation.diff"] = torch.ones(1, 6, *width)
    tensors["diffusion_model.time_embedding.0.diff_b"] = torch.ones(*width)
    return tensors, wanted


def test_whole_differences_become_part_of_the_lora_and_the_rest_is_named(wan: Toy, tmp_path: Path) -> None:
    tensors, wanted = lightx2v(wan.transformer)
    found = WAN.lora_weights(tensors, {})
    same(changes(found), wanted)
    exported, metadata = WAN.export_lora(found, "diffusers")
    save_file(exported, tmp_path / "lora.safetensors", metadata)
    same(wan.added(tmp_path / "lora.safetensors"), wanted)
    same(changes(WAN.lora_weights(*WAN.export_lora(found, "comfyui"))), wanted)
    report = match_report(found, wan.sizes())
    layers = len(found.layers)
    assert (report["layers"], report["matched"], report["written_by"]) == (layers, layers, "lightx2v")
    assert {reason["why"]: reason["names"] for reason in report["left_out"]} == {
        "a norm or a table, which a LoRA cannot change": [
            "diffusion_model.blocks.0.norm3",
            "diffusion_model.blocks.1.modulation",
        ],
        "the bias of a layer that has no matrices": ["diffusion_model.time_embedding.0"],
    }
    assert ("layers matched", f"{layers} of {layers}") in lines(report)


def test_a_file_with_both_experts_is_taken_apart(wan: Toy) -> None:
    high, low = (on(wan.transformer, f"blocks.{number}") for number in (0, 1))
    joint = Tensors()
    for number, lora in ((1, high), (2, low)):
        for name, tensor in WAN.export_lora(lora, "comfyui")[0].items():
            joint[name.replace("diffusion_model.", f"diffusion_model.transformer_{number}.")] = tensor
    with pytest.raises(ConfigError, match="holds two LoRAs, one for each expert .* import it"):
        WAN.lora_weights(joint, {})
    parts = by_expert(joint)
    assert list(parts) == ["high noise", "low noise"]
    same(changes(WAN.lora_weights(parts["high noise"], {})), changes(high))
    same(changes(WAN.lora_weights(parts["low noise"], {})), changes(low))
    of_diffusers = {f"transformer.{name}": one for name, one in high.tensors.items()}
    of_diffusers |= {f"transformer_2.{name}": one for name, one in low.tensors.items()}
    same(changes(WAN.lora_weights(by_expert(of_diffusers)["low noise"], {})), changes(weights(low.tensors, {}, "x")))
    assert by_expert(WAN.export_lora(high, "diffusers")[0]) == {}
    assert experts_of(of_diffusers, {}) == experts_of(joint, {}) == ("high noise", "low noise")
    assert of_expert(of_diffusers, "high noise").keys() == {f"transformer.{name}" for name in high.tensors}


@pytest.mark.parametrize(
    ("name", "metadata", "origin"),
    [
        ("diffusion_model.blocks.0.self_attn.q.lora_{}.weight", {}, "ComfyUI"),
        ("diffusion_model.blocks.0.self_attn.q.lora_{}.weight", {"software": '{"name": "ai-toolkit"}'}, "ai-toolkit"),
        ("diffusion_model.blocks.0.self_attn.q.lora_{}.weight", {"adapter_config.json": "{}"}, "diffusion-pipe"),
        ("blocks.0.self_attn.q.lora_{}.default.weight", {}, "DiffSynth"),
        ("transformer.blocks.0.attn1.to_q.lora_{}.weight", {"lora_config": '{"lora_alpha": 1}'}, "finetrainers"),
    ],
)
def test_the_trainer_is_named(name: str, metadata: dict[str, str], origin: str) -> None:
    found = WAN.lora_weights({name.format(one): torch.ones(2, 2) for one in "AB"}, metadata)
    assert (found.origin, found.layers) == (origin, ["blocks.0.attn1.to_q"])
    assert found.alpha == (1.0 if origin == "finetrainers" else None)

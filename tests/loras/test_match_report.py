"""What a person sees of a foreign LoRA's layers: on import, conversion and sampling, in shell, page and JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.shell import Shell
from workbench.families import families
from workbench.families.base import Family
from workbench.families.lora_files import weights
from workbench.families.model import Model
from workbench.loras import library, view
from workbench.loras.converting import convert, import_lora
from workbench.loras.opened import opened
from workbench.loras.settings import ConvertSettings, LoraImportSettings
from workbench.workspace import Workspace

WAN = next(family for family in families() if family.name == "wan")
LTX = next(family for family in families() if family.name == "ltx")
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return WAN.toy(tmp_path_factory.mktemp("wan"), "text")


def pairs(family: Family, model: Model, part: str) -> Tensors:
    """A LoRA on the layers of the model's blocks whose names have `part`, by our names."""
    found, random = Tensors(), torch.Generator().manual_seed(0)
    for name, linear in family.facts(model).named():
        if "blocks" in name and part in name:
            found[f"{name}.lora_A.weight"] = torch.randn(2, linear.inputs, generator=random)
            found[f"{name}.lora_B.weight"] = torch.randn(linear.outputs, 2, generator=random)
    return found


def file_of(path: Path, family: Family, tensors: Tensors, format: str, alpha: float = 1.0) -> Path:
    layers = {name.rpartition(".lora_")[0] for name in tensors}
    written, metadata = family.export_lora(weights(tensors, dict.fromkeys(layers, alpha), "x"), format)
    save_file(written, path, metadata)
    return path


@pytest.fixture
def foreign(wan: Model, tmp_path: Path) -> Path:
    """Of lightx2v: a layer that the model lacks, and a norm's weights, beside 20 that fit."""
    tensors = pairs(WAN, wan, "")
    tensors |= {name.replace("blocks.0", "blocks.7"): one for name, one in pairs(WAN, wan, "0.attn1.to_q").items()}
    path = file_of(tmp_path / "fast.safetensors", WAN, tensors, "comfyui")
    from safetensors.torch import load_file

    save_file({**load_file(path), "diffusion_model.blocks.0.norm3.diff": torch.ones(24)}, path)
    return path


def test_an_import_says_what_matched_everywhere(workspace: Workspace, wan: Model, foreign: Path, shell: Shell) -> None:
    shown = shell("loras", "import", str(foreign), "--model", wan.id).out
    for part in (
        "20 of 21",
        "blocks.7.attn1.to_q: a layer that the model lacks",
        "diffusion_model.blocks.0.norm3: a norm or a table, for which a LoRA has no place",
        "lightx2v",
    ):
        assert part in shown
        assert part in shell("loras", "show", "loras/fast").out
    lora = library.find(workspace, "loras/fast")
    assert dict(view.match(lora))["layers matched"] == "20 of 21"
    assert json.loads(shell("loras", "show", "loras/fast", "--json").out)["match"]["matched"] == 20
    again = json.loads(shell("loras", "import", str(foreign), "--model", wan.id, "--json").out)
    assert again["made"] == "loras/fast-2"
    assert again["reports"][0] | {"lora": "fast"} == {"lora": "fast", **library.notes(lora)["match"]}


def test_a_conversion_says_what_was_read(workspace: Workspace, foreign: Path, tmp_path: Path, shell: Shell) -> None:
    done = json.loads(
        shell("loras", "convert", str(foreign), "portable", str(tmp_path / "p.safetensors"), "--json").out
    )
    assert done["made"] == str(tmp_path / "p.safetensors")
    (found,) = done["reports"]
    assert (found["matched"], found["layers"], found["alpha"], found["rank"]) == (21, 21, "1", "2")
    assert found["left_out"][0]["names"] == ["diffusion_model.blocks.0.norm3"]


def test_a_conversion_names_the_layers_that_few_programs_read(workspace: Workspace, wan: Model, tmp_path: Path) -> None:
    tensors = pairs(WAN, wan, "")
    for name, linear in WAN.facts(wan).named():
        if name == "proj_out":
            tensors["proj_out.lora_A.weight"] = torch.ones(2, linear.inputs)
            tensors["proj_out.lora_B.weight"] = torch.ones(linear.outputs, 2)
    path = file_of(tmp_path / "head.safetensors", WAN, tensors, "diffusers")
    settings = ConvertSettings(lora=str(path), format="diffsynth")
    message = convert(workspace, settings, print, lambda *_: None).message
    assert "Layers outside the blocks (proj_out) are read by ComfyUI alone" in message


def test_a_file_with_both_experts_becomes_two(workspace: Workspace, wan: Model, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    joint = Tensors()
    for number in (1, 2):
        one = load_file(
            file_of(tmp_path / f"{number}.safetensors", WAN, pairs(WAN, wan, f"blocks.{number - 1}"), "comfyui")
        )
        joint |= {
            name.replace("diffusion_model.", f"diffusion_model.transformer_{number}."): t for name, t in one.items()
        }
    save_file(joint, tmp_path / "pair.safetensors")
    settings = LoraImportSettings(source=str(tmp_path / "pair.safetensors"), model=wan.id)
    done = import_lora(workspace, settings, print, lambda *_: None)
    names = {"loras/pair-high-noise", "loras/pair-low-noise"}
    assert {one.name for one in library.all_loras(workspace)} == names
    assert done.message.startswith("two LoRAs, one for each expert: ")
    assert all(name in done.message for name in names)
    (low,) = opened(workspace, ["loras/pair-low-noise"])
    assert {layer[:8] for layer in low.weights.layers} == {"blocks.1"}


@pytest.mark.parametrize(("family", "variant"), [(WAN, "text"), (LTX, LTX.toys[0])], ids=["wan", "ltx"])
@pytest.mark.parametrize("part", ["", "attn1"])
def test_the_family_of_a_file_is_found_without_being_named(
    family: Family, variant: str, part: str, workspace: Workspace, tmp_path: Path
) -> None:
    """Layers of CogVideoX are called the same; sizes, and layers that it lacks, decide."""
    model = family.models[0]
    tensors = {name: one for name, one in pairs(family, model, f"blocks.0.{part}").items()}
    path = file_of(tmp_path / "a.safetensors", family, tensors, "diffusers")
    (found,) = opened(workspace, [str(path)])
    assert found.family is family
    assert len(found.weights.layers) == len(tensors) / 2

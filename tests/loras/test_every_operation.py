"""Every operation on LoRAs, on a miniature of each variant of every family: known matrices in, known changes out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.families.lora_changes import changes, same
from workbench.families import families, find_model
from workbench.families.base import Family
from workbench.families.lora_files import weights, with_metadata
from workbench.families.model import Model
from workbench.loras import library
from workbench.loras.converting import convert, import_lora
from workbench.loras.making import extract, fuse, merge, resize
from workbench.loras.opened import ModelWeights, opened
from workbench.loras.settings import (
    ConvertSettings,
    ExtractSettings,
    FuseSettings,
    LoraImportSettings,
    MergeSettings,
    ResizeSettings,
)
from workbench.workspace import Workspace

CASES = [(family, variant) for family in families() for variant in family.toys if family.lora_formats]
Tensors = dict[str, torch.Tensor]


# One of each kind at every change, the others before a release; test_operations.py has CogVideoX from text.
USUAL = ("cogvideox-image-1.5", "ltx-text-0.9.5", "wan-image-2.1", "wan-a14b")


def case(family: Family, variant: str) -> Any:
    name = f"{family.name}-{variant}"
    return pytest.param((family, variant), marks=[] if name in USUAL else [pytest.mark.release], id=name)


@pytest.fixture(scope="module", params=[case(*one) for one in CASES])
def toy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Family, Model]:
    family, variant = request.param
    return family, family.toy(tmp_path_factory.mktemp(variant), variant)


def lora_file(path: Path, toy: tuple[Family, Model], part: str, seed: int) -> tuple[Path, Tensors]:
    """A file on the layers of the blocks whose names have `part`, and what it adds to each weight."""
    family, model = toy
    random, tensors, added = torch.Generator().manual_seed(seed), Tensors(), Tensors()
    for name, linear in family.facts(model).named():
        if "blocks" in name and part in name:
            down = tensors[f"{name}.lora_A.weight"] = torch.randn(2, linear.inputs, generator=random)
            up = tensors[f"{name}.lora_B.weight"] = torch.randn(linear.outputs, 2, generator=random) * 0.1
            added[name] = 3.0 * (up @ down)
    from safetensors.torch import save

    lora = weights(tensors, dict.fromkeys(added, 6.0), "a test")
    written, metadata = family.export_lora(lora, family.lora_formats[0].id)
    path.write_bytes(with_metadata(save(written), {**metadata, "base_model": model.id}))
    return path, added


def added_by(workspace: Workspace, text: str) -> Tensors:
    (one,) = opened(workspace, [text])
    return changes(one.weights)


def test_import_merge_resize_convert_fuse_and_extract(
    workspace: Workspace, toy: tuple[Family, Model], tmp_path: Path
) -> None:
    family, model = toy
    first, of_first = lora_file(tmp_path / "first.safetensors", toy, "to_q", 0)
    second, of_second = lora_file(tmp_path / "second.safetensors", toy, "", 1)
    step = lambda *_: None  # noqa: E731
    for path in (first, second):
        import_lora(workspace, LoraImportSettings(source=str(path)), print, step)
    assert library.find(workspace, "loras/first").model == model.id
    sum_ = {name: one + 0.5 * of_first[name] if name in of_first else one for name, one in of_second.items()}

    merged = merge(workspace, MergeSettings(loras=("loras/first=0.5", "loras/second"), name="both"), print, step)
    same(added_by(workspace, merged.name), sum_)
    resized = resize(workspace, ResizeSettings(lora=merged.name, rank=2), print, step)
    assert opened(workspace, [resized.name])[0].weights.rank == 2

    for format in family.lora_formats:
        if format.suffix == ".safetensors":
            target = tmp_path / f"{format.id}.safetensors"
            convert(workspace, ConvertSettings(lora="loras/second", format=format.id, target=str(target)), print, step)
            same(added_by(workspace, str(target)), of_second)

    fused = fuse(workspace, FuseSettings(loras=("loras/first=0.5", "loras/second")), print, step)
    again, known = find_model(fused.name)
    assert again is family
    assert known.task == model.task
    before, after = (ModelWeights(Path(one) / "transformer") for one in (model.source, fused.name))
    for name in before:
        delta = sum_.get(name.removesuffix(".weight"))
        wanted = before[name] if delta is None else before[name] + delta
        torch.testing.assert_close(after[name], wanted, rtol=1e-5, atol=1e-5)
    family.load_transformer(Path(fused.name), torch.device("cpu"), torch.float32)

    settings = ExtractSettings(source=fused.name, model=model.id, rank=None, share=1.0)
    same(added_by(workspace, extract(workspace, settings, print, step).name), sum_, 1e-4)

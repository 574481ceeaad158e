"""A run on single files trains what a run on the folder trains; its LoRA is sampled and fused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.driving import create, saved
from tests.families.authors_files import LAYOUTS, from_fp8, in_fp8, toy_as_real, write
from workbench.dataset_builder import Dataset
from workbench.families import find_model, model_files
from workbench.families.base import Family
from workbench.jobs.devices import pick_device
from workbench.loras.making import fuse
from workbench.loras.settings import FuseSettings
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

NAMES = {
    "wan": ("wan2.1-t2v-1.3b", "text"),
    "ltx": ("ltx-video-2b-0.9.5", "text"),
    "ltx2": ("ltx-2-19b", "text"),
    "mochi": ("mochi-1-preview", "text"),
    "kandinsky5": ("kandinsky5-lite-t2v-5s", "text"),
    "hunyuan15": ("hunyuanvideo1.5-t2v-480p", "text"),
    "cogvideox": ("cogvideox-2b", "sincos"),
}
CHOSEN = [pytest.param(name, marks=[] if name in ("wan", "hunyuan15") else [pytest.mark.release]) for name in NAMES]
STEPS = 1


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hf" / "hub"))


def files_of(family: Family, folder: Path, target: Path) -> list[Path]:
    """Write every part of a folder that the authors' layouts have as a file, and return the files."""
    target.mkdir()
    parts = [part for name, part in LAYOUTS if name == family.name and part in family.file_parts]
    found = []
    for part in parts:
        layout = next(iter(LAYOUTS[family.name, part].values()))
        prefix = "audio_vae." if part == "audio_vae" else ""
        found.append(write(target / f"{part}.safetensors", layout(model_files.tensors(folder, part)), prefix))
    return found


def lora_of(workspace: Workspace, model: str, name: str) -> tuple[Run, Path]:
    """Train a step; return the run and its LoRA."""
    settings = create(workspace, model, evaluate_every=0, held_out=0, steps=2, warmup_steps=0).settings
    run = Run.create(workspace, settings, name)
    saved(run, STEPS)
    return run, checkpoints.folder_of(run.folder, STEPS) / checkpoints.LORA


def assert_equal(first: Path, second: Path) -> None:
    """Assert that two LoRAs are equal, but for the last bit.

    The same weights elsewhere in memory are summed in another order in the backward pass: at most 1.3e-7 was seen after
    a step of 1e-2.
    """
    ours, theirs = load_file(first), load_file(second)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    assert any(one.any() for key, one in ours.items() if "lora_B" in key), "a step changes it"


@pytest.mark.parametrize("name", CHOSEN)
def test_a_step_on_files_equals_a_step_on_the_folder(
    workspace: Workspace, dataset: Dataset, name: str, tmp_path: Path
) -> None:
    known, variant = NAMES[name]
    family = find_model(known).family
    folder = toy_as_real(family, tmp_path / "toy", variant)
    files = files_of(family, folder, tmp_path / "files")
    _, whole = lora_of(workspace, str(folder), "whole")
    run, ours = lora_of(workspace, " + ".join(map(str, [*files, folder])), "ours")
    assert_equal(ours, whole)
    assert run.settings.model == " + ".join(map(str, [*files, folder]))


def test_a_lora_on_fp8_files_is_sampled_fused_and_proved(
    workspace: Workspace, dataset: Dataset, tmp_path: Path
) -> None:
    family = find_model("wan2.1-t2v-1.3b").family
    folder = toy_as_real(family, tmp_path / "toy", "text")
    eight = in_fp8(LAYOUTS["wan", "transformer"]["authors"](model_files.tensors(folder, "transformer")))
    file = write(tmp_path / "wan_fp8_scaled.safetensors", eight)
    plain = write(tmp_path / "wan.safetensors", from_fp8(eight))
    run, lora = lora_of(workspace, f"{file} + {folder}", "eight")
    assert_equal(lora, lora_of(workspace, f"{plain} + {folder}", "plain")[1])
    model = run.settings.model
    shot = SampleSettings(model=model, prompt="a red square", steps=2, seed=0, device="cpu", loras=(str(lora),))
    video = Sampler(model, pick_device("cpu")).generate(workspace, shot).frames
    assert video.std() > 0
    # Fusing writes a whole model in diffusers' layout.
    result = fuse(workspace, FuseSettings(loras=(f"runs/{run.name}@{STEPS}=0",), model=model), print, lambda *_: None)
    where = Path(result.name)
    fused = family.load_transformer(where, torch.device("cpu"), torch.float32).state_dict()
    read = family.load_transformer(find_model(model).fetch(print), torch.device("cpu"), torch.bfloat16).state_dict()
    assert all(torch.equal(fused[key].bfloat16(), read[key].bfloat16()) for key in read)

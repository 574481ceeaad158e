"""Exact, fast and low memory: what each costs in work and in quality, and what becomes of too little memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.sampler.conftest import WriteLora
from workbench.clips.frame_plan import shape_for
from workbench.families import find_model
from workbench.families.denoising import computed_steps
from workbench.jobs.devices import Device, Load, pick_device
from workbench.memory.low_bit import LowBitLinear
from workbench.sampler import offload_plan
from workbench.sampler.generate import Sampler
from workbench.sampler.offload_plan import OffloadPlan, plan_for
from workbench.sampler.settings import SampleSettings, Speed
from workbench.workspace import Workspace

CPU = pick_device("cpu")
TINY = SampleSettings(
    model="tiny-cogvideox", prompt="a red circle moves left on a blue background", device="cpu", seed=3
)
FAMILY, MODEL = find_model("tiny-cogvideox")


@pytest.fixture(scope="module")
def tiny() -> Sampler:
    return Sampler("tiny-cogvideox", CPU)


def decibels(one: np.ndarray, other: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / np.square(one.astype(float) - other).mean()))


@pytest.mark.parametrize("model", ["tiny-cogvideox", "tiny-wan"])
def test_fast_makes_half_of_the_steps_and_nearly_the_same_video(
    model: str, tiny: Sampler, workspace: Workspace
) -> None:
    sampler = tiny if tiny.name == model else Sampler(model, CPU)
    asked, made = TINY.changed(model=model), list[int]()
    handle = sampler.transformer.register_forward_hook(lambda *_: made.append(1))
    exact = sampler.generate(workspace, asked)
    full, seen = len(made), len(made)
    fast = sampler.generate(workspace, asked.changed(speed="fast"))
    handle.remove()
    assert full == sampler.model.steps
    assert len(made) - seen == round(full / 2)
    assert decibels(fast.frames, exact.frames) > 40
    assert fast.record["speed"] == "fast"
    assert np.array_equal(sampler.generate(workspace, asked).frames, exact.frames), "fast leaves nothing behind"


def test_fast_computes_the_first_and_last_step_and_most_of_a_few() -> None:
    for steps in range(1, 101):
        computed = computed_steps(steps)
        assert {0, steps - 1} <= computed <= set(range(steps))
        assert len(computed) == min(steps, max(8, round(steps / 2)))


def test_low_memory_keeps_the_model_in_8_bits(workspace: Workspace, tiny: Sampler) -> None:
    small = Sampler("tiny-cogvideox", CPU, speed="low-memory")
    assert not small.serves(TINY)
    made = small.generate(workspace, TINY.changed(speed="low-memory"))
    assert any(isinstance(module, LowBitLinear) for module in small.transformer.modules())
    assert decibels(made.frames, tiny.generate(workspace, TINY).frames) > 30
    assert "int8" in made.record["memory"]


def test_parts_in_turn_and_blocks_that_come_and_go_draw_the_same(
    toy_folder: Path, workspace: Workspace, write_lora: WriteLora, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lora = write_lora(tmp_path / "one.safetensors", 1)
    asked = SampleSettings(model=str(toy_folder), prompt="x", steps=3, seed=0, device="cpu", loras=(str(lora),))
    plain = Sampler(str(toy_folder), CPU).generate(workspace, asked).frames
    monkeypatch.setattr(
        offload_plan, "choose", lambda *_: OffloadPlan(model_offload=True, blocks_to_swap=2, tiled=False)
    )
    pieces = Sampler(str(toy_folder), CPU)
    assert np.array_equal(pieces.generate(workspace, asked).frames, plain)
    without = asked.changed(loras=[])
    assert not np.array_equal(pieces.generate(workspace, without).frames, plain)
    assert np.array_equal(pieces.generate(workspace, asked).frames, plain)


@pytest.mark.parametrize("device", [Device("cpu", "", 64.0), Device("mps", "Apple M2", 64.0, uuid="mps")])
def test_without_cuda_nothing_is_moved_and_both_predictions_are_made_at_once_where_there_is_room(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, model = find_model("cogvideox-5b")

    def plan(speed: Speed, free_gb: float) -> OffloadPlan:
        monkeypatch.setattr(offload_plan, "load", lambda _: Load(None, 64.0 - free_gb, 64.0))
        return offload_plan.choose(speed, device, family.facts(model), shape_for(model))

    assert plan("exact", 4.0) == plan("fast", 4.0) == OffloadPlan()
    assert plan("low-memory", 60.0) == OffloadPlan("int8", tiled=device.is_gpu)
    assert plan("low-memory", 4.0) == OffloadPlan("int8", sequential_guidance=True, tiled=device.is_gpu)


@pytest.mark.parametrize(
    ("free_gb", "low_memory", "expected"),
    [
        (80, False, OffloadPlan()),
        (30, False, OffloadPlan(model_offload=True)),
        (12, False, OffloadPlan(model_offload=True, blocks_to_swap=9, tiled=False)),
        (15, True, OffloadPlan("int8", model_offload=True, sequential_guidance=True, tiled=True)),
        (6, True, OffloadPlan("int8", model_offload=True, blocks_to_swap=20, sequential_guidance=True, tiled=True)),
    ],
)
def test_the_offload_plan_of_the_5b_fits_the_free_memory(
    free_gb: float, low_memory: bool, expected: OffloadPlan
) -> None:
    family, model = find_model("cogvideox-5b")
    found = plan_for(low_memory, free_gb, family.facts(model), shape_for(model))
    assert (found.weights, found.model_offload, found.sequential_guidance) == (
        expected.weights,
        expected.model_offload,
        expected.sequential_guidance,
    )
    assert (found.blocks_to_swap > 0) == (expected.blocks_to_swap > 0)
    assert found.tiled == expected.tiled or not low_memory


def test_a_clip_is_not_lost_to_the_memory_of_the_last_step(
    tiny: Sampler, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = tiny.generate(workspace, TINY)
    own, tries = tiny.family.decode, []

    def scarce(vae: Any, latents: torch.Tensor) -> torch.Tensor:
        tries.append(vae.use_tiling)
        if len(tries) < 3:
            raise torch.OutOfMemoryError
        vae.disable_tiling()  # tiles of a clip this small would show
        return own(vae, latents)

    monkeypatch.setattr(type(tiny.family), "decode", lambda self, vae, latents, noise: scarce(vae, latents))
    saved = tiny.generate(workspace, TINY)
    assert tries == [False, True, True]
    assert saved.record["decoded"] == "processor"
    assert np.array_equal(saved.frames, exact.frames)
    tries.clear()
    monkeypatch.setattr(type(tiny.family), "decode", lambda self, vae, latents, noise: own(vae, latents))
    assert tiny.generate(workspace, TINY).record["decoded"] == "whole"


def test_the_rough_look_looks_like_the_video(tiny: Sampler, workspace: Workspace) -> None:
    looks: list[torch.Tensor] = []
    made = tiny.generate(workspace, TINY, lambda done, total, latents: looks.append(latents))
    preview = tiny.latent_preview().frames(looks[-1])
    frames, height, width, _ = preview.shape
    video = torch.from_numpy(made.frames).permute(0, 3, 1, 2).float()
    small = torch.nn.functional.interpolate(video, (height, width), mode="area")[:: len(video) // frames][:frames]
    both = np.corrcoef(preview.ravel(), small.permute(0, 2, 3, 1).numpy().ravel())[0, 1]
    assert both > 0.8
    webp = tiny.latent_preview().webp(looks[-1], 1.0)
    from io import BytesIO

    from PIL import Image

    with Image.open(BytesIO(webp)) as picture:
        assert (picture.format, getattr(picture, "n_frames", 1)) == ("WEBP", frames)
        assert picture.width >= 160

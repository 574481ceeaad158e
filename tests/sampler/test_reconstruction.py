"""What the VAE keeps of a clip: a real job on the built-in model, found again by its content."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.drawing import MakeClip, draw
from tests.patience import PATIENCE
from workbench import jobs
from workbench.clips import media
from workbench.clips.frame_plan import Shape, plan, shape_for
from workbench.clips.records import Clip, write_clips
from workbench.demo import DEMO_CLIPS
from workbench.errors import ConfigError, DataError, DeviceBusy
from workbench.families import default_model, find_model
from workbench.jobs import State, gpu_lock
from workbench.jobs.devices import Device
from workbench.sampler import vae_reconstruction
from workbench.sampler.vae_reconstruction import FOLDER, read, request
from workbench.workspace import Workspace

MODEL = default_model()
SHAPE = shape_for(find_model(MODEL)[1])


def folder_of(workspace: Workspace, video: Path) -> tuple[Path, Clip]:
    """A plain VideoFolder with that one clip."""
    dataset = workspace.dataset("one")
    (dataset / "clips").mkdir(parents=True)
    shutil.copy(video, dataset / "clips" / "a.mp4")
    seen = media.probe(video)
    clip = Clip(file_name="clips/a.mp4", fps=seen.fps, frames=seen.frames, width=seen.width, height=seen.height)
    write_clips(dataset, [clip])
    return dataset, clip


def test_a_demo_clip_comes_back_and_is_there_at_once_when_asked_again(workspace: Workspace) -> None:
    dataset, clip = folder_of(workspace, sorted((DEMO_CLIPS / "known").glob("*.mp4"))[0])
    asked = request(workspace, dataset, clip, MODEL, SHAPE)
    folder = Path(asked.folder)
    first = jobs.status(folder).pid
    assert not asked.over
    assert (asked.video, asked.psnr) == (None, None)
    assert request(workspace, dataset, clip, MODEL, SHAPE).folder == asked.folder
    assert jobs.status(folder).pid == first
    jobs.kill(folder)
    assert read(folder).video is None
    again = request(workspace, dataset, clip, MODEL, SHAPE)  # killed half-way: it is begun again
    assert again.folder == asked.folder
    jobs.wait(folder, PATIENCE)

    found = read(folder)
    assert found.state == State.FINISHED, found.message
    assert found.video is not None
    assert found.beside is not None
    assert found.psnr is not None
    assert 25 < found.psnr < 35
    planned = plan(clip, SHAPE)
    given = media.read_frames(dataset / clip.file_name, planned.indices, planned.resize, planned.crop)
    back = media.read_frames(Path(found.video), range(SHAPE.frames))
    both = media.read_frames(Path(found.beside), range(SHAPE.frames))
    assert back.shape == given.shape
    assert both.shape == (SHAPE.frames, SHAPE.height, 2 * SHAPE.width, 3)
    # The videos show what the number says, but for what an mp4's coarser colors take from so small a picture.
    assert vae_reconstruction.similarity(given, back)["psnr"] == pytest.approx(found.psnr, abs=2.5)
    assert vae_reconstruction.similarity(given, both[:, :, : SHAPE.width])["psnr"] > 30

    moved = dataset.rename(workspace.dataset("two"))
    assert request(workspace, moved, clip.changed(text="another caption"), MODEL, SHAPE) == found


@pytest.mark.parametrize(
    ("frames", "shape", "error", "sentence"),
    [
        (9, Shape(17, 40, 40, 8), DataError, "a is left out: too short"),
        (9, Shape(8, 40, 40, 8), ConfigError, "frames is 8"),
        (9, Shape(9, 40, 41, 8), ConfigError, "width is 41"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    workspace: Workspace,
    tmp_path: Path,
    make_clip: MakeClip,
    frames: int,
    shape: Shape,
    error: type[Exception],
    sentence: str,
) -> None:
    dataset, clip = folder_of(workspace, make_clip(tmp_path / "a.mp4", frames))
    with pytest.raises(error, match=sentence):
        request(workspace, dataset, clip, MODEL, shape)
    assert not (workspace.cache / FOLDER).exists()


def test_a_held_gpu_is_waited_for_and_then_said(
    workspace: Workspace, tmp_path: Path, make_clip: MakeClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Device("cuda", "Some GPU", 24.0, 0, "GPU-1")
    monkeypatch.setattr(vae_reconstruction, "pick_device", lambda choice: gpu)
    monkeypatch.setattr(vae_reconstruction, "GPU_TIMEOUT", 0.0)
    dataset, _ = folder_of(workspace, make_clip(tmp_path / "a.mp4"))
    settings = vae_reconstruction.ReconstructionSettings(
        dataset=str(dataset), clip="clips/a.mp4", model=MODEL, frames=9, height=40, width=40
    )
    folder = workspace.cache / FOLDER / "key"
    folder.mkdir(parents=True)
    settings.save(folder / jobs.CONFIG)
    with (
        gpu_lock.hold(workspace.locks, gpu.uuid, "run cats"),
        pytest.raises(DeviceBusy, match="the GPU is held by run cats"),
    ):
        vae_reconstruction.reconstruct(jobs.Job(folder))


@pytest.mark.parametrize(("variant", "frames"), [("sincos", 9), ("rotary-1.5", 17), ("rotary-1.5", 1)])
def test_as_many_frames_come_back_as_are_given(tmp_path: Path, variant: str, frames: int) -> None:
    import torch

    family, _ = find_model(MODEL)
    family.toy(tmp_path / "toy", variant)
    vae = family.load_vae(tmp_path / "toy", torch.device("cpu"), torch.float32)
    given = draw(frames, (32, 16))
    back = vae_reconstruction.through_vae(family, vae, tmp_path / "toy", given)
    assert (back.shape, back.dtype) == (given.shape, np.uint8)


def test_similarity_is_measured_as_everyone_measures_it() -> None:
    noise = np.random.default_rng(0)
    given = noise.integers(60, 196, (2, 48, 64, 3), np.uint8)
    assert vae_reconstruction.similarity(given, given) == {"psnr": 100.0, "psnr_worst": 100.0, "ssim": 1.0}
    brighter = np.stack([given[0], given[1] + 10])
    found = vae_reconstruction.similarity(given, brighter)
    assert found["psnr_worst"] == pytest.approx(20 * np.log10(255 / 10), abs=0.01)
    assert found["psnr"] == pytest.approx(20 * np.log10(255 / 10) + 10 * np.log10(2), abs=0.01)
    # Plain pictures have no structure: only the brightness term (2ab + c) / (a^2 + b^2 + c) is left.
    plain = vae_reconstruction.similarity(np.full((1, 16, 16, 3), 51, np.uint8), np.full((1, 16, 16, 3), 102, np.uint8))
    assert plain["ssim"] == pytest.approx((2 * 0.2 * 0.4 + 1e-4) / (0.2**2 + 0.4**2 + 1e-4), abs=1e-3)

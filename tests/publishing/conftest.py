"""A finished run with a LoRA to sample with, its clips and previews, and a Hub to push it to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dataset_builder.small import write_dataset
from tests.drawing import MakeClip
from tests.fake_hub import FakeHub, login
from tests.sampler.conftest import _write_lora
from tests.written_run import write_run
from workbench.clips import media
from workbench.clips.records import read_clips
from workbench.families import find_model
from workbench.runs.run import Run
from workbench.workspace import Workspace, write_json

PROMPTS = ("zwx, a red circle moves left", "zwx, a green square moves right")


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A LoRA for the built-in model with an alpha that is not its rank, and notes as a run leaves them."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    model = find_model("tiny-cogvideox")[1]
    path = _write_lora(Path(model.source), tmp_path_factory.mktemp("lora") / "lora.safetensors", 3, 4, 8.0)
    with safe_open(path, "pt") as file:
        notes = dict(file.metadata())
    notes |= {"base_model": model.id, "trigger_word": "zwx", "step": "200", "ss_dataset_dirs": "/home/ann/secret cats"}
    tensors = {name: tensor * 0.1 for name, tensor in load_file(path).items()}
    save_file(tensors, path, notes)
    return path


@pytest.fixture
def run(workspace: Workspace, weights: Path, make_clip: MakeClip, tmp_path: Path) -> Run:
    """The run "cats" of the built-in model on the dataset "squares"."""
    dataset = write_dataset(workspace.dataset("squares"), trigger_word="zwx")
    made = write_run(
        workspace,
        "cats",
        model="tiny-cogvideox",
        rank=4,
        alpha=8.0,
        held_out=1,
        preview_images=(str(workspace.root / "first frame.png"),),
    )
    made.settings.changed(dataset="squares").save(made.folder / "config.json")
    lines = [
        {
            "file_name": clip.file_name, "name": clip.name, "sha256": clip.sha256, "caption": clip.text,
            "indices": list(range(9)), "crop": [0, 0, 40, 40], "resize": [40, 40],
            "role": "held_out" if number == 0 else "train",
        }
        for number, clip in enumerate(read_clips(dataset))
    ]  # fmt: skip
    write_json(made.folder / "dataset.lock.json", lines)
    (made.folder / "lora.safetensors").write_bytes(weights.read_bytes())
    for step in (0, 200):
        for place, prompt in enumerate(PROMPTS):
            record = {
                "prompt": prompt, "seed": place, "steps": 3, "guidance_scale": 3.0, "frames": 9, "height": 40,
                "width": 40, "settings": {"prompt": prompt, "loras": [f"{made.folder}/lora.safetensors"]},
            }  # fmt: skip
            video = made.folder / "previews" / f"step-{step:08d}" / f"{place}.mp4"
            clip = make_clip(tmp_path / "clip.mp4", color="red" if step else "blue", size=(40, 40))
            media.encode(media.read_frames(clip, range(9)), video, 8, comment=str(record))
            write_json(video.with_suffix(".json"), record)
    return made


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    with FakeHub().serving() as server:
        login(monkeypatch, server, tmp_path / "login")
        yield server

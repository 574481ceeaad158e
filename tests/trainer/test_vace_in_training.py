"""Runs of Wan VACE: conditions are sampled, encoded as one clip, resumed, previewed, sampled again and estimated."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.driving import create, session
from tests.trainer.test_exact import assert_exact
from tests.trainer.test_told_in_training import attached
from workbench.clips.media import read_frames
from workbench.clips.records import read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families.conditioning import on_white
from workbench.families.model import Model
from workbench.families.wan import FAMILY
from workbench.fit.gpus import GpuModel
from workbench.fit.memory import phases, sizes
from workbench.fit.timing import step_operations
from workbench.jobs.devices import pick_device
from workbench.runs.data import load_data
from workbench.runs.settings import TrainSettings
from workbench.sampler.generate import Sampler
from workbench.sampler.inputs import inputs_of
from workbench.sampler.settings import SampleSettings
from workbench.trainer.encoder import encoding_work, read_conditioning, read_whole_picture
from workbench.trainer.loop import training_loop
from workbench.workspace import Workspace, read_json

SIDE = r"vace_blocks\.\d+\.(attn[12]\.(to_[qkv]|to_out\.0)|ffn\.net\.(0\.proj|2))"  # as the recipe has it


@pytest.fixture(scope="session")
def vace(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return FAMILY.toy(tmp_path_factory.mktemp("vace"), "vace")


def pictured(dataset: Dataset) -> None:
    """Give every clip a picture of another shape as its reference."""
    records = []
    for number, clip in enumerate(read_clips(dataset.folder)):
        name = f"clips/{clip.id}.reference-0000000{number}.png"
        Image.new("RGB", (50, 40), (40 * number, 90, 200)).save(dataset.folder / name)
        records.append(clip.changed(reference=name))
    write_clips(dataset.folder, records)


CASES: dict[str, dict[str, Any]] = {
    "nothing told, the side branch alone": {"targets": SIDE},
    "everything told, two shapes": {
        "given": ["first 0.2", "mask outside 0.2", "prefix 5 0.2", "first+last 0.2"],
        "control": True,
        "reference": True,
        "buckets": ["9x32x32", "9x48x32"],
        "batch_size": 2,
        "horizontal_flip": 0.5,
    },
}


@pytest.mark.parametrize("name", CASES)
def test_interrupted_and_resumed_it_ends_in_the_same_bytes(
    workspace: Workspace, dataset: Dataset, vace: Model, name: str
) -> None:
    attached(dataset, "control")
    attached(dataset, "mask")
    pictured(dataset)
    assert_exact(workspace, vace.source, CASES[name])


def test_a_control_video_is_a_part_of_each_way_and_gray_clips_are_encoded_once_a_shape(
    workspace: Workspace, dataset: Dataset, vace: Model
) -> None:
    attached(dataset, "control")
    pictured(dataset)
    values = {"given": ["first 0.3", "last 0.2"], "control": True, "reference": True, "held_out": 2}
    run = create(workspace, vace.source, **values)
    data = load_data(workspace, run.settings)
    pieces = encoding_work(run.settings, data).pieces
    assert Counter(piece.view for piece in pieces) == {
        **{"clip": 6, "told first, control": 6, "told last, control": 4, "control": 4, "reference whole": 6},
        "told nothing": 6,
    }
    made = session(run)
    assert len({made.encoder.clip_key(*piece) for piece in pieces if piece.view == "told nothing"}) == 1
    item = data.train[0]
    told = read_conditioning(item, "told first, control")
    assert told.control is not None
    assert told.known == (0,)
    whole = read_conditioning(item, "reference whole").reference
    assert whole is not None
    picture = read_whole_picture(item, item.plan.clip.reference)
    assert picture.shape == (1, 3, 1, 40, 50)
    assert torch.equal(whole, on_white(picture, 32, 32))
    assert (whole[0, :, 0, 0] == 1).all()  # white above it
    batch = made.inputs.batch(1, 0).inputs
    assert batch.given is not None
    assert batch.given.tokens["vace context"].shape == (1, 96, 1 + 3, 4, 4)
    again = made.inputs.batch(1, 0).inputs
    assert again.given is not None
    assert torch.equal(batch.given.tokens["vace reference noise"], again.given.tokens["vace reference noise"])
    made.evaluate()
    made.metrics.close()


def test_videos_are_no_references_here(workspace: Workspace, dataset: Dataset, vace: Model) -> None:
    attached(dataset, "reference")
    settings = TrainSettings().changed(model=vace.source, dataset="squares", reference=True)
    with pytest.raises(ConfigError, match="is a video, and .* takes images: replace it with a PNG image"):
        load_data(workspace, settings)
    clip = dataset.folder / read_clips(dataset.folder)[0].file_name
    asked = SampleSettings().changed(model=vace.source, reference=str(clip))
    with pytest.raises(ConfigError, match="takes a picture: give a PNG, JPEG, WebP or BMP file"):
        inputs_of(workspace, asked)


def test_a_run_of_first_frames_and_control_is_previewed_and_sampled(
    workspace: Workspace, dataset: Dataset, vace: Model
) -> None:
    attached(dataset, "control")
    values = {"given": ["first 0.6"], "control": True, "steps": 2, "preview_every": 2, "preview_steps": 2}
    run = create(workspace, vace.source, **values, save_every=2, targets=SIDE)
    training_loop(session(run))
    records = [read_json(path) for path in sorted(run.folder.glob("previews/step-*/[0-9].json"))]
    assert len(records) == 4
    assert all(record["told"].startswith("first, control of ") for record in records)
    card = (run.folder / "README.md").read_text(encoding="utf-8")
    assert "pipe = WanVACEPipeline.from_pretrained" in card
    assert ", video=shown, mask=made," in card
    assert 'frames_of("control.mp4")' in card
    assert (run.folder / "first_frame.png").is_file()

    folder, draw = workspace.root, np.random.default_rng(0)
    Image.fromarray(draw.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(folder / "picture.png")
    clip = read_clips(dataset.folder)[0]
    control, picture = str(dataset.folder / clip.control), str(folder / "picture.png")
    asked = SampleSettings().changed(
        model=vace.source,
        prompt="a red circle",
        seed=0,
        device="cpu",
        steps=2,
        loras=[str(run.folder / "lora.safetensors")],
    )
    sampler = Sampler(vace.source, pick_device("cpu"))
    told = {"control": control, "reference": picture}
    ways: list[dict[str, Any]] = [
        {},
        {"image": picture},
        {"last_image": picture},
        {"keyframes": [f"{picture}=4"]},
        {"control": control},
        {"reference": picture},
        {"video": control, "mask": control},
        {"video": control},
        {"continue_from": control, "kept_frames": 5, "tell_frames": True, "reference": picture},
        told,
        told | {"conditioning_scale": 0.5},
    ]
    made = [sampler.generate(workspace, asked.changed(**one)).frames.tobytes() for one in ways]
    assert len(set(made)) == len(ways)
    assert sampler.generate(workspace, asked.changed(**told)).frames.tobytes() == made[-2]


@pytest.mark.parametrize("given", ["suffix 5 1", "mask inside 1"])
def test_a_preview_hands_a_sample_what_it_was_told_with_its_reference(
    workspace: Workspace, dataset: Dataset, vace: Model, given: str
) -> None:
    attached(dataset, "control")
    attached(dataset, "mask")
    pictured(dataset)
    values = {"given": [given], "control": True, "reference": True, "steps": 2, "preview_every": 2, "preview_steps": 2}
    run = create(workspace, vace.source, **values)
    training_loop(session(run))
    record = read_json(run.folder / "previews" / "step-00000000" / "0.json")
    asked = SampleSettings().changed(**record["settings"], device="cpu")
    (kind,) = (one.kind for one in run.settings.given_shares)
    assert set(asked.conditioning) == {kind.name, "control", "reference"}
    with Image.open(asked.reference) as picture:
        assert picture.size == (50, 40)  # whole: the sample puts it on white
    made = Sampler(vace.source, pick_device("cpu")).generate(workspace, asked).frames.astype(int)
    shown = read_frames(run.folder / "previews" / "step-00000000" / "0.mp4", list(range(9)))
    assert np.abs(made - shown).mean() < 0.4 * np.abs(made - made[::-1]).mean()


def test_the_fit_check_counts_the_side_branch(vace: Model, tmp_path: Path) -> None:
    def estimated(model: str, **values: Any) -> tuple[float, float, int]:
        settings = TrainSettings().changed(model=model, gradient_checkpointing="full", **values)
        family, known = settings.resolved
        run = sizes(settings, known, family.facts(known), GpuModel("a large GPU", "cuda", 200.0, 394.0))
        training = next(phase.gb for phase in phases(run) if phase.name == "training")
        return training, step_operations(run), run.tokens

    plain, side = (estimated(name) for name in ("wan2.1-t2v-1.3b", "wan2.1-vace-1.3b"))
    assert side[0] > plain[0] + 1
    assert 1.4 < side[1] / plain[1] < 1.6
    told = estimated("wan2.1-vace-1.3b", reference=True)
    assert told[2] == side[2] * 22 // 21
    alone, all_of_it = (estimated("wan2.1-vace-1.3b", targets=one) for one in (SIDE, "attention+feed-forward"))
    assert alone[0] < all_of_it[0]

"""Runs with given frames, masks and control clips, on Wan's miniatures: sampling, encoding, resume, refusals."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.driving import create, go, session
from tests.trainer.test_exact import assert_exact
from tests.version_environments import python
from workbench.clips.media import encode, read_frames
from workbench.clips.records import read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError, ResumeRefused
from workbench.families.model import Model
from workbench.families.wan import FAMILY
from workbench.fit.gpus import GpuModel
from workbench.fit.memory import disk_gb, phases, sizes
from workbench.fit.timing import times
from workbench.jobs.devices import pick_device
from workbench.runs.checks import check
from workbench.runs.data import load_data
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import snapshot
from workbench.runs.view import videos
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.trainer.encoder import conditioning_views, encoding_work, read_conditioning, read_video
from workbench.trainer.loop import training_loop
from workbench.workspace import Workspace, read_json
from workbench.workspace.strange_names import strange_names

EVERY = ["first 0.2", "last 0.1", "first+last 0.2", "prefix 5 0.1", "suffix 5 0.1", "keyframes 3 0.1"]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    base = tmp_path_factory.mktemp("told")
    made = ("control", "image-2.1", "image-flf", "5b", "text")
    return {variant: FAMILY.toy(base / variant, variant) for variant in made}


def attached(dataset: Dataset, kind: str, frames: np.ndarray | None = None) -> None:
    """Give every clip a companion of moving stripes, or of these frames."""
    records = []
    for number, clip in enumerate(read_clips(dataset.folder)):
        drawn = frames
        if drawn is None:
            drawn = np.zeros((clip.frames, clip.height, clip.width, 3), np.uint8)
            for index in range(clip.frames):
                drawn[index, :, (index + number) % clip.width :: 8] = 255
        if kind == "last_frame":
            path = dataset.folder / "clips" / "new.png"
            Image.fromarray(drawn[-1]).save(path)
        else:
            path = dataset.folder / "clips" / "new.mp4"
            encode(drawn, path, clip.fps)
        name = f"clips/{clip.id}.{kind}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}{path.suffix}"
        path.rename(dataset.folder / name)
        records.append(clip.changed(**{kind: name}))
    write_clips(dataset.folder, records)


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "frames of all kinds": ("image-2.1", {"given": EVERY, "gradient_accumulation": 2, "horizontal_flip": 0.5}),
    "control and a mask, two shapes": (
        "control",
        {
            "given": ["mask outside 0.3", "mask inside 0.2", "first 0.3"],
            "control": True,
            "buckets": ["9x32x32", "9x48x32"],
            "batch_size": 2,
        },
    ),
    "known tokens": ("5b", {"given": ["first 0.4", "prefix 5 0.4"], "width": 64, "height": 64, "batch_size": 2}),
}


@pytest.mark.parametrize("name", CASES)
def test_interrupted_and_resumed_it_ends_in_the_same_bytes(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model], name: str
) -> None:
    variant, values = CASES[name]
    attached(dataset, "control")
    attached(dataset, "mask")
    assert_exact(workspace, models[variant].source, values)


def test_a_run_does_not_go_on_with_another_control_video(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    attached(dataset, "control")
    made = go(create(workspace, models["control"].source, control=True, held_out=0), 2)
    made.save()
    made.metrics.close()
    clip = read_clips(dataset.folder)[0]
    other = clip.control.replace("control-", "control-0")
    (dataset.folder / clip.control).rename(dataset.folder / other)
    write_clips(dataset.folder, [clip.changed(control=other), *read_clips(dataset.folder)[1:]])
    with pytest.raises(ResumeRefused, match=rf"different files beside {clip.name}. .* fork the run"):
        session(Run(made.run))


def test_one_kind_is_drawn_for_each_batch_at_its_share(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    made = session(create(workspace, models["control"].source, given=EVERY, batch_size=2, held_out=0))
    found: Counter[str] = Counter()
    for step in range(1, 201):
        given = made.inputs.batch(step, 0).inputs.given
        assert given is not None
        if given.beside is None:
            found["nothing"] += 1
            continue
        assert torch.equal(given.beside[:1, :4], given.beside[1:, :4])  # the same way for both clips
        found["".join(str(int(one)) for one in given.beside[0, :4, :, 0, 0].T.flatten())] += 1
    shares = {key: count / 200 for key, count in found.items()}
    ways = {
        **{"111100000000": 0.2, "000000000001": 0.1, "111100000001": 0.2, "111111110000": 0.1},
        **{"000000011111": 0.1, "111100010001": 0.1, "nothing": 0.2},
    }
    assert shares.keys() == ways.keys()
    assert all(abs(shares[key] - ways[key]) < 0.08 for key in ways), shares
    made.metrics.close()


def test_measurements_take_the_largest_share_and_a_run_encodes_no_more_than_it_needs(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    attached(dataset, "control")
    run = create(workspace, models["control"].source, given=["first 0.1", "first+last 0.4"], control=True, held_out=2)
    data = load_data(workspace, run.settings)
    assert conditioning_views(run.settings, data.train[0]) == ["told first", "told first+last", "control"]
    assert conditioning_views(run.settings, data.held_out[0]) == ["told first+last", "control"]
    views = Counter(piece.view for piece in encoding_work(run.settings, data).pieces)
    assert views == {"clip": 6, "control": 6, "told first+last": 6, "told first": 4}
    made = session(run)
    (one, again) = (next(made.inputs.clips(data.held_out[:1])).given for _ in range(2))
    assert one is not None
    assert again is not None
    assert one.beside is not None
    assert again.beside is not None
    assert torch.equal(one.beside, again.beside)
    assert one.beside[0, 3, :, 0, 0].tolist() == [1, 0, 1]
    assert one.tokens["control"].any()
    before = made.inputs.batch(1, 0).inputs.latents
    made.evaluate()
    assert torch.equal(before, made.inputs.batch(1, 0).inputs.latents)
    made.metrics.close()


def test_a_flipped_clip_is_told_flipped_things_and_pictures_stand_at_its_ends(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    attached(dataset, "control")
    attached(dataset, "last_frame")
    values = {"given": ["first+last 0.5"], "control": True}
    item = load_data(workspace, create(workspace, models["control"].source, **values).settings).train[0]
    plain, flipped = (read_conditioning(item, "control", flip).control for flip in (False, True))
    assert plain is not None
    assert flipped is not None
    assert torch.equal(plain.flip(-1), flipped)
    assert not torch.equal(plain, flipped)
    video = read_video(item)
    ends = read_conditioning(item, "told first+last")
    assert ends.video is not None
    assert torch.equal(ends.video[:, :, 0], video[:, :, 0])
    given = ends.video[:, :, -1] - video[:, :, -1]
    # The picture stands in for the last frame where the run takes the clip's last frame alone.
    assert bool(given.abs().max() > 0.1) == (item.plan.indices[-1] == item.plan.clip.frames - 1)


def test_another_companion_is_another_key_and_runs_without_have_the_keys_they_had(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    plain = create(workspace, models["control"].source)
    made = session(plain)
    item = load_data(workspace, plain.settings).train[0]
    key = made.encoder.clip_key(item)
    attached(dataset, "control")
    one = load_data(workspace, plain.settings.changed(control=True)).train[0]
    attached(dataset, "control", np.full((item.plan.clip.frames, 32, 32, 3), 90, np.uint8))
    other = load_data(workspace, plain.settings.changed(control=True)).train[0]
    assert made.encoder.clip_key(one) == made.encoder.clip_key(other) == key
    assert made.encoder.clip_key(one, "control") != made.encoder.clip_key(other, "control")
    made.metrics.close()


@pytest.mark.parametrize(
    ("variant", "values", "sentence"),
    [
        ("5b", {"given": ["last 0.3"]}, "ignores it"),
        ("text", {"given": ["first 0.3"]}, "a setting that .* does not have: leave it empty"),
        ("image-2.1", {"control": True}, "a setting that .* does not have: set it to False"),
        ("image-2.1", {"given": ["prefix 4 0.3"]}, "takes 1 or 4k.1, .* use prefix 1 or prefix 5"),
        ("image-2.1", {"given": ["prefix 9 0.3"]}, "leaves nothing to learn of 9 frames"),
        ("image-2.1", {"given": ["first 0.3"], "preview_frames": 5}, "preview_frames is 5"),
        ("image-2.1", {"given": ["first 0.9", "last 0.4"]}, "adds up to 1.3"),
        ("image-flf", {}, "given is empty, .* looks at a first and a last frame together.*: write first.last 1"),
    ],
)
def test_what_cannot_be_told_is_refused_with_the_reason(
    workspace: Workspace,
    dataset: Dataset,
    models: dict[str, Model],
    variant: str,
    values: dict[str, Any],
    sentence: str,
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        check(workspace, TrainSettings().changed(model=models[variant].source, dataset="squares", **values))


def test_clips_without_their_partner_are_named(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    settings = TrainSettings().changed(model=models["control"].source, dataset="squares", control=True)
    with pytest.raises(DataError, match="it has no control video, which control needs"):
        load_data(workspace, settings)
    attached(dataset, "control")
    records = read_clips(dataset.folder)
    (dataset.folder / records[0].control).unlink()
    write_clips(dataset.folder, [records[0], records[1].changed(control=""), *records[2:]])
    dropped = load_data(workspace, settings).dropped
    assert [one.partition(": ")[2] for one in dropped] == [
        f"its control video's file is missing, {records[0].control}: add it again",
        "it has no control video, which control needs: add one beside the clip",
    ]


# ---- previews, the model card, the fit check


def test_a_run_of_first_and_last_frames_previews_them_and_its_card_generates_in_plain_diffusers(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model]
) -> None:
    """The model has 52 channels; the card's code leaves the control's out."""
    values = {"given": ["first+last 0.6", "prefix 5 0.2"], "steps": 2, "preview_every": 2, "preview_steps": 2}
    run = create(workspace, models["control"].source, **values, save_every=2)
    training_loop(session(run))
    records = [read_json(path) for path in sorted(run.folder.glob("previews/step-*/[0-9].json"))]
    assert len(records) == 4
    assert all(record["told"].startswith("first+last of ") for record in records)
    card = (run.folder / "README.md").read_text(encoding="utf-8")
    code = card.partition("```python\n")[2].partition("\n```")[0]
    assert 'last_image=load_image("last_frame.png")' in code
    assert "this pipeline does not take: prefix.\n" in code
    assert "`workbench sample` takes them with --continue-from and --tell-frames" in code
    assert "register_to_config(in_channels=len(kept))" in code
    python(code, {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}, cwd=run.folder)
    frames = read_frames(run.folder / "video.mp4", list(range(9)))

    asked = SampleSettings().changed(
        model=models["control"].source,
        prompt=records[0]["prompt"],
        image=str(run.folder / "first_frame.png"),
        last_image=str(run.folder / "last_frame.png"),
        loras=[str(run.folder / "lora.safetensors")],
        seed=0,
        device="cpu",
        steps=2,
    )
    ours = Sampler(models["control"].source, pick_device("cpu")).generate(workspace, asked).frames
    # Both are noise, and the file compresses it.
    assert np.abs(ours.astype(int) - frames).mean() < 0.4 * np.abs(ours.astype(int) - ours[::-1]).mean()


@pytest.mark.parametrize("given", ["prefix 5 1", "keyframes 3 1", "mask inside 1"])
def test_a_preview_hands_a_sample_what_it_was_told(
    workspace: Workspace, dataset: Dataset, models: dict[str, Model], given: str
) -> None:
    attached(dataset, "control")
    attached(dataset, "mask")
    values = {"given": [given], "control": True, "steps": 2, "preview_every": 2, "preview_steps": 2}
    run = create(workspace, models["control"].source, **values)
    training_loop(session(run))
    record = read_json(run.folder / "previews" / "step-00000000" / "0.json")
    asked = SampleSettings().changed(**record["settings"], device="cpu")
    (kind,) = (one.kind for one in run.settings.given_shares)
    assert set(asked.conditioning) == {kind.name, "control"}
    assert Path(asked.control).is_file()
    made = Sampler(models["control"].source, pick_device("cpu")).generate(workspace, asked).frames.astype(int)
    if kind.name != "prefix":  # whose latents a sample also puts back at each step
        shown = read_frames(run.folder / "previews" / "step-00000000" / "0.mp4", list(range(9)))
        assert np.abs(made - shown).mean() < 0.4 * np.abs(made - made[::-1]).mean(), "both are noise, and compressed"
    assert [path for path in strange_names(workspace) if "previews" in path.parts] == []
    row = videos(snapshot(run))["rows"][0]
    assert row["told"].startswith(str(kind))
    assert Path(row["sample"]).is_file()


def test_the_fit_check_counts_what_is_told(models: dict[str, Model]) -> None:
    def estimated(model: str, **values: Any) -> dict[str, float]:
        settings = TrainSettings().changed(model=model, **values)
        family, known = settings.resolved
        run = sizes(settings, known, family.facts(known), GpuModel("a large GPU", "cuda", 200.0, 394.0))
        training = next(phase.gb for phase in phases(run) if phase.name == "training")
        disk = disk_gb(run, 20, 100)["encoded clips and captions"]
        return {"training": training, "disk": disk, "encoding": times(run, 20).parts["encoding"]}

    plain, told = (estimated("wan2.2-ti2v-5b", **more) for more in ({}, {"given": ["first 0.5"]}))
    assert told["training"] > plain["training"] + 1  # every token has its own time
    assert told["disk"] > 1.3 * plain["disk"]
    assert told["encoding"] > 1.5 * plain["encoding"]
    plain, told = (estimated("wan2.2-i2v-a14b", **more) for more in ({}, {"given": ["first 0.5", "last 0.5"]}))
    assert told["training"] == plain["training"]

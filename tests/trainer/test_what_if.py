"""What if without a clip, a word, or with another setting: common random numbers, the job, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.driving import create, saved
from tests.patience import PATIENCE
from tests.trainer.test_causes import sample_like
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families.model import Model
from workbench.jobs.devices import pick_device
from workbench.runs import checkpoints
from workbench.runs.data import Batches, load_data
from workbench.runs.run import Run
from workbench.trainer import counterfactual, what_if
from workbench.trainer.counterfactual import Arm
from workbench.trainer.what_if import Answer, WhatIfSettings
from workbench.workspace import Workspace

ROUGH = {"steps": 2, "repeats": 3, "device": "cpu"}


def answered(run: Run, workspace: Workspace, **values: object) -> Answer:
    status = jobs.wait(
        what_if.request(workspace, run, WhatIfSettings().changed(**{**ROUGH, **values})).folder, PATIENCE
    )
    assert status.state is jobs.State.FINISHED, status.message or jobs.log_tail(status.folder)
    found = what_if.read_answer(run, status.folder.name.rpartition("-")[2])
    assert found is not None
    return found


def test_what_is_left_out_keeps_its_place(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    run = create(workspace, toy_model.source)
    data = load_data(workspace, run.settings)
    gone = counterfactual.clip_id(data.train[1])
    without = counterfactual.changed(data, Arm(run.settings, frozenset({gone}), ("square",)))
    plain, other = Batches(data, run.settings), Batches(without, run.settings)
    for number in range(20):
        for one, same in zip(plain.batch(number), other.batch(number), strict=True):
            expected = replace(one, caption=counterfactual.without_words(one.caption, ("square",)))
            assert same == (replace(expected, weight=0.0) if counterfactual.clip_id(one) == gone else expected)
    assert counterfactual.without_words("A Neon, red neon neonlight", ("neon",)) == "A, red neonlight"


def test_a_question_trains_pairs_and_its_answer_stays_with_the_run(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source, steps=40, preview_prompts=("a red square",), preview_steps=2)
    first = load_data(workspace, run.settings).train[0]
    clip, name = counterfactual.clip_id(first), Path(first.name).stem
    asked = {"without_clip": (clip,), "setting": ("save_every=3", "learning_rate=0.0001"), "seeds": 1, "steps": 4}
    found = answered(run, workspace, **asked)
    by_change = {one.change: one for one in found.changes}
    assert [one.verdict for one in by_change["setting:save_every=3"].measures] == ["same"] * 3
    slower = by_change["setting:learning_rate=0.0001"]
    assert [one.measure for one in slower.measures] == ["effect", "drift", "held_out_loss"][: len(slower.measures)]
    assert slower.measures[0].after != slower.measures[0].before
    assert by_change[f"clips:{name}"].measures[0].verdict != "same"  # an id is kept as a name that people know
    assert by_change["setting:save_every=3"].differ == 0  # the same weights generate the same video
    assert slower.samples == 1
    (folder,) = (run.folder / what_if.KEPT).iterdir()
    assert sorted(path.name for path in folder.glob("*.mp4")) == [f"{number}-0.mp4" for number in range(4)]
    assert found.begin == 0
    # The same question is answered already.
    again = what_if.request(workspace, run, WhatIfSettings().changed(**{**ROUGH, **asked}))
    assert again.folder.name.endswith(folder.name)
    assert not again.state.alive
    assert what_if.questions(workspace, run) == [folder.name]


def test_a_mark_in_a_sample_is_what_is_asked_about(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    run = create(workspace, toy_model.source, steps=40, held_out=0, preview_steps=2)
    saved(run, 2)
    clip = load_data(workspace, run.settings).train[0]
    sample = sample_like(workspace, run, clip, step=2)
    asked = {"without_clip": (counterfactual.clip_id(clip),), "sample": sample.id, "box": (0, 0, 8, 8), "seeds": 1}
    found = answered(run, workspace, **asked, steps=3)
    (change,) = found.changes
    assert [one.measure for one in change.measures][:2] == ["sample", "effect"]
    assert (found.box, found.prompts) == ([0, 0, 8, 8], [sample.settings.prompt])
    assert change.samples == 1
    assert change.gone <= change.shown <= 1  # a LoRA of three steps need not show it
    (folder,) = (run.folder / what_if.KEPT).iterdir()
    assert len(list(folder.glob("*.mp4"))) == 2


def test_trainings_begin_at_the_last_checkpoint_that_the_change_cannot_have_touched(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source, batch_size=1)
    saved(run, 2)
    data = load_data(workspace, run.settings)
    batches = Batches(data, run.settings)
    late, early = batches.batch(2)[0], batches.batch(0)[0]

    def begin(*clips: object) -> int:
        arms = [Arm(run.settings), *(Arm(run.settings, frozenset({counterfactual.clip_id(one)})) for one in clips)]  # type: ignore[arg-type]
        return what_if._last_common(run, data, arms, counterfactual.touched)

    assert begin(late) == 2
    assert begin(late, early) == 0
    # From a checkpoint, a training without a change is the run itself, bit for bit.
    saved(run, 4)
    settings = what_if._short(run.settings, 4, 0).changed(warmup_steps=run.settings.warmup_steps)
    job = what_if.CountedJob(workspace.root / what_if.FOLDER / "exact")
    job.folder.mkdir(parents=True)
    kept = []
    original = counterfactual.Probes.measure

    def measure(self: counterfactual.Probes, session: counterfactual.Session) -> dict[str, float]:
        kept.append([parameter.detach().clone() for parameter in session.trainable.parameters])
        return original(self, session)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counterfactual.Probes, "measure", measure)
        begun = checkpoints.folder_of(run.folder, 2)
        list(counterfactual.trained(job, pick_device("cpu"), [Arm(settings)], begun, 1, 0, None, {}))
    from tests.driving import session as resumed

    made = resumed(run)
    assert made.step == 4
    assert all((one == other).all() for one, other in zip(kept[0], made.trainable.parameters, strict=True))


def test_changes_that_cannot_be_compared_are_refused(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    run = create(workspace, toy_model.source)
    every = ",".join(counterfactual.clip_id(one) for one in load_data(workspace, run.settings).train)
    refused: list[tuple[dict[str, object], str]] = [
        ({}, "nothing is changed"),
        ({"without_clip": ("cat",)}, "the run trains on no clip 'cat': choose from"),
        ({"without_clip": (every,)}, "leave out fewer"),
        ({"without_word": ("zebra",)}, "no caption of the run has 'zebra'"),
        ({"setting": ("steps=9",)}, "steps cannot be changed here"),
        ({"setting": ("rank=2,4",)}, "rank has 2 values, must be one"),
        ({"setting": ("rank=0",)}, "rank"),
        ({"setting": ("rank=4",), "begin": 3}, "no checkpoint of step 3"),
        ({"setting": ("rank=4",), "frames": (0, 1)}, "sample is empty"),
    ]
    for values, sentence in refused:
        with pytest.raises(ConfigError, match=sentence):
            what_if.request(workspace, run, WhatIfSettings().changed(**{**ROUGH, **values}))
    assert not (workspace.root / what_if.FOLDER).exists()


def test_a_difference_is_told_from_chance_only_if_it_is_steady_and_larger_than_that_of_seeds() -> None:
    before = [0.50, 0.52, 0.49, 0.51]
    assert what_if.told("effect", before, before).verdict == "same"
    assert what_if.told("effect", before, [one - 0.2 for one in before]).verdict == "told"
    assert what_if.told("effect", before, [0.3, 0.6, 0.4, 0.7]).verdict == "chance"  # not steady
    assert what_if.told("effect", before, [one - 0.005 for one in before]).verdict == "chance"  # less than seeds make
    one = what_if.told("effect", before, [value - 0.2 for value in before])
    assert one.low == pytest.approx(one.high) == pytest.approx(-0.2)
    assert one.difference == pytest.approx(-0.2)


def test_the_answer_says_what_is_gone_and_what_cannot_be_told() -> None:
    steady = what_if.told("sample", [0.50, 0.52, 0.49], [0.10, 0.12, 0.09])
    found = what_if.Changed(change="clips:07_cat,09_dog", measures=[steady], samples=12, differ=12, shown=12, gone=11)
    assert what_if.sentence(found) == (
        "Without clips 07_cat and 09_dog: share of the way to the sample 50% → 10% (95%: -40.0 to -40.0 points; "
        f"seeds alone vary by ±{100 * steady.band:.1f}). What is marked is gone in 11 of the 12 samples that showed it."
    )
    chance = what_if.Changed(
        change="setting:rank=4", measures=[what_if.told("effect", [0.5, 0.6, 0.7], [0.6, 0.6, 0.6])]
    )
    assert what_if.sentence(chance).startswith("With rank 4: no clear difference; effect 60%")
    same = what_if.Changed(change="words:neon", measures=[what_if.told("effect", [0.5] * 3, [0.5] * 3)])
    assert what_if.sentence(same) == "Without the word neon: no difference at all, the trainings are the same."


def test_videos_are_compared_inside_the_mark(tmp_path: Path) -> None:
    import numpy as np

    from workbench.sampler.samples import write_sample

    plain = np.full((9, 48, 64, 3), 60, np.uint8)
    marked = plain.copy()
    marked[:, :16, :16] = 200
    for name, frames in (("plain", plain), ("marked", marked)):
        write_sample(tmp_path / f"{name}.mp4", frames, 8, {})
    one, other = tmp_path / "plain.mp4", tmp_path / "marked.mp4"
    inside = counterfactual.apart(one, other, (2, 2, 10, 10))
    assert inside == pytest.approx(140, abs=15)
    assert counterfactual.apart(one, other, (32, 24, 16, 16)) < 5
    assert counterfactual.apart(one, one) == 0

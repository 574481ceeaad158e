"""Ways in which a run fails, as their metrics look, and what is said of them: the table of docs/diagnosis.md."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.runs.analysis.test_diagnosis import Shape, curves_of, falling, flattening, growing, turning
from workbench.runs.analysis.diagnosis import Diagnosis, diagnose
from workbench.runs.settings import TrainSettings

DOCUMENT = Path(__file__).parents[3] / "docs" / "diagnosis.md"
OWN: tuple[Shape, Shape] = (growing, lambda share: 0.05 * share)  # the output's change, on its own captions and others


def levels(most: float) -> Shape:
    """Previews whose change grows to so many levels of 255 in the first half of a run."""
    return lambda share: most * min(1.0, 2 * share)


def failure(folder: Path, name: str) -> Diagnosis:
    """What is said of a run that failed in that way."""
    slow = lambda share: 0.5 - 0.02 * share  # noqa: E731
    settings = TrainSettings(dataset="cats")
    if name == "loss fell, nothing to see":
        curves = curves_of(folder, falling, falling, OWN, moved=levels(7.6), controls=levels(5.5))
    elif name == "regularization ate the batch":
        curves = curves_of(folder, flattening, falling, OWN, moved=levels(7.4), controls=levels(6.5))
        settings = settings.changed(regularization_dataset="known", regularization_share=0.7)
    elif name == "trained only at little noise":
        bands = (falling, falling, falling, slow, slow)
        curves = curves_of(folder, falling, falling, OWN, bands=bands, moved=levels(8.0), controls=levels(6.0))
        settings = settings.changed(model="wan2.1-t2v-1.3b", timestep_shift=0.3)
    elif name == "the learning rate ran down":
        rate = lambda share: 5e-5 * (1 + math.cos(math.pi * share))  # noqa: E731
        curves = curves_of(folder, flattening, falling, OWN, moved=levels(34), controls=levels(8), rate=rate)
    elif name == "spoiled the rest":  # one measurement after the first is enough
        curves = curves_of(folder, falling, falling, OWN, moved=levels(90), controls=levels(80), measurements=2)
    elif name == "destroyed":
        higher = lambda share: 0.3 + 0.1 * share  # noqa: E731
        curves = curves_of(folder, higher, falling, OWN, moved=levels(90), controls=levels(80), measurements=2)
    else:
        assert name == "repeats its clips"
        curves = curves_of(folder, turning, falling, OWN, moved=lambda share: 10 + 40 * share, controls=levels(7))
    return diagnose(curves, [100, 800, 1200, 2000], ended=True, settings=settings)


CASES = {
    "loss fell, nothing to see": ("not visible", "plain", "1.4 times the controls' 5.5", "with more steps"),
    "regularization ate the batch": ("not visible", "plain", "1.1 times", "70% of each batch"),
    "trained only at little noise": ("not visible", "plain", "4% at much noise", "A timestep_shift above 0.3"),
    "the learning rate ran down": ("levelled off", "good", "last third", "train with more steps"),
    "spoiled the rest": ("prior drift", "bad", "other videos now", "regularization dataset"),
    "destroyed": ("destroyed", "bad", "The model is destroyed", "lower learning rate"),
    "repeats its clips": ("over-fitting", "bad", "training loss still falls", "Use the checkpoint of step"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_failure_is_named_and_comes_with_what_helps(tmp_path: Path, name: str) -> None:
    kind, tone, sentence, advice = CASES[name]
    found = failure(tmp_path, name)
    assert (found.kind, found.tone) == (kind, tone), found
    assert sentence in found.sentence
    assert advice in found.advice


def test_the_documents_table_has_the_failures_and_their_kinds() -> None:
    rows = [line.split(" | ") for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    said = {row[0].removeprefix("| "): row[2] for row in rows if len(row) > 2}
    assert {name: kind for name, (kind, *_) in CASES.items()}.items() <= {
        name: kind.partition(":")[0].strip("*") for name, kind in said.items()
    }.items()


def test_a_run_that_shows_its_concept_is_not_told_so(tmp_path: Path) -> None:
    """Noise levels that lag are no failure by themselves: measured where 67 % of the samples showed the concept."""
    bands: tuple[Shape, ...] = (falling, falling, falling, lambda share: 0.5 - 0.05 * share, lambda share: 0.5)
    curves = curves_of(tmp_path, falling, falling, OWN, bands=bands, moved=levels(34), controls=levels(8))
    found = diagnose(curves, [2000])
    assert (found.kind, found.tone) == ("learning", "good")


def test_the_best_checkpoint_is_one_that_shows_something(tmp_path: Path) -> None:
    """Though the loss was lowest while the previews were still those of the base model."""
    curves = curves_of(tmp_path, turning, falling, OWN, moved=lambda share: 2 + 40 * share**2, controls=levels(7))
    found = diagnose(curves, [800, 1200, 1600, 2000])
    assert found.kind == "over-fitting"
    assert found.best_step == 1200, "800 has the lowest loss"
    assert "step 1200" in found.advice


@pytest.mark.parametrize(
    ("values", "advice"),
    [
        ({}, "Add a regularization dataset"),
        ({"regularization_dataset": "known"}, "Set regularization_target to base model"),
        ({"regularization_dataset": "known", "regularization_target": "base model"}, "Raise the regularization_share"),
        ({"regularization_dataset": "known", "model": "tiny-phenaki"}, "Raise the regularization_share"),
    ],
)
def test_what_keeps_the_rest_is_the_next_thing_that_was_not_done(
    tmp_path: Path, values: dict[str, str], advice: str
) -> None:
    curves = curves_of(tmp_path, falling, falling, OWN, moved=levels(90), controls=levels(80), measurements=2)
    settings = TrainSettings(dataset="cats").changed(**values)
    assert advice in diagnose(curves, [100, 800], ended=True, settings=settings).advice

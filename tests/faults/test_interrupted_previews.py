"""Previews that a person or a power cut interrupts: Stop is obeyed, and the next start generates what is missing."""

from __future__ import annotations

import pytest

from tests.driving import create, go, session
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.families.model import Model
from workbench.runs.run import Run
from workbench.trainer import loop
from workbench.trainer.loop import follow_commands, preview, preview_at_start
from workbench.workspace import Workspace


@pytest.fixture
def run(workspace: Workspace, dataset: Dataset, toy_model: Model) -> Run:
    """A run that saves and previews at the same steps."""
    return create(
        workspace, toy_model.source, steps=4, save_every=2, preview_every=2, preview_prompts=("a", "b"), preview_steps=3
    )


def previews(run: Run) -> list[int]:
    return [preview.step for preview in run.previews]


def test_previews_that_were_interrupted_after_their_save_are_generated_on_the_next_start(run: Run) -> None:
    made = go(run, 2)  # it was killed before the first preview, and again
    made.save()
    made.close()
    made = session(run)
    loop.train_step(made)
    loop.train_step(made)
    made.save()
    made.close()
    made = session(run)
    loop.training_loop(made)
    made.close()
    assert previews(run) == [4, 4]
    assert run.lora is not None

    first = run.folder / "previews/step-00000004/0.mp4"
    before = first.stat().st_mtime_ns
    first.with_name("1.json").unlink()
    made = session(run)
    loop.training_loop(made)
    made.close()
    assert previews(run) == [4, 4]
    assert first.stat().st_mtime_ns == before, "those that are there are left alone"


def test_stop_is_obeyed_at_the_next_denoising_step_and_the_run_saves(run: Run) -> None:
    made = go(run, 2)
    seen = []
    beat = made.job.beat

    def asked_to_stop(phase: str, *rest: int, **more: object) -> None:
        seen.append(more.get("message"))
        if "denoising step 2 of 9" in seen and not made.stop_requested:
            jobs.send(run.folder, "stop")
        beat(phase, *rest, **more)

    made.job.beat = asked_to_stop  # type: ignore[method-assign]
    preview(made)
    assert seen[-1] == "denoising step 2 of 9"
    assert previews(run) == []
    with pytest.raises(jobs.Stop, match="Stopped at step 2 of 4"):
        follow_commands(made)
    made.close()
    assert run.checkpoints == [2]
    made = session(run)
    preview_at_start(made)
    made.close()
    assert previews(run) == [2, 2]


def test_stop_in_the_first_previews_ends_a_run_before_its_first_step(run: Run) -> None:
    made = session(run)
    jobs.send(run.folder, "stop")
    with pytest.raises(jobs.Stop, match="Stopped at step 0 of 4"):
        loop.training_loop(made)
    made.close()
    assert (run.checkpoints, previews(run)) == ([], [])
    made = session(run)
    loop.training_loop(made)
    made.close()
    assert previews(run) == [0, 0, 2, 2, 4, 4]


def test_a_start_after_a_kill_does_not_measure_the_previews_of_its_checkpoint_twice(run: Run) -> None:
    def measured() -> list[int]:
        return [line["step"] for line in run.metrics if "preview_changes" in line]

    made = session(run)
    preview_at_start(made)
    loop.train_step(made)
    loop.train_step(made)
    made.save()
    preview(made)
    made.close()
    assert measured() == [2]
    for _ in range(2):
        made = session(run)
        preview_at_start(made)
        made.close()
        assert measured() == [2]

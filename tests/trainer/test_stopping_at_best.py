"""A run that looks for its best point: what it measures, that it stops there, and that it can go on all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.driving import create, session
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families.model import Model
from workbench.runs import checkpoints
from workbench.runs.analysis.best_point import forecast, points_of, record
from workbench.runs.run import EXPORT, Run
from workbench.runs.snapshot import snapshot
from workbench.trainer.evaluation import EFFECT_LEVELS
from workbench.trainer.loop import train_step, training_loop
from workbench.workspace import Workspace

FAST: dict[str, Any] = {"learning_rate": 0.02, "rank": 4, "targets": "all-linear", "evaluate_every": 0}
STEPS = 24


def train(run: Run, asked_at: int = 0) -> str:
    """Train until the run ends or stops; return why it stopped, or "". asked_at: the step at which it is asked to"""
    made = session(run)
    beat = made.beat

    def beat_and_ask(phase: str, **more: Any) -> None:
        beat(phase, **more)
        if asked_at and made.step == asked_at and phase == "training":
            jobs.send(run.folder, "stop", {"best_point": True})

    made.beat = beat_and_ask  # type: ignore[method-assign]
    try:
        training_loop(made)
    except jobs.Stop as stop:
        return str(stop)
    finally:
        made.close()
    return ""


def same(one: Path, other: Path) -> bool:
    """Whether two files hold the same weights bit for bit. Their metadata name their runs."""
    first, second = load_file(one), load_file(other)
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_it_stops_at_the_best_point_and_goes_on_bit_for_bit(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    plain = create(workspace, toy_model.source, steps=STEPS, **FAST)
    assert train(plain) == ""
    assert not any("effect" in line for line in plain.metrics)

    run = create(workspace, toy_model.source, steps=STEPS, best_point="do", best_point_every=1, **FAST)
    why, stop = train(run), record(run.folder)
    assert why.startswith(f"Stopped at its best point, step {stop['step']}; start it again")
    assert stop["step"] == stop["stopped_at"] < STEPS
    assert stop["step"] in run.checkpoints
    best = checkpoints.folder_of(run.folder, stop["step"]) / checkpoints.LORA
    assert same(run.folder / EXPORT, best)
    assert not same(run.folder / EXPORT, plain.folder / EXPORT)

    assert train(run) == ""  # started again, it trains the rest and does not stop a second time
    assert same(run.folder / EXPORT, plain.folder / EXPORT)


@pytest.mark.parametrize("values", [{"ema_decay": 0.5}, {"optimizer": "schedule-free"}])
def test_asked_later_it_exports_what_it_would_have_exported_there(
    workspace: Workspace, dataset: Dataset, toy_model: Model, values: dict[str, Any]
) -> None:
    values = {**FAST, **values, "steps": STEPS, "best_point_every": 1}
    stopped = create(workspace, toy_model.source, best_point="do", **values)
    assert train(stopped).startswith("Stopped at its best point")

    run = create(workspace, toy_model.source, best_point="ask", **values)
    assert train(run, asked_at=1).startswith("Stopped at step 1 ")  # before there is one, it is a plain stop
    assert run.lora is None
    assert train(run, asked_at=STEPS - 1).startswith("Stopped at its best point")
    found = record(run.folder)
    assert found["step"] == record(stopped.folder)["step"] < found["stopped_at"] == STEPS - 1
    assert same(run.folder / EXPORT, stopped.folder / EXPORT)


def test_the_stop_is_shown_with_its_lora_and_how_to_go_on(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source, steps=STEPS, best_point="do", best_point_every=1, **FAST)
    with jobs.Job(run.folder):
        raise jobs.Stop(train(run))
    from workbench.runs.snapshot import verdict_of

    seen = snapshot(run)
    verdict = verdict_of(seen)
    assert verdict is not None
    assert verdict.claim == f"Stopped at its best point, step {record(run.folder)['step']}."
    assert verdict.action is not None
    assert verdict.action.kind == "sample"
    assert seen.action("go on") is not None
    assert any("best point" in one.reasons for one in seen.checkpoints)


def test_effect_and_drift_are_what_their_definition_says(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source, best_point="ask", best_point_every=1, **FAST)
    made = session(run)
    probe = made.effect_and_drift
    assert probe is not None
    untrained = probe.measure(made.bare_transformer, made.base_model)
    assert untrained["effect"] == pytest.approx(0, abs=1e-6)
    assert untrained["drift"] == pytest.approx(0, abs=1e-6)
    for _ in range(3):
        train_step(made)
    found = probe.measure(made.bare_transformer, made.base_model)

    from workbench.runs.data import seed_for

    (clip,) = made.inputs.clips(made.data.held_out)
    shares = []
    for index, level in enumerate(EFFECT_LEVELS):
        generator = torch.Generator().manual_seed(seed_for(run.settings.seed, "effect and drift", index))
        inputs = clip.sampled(made.family, made.schedule, level, generator, made.device)
        with torch.no_grad():
            predicted = made.family.predict(made.bare_transformer, made.schedule, inputs)
            with made.base_model():
                base = made.family.predict(made.bare_transformer, made.schedule, inputs)
        way = made.schedule.target(inputs.latents, inputs.noise, inputs.timesteps) - base
        shares.append(float(((predicted - base) * way).sum() / way.square().sum()))
    assert found["effects"] == pytest.approx(shares, abs=1e-4)
    assert found["effect"] == pytest.approx(sum(shares) / len(shares), rel=1e-4)
    assert found["drift"] > 0
    assert points_of([{"step": 3, **found}])[0].effect == found["effect"]
    made.close()


def test_the_checkpoint_of_the_best_point_is_kept(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    values = {**FAST, "steps": STEPS, "save_every": 1, "keep_checkpoints": 1}
    run = create(workspace, toy_model.source, best_point="ask", best_point_every=1, **values)
    train(run)
    found = forecast(points_of(run.metrics), run.settings)
    assert found is not None
    assert found.reached
    assert set(run.checkpoints) == {found.step, STEPS}


def test_a_run_that_does_not_look_for_it_refuses_to_stop_there(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source)
    with pytest.raises(ConfigError, match="does not look for its best point"):
        run.stop(best_point=True)

"""Pause, sample, go on; and videos of a living run: real processes on a random miniature."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.patience import PATIENCE, until_run
from tests.runs.test_run_queue import end_all
from tests.trainer.test_trainer import Start, digest, reach, start
from workbench import jobs
from workbench.errors import ConfigError, ExitCode
from workbench.jobs import State, gpu_lock, queue
from workbench.runs.metrics import read_sessions
from workbench.runs.previews import LiveSample
from workbench.sampler.samples import Samples
from workbench.workspace import Workspace, read_json

__all__ = ["start"]  # the fixture


@pytest.fixture(autouse=True)
def ended(workspace: Workspace) -> Iterator[None]:
    """Nothing goes on training, however a test ends."""
    yield
    end_all(workspace)


def test_a_paused_run_lends_its_device_keeps_its_place_and_ends_in_the_same_bytes(
    start: Start, workspace: Workspace
) -> None:
    values = {"steps": 100, "save_every": 100, "evaluate_every": 0, "ema_decay": 0.9}
    whole = start("whole", **values)
    want = digest(whole)
    shutil.rmtree(whole.folder)
    run = start("whole", wait=False, **values)
    behind = start("behind", steps=100_000, save_every=100_000, evaluate_every=0, wait=False)
    reach(run, 3)
    run.pause()
    until_run(run, lambda: run.status.state is State.PAUSED and gpu_lock.holder(workspace.locks, "") is None)
    paused_at = run.metrics[-1]["step"]
    assert paused_at < 100
    assert run.checkpoints == [paused_at]  # what sampling shows is what the run has reached
    until_run(behind, lambda: "first in the queue; run whole is paused" in behind.status.phase)
    assert queue.order(workspace) == ["behind"]  # a paused run is no waiting one
    with gpu_lock.hold(workspace.locks, "", "a person who samples"):
        run.resume()
        until_run(run, lambda: "held by a person who samples" in run.status.phase)
        assert run.metrics[-1]["step"] == paused_at
    assert run.wait(PATIENCE).state is State.FINISHED, jobs.log_tail(run.folder)
    assert digest(run) == want
    first, after = read_sessions(run.folder)
    assert (first.paused, after.paused, after.step) == (False, True, paused_at)
    assert first.time < after.before < after.time

    # Told to stop while it is paused, a run ends without its device.
    reach(behind, 1)
    behind.pause()
    until_run(behind, lambda: behind.status.state is State.PAUSED and gpu_lock.holder(workspace.locks, "") is None)
    with gpu_lock.hold(workspace.locks, "", "a person who samples"):
        behind.stop()
        now = behind.wait(PATIENCE)
    assert (now.state, now.exit_code) == (State.STOPPED, ExitCode.STOPPED)
    assert behind.checkpoints == [behind.metrics[-1]["step"]]
    assert queue.order(workspace) == []


def test_a_living_run_draws_what_it_is_asked_for_and_shows_it_with_the_samples(
    start: Start, workspace: Workspace
) -> None:
    run = start(steps=100_000, save_every=100_000, evaluate_every=0, preview_steps=3, wait=False)
    reach(run, 1)
    run.pause()  # so that all are asked for between the same two steps
    until_run(run, lambda: run.status.state is State.PAUSED)
    run.live_sample(LiveSample(prompt="a green square", seed=7, guidance_scale=2.0, steps=2, scale=0.5))
    run.live_sample(LiveSample(prompt="a green square", seed=7, guidance_scale=2.0, steps=2, scale=0.0))
    run.preview("a prompt of its own")
    run.live_sample(LiveSample())
    run.resume()
    until_run(run, lambda: len(list(run.folder.glob("previews/*/live-*.json"))) == 3 and run.previews)
    live = [read_json(path) for path in sorted(run.folder.glob("previews/*/live-*.json"))]
    chosen = ("kind", "prompt", "seed", "guidance_scale", "steps", "scale")
    assert [live[0][name] for name in chosen] == ["live", "a green square", 7, 2.0, 2, 0.5]
    assert [live[2][name] for name in chosen] == [
        "live", run.settings.preview_prompts[0] if run.settings.preview_prompts else live[2]["prompt"], 0,
        live[2]["guidance_scale"], 3, 1.0,
    ]  # fmt: skip
    assert [preview.prompt for preview in run.previews] == ["a prompt of its own"]

    until_run(run, lambda: len(Samples(workspace).history()) == 3)
    samples = {sample.record["scale"]: sample for sample in Samples(workspace).history()}
    assert {sample.record["run"] for sample in samples.values()} == {run.name}
    assert samples[0.0].settings.loras == ()
    assert samples[0.5].settings.loras[0].endswith("lora.safetensors=0.5")
    (step,) = {sample.record["step"] for sample in samples.values()}
    assert samples[0.5].record["loras"][0]["name"] == f"runs/{run.name}@{step}"
    assert samples[0.5].path.read_bytes() != samples[0.0].path.read_bytes()
    run.stop(grace=PATIENCE)
    with pytest.raises(ConfigError, match="1 to 1000"):
        LiveSample.read({"steps": 0})

"""Each variant of CogVideoX, HunyuanVideo 1.5, Kandinsky 5, LTX-Video, LTX-2, Mochi and Wan from a dataset to a
report: trained, killed, resumed, previewed, exported, sampled in a grid. What one family shows is in the other files.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.driving import create, go, session
from tests.patience import PATIENCE, until
from tests.trainer.test_exact import digests
from tests.trainer.test_memory_levels import Gradients, gradients
from tests.trainer.test_trainer import reach
from workbench import jobs
from workbench.clips.records import file_sha256
from workbench.compare import Grid
from workbench.compare.suggestions import suggested
from workbench.dataset_builder import Dataset
from workbench.families import find_model
from workbench.families.base import Family
from workbench.families.cogvideox import FAMILY as COGVIDEOX
from workbench.families.hunyuan15 import FAMILY as HUNYUAN15
from workbench.families.kandinsky5 import FAMILY as KANDINSKY5
from workbench.families.ltx import FAMILY as LTX
from workbench.families.ltx2 import FAMILY as LTX2
from workbench.families.mochi import FAMILY as MOCHI
from workbench.families.wan import FAMILY as WAN
from workbench.jobs.devices import pick_device
from workbench.runs import checkpoints
from workbench.runs.report import write_report
from workbench.runs.run import Run
from workbench.sampler import queue
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

CASES = [
    (family, variant) for family in (COGVIDEOX, HUNYUAN15, KANDINSKY5, LTX, LTX2, MOCHI, WAN) for variant in family.toys
]
IDS = [f"{family.name}-{variant}" for family, variant in CASES]
# One of each kind goes through the processes: text alone, known first frames, a pair of experts that begins with a
# picture. The others do the same steps in this process.
THROUGH_PROCESSES = ("ltx-image", "wan-text", "wan-a14b-image")
# Of those, one of each kind at every change, the others before a release: test_exact.py, test_references.py and
# test_told_in_training.py resume runs of CogVideoX, LTX-Video and Wan from text.
USUAL = (
    "cogvideox-image-1.5", "ltx2-image-2.3", "mochi-text", "wan-image-2.1", "hunyuan15-image", "kandinsky5-image",
)  # fmt: skip
CHOSEN = [
    pytest.param(name, marks=[] if name in USUAL + THROUGH_PROCESSES else [pytest.mark.release], id=name)
    for name in IDS
]
ALONE = [one for one in CHOSEN if one.id not in THROUGH_PROCESSES]
STEPS, SAVED = 16, 4
VALUES: dict[str, Any] = {
    "steps": STEPS, "save_every": SAVED, "keep_checkpoints": 9, "image_dropout": 0.3, "device": "cpu",
    "evaluate_every": STEPS,
}  # fmt: skip


def values_of(name: str, **more: Any) -> dict[str, Any]:
    """Settings of a run; of a pair of experts it trains one."""
    return VALUES | ({"expert": "high noise"} if "a14b" in name else {}) | more


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The folder of each miniature, made when it is first asked for."""
    base = tmp_path_factory.mktemp("toys")

    class Made(dict[str, str]):
        def __missing__(self, name: str) -> str:
            family, variant = CASES[IDS.index(name)]
            self[name] = str(family.toy(base / name, variant).source)
            return self[name]

    return Made()


@pytest.fixture
def served(workspace: Workspace) -> Iterator[Workspace]:
    """The workspace; its sampling worker and the jobs of its grids are ended."""
    yield workspace
    jobs.kill(queue.worker_folder(workspace))
    for job in workspace.grids.glob("*/.*"):
        jobs.kill(job)


@pytest.mark.long
@pytest.mark.parametrize("name", THROUGH_PROCESSES)
def test_from_clips_to_a_grid_and_a_report(
    served: Workspace, dataset: Dataset, toys: dict[str, str], name: str
) -> None:
    values = values_of(name, preview_every=STEPS, preview_prompts=("a red square",), preview_steps=2)
    run = create(served, toys[name], **values)
    run.start()
    reach(run, SAVED + 1)
    pid = run.status.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    jobs.wait(run.folder, PATIENCE)
    run.start()
    assert run.wait(PATIENCE).state == jobs.State.FINISHED, jobs.log_tail(run.folder)
    assert [preview.step for preview in run.previews] == [0, STEPS]
    assert run.lora is not None
    card = (run.folder / "README.md").read_text(encoding="utf-8")
    assert "load_lora_weights" in card

    whole = Run.create(served, run.settings, "whole")  # in one go, in this process
    made = go(whole, STEPS)
    made.save()
    made.metrics.close()
    assert digests(whole, STEPS)["optimizer.safetensors"] == digests(run, STEPS)["optimizer.safetensors"]
    tensors = [load_file(checkpoints.folder_of(one.folder, STEPS) / checkpoints.LORA) for one in (whole, run)]
    assert tensors[0].keys() == tensors[1].keys()
    assert all(torch.equal(tensors[0][key], tensors[1][key]) for key in tensors[0])  # its header names the run

    rows = suggested(served, run.name).changed(
        prompts=["a red square"], checkpoints=["base", str(SAVED), str(STEPS)], scales=["1"]
    )
    grid = Grid.create(served, rows)
    assert grid.generate() == 3
    until(lambda: not grid.state().going)
    state = grid.state()
    assert state.complete, [cell.message for cell in state.all]
    videos = {file_sha256(path) for path in (grid.folder / "cells").glob("*.mp4")}
    assert len(videos) == 3, "each checkpoint makes a video of its own"
    assert "a red square" in write_report(run).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ALONE)
def test_a_resumed_run_is_exact_and_its_checkpoints_make_videos(
    workspace: Workspace, dataset: Dataset, toys: dict[str, str], name: str, tmp_path: Path
) -> None:
    resumed = create(workspace, toys[name], **values_of(name))
    whole = Run.create(workspace, resumed.settings, "whole")
    for run, stops in ((resumed, (SAVED, STEPS)), (whole, (STEPS,))):
        for step in stops:
            made = go(run, step)
            made.save()
            made.metrics.close()
    assert digests(whole, STEPS)["optimizer.safetensors"] == digests(resumed, STEPS)["optimizer.safetensors"]
    paths = [checkpoints.folder_of(resumed.folder, step) / checkpoints.LORA for step in (SAVED, STEPS)]
    shot = SampleSettings(model=toys[name], prompt="a red square", steps=2, seed=0, device="cpu")
    if "image" in name:
        Image.new("RGB", (64, 64), "red").save(tmp_path / "red.png")
        shot = shot.changed(image=str(tmp_path / "red.png"))
    sampler = Sampler(toys[name], pick_device("cpu"))
    videos = [sampler.generate(workspace, shot.changed(loras=[str(path)])).frames for path in paths]
    assert not (videos[0] == videos[1]).all()


LEVELS: tuple[dict[str, Any], ...] = (
    {"gradient_checkpointing": "keep attention"},
    {"gradient_checkpointing": "full"},
    {"gradient_checkpointing": "offloaded"},
    {"gradient_checkpointing": "full", "blocks_to_swap": 1},
)


@pytest.mark.release
@pytest.mark.parametrize("name", [one for one in IDS if not one.startswith("cogvideox")])  # see test_memory_levels.py
def test_each_memory_level_computes_what_the_plain_model_does(
    workspace: Workspace, dataset: Dataset, toys: dict[str, str], name: str
) -> None:
    def outcome(**values: Any) -> tuple[float, Gradients]:
        run = create(workspace, toys[name], **values_of(name, batch_size=2, **values))
        return gradients(session(run))

    loss, plain = outcome()
    assert plain
    for level in LEVELS:
        found, ours = outcome(**level)
        assert found == loss, level
        assert all(torch.equal(ours[one], plain[one]) for one in plain), level


@pytest.mark.parametrize("family", [LTX, WAN], ids=lambda one: one.name)
def test_the_clips_frame_rate_reaches_the_model(
    served: Workspace, dataset: Dataset, toys: dict[str, str], family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy, rates, call = toys[f"{family.name}-{family.toys[0]}"], [], type(family).call

    def noted(self: Family, *arguments: Any) -> torch.Tensor:
        rates.append(arguments[-1].fps)
        return call(self, *arguments)

    monkeypatch.setattr(type(family), "call", noted)
    go(create(served, toy, fps=4.0, frames=_shortest(toy), evaluate_every=0), 1).metrics.close()
    assert set(rates) == {4.0}
    rates.clear()
    shot = SampleSettings(model=toy, prompt="a red square", steps=2, seed=0, device="cpu")
    Sampler(toy, pick_device("cpu")).generate(served, shot.changed(fps=12.0))
    assert set(rates) == {12.0}


@pytest.mark.parametrize("name", [one for one in CHOSEN if "image" in one.id])
def test_first_frames_are_part_of_what_is_learned(
    workspace: Workspace, dataset: Dataset, toys: dict[str, str], name: str
) -> None:
    assert find_model(toys[name])[1].task == "image-to-video"
    made = session(create(workspace, toys[name], **values_of(name, image_dropout=0.0)))
    inputs = made.inputs.batch(1, 0).inputs
    given = inputs.given
    shown = given.known if given.known is not None else given.beside
    assert shown.abs().sum() > 0
    changed = replace(given, **{"known" if given.known is not None else "beside": shown.flip(-1)})
    schedule = made.family.noise_schedule(made.folder, torch.device("cpu"))
    losses = [
        made.family.loss(made.transformer, schedule, replace(inputs, given=one)).detach() for one in (given, changed)
    ]
    assert not torch.equal(*losses)
    made.metrics.close()


def _shortest(toy: str) -> int:
    return find_model(toy)[1].frame_rule.legal()[0]

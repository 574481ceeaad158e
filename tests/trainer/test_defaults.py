"""What an empty setting stands for: as the models' authors and published trainers do, and for a run that began earlier
as it was then."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.driving import create, go, session
from workbench.clips.records import file_sha256
from workbench.dataset_builder import Dataset
from workbench.errors import ResumeRefused
from workbench.families import find_model
from workbench.families.base import Family
from workbench.families.cogvideox import FAMILY as COGVIDEOX
from workbench.families.ltx import FAMILY as LTX
from workbench.families.noise_schedules import DEFAULTS, FlowSchedule
from workbench.families.wan import FAMILY as WAN
from workbench.runs import checkpoints
from workbench.runs.data import load_data
from workbench.runs.run import Run, fork
from workbench.runs.settings import TrainSettings
from workbench.trainer.encoder import Cache, Encoder, Piece, precision_of
from workbench.trainer.session import Session
from workbench.workspace import Workspace, read_json, write_json


@pytest.mark.parametrize(
    ("family", "toy", "on_a_gpu"), [(WAN, "text", "bf16"), (LTX, "text", "bf16"), (COGVIDEOX, "sincos", "fp32")]
)
def test_auto_computes_as_the_authors_do_whatever_the_files_hold(
    family: Family, toy: str, on_a_gpu: str, tmp_path: Path
) -> None:
    folder, settings = Path(family.toy(tmp_path / "toy", toy).source), TrainSettings(dataset="x")
    assert family.stored_dtype(folder) == "float32"
    assert precision_of(family, folder, settings, "cuda") == on_a_gpu
    assert precision_of(family, folder, settings, "cpu") == "fp32"
    assert precision_of(family, folder, settings.changed(precision="fp32"), "cuda") == "fp32"
    assert precision_of(family, folder, settings.changed(precision="fp16"), "cuda") == "fp16"


def test_wan_s_pictures_are_encoded_in_fp32_beside_captions_in_bf16(
    workspace: Workspace, dataset: Dataset, tmp_path: Path
) -> None:
    model = WAN.toy(tmp_path / "toy", "image-2.1")
    folder, cache = Path(model.source), Cache(workspace.cache)
    item = load_data(workspace, TrainSettings(dataset="squares", model=model.source, held_out=0)).train[0]
    full, half, former = (
        Encoder(WAN, model, folder, cache, "cpu", precision, defaults=defaults)
        for precision, defaults in (("fp32", DEFAULTS), ("bf16", DEFAULTS), ("bf16", 1))
    )
    half.encode_captions(["a red square"], lambda *_: None)
    assert half.caption("a red square")["prompt_embeds"].dtype == torch.bfloat16
    for view in ("clip", "picture"):
        assert half.clip_key(item, view) == full.clip_key(item, view) != former.clip_key(item, view)
        half.encode_clip(Piece(item, view))
        first = half.clip(Piece(item, view))
        full.encode_clip(Piece(item, view))
        again = full.clip(Piece(item, view))
        assert all(torch.equal(first[name], again[name]) for name in again)


# ---- a run goes on with the defaults that it began with


def as_before(run: Run, step: int, *names: str) -> None:
    """Take values out of a checkpoint's state, which earlier versions did not write."""
    folder = checkpoints.folder_of(run.folder, step)
    state, manifest = read_json(folder / checkpoints.STATE), read_json(folder / checkpoints.MANIFEST)
    write_json(folder / checkpoints.STATE, {name: value for name, value in state.items() if name not in names})
    path = folder / checkpoints.STATE
    manifest["files"][checkpoints.STATE] = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
    write_json(folder / checkpoints.MANIFEST, manifest)


def saved(run: Run, until: int) -> None:
    made = go(run, until)
    made.save()
    made.metrics.close()


def schedule_of(made: Session) -> FlowSchedule:
    made.metrics.close()
    assert isinstance(made.schedule, FlowSchedule)
    return made.schedule


def test_a_run_that_began_with_the_first_defaults_keeps_them(
    workspace: Workspace, dataset: Dataset, tmp_path: Path
) -> None:
    run = create(workspace, WAN.toy(tmp_path / "toy", "text").source)
    saved(run, 1)
    assert schedule_of(session(run)).shift == 3
    as_before(run, 1, "defaults", "text_form")
    assert schedule_of(session(run)).shift == 5
    saved(run, 2)
    assert read_json(checkpoints.folder_of(run.folder, 2) / checkpoints.STATE)["defaults"] == 1
    assert schedule_of(session(run)).shift == 5


def test_a_text_run_of_ltx_is_shown_its_own_first_frame_now_and_then(
    workspace: Workspace, dataset: Dataset, tmp_path: Path
) -> None:
    """What is shown is the latents' own first frame, which the loss then leaves out (test_ltx has its definition)."""
    model = LTX.toy(tmp_path / "toy", "text").source
    values = {"batch_size": 5, "frames": 9, "height": 64, "width": 64}
    run = create(workspace, model, **values)
    made = session(run)
    shown = 0
    for step in range(1, 80):
        inputs = made.inputs.batch(step, 0).inputs
        if inputs.given is not None:
            assert inputs.given.known is not None
            assert torch.equal(inputs.given.known, inputs.latents[:, :, :1])
            shown += int(inputs.given.kept.sum())
    assert 0.05 < shown / (79 * 5) < 0.16
    saved(run, 1)
    as_before(run, 1, "defaults", "text_form")
    assert all(session(run).inputs.batch(step, 0).inputs.given is None for step in range(1, 80))


def test_a_run_of_ltx_0_9_5_that_was_trained_as_0_9_1_goes_on_as_a_fork(
    workspace: Workspace, dataset: Dataset, tmp_path: Path
) -> None:
    model = LTX.toy(tmp_path / "toy", "text-0.9.5").source
    run = create(workspace, model, frames=9, height=64, width=64)
    saved(run, 1)
    assert session(run).step == 1
    as_before(run, 1, "defaults", "text_form")
    with pytest.raises(ResumeRefused, match="now trains as LTXConditionPipeline does: fork the run"):
        session(run)
    assert find_model(model)[1].pipeline == "LTXConditionPipeline"
    forked = Run(fork(workspace, run, 1, run.settings, "two"))
    assert session(forked).step == 1

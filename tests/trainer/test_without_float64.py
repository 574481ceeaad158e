"""A training step and its measurements put no float64 on the model's device, which Apple GPUs lack, and no operation
there makes the CPU wait without need.

torch's "meta" device stands in for such a GPU: its tensors have a shape and a dtype but no values. A dispatcher mode
sees every operation of the step, forward and backward, ours and the libraries', and records any float64 result on the
device. Values read back from the device come out as ones.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from PIL import Image
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests import driving
from workbench.dataset_builder import Dataset
from workbench.families import find_model, noise_schedules
from workbench.families.cogvideox import FAMILY as COGVIDEOX
from workbench.families.ltx import FAMILY as LTX
from workbench.families.phenaki import FAMILY as PHENAKI
from workbench.families.wan import FAMILY as WAN
from workbench.jobs import Job
from workbench.jobs.devices import Device
from workbench.runs.data import load_data
from workbench.runs.run import Run
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.trainer.encoder import encoder_of, encoding_work
from workbench.trainer.loop import train_step
from workbench.trainer.session import Session
from workbench.workspace import Workspace

pytestmark = pytest.mark.long

STAND_IN = torch.device("meta")
FAMILIES = (COGVIDEOX, LTX, WAN, PHENAKI)
# One of each kind of positions, conditions and noise; the other variants only differ in size.
TRAINED = ["cogvideox-sincos", "cogvideox-image", "ltx-text", "wan-text", "phenaki-token"]
SAMPLED = ["cogvideox-rotary", "ltx-image", "wan-image-2.1", "phenaki-token"]
# Measuring takes a dozen more passes through the model: these two are fast and have different noise schedules.
MEASURED = ("wan-text", "phenaki-token")
WITH_KNOWN_FRAMES = ["ltx-image", "wan-5b-image"]
TOYS = {f"{family.name}-{variant}": (family, variant) for family in FAMILIES for variant in family.toys}


class StandIn(TorchDispatchMode):
    """Record where float64 reaches the stand-in; values read from it become ones."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = 0
        self.found: list[str] = []
        self.masks: list[str] = []  # operations that index by a mask, whose output size the CPU has to wait for

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        there = any(one.device == STAND_IN for one in given)
        if there and func is torch.ops.aten._local_scalar_dense.default:
            return 1 if not given[0].is_floating_point() else 1.0
        if there and func is torch.ops.aten._to_copy.default and kwargs.get("device", STAND_IN) != STAND_IN:
            return torch.ones(given[0].shape, dtype=kwargs.get("dtype") or given[0].dtype)
        if func is torch.ops.aten.copy_.default and given[0].device != STAND_IN == given[1].device:
            return given[0].fill_(1)
        if there and "index" in func.name() and any(one.dtype == torch.bool for one in given[1:]):
            self.masks.append(func.name())
            return given[0]
        made = func(*args, **kwargs)
        self.operations += there
        for leaf in tree_leaves(made):
            if isinstance(leaf, torch.Tensor) and leaf.device == STAND_IN and leaf.dtype == torch.float64:
                lines = [
                    f"{one.filename}:{one.lineno}" for one in traceback.extract_stack() if "/torch/" not in one.filename
                ]
                self.found.append(f"{func} from {' < '.join(lines[-2:-5:-1])}")
        return made


class OnStandIn(Device):
    """A GPU whose tensors are on the stand-in."""

    @property
    def torch_name(self) -> str:
        return STAND_IN.type


DEVICE = OnStandIn("mps", "stand-in", 8.0, uuid="mps")


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    monkeypatch.setattr(noise_schedules, "WITHOUT_FLOAT64", {STAND_IN.type})
    monkeypatch.setattr(Accelerator, "device", property(lambda self: STAND_IN))
    # PyTorch has fused optimizers for MPS, and none for the stand-in's name.
    fused = sys.modules[torch.optim.Adam.__module__]
    monkeypatch.setattr(fused, "_device_dtype_check_for_fused", lambda parameter: None)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 0)
    return StandIn()


@pytest.fixture
def toy(name: str, tmp_path: Path) -> str:
    family, variant = TOYS[name]
    return str(family.toy(tmp_path / "toy", variant).source)


def encode(workspace: Workspace, run: Run, toy: str) -> None:
    """Encode the run's clips and captions on the CPU, with real values."""
    work = encoding_work(run.settings, load_data(workspace, run.settings))
    encoder = encoder_of(workspace, run.settings, Path(toy), "cpu", "fp32")
    encoder.encode_captions(work.captions, lambda *_: None)
    encoder.encode_clips(work.pieces, lambda *_: None)


def trained_a_step(workspace: Workspace, toy: str, stand_in: StandIn, measure: bool = True) -> Session:
    """Train a run for one step on the stand-in, and measure it; return the closed session."""
    run = driving.create(workspace, toy, precision="fp32", evaluate_every=1)
    encode(workspace, run, toy)
    driving.AcceleratorState._reset_state(reset_partial_state=True)
    with stand_in:
        session = Session(Job(run.folder), run.settings, DEVICE)
        train_step(session)
        if measure:
            session.evaluate()
    session.close()
    return session


@pytest.mark.parametrize("name", TRAINED)
def test_a_step_puts_no_float64_on_the_device(
    workspace: Workspace, dataset: Dataset, toy: str, stand_in: StandIn, name: str
) -> None:
    session = trained_a_step(workspace, toy, stand_in, measure=name in MEASURED)
    assert {parameter.device for parameter in session.bare_transformer.parameters()} == {STAND_IN}
    assert stand_in.operations > 100
    assert not stand_in.found, "\n".join(dict.fromkeys(stand_in.found))


@pytest.mark.parametrize("name", WITH_KNOWN_FRAMES)
def test_a_step_with_known_frames_picks_nothing_by_a_mask_on_the_device(
    workspace: Workspace, dataset: Dataset, toy: str, stand_in: StandIn, name: str
) -> None:
    session = trained_a_step(workspace, toy, stand_in)
    assert stand_in.operations > 100
    assert not stand_in.masks
    probes = [*session.prior_drift._own, *session.prior_drift._others]
    assert {tensor.device for probe in probes for tensor in probe.text.values()} == {torch.device("cpu")}


@pytest.mark.parametrize("name", SAMPLED)
def test_a_sample_puts_no_float64_on_the_device(
    workspace: Workspace, tmp_path: Path, toy: str, stand_in: StandIn, name: str
) -> None:
    picture = tmp_path / "first.png"
    Image.new("RGB", (32, 32), "red").save(picture)
    image = str(picture) if find_model(toy)[1].task == "image-to-video" else ""
    with stand_in:
        Sampler(toy, DEVICE).generate(workspace, SampleSettings(model=toy, prompt="a square", steps=2, image=image))
    assert stand_in.operations > 100
    assert not stand_in.found, "\n".join(dict.fromkeys(stand_in.found))

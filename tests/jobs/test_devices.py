"""Which device a job takes. Apple and AMD GPUs are simulated at torch's own queries, since none is available."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from tests.shell import Shell
from workbench import choices, jobs
from workbench.errors import ConfigError, DeviceBusy, ExitCode
from workbench.jobs import devices, gpu_lock, processes, torch_devices
from workbench.jobs.devices import GIGABYTE, Device, gpus, load, pick_device, pick_devices
from workbench.jobs.queue import REQUESTS, Lease
from workbench.runs.settings import TrainSettings
from workbench.sampler import queue as sampler_queue
from workbench.sampler.samples import new_id
from workbench.sampler.settings import SampleSettings
from workbench.sampler.worker import Worker
from workbench.settings import specs
from workbench.workspace import Workspace, write_json

CACHED = torch_devices.found, torch_devices.build


@pytest.fixture(autouse=True)
def asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(devices.AUTO, raising=False)
    for cached in CACHED:
        cached.cache_clear()
    yield
    for cached in CACHED:
        cached.cache_clear()


@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch on a Mac with an M2 Max and 64 GB, of which this process has 3 GB on the GPU."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "get_name", lambda: "Apple M2 Max")
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 48 * GIGABYTE)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: 3 * GIGABYTE)


@pytest.fixture
def amd(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's build for ROCm on a machine with two AMD GPUs."""
    monkeypatch.setattr(torch_devices, "build", lambda: "hip")
    monkeypatch.setattr(torch.version, "hip", "7.1.0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    about = [
        SimpleNamespace(name="AMD Instinct MI300X", total_memory=192 * GIGABYTE, uuid=f"0000-{index}")
        for index in range(2)
    ]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: about[index])
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (180 * GIGABYTE, 192 * GIGABYTE))


@pytest.mark.usefixtures("apple")
@pytest.mark.parametrize("choice", ["auto", "mps"])
def test_apple_gpu_is_one_device(choice: str) -> None:
    device = pick_device(choice)
    assert device == Device("mps", "Apple M2 Max", 48.0, uuid="mps")
    assert device.torch_name == "mps"
    assert device.is_gpu
    assert device.alone == {}
    assert pick_devices(choice, 0) == [device]
    with pytest.raises(ConfigError, match=r"gpus is 2, but 1 can be used here: set gpus to 1"):
        pick_devices(choice, 2)


def test_mps_without_apple_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"device is mps, but torch finds no Apple GPU here.*: choose auto or cpu"):
        pick_device("mps")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert pick_device("auto").kind == "cpu"


@pytest.mark.usefixtures("apple")
def test_two_jobs_do_not_share_apple_gpu(workspace: Workspace) -> None:
    uuid = pick_device("auto").uuid
    with gpu_lock.hold(workspace.locks, uuid, "run one"):
        assert gpu_lock.holder(workspace.locks, uuid) == "run one"
        assert gpu_lock.holder(workspace.locks) == "run one"
        assert gpu_lock.holder(workspace.locks, "") is None


@pytest.mark.usefixtures("amd")
def test_amd_gpus_are_cuda_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = gpus()
    assert (first.kind, first.rocm, first.torch_name) == ("cuda", "7.1.0", "cuda:0")
    assert (second.torch_name, second.uuid) == ("cuda:1", "amd-0000-1")
    assert pick_device("cuda") == pick_device("auto") == first
    assert load(second) == devices.Load(None, 12.0, 192.0)
    assert second.alone == {"HIP_VISIBLE_DEVICES": "1"}
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "4,6")
    assert second.alone == {"HIP_VISIBLE_DEVICES": "6"}


def test_a_variable_says_what_auto_takes(monkeypatch: pytest.MonkeyPatch, apple: None) -> None:
    monkeypatch.setenv(devices.AUTO, "cpu")
    assert pick_device("auto").kind == "cpu"
    assert pick_device("mps").kind == "mps"
    monkeypatch.setenv(devices.AUTO, "cuda")
    with pytest.raises(ConfigError, match="WORKBENCH_DEVICE is cuda, but no NVIDIA GPU"):
        pick_device("auto")
    monkeypatch.setenv(devices.AUTO, "tpu")
    with pytest.raises(ConfigError, match=r"WORKBENCH_DEVICE is 'tpu', must be one of auto, cuda, mps, cpu: unset it"):
        pick_device("auto")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> list[Device]:
    """A machine with two NVIDIA GPUs, wherever its GPUs are listed."""
    cards = [Device("cuda", "NVIDIA H100", 80.0, index, f"GPU-{index}") for index in range(2)]
    for module in (devices, choices):
        monkeypatch.setattr(module, "gpus", lambda: cards)
    return cards


def test_a_gpu_is_chosen_by_its_number(two: list[Device], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [pick_device(choice) for choice in ("cuda:0", "cuda:1")] == two
    assert pick_devices("cuda:1", 1) == devices.gpus_of("cuda:1") == [two[1]]
    assert pick_devices("cuda", 0) == devices.gpus_of("auto") == two
    for count in (0, 2):
        with pytest.raises(ConfigError, match=rf"device is cuda:1, a single GPU, but gpus is {count}: set gpus to 1"):
            pick_devices("cuda:1", count)
    with pytest.raises(ConfigError, match=r"device is cuda:2, but this machine has cuda:0, cuda:1: choose one of them"):
        pick_device("cuda:2")
    monkeypatch.setenv(devices.AUTO, "cuda:1")
    assert pick_device("auto") == two[1]


def test_a_numbered_gpu_is_a_setting_that_is_kept(
    two: list[Device], tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    for made in (TrainSettings().changed(device="cuda:1"), SampleSettings().changed(device="cuda:1")):
        made.save(tmp_path / "config.json")
        assert type(made).load(tmp_path / "config.json") == made
        assert made.device == "cuda:1"
        (spec,) = (spec for spec in specs(type(made)) if spec.name == "device")
        offered = [choice.value for choice in choices.choices_of(spec, None)]
        assert offered == ["auto", "cuda", "mps", "cpu", "cuda:0", "cuda:1"]
    assert not recwarn.list
    for wrong in ("cuda:", "cuda:-1", "cuda:01", "cpu:0", "gpu"):
        with pytest.raises(ConfigError, match=rf'device is "{wrong}", must be auto, cuda, mps or cpu'):
            TrainSettings().changed(device=wrong)


def test_only_the_numbered_gpu_has_to_be_free(two: list[Device], workspace: Workspace) -> None:
    on = {choice: SampleSettings(model="toy").changed(device=choice) for choice in ("cuda:0", "cuda:1")}
    with gpu_lock.hold(workspace.locks, "GPU-1", "run one"):
        sampler_queue._check_devices(workspace, [on["cuda:0"]])
        with pytest.raises(DeviceBusy, match="the GPU is held by run one"):
            sampler_queue._check_devices(workspace, [*on.values()])


def test_a_request_waits_for_its_own_gpu_alone(two: list[Device], workspace: Workspace) -> None:
    requests = sampler_queue.requests_of(workspace)
    for choice in ("cuda:1", "cuda:0"):
        made = SampleSettings().changed(device=choice)
        write_json(requests.folder / REQUESTS / f"{new_id()}.json", {"settings": made.model_dump(mode="json")})
    (own := workspace.samples / ".job").mkdir(parents=True)
    with jobs.Job(own) as job, Lease(workspace, sampler_queue.HOLDER) as lease:
        serving = Worker(workspace, job, lease)
        with gpu_lock.hold(workspace.locks, "GPU-1", "run one"):
            taken = sampler_queue.take(requests, serving._gpu_is_taken)
            assert taken.settings.device == "cuda:0"
            assert sampler_queue.take(requests, serving._gpu_is_taken) is None
        taken = sampler_queue.take(requests, serving._gpu_is_taken)
        assert taken.settings.device == "cuda:1"


@pytest.mark.parametrize("command", [("fit",), ("sample", "a ring")])
def test_a_command_names_the_gpu_that_is_not_there(command: tuple[str, ...], shell: Shell) -> None:
    said = shell(*command, "--device", "cuda:1")
    assert said.code == ExitCode.BAD_CONFIG
    assert "device is cuda:1, but no NVIDIA GPU is usable here" in said.err


@pytest.mark.parametrize("value", ["xpu", "XPU", "xpu:0"])
def test_xpu_is_refused_by_name(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=rf"device is {value}, but Intel GPUs \(XPU\) are not supported: choose auto"):
        TrainSettings().changed(device=value)
    monkeypatch.setenv(devices.AUTO, "xpu")
    with pytest.raises(ConfigError, match=r"WORKBENCH_DEVICE is xpu, but Intel GPUs"):
        pick_device("auto")


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("hip: Optional[str] = '7.1.25424'", "hip"),
        ("xpu: Optional[str] = '20250301'", "xpu"),
        ("hip: Optional[str] = None", ""),
        ("cuda: Optional[str] = '13.0'", ""),
    ],
)
def test_what_torch_was_built_for_is_read_without_it(
    line: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "version.py").write_text(f"__version__ = '2.13.0'\n{line}\ngit_version = 'abc'\n", encoding="utf-8")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    assert torch_devices.build() == kind


def test_torch_that_cannot_be_loaded_has_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch")
    monkeypatch.setattr(processes, "command", lambda module: [sys.executable, "-c", "raise ImportError"])
    assert torch_devices.found() == ()
    monkeypatch.setattr(processes, "command", lambda module: [sys.executable, "-c", 'print(\'[{"kind": "mps"}]\')'])
    torch_devices.found.cache_clear()
    assert torch_devices.found() == ({"kind": "mps"},)


# ---- what doctor says

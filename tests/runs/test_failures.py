"""Why a run failed: real messages of real failures, mapped to their cause and next step."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import ExitCode, explain
from workbench.jobs import State, Status
from workbench.runs.failures import BEGIN, Failure, failure_of, memory_facts
from workbench.runs.settings import TrainSettings

GPU_1 = (  # torch 1.x
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 10.76 GiB total capacity; 9.40 GiB already allocated; "
    "6.44 MiB free; 9.75 GiB reserved in total by PyTorch)"
)
GPU_2 = (  # torch 2.1 and later
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.69 GiB of which 1.51 GiB is "
    "free. Process 1234 has 20.10 GiB memory in use. Of the allocated memory 1.20 GiB is allocated by PyTorch, and "
    "200.00 MiB is reserved by PyTorch but unallocated."
)
BROKEN_MODEL = """Traceback (most recent call last):
  File "/opt/workbench/families/other.py", line 71, in load
    tensors = load_file(path)
safetensors_rust.SafetensorError: Error while deserializing header: header too large
"""
MESSAGES = [
    (ExitCode.OUT_OF_MEMORY, f"Out of memory: {GPU_1}", "GPU memory"),
    (ExitCode.OUT_OF_MEMORY, f"Out of memory: {GPU_2}", "GPU memory"),
    (ExitCode.OUT_OF_MEMORY, "Out of memory: CUDA error: out of memory", "GPU memory"),
    (ExitCode.OUT_OF_MEMORY, "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "GPU memory"),
    (
        ExitCode.OUT_OF_MEMORY,
        "Out of memory: [enforce fail at alloc_cpu.cpp:119] data. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 4294967296 bytes. Error code 12 (Cannot allocate memory)",
        "host memory",
    ),
    (None, "The system ended the process because memory ran out.", "host memory"),
    (None, "The process was killed: by a person, or by the system when memory ran out.", "killed"),
    (ExitCode.OUT_OF_MEMORY, "Out of memory: Lower frames, size, batch size or rank.", "out of memory"),
    (ExitCode.CANNOT_WRITE, "cannot write /w/x: the disk is full: free some space", "disk full"),
    (ExitCode.CANNOT_WRITE, "cannot write /w/x: a checkpoint needs 300 MB, but the disk has 12 MB left", "disk full"),
    (ExitCode.CANNOT_WRITE, "cannot write /w/x: the disk is read-only: choose another workspace", "read-only disk"),
    (ExitCode.CANNOT_WRITE, "cannot write /w/x: Input/output error: check the disk", "disk"),
    (ExitCode.MODEL_UNAVAILABLE, "a/b asks for consent: accept its terms on the Hub, then log in", "gated model"),
    (
        ExitCode.MODEL_UNAVAILABLE,
        "a/b cannot be downloaded (HTTPSConnectionPool: Max retries exceeded with url): check the network",
        "no network",
    ),
    (ExitCode.MODEL_UNAVAILABLE, "model is x, but /m has no model_index.json: restore the folder", "model"),
    (ExitCode.BAD_CONFIG, "optimizer is prodigy, which needs a package: pip install prodigyopt", "missing package"),
    (ExitCode.BUG, "ModuleNotFoundError: No module named 'sentencepiece'", "missing package"),
    (ExitCode.BUG, "RuntimeError: mat1 and mat2 shapes cannot be multiplied (226x4096 and 2048x3072)", "shapes"),
    (
        ExitCode.BUG,
        "RuntimeError: The size of tensor a (64) must match the size of tensor b (32) at non-singleton dimension 3",
        "shapes",
    ),
    (ExitCode.BUG, "RuntimeError: \"addmm_impl_cpu_\" not implemented for 'Half'", "number format"),
    (
        ExitCode.BUG,
        "ValueError: bf16 mixed precision requires PyTorch >= 1.10 and a supported device.",
        "number format",
    ),
    (
        ExitCode.BUG,
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
        "old GPU",
    ),
    (ExitCode.BUG, "RuntimeError: CUDA error: an illegal memory access was encountered", "GPU failed"),
    (ExitCode.NON_FINITE_LOSS, "the loss of step 3 is not a number", "not a number"),
    (ExitCode.STALLED, "nothing happened for 15 min", "hang"),
    (ExitCode.RESUME_REFUSED, "this run cannot resume: rank was 2, is 4", "resume refused"),
    (ExitCode.RESUME_REFUSED, "cats has no whole checkpoint to resume from", "no whole checkpoint"),
    (ExitCode.DEVICE_BUSY, "the GPU is held by run cats", "GPU taken"),
    (ExitCode.BAD_CONFIG, "frames is 10: use 9 or 17", "setting"),
    (ExitCode.BAD_DATA, "held_out is 9, dataset has 3 usable clips", "clips"),
    (ExitCode.BUG, "KeyError: 'x'", "bug"),
    (None, "The process ended without a message", "died"),
]


def shown(
    code: ExitCode | None, message: str, log: str = "", saved: tuple[int, ...] = (10, 20), **settings: object
) -> Failure:
    state = State.DIED if code is None else State.FAILED
    chosen = TrainSettings().changed(**settings)
    found = failure_of(Status(Path("nowhere"), state, message=message, exit_code=code), log, saved, chosen)
    assert found is not None
    return found


@pytest.mark.parametrize(("code", "message", "rule"), MESSAGES, ids=lambda value: str(value)[:40])
def test_every_message_finds_its_cause(code: ExitCode | None, message: str, rule: str) -> None:
    """And it can always be started again: what was wrong may have been repaired meanwhile."""
    found = shown(code, message)
    assert found.rule == rule
    assert found.advice
    assert found.saved == ("" if rule == "no whole checkpoint" else "The last checkpoint is from step 20.")
    for actions in (found.actions, shown(code, message, saved=()).actions):
        assert {"go on", "from start"} & {action.kind for action in actions}
        assert len({action.label for action in actions}) == len(actions)
        assert len([action for action in actions if not action.hint]) <= 3  # buttons on the page


def test_what_the_message_hides_the_traceback_says() -> None:
    message = "SafetensorError: Error while deserializing header: header too large"
    assert shown(ExitCode.BUG, message, BROKEN_MODEL).rule == "damaged file"


def test_the_log_of_an_earlier_start_is_no_evidence() -> None:
    log = f"{BROKEN_MODEL}{BEGIN}today\nresuming from the checkpoint of step 20\n"
    assert shown(None, "The process ended without a message", log).rule == "died"


def test_the_next_step_depends_on_settings_and_checkpoints() -> None:
    message = f"Out of memory: {GPU_2}"
    first = shown(ExitCode.OUT_OF_MEMORY, message).actions[0]
    assert (first.kind, first.settings) == ("fork", {"gradient_checkpointing": "full"})
    assert first.label == "Fork from step 20 with gradient checkpointing full"
    tight = shown(ExitCode.OUT_OF_MEMORY, message, gradient_checkpointing="full", batch_size=4).actions[0]
    assert tight.settings == {"batch_size": 2, "gradient_accumulation": 2}
    nothing_saved = shown(ExitCode.OUT_OF_MEMORY, message, saved=())
    assert nothing_saved.actions[0].kind == "new run"
    assert nothing_saved.saved == "No checkpoint was written yet."
    broken = "the loss of step 3 is not a number"
    assert shown(ExitCode.NON_FINITE_LOSS, broken, learning_rate=1e-3).actions[0].settings == {"learning_rate": 5e-4}
    assert shown(ExitCode.NON_FINITE_LOSS, broken, precision="fp16").actions[0].settings == {"precision": "bf16"}
    refused = shown(ExitCode.RESUME_REFUSED, "rank was 2").actions
    assert [action.kind for action in refused] == ["fork", "new run", "go on"]
    unsaved = shown(ExitCode.RESUME_REFUSED, "rank was 2", saved=()).actions
    assert [action.kind for action in unsaved] == ["new run", "from start"]


def test_a_gpu_s_message_says_what_was_requested_what_was_free_and_who_holds_the_rest() -> None:
    assert memory_facts(GPU_1) == "20.00 MiB were requested, 6.44 MiB of 10.76 GiB were free."
    assert memory_facts(GPU_2) == (
        "2.00 GiB were requested, 1.51 GiB of 23.69 GiB were free, another program (process 1234) holds 20.10 GiB."
    )


def test_a_run_that_goes_on_or_ended_well_has_no_failure() -> None:
    for state in (State.RUNNING, State.STOPPED, State.FINISHED, State.NEW):
        assert failure_of(Status(Path("nowhere"), state), "", ()) is None


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be ..."), ExitCode.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), ExitCode.OUT_OF_MEMORY),
        (OSError(28, "No space left on device"), ExitCode.CANNOT_WRITE),
        (RuntimeError("Error while serializing: IoError(Os { code: 28, kind: StorageFull })"), ExitCode.CANNOT_WRITE),
        (FileNotFoundError(2, "No such file"), ExitCode.BUG),
    ],
)
def test_errors_of_the_packages_below_get_the_code_of_their_kind(error: Exception, code: ExitCode) -> None:
    found, sentence = explain(error)
    assert found is code
    assert "\n" not in sentence

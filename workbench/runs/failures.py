"""How runs fail: the OOM fallback, the table of known failures, and what to do next. No torch.

    runs/NAME/oom_fallback.json     {time, step, before, after, why}: the changed settings, before and after

A rule matches an exit code and the run's message or last traceback; the first match wins. To add a rule, add it to
RULES, and a real message of that failure to tests/runs/test_failures.py.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from workbench.errors import ExitCode, WorkbenchError
from workbench.families import known_model
from workbench.jobs import State, Status, log_tail
from workbench.runs.checkpoints import NOTHING_WHOLE
from workbench.runs.run import Action, ActionKind, Run, as_flags
from workbench.runs.settings import TrainSettings
from workbench.settings import specs
from workbench.workspace import write_json
from workbench.workspace.records import read_record

# ---- the OOM fallback: once per run, continue with cheaper settings that do not change what it learns
#
# config.json keeps the user's settings; a restarted run uses the cheaper ones. Runs with several processes end instead,
# because their ranks could not agree on a step. `trainer.loop` frees the run's memory.

FALLBACK = "oom_fallback.json"
RECOMPUTING = ("none", "keep attention", "full", "offloaded")  # fastest first


class FallbackRecord(BaseModel):
    """The content of oom_fallback.json."""

    time: float
    step: int
    before: dict[str, Any]
    after: dict[str, Any]
    why: str


def fallback_record(run: Path) -> dict[str, Any]:
    """Read what the fallback changed; {} if the run never ran out of memory."""
    return dict(read_record(run / FALLBACK, FallbackRecord) or {})


def settings_in_use(run: Path, settings: TrainSettings) -> TrainSettings:
    """Return the settings a run trains with: its own, or the cheaper ones after it ran out of memory."""
    found = fallback_record(run)
    # If the user has since changed one of them, the user's settings win.
    if found and all(getattr(settings, name) == value for name, value in found["before"].items()):
        return settings.changed(**found["after"])
    return settings


def fall_back(run: Path, settings: TrainSettings, at: int, why: str) -> str:
    """Record that the run continues with cheaper settings after step `at`. Raises CannotWrite.

    Returns:
        A sentence for the log; "" if there are no cheaper settings, or the fallback is off or used up.
    """
    if not settings.oom_fallback or fallback_record(run) or (others := cheaper(settings)) is None:
        return ""
    record = {
        "time": time.time(),
        "step": at,
        "before": others.difference(settings),
        "after": settings.difference(others),
        "why": why.strip().split("\n")[0][:300],
    }
    write_json(run / FALLBACK, record)
    return fallback_sentence(record)


def fallback_sentence(record: dict[str, Any]) -> str:
    """Put a fallback record into words; "" for an empty one."""
    if not record:
        return ""
    titles = {spec.name: spec.title.lower() for spec in specs(TrainSettings)}
    changes = ", ".join(
        f"{titles.get(name, name)} {record['before'].get(name)} → {value}" for name, value in record["after"].items()
    )
    return (
        f"Memory ran out after step {record['step']}. The run continued with settings that need less and learn the "
        f"same: {changes}."
    )


def cheaper(settings: TrainSettings) -> TrainSettings | None:
    """Find the next cheaper settings with the same result (bit for bit on a CPU); None if there are none.

    Gradient checkpointing goes up first. Then blocks are swapped, first half of them, then all.
    """
    level = RECOMPUTING.index(settings.gradient_checkpointing)
    if level + 1 < len(RECOMPUTING):
        return settings.changed(gradient_checkpointing=RECOMPUTING[level + 1])
    if settings.method == "full":
        return None
    try:
        blocks = settings.resolved.facts.all_blocks
    except WorkbenchError:
        return None
    more = next((count for count in (blocks // 2, blocks) if count > settings.blocks_to_swap), None)
    return None if more is None else settings.changed(blocks_to_swap=more)


# ---- the table of failures

STACKS = "stacks.txt"  # every thread's stack when the stall timeout ended a run
Change = Callable[[TrainSettings], dict[str, Any]]


@dataclass(frozen=True)
class FailureRule:
    """Matches a run whose exit code is in `codes` (0: died without one) and whose messages match `pattern`.

    kinds: the actions to offer.
    change: finds settings that would help, which are offered first.
    """

    name: str
    cause: str
    advice: str
    codes: tuple[int, ...]
    pattern: str = ""
    kinds: tuple[ActionKind, ...] = ("go on",)
    change: Change | None = None


def lighter(settings: TrainSettings) -> dict[str, Any]:
    """Find the next change of settings that saves memory and learns the same; {} if there is none."""
    if settings.gradient_checkpointing in ("none", "keep attention"):
        return {"gradient_checkpointing": "full"}
    if half := settings.batch_size // 2:
        batches = settings.gradient_accumulation * settings.batch_size // half
        return {"batch_size": half, "gradient_accumulation": batches}
    if settings.precision == "fp32":
        return {"precision": "auto"}
    less = cheaper(settings)
    return settings.difference(less) if less else {}


DEAD = 0  # in place of a missing exit code
UNKNOWN = (DEAD, ExitCode.BUG)
MEMORY, DISK, HUB = ExitCode.OUT_OF_MEMORY, ExitCode.CANNOT_WRITE, ExitCode.MODEL_UNAVAILABLE
RULES = (
    FailureRule(
        "hang",
        "The run stalled",
        f"Resume from the checkpoint. If it stalls again, {STACKS} in the run's folder shows where.",
        (ExitCode.STALLED,),
    ),
    FailureRule(
        "hang in native code",
        "The run stalled",
        f"A library call did not return; {STACKS} in the run's folder shows which. Resume from the checkpoint.",
        (DEAD,),
        r"^Timeout \(\d",
    ),
    FailureRule(
        "no whole checkpoint",
        "No checkpoint to resume from",
        "Nothing was changed. Restore an intact checkpoint, or start over at step 0, which discards the curves so far.",
        (ExitCode.RESUME_REFUSED,),
        NOTHING_WHOLE,
        kinds=("from start", "new run"),
    ),
    FailureRule(
        "resume refused",
        "The run cannot resume as it was",
        "Undo what has changed, or fork: a new run continues from the checkpoint with things as they are now.",
        (ExitCode.RESUME_REFUSED,),
        kinds=("fork", "new run"),
    ),
    FailureRule(
        "GPU memory",
        "The GPU ran out of memory",
        "Gradient checkpointing saves memory and only costs time. Fewer frames or a smaller size, batch or rank also "
        "help. Close other programs that use the GPU.",
        (MEMORY, *UNKNOWN),
        r"(CUDA|HIP|MPS backend) out of memory|CUDA error: out of memory|cuda runtime error \(2\)"
        r"|cudaErrorMemoryAllocation|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|Error out of memory at line",
        change=lighter,
    ),
    FailureRule(
        "host memory",
        "The machine ran out of memory",
        "Close other programs, or use fewer loader threads or a smaller batch or size; a container may have its own "
        "memory limit. Then resume from the checkpoint.",
        (MEMORY, *UNKNOWN),
        r"DefaultCPUAllocator: |Cannot allocate memory|std::bad_alloc|MemoryError|oom-kill event|because memory ran out"
        r"|Unable to allocate .* for an array|cannot allocate",
        kinds=("go on", "new run"),
    ),
    FailureRule(
        "out of memory",
        "Out of memory",
        "Use fewer frames or a smaller size, batch or rank.",
        (MEMORY,),
        change=lighter,
    ),
    FailureRule(
        "not a number",
        "The loss diverged",
        "Fork the last good checkpoint with a lower learning rate, or with bf16 instead of fp16, which keeps the "
        "numbers in range.",
        (ExitCode.NON_FINITE_LOSS,),
        change=lambda one: (
            {"precision": "bf16"} if one.precision == "fp16" else {"learning_rate": one.learning_rate / 2}
        ),
    ),
    FailureRule(
        "read-only disk",
        "The disk cannot be written",
        "Make the workspace writable or move it to another disk, then resume.",
        (DISK, *UNKNOWN),
        r"disk is read-only|[Rr]ead-only file system|permission is missing|PermissionError",
    ),
    FailureRule(
        "disk full",
        "The disk is full",
        "Free some space, then resume. Everything up to the checkpoint is safe.",
        (DISK, *UNKNOWN),
        r"No space left on device|disk is full|[Qq]uota (is used up|exceeded)|the disk has .* left|\(os error 28\)"
        r"|code: 28\b|bus error",
        kinds=("free space", "go on"),
    ),
    FailureRule(
        "disk",
        "The disk reported an error",
        "Fix what the message names, then resume. The checkpoint is safe.",
        (DISK,),
        kinds=("go on", "free space"),
    ),
    FailureRule(
        "gated model",
        "The model is gated",
        "Accept its terms on its huggingface.co page, log in on this machine (hf auth login in a terminal), then "
        "resume.",
        (HUB, *UNKNOWN),
        r"asks for consent|gated repo|GatedRepoError|Access to model .* is restricted|awaiting a review from the repo"
        r"|401 Client Error|403 (Client Error|Forbidden)",
        kinds=("log in", "go on"),
    ),
    FailureRule(
        "no network",
        "The Hub cannot be reached",
        "Check the connection, then resume. What was downloaded so far is kept.",
        (HUB, *UNKNOWN),
        r"cannot be downloaded|name resolution|Max retries exceeded|ConnectionError|ConnectTimeout|ReadTimeout"
        r"|Network is unreachable|LocalEntryNotFoundError|couldn't connect to|OfflineModeIsEnabled",
    ),
    FailureRule(
        "model",
        "The model could not be loaded",
        "Do what the message says, then resume.",
        (HUB,),
    ),
    FailureRule(
        "GPU taken", "The GPU is in use", "Wait for the other job or stop it, then resume.", (ExitCode.DEVICE_BUSY,)
    ),
    FailureRule(
        "damaged file",
        "A weights file is damaged",
        "A download or copy was cut short. Remove the model from the Hub's cache (hf cache rm) or copy the file again, "
        "then resume.",
        (HUB, *UNKNOWN),
        r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|PytorchStreamReader failed|holds no .safetensors",
    ),
    FailureRule(
        "missing package",
        "A package is missing",
        "Install what the message names (pip install NAME), then resume.",
        (ExitCode.BAD_CONFIG, HUB, *UNKNOWN),
        r"ModuleNotFoundError|No module named|ImportError|pip install",
    ),
    FailureRule(
        "old GPU",
        "The GPU cannot run this build of torch",
        "Install a torch build made for this GPU (python scripts/install.py), then resume.",
        UNKNOWN,
        r"no kernel image is available|is not compatible with the current PyTorch installation"
        r"|driver version is insufficient|driver on your system is too old",
    ),
    FailureRule(
        "number format",
        "The GPU does not support this number format",
        "Use another precision: bf16 needs an NVIDIA GPU from 2020 (Ampere) or later; fp16 also runs on older ones.",
        UNKNOWN,
        r"not implemented for '(Half|BFloat16)'|[Bb][Ff](loat)?16.{0,40}(not supported|requires)"
        r"|requires \.target sm_80|doesn't support bf16",
        change=lambda one: {"precision": "fp32" if one.precision == "fp16" else "fp16"},
    ),
    FailureRule(
        "GPU failed",
        "The GPU failed",
        "Resume from the checkpoint. If it happens again, restart the machine and check its log (dmesg).",
        UNKNOWN,
        r"illegal memory access|unspecified launch failure|device-side assert|ECC error|GPU is lost|off the bus"
        r"|CUDA error",
    ),
    FailureRule(
        "shapes",
        "Sizes do not match",
        "The weights belong to another model or size than the settings say. Check model, frames, height, width and "
        "start_from, then start a new run.",
        (ExitCode.BAD_CONFIG, *UNKNOWN),
        r"mat1 and mat2 shapes|size of tensor a .* must match|size mismatch for|Sizes of tensors must match"
        r"|shape '.*' is invalid for input|doesn't match the broadcast shape|Given groups=.*expected input",
        kinds=("new run",),
    ),
    FailureRule(
        "setting",
        "A setting is invalid",
        "Correct it and start again.",
        (ExitCode.BAD_CONFIG,),
        kinds=("new run",),
    ),
    FailureRule(
        "clips",
        "The clips cannot be used",
        "Check and fix the dataset, then resume.",
        (ExitCode.BAD_DATA,),
        kinds=("dataset", "go on"),
    ),
    FailureRule(
        "killed",
        "The process was killed",
        "Unless someone killed it, memory ran out: close other programs, or use a smaller batch or size. Then resume "
        "from the checkpoint.",
        UNKNOWN,
        r"^(Process \d+ of \d+: )?The process was killed",
        kinds=("go on", "new run"),
    ),
    FailureRule("died", "The process is gone", "Resume from the checkpoint.", (DEAD,)),
)
BUG = FailureRule("bug", "An error in the workbench", "Resume. If it happens again, the log shows where.", ())


# ---- why a run failed, and what to do next

TAIL_LINES = 12
LAST_LINES = 5  # of the newest start, searched if it has no traceback
LOG_LINES = 200  # searched for the cause
BEGIN = "---- this start begins at "  # separates the starts of a run in its log


@dataclass(frozen=True)
class Failure:
    """Why a run failed, what is saved, what helps, and the last lines of the log."""

    rule: str
    cause: str
    message: str
    facts: str
    advice: str
    saved: str
    tail: str
    actions: tuple[Action, ...]

    @property
    def sentences(self) -> list[str]:
        """The sentences to show below the cause, in order."""
        hints = [action.hint for action in self.actions]
        return [text for text in (self.message, self.facts, f"{self.saved} {self.advice}".strip(), *hints) if text]


def failure_of(status: Status, log: str, saved: Sequence[int], settings: TrainSettings | None = None) -> Failure | None:
    """Explain why a run failed or died; None for any other run.

    Args:
        log: The last LOG_LINES of its log.
        saved: Steps of its checkpoints, oldest first.
        settings: None if they cannot be read.
    """
    if status.state not in (State.FAILED, State.DIED):
        return None
    own = log.rpartition(BEGIN)[2]
    _, found, traceback = own.rpartition("Traceback (most recent call last)")
    end = traceback if found else "\n".join(own.splitlines()[-LAST_LINES:])
    said = f"{status.message}\n{end}"
    rule = _rule(status, said)
    checkpoint = saved[-1] if saved else None
    settings = settings and settings_in_use(status.folder, settings)
    return Failure(
        rule=rule.name,
        cause=rule.cause,
        message=status.message,
        facts=memory_facts(said) if "memory" in rule.name else "",
        advice=rule.advice,
        saved="" if rule.pattern == NOTHING_WHOLE else last_checkpoint(saved),  # the message names the damaged ones
        tail="\n".join(log.splitlines()[-TAIL_LINES:]),
        actions=_actions(rule, status.name, checkpoint, settings),
    )


def read_failure(status: Status) -> Failure | None:
    """Explain why a run failed or died, from its log and checkpoints; None for any other run, of which none is read."""
    if status.state not in (State.FAILED, State.DIED):
        return None
    return failure_of(status, log_tail(status.folder, LOG_LINES), Run(status.folder).checkpoints)


def last_checkpoint(saved: Sequence[int]) -> str:
    """Say where a run can resume."""
    return f"The last checkpoint is from step {saved[-1]}." if saved else "No checkpoint was written yet."


def memory_facts(text: str) -> str:
    """Summarize a GPU's out-of-memory message: how much was requested, how much was free, what holds the rest."""
    size = r"([\d.]+ [KMGT]?i?B)"
    requested = re.search(rf"Tried to allocate {size}", text)
    if not requested:
        return ""
    words = [f"{requested[1]} were requested"]
    total = re.search(rf"total capacity of {size}", text) or re.search(rf"{size} total capacity", text)
    free = re.search(rf"of which {size} is free", text) or re.search(rf"{size} free", text)
    if free and total:
        words.append(f"{free[1]} of {total[1]} were free")
    others = re.findall(rf"Process (\d+) has {size} memory in use", text)
    words += [f"another program (process {pid}) holds {held}" for pid, held in dict.fromkeys(others)]
    return ", ".join(words) + "."


def _rule(status: Status, said: str) -> FailureRule:
    """Find the first rule that matches; `said` is the run's message and the end of its log."""
    code = DEAD if status.state is State.DIED else status.exit_code
    stacks = status.folder / STACKS
    if code == DEAD and stacks.exists():
        with stacks.open(errors="replace") as file:
            said += f"\n{file.readline()}"
    return next((rule for rule in RULES if code in rule.codes and re.search(rule.pattern, said, re.MULTILINE)), BUG)


def _actions(rule: FailureRule, run: str, checkpoint: int | None, settings: TrainSettings | None) -> tuple[Action, ...]:
    """List the rule's actions, most helpful first, without those that need a checkpoint if there is none.

    There is always one that starts the run again: the user may have fixed the cause.
    """
    found = []
    if rule.change is not None and settings is not None and (changed := rule.change(settings)):
        titles = {spec.name: spec.title.lower() for spec in specs(TrainSettings)}
        words = ", ".join(f"{titles[name]} {value}" for name, value in changed.items())
        if checkpoint:
            command = f"workbench train --fork {run}@{checkpoint}{as_flags(changed)}"
            found.append(Action("fork", f"Fork from step {checkpoint} with {words}", command, changed, checkpoint))
        command = f"workbench train --clone {run}{as_flags(changed)}"
        found.append(Action("new run", f"Copy settings to the form with {words}", command, changed))
    known_as = known_model(settings.model) if settings else None
    source = known_as.model.source if known_as else settings.model if settings else ""
    start = f"workbench runs start {run}"
    known = {
        "from start": Action("from start", "Start over at step 0", f"{start} --from-start"),
        "new run": Action("new run", "Copy settings to the form", f"workbench train --clone {run}"),
        # What the user has to do elsewhere.
        "log in": Action(
            "log in",
            "How to log in",
            "hf auth login",
            hint=f"Terms and access: https://huggingface.co/{source}. To log in, run hf auth login in a terminal on "
            "the machine that trains; never enter a token in the page or a notebook.",
        ),
        "free space": Action(
            "free space",
            "What to delete",
            f"workbench runs prune {run} --keep 1",
            hint="Checkpoints that can be deleted are listed under Checkpoints. The workspace's cache folder holds "
            "only files that can be made again.",
        ),
        "dataset": Action(
            "dataset",
            "Open the dataset",
            f"workbench dataset show {(settings and settings.dataset) or 'NAME'}",
            hint="The dataset check in the Dataset tab says what is wrong with which clip.",
        ),
    }
    known["go on"] = known["from start"]
    if checkpoint:
        known["go on"] = Action("go on", f"Resume from step {checkpoint}", start)
        command = f"workbench train --fork {run}@{checkpoint}"
        known["fork"] = Action("fork", f"Fork from step {checkpoint}", command, step=checkpoint)
    starts = {"go on"} if checkpoint else {"go on", "from start"}
    again = () if starts & {*rule.kinds} else ("go on",)
    return (*found, *(known[kind] for kind in (*rule.kinds, *again) if kind in known))

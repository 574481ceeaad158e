"""Why a run ended as it did, and what to do next: the card of a failed run, from a table of rules that grows.

A rule fits by exit code and by what the run's own sentence or its last traceback says; the first that fits is taken. To
add one, add it to RULES and its real message to tests/runs/test_failures.py. No torch. Not covered: how a card is
drawn (ui, notebook, cli), what happens when its button is pressed there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from workbench.errors import ExitCode
from workbench.jobs import State, Status
from workbench.runs import oom_fallback
from workbench.runs.recovery import NOTHING_WHOLE
from workbench.runs.settings import TrainSettings

STACKS = "stacks.txt"  # what every thread was doing when a run was ended by its stall timeout
TAIL_LINES = 12
LAST_LINES = 5
BEGIN = "---- this start begins at "  # a line of the log, by which one start is told from the next
Kind = Literal[
    "go on",  # start the run again
    "from start",  # begin at step 0 again, where no checkpoint is whole
    "fork",  # go on from `Failure.checkpoint` in a new run, with `Action.settings` changed
    "new run",  # put the run's settings into the form, with `Action.settings` changed
    "log in",  # say how one logs in to the Hub: in a terminal, never on a page
    "free space",  # show which checkpoints and caches can go
    "dataset",  # open the dataset
]


@dataclass(frozen=True)
class Action:
    """What a card's button does. `settings`: what it changes in the run's settings."""

    kind: Kind
    label: str
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """What a person reads and presses when a run has failed."""

    rule: str
    cause: str
    sentence: str
    facts: str
    advice: str
    saved: str
    checkpoint: int | None
    tail: str
    actions: tuple[Action, ...]


Change = Callable[[TrainSettings], dict[str, Any]]


@dataclass(frozen=True)
class FailureRule:
    """Fits a run whose exit code is one of `codes` (0: died without one) and that said something like `says`.

    cause, advice: what the card says; kinds: its buttons; change: what would help in the settings, a button before them
    """

    name: str
    cause: str
    advice: str
    codes: tuple[int, ...]
    says: str = ""
    kinds: tuple[Kind, ...] = ("go on",)
    change: Change | None = None


def lighter(settings: TrainSettings) -> dict[str, Any]:
    """The next change that needs less memory and leaves what is learned as it is; {} when none is left."""
    if settings.gradient_checkpointing in ("none", "keep attention"):
        return {"gradient_checkpointing": "full"}
    if settings.batch_size > 1:
        half = settings.batch_size // 2
        return {
            "batch_size": half,
            "gradient_accumulation": settings.gradient_accumulation * settings.batch_size // half,
        }
    if settings.precision == "fp32":
        return {"precision": "auto"}
    if (cheaper := oom_fallback.cheaper(settings)) is None:
        return {}
    now = settings.model_dump(mode="json")
    return {name: value for name, value in cheaper.model_dump(mode="json").items() if now[name] != value}


def calmer(settings: TrainSettings) -> dict[str, Any]:
    """What to change after a loss that was no number."""
    if settings.precision == "fp16":
        return {"precision": "bf16"}
    return {"learning_rate": settings.learning_rate / 2}


def other_format(settings: TrainSettings) -> dict[str, Any]:
    """What most cards can do that cannot do this one."""
    return {"precision": "fp32" if settings.precision == "fp16" else "fp16"}


DEAD = 0  # in place of the exit code of a run that left none
UNKNOWN = (DEAD, ExitCode.BUG)
MEMORY, DISK, HUB = ExitCode.OUT_OF_MEMORY, ExitCode.CANNOT_WRITE, ExitCode.MODEL_UNAVAILABLE
RULES = (
    FailureRule(
        "hang", "The run stood still",
        f"Go on from the checkpoint; if it stops at the same place again, {STACKS} in the run's folder says where.",
        (ExitCode.HUNG,),
    ),
    FailureRule(
        "hang in native code", "The run stood still",
        f"A library did not give control back; {STACKS} in the run's folder says which. Go on from the checkpoint.",
        (DEAD,), r"^Timeout \(\d",
    ),
    FailureRule(
        "no whole checkpoint", "There is no checkpoint to go on from",
        "Nothing was changed: put a whole checkpoint back, or begin again at step 0, which forgets the curve so far.",
        (ExitCode.RESUME_REFUSED,), NOTHING_WHOLE, kinds=("from start", "new run"),
    ),
    FailureRule(
        "resume refused", "The run cannot go on as it was",
        "Put back what has changed, or fork: a new run goes on from the checkpoint as things are now.",
        (ExitCode.RESUME_REFUSED,), kinds=("fork", "new run"),
    ),
    FailureRule(
        "GPU memory", "The GPU ran out of memory",
        "Gradient checkpointing only costs time; fewer frames, a smaller size, batch or rank need less, too. Close "
        "other programs on the GPU.",
        (MEMORY, *UNKNOWN),
        r"(CUDA|HIP) out of memory|CUDA error: out of memory|cuda runtime error \(2\)|cudaErrorMemoryAllocation"
        r"|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|Error out of memory at line",
        change=lighter,
    ),
    FailureRule(
        "host memory", "The machine ran out of memory",
        "Close other programs, or use fewer loader threads, a smaller batch or size; a container may have a limit of "
        "its own. Then go on from the checkpoint.",
        (MEMORY, *UNKNOWN),
        r"DefaultCPUAllocator: |Cannot allocate memory|std::bad_alloc|MemoryError|oom-kill event|because memory ran out"
        r"|Unable to allocate .* for an array|cannot allocate",
        kinds=("go on", "new run"),
    ),
    FailureRule(
        "out of memory", "Out of memory", "Fewer frames, a smaller size, batch or rank need less.", (MEMORY,),
        change=lighter,
    ),
    FailureRule(
        "not a number", "The loss broke",
        "A lower learning rate, or bf16 instead of fp16, keeps the numbers in range. Go on from the last good "
        "checkpoint with that.",
        (ExitCode.NON_FINITE_LOSS,), change=calmer,
    ),
    FailureRule(
        "read-only disk", "The disk cannot be written",
        "Make the workspace writable, or move it to another disk, then go on.",
        (DISK, *UNKNOWN), r"disk is read-only|[Rr]ead-only file system|permission is missing|PermissionError",
    ),
    FailureRule(
        "disk full", "The disk is full", "Free some space, then go on: everything up to the checkpoint is safe.",
        (DISK, *UNKNOWN),
        r"No space left on device|disk is full|[Qq]uota (is used up|exceeded)|the disk has .* MB left|\(os error 28\)"
        r"|code: 28\b|bus error",
        kinds=("free space", "go on"),
    ),
    FailureRule(
        "disk", "The disk refused", "Look at what the sentence names, then go on: the checkpoint is safe.", (DISK,),
        kinds=("go on", "free space"),
    ),
    FailureRule(
        "gated model", "The model asks for consent",
        "Accept its terms on its page on huggingface.co, log in on this machine (hf auth login in a terminal), then "
        "go on.",
        (HUB, *UNKNOWN),
        r"asks for consent|gated repo|GatedRepoError|Access to model .* is restricted|awaiting a review from the repo"
        r"|401 Client Error|403 (Client Error|Forbidden)",
        kinds=("log in", "go on"),
    ),
    FailureRule(
        "no network", "The Hub cannot be reached",
        "Check the connection, then go on; what was fetched so far is kept.",
        (HUB, *UNKNOWN),
        r"cannot be downloaded|name resolution|Max retries exceeded|ConnectionError|ConnectTimeout|ReadTimeout"
        r"|Network is unreachable|LocalEntryNotFoundError|couldn't connect to|OfflineModeIsEnabled",
    ),
    FailureRule(
        "model", "The model could not be loaded", "Do what the sentence says, then go on.", (HUB,),
    ),
    FailureRule(
        "GPU taken", "The GPU is taken", "Wait for the other job or stop it, then go on.", (ExitCode.DEVICE_BUSY,)
    ),
    FailureRule(
        "damaged file", "A file of weights is damaged",
        "A download or a copy was cut short: remove that model from the Hub's cache (hf cache rm) or copy the file "
        "again, then go on.",
        (HUB, *UNKNOWN),
        r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|PytorchStreamReader failed|holds no .safetensors",
    ),
    FailureRule(
        "missing package", "A package is missing", "Install what the sentence names (pip install NAME), then go on.",
        (ExitCode.BAD_CONFIG, HUB, *UNKNOWN), r"ModuleNotFoundError|No module named|ImportError|pip install",
    ),
    FailureRule(
        "old card", "The card cannot run this build of torch",
        "Install a torch made for this card (python scripts/install.py), then go on.",
        UNKNOWN,
        r"no kernel image is available|is not compatible with the current PyTorch installation"
        r"|driver version is insufficient|driver on your system is too old",
    ),
    FailureRule(
        "number format", "The card lacks this number format",
        "Use another precision: bf16 needs an NVIDIA card of 2020 (Ampere) or later, fp16 runs on older ones.",
        UNKNOWN,
        r"not implemented for '(Half|BFloat16)'|[Bb][Ff](loat)?16.{0,40}(not supported|requires)"
        r"|requires \.target sm_80|doesn't support bf16",
        change=other_format,
    ),
    FailureRule(
        "GPU failed", "The GPU failed",
        "Go on from the checkpoint; if it happens again, restart the machine and look at its log (dmesg).",
        UNKNOWN,
        r"illegal memory access|unspecified launch failure|device-side assert|ECC error|GPU is lost|off the bus"
        r"|CUDA error",
    ),
    FailureRule(
        "shapes", "Sizes do not fit together",
        "The weights are of another model or size than the settings say: compare model, frames, height, width and "
        "start_from, and begin a new run.",
        (ExitCode.BAD_CONFIG, *UNKNOWN),
        r"mat1 and mat2 shapes|size of tensor a .* must match|size mismatch for|Sizes of tensors must match"
        r"|shape '.*' is invalid for input|doesn't match the broadcast shape|Given groups=.*expected input",
        kinds=("new run",),
    ),
    FailureRule(
        "setting", "A setting does not fit", "Put it right in the form and start.", (ExitCode.BAD_CONFIG,),
        kinds=("new run",),
    ),
    FailureRule(
        "clips", "The clips do not fit", "Look at the dataset, fix it, then go on.", (ExitCode.BAD_DATA,),
        kinds=("dataset", "go on"),
    ),
    FailureRule(
        "killed", "The process was killed",
        "If nobody did it, memory ran out: close other programs, or use a smaller batch or size. Go on from the "
        "checkpoint.",
        UNKNOWN, r"^(Process \d+ of \d+: )?The process was killed", kinds=("go on", "new run"),
    ),
    FailureRule("died", "The process is gone", "Go on from the checkpoint.", (DEAD,)),
)  # fmt: skip
BUG = FailureRule("bug", "An error inside the workbench", "Go on; if it happens again, the log says where.", ())
LABELS: dict[Kind, str] = {
    "new run": "Copy settings to the form",
    "log in": "How to log in",
    "free space": "What can go",
    "dataset": "Open the dataset",
}


def card(status: Status, log: str, saved: Sequence[int], settings: TrainSettings | None = None) -> Failure | None:
    """The card of a run that failed or died; None of any other.

    log: its last lines; saved: steps of its checkpoints, oldest first; settings: None where they cannot be read.
    """
    if status.state not in (State.FAILED, State.DIED):
        return None
    rule = _rule(status, log)
    checkpoint = saved[-1] if saved else None
    settings = settings and oom_fallback.in_use(status.folder, settings)
    return Failure(
        rule=rule.name,
        cause=rule.cause,
        sentence=status.message,
        facts=memory_facts(f"{status.message}\n{_last_words(log)}") if "memory" in rule.name else "",
        advice=rule.advice,
        saved=_saved(rule, checkpoint),
        checkpoint=checkpoint,
        tail="\n".join(log.splitlines()[-TAIL_LINES:]),
        actions=_actions(rule, checkpoint, settings),
    )


def _saved(rule: FailureRule, checkpoint: int | None) -> str:
    if rule.says == NOTHING_WHOLE:
        return ""  # its sentence says what is damaged
    return f"The last checkpoint is of step {checkpoint}." if checkpoint else "No checkpoint was written yet."


def memory_facts(text: str) -> str:
    """What a GPU's message says of memory, as one sentence: what was asked, what was free, who holds the rest."""
    size = r"([\d.]+ [KMGT]?i?B)"
    asked = re.search(rf"Tried to allocate {size}", text)
    if not asked:
        return ""
    words = [f"{asked[1]} were asked for"]
    total = re.search(rf"total capacity of {size}", text) or re.search(rf"{size} total capacity", text)
    free = re.search(rf"of which {size} is free", text) or re.search(rf"{size} free", text)
    if free and total:
        words.append(f"{free[1]} of {total[1]} were free")
    others = re.findall(rf"Process (\d+) has {size} memory in use", text)
    words += [f"process {pid} of another program holds {held}" for pid, held in dict.fromkeys(others)]
    return ", ".join(words) + "."


def _rule(status: Status, log: str) -> FailureRule:
    code = DEAD if status.state is State.DIED else status.exit_code
    said = f"{status.message}\n{_last_words(log)}"
    stacks = status.folder / STACKS
    if code == DEAD and stacks.exists():
        with stacks.open(errors="replace") as file:
            said += f"\n{file.readline()}"
    return next(
        (rule for rule in RULES if code in rule.codes and re.search(rule.says, said, re.MULTILINE)),
        BUG,
    )


def _last_words(log: str) -> str:
    """The last traceback of this start, or its last few lines where there is none; earlier starts say nothing of it."""
    own = log.rpartition(BEGIN)[2]
    _, found, traceback = own.rpartition("Traceback (most recent call last)")
    return traceback if found else "\n".join(own.splitlines()[-LAST_LINES:])


def _actions(rule: FailureRule, checkpoint: int | None, settings: TrainSettings | None) -> tuple[Action, ...]:
    """The rule's buttons, the one that helps most first; what needs a checkpoint is left out where there is none."""
    found = []
    if rule.change is not None and settings is not None and (changed := rule.change(settings)):
        words = ", ".join(f"{name} {value}" for name, value in changed.items())
        if checkpoint:
            found.append(Action("fork", f"Go on from step {checkpoint} with {words}", changed))
        found.append(Action("new run", f"Copy settings to the form with {words}", changed))
    for kind in rule.kinds:
        if kind == "from start" or (kind == "go on" and not checkpoint):
            found.append(Action("from start", "Begin again at step 0"))
        elif kind == "go on":
            found.append(Action(kind, f"Go on from step {checkpoint}"))
        elif kind != "fork":
            found.append(Action(kind, LABELS[kind]))
        elif checkpoint:
            found.append(Action(kind, f"Fork from step {checkpoint}"))
    return tuple(found)

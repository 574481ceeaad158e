"""The table of failures: by which exit code and messages each is recognized, its cause, and what helps.

The first rule that fits is taken. To add one, add it to RULES and its real message to tests/runs/test_failures.py. Not
covered: matching a run against the rules (failures).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workbench.errors import ExitCode
from workbench.runs import oom_fallback
from workbench.runs.checkpoints import NOTHING_WHOLE
from workbench.runs.run import ActionKind
from workbench.runs.settings import TrainSettings

STACKS = "stacks.txt"  # what every thread was doing when a run was ended by its stall timeout
Change = Callable[[TrainSettings], dict[str, Any]]


@dataclass(frozen=True)
class FailureRule:
    """Fits a run whose exit code is one of `codes` (0: died without one) and whose messages match `pattern`.

    kinds: the actions to offer;  change: settings that would help, an action before the others
    """

    name: str
    cause: str
    advice: str
    codes: tuple[int, ...]
    pattern: str = ""
    kinds: tuple[ActionKind, ...] = ("go on",)
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
    cheaper = oom_fallback.cheaper(settings)
    return settings.difference(cheaper) if cheaper else {}


def calmer(settings: TrainSettings) -> dict[str, Any]:
    """What to change after a loss that was no number."""
    if settings.precision == "fp16":
        return {"precision": "bf16"}
    return {"learning_rate": settings.learning_rate / 2}


def other_format(settings: TrainSettings) -> dict[str, Any]:
    """A precision that GPUs without this one have."""
    return {"precision": "fp32" if settings.precision == "fp16" else "fp16"}


DEAD = 0  # in place of the exit code of a run that left none
UNKNOWN = (DEAD, ExitCode.BUG)
MEMORY, DISK, HUB = ExitCode.OUT_OF_MEMORY, ExitCode.CANNOT_WRITE, ExitCode.MODEL_UNAVAILABLE
RULES = (
    FailureRule(
        "hang",
        "The run stood still",
        f"Go on from the checkpoint; if it stops at the same place again, {STACKS} in the run's folder says where.",
        (ExitCode.STALLED,),
    ),
    FailureRule(
        "hang in native code",
        "The run stood still",
        f"A library did not give control back; {STACKS} in the run's folder says which. Go on from the checkpoint.",
        (DEAD,),
        r"^Timeout \(\d",
    ),
    FailureRule(
        "no whole checkpoint",
        "There is no checkpoint to go on from",
        "Nothing was changed: put a whole checkpoint back, or begin again at step 0, which forgets the curve so far.",
        (ExitCode.RESUME_REFUSED,),
        NOTHING_WHOLE,
        kinds=("from start", "new run"),
    ),
    FailureRule(
        "resume refused",
        "The run cannot go on as it was",
        "Put back what has changed, or fork: a new run goes on from the checkpoint as things are now.",
        (ExitCode.RESUME_REFUSED,),
        kinds=("fork", "new run"),
    ),
    FailureRule(
        "GPU memory",
        "The GPU ran out of memory",
        "Gradient checkpointing only costs time; fewer frames, a smaller size, batch or rank need less, too. Close "
        "other programs on the GPU.",
        (MEMORY, *UNKNOWN),
        r"(CUDA|HIP|MPS backend) out of memory|CUDA error: out of memory|cuda runtime error \(2\)"
        r"|cudaErrorMemoryAllocation|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|Error out of memory at line",
        change=lighter,
    ),
    FailureRule(
        "host memory",
        "The machine ran out of memory",
        "Close other programs, or use fewer loader threads, a smaller batch or size; a container may have a limit of "
        "its own. Then go on from the checkpoint.",
        (MEMORY, *UNKNOWN),
        r"DefaultCPUAllocator: |Cannot allocate memory|std::bad_alloc|MemoryError|oom-kill event|because memory ran out"
        r"|Unable to allocate .* for an array|cannot allocate",
        kinds=("go on", "new run"),
    ),
    FailureRule(
        "out of memory",
        "Out of memory",
        "Fewer frames, a smaller size, batch or rank need less.",
        (MEMORY,),
        change=lighter,
    ),
    FailureRule(
        "not a number",
        "The loss broke",
        "A lower learning rate, or bf16 instead of fp16, keeps the numbers in range. Go on from the last good "
        "checkpoint with that.",
        (ExitCode.NON_FINITE_LOSS,),
        change=calmer,
    ),
    FailureRule(
        "read-only disk",
        "The disk cannot be written",
        "Make the workspace writable, or move it to another disk, then go on.",
        (DISK, *UNKNOWN),
        r"disk is read-only|[Rr]ead-only file system|permission is missing|PermissionError",
    ),
    FailureRule(
        "disk full",
        "The disk is full",
        "Free some space, then go on: everything up to the checkpoint is safe.",
        (DISK, *UNKNOWN),
        r"No space left on device|disk is full|[Qq]uota (is used up|exceeded)|the disk has .* left|\(os error 28\)"
        r"|code: 28\b|bus error",
        kinds=("free space", "go on"),
    ),
    FailureRule(
        "disk",
        "The disk refused",
        "Look at what the sentence names, then go on: the checkpoint is safe.",
        (DISK,),
        kinds=("go on", "free space"),
    ),
    FailureRule(
        "gated model",
        "The model asks for consent",
        "Accept its terms on its page on huggingface.co, log in on this machine (hf auth login in a terminal), then "
        "go on.",
        (HUB, *UNKNOWN),
        r"asks for consent|gated repo|GatedRepoError|Access to model .* is restricted|awaiting a review from the repo"
        r"|401 Client Error|403 (Client Error|Forbidden)",
        kinds=("log in", "go on"),
    ),
    FailureRule(
        "no network",
        "The Hub cannot be reached",
        "Check the connection, then go on; what was fetched so far is kept.",
        (HUB, *UNKNOWN),
        r"cannot be downloaded|name resolution|Max retries exceeded|ConnectionError|ConnectTimeout|ReadTimeout"
        r"|Network is unreachable|LocalEntryNotFoundError|couldn't connect to|OfflineModeIsEnabled",
    ),
    FailureRule(
        "model",
        "The model could not be loaded",
        "Do what the sentence says, then go on.",
        (HUB,),
    ),
    FailureRule(
        "GPU taken", "The GPU is taken", "Wait for the other job or stop it, then go on.", (ExitCode.DEVICE_BUSY,)
    ),
    FailureRule(
        "damaged file",
        "A file of weights is damaged",
        "A download or a copy was cut short: remove that model from the Hub's cache (hf cache rm) or copy the file "
        "again, then go on.",
        (HUB, *UNKNOWN),
        r"SafetensorError|HeaderTooLarge|MetadataIncompleteBuffer|PytorchStreamReader failed|holds no .safetensors",
    ),
    FailureRule(
        "missing package",
        "A package is missing",
        "Install what the sentence names (pip install NAME), then go on.",
        (ExitCode.BAD_CONFIG, HUB, *UNKNOWN),
        r"ModuleNotFoundError|No module named|ImportError|pip install",
    ),
    FailureRule(
        "old GPU",
        "The GPU cannot run this build of torch",
        "Install a torch made for this GPU (python scripts/install.py), then go on.",
        UNKNOWN,
        r"no kernel image is available|is not compatible with the current PyTorch installation"
        r"|driver version is insufficient|driver on your system is too old",
    ),
    FailureRule(
        "number format",
        "The GPU lacks this number format",
        "Use another precision: bf16 needs an NVIDIA GPU of 2020 (Ampere) or later, fp16 runs on older ones.",
        UNKNOWN,
        r"not implemented for '(Half|BFloat16)'|[Bb][Ff](loat)?16.{0,40}(not supported|requires)"
        r"|requires \.target sm_80|doesn't support bf16",
        change=other_format,
    ),
    FailureRule(
        "GPU failed",
        "The GPU failed",
        "Go on from the checkpoint; if it happens again, restart the machine and look at its log (dmesg).",
        UNKNOWN,
        r"illegal memory access|unspecified launch failure|device-side assert|ECC error|GPU is lost|off the bus"
        r"|CUDA error",
    ),
    FailureRule(
        "shapes",
        "Sizes do not fit together",
        "The weights are of another model or size than the settings say: compare model, frames, height, width and "
        "start_from, and begin a new run.",
        (ExitCode.BAD_CONFIG, *UNKNOWN),
        r"mat1 and mat2 shapes|size of tensor a .* must match|size mismatch for|Sizes of tensors must match"
        r"|shape '.*' is invalid for input|doesn't match the broadcast shape|Given groups=.*expected input",
        kinds=("new run",),
    ),
    FailureRule(
        "setting",
        "A setting does not fit",
        "Correct it and start again.",
        (ExitCode.BAD_CONFIG,),
        kinds=("new run",),
    ),
    FailureRule(
        "clips",
        "The clips do not fit",
        "Check the dataset, fix it, then go on.",
        (ExitCode.BAD_DATA,),
        kinds=("dataset", "go on"),
    ),
    FailureRule(
        "killed",
        "The process was killed",
        "If nobody did it, memory ran out: close other programs, or use a smaller batch or size. Go on from the "
        "checkpoint.",
        UNKNOWN,
        r"^(Process \d+ of \d+: )?The process was killed",
        kinds=("go on", "new run"),
    ),
    FailureRule("died", "The process is gone", "Go on from the checkpoint.", (DEAD,)),
)
BUG = FailureRule("bug", "An error inside the workbench", "Go on; if it happens again, the log says where.", ())

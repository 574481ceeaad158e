"""What page and shell show of a LoRA and of an operation, as plain data. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from workbench import policy
from workbench.display.quantities import byte_size, duration, moment
from workbench.families import lora_names
from workbench.jobs import State, log_tail
from workbench.loras.library import LibraryLora, notes
from workbench.loras.removal import PlannedRemoval
from workbench.loras.tasks import TASKS, LoraTask

LOG_LINES = 8


def facts(lora: LibraryLora) -> list[tuple[str, str]]:
    """(label, value) of everything known of a LoRA, without what is empty."""
    known = [
        ("base model", lora.base_model or "unknown"),
        ("trigger word", lora.trigger),
        ("rank", strength(lora)),
        ("steps", "" if lora.steps is None else f"{lora.steps:,}"),
        ("size", byte_size(lora.bytes)),
        ("created", moment(lora.created)),
        ("previews", str(len(lora.previews)) if lora.previews else ""),
    ]
    return [(label, value) for label, value in known if value]


def sources(lora: LibraryLora) -> list[tuple[str, str, str]]:
    """(weight, name, start of the SHA-256) of what a LoRA was made of."""
    return [
        (f"{source.get('weight', 1):g}", str(source.get("name", "")), str(source.get("sha256", ""))[:16])
        for source in notes(lora).get("made_of", [])
    ]


def match(lora: LibraryLora) -> list[tuple[str, str]]:
    """(label, value) of how an imported LoRA matched its model; [] of others."""
    return lora_names.lines(notes(lora).get("match") or {})


def link(lora: LibraryLora) -> str:
    """Its address on the Hub; "" when it is not published."""
    found = str(lora.published.get("url", ""))
    return found if found.startswith(("https://", "http://")) else ""


def strength(lora: LibraryLora) -> str:
    """Rank, and alpha where it differs: "16", "16, alpha 8", "up to 7"."""
    alpha = "" if lora.alpha is None or lora.alpha == lora.rank or lora.mixed else f", alpha {lora.alpha:g}"
    return f"{'up to ' if lora.mixed else ''}{lora.rank}{alpha}{', DoRA' if lora.dora else ''}"


def total_size(planned: Iterable[PlannedRemoval]) -> str:
    return byte_size(sum(one.bytes for one in planned))


@dataclass(frozen=True)
class TaskView:
    """An operation at this moment. tone: "going", "good", "bad" or "plain"; share: None while it is unknown.

    downloads: the files that a conversion has written;  matches: (label, value) of how what was read matched
    """

    message: str
    tone: str
    share: float | None = None
    downloads: tuple[Path, ...] = ()
    log: str = ""
    matches: tuple[tuple[str, str], ...] = ()


def task_view(task: LoraTask) -> TaskView:
    """How far an operation is, or how it ended."""
    status, operation = task.status, TASKS[task.name][2] if task.name in TASKS else "the operation"
    if status.state.alive:
        left = f"about {duration(status.seconds_left)} left" if status.seconds_left is not None else ""
        count = f"layer {status.step} of {status.total}" if status.total else ""
        share = status.step / status.total if status.total else None
        return TaskView(" · ".join(filter(None, (status.phase or "starting", count, left))), "going", share)
    if status.state is State.FINISHED:
        downloads = tuple(map(policy.resolve, task.files))
        matches = tuple(line for report in task.reports for line in lora_names.lines(report))
        return TaskView(f"{task.message[:1].upper()}{task.message[1:]}.", "good", downloads=downloads, matches=matches)
    if status.state is State.STOPPED:
        return TaskView(f"{operation.capitalize()} was stopped; nothing was made.", "plain")
    log = "" if status.message else log_tail(task.folder, LOG_LINES)
    return TaskView(f"{operation.capitalize()} failed. {status.message}", "bad", log=log)

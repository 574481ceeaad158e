"""The head of the Dataset tab: the dataset in numbers, and what is still to do. Strings of HTML."""

from __future__ import annotations

from workbench.clips.frame_plan import FramePlan
from workbench.dataset_builder.dataset import Dataset
from workbench.jobs import State, Status, duration, log_tail
from workbench.ui.core import render


def empty() -> str:
    return render.note(
        "No dataset yet. Give one a title on the left, then drop video files: ten short clips of the same new thing "
        "are a good start.",
        "empty",
    )


def summary(dataset: Dataset, plans: list[FramePlan]) -> str:
    """The dataset in numbers, and what is still to do."""
    numbers, info = dataset.summary, dataset.info
    title = f'<div class="title"><h2>{render.escaped(info.title or dataset.name)}</h2></div>'
    if not numbers.clips:
        return f'<div class="run-head">{title}</div>' + render.note(
            "No clips yet. Drop video files on the left, or name a folder on this machine, and press Import.", "empty"
        )
    dropped = sum(plan.dropped is not None for plan in plans)
    pairs = [
        ("clips", f"{numbers.clips:,}"),
        ("length", duration(numbers.seconds) if numbers.seconds >= 60 else f"{numbers.seconds:.1f} s"),
        ("size", ", ".join(list(numbers.sizes)[:2]) + (" ..." if len(numbers.sizes) > 2 else "")),
        ("frame rate", ", ".join(f"{fps:g}" for fps in list(numbers.fps)[:3]) + " fps"),
        ("without caption", f"{numbers.missing_captions:,}"),
        ("left out by the model", f"{dropped:,}"),
    ]
    to_do = []
    if numbers.missing_captions:
        count = "1 clip has" if numbers.missing_captions == 1 else f"{numbers.missing_captions:,} clips have"
        to_do.append(f"{count} no caption: say what it shows below, or let a model write it.")
    if dropped:
        count = "1 clip is" if dropped == 1 else f"{dropped:,} clips are"
        to_do.append(f"{count} left out for the chosen model: What it sees says why.")
    return f'<div class="run-head">{title}{render.facts(pairs)}</div>{"".join(map(render.note, to_do))}'


def task(status: Status, noun: str, done: str) -> str:
    """A task of the dataset: progress while it works, one sentence afterwards, nothing before the first.

    noun: what it is ("import"); done: what a good end is worth saying
    """
    if status.state is State.NEW:
        return ""
    if status.state.alive:
        share = status.step / status.total if status.total else None
        left = f" · about {duration(status.seconds_left)} left" if status.seconds_left is not None else ""
        count = f"{status.phase} · {status.step:,} of {status.total:,}" if status.total else status.phase or "starting"
        message = f" · {status.message}" if status.message else ""
        return f'{render.bar(share)}<p class="doing">{render.escaped(count + left + message)}</p>'
    if status.state is State.FINISHED:
        return render.note(" ".join(filter(None, (done, status.message))), "good")
    if status.state is State.STOPPED:
        return render.note(f"The {noun} was stopped; what was done stays. {status.message}")
    tail = render.log_box(log_tail(status.folder, 8))
    said = render.note(f"The {noun} did not end well. {status.message}", "bad")
    return f"{said}<details><summary>Log</summary>{tail}</details>"

"""What a dataset looks like on the page: numbers, the import's progress, tables of verdicts and frame plans.

Strings of HTML only. Not covered: what can be clicked (dataset_tab).
"""

from __future__ import annotations

from pathlib import Path

from workbench import jobs
from workbench.clips import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.frame_plan import FramePlan, Shape
from workbench.jobs import State, Status
from workbench.ui import render

WORDS = {"taken": "taken", "mended": "mended", "known": "already here", "refused": "refused"}
KINDS = {"taken": "good", "mended": "idle", "known": "idle", "refused": "bad"}


def empty() -> str:
    return render.note(
        "No dataset yet. Give one a title on the left, then drop video files: ten short clips of the same new thing "
        "are a good start.",
        "empty",
    )


def summary(dataset: Dataset, plans: list[FramePlan]) -> str:
    """The dataset in numbers, and what is still to do."""
    numbers = dataset.summary
    info = dataset.info
    title = f'<div class="title"><h2>{render.escaped(info.title or dataset.name)}</h2></div>'
    if not numbers.clips:
        return f'<div class="run-head">{title}</div>' + render.note(
            "No clips yet. Drop video files on the left, or name a folder on this machine, and press Import.", "empty"
        )
    dropped = sum(plan.dropped is not None for plan in plans)
    pairs = [
        ("clips", str(numbers.clips)),
        ("length", f"{numbers.seconds:.1f} s"),
        ("size", ", ".join(list(numbers.sizes)[:2]) + (" ..." if len(numbers.sizes) > 2 else "")),
        ("frame rate", ", ".join(f"{fps:g}" for fps in list(numbers.fps)[:3]) + " fps"),
        ("without caption", str(numbers.missing_captions)),
        ("left out by the model", str(dropped)),
    ]
    to_do = []
    if numbers.missing_captions:
        to_do.append(f"{numbers.missing_captions} clips have no caption: click one and say what it shows.")
    if dropped:
        to_do.append(f"{dropped} clips are left out for the chosen model: the table below says why.")
    return f'<div class="run-head">{title}{render.facts(pairs)}</div>{"".join(map(render.note, to_do))}'


def importing(status: Status) -> str:
    """The import job: progress while it works, one sentence afterwards, nothing before the first."""
    if status.state is State.NEW:
        return ""
    if status.state.alive:
        share = status.step / status.total if status.total else None
        left = f" · about {render.duration(status.seconds_left)} left" if status.seconds_left is not None else ""
        count = f"{status.step} of {status.total} files" if status.total else "looking for files"
        message = f" · {status.message}" if status.message else ""
        return f'{render.bar(share)}<p class="doing">{render.escaped(count + left + message)}</p>'
    kind = {State.FINISHED: "good", State.STOPPED: "plain"}.get(status.state, "bad")
    words = {State.FINISHED: "The import is done.", State.STOPPED: "The import was stopped; what was taken stays."}
    said = " ".join(filter(None, [words.get(status.state, "The import did not end well."), status.message]))
    tail = "" if kind != "bad" else render.log_box("\n".join(jobs.log_tail(status.folder, 8).splitlines()))
    return render.note(said, kind) + (f"<details><summary>Log</summary>{tail}</details>" if tail else "")


def verdicts(dataset: Dataset) -> str:
    """Every source file and what became of it, the refused ones first."""
    found = sorted(dataset.verdicts, key=lambda verdict: verdict.usable)
    if not found:
        return render.note("Every file that you import is listed here: taken, mended or refused, and why.", "empty")
    rows = "".join(
        f"<tr><td>{render.escaped(Path(v.source).name)}</td><td>{render.badge(WORDS[v.outcome], KINDS[v.outcome])}</td>"
        f"<td>{render.escaped('; '.join(v.notes))}</td></tr>"
        for v in found
    )
    return (
        '<div class="scroll"><table class="plain"><thead><tr><th>file</th><th>verdict</th><th>how or why</th></tr>'
        f"</thead><tbody>{rows}</tbody></table></div>"
    )


def plans(found: list[FramePlan], shape: Shape) -> str:
    """What the model sees of every clip, in words."""
    if not found:
        return ""
    size = f"{shape.width}x{shape.height} pixels"
    intro = f"Of each clip the model sees {shape.frames} frames at {shape.fps:g} a second, {size}."
    rows = [(plan.clip.source or plan.clip.file_name, f"{plan.clip.seconds:.1f} s", plan.sentence) for plan in found]
    return f"<p>{render.escaped(intro)}</p>" + render.table(("clip", "length", "what the model sees"), rows)


def player(dataset: Dataset, clip: Clip) -> str:
    """The chosen clip, playing."""
    facts = f"{clip.frames} frames, {clip.fps:g} fps, {clip.seconds:.1f} s, {clip.width}x{clip.height}"
    return figure(dataset.path_of(clip), clip.width, f"{clip.source or clip.file_name}: {facts}")


def figure(path: Path, width: int, caption: str) -> str:
    """A playing video with a line below."""
    video = render.video(path, width, caption)
    return f'<figure class="player">{video}<figcaption>{render.escaped(caption)}</figcaption></figure>'

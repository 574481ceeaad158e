"""The tables of a run's report, each a piece of HTML: settings, data, checkpoints, history, use, machine.

Not covered: previews, curves and the page around them (report).
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.html import escaped, table
from workbench.jobs import State
from workbench.records import read_record
from workbench.runs.run import CARD, Run
from workbench.runs.sessions import RunSession
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot
from workbench.settings import specs, value_text

LOCK = "dataset.lock.json"


class LockedClip(BaseModel):
    """What the lock says of a clip."""

    role: Literal["train", "known", "held_out"]
    file_name: str
    caption: str
    indices: list[int]
    crop: Annotated[list[float], Field(min_length=4, max_length=4)]
    repeats: int = 1
    weight: float = 1.0


_LOCKED = TypeAdapter(list[LockedClip])
ROLES = {"train": "trained on", "known": "known, to be kept", "held_out": "held out, to measure with"}
CAPTIONS = 60  # clips listed, at most


def lora_words(settings: TrainSettings) -> str:
    """The method in words: "DoRA of rank 16"."""
    kind = "DoRA" if settings.dora else "LoRA"
    return f"{'rank-stabilised ' if settings.rslora else ''}{kind} of rank {settings.rank}"


def model_title(settings: TrainSettings) -> str:
    """The model's name for people; the setting itself when the model is not known here."""
    try:
        return find_model(settings.model)[1].title
    except ConfigError:
        return settings.model


# ---- settings


def settings(chosen: TrainSettings, parent: dict[str, Any]) -> str:
    """What was set, then what a fork changed, then the defaults, folded away."""
    values, defaults = chosen.model_dump(mode="json"), TrainSettings().model_dump(mode="json")
    known = specs(TrainSettings)
    changed = [spec for spec in known if values[spec.name] != defaults[spec.name] or spec.name == "model"]
    same = [spec for spec in known if spec not in changed]
    rows = [
        (spec.section, spec.title, value_text(values[spec.name], spec.unit), value_text(defaults[spec.name], spec.unit))
        for spec in changed
    ]
    rest = table(
        ("part", "setting", "value", "name"),
        [(spec.section, spec.title, value_text(values[spec.name], spec.unit), spec.name) for spec in same],
    )
    return (
        f'<div class="card">{table(("part", "setting", "value", "default"), rows)}</div>{_fork(parent)}'
        f"<details><summary>{len(same)} settings were left at their defaults</summary>{rest}</details>"
    )


def _fork(parent: dict[str, Any]) -> str:
    """What a fork does otherwise than the run it came from."""
    if not parent:
        return ""
    rows = [(name, *pair) for name, pair in parent.get("changed", {}).items()]
    lost = "".join(f"<li>{escaped(sentence)}</li>" for sentence in parent.get("dropped", ()))
    head = f"<h3>A fork of {escaped(parent['run'])} at step {escaped(parent['step'])}</h3>"
    return head + table(("setting", "there", "here"), rows) + (f"<ul>{lost}</ul>" if lost else "")


# ---- data


def data(folder: Path, sessions: Sequence[RunSession]) -> str:
    """How many clips in which role and shape, which ones, and why others were left out."""
    clips: list[dict[str, Any]] = read_record(folder / LOCK, _LOCKED) or []
    if not clips:
        return ""
    counts = Counter((clip["role"], _shape(clip)) for clip in clips)
    rows = [
        (ROLES.get(role, role), shape, count)
        for (role, shape), count in sorted(counts.items(), key=lambda pair: (list(ROLES).index(pair[0][0]), pair[0][1]))
    ]
    listed = [
        (ROLES.get(clip["role"], clip["role"]), clip["file_name"], _shape(clip), _repeats(clip), clip["caption"])
        for clip in clips[:CAPTIONS]
    ]
    more = f'<p class="faint">and {len(clips) - CAPTIONS} more</p>' if len(clips) > CAPTIONS else ""
    dropped = list(sessions[-1].dropped) if sessions else []
    left_out = "".join(f"<li>{escaped(sentence)}</li>" for sentence in dropped)
    return (
        f'<div class="card">{table(("role", "frames x height x width", "clips"), rows)}</div>'
        f"<details><summary>The {len(clips)} clips and their captions</summary>"
        f"{table(('role', 'file', 'shape', 'weight', 'caption'), listed)}{more}</details>"
        + (f"<h3>Left out</h3><ul>{left_out}</ul>" if dropped else "")
    )


def _shape(clip: dict[str, Any]) -> str:
    _, _, height, width = clip["crop"]
    return f"{len(clip['indices'])}x{height}x{width}"


def _repeats(clip: dict[str, Any]) -> str:
    repeats, weight = clip.get("repeats", 1), clip.get("weight", 1.0)
    return f"{repeats} times, weight {weight:g}" if (repeats, weight) != (1, 1.0) else ""


# ---- checkpoints and history


def checkpoints(seen: RunSnapshot) -> str:
    """The checkpoints on disk, and why each is kept."""
    rows = [
        (one.step, f"{one.held_out:.4f}" if one.held_out is not None else "", one.size, ", ".join(one.reasons))
        for one in seen.checkpoints
    ]
    made = table(("step", "held-out loss", "size", ""), rows)
    return f'<div class="card">{made}</div>' if made else ""


def history(seen: RunSnapshot, sessions: Sequence[RunSession]) -> str:
    """When it was started, from where, and how it ended."""
    rows, status, failure = [], seen.status, seen.failure
    for session in sessions:
        what = f"went on from the checkpoint of step {session.step}" if session.step else "started"
        rows.append((_moment(session.time), f"{what}; {session.note}" if session.note else what))
    if not sessions and status.started_at:
        rows.append((_moment(status.started_at), "started"))
    if status.ended_at or status.state is State.DIED:
        rows.append((_moment(status.ended_at), f"{status.state}" + (f": {status.message}" if status.message else "")))
    made = table(("when", "what"), rows)
    if failure:
        text = "".join(f"<p>{escaped(sentence)}</p>" for sentence in failure.sentences)
        made += f"<h3>{escaped(failure.cause)}</h3>{text}"
        made += f"<details><summary>The log's last lines</summary><pre>{escaped(failure.tail)}</pre></details>"
    return f'<div class="card">{made}</div>' if rows else ""


def _moment(seconds: float | None) -> str:
    return time.strftime("%d %b %Y, %H:%M", time.localtime(seconds)) if seconds else ""


# ---- use and machine


def use(run: Run) -> str:
    """The code of the model card; before the export, what to do instead."""
    path = run.folder / CARD
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    if not found:
        return (
            '<p class="faint">Nothing was exported yet: a run that finishes writes its LoRA and the code to use it.</p>'
        )
    where = f"<p>In the folder <code>{escaped(run.folder)}</code>:</p>"
    return f"{where}<pre>{escaped(found[1].strip())}</pre>"


def machine(sessions: Sequence[RunSession]) -> str:
    """Where it ran and with what; of the last start, and of earlier ones where they differ."""
    if not sessions:
        return ""
    last = sessions[-1]
    rows: list[tuple[str, str]] = [("device", last.device), ("precision", last.precision)]
    if last.trained:
        rows.append(("trained values", f"{last.trained:,}"))
    others = sorted({session.device for session in sessions if session.device != last.device})
    if others:
        rows.append(("before", ", ".join(others)))
    rows += sorted(last.versions.items())
    return f'<div class="card">{table(("", ""), rows)}</div>'

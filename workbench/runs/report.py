"""The report of a run: one self-contained document with everything about it, as a file or as a frame in a notebook.

It can be written at any time, opens anywhere and loads nothing. assets/elements/report.js renders it.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.clips import media
from workbench.display import elements, inline_html
from workbench.display.inline_html import EMBED_LIMIT, framed, heading, note
from workbench.display.quantities import moment
from workbench.families import known_model
from workbench.jobs import State
from workbench.runs.data import read_lock
from workbench.runs.metrics import RunSession, read_sessions
from workbench.runs.model_card import lora_words
from workbench.runs.previews import RunPreviews
from workbench.runs.run import CARD, Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import CHECKPOINT_HEADS, RunSnapshot, snapshot
from workbench.runs.view import answered, drawn, main_charts, more_charts, videos
from workbench.settings import specs, value_text
from workbench.workspace import finite, replacing

REPORT = "report.html"
ROLES = {"train": "trained on", "known": "regularization", "held_out": "held out, for measuring"}
CAPTIONS = 60  # most clips to list
COLUMNS = 7  # most preview steps side by side
EMBEDDED = 25_000_000  # most bytes of base64 for the videos of all steps
HEIGHT = 720  # of a frame, pixels
STILL_PROMPTS = 4  # prompts to show as still frames where scripts do not run
Table = dict[str, Any]


def write_report(run: Run) -> Path:
    """Write the run's report.html. Raises ConfigError if its settings cannot be read, CannotWrite."""
    settings, seen = run.settings, snapshot(run)
    sessions = read_sessions(run.folder)
    sections = {
        "Settings": _settings(settings, seen.parent),
        "Data": _data(run.folder, sessions),
        "Checkpoints": [_table(CHECKPOINT_HEADS, [one.row for one in seen.checkpoints])],
        "What happened": [_table(("when", "what"), _history(seen, sessions))],
        "How to use it": _use(run),
        "Machine and versions": [_table((), _machine(sessions))],
    }
    path = run.folder / REPORT
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(_document(seen, sections))
    return path


def run_html(run: Run) -> str:
    """Show a run in a notebook as it is now: a summary in words and pictures, and the rest in a frame.

    The frame needs scripts, which GitHub and other notebook viewers do not run.
    """
    seen = snapshot(run)
    said = [seen.failure.cause if seen.failure else "", *(one.text for one in filter(None, [seen.outcome]))]
    said += [seen.diagnosis.sentence] if seen.diagnosis else []
    words = " ".join(filter(None, (f"{seen.activity}.", *said)))
    sections = {"Checkpoints": [_table(CHECKPOINT_HEADS, [one.row for one in seen.checkpoints])]}
    head = heading(f"{seen.name}: {seen.headline}") + note(words) + _pictures(seen)
    return head + framed(_document(seen, sections), seen.name, HEIGHT)


def _pictures(seen: RunSnapshot) -> str:
    """Render the loss, and for the first prompts the base model's preview and the newest one."""
    loss = main_charts(seen.curves, None)[0]
    parts = [inline_html.curves(loss["title"], {one["name"]: one["points"] for one in loss["lines"]})]
    for pair in seen.previews.pairs[:STILL_PROMPTS]:
        shown = [(one, "base model" if not one.step else f"step {one.step:,}") for one in pair]
        stills = [inline_html.captioned(inline_html.frames(media.stills(one.video), name), name) for one, name in shown]
        parts.append(note(pair[0].prompt) + inline_html.row(stills))
    return "".join(parts)


def previews_html(run: Run) -> str:
    """Show a run's previews and curves in a notebook as they are now."""
    seen = snapshot(run)
    answers, files = _answers(seen)
    properties = {"now": _now(seen), "runs": []}
    shown = elements.exported(seen.name, "wb-run-overview", properties, files, answers)
    return heading(f"{seen.name}: previews and curves") + _pictures(seen) + framed(shown, seen.name, HEIGHT)


def _document(seen: RunSnapshot, sections: dict[str, list[Any]]) -> Iterator[str]:
    answers, files = _answers(seen)
    report = {
        "now": _now(seen),
        "head": _head(seen),
        "sections": [{"title": title, "parts": parts} for title, parts in sections.items()],
        "made": f"Video LoRA Workbench {__version__}, {time.strftime('%d %B %Y, %H:%M')}. This file is self-contained.",
    }
    return elements.exported(f"{seen.name}: report of a training run", "wb-report", {"report": report}, files, answers)


def _now(seen: RunSnapshot) -> dict[str, Any]:
    """Return the run's state as the overview expects it, without actions: nothing can be done from a report."""
    return {"name": seen.name, "headline": seen.headline, "step": seen.step, "actions": []}


def _answers(seen: RunSnapshot) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the answers to the overview's requests, and the videos it shows."""
    shown, files = _videos(seen)
    curves = seen.curves
    asked = [
        answered("progress/previews", shown, name=seen.name),
        answered("progress/curves", drawn(main_charts(curves, seen.best_step, seen.forecast)), name=seen.name),
        answered("progress/curves", drawn(more_charts(curves)), name=seen.name, more=True),
    ]
    return finite(dict(asked)), files


# ---- videos, embedded under their paths relative to the run's folder


def _videos(seen: RunSnapshot) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the previews of as many steps as fit, including the first and last, and their files.

    Controls are kept only for the base model and the newest step.
    """
    found, files = videos(seen), dict[str, Path]()

    def named(path: str | None) -> str | None:
        if path is None or not Path(path).is_file() or Path(path).stat().st_size > EMBED_LIMIT:
            return None
        name = Path(path).relative_to(seen.run.folder).as_posix()
        files[name] = Path(path)
        return name

    kept = fitting(seen.previews)
    controls = sorted({one.step for one in seen.previews.controls})
    ends = {*controls[:1], *controls[-1:]}
    columns = [(number, step) for number, step in enumerate(found["steps"]) if step in ends or step in kept]
    found["steps"] = [step for _, step in columns]
    for row in found["rows"]:
        of_step = ends if row["control"] else kept
        row["videos"] = [named(row["videos"][number]) if step in of_step else None for number, step in columns]
    for row in (found["scaled"] or {}).get("rows", ()):
        row["videos"] = [*map(named, row["videos"])]
    inputs = [{**one, **{part: named(one[part]) for part in ("clip", "reconstruction")}} for one in found["inputs"]]
    found["inputs"] = [one for one in inputs if one["clip"]]
    if left := len(seen.previews.steps) - len(kept):
        folder = seen.previews.previews[0].video.parent.parent
        found["note"] = f"{left} more steps have previews: {folder}. {found['note']}".strip()
    return found | {"live": [], "coming": []}, files


def fitting(found: RunPreviews) -> list[int]:
    """Choose the first and last steps, and as many evenly spaced ones between them as fit."""
    last = len(found.steps) - 1
    for count in range(min(COLUMNS, len(found.steps)), 0, -1):
        steps = [found.steps[round(number * last / max(count - 1, 1))] for number in range(count)]
        size = sum(one.video.stat().st_size for one in found.previews if one.step in steps)
        if size * 4 / 3 <= EMBEDDED:
            return steps
    return []


# ---- how it went


def _head(seen: RunSnapshot) -> dict[str, Any]:
    what, settings = "", seen.settings
    if settings is not None:
        known = known_model(settings.model)
        model = known.model.title if known else settings.model
        trained = "full fine-tuning of" if settings.method == "full" else f"{lora_words(settings)} on"
        what = f"{trained} {model}, dataset {', '.join([settings.dataset, *settings.more_datasets])}"
        if not settings.dataset:
            what = f"a slider, {trained} {model}"
    failure, diagnosis = seen.failure, seen.diagnosis
    notes = (*seen.notes, *filter(None, [seen.outcome]))
    return {
        "name": seen.name,
        "state": seen.headline,
        "tone": seen.tone,
        "doing": " · ".join(filter(None, (seen.activity, seen.time_left))),
        "what": what,
        "notes": [{"text": one.text, "tone": one.tone} for one in notes],
        "failure": {"cause": failure.cause, "sentences": failure.sentences, "log": failure.tail} if failure else None,
        "verdict": {"tone": diagnosis.tone, "claim": diagnosis.sentence, "evidence": diagnosis.advice}
        if diagnosis
        else None,
        "facts": [{"label": one.label, "text": one.text, "tone": one.tone} for one in seen.facts],
    }


# ---- parts of a section: tables, lists, text or code; each may have a title and be folded below it


def _table(heads: Sequence[str], rows: Sequence[Sequence[object]], title: str = "", folded: bool = False) -> Table:
    return {"title": title, "folded": folded, "heads": heads, "rows": [[*map(str, row)] for row in rows]}


def _settings(chosen: TrainSettings, parent: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the settings that were changed, then a fork's changes, then the defaults, folded."""
    values, defaults = chosen.model_dump(mode="json"), TrainSettings().model_dump(mode="json")
    known = specs(TrainSettings)
    changed = [spec for spec in known if values[spec.name] != defaults[spec.name] or spec.name == "model"]
    same = [spec for spec in known if spec not in changed]
    texts = {spec: value_text(values[spec.name], spec.unit) for spec in known}
    rows = [(spec.section, spec.title, texts[spec], value_text(defaults[spec.name], spec.unit)) for spec in changed]
    rest = [(spec.section, spec.title, texts[spec], spec.name) for spec in same]
    parts = [_table(("part", "setting", "value", "default"), rows)]
    if parent:
        rows_of_fork = [(name, *pair) for name, pair in parent.get("changed", {}).items()]
        title = f"Fork of {parent['run']} at step {parent['step']}"
        parts += [
            _table(("setting", "there", "here"), rows_of_fork, title),
            {"title": "", "list": [f"Not carried over: {text}" for text in parent.get("dropped", ())]},
        ]
    folded = f"{len(same)} settings were left at their defaults"
    return [*parts, _table(("part", "setting", "value", "name"), rest, folded, folded=True)]


def _data(folder: Path, sessions: Sequence[RunSession]) -> list[dict[str, Any]]:
    """Return clip counts by role and shape, the clips one by one, and why others were left out."""
    clips = read_lock(folder)
    if not clips:
        return []
    counts = Counter((clip["role"], _shape(clip)) for clip in clips)
    ordered = sorted(counts.items(), key=lambda pair: (list(ROLES).index(pair[0][0]), pair[0][1]))
    rows = [(ROLES[role], shape, count) for (role, shape), count in ordered]
    listed = [
        (ROLES[clip["role"]], clip["name"], _shape(clip), _weight(clip), clip["caption"]) for clip in clips[:CAPTIONS]
    ]
    if len(clips) > CAPTIONS:
        listed.append((f"and {len(clips) - CAPTIONS} more", "", "", "", ""))
    return [
        _table(("role", "frames x height x width", "clips"), rows),
        _table(
            ("role", "clip", "shape", "weight", "caption"),
            listed,
            f"The {len(clips)} clips and their captions",
            folded=True,
        ),
        {"title": "Left out", "list": sessions[-1].dropped if sessions else ()},
    ]


def _shape(clip: dict[str, Any]) -> str:
    _, _, height, width = clip["crop"]
    return f"{len(clip['indices'])}x{height}x{width}"


def _weight(clip: dict[str, Any]) -> str:
    repeats, weight = clip.get("repeats", 1), clip.get("weight", 1.0)
    return f"{repeats} times, weight {weight:g}" if (repeats, weight) != (1, 1.0) else ""


def _history(seen: RunSnapshot, sessions: Sequence[RunSession]) -> list[tuple[str, str]]:
    rows, status = [], seen.status
    for session in sessions:
        what = f"resumed from the checkpoint at step {session.step}" if session.step else "started"
        what = f"resumed after a pause at step {session.step}" if session.paused else what
        rows.append((moment(session.time), f"{what}; {session.note}" if session.note else what))
    if not sessions and status.started_at:
        rows.append((moment(status.started_at), "started"))
    if status.ended_at or status.state is State.DIED:
        ended = moment(status.ended_at) if status.ended_at else ""
        rows.append((ended, f"{status.state}" + (f": {status.message}" if status.message else "")))
    return rows


def _use(run: Run) -> list[dict[str, Any]]:
    """Return the code from the model card, or a hint before the export."""
    path = run.folder / CARD
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    if not found:
        hint = "Nothing has been exported yet. When the run finishes, it writes its LoRA and the code to use it."
        return [{"title": "", "text": hint}]
    return [{"title": "", "text": f"In the folder {run.folder}:"}, {"title": "", "code": found[1].strip()}]


def _machine(sessions: Sequence[RunSession]) -> list[tuple[str, str]]:
    """Return device, precision and versions of the last session, and any other devices of earlier ones."""
    if not sessions:
        return []
    last = sessions[-1]
    rows = [("device", last.device), ("precision", last.precision)]
    if last.trained:
        rows.append(("trained values", f"{last.trained:,}"))
    others = sorted({session.device for session in sessions if session.device != last.device})
    if others:
        rows.append(("before", ", ".join(others)))
    return [*rows, *sorted(last.versions.items())]

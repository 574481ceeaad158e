"""A run explained in one HTML file that needs nothing else: diagnosis, previews, curves, settings, data, history, use.

Made from the run's snapshot at any time; it loads nothing, and its one script is that of the charts. Not covered: what
is known of a run (runs.snapshot), how its parts look (runs.display).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench import __version__, charts
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.html import escaped, table
from workbench.inline_html import folded
from workbench.jobs import State
from workbench.paths import ASSETS
from workbench.quantities import moment
from workbench.runs.data import read_lock
from workbench.runs.display import (
    card,
    checkpoints,
    diagnosis_box,
    facts,
    failure_box,
    faint,
    head,
    loss_chart,
    more_charts,
    previews,
    sheet,
    training_inputs,
)
from workbench.runs.metrics import RunSession, read_sessions
from workbench.runs.model_card import lora_words
from workbench.runs.run import CARD, Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, snapshot
from workbench.settings import specs, value_text
from workbench.workspace import write_text

REPORT = "report.html"
ROLES = {"train": "trained on", "known": "known, to be kept", "held_out": "held out, to measure with"}
CAPTIONS = 60  # clips listed, at most
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; style-src 'unsafe-inline'; media-src data:; script-src 'sha256-{digest}'">
<title>{name}: report of a training run</title><style>
{css}
</style></head><body class="report"><main class="run-view">
{body}
<footer>Video LoRA Workbench {version}, {date}. This file holds all that it shows.</footer>
</main><script>{script}</script></body></html>
"""


def write_report(run: Run) -> Path:
    """Write the run's report.html as things stand. Raises ConfigError when its settings cannot be read, CannotWrite."""
    settings, seen = run.settings, snapshot(run)
    sessions = read_sessions(run.folder)
    inputs = card(training_inputs(seen.previews, seen.width))
    inputs = f"<h3>Training inputs</h3>{inputs}" if inputs else ""
    sections = [
        ("", _head(seen, settings)),
        ("Previews", card(previews(seen.previews, seen.width))),
        ("Curves", loss_chart(seen) + more_charts(seen) if seen.curves.version else ""),
        ("Settings", _settings(settings, seen.parent)),
        ("Data", _data(run.folder, sessions) + inputs),
        ("Checkpoints", card(checkpoints(seen.checkpoints))),
        ("What happened", _history(seen, sessions)),
        ("How to use it", _use(run)),
        ("Machine and versions", _machine(sessions)),
    ]
    body = "\n".join(
        f"<section>{f'<h2>{title}</h2>' if title else ''}{content}</section>" for title, content in sections if content
    )
    css = "\n".join([*((ASSETS / f"{name}.css").read_text(encoding="utf-8") for name in ("tokens", "charts")), sheet()])
    date = time.strftime("%d %B %Y, %H:%M")
    script = charts.script()
    # The only script that a browser runs in this file, whatever a caption or a log may hold.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = PAGE.format(
        name=escaped(run.name), css=css, body=body, version=__version__, date=date, script=script, digest=digest
    )
    write_text(run.folder / REPORT, page)
    return run.folder / REPORT


def _head(seen: RunSnapshot, settings: TrainSettings) -> str:
    datasets = ", ".join([settings.dataset, *settings.more_datasets])
    trained = "full fine-tuning of" if settings.method == "full" else f"{lora_words(settings)} on"
    model = settings.model
    with contextlib.suppress(ConfigError):  # a model that is not known here
        model = find_model(model)[1].title
    what = faint(f"{trained} {model}, dataset {datasets}")
    return head(seen, "h1") + what + failure_box(seen.failure) + diagnosis_box(seen.diagnosis) + facts(seen)


def _listed(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escaped(sentence)}</li>' for sentence in sentences)}</ul>" if sentences else ""


# ---- settings


def _settings(chosen: TrainSettings, parent: dict[str, Any]) -> str:
    """What was set, then what a fork changed, then the defaults, folded away."""
    values, defaults = chosen.model_dump(mode="json"), TrainSettings().model_dump(mode="json")
    known = specs(TrainSettings)
    changed = [spec for spec in known if values[spec.name] != defaults[spec.name] or spec.name == "model"]
    same = [spec for spec in known if spec not in changed]
    texts = {spec: value_text(values[spec.name], spec.unit) for spec in known}
    rows = [(spec.section, spec.title, texts[spec], value_text(defaults[spec.name], spec.unit)) for spec in changed]
    rest = [(spec.section, spec.title, texts[spec], spec.name) for spec in same]
    return (
        card(table(("part", "setting", "value", "default"), rows))
        + _fork(parent)
        + folded(f"{len(same)} settings were left at their defaults", table(("part", "setting", "value", "name"), rest))
    )


def _fork(parent: dict[str, Any]) -> str:
    if not parent:
        return ""
    rows = [(name, *pair) for name, pair in parent.get("changed", {}).items()]
    head = f"<h3>A fork of {escaped(parent['run'])} at step {escaped(parent['step'])}</h3>"
    return head + table(("setting", "there", "here"), rows) + _listed(parent.get("dropped", ()))


# ---- data


def _data(folder: Path, sessions: Sequence[RunSession]) -> str:
    """How many clips in which role and shape, which ones, and why others were left out."""
    clips = read_lock(folder)
    if not clips:
        return ""
    counts = Counter((clip["role"], _shape(clip)) for clip in clips)
    ordered = sorted(counts.items(), key=lambda pair: (list(ROLES).index(pair[0][0]), pair[0][1]))
    rows = [(ROLES[role], shape, count) for (role, shape), count in ordered]
    listed = [
        (ROLES[clip["role"]], clip["name"], _shape(clip), _weight(clip), clip["caption"]) for clip in clips[:CAPTIONS]
    ]
    captions = table(("role", "clip", "shape", "weight", "caption"), listed)
    if len(clips) > CAPTIONS:
        captions += f'<p class="faint">and {len(clips) - CAPTIONS} more</p>'
    left_out = _listed(sessions[-1].dropped) if sessions else ""
    return (
        card(table(("role", "frames x height x width", "clips"), rows))
        + folded(f"The {len(clips)} clips and their captions", captions)
        + (f"<h3>Left out</h3>{left_out}" if left_out else "")
    )


def _shape(clip: dict[str, Any]) -> str:
    _, _, height, width = clip["crop"]
    return f"{len(clip['indices'])}x{height}x{width}"


def _weight(clip: dict[str, Any]) -> str:
    repeats, weight = clip.get("repeats", 1), clip.get("weight", 1.0)
    return f"{repeats} times, weight {weight:g}" if (repeats, weight) != (1, 1.0) else ""


# ---- history


def _history(seen: RunSnapshot, sessions: Sequence[RunSession]) -> str:
    rows, status = [], seen.status
    for session in sessions:
        what = f"went on from the checkpoint of step {session.step}" if session.step else "started"
        what = f"resumed after a pause at step {session.step}" if session.paused else what
        rows.append((_moment(session.time), f"{what}; {session.note}" if session.note else what))
    if not sessions and status.started_at:
        rows.append((_moment(status.started_at), "started"))
    if status.ended_at or status.state is State.DIED:
        rows.append((_moment(status.ended_at), f"{status.state}" + (f": {status.message}" if status.message else "")))
    return card(table(("when", "what"), rows))


def _moment(seconds: float | None) -> str:
    return moment(seconds) if seconds else ""


# ---- use and machine


def _use(run: Run) -> str:
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


def _machine(sessions: Sequence[RunSession]) -> str:
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
    return card(table(("", ""), rows))

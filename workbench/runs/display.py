"""A run as self-contained HTML: its parts, its display in a notebook, and the report."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.display import charts
from workbench.display.charts import thinned
from workbench.display.html import PIXEL_ART, badge, escaped, table, video_table
from workbench.display.html import facts as facts_html
from workbench.display.inline_html import folded, video
from workbench.display.quantities import moment
from workbench.display.states import icon
from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.paths import ASSETS
from workbench.runs.analysis.curves import NO_CURVES
from workbench.runs.analysis.diagnosis import Diagnosis
from workbench.runs.data import read_lock
from workbench.runs.failures import Failure
from workbench.runs.metrics import RunSession, read_sessions
from workbench.runs.model_card import lora_words
from workbench.runs.previews import Preview, RunPreviews, step_title
from workbench.runs.run import CARD, Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import CHECKPOINT_HEADS, RunSnapshot, SavedCheckpoint, snapshot
from workbench.settings import specs, value_text
from workbench.workspace import write_text

VIEW = "run-view"  # CSS class around all of it (assets/run_view.css)
COLUMNS = 7  # most preview steps side by side
EMBEDDED = 25_000_000  # most bytes of base64 for the videos of all steps
SMALL_WIDTH, LARGE_WIDTH = 148, 230  # of a video on the page, pixels
CONTROLS = "prompts that it should leave alone, with the same noise"


def run_html(run: Run) -> str:
    """Render a whole run as it is now."""
    seen = snapshot(run)
    parts = [head(seen), facts(seen), failure_box(seen.failure), diagnosis_box(seen.diagnosis)]
    parts += [loss_chart(seen), previews(seen.previews, seen.width), faint(seen.preview_note)]
    if seen.checkpoints:
        parts.append(folded("Checkpoints", checkpoints(seen.checkpoints)))
    return viewed("".join(parts))


def viewed(content: str) -> str:
    """Wrap parts as one notebook display."""
    return f'{style()}<div class="{VIEW}">{content}</div>'


def style() -> str:
    """Style sheets and script; the same in every display."""
    return f"{charts.style()}<style>{sheet()}</style><script>{charts.script()}</script>"


def sheet() -> str:
    """Read the style sheet for this HTML."""
    return (ASSETS / "run_view.css").read_text(encoding="utf-8")


def faint(text: str) -> str:
    """Render a muted sentence; "" without one."""
    return f'<p class="faint">{escaped(text)}</p>' if text else ""


def card(content: str, wide: bool = False) -> str:
    """Put a part in a box; "" without content."""
    return f'<div class="card{" wide" * wide}">{content}</div>' if content else ""


def head(seen: RunSnapshot, tag: str = "b") -> str:
    """Name, state, activity, time left; notes below. tag: of the name"""
    words = " · ".join(filter(None, (seen.activity, seen.time_left)))
    notes = "".join(
        f'<p class="{one.tone}">{escaped(one.text)}</p>' for one in (*seen.notes, *filter(None, [seen.outcome]))
    )
    return (
        f'<div class="title"><{tag}>{escaped(seen.name)}</{tag}>{badge(seen.headline, seen.tone)}'
        f'<span class="faint">{escaped(words)}</span></div>{notes}'
    )


def facts(seen: RunSnapshot) -> str:
    """The facts, side by side."""
    return facts_html((fact.label, fact.text) for fact in seen.facts)


def diagnosis_box(found: Diagnosis | None) -> str:
    """Say whether the run learns, and what to do next; "" before the first measurement."""
    if found is None:
        return ""
    words = f"<b>{icon('', found.tone)}{escaped(found.sentence)}</b><p>{escaped(found.advice)}</p>"
    return f'<div class="diagnosis {found.tone}">{words}</div>'


def failure_box(found: Failure | None) -> str:
    """Say why a run failed, and what helps; "" for a run that did not."""
    if found is None:
        return ""
    lines = "".join(f"<p>{escaped(text)}</p>" for text in found.sentences)
    log = folded("The log's last lines", f"<pre>{escaped(found.tail)}</pre>")
    return f'<div class="diagnosis bad"><b>{icon("failed")}{escaped(found.cause)}</b>{lines}{log}</div>'


# ---- curves


def loss_chart(seen: RunSnapshot) -> str:
    """The loss, that of held-out clips, and the best checkpoint."""
    return card(seen.curves.loss_chart(seen.best_step), True) or faint(NO_CURVES)


def more_charts(seen: RunSnapshot) -> str:
    """Held-out loss by noise level, change of the output, loss per step, learning rate, each band of noise."""
    curves = seen.curves
    found = [curves.noise_level_chart(), curves.change_chart(), curves.step_loss_chart(), curves.learning_rate_chart()]
    parts = "".join([*map(card, found), card(curves.band_charts(), True)])
    return f'<div class="charts">{parts}</div>' if parts else faint(NO_CURVES)


# ---- previews


def previews(found: RunPreviews, source_width: int) -> str:
    """Render previews by prompt and step, then the newest at other LoRA scales; "" without any.

    The base model's come first, then as many steps as fit. source_width: of the videos, pixels
    """
    if not found.previews:
        return ""
    steps = _fitting(found)
    rows = []
    for index, prompt in found.prompts.items():
        cells = [found.at(index, step) for step in steps]
        rows.append((prompt, [preview_video(one, source_width) if one else "" for one in cells]))
    left = len(found.steps) - len(steps)
    folder = found.previews[0].video.parent.parent
    where = faint(f"{left} more steps have previews: {folder}") if left else ""
    scaled = "".join(_scaled(several, source_width) for several in found.by_scale)
    beside = controls(found, lambda one: preview_video(one, source_width))
    beside = folded(f"Control previews: {CONTROLS}", beside) if beside else ""
    return video_table(["prompt", *map(step_title, steps)], rows) + where + scaled + beside


def controls(found: RunPreviews, video_of: Callable[[Preview], str]) -> str:
    """Render the base model's and the newest control previews; "" without any."""
    if not found.controls:
        return ""
    steps = sorted({one.step for one in found.controls})
    steps = list(dict.fromkeys((steps[0], steps[-1])))
    near = [one for one in found.controls if one.step in steps]
    videos = {(one.prompt, one.step): video_of(one) for one in near}
    prompts = dict.fromkeys(one.prompt for one in near)
    rows = [(prompt, [videos.get((prompt, step), "") for step in steps]) for prompt in prompts]
    return video_table(["prompt", *map(step_title, steps)], rows)


def _fitting(found: RunPreviews) -> list[int]:
    """Choose the first step, the last, and as many evenly spaced between them as fit."""
    for count in range(min(COLUMNS, len(found.steps)), 0, -1):
        steps = thinned(found.steps, count)
        size = sum(one.video.stat().st_size for one in found.previews if one.step in steps)
        if size * 4 / 3 <= EMBEDDED:
            return steps
    return []


def _scaled(several: Sequence[Preview], source_width: int) -> str:
    heads = [f"LoRA at {one.scale:g}" for one in several]
    videos = [preview_video(one, source_width) for one in several]
    return video_table(["prompt", *heads], [(f"{several[0].prompt}, step {several[0].step}", videos)])


def preview_video(one: Preview, source_width: int) -> str:
    return video(one.video, LARGE_WIDTH if source_width > PIXEL_ART else SMALL_WIDTH, source_width, one.prompt)


def training_inputs(found: RunPreviews, source_width: int) -> str:
    """Render clips as the model gets them, each beside its VAE reconstruction; "" without any."""
    rows = []
    for one in found.inputs:
        paths = [path for path in (one.clip, one.reconstruction) if path]
        rows.append((one.caption, [video(path, SMALL_WIDTH, source_width, one.caption) for path in paths]))
    return video_table(["caption", "the model's input", "what the VAE keeps"], rows)


# ---- checkpoints


def checkpoints(found: Sequence[SavedCheckpoint]) -> str:
    """Render a row per checkpoint: size, held-out loss, why it is kept; "" without any."""
    return table(CHECKPOINT_HEADS, [one.row for one in found])


# ---- the report: one file with everything about a run
#
# It is made from a snapshot at any time and loads nothing from elsewhere; its only script is that of the charts.

REPORT = "report.html"
ROLES = {"train": "trained on", "known": "known, to be kept", "held_out": "held out, to measure with"}
CAPTIONS = 60  # most clips listed
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
    """Write the run's report.html. Raises ConfigError if its settings cannot be read, CannotWrite."""
    settings, seen = run.settings, snapshot(run)
    sessions = read_sessions(run.folder)
    inputs = card(training_inputs(seen.previews, seen.width))
    inputs = f"<h3>Training inputs</h3>{inputs}" if inputs else ""
    sections = [
        ("", _report_head(seen, settings)),
        ("Previews", card(previews(seen.previews, seen.width))),
        ("Curves", loss_chart(seen) + more_charts(seen) if seen.curves.version else ""),
        ("Settings", _settings_section(settings, seen.parent)),
        ("Data", _data_section(run.folder, sessions) + inputs),
        ("Checkpoints", card(checkpoints(seen.checkpoints))),
        ("What happened", _history_section(seen, sessions)),
        ("How to use it", _use_section(run)),
        ("Machine and versions", _machine_section(sessions)),
    ]
    body = "\n".join(
        f"<section>{f'<h2>{title}</h2>' if title else ''}{content}</section>" for title, content in sections if content
    )
    css = "\n".join([*((ASSETS / f"{name}.css").read_text(encoding="utf-8") for name in ("tokens", "charts")), sheet()])
    date = time.strftime("%d %B %Y, %H:%M")
    script = charts.script()
    # The only script a browser will run in this file, whatever a caption or a log contains.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = PAGE.format(
        name=escaped(run.name), css=css, body=body, version=__version__, date=date, script=script, digest=digest
    )
    write_text(run.folder / REPORT, page)
    return run.folder / REPORT


def _report_head(seen: RunSnapshot, settings: TrainSettings) -> str:
    datasets = ", ".join([settings.dataset, *settings.more_datasets])
    trained = "full fine-tuning of" if settings.method == "full" else f"{lora_words(settings)} on"
    model = settings.model
    with contextlib.suppress(ConfigError):  # an unknown model
        model = settings.resolved.model.title
    what = faint(f"{trained} {model}, dataset {datasets}")
    return head(seen, "h1") + what + failure_box(seen.failure) + diagnosis_box(seen.diagnosis) + facts(seen)


def _list(sentences: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{escaped(sentence)}</li>' for sentence in sentences)}</ul>" if sentences else ""


# ---- settings


def _settings_section(chosen: TrainSettings, parent: dict[str, Any]) -> str:
    """Render what was set, then a fork's changes, then the defaults, folded."""
    values, defaults = chosen.model_dump(mode="json"), TrainSettings().model_dump(mode="json")
    known = specs(TrainSettings)
    changed = [spec for spec in known if values[spec.name] != defaults[spec.name] or spec.name == "model"]
    same = [spec for spec in known if spec not in changed]
    texts = {spec: value_text(values[spec.name], spec.unit) for spec in known}
    rows = [(spec.section, spec.title, texts[spec], value_text(defaults[spec.name], spec.unit)) for spec in changed]
    rest = [(spec.section, spec.title, texts[spec], spec.name) for spec in same]
    return (
        card(table(("part", "setting", "value", "default"), rows))
        + _fork_table(parent)
        + folded(f"{len(same)} settings were left at their defaults", table(("part", "setting", "value", "name"), rest))
    )


def _fork_table(parent: dict[str, Any]) -> str:
    if not parent:
        return ""
    rows = [(name, *pair) for name, pair in parent.get("changed", {}).items()]
    title = f"<h3>A fork of {escaped(parent['run'])} at step {escaped(parent['step'])}</h3>"
    return title + table(("setting", "there", "here"), rows) + _list(parent.get("dropped", ()))


# ---- data


def _data_section(folder: Path, sessions: Sequence[RunSession]) -> str:
    """Render the clips by role and shape, one by one, and why others were left out."""
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
    left_out = _list(sessions[-1].dropped) if sessions else ""
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


def _history_section(seen: RunSnapshot, sessions: Sequence[RunSession]) -> str:
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


def _use_section(run: Run) -> str:
    """Render the model card's code; before the export, a hint."""
    path = run.folder / CARD
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    found = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    if not found:
        return (
            '<p class="faint">Nothing was exported yet: a run that finishes writes its LoRA and the code to use it.</p>'
        )
    where = f"<p>In the folder <code>{escaped(run.folder)}</code>:</p>"
    return f"{where}<pre>{escaped(found[1].strip())}</pre>"


def _machine_section(sessions: Sequence[RunSession]) -> str:
    """Render device, precision and versions of the last session, and other devices of earlier ones."""
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

"""A run explained in one HTML file that needs nothing else: diagnosis, previews, curves, settings, data, history, use.

Made from the run's snapshot at any time; it holds no script and loads nothing. Not covered: the tables (report_tables),
what is known of a run (runs.snapshot).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.charts import thinned
from workbench.html import PIXEL_ART, badge, data_url, escaped, facts, video_table
from workbench.paths import ASSETS
from workbench.runs.analysis import curve_charts
from workbench.runs.analysis import report_tables as tables
from workbench.runs.previews import RunPreviews, step_title
from workbench.runs.run import Run
from workbench.runs.sessions import read_sessions
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, snapshot
from workbench.workspace import write_text

REPORT = "report.html"
EMBEDDED = 25_000_000  # bytes of base64 that all videos may take together
COLUMNS = 7  # preview steps side by side, at most
WIDE = (1040, 280)  # pixels of the main chart
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; media-src data:">
<title>{name}: report of a training run</title><style>
{css}
</style></head><body><main>
{body}
<footer>Video LoRA Workbench {version}, {date}. This file holds all that it shows.</footer>
</main></body></html>
"""


def write_report(run: Run) -> Path:
    """Write the run's report.html as things stand. Raises ConfigError when its settings cannot be read, CannotWrite."""
    settings, seen = run.settings, snapshot(run)
    sessions = read_sessions(run.folder)
    sections = [
        ("", _head(seen, settings)),
        ("Previews", _previews(seen.previews, run.folder)),
        ("Curves", _curves(seen)),
        ("Settings", tables.settings(settings, seen.parent)),
        ("Data", tables.data(run.folder, sessions) + _inputs(seen.previews)),
        ("Checkpoints", tables.checkpoints(seen)),
        ("What happened", tables.history(seen, sessions)),
        ("How to use it", tables.use(run)),
        ("Machine and versions", tables.machine(sessions)),
    ]
    body = "\n".join(
        f"<section>{f'<h2>{title}</h2>' if title else ''}{content}</section>" for title, content in sections if content
    )
    css = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in ("charts.css", "report.css"))
    date = time.strftime("%d %B %Y, %H:%M")
    page = PAGE.format(name=escaped(run.name), css=css, body=body, version=__version__, date=date)
    write_text(run.folder / REPORT, page)
    return run.folder / REPORT


# ---- head


def _head(seen: RunSnapshot, settings: TrainSettings) -> str:
    what = "full fine-tuning of" if settings.method == "full" else tables.lora_words(settings) + " on"
    found = seen.diagnosis
    diagnosis = (
        f'<div class="diagnosis {found.tone}"><b>{escaped(found.sentence)}</b><p>{escaped(found.advice)}</p></div>'
        if found
        else ""
    )
    notes = "".join(f"<p>{escaped(note.text)}</p>" for note in seen.notes)
    return (
        f'<div class="title"><h1>{escaped(seen.name)}</h1>{badge(seen.headline, seen.tone)}</div>'
        f'<p class="faint">{escaped(what)} {escaped(tables.model_title(settings))}, '
        f"dataset {escaped(', '.join([settings.dataset, *settings.more_datasets]))}; {escaped(seen.activity)}</p>"
        f"{diagnosis}{facts((fact.label, fact.text) for fact in seen.facts)}{notes}"
    )


# ---- previews


def _previews(found: RunPreviews, folder: Path) -> str:
    """Prompts down, steps across, the base model first; as many steps as fit into the file."""
    steps = _fitting(found)
    rows = []
    for index, prompt in found.prompts.items():
        cells = [found.at(index, step) for step in steps]
        rows.append((prompt, [_video(one.video, one.record) if one else "" for one in cells]))
    table = video_table(["prompt", *map(step_title, steps)], rows)
    left = len(found.steps) - len(steps)
    where = f'<p class="faint">{left} more steps have previews: {escaped(folder / "previews")}</p>' if left else ""
    return f'<div class="card">{table}</div>{where}' if table else ""


def _fitting(found: RunPreviews) -> list[int]:
    """The first step, the last, and as many evenly between them as the file has room for."""
    for count in range(min(COLUMNS, len(found.steps)), 0, -1):
        steps = thinned(found.steps, count)
        size = sum(one.video.stat().st_size for one in found.previews if one.step in steps)
        if size * 4 / 3 <= EMBEDDED:
            return steps
    return []


def _inputs(found: RunPreviews) -> str:
    """Clips as the model's input, each beside what its VAE keeps."""
    rows = [
        (one.caption, [_video(path, {"prompt": one.caption}) for path in (one.clip, one.reconstruction) if path])
        for one in found.inputs
        if one.clip.stat().st_size <= EMBEDDED / 20
    ]
    table = video_table(["caption", "the model's input", "what the VAE keeps"], rows)
    return f'<h3>Training inputs</h3><div class="card">{table}</div>' if table else ""


def _video(path: Path, record: Mapping[str, Any]) -> str:
    """A looping video inside the file itself."""
    width = record.get("width")
    looks = "wide" if isinstance(width, int | float) and width > PIXEL_ART else "pixelated"
    return (
        f'<video class="{looks}" src="{data_url(path)}" aria-label="{escaped(record.get("prompt", ""))}" '
        "muted loop autoplay playsinline></video>"
    )


# ---- curves


def _curves(seen: RunSnapshot) -> str:
    """The curves that there are, the one that says most first."""
    curves = seen.curves
    wide = [curve_charts.loss(curves, seen.best_step, WIDE), curve_charts.bands(curves)]
    charts = [curve_charts.loss_per_step(curves), curve_charts.changes(curves), curve_charts.learning_rate(curves)]
    parts = [f'<div class="card wide">{wide[0]}</div>'] if wide[0] else []
    parts += [f'<div class="card">{one}</div>' for one in charts if one]
    parts += [f'<div class="card wide">{wide[1]}</div>'] if wide[1] else []
    return f'<div class="charts">{"".join(parts)}</div>' if parts else ""

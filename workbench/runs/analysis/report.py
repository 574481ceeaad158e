"""A run explained in one HTML file that needs nothing else: verdict, previews, curves, settings, data, history, use.

Made from the run's files at any time, by anyone; it holds no script and loads nothing. Not covered: the tables
(report_tables), how a chart is drawn (report_charts), what the verdict means (verdict).
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from workbench import __version__
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.jobs import State, duration
from workbench.paths import ASSETS
from workbench.runs import oom_fallback
from workbench.runs.analysis import report_tables as tables
from workbench.runs.analysis.charts import Line, chart, escaped, legend
from workbench.runs.analysis.curves import BANDS, TIMESTEPS, Curves, Row
from workbench.runs.analysis.diagnosis import Diagnosis, judge
from workbench.runs.run import Preview, Run
from workbench.runs.sessions import read_starts, seconds_used
from workbench.workspace import read_object, write_text

REPORT = "report.html"
EMBEDDED = 25_000_000  # bytes of base64 that all videos may take together
COLUMNS = 7  # preview steps side by side, at most
PIXEL_ART = 128  # pixels; smaller videos are enlarged with sharp edges
GOOD, BAD = ("learning", "levelled off"), ("over-fitting", "getting worse", "leaks")
BAND_KEYS = (Line("training, smoothed", []), Line("held-out clips", [], 2, "dots"))
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
    settings = run.settings
    curves = curves_of(run)
    verdict, starts = judge(curves, run.checkpoints), read_starts(run.folder)
    sections = [
        ("", _head(run, curves, verdict)),
        ("Previews", _previews(run.previews, run.folder)),
        ("Curves", _curves(curves, verdict)),
        ("Settings", tables.settings(settings, run.parent)),
        ("Data", tables.data(run.folder, starts) + _inputs(run.folder)),
        ("Checkpoints", tables.checkpoints(run, curves, verdict)),
        ("What happened", tables.history(run, starts)),
        ("How to use it", tables.use(run)),
        ("Machine and versions", tables.machine(starts)),
    ]
    body = "\n".join(
        f"<section>{f'<h2>{title}</h2>' if title else ''}{content}</section>" for title, content in sections if content
    )
    css = "\n".join((ASSETS / name).read_text(encoding="utf-8") for name in ("charts.css", "report.css"))
    date = time.strftime("%d %B %Y, %H:%M")
    page = PAGE.format(name=escaped(run.name), css=css, body=body, version=__version__, date=date)
    write_text(run.folder / REPORT, page)
    return run.folder / REPORT


def curves_of(run: Run) -> Curves:
    """The curves of a run, all of them read."""
    timesteps = TIMESTEPS
    with contextlib.suppress(ConfigError):  # a run of a later version, or a model folder that is gone
        timesteps = find_model(run.settings.model)[0].timesteps
    curves = Curves(run.folder, timesteps)
    curves.refresh()
    return curves


# ---- head


def _head(run: Run, curves: Curves, verdict: Diagnosis) -> str:
    status, settings = run.status, run.settings
    kind = {State.FINISHED: "good", State.FAILED: "bad", State.DIED: "bad"}.get(status.state, "")
    judged = "good" if verdict.kind in GOOD else "bad" if verdict.kind in BAD else ""
    what = "full fine-tuning of" if settings.method == "full" else tables.lora_words(settings) + " on"
    held = list(curves.held_out.values())
    pairs = [("steps", f"{tables.steps_done(curves)} of {settings.steps}")]
    if held:
        pairs.append(("held-out loss", f"{held[0]:.4f} → {held[-1]:.4f}"))
    elif curves.smoothed is not None:
        pairs.append(("loss, smoothed", f"{curves.smoothed:.4f}"))
    if curves.changes:
        own, others = list(curves.changes.values())[-1]
        pairs.append(("change of its own captions", f"{own:.1%}"))
        pairs.append(("change of others, leak", f"{others:.1%}" + (f" ({others / own:.2f})" if own else "")))
    pairs.append(("time used", duration(seconds_used(run.folder))))
    if run.lora:
        pairs.append(("file", f"{run.lora.stat().st_size / 1e6:.1f} MB"))
    facts = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in pairs)
    return (
        f'<div class="title"><h1>{escaped(run.name)}</h1><span class="badge {kind}">{status.state}</span></div>'
        f'<p class="faint">{escaped(what)} {escaped(tables.model_title(settings))}, '
        f"dataset {escaped(', '.join([settings.dataset, *settings.more_datasets]))}</p>"
        f'<div class="verdict {judged}"><b>{escaped(verdict.sentence)}</b><p>{escaped(verdict.advice)}</p></div>'
        f"<dl>{facts}</dl>{_stepped_down(run)}"
    )


def _stepped_down(run: Run) -> str:
    """What was changed when memory ran out."""
    said = oom_fallback.sentence(oom_fallback.record(run.folder))
    return f"<p>{escaped(said)}</p>" if said else ""


# ---- previews


def _previews(found: Sequence[Preview], folder: Path) -> str:
    """Prompts down, steps across, the base model first; as many steps as fit into the file."""
    # Beside the samples lie videos of other kinds, with a word before their number.
    samples = [preview for preview in found if preview.video.stem.isdecimal()]
    if not samples:
        return ""
    every = sorted({preview.step for preview in samples})
    steps = _fitting(samples, every)
    cells = {(preview.index, preview.step): preview for preview in samples}
    prompts = {preview.index: preview.prompt for preview in samples}
    heads = "".join(f"<th>{'base model' if step == 0 else f'step {step}'}</th>" for step in steps)
    rows = []
    for index, prompt in sorted(prompts.items()):
        shown = [cells.get((index, step)) for step in steps]
        last = max((place for place, one in enumerate(shown) if one), default=0)
        row = "".join(
            f'<td class="{"end" if place == last else ""}">{_video(one.video) if one else ""}</td>'
            for place, one in enumerate(shown)
        )
        rows.append(f'<tr><th scope="row">{escaped(prompt)}</th>{row}</tr>')
    table = (
        f'<div class="scroll"><table class="videos"><thead><tr><th>prompt</th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )
    left = len(every) - len(steps)
    where = f'<p class="faint">{left} more steps have previews: {escaped(folder / "previews")}</p>' if left else ""
    return f'<div class="card">{table}</div>{where}'


def _fitting(samples: Sequence[Preview], steps: Sequence[int]) -> list[int]:
    """The first step, the last, and as many evenly between them as the file has room for."""
    for count in range(min(COLUMNS, len(steps)), 0, -1):
        kept = [steps[round(place * (len(steps) - 1) / max(count - 1, 1))] for place in range(count)]
        kept = [steps[-1]] if count == 1 else kept
        if sum(preview.video.stat().st_size for preview in samples if preview.step in kept) * 4 / 3 <= EMBEDDED:
            return kept
    return []


def _inputs(folder: Path) -> str:
    """Clips as the model was shown them, each beside what its encoder keeps."""
    pairs = []
    for shown in sorted(folder.glob("previews/step-00000000/input-*.mp4")):
        kept = shown.with_name(shown.name.replace("input-", "reconstruction-"))
        if shown.stat().st_size <= EMBEDDED / 20:
            pairs.append(f"<td>{_video(shown)}</td><td>{_video(kept) if kept.exists() else ''}</td>")
    if not pairs:
        return ""
    rows = "".join(f"<tr>{pair}</tr>" for pair in pairs)
    return (
        '<h3>What goes in</h3><div class="card"><table class="videos"><thead><tr><th>the clip as it is shown</th>'
        f"<th>what the video encoder keeps</th></tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _video(path: Path) -> str:
    """A looping video inside the file itself."""
    record = read_object(path.with_suffix(".json"))
    width = record.get("width")
    looks = "wide" if isinstance(width, int | float) and width > PIXEL_ART else "pixelated"
    data = base64.b64encode(path.read_bytes()).decode()
    return (
        f'<video class="{looks}" src="data:video/mp4;base64,{data}" aria-label="{escaped(record.get("prompt", ""))}" '
        "muted loop autoplay playsinline></video>"
    )


# ---- curves


def _curves(curves: Curves, verdict: Diagnosis) -> str:
    """The curves that there are, the one that says most first."""
    loss, detrended = _by_name(curves.loss_rows()), _by_name(curves.detrended_rows())
    held = loss.get("held-out clips", [])
    best = min(held, key=lambda point: point[1], default=None)
    marked = (best[0], f"best {best[1]:.4f}") if best and len(held) > 2 else None
    measured = Line("held-out clips", held, 2, "dots", marked)
    wide = []
    if detrended.get("detrended"):
        soft = Line("training, smoothed", detrended.get("detrended, smoothed", []))
        wide.append(
            chart(
                "Loss, without the luck of the draw",
                [Line("training", detrended["detrended"], 1, "faint"), soft, measured],
                (1040, 280),
                "what the drawn timesteps explain is taken out",
            )
        )
    raw = [Line("each step", loss.get("each step", []), 1, "faint"), Line("smoothed", loss.get("smoothed", []))]
    (charts := list[str]()).append(chart("Loss as it came", raw if wide else [*raw, measured]))
    if not wide:
        wide, charts = [chart("Loss", [*raw, measured], (1040, 280))], []
    changes = _by_name(curves.change_rows())
    own, others = (changes.get(name, []) for name in ("its own captions", "to be left alone"))
    charts += [
        chart(
            "Change of the model's output",
            [Line("its own captions", own, 3, "dots"), Line("others: the leak", others, 6, "dots")],
        ),
        chart("Learning rate", [Line("learning rate", curves.rate_rows(), 7)]),
    ]
    parts = [f'<div class="card wide">{one}</div>' for one in wide if one]
    parts += [f'<div class="card">{one}</div>' for one in charts if one]
    if bands := _bands(curves):
        parts.append(
            '<div class="card wide"><div class="heading">Loss by timestep, little noise to much '
            f'{legend(BAND_KEYS)}</div><div class="multiples">{bands}</div></div>'
        )
    return f'<div class="charts">{"".join(parts)}</div>' if parts else ""


def _bands(curves: Curves) -> str:
    """A small chart a band of timesteps: the smoothed training loss, and the held-out loss."""
    train, held = _by_name(curves.band_rows()), _by_name(curves.held_out_band_rows())
    charts = []
    for band in range(BANDS):
        name = curves.band_name(band)
        points = held.get(name, [])
        change = ""
        if len(points) > 1 and points[0][1]:
            change = f"{points[-1][1] / points[0][1] - 1:+.0%}".replace("-", "\N{MINUS SIGN}")
        lines = [
            replace(key, points=found) for key, found in zip(BAND_KEYS, (train.get(name, []), points), strict=True)
        ]
        charts.append(chart(name, lines, (215, 150), change, keys=False))
    return "".join(charts)


def _by_name(rows: Sequence[Row]) -> dict[str, list[tuple[float, float]]]:
    lines: dict[str, list[tuple[float, float]]] = {}
    for step, value, name in rows:
        lines.setdefault(name, []).append((step, value))
    return lines

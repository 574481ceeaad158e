"""What runs look like in a notebook: a snapshot rendered as HTML that carries its files inside; several compared.

`Run` and `Comparison` show themselves by it, a live panel renders its parts. Not covered: what is shown of a run
(snapshot), how a curve is plotted (analysis.curve_charts), videos and tables (inline_html).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from workbench.html import escaped
from workbench.inline_html import (
    BLUE,
    GREEN,
    GREY,
    RED,
    badge,
    box,
    folded,
    heading,
    html_table,
    note,
    row,
    table,
    video,
)
from workbench.paths import ASSETS
from workbench.runs.analysis import curve_charts
from workbench.runs.analysis.diagnosis import Diagnosis
from workbench.runs.facts import Tone
from workbench.runs.failures import Failure
from workbench.runs.previews import Preview, RunPreviews
from workbench.runs.run import Run
from workbench.runs.snapshot import RunSnapshot, SavedCheckpoint, snapshot

if TYPE_CHECKING:
    from workbench.runs.analysis.comparison import Comparison

TONE_COLOURS: dict[Tone, str] = {"plain": GREY, "going": BLUE, "idle": GREY, "good": GREEN, "bad": RED}
PREVIEW_COLUMNS = 5
CHART_WIDTH = 760  # pixels that the loss takes at most
VIDEO_WIDTH = 144  # pixels
# A notebook's page has less room than the web app's.
NARROW = """
.chart svg { max-height: 300px; } .chart figcaption { line-height: 1.4; }
.overlaid { grid-template-columns: repeat(auto-fit, minmax(min(310px, 100%), 1fr)); }
"""


def run_html(run: Run) -> str:
    """A whole run at this moment."""
    seen = snapshot(run)
    parts = [style(), head(seen), facts(seen), failure_box(seen.failure), diagnosis_box(seen.diagnosis)]
    parts += [loss_chart(seen), previews(seen.previews, seen.width), note(seen.preview_note)]
    if seen.checkpoints:
        parts.append(folded("Checkpoints", checkpoints(seen.checkpoints)))
    return "".join(parts)


def style() -> str:
    """The style sheet of the charts; the same in every display."""
    css = (ASSETS / "charts.css").read_text(encoding="utf-8")
    return f"<style>{css}{NARROW}</style>"


def head(seen: RunSnapshot) -> str:
    """Name, state, activity, time left; notes below."""
    words = " · ".join(filter(None, (seen.activity, seen.time_left)))
    notes = "".join(_toned(one.text, one.tone) for one in (*seen.notes, *filter(None, [seen.outcome])))
    return (
        f'<div style="line-height:1.8"><b>{escaped(seen.name)}</b> {badge(seen.headline, TONE_COLOURS[seen.tone])} '
        f'<span style="opacity:.75">{escaped(words)}</span>{notes}</div>'
    )


def _toned(text: str, tone: Tone) -> str:
    return note(text, {"good": "good", "bad": "error"}.get(tone, "plain"))


def facts(seen: RunSnapshot) -> str:
    """The facts in a line."""
    return note(" · ".join(f"{fact.label} {fact.text}" for fact in seen.facts))


def diagnosis_box(found: Diagnosis | None) -> str:
    """Whether the run learns, in a sentence, and what to do next; "" before the first measurement."""
    if found is None:
        return ""
    return box(f"<b>{escaped(found.sentence)}</b><br>{escaped(found.advice)}", TONE_COLOURS[found.tone])


def failure_box(found: Failure | None) -> str:
    """Why a run failed and what helps; "" of a run that did not."""
    if found is None:
        return ""
    lines = "".join(f"<div>{escaped(text)}</div>" for text in found.sentences)
    log = folded("The log's last lines", f"<pre>{escaped(found.tail)}</pre>")
    return box(f"<b>{escaped(found.cause)}</b>{lines}{log}", RED)


# ---- curves


def loss_chart(seen: RunSnapshot) -> str:
    """The loss, that of held-out clips, and the best checkpoint."""
    chart = curve_charts.loss(seen.curves, seen.best_step)
    return f'<div style="max-width:{CHART_WIDTH}px">{chart}</div>' if chart else note(curve_charts.EMPTY)


def more_charts(seen: RunSnapshot) -> str:
    """The change of the output, the loss by timestep, the loss per step, the learning rate."""
    curves = seen.curves
    bands = curve_charts.bands(curves)
    others = curve_charts.changes(curves) + curve_charts.loss_per_step(curves) + curve_charts.learning_rate(curves)
    return f'<div class="overlaid">{others}</div>{bands}' if others or bands else note(curve_charts.EMPTY)


# ---- previews


def previews(found: RunPreviews, source_width: int) -> str:
    """Prompts by steps, then the newest ones at other scales of the LoRA; "" without any.

    source_width: of the videos themselves, pixels
    """
    if not found.previews:
        return ""
    steps = chosen_steps(found.steps)
    rows = []
    for index, prompt in found.prompts.items():
        cells = [found.at(index, step) for step in steps]
        videos = [_video(one, source_width) if one else "" for one in cells]
        rows.append([f'<div style="width:120px">{escaped(prompt)}</div>', *videos])
    heads = ["", *(next(one.title for one in found.previews if one.step == step) for step in steps)]
    return html_table(heads, rows) + "".join(_scaled(several, source_width) for several in found.by_scale)


def chosen_steps(steps: Sequence[int], columns: int = PREVIEW_COLUMNS) -> list[int]:
    """The first, the last, and evenly spaced ones between them."""
    if len(steps) <= columns:
        return list(steps)
    return [steps[round(column * (len(steps) - 1) / (columns - 1))] for column in range(columns)]


def _scaled(several: Sequence[Preview], source_width: int) -> str:
    videos = [_titled(_video(one, source_width), f"LoRA at {one.scale:g}") for one in several]
    return heading(f"{several[0].prompt}, step {several[0].step}") + row(videos)


def _video(one: Preview, source_width: int) -> str:
    return video(one.video, VIDEO_WIDTH, source_width)


def _titled(content: str, title: str) -> str:
    return f'<div style="margin:0 12px 8px 0"><span style="opacity:.7">{escaped(title)}</span>{content}</div>'


def training_inputs(found: RunPreviews, source_width: int) -> str:
    """Clips as the model gets them, each beside what its VAE keeps of them."""
    parts = []
    for one in found.inputs:
        pair = [_titled(video(one.clip, VIDEO_WIDTH, source_width), "training input")]
        if one.reconstruction:
            pair.append(_titled(video(one.reconstruction, VIDEO_WIDTH, source_width), "after the VAE"))
        parts.append(f"<div>{escaped(one.caption)}{row(pair)}</div>")
    return "".join(parts) or note("This run keeps no videos of its training inputs.")


# ---- checkpoints


def checkpoints(found: Sequence[SavedCheckpoint]) -> str:
    """A row a checkpoint: its size, its held-out loss, and why it is kept."""
    rows = [
        (one.step, one.size, f"{one.held_out:.4f}" if one.held_out is not None else "", ", ".join(one.reasons))
        for one in found
    ]
    return table(("step", "size", "held-out loss", ""), rows) if rows else note("No checkpoint was written yet.")


# ---- several runs


def comparison_html(found: Comparison) -> str:
    """Curves over one another, results, the settings that differ, previews of the same prompts."""
    heads = ["", *found.names]
    width = max((one.snapshot.width for one in found.runs), default=0)
    parts = [style(), f'<div class="overlaid">{"".join(found.charts())}</div>']
    parts.append(table(heads, [[name, *values] for name, values in found.results]) if found.results else "")
    if found.settings:
        parts.append(heading("Settings that differ"))
        parts.append(table(heads, [[name, *values] for name, values in found.settings]))
    for prompt, several in found.previews:
        pairs = zip(("base model", *found.names), several, strict=True)
        parts.append(heading(prompt) + row([_titled(_video(one, width), name) for name, one in pairs if one]))
    return "".join(parts)

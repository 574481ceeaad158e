"""A run's snapshot as HTML that carries its files inside: in a notebook and in a saved report; several runs compared.

`Run` and `Comparison` show themselves by it, a live panel and the report render its parts. Not covered: what is shown
of a run (snapshot), how a curve is plotted (analysis.curve_charts), videos and tables (inline_html, html).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from workbench import charts
from workbench.charts import thinned
from workbench.html import PIXEL_ART, badge, escaped, table, video_table
from workbench.html import facts as facts_html
from workbench.inline_html import folded, video
from workbench.paths import ASSETS
from workbench.runs.analysis import curve_charts
from workbench.runs.analysis.diagnosis import Diagnosis
from workbench.runs.failures import Failure
from workbench.runs.previews import Preview, RunPreviews, step_title
from workbench.runs.run import Run
from workbench.runs.snapshot import CHECKPOINT_HEADS, RunSnapshot, SavedCheckpoint, snapshot
from workbench.states import icon

if TYPE_CHECKING:
    from workbench.runs.analysis.comparison import Comparison

VIEW = "run-view"  # the class that all of it lies in (assets/run_view.css)
COLUMNS = 7  # preview steps side by side, at most
EMBEDDED = 25_000_000  # bytes of base64 that the videos of all steps may take together
SMALL_WIDTH, LARGE_WIDTH = 148, 230  # of a video on the page, pixels
CONTROLS = "prompts that it should leave alone, with the same noise"
SAME = "The settings are all the same."


def run_html(run: Run) -> str:
    """A whole run at this moment."""
    seen = snapshot(run)
    parts = [head(seen), facts(seen), failure_box(seen.failure), diagnosis_box(seen.diagnosis)]
    parts += [loss_chart(seen), previews(seen.previews, seen.width), faint(seen.preview_note)]
    if seen.checkpoints:
        parts.append(folded("Checkpoints", checkpoints(seen.checkpoints)))
    return viewed("".join(parts))


def viewed(content: str) -> str:
    """Parts as one display of a notebook."""
    return f'{style()}<div class="{VIEW}">{content}</div>'


def style() -> str:
    """Style sheets and script; the same in every display."""
    return f"{charts.style()}<style>{sheet()}</style><script>{charts.script()}</script>"


def sheet() -> str:
    """The style sheet of what is made here."""
    return (ASSETS / "run_view.css").read_text(encoding="utf-8")


def faint(text: str) -> str:
    """A sentence that stands back; "" without one."""
    return f'<p class="faint">{escaped(text)}</p>' if text else ""


def card(content: str, wide: bool = False) -> str:
    """A part in a box; "" without content."""
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
    """Whether the run learns, in a sentence, and what to do next; "" before the first measurement."""
    if found is None:
        return ""
    words = f"<b>{icon('', found.tone)}{escaped(found.sentence)}</b><p>{escaped(found.advice)}</p>"
    return f'<div class="diagnosis {found.tone}">{words}</div>'


def failure_box(found: Failure | None) -> str:
    """Why a run failed and what helps; "" of a run that did not."""
    if found is None:
        return ""
    lines = "".join(f"<p>{escaped(text)}</p>" for text in found.sentences)
    log = folded("The log's last lines", f"<pre>{escaped(found.tail)}</pre>")
    return f'<div class="diagnosis bad"><b>{icon("failed")}{escaped(found.cause)}</b>{lines}{log}</div>'


# ---- curves


def loss_chart(seen: RunSnapshot) -> str:
    """The loss, that of held-out clips, and the best checkpoint."""
    return card(curve_charts.loss(seen.curves, seen.best_step), True) or faint(curve_charts.EMPTY)


def more_charts(seen: RunSnapshot) -> str:
    """Held-out loss by noise level, change of the output, loss per step, learning rate, each band of noise."""
    curves = seen.curves
    found = [curve_charts.noise_levels(curves), curve_charts.changes(curves)]
    found += [curve_charts.loss_per_step(curves), curve_charts.learning_rate(curves)]
    parts = "".join([*map(card, found), card(curve_charts.bands(curves), True)])
    return f'<div class="charts">{parts}</div>' if parts else faint(curve_charts.EMPTY)


# ---- previews


def previews(found: RunPreviews, source_width: int) -> str:
    """Prompts by steps, then the newest ones at other scales of the LoRA; "" without any.

    The base model's stand first, and as many steps as there is room for. source_width: of the videos, pixels
    """
    if not found.previews:
        return ""
    steps = _fitting(found)
    rows = []
    for index, prompt in found.prompts.items():
        cells = [found.at(index, step) for step in steps]
        rows.append((prompt, [_video(one, source_width) if one else "" for one in cells]))
    left = len(found.steps) - len(steps)
    folder = found.previews[0].video.parent.parent
    where = faint(f"{left} more steps have previews: {folder}") if left else ""
    scaled = "".join(_scaled(several, source_width) for several in found.by_scale)
    return (
        video_table(["prompt", *map(step_title, steps)], rows) + where + scaled + _folded_controls(found, source_width)
    )


def _folded_controls(found: RunPreviews, source_width: int) -> str:
    table = controls(found, lambda one: _video(one, source_width))
    return folded(f"Control previews: {CONTROLS}", table) if table else ""


def controls(found: RunPreviews, video_of: Callable[[Preview], str]) -> str:
    """The base model's and the newest control previews; "" without any."""
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
    """The first step, the last, and as many evenly between them as there is room for."""
    for count in range(min(COLUMNS, len(found.steps)), 0, -1):
        steps = thinned(found.steps, count)
        size = sum(one.video.stat().st_size for one in found.previews if one.step in steps)
        if size * 4 / 3 <= EMBEDDED:
            return steps
    return []


def _scaled(several: Sequence[Preview], source_width: int) -> str:
    heads = [f"LoRA at {one.scale:g}" for one in several]
    videos = [_video(one, source_width) for one in several]
    return video_table(["prompt", *heads], [(f"{several[0].prompt}, step {several[0].step}", videos)])


def _video(one: Preview, source_width: int) -> str:
    return video(one.video, LARGE_WIDTH if source_width > PIXEL_ART else SMALL_WIDTH, source_width, one.prompt)


def training_inputs(found: RunPreviews, source_width: int) -> str:
    """Clips as the model gets them, each beside what its VAE keeps of them; "" without any."""
    rows = []
    for one in found.inputs:
        paths = [path for path in (one.clip, one.reconstruction) if path]
        rows.append((one.caption, [video(path, SMALL_WIDTH, source_width, one.caption) for path in paths]))
    return video_table(["caption", "the model's input", "what the VAE keeps"], rows)


# ---- checkpoints


def checkpoints(found: Sequence[SavedCheckpoint]) -> str:
    """A row a checkpoint: its size, its held-out loss, and why it is kept; "" without any."""
    return table(CHECKPOINT_HEADS, [one.row for one in found])


# ---- several runs


def comparison_html(found: Comparison, video_of: Callable[[Preview, int], str] = _video) -> str:
    """Curves over one another, results, the settings that differ, previews of the same prompts.

    video_of: makes a video of a preview and the width of its file
    """
    heads = ["", *found.names]
    results = table(heads, [[name, *values] for name, values in found.results])
    settings = table(heads, [[name, *values] for name, values in found.settings])
    widths = [one.width for one in found.runs]
    widths = [max(widths, default=0), *widths]

    def cell(one: Preview | None, width: int) -> str:
        return f"{video_of(one, width)}<figcaption>{one.title}</figcaption>" if one else ""

    rows = [(prompt, [*map(cell, several, widths)]) for prompt, several in found.previews]
    parts = {
        "What came of them": results,
        "Settings that differ": settings or (f'<p class="hint">{SAME}</p>' if len(found.runs) > 1 else ""),
        "Previews": video_table(["prompt", "base model", *found.names], rows),
    }
    sections = "".join(f'<h3 class="part">{title}</h3>{content}' for title, content in parts.items() if content)
    return f'<div class="overlaid">{"".join(found.charts())}</div>{sections}'

"""A run as self-contained HTML, as a notebook keeps it: its parts, and all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbench.display import charts
from workbench.display.charts import thinned
from workbench.display.html import PIXEL_ART, badge, escaped, table, video_table
from workbench.display.html import facts as facts_html
from workbench.display.inline_html import folded, video
from workbench.display.states import icon
from workbench.paths import ASSETS
from workbench.runs.analysis.curves import NO_CURVES
from workbench.runs.analysis.diagnosis import Diagnosis
from workbench.runs.failures import Failure
from workbench.runs.previews import Preview, RunPreviews, step_title
from workbench.runs.run import Run
from workbench.runs.snapshot import CHECKPOINT_HEADS, RunSnapshot, SavedCheckpoint, snapshot

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
    """Style sheets; the same in every display."""
    return f"{charts.style()}<style>{(ASSETS / 'run_view.css').read_text(encoding='utf-8')}</style>"


def faint(text: str) -> str:
    """Render a muted sentence; "" without one."""
    return f'<p class="faint">{escaped(text)}</p>' if text else ""


def head(seen: RunSnapshot) -> str:
    """Name, state, activity, time left; notes below."""
    words = " · ".join(filter(None, (seen.activity, seen.time_left)))
    notes = "".join(
        f'<p class="{one.tone}">{escaped(one.text)}</p>' for one in (*seen.notes, *filter(None, [seen.outcome]))
    )
    return (
        f'<div class="title"><b>{escaped(seen.name)}</b>{badge(seen.headline, seen.tone)}'
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
    chart = seen.curves.loss_chart(seen.best_step)
    return f'<div class="card">{chart}</div>' if chart else faint(NO_CURVES)


# ---- previews


def previews(found: RunPreviews, source_width: int) -> str:
    """Render previews by prompt and step, then the newest at other LoRA scales; "" without any.

    The base model's come first, then as many steps as fit. source_width: of the videos, pixels
    """
    if not found.previews:
        return ""
    steps = fitting(found)
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


def fitting(found: RunPreviews) -> list[int]:
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


# ---- checkpoints


def checkpoints(found: Sequence[SavedCheckpoint]) -> str:
    """Render a row per checkpoint: size, held-out loss, why it is kept; "" without any."""
    return table(CHECKPOINT_HEADS, [one.row for one in found])

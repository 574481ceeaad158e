"""What a run looks like in a notebook, as strings of HTML: verdict, numbers, curves, previews, checkpoints, its card.

Everything that a person or a file wrote is escaped. Not covered: how one curve is plotted (runs.analysis.curve_charts),
videos and tables (rendering), when things are rendered again (run_panel).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench import jobs
from workbench.jobs import State
from workbench.notebook.rendering import escaped, note, preview_table, row, table, video
from workbench.paths import ASSETS
from workbench.runs import retention
from workbench.runs.analysis import curve_charts
from workbench.runs.analysis.comparison import Comparison
from workbench.runs.analysis.curves import Curves
from workbench.runs.analysis.diagnosis import Diagnosis
from workbench.runs.failures import Failure
from workbench.runs.run import Run
from workbench.workspace import read_object, step_folders

BLUE, AMBER, GREEN, RED, GREY = "#2f6fd0", "#b26a00", "#2e7d32", "#c62828", "#6b7688"
COLOURS = {
    State.RUNNING: BLUE, State.STARTING: BLUE, State.PAUSED: AMBER, State.STOPPING: AMBER,
    State.FINISHED: GREEN, State.STOPPED: AMBER, State.FAILED: RED, State.DIED: RED,
}  # fmt: skip
MOST_SCALE = 1000  # of a LoRA: a larger one is no scale
CHART_WIDTH = 760  # pixels that the loss takes at most
NARROW = """
.chart svg { max-height: 300px; } .chart figcaption { line-height: 1.4; }
.overlaid { grid-template-columns: repeat(auto-fit, minmax(min(310px, 100%), 1fr)); }
"""  # a notebook's page has less room than the web app's
FIRST_STEP = "The curves begin with the first step."


def style() -> str:
    """What the charts of a panel need to be in the page; the same in every panel."""
    css = (ASSETS / "charts.css").read_text(encoding="utf-8")
    return f"<style>{css}{NARROW}</style>"


def head(name: str, status: jobs.Status, parent: Mapping[str, object], notes: str = "") -> str:
    """Name, state, what it does, of a fork where it began, and what else a person should know."""
    badge = f"background:{COLOURS.get(status.state, GREY)};color:#fff;border-radius:9px;padding:1px 9px"
    where = " · ".join(filter(None, [status.phase if status.state.alive else "", _progress(status)]))
    fork = f" · a fork of {parent['run']} at step {parent['step']}" if parent else ""
    return (
        f'<div style="line-height:1.8"><b>{escaped(name)}</b> <span style="{badge}">{status.state}</span> '
        f'<span style="opacity:.75">{escaped(where + fork)}</span>'
        + (f'<div style="opacity:.75">{escaped(notes)}</div>' if notes else "")
        + "</div>"
    )


def _progress(status: jobs.Status) -> str:
    words = f"{status.step} of {status.total}" if status.total else ""
    if status.state is State.RUNNING and status.seconds_left is not None:
        words += f", about {jobs.duration(status.seconds_left)} left"
    if status.hanging:
        words += f", silent for {jobs.duration(status.silent_seconds)}"
    return words


def verdict_box(verdict: Diagnosis) -> str:
    """Whether it learns, in a sentence, and what to do next."""
    colour = {"good": GREEN, "bad": RED, "plain": GREY}[verdict.tone]
    return _box(colour, f"<b>{escaped(verdict.sentence)}</b><br>{escaped(verdict.advice)}")


def _box(colour: str, content: str) -> str:
    looks = f"border-left:4px solid {colour};background:rgba(127,127,127,.1);border-radius:4px;padding:6px 12px"
    return f'<div style="{looks};line-height:1.5;max-width:{CHART_WIDTH}px;overflow-wrap:anywhere">{content}</div>'


def card_box(card: Failure) -> str:
    """Why a run failed and what helps; its buttons are widgets."""
    text = "".join(f"<div>{escaped(each)}</div>" for each in card.sentences)
    log = f"<details><summary>The log's last lines</summary><pre>{escaped(card.tail)}</pre></details>"
    return _box(RED, f"<b>{escaped(card.cause)}</b>{text}{log}")


def numbers(curves: Curves) -> str:
    """The newest of everything, in a line."""
    last, held = curves.last, curves.held_out
    words = []
    if curves.smoothed is not None:
        words.append(f"loss {last['loss']:.4f}, smoothed {curves.smoothed:.4f}")
    if held:
        first, newest = min(held), max(held)
        was = f", was {held[first]:.4f} at step {first}" if first != newest else ""
        words.append(f"held-out loss {held[newest]:.4f}{was}")
    if curves.changes:
        own, others = list(curves.changes.values())[-1]
        words.append(f"output changed by {own:.1%} on its own captions, by {others:.1%} on others")
    if "lr" in last:
        words.append(f"learning rate {last['lr']:.3g}")
    if "seconds" in last:
        words.append(f"{last['seconds']:.3g} s a step")
    if last.get("memory_gb"):
        words.append(f"{last['memory_gb']:.1f} GB")
    return note(" · ".join(words)) if words else ""


# ---- curves


def loss_chart(curves: Curves, best: int | None) -> str:
    """The loss that can be read, smoothed and without the luck of the draw, with that of held-out clips."""
    drawn = curve_charts.loss(curves, best)
    return f'<div style="max-width:{CHART_WIDTH}px">{drawn}</div>' if drawn else note(FIRST_STEP)


def more_charts(curves: Curves) -> str:
    """The prior drift, the loss by timestep, the loss per step, the learning rate."""
    bands = curve_charts.bands(curves)
    others = curve_charts.changes(curves) + curve_charts.loss_per_step(curves) + curve_charts.learning_rate(curves)
    return f'<div class="overlaid">{others}</div>{bands}' if others or bands else note(FIRST_STEP)


# ---- previews


def previews(run: Run, width: int | None) -> str:
    """Prompts by steps, then the newest ones at other strengths of the LoRA."""
    return preview_table(run.previews, source_width=width) + _scales(run.folder, width)


def preview_files(folder: Path) -> list[str]:
    """What tells whether previews must be drawn anew: the names of all that there are."""
    return sorted(str(path.relative_to(folder)) for path in folder.glob("previews/step-*/*.mp4"))


def _scales(folder: Path, width: int | None) -> str:
    """The newest previews that were drawn at other strengths: a row a prompt, the weakest first."""
    steps = [step for step, place in step_folders(folder / "previews").items() if any(place.glob("*-scale-*.mp4"))]
    if not steps:
        return ""
    newest = step_folders(folder / "previews")[steps[-1]]
    cells: dict[str, dict[float, Path]] = {}
    for path in sorted(newest.glob("*.mp4")):
        if path.stem.partition("-scale-")[0].isdecimal() and path.with_suffix(".json").exists():
            record = read_object(path.with_suffix(".json"))
            scale = record.get("scale", 1.0)
            if isinstance(scale, int | float) and abs(scale) < MOST_SCALE:
                cells.setdefault(str(record.get("prompt", "")), {})[scale] = path
    rows = "".join(
        f'<div style="margin:6px 0">{escaped(prompt)}'
        + row([_titled(video(path, 144, width), f"LoRA at {scale:g}") for scale, path in sorted(by_scale.items())])
        + "</div>"
        for prompt, by_scale in cells.items()
        if len(by_scale) > 1
    )
    return f"<b>Step {steps[-1]} at other strengths</b>{rows}"


def _titled(content: str, title: str) -> str:
    return f'<div style="margin:0 12px 8px 0"><span style="opacity:.7">{escaped(title)}</span>{content}</div>'


def inputs(folder: Path, width: int | None) -> str:
    """Clips as the model is shown them, each beside what its video encoder keeps of it."""
    parts = []
    for shown in sorted(folder.glob("previews/step-00000000/input-*.mp4")):
        kept = shown.with_name(shown.name.replace("input-", "reconstruction-"))
        record = read_object(shown.with_suffix(".json"))
        pair = [_titled(video(shown, 144, width), "as the model is shown it")]
        pair += [_titled(video(kept, 144, width), "what the encoder keeps")] if kept.exists() else []
        parts.append(f"<div>{escaped(record.get('prompt', ''))}{row(pair)}</div>")
    return "".join(parts) or note("This run has not shown what goes in.")


# ---- checkpoints


def checkpoints(run: Run, curves: Curves, best: int | None, going: Sequence[int]) -> str:
    """A row a checkpoint: its held-out loss, whether it is the best, starred, or will go."""
    starred, rows = retention.starred(run.folder), []
    for step in run.checkpoints:
        facts = (("best", step == best), ("starred", step in starred), ("goes when the next is saved", step in going))
        held = curves.held_out.get(step)
        rows.append((step, f"{held:.4f}" if held is not None else "", ", ".join(word for word, true in facts if true)))
    return table(("step", "held-out loss", ""), rows) if rows else note("No checkpoint was written yet.")


# ---- several runs


def comparison(made: Comparison, width: int | None) -> str:
    """Curves over one another, what came of each, the settings that differ, previews of the same prompts."""
    heads = ["", *made.names]
    parts = [f'<div class="overlaid">{"".join(made.charts())}</div>' if made.runs else note("Choose some runs.")]
    parts.append(table(heads, [[name, *values] for name, values in made.results]) if made.results else "")
    if made.settings:
        parts.append(f"<b>Settings that differ</b>{table(heads, [[name, *values] for name, values in made.settings])}")
    for prompt, several in made.previews:
        shown = zip(("base model", *made.names), several, strict=True)
        videos = row([_titled(video(one.video, 144, width), name) for name, one in shown if one])
        parts.append(f'<div style="margin:8px 0"><b>{escaped(prompt)}</b>{videos}</div>')
    return "".join(parts)

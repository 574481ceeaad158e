"""What the elements of a run show, as plain data: its videos by prompt and step, and its curves, ready to draw.

The page polls them through operations; a report stores them. No torch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from workbench.families import known_model
from workbench.runs.analysis.best_point import Forecast
from workbench.runs.analysis.curves import BANDS, NO_CURVES, Curves, smoothed
from workbench.runs.previews import Preview
from workbench.runs.snapshot import RunSnapshot

DIGITS = 5  # significant digits of a curve's points

# ---- videos


def videos(now: RunSnapshot) -> dict[str, Any]:
    """Return the paths of a run's videos, in the form of the operation `progress/previews`."""
    found, settings = now.previews, now.settings
    every = settings.preview_every if settings else 0
    steps = sorted({*found.steps, *(one.step for one in found.controls)})
    rows = [_row(prompt, [found.at(index, step) for step in steps]) for index, prompt in found.prompts.items()]
    controls = {(one.index, one.step): one for one in found.controls}
    for index in sorted({index for index, _ in controls}):
        prompt = next(one.prompt for (number, _), one in controls.items() if number == index)
        every_step = [controls.get((index, step)) for step in steps]
        rows.append({**_row(prompt, every_step), "control": True, "sample": None, "told": ""})
    last = now.status.total or (settings.steps if settings else 0)
    coming: list[int] = []
    if every and now.status.state.alive and now.headline in ("running", "paused", "starting"):
        first = (now.step // every + 1) * every
        coming = [step for step in (min(first, last), min(first + every, last)) if step not in steps]
    known = known_model(settings.model) if settings else None
    model = known.model if known else None
    return {
        "width": now.width,
        "height": (settings.height or (model.height if model else 0)) if settings else 0,
        "frames": (settings.preview_frames or settings.frames or (model.frames if model else 0)) if settings else 0,
        "steps": tuple(steps),
        "rows": tuple(rows),
        "scaled": _scaled(found.by_scale),
        "live": tuple(
            {"prompt": one.prompt, "facts": ", ".join(one.facts), "video": str(one.video)} for one in found.live
        ),
        "inputs": tuple(
            {
                "caption": one.caption,
                "clip": str(one.clip),
                "reconstruction": str(one.reconstruction) if one.reconstruction else None,
            }
            for one in found.inputs
        ),
        "note": now.preview_note,
        "every": every,
        "last": last,
        "coming": tuple(dict.fromkeys(coming)),
    }


def _row(prompt: str, every_step: Sequence[Preview | None]) -> dict[str, Any]:
    made = [one for one in every_step if one]
    return {
        "prompt": prompt,
        "control": False,
        "videos": [one and str(one.video) for one in every_step],
        "sample": next((str(one.video) for one in reversed(made) if one.record.get("settings")), None),
        "told": next((str(one.record["told"]) for one in made if one.record.get("told")), ""),
    }


def _scaled(rows: Sequence[Sequence[Preview]]) -> dict[str, Any] | None:
    if not rows:
        return None
    scales = sorted({one.scale for row in rows for one in row})
    videos = [{one.scale: str(one.video) for one in row} for row in rows]
    found = [
        {"prompt": row[0].prompt, "videos": list(map(at.get, scales))} for row, at in zip(rows, videos, strict=True)
    ]
    return {"step": rows[0][0].step, "scales": scales, "rows": found}


# ---- curves: charts with title, note, small and lines; lines with name, points, tone and style


Tone = Literal["accent", "accent-2", "text", "faint", "edge"]


def line(
    name: str, points: Sequence[tuple[float, float]], tone: Tone, style: str = "line", **more: Any
) -> dict[str, Any]:
    """Return a chart's line. `style`: "line", "thin" (may leave the chart above and below), "dots" or "dashed"."""
    kept = [(step, float(f"{value:.{DIGITS}g}")) for step, value in points]
    return {"name": name, "points": kept, "tone": tone, "style": style, **more}


def answered(operation: str, answer: dict[str, Any], **values: Any) -> tuple[str, dict[str, Any]]:
    """Return an operation's answer, keyed by the request that an element makes, for `display.elements.exported`."""
    return json.dumps([operation, values], separators=(",", ":"), ensure_ascii=False), answer


def drawn(found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return charts in the form of `progress/curves`: those that have a curve, or a note that there are none."""
    charts = [one for one in found if one["lines"]]
    return {"charts": charts, "note": "" if charts else NO_CURVES}


def chart(title: str, lines: Sequence[Mapping[str, Any]], note: str = "", **more: Any) -> dict[str, Any]:
    return {"title": title, "note": note, "lines": [one for one in lines if one["points"]], **more}


def main_charts(curves: Curves, best: int | None, forecast: Forecast | None = None) -> list[dict[str, Any]]:
    """Return the most important charts, some of them without lines.

    best: step of the best checkpoint;  forecast: of the best point, if the run looks for it
    """
    means = curves.detrended()
    raw = [(mean.step, mean.value) for mean in means] or curves.losses.points()
    held_out = curves.held_out_losses.points()
    marked = None
    if best is not None and len(held_out) > 2 and best in curves.held_out:
        marked = [best, f"best checkpoint, step {best}"]
    loss = [
        line("each step", raw, "edge", "thin"),
        line("smoothed", smoothed(means or curves.losses.means()), "faint"),
        line("held-out", held_out, "accent", "dots", marked=marked),
        line("held-out, outside the masks", curves.held_out_outside.points(), "accent-2", "dots"),
    ]
    change = [
        line("own captions", curves.own_changes.points(), "accent", "dots"),
        line("drift", curves.other_changes.points(), "faint", "dots"),
    ]
    note = "without the effect of the sampled noise levels" if means else ""
    sound = [
        line("smoothed", curves.sound_loss.smoothed(), "faint"),
        line("held-out", curves.held_out_sound.points(), "accent", "dots"),
    ]
    by_mask = [
        line("inside the masks", curves.visible_inside.points(), "accent", "dots"),
        line("outside the masks", curves.visible_outside.points(), "faint", "dots"),
    ]
    return [
        chart("Loss", loss, note),
        chart("Loss of the sound", sound),
        chart("Held-out loss by noise level", _noise_lines(curves)),
        chart("Change of the output", change),
        _best_point_chart(curves, forecast),
        chart("Visible effect on masked clips", by_mask, "levels of 255"),
    ]


def _best_point_chart(curves: Curves, forecast: Forecast | None) -> dict[str, Any]:
    """Return the chart of effect and drift, with the forecast up to the end of the best point's band."""
    effect = [(one.step, one.effect) for one in curves.points]
    drift = [(one.step, one.drift) for one in curves.points if one.drift is not None]
    marked = [forecast.step, f"best point, step {forecast.step}"] if forecast and forecast.reached else None
    lines = [line("effect", effect, "accent", "dots", marked=marked), line("drift", drift, "faint", "dots")]
    note = "1 is all the way from the base model's predictions to the clips"
    if forecast is not None and not forecast.reached:
        lines.append(line("gain, expected", forecast.curve, "accent-2", "dashed"))
        note = f"best point {forecast.words}"
    return chart("Effect and drift", lines, note)


def more_charts(curves: Curves) -> list[dict[str, Any]]:
    """Return the other charts: the loss by noise band, the learning rate, the raw loss of each step."""
    found = [
        chart(
            f"Noise {100 * band // BANDS} to {100 * (band + 1) // BANDS}%",
            [line("smoothed", training.smoothed(), "faint"), line("held-out", measured.points(), "accent", "dots")],
            small=True,
        )
        for band, (training, measured) in enumerate(zip(curves.bands, curves.held_out_bands, strict=True))
    ]
    found.append(chart("Learning rate", [line("learning rate", curves.rates.points(), "accent")]))
    if curves.detrended():
        steps = [
            line("each step", curves.losses.points(), "edge", "thin"),
            line("smoothed", curves.losses.smoothed(), "faint"),
        ]
        found.append(chart("Loss per step", steps, "with the effect of the sampled noise levels"))
    return found


def _noise_lines(curves: Curves) -> list[dict[str, Any]]:
    """Return the held-out loss at high, middle and low noise, each the mean over its bands."""
    points = [band.points() for band in curves.held_out_bands]
    parts: tuple[tuple[str, Tone, str, tuple[int, ...]], ...] = (
        ("high noise", "accent", "motion", (3, 4)),
        ("middle", "accent-2", "shapes", (2,)),
        ("low noise", "faint", "details", (0, 1)),
    )
    lines = []
    for name, tone, end, bands in parts:
        steps = [dict(points[band]) for band in bands]
        common = [step for step in steps[0] if all(step in one for one in steps)]
        means = [(step, sum(one[step] for one in steps) / len(steps)) for step in common]
        lines.append(line(name, means, tone, "dots", end=end))
    return lines


# With more runs than tones, dashes tell them apart.
TONES: tuple[Tone, ...] = ("accent", "accent-2", "text", "faint")


def compared_charts(runs: Sequence[tuple[str, Curves]]) -> list[dict[str, Any]]:
    """Return charts with the curves of several runs, by name."""
    detrended = all(one.detrended() for _, one in runs)  # the same for all, or they could not be compared
    kinds: tuple[tuple[str, Callable[[Curves], Sequence[tuple[float, float]]], str], ...] = (
        ("Held-out loss", lambda one: one.held_out_losses.points(), "dots"),
        ("Held-out loss of the sound", lambda one: one.held_out_sound.points(), "dots"),
        ("Held-out loss outside the masks", lambda one: one.held_out_outside.points(), "dots"),
        ("Visible effect inside the masks", lambda one: one.visible_inside.points(), "dots"),
        ("Visible effect outside the masks", lambda one: one.visible_outside.points(), "dots"),
        (
            "Training loss, smoothed",
            lambda one: smoothed(one.detrended()) if detrended else one.losses.smoothed(),
            "line",
        ),
        ("Change of the output on its own captions", lambda one: one.own_changes.points(), "dots"),
        ("Prior drift: change on preservation prompts", lambda one: one.other_changes.points(), "dots"),
        ("Learning rate", lambda one: one.rates.points(), "line"),
    )
    return [
        chart(
            title,
            [
                line(name, points_of(one), TONES[number % len(TONES)], style if number < len(TONES) else "dashed")
                for number, (name, one) in enumerate(runs)
            ],
        )
        for title, points_of, style in kinds
    ]

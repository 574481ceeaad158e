"""What commands print with --json, made from what is known."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from workbench import jobs
from workbench.fit.estimate import Fit
from workbench.runs.analysis.comparison import Comparison
from workbench.runs.listing import RunEntry, summary_of
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import read_object


def fit(found: Fit, settings: TrainSettings, warnings: list[str]) -> dict[str, Any]:
    phases = [
        {
            "name": one.name,
            "gb": one.gb,
            "fits": found.phase_fits(one),
            "measured": one.measured is not None,
            "parts": dict(one.parts),
        }
        for one in found.phases
    ]
    return {
        "fits": found.fits,
        "sentence": found.sentence,
        "advice": found.advice,
        "warnings": warnings,
        "gpu": asdict(found.gpu),
        "phases": phases,
        "host_gb": found.host_gb,
        "disk": dict(found.disk),
        "step_seconds": found.times.step,
        "seconds": found.times.total,
        "settings": settings.model_dump(mode="json", exclude_defaults=True),
    }


def run_line(run: Run, entry: RunEntry, activity: str, waiting: list[str]) -> dict[str, Any]:
    status = run.status
    summary = summary_of(run, not status.state.alive)
    config = read_object(run.folder / jobs.CONFIG)  # not checked: a run of another version still has a line
    return {
        "name": run.name,
        "state": status.state.value,
        "position": waiting.index(run.name) + 1 if run.name in waiting else None,
        "activity": activity,
        **asdict(summary),
        "steps": config.get("steps"),
        "dataset": config.get("dataset"),
        "model": config.get("model"),
        "started_at": status.started_at,
        "ended_at": entry.ended,
        "created_at": entry.created,
        "group": entry.group,
        "own_notes": entry.notes,
    }


def comparison(made: Comparison) -> dict[str, Any]:
    return {"names": made.names, "results": dict(made.results), "settings": dict(made.settings)}

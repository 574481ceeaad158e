"""`workbench dataset check|findings|fix|stats`: the dataset check, its fixes, and the dataset in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import click

from workbench import jobs
from workbench.cli import json_values
from workbench.cli.datasets.tasks import report_lines, run_task, task_flags, watch_task, with_dataset
from workbench.cli.options import SettingsCommand, detach_flag, json_flag, settings_flags, settings_from
from workbench.cli.printing import print_json, say, say_lines
from workbench.dataset_builder.checks.findings import FIXES, CheckReport, Fix
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.dataset_builder.checks.statistics import Histogram
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError, ExitCode

BAR = 40  # characters of the longest bar
MOST_ROWS = 12
FIX_NAMES = [fix.replace("_", "-") for fix in FIXES]


@click.command(cls=SettingsCommand)
@with_dataset
@settings_flags(CheckSettings)
@task_flags
@json_flag
def check(dataset: Dataset, config: tuple[Path, ...], detach: bool, as_json: bool, **flags: Any) -> int:
    """Look for what would stop or hurt a training."""
    settings = settings_from(CheckSettings, config, flags)
    if not as_json:
        return run_task(dataset, "check", settings, detach)
    if detach:
        raise ConfigError("--json prints what was found, --detach does not wait for it: give one of them")
    task = dataset.task("check")
    task.start(settings)
    status = jobs.wait(task.folder)
    if status.state is jobs.State.FINISHED:
        print_json(json_values.findings(dataset.name, _report(dataset)))
        return 0
    say(f"Error: {status.message or status.state.value}", err=True)
    return int(status.exit_code or ExitCode.BUG)


@click.command()
@with_dataset
@click.argument("kind", default="")
@json_flag
def findings(dataset: Dataset, kind: str, as_json: bool) -> None:
    """What the last check found, as far as it still holds.

    With a KIND: all findings of that kind.
    """
    report = _report(dataset)
    _known_kind(report, kind)
    if as_json:
        chosen = tuple(one for one in report.findings if kind in ("", one.kind))
        print_json(json_values.findings(dataset.name, replace(report, findings=chosen)))
        return
    for line in report_lines(dataset, report, kind, most=len(report.findings) if kind else 5):
        say(line)


@click.command()
@with_dataset
@click.argument("kind")
@click.argument("how", type=click.Choice(FIX_NAMES))
@click.argument("clips", nargs=-1)
@click.option("--preview", is_flag=True, help="Say what it would do, and change nothing.")
@detach_flag
def fix(dataset: Dataset, kind: str, how: str, clips: tuple[str, ...], preview: bool, detach: bool) -> int:
    """Fix every finding of a KIND, or those on CLIPS.

    It is one change, which `undo` takes back. Where clips are cut it is a task, which can be stopped and goes on.
    `findings` shows the kinds there are and the ways to fix each.
    """
    report = _report(dataset)
    _known_kind(report, kind)
    names = {dataset.clip(name).file_name for name in clips}
    chosen = [f for f in report.findings if f.kind == kind and (not names or names & set(f.clips))]
    if not chosen:
        raise ConfigError(f"the check found no {kind} on these clips: see workbench dataset findings {dataset.name}")
    way = cast(Fix, how.replace("-", "_"))
    if preview:
        say(dataset.preview_fix(chosen, way))
        return 0
    if done := dataset.start_fix(chosen, way):
        say(done)
        return 0
    return watch_task(dataset, "fix", detach=detach)


def _report(dataset: Dataset) -> CheckReport:
    if (report := dataset.report) is None:
        raise ConfigError(f"{dataset.name} was never checked: workbench dataset check {dataset.name}")
    return report


def _known_kind(report: CheckReport, kind: str) -> None:
    kinds = list(dict.fromkeys(finding.kind for finding in report.findings))
    if kind and kind not in kinds:
        raise ConfigError(f"the check found no {kind!r}: it found {', '.join(kinds) or 'nothing to fix'}")


# ---- numbers --------------------------------------------------------------------------------------------------------


@click.command()
@with_dataset
@json_flag
def stats(dataset: Dataset, as_json: bool) -> None:
    """The dataset in numbers: lengths, sizes, motion, words."""
    found = dataset.statistics
    if as_json:
        print_json(json_values.statistics(found))
        return
    say(f"{dataset.name}: {' '.join(found.notes)}")
    for histogram in found.histograms.values():
        _bars(f"{histogram.title} ({histogram.unit})", _ranges(histogram))
    for title, counts in found.counts.items():
        _bars(title, list(counts.items()))


def _ranges(histogram: Histogram) -> list[tuple[str, int]]:
    lower = histogram.edges[:-1]
    edges = zip(lower, histogram.edges[1:], histogram.counts, strict=True)
    return [(f"{low:g} to {high:g}", count) for low, high, count in edges]


def _bars(title: str, rows: Sequence[tuple[str, int]]) -> None:
    listed = rows if len(rows) <= MOST_ROWS or " to " in rows[0][0] else rows[:MOST_ROWS]
    if not listed:
        return
    say_lines(["", title])
    width = max(len(name) for name, _ in listed)
    top = max(count for _, count in listed) or 1
    for name, count in listed:
        say(f"  {name:>{width}}  {'#' * round(BAR * count / top)} {count}")

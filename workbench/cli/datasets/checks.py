"""`workbench dataset check|findings|fix|stats`: the dataset check, its fixes, and the dataset in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click

from workbench.cli.datasets import outcomes
from workbench.cli.datasets.tasks import run_task, started, task_flags, watch_task, with_dataset
from workbench.cli.options import SettingsCommand, settings_flags, settings_from
from workbench.dataset_builder.checks.findings import FIXES, CheckReport, Fix
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.dataset_builder.checks.statistics import Histogram
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError

BAR = 40  # characters of the longest bar
MOST_ROWS = 12
FIX_NAMES = [fix.replace("_", "-") for fix in FIXES]


@click.command(cls=SettingsCommand)
@with_dataset
@settings_flags(CheckSettings)
@task_flags
def check(dataset: Dataset, config: Path | None, detach: bool, **flags: Any) -> int:
    """Look for what would stop or hurt a training."""
    return run_task(dataset, "check", settings_from(CheckSettings, config, flags), detach)


@click.command()
@with_dataset
@click.argument("kind", default="")
def findings(dataset: Dataset, kind: str) -> None:
    """What the last check found, as far as it still holds.

    With a KIND: all findings of that kind.
    """
    report = _report(dataset)
    _known_kind(report, kind)
    for line in outcomes.report_lines(dataset, report, kind, most=len(report.findings) if kind else 5):
        click.echo(line)


@click.command()
@with_dataset
@click.argument("kind")
@click.argument("how", type=click.Choice(FIX_NAMES))
@click.argument("clips", nargs=-1)
@click.option("--detach", is_flag=True, help="Start it and return at once, where clips are cut.")
def fix(dataset: Dataset, kind: str, how: str, clips: tuple[str, ...], detach: bool) -> int:
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
    if done := dataset.start_fix(chosen, cast(Fix, how.replace("-", "_"))):
        click.echo(done)
        return 0
    return started(dataset, "fix") if detach else watch_task(dataset, "fix")


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
def stats(dataset: Dataset) -> None:
    """The dataset in numbers: lengths, sizes, motion, words."""
    found = dataset.statistics
    click.echo(f"{dataset.name}: {' '.join(found.notes)}")
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
    click.echo(f"\n{title}")
    width = max(len(name) for name, _ in listed)
    top = max(count for _, count in listed) or 1
    for name, count in listed:
        click.echo(f"  {name:>{width}}  {'#' * round(BAR * count / top)} {count}")

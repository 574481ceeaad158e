"""The import as a job: what its config.json names goes into the dataset (tasks, ingest)."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from workbench import jobs, policy
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.ingest.intake import import_files
from workbench.dataset_builder.ingest.results import OUTCOMES, SKIPPED, SKIPPED_NOTE, ImportResult
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.sources import own
from workbench.dataset_builder.sources.survey import Survey

MOST_PROBLEMS = 20  # sentences about captions that are missing, said again when the import is over
MOST_NAMED = 24  # files of each outcome that are named when the import is over; sources.jsonl has all of them
LONGEST_NOTE = 200  # characters


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Import the sources; killed half-way, it goes on where it was. Raises DataError, CannotWrite, jobs.Stop."""
    policy.inherit()
    settings = ImportSettings.load(config)
    if settings.trigger_word:
        Dataset(dataset).set_trigger_word(settings.trigger_word)
    results = _Results()
    began = time.monotonic()
    problems: list[str] = []
    job.outcome = {"counts": results.counts, "files": results.files, "problems": problems}

    def on_survey(surveyed: Survey) -> None:
        problems[:] = surveyed.problems[:MOST_PROBLEMS]
        for name in surveyed.skipped:
            results.add(name, SKIPPED, SKIPPED_NOTE)
        for name, reason in surveyed.not_read.items():
            results.add(name, "refused", reason)
        sys.stdout.write("".join(f"{sentence}\n" for sentence in surveyed.sentences))

    def on_progress(done: int, total: int, result: ImportResult | None) -> None:
        nonlocal began
        if result is not None:
            results.add(result.name, result.outcome, ", ".join(result.notes))
            sys.stdout.write(f"{result.sentence}\n")
        read = done - results.counts["known"]
        if not read:  # known files cost nothing, so they say nothing of the speed
            began = time.monotonic()
        seconds = (time.monotonic() - began) / read if read else None
        job.beat("import", done, total, step_seconds=seconds, message=result.sentence if result else "")
        job.check_stop(f"stopped after {done} of {total} files: start it again to go on")

    sources: list[Path | str] = list(settings.sources)
    if settings.hub_dataset:
        sources.append(_fetched(settings, config.parent, job))
    if settings.own_source.strip():
        sources.append(_made(settings, config.parent, job))
    import_files(
        dataset,
        sources,
        on_progress,
        settings.wanted_layout,
        settings.longest_side,
        settings.columns,
        on_survey,
        settings.rate_of_frames,
    )


class _Results:
    """What became of the files of one import: how many have each outcome, and the first of each by name."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys((*OUTCOMES, SKIPPED), 0)
        self.files: list[dict[str, str]] = []

    def add(self, name: str, outcome: str, note: str) -> None:
        self.counts[outcome] += 1
        if self.counts[outcome] <= MOST_NAMED:
            self.files.append({"name": name[-LONGEST_NOTE:], "outcome": outcome, "note": note[:LONGEST_NOTE]})


def _made(settings: ImportSettings, folder: Path, job: jobs.Job) -> Path:
    """The items of a source of the user's own, below the job's folder. Raises ConfigError, DataError, jobs.Stop."""

    def on_item(count: int) -> None:
        job.beat(f"reading {settings.own_source}", message=f"{count} items")
        job.check_stop(f"stopped after {count} items: start it again to go on")

    return own.fetch(settings.own_source, folder / "own", on_item)


def _fetched(settings: ImportSettings, folder: Path, job: jobs.Job) -> Path:
    """The Hub dataset's files below the job's folder. Raises ConfigError, ModelUnavailable, DataError, jobs.Stop."""
    from workbench.dataset_builder.sources import hub

    job.beat("looking at the Hub")
    remote = hub.inspect(settings.hub_dataset, settings.revision, settings.hub_config)
    sys.stdout.write(f"{remote.sentence}\n")
    began = time.monotonic()

    def on_file(done: int, total: int) -> None:
        job.beat("downloading", done, total, step_seconds=(time.monotonic() - began) / max(1, done))
        job.check_stop(f"stopped after {done} of {total} files: start it again to go on")

    return hub.fetch(remote, folder / "hub", on_file)

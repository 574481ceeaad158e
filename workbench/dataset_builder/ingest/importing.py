"""Import what a person gives into a dataset: find the files, judge each, keep pictures that came as first frames.

Not covered: how a file is judged (intake), what was given (sources.survey), the job (job).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from workbench.clips import media
from workbench.dataset_builder import history
from workbench.dataset_builder.ingest import first_frames
from workbench.dataset_builder.ingest.intake import Progress, ingest
from workbench.dataset_builder.ingest.results import ImportResult
from workbench.dataset_builder.sources.survey import USUAL, Survey, readable, survey
from workbench.dataset_builder.sources.tree import Columns
from workbench.errors import DataError


def import_files(
    dataset: Path,
    paths: Iterable[Path | str],
    on_progress: Progress = lambda *_: None,
    layout: str = "",
    longest_side: int | None = None,
    columns: Columns = USUAL,
    on_survey: Callable[[Survey], None] = lambda _: None,
) -> list[ImportResult]:
    """Take in videos, pictures, folders and archives of them, now; foreign files are only read in child processes.

    layout: the name of one to read everything as, "" to find it out; longest_side: larger pictures are scaled down to
    it; columns: what the columns of tables are called; on_survey: called with what is there before it is read.
    Raises DataError when no file is found or none can be used, ConfigError, CannotWrite.
    """
    given = [str(path) for path in paths]
    surveyed = readable(survey(given, layout, columns))
    on_survey(surveyed)
    sources = surveyed.sources
    if not sources:
        raise DataError(
            f"no videos in {', '.join(given) or 'an empty list'}: give {media.ENDINGS} files, pictures, or a zip or "
            "tar of them"
        )
    results = ingest(dataset, sources, on_progress, longest_side)
    count = len(sources)
    results = first_frames.take(dataset, sources, results, lambda: on_progress(count, count, None))
    new = sum(result.outcome in ("taken", "converted") for result in results)
    history.note(dataset, f"imported {new} of {len(results)} files", new)
    if not any(result.usable for result in results):
        raise DataError(f"none of the {len(results)} files can be used: {results[0].sentence}")
    return results

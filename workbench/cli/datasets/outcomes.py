"""What came of a task, as lines for the shell.

Not covered: watching it (tasks), what the numbers mean (the modules of workbench.dataset_builder).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Any

from workbench.dataset_builder.checks.findings import CheckReport
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.tasks import Name

MOST_OF_A_KIND = 20
Result = dict[str, Any]


def imported(dataset: Dataset, result: Result) -> Iterator[str]:
    words = {"taken": "taken", "converted": "converted", "known": "already here", "refused": "refused"}
    counts = result.get("counts", {})
    yield "imported: " + ", ".join(f"{counts[key]} {word}" for key, word in words.items() if counts.get(key))
    yield from result.get("problems", ())
    yield f"{dataset.name}: {dataset.summary.sentence}"
    yield f"train on it: workbench train --dataset {dataset.name}"


def split(dataset: Dataset, result: Result) -> Iterator[str]:
    preview = result.get("preview", False)
    for sentence, spans in zip(result.get("splits", ()), result.get("spans", ()), strict=True):
        yield sentence
        if preview:
            yield from (f"  {start:.2f} to {end:.2f} s" for start, end in spans)
    yield from result.get("failed", ())
    clips = result.get("clips", 0)
    were = "would be" if preview else "was" if clips == 1 else "were"
    yield f"{clips} clip{'' if clips == 1 else 's'} {were} cut into {result.get('parts', 0)}"


def checked(dataset: Dataset, result: Result) -> Iterator[str]:
    if (report := dataset.report) is not None:
        yield from report_lines(dataset, report)


def fixed(dataset: Dataset, result: Result) -> Iterator[str]:
    yield result.get("done", "")


def captioned(dataset: Dataset, result: Result) -> Iterator[str]:
    counts = result.get("counts", {})
    kept = f", {counts['kept']} had one by hand meanwhile" if counts.get("kept") else ""
    yield f"{counts.get('captioned', 0)} clips got a caption{kept}"
    yield from (f"{name}: no caption: {reason}" for name, reason in result.get("failed", {}).items())


def exported(dataset: Dataset, result: Result) -> Iterator[str]:
    if result.get("changed") is False:
        yield f"nothing has changed, so there is no new commit: {result.get('url')}"
    else:
        yield f"{result.get('clips', 0)} clips written: {result.get('url') or result.get('target')}"
    if left := result.get("left_behind"):
        yield left


SENTENCES: dict[Name, Callable[[Dataset, Result], Iterator[str]]] = {
    "import": imported,
    "split": split,
    "check": checked,
    "fix": fixed,
    "caption": captioned,
    "export": exported,
}


def report_lines(dataset: Dataset, report: CheckReport, kind: str = "", most: int = MOST_OF_A_KIND) -> Iterator[str]:
    """The findings by kind, the worst first, each kind with the commands that fix it; kind: that one alone."""
    yield f"{dataset.name}: {report.sentence}"
    chosen = [finding for finding in report.findings if kind in ("", finding.kind)]
    for (severity, one), group in groupby(chosen, key=lambda finding: (finding.severity, finding.kind)):
        findings = list(group)
        yield f"\n{one} ({len(findings)}, {severity.value}): {findings[0].title}"
        for finding in findings[:most]:
            names = ", ".join(finding.clips[:6]) + (" ..." if len(finding.clips) > 6 else "")
            yield f"  {finding.sentence}" + (f"  [{names}]" if names else "")
        if len(findings) > most:
            yield f"  ... all of them: workbench dataset findings {dataset.name} {one}"
        if fixes := [fix.replace("_", "-") for fix in findings[0].fixes]:
            yield f"  fix: workbench dataset fix {dataset.name} {one} {' | '.join(fixes)}"

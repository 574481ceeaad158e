"""What came of a task, as lines for the shell.

Not covered: watching it (tasks), what is said of it (workbench.dataset_builder.snapshot).
"""

from __future__ import annotations

from collections.abc import Iterator

from workbench.dataset_builder.checks.findings import CheckReport
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import task_snapshot
from workbench.dataset_builder.tasks import Name

MOST_OF_A_KIND = 20


def outcome_lines(dataset: Dataset, name: Name) -> Iterator[str]:
    """How a task that is over ended, with the commands that come next."""
    task = task_snapshot(dataset.task(name))
    yield from filter(None, (*task.details, task.sentence))
    if name == "import":
        yield f"{dataset.name}: {dataset.summary.sentence}"
        yield f"train on it: workbench train --dataset {dataset.name}"
    if name == "check" and (report := dataset.report) is not None:
        yield from report_lines(dataset, report)


def report_lines(dataset: Dataset, report: CheckReport, kind: str = "", most: int = MOST_OF_A_KIND) -> Iterator[str]:
    """The findings by kind, the worst first, each kind with the commands that fix it; kind: that one alone."""
    yield f"{dataset.name}: {report.sentence}"
    for group in report.groups:
        if kind not in ("", group.kind):
            continue
        yield f"\n{group.kind} ({len(group.findings)}, {group.severity.value}): {group.title}"
        for finding in group.findings[:most]:
            names = ", ".join(finding.clips[:6]) + (" ..." if len(finding.clips) > 6 else "")
            yield f"  {finding.sentence}" + (f"  [{names}]" if names else "")
        if len(group.findings) > most:
            yield f"  ... all of them: workbench dataset findings {dataset.name} {group.kind}"
        if group.fixes:
            ways = " | ".join(fix.replace("_", "-") for fix in group.fixes)
            yield f"  fix: workbench dataset fix {dataset.name} {group.kind} {ways}"

"""What the dataset check found, by kind: a component with a button that fixes one finding or all of a kind.

The browser's half is assets/findings.js. A fix takes two steps: `ways` says what each of them would do, `fix` does it
as one change of the dataset's history.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from workbench.clips.records import Clip
from workbench.dataset_builder.checks.findings import Finding, FindingGroup, Fix
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.history import thumbnail_name
from workbench.display import states
from workbench.display.quantities import counted
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.ui.core.widgets import component
from workbench.workspace import Workspace

MOST_OF_A_KIND, MOST_PICTURES = 40, 6
NOTHING = (
    "Near-duplicates, cuts left inside clips, black bars, blur, captions that are missing or too long: press Check to "
    "find them."
)


class Chosen(BaseModel):
    """Findings of a dataset: all of a kind with that title, or the one of that id."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    kind: str
    title: str
    finding: str = Field(default="", max_length=32)


class ChosenFix(Chosen):
    """The same, and what to do about them."""

    fix: Fix


class FindingsList:
    """Builds the component. Its event `changed` says that something was fixed, or that a task has begun to."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.component = component(
            "findings",
            {"dataset": "", "groups": []},
            render.script("findings"),
            functions=[answering("fix_ways", Chosen, self.ways), answering("fix", ChosenFix, self.fix)],
        )

    @staticmethod
    def value(dataset: Dataset) -> dict[str, Any]:
        """The component's value: the report in a sentence, and its findings by kind, the worst first."""
        report = dataset.report
        clips = {clip.file_name: clip for clip in dataset.clips}
        found = report.groups if report else ()
        return {
            "dataset": dataset.name,
            "sentence": report.sentence if report else NOTHING,
            "tone": "empty" if report is None else "plain" if report.findings else "good",
            "groups": [_group(dataset, group, clips) for group in found],
        }

    # ---- what the browser asks for

    def ways(self, chosen: Chosen) -> dict[str, Any]:
        """Each fix that fits these findings, the best first, with what it would do."""
        dataset, found = self._found(chosen)
        return {"ways": [{"fix": fix, "does": dataset.preview_fix(found, fix)} for fix in found[0].fixes]}

    def fix(self, chosen: ChosenFix) -> dict[str, Any]:
        """Fix these findings: {"done": what was done}, "" while a task does it."""
        dataset, found = self._found(chosen)
        return {"done": dataset.start_fix(found, chosen.fix)}

    def _found(self, chosen: Chosen) -> tuple[Dataset, list[Finding]]:
        dataset = Dataset.open(self.workspace, chosen.dataset)
        groups = report.groups if (report := dataset.report) else []
        alike = [group for group in groups if (group.kind, group.title) == (chosen.kind, chosen.title)]
        same = [one for group in alike for one in group.findings]
        found = [one for one in same if chosen.finding in ("", one.id)]
        if not found:
            raise ConfigError("this was fixed or changed meanwhile: press Check to look again")
        return dataset, found


def _group(dataset: Dataset, group: FindingGroup, clips: dict[str, Clip]) -> dict[str, Any]:
    return {
        "kind": group.kind,
        "title": group.title,
        "severity": group.severity.value,
        "icon": states.icon_path("", group.severity.tone),
        "tone": group.severity.tone,
        "count": len(group.findings),
        "counted": counted(len(group.findings), "finding"),
        "fixable": bool(group.fixes),
        "findings": [_finding(dataset, one, clips) for one in group.findings[:MOST_OF_A_KIND]],
    }


def _finding(dataset: Dataset, finding: Finding, clips: dict[str, Clip]) -> dict[str, Any]:
    pictured = [clips[name] for name in finding.clips[:MOST_PICTURES] if name in clips]
    files = [(dataset.folder / thumbnail_name(clip), clip.name) for clip in pictured]
    pictures = [{"url": render.url(file), "name": name} for file, name in files if file.exists()]
    return {"id": finding.id, "sentence": finding.sentence, "pictures": pictures}

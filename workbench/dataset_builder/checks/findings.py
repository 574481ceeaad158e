"""What the dataset check found: plain data on disk, shown only as long as it is true.

    .check/findings.json    {checked_at, model, clips, findings}: written whole by each check

A finding keeps the content of each clip it was found on (its pictures' sha256, or its caption's hash): once one of its
clips changed, the finding is out of date and no longer shown. Not covered: finding (dataset_check), fixing (fixes).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from workbench import html, inline_html
from workbench.clips.records import Clip, DatasetInfo, read_clips, read_info
from workbench.dataset_builder.checks.measures import FOLDER
from workbench.workspace import read_json, write_json

FILE = "findings.json"
MOST_ROWS = 200  # of one kind, in a notebook
Fix = Literal[
    "remove", "keep_best", "split_at_cuts", "keep_longest_shot", "crop_bars", "shorten_caption", "add_trigger", "tag"
]
FIXES: dict[Fix, str] = {
    "remove": "Remove",
    "keep_best": "Keep the best one",
    "split_at_cuts": "Split at the cuts",
    "keep_longest_shot": "Keep the longest shot",
    "crop_bars": "Crop the bars",
    "shorten_caption": "Shorten the caption",
    "add_trigger": "Add the trigger word",
    "tag": "Tag for later",
}


class Severity(StrEnum):
    """How bad it is, the worst first."""

    STOPS = "stops the training"
    HURTS = "hurts it"
    LOOK = "worth a look"


COLOURS = {Severity.STOPS: inline_html.RED, Severity.HURTS: inline_html.AMBER, Severity.LOOK: inline_html.GREY}


class Finding(BaseModel):
    """One thing that the dataset check found.

    kind, title: which check, and what it found in plain words;  sentence: that with its numbers
    clips:    file names it is about; none where it is about the check itself
    pictures: file name -> sha256 and captions: file name -> `caption_hash`, as they were when it was found
    fixes:    what could be done, the best first;  values: what the fixes need to know, by their own names
    """

    model_config = ConfigDict(frozen=True)

    kind: str
    title: str
    sentence: str
    severity: Severity
    clips: tuple[str, ...] = ()
    pictures: dict[str, str] = {}
    captions: dict[str, str] = {}
    fixes: tuple[Fix, ...] = ()
    values: dict[str, Any] = {}

    @property
    def id(self) -> str:
        """The same for the same finding on the same clips."""
        return hashlib.sha256("\n".join((self.kind, *self.clips)).encode()).hexdigest()[:16]

    @property
    def buttons(self) -> dict[Fix, str]:
        """Fix -> words for its button."""
        return {fix: FIXES[fix] for fix in self.fixes}


@dataclass(frozen=True)
class FindingGroup:
    """All findings of one kind."""

    severity: Severity
    kind: str
    findings: tuple[Finding, ...]

    @property
    def title(self) -> str:
        return self.findings[0].title

    @property
    def fixes(self) -> list[Fix]:
        """The fixes that fit all of them, the best first."""
        return common_fixes(self.findings)


def common_fixes(findings: Sequence[Finding]) -> list[Fix]:
    """The fixes that fit all of these findings, the best first."""
    first = findings[0].fixes if findings else ()
    return [fix for fix in first if all(fix in other.fixes for other in findings)]


@dataclass(frozen=True)
class CheckReport:
    """The last check, as far as it still holds.

    clips: how many were checked;  outdated: findings left out because a clip changed since
    new_clips: clips of the dataset that came or changed since, so that nothing is known of them
    """

    checked_at: float
    model: str
    clips: int
    findings: tuple[Finding, ...]
    outdated: int
    new_clips: int

    @property
    def groups(self) -> list[FindingGroup]:
        """The findings by kind, the worst first."""
        kinds = groupby(self.findings, key=lambda one: (one.severity, one.kind))
        return [FindingGroup(severity, kind, tuple(found)) for (severity, kind), found in kinds]

    @property
    def sentence(self) -> str:
        """The outcome in words."""
        counts = [(severity, sum(f.severity == severity for f in self.findings)) for severity in Severity]
        found = ", ".join(f"{count} {severity}" for severity, count in counts if count)
        since = f"; {self.new_clips} clips came or changed since: check again" if self.new_clips else ""
        return f"{self.clips} clips checked: {found or 'nothing to fix'}{since}"

    def _repr_html_(self) -> str:
        """The findings by kind, the worst first, with the fixes of each."""
        parts = [inline_html.note(self.sentence, "plain" if self.findings else "good")]
        for group in self.groups:
            rows = [(finding.sentence, ", ".join(finding.buttons.values())) for finding in group.findings]
            badge = inline_html.badge(str(group.severity), COLOURS[group.severity])
            parts.append(f"<div>{badge} <b>{html.escaped(group.title)}</b> ({len(rows):,})</div>")
            parts.append(inline_html.table(("finding", "fixes"), rows[:MOST_ROWS]))
        return "".join(parts)


def picture_finding(
    kind: str,
    title: str,
    sentence: str,
    severity: Severity,
    clips: Sequence[Clip],
    fixes: Sequence[Fix] = (),
    **values: Any,
) -> Finding:
    """A finding that is true of these clips' pictures."""
    return Finding(
        kind=kind,
        title=title,
        sentence=sentence,
        severity=severity,
        clips=tuple(clip.file_name for clip in clips),
        pictures={clip.file_name: clip.sha256 for clip in clips},
        fixes=tuple(fixes),
        values=values,
    )


def caption_finding(
    kind: str,
    title: str,
    sentence: str,
    severity: Severity,
    clips: Sequence[Clip],
    info: DatasetInfo,
    fixes: Sequence[Fix] = (),
    **values: Any,
) -> Finding:
    """A finding that is true of these clips' captions, as the model is taught them."""
    return Finding(
        kind=kind,
        title=title,
        sentence=sentence,
        severity=severity,
        clips=tuple(clip.file_name for clip in clips),
        captions={clip.file_name: caption_hash(clip, info) for clip in clips},
        fixes=tuple(fixes),
        values=values,
    )


def caption_hash(clip: Clip, info: DatasetInfo) -> str:
    """Stands for a caption as written and as taught, the trigger word included."""
    return hashlib.sha256(f"{clip.text}\n{info.caption(clip)}".encode()).hexdigest()[:16]


def write_report(dataset: Path, checked_at: float, model: str, clips: Sequence[Clip], found: Sequence[Finding]) -> None:
    """Replace the findings, the worst first. Raises CannotWrite."""
    order = list(Severity)
    write_json(
        dataset / FOLDER / FILE,
        {
            "checked_at": checked_at,
            "model": model,
            "clips": {clip.file_name: clip.sha256 for clip in clips},
            "findings": [f.model_dump(mode="json") for f in sorted(found, key=lambda f: order.index(f.severity))],
        },
    )


def read_report(dataset: Path) -> CheckReport | None:
    """The last check; None when there was none. Raises ConfigError when its file is broken."""
    path = dataset / FOLDER / FILE
    if not path.exists():
        return None
    kept, info = read_json(path), read_info(dataset)
    clips = {clip.file_name: clip for clip in read_clips(dataset)}
    every = [Finding.model_validate(one) for one in kept["findings"]]
    true = tuple(finding for finding in every if _holds(finding, clips, info))
    return CheckReport(
        checked_at=kept["checked_at"],
        model=kept["model"],
        clips=len(kept["clips"]),
        findings=true,
        outdated=len(every) - len(true),
        new_clips=sum(kept["clips"].get(name) != clip.sha256 for name, clip in clips.items()),
    )


def read_findings(dataset: Path) -> list[Finding]:
    """What was found and still holds, the worst first; none when no check was made. Raises ConfigError."""
    report = read_report(dataset)
    return list(report.findings) if report else []


def _holds(finding: Finding, clips: dict[str, Clip], info: DatasetInfo) -> bool:
    return all(name in clips for name in finding.clips) and (
        all(clips[name].sha256 == sha256 for name, sha256 in finding.pictures.items())
        and all(caption_hash(clips[name], info) == known for name, known in finding.captions.items())
    )

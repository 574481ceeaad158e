"""Findings of the dataset check, as plain data on disk.

    .check/findings.json    {checked_at, model, clips, findings}: rewritten by each check

A finding stores hashes of its clips (the pictures' sha256, or the caption's hash). Once one of its clips changes, the
finding is out of date and no longer shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench.clips.records import Clip, DatasetInfo, Number, known_info, read_clips
from workbench.dataset_builder.checks.measures import FOLDER
from workbench.display import inline_html
from workbench.display.quantities import Tone
from workbench.errors import ConfigError
from workbench.workspace import read_json, write_json

FILE = "findings.json"
MOST_ROWS = 200  # per kind, in a notebook
Fix = Literal[
    "remove",
    "keep_best",
    "split_at_cuts",
    "keep_longest_shot",
    "crop_bars",
    "shorten_caption",
    "add_trigger",
    "fit_beside",
    "invert_mask",
    "detach",
    "match_loudness",
    "quote_speech",
    "tag",
]
WORDS: dict[Fix, tuple[str, str, str, str]] = {  # the button; the verb before and after, and its object
    "remove": ("Remove", "Remove", "Removed", "{clips}"),
    "keep_best": ("Keep the best one", "Remove", "Removed", "{clips} with a better copy"),
    "split_at_cuts": ("Split at the cuts", "Split", "Split", "{clips} into {parts}"),
    "keep_longest_shot": ("Keep the longest shot", "Keep", "Kept", "the longest shot of {clips}"),
    "crop_bars": ("Crop the bars", "Crop", "Cropped", "the bars of {clips}"),
    "shorten_caption": ("Shorten the caption", "Shorten", "Shortened", "the captions of {clips} to the model's limit"),
    "add_trigger": ("Add the trigger word", "Add", "Added", "{trigger!r} to the captions of {clips}"),
    "fit_beside": ("Fit it to the clip", "Cut", "Cut", "the companion files of {clips} to match in length and size"),
    "invert_mask": ("Invert the mask", "Invert", "Inverted", "the masks of {clips}"),
    "detach": ("Detach it", "Detach", "Detached", "companion files from {clips}"),
    "match_loudness": ("Match loudness", "Match", "Matched", "the loudness of {clips}"),
    "quote_speech": ("Quote what is said", "Quote", "Quoted", "what is said in {clips}"),
    "tag": ("Tag for later", "Tag", "Tagged", "{clips} for later"),
}
FIXES = {fix: words[0] for fix, words in WORDS.items()}


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    STOPS = "stops the training"
    HURTS = "hurts it"
    LOOK = "worth a look"

    @property
    def tone(self) -> Tone:
        """The tone, for color and icon."""
        tones: dict[Severity, Tone] = {Severity.STOPS: "bad", Severity.HURTS: "warn", Severity.LOOK: "idle"}
        return tones[self]


class Kind(NamedTuple):
    """What all findings of a kind share. fixes: the best first."""

    title: str
    severity: Severity
    fixes: tuple[Fix, ...] = ("remove", "tag")


KINDS = {
    "damaged": Kind("Cannot be read", Severity.STOPS, ("remove",)),
    "letterbox": Kind("Black bars", Severity.HURTS, ("crop_bars", "remove", "tag")),
    "text": Kind("Text in the picture", Severity.HURTS),
    "text_unknown": Kind("Text not checked", Severity.LOOK, ()),
    "blur": Kind("Blurred", Severity.HURTS),
    "still": Kind("No motion", Severity.HURTS),
    "shake": Kind("Shaky", Severity.LOOK),
    "flashes": Kind("Flashes", Severity.LOOK),
    "cuts": Kind("Cuts inside the clip", Severity.HURTS, ("split_at_cuts", "keep_longest_shot", "remove", "tag")),
    "near_duplicates": Kind("Near-duplicates", Severity.HURTS, ("keep_best", "remove", "tag")),
    "sound_damaged": Kind("Sound cannot be read", Severity.LOOK),
    "sound_silent": Kind("Silent sound track", Severity.LOOK),
    "sound_quiet": Kind("Very quiet sound", Severity.LOOK),
    "sound_level": Kind("Louder or softer than most", Severity.LOOK, ("match_loudness", "remove", "tag")),
    "sound_clipped": Kind("Distorted sound", Severity.LOOK),
    "sound_short": Kind("Sound shorter than the picture", Severity.LOOK),
    "speech_unsaid": Kind("Speech that its caption leaves out", Severity.LOOK, ("quote_speech", "tag")),
    "sound_missing": Kind("No sound, unlike most clips", Severity.LOOK),
    "sound_removed": Kind("Imported without its sound", Severity.LOOK, ("tag",)),
    "left_out": Kind("Left out by the model", Severity.HURTS),
    "fits_badly": Kind("Poor fit for the model", Severity.LOOK),
    "images": Kind("Images among videos", Severity.LOOK),
    "beside_missing": Kind("Companion file missing", Severity.HURTS, ("detach", "remove", "tag")),
    "beside_damaged": Kind("Companion file unreadable", Severity.HURTS, ("detach", "remove", "tag")),
    "beside_short": Kind("Shorter than its clip", Severity.HURTS, ("detach", "remove", "tag")),
    "beside_long": Kind("Longer than its clip", Severity.HURTS, ("fit_beside", "detach", "remove", "tag")),
    "beside_size": Kind("Different size from its clip", Severity.HURTS, ("fit_beside", "detach", "remove", "tag")),
    "beside_motion": Kind("Control clip of another clip", Severity.HURTS, ("detach", "remove", "tag")),
    "mask_empty": Kind("Mask that marks nothing", Severity.HURTS, ("invert_mask", "detach", "remove", "tag")),
    "mask_full": Kind("Mask that marks everything", Severity.LOOK, ("detach", "invert_mask", "tag")),
    "mask_gaps": Kind("Frames where a mask marks nothing", Severity.LOOK, ("detach", "tag")),
    "no_caption": Kind("No caption", Severity.HURTS, ("tag", "remove")),
    "short_caption": Kind("Very short caption", Severity.LOOK, ("tag",)),
    "same_caption": Kind("Identical captions", Severity.LOOK, ("tag",)),
    "long_caption": Kind("Caption too long for the model", Severity.HURTS, ("shorten_caption", "tag")),
    "trigger_unread": Kind("Trigger word beyond the model's limit", Severity.HURTS, ("shorten_caption", "tag")),
    "tokens_unknown": Kind("Caption lengths not checked", Severity.LOOK, ()),
    "trigger": Kind("Trigger word in some captions only", Severity.LOOK, ("add_trigger", "tag")),
}


class Finding(BaseModel):
    """A finding of the dataset check.

    kind, title: a key of KINDS, and its meaning in words.
    clips: file names of its clips; () if it is about the check itself.
    pictures: file name -> sha256 at the time of the check.
    captions: file name -> `caption_hash` at the time of the check.
    fixes: possible fixes, the best first.
    values: data for the fixes.
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
        """A hash that is equal for the same finding on the same clips."""
        beside = [self.values["beside"]] if "beside" in self.values else []
        return hashlib.sha256("\n".join((self.kind, *self.clips, *beside)).encode()).hexdigest()[:16]

    @property
    def holds_beside(self) -> tuple[str, str] | None:
        """The companion (kind, file name) that the finding is about, or None."""
        return (self.values["kind"], self.values["beside"]) if "beside" in self.values else None

    @property
    def buttons(self) -> dict[Fix, str]:
        return {fix: FIXES[fix] for fix in self.fixes}


class FindingGroup(NamedTuple):
    """All findings of one kind."""

    severity: Severity
    kind: str
    title: str
    findings: tuple[Finding, ...]

    @property
    def fixes(self) -> tuple[Fix, ...]:
        return self.findings[0].fixes


@dataclass(frozen=True)
class CheckReport:
    """The findings of the last check that still apply.

    clips: number of clips that were checked.
    new_clips: number of clips that were added or changed since, which are not checked.
    """

    checked_at: float
    model: str
    clips: int
    findings: tuple[Finding, ...]
    new_clips: int

    @property
    def groups(self) -> list[FindingGroup]:
        """The findings by kind, the worst first."""
        kinds = groupby(self.findings, key=lambda one: (one.severity, one.kind, one.title))
        return [FindingGroup(*about, tuple(found)) for about, found in kinds]

    @property
    def sentence(self) -> str:
        counts = [(severity, sum(f.severity == severity for f in self.findings)) for severity in Severity]
        found = ", ".join(f"{count} {severity}" for severity, count in counts if count)
        since = f"; {self.new_clips} clips were added or changed since: check again" if self.new_clips else ""
        return f"{self.clips} clips checked: {found or 'nothing to fix'}{since}"

    def _repr_html_(self) -> str:
        """Show the findings by kind, the worst first, with the fixes of each."""
        parts = [inline_html.note(self.sentence, "plain" if self.findings else "good")]
        for group in self.groups:
            rows = [(finding.sentence, ", ".join(finding.buttons.values())) for finding in group.findings]
            badge = inline_html.badge(group.severity.value, group.severity.tone)
            parts.append(f"<div>{badge} <b>{inline_html.escaped(group.title)}</b> ({len(rows):,})</div>")
            parts.append(inline_html.table(("finding", "fixes"), rows[:MOST_ROWS]))
        return "".join(parts)


def finding_of(
    kind: str,
    sentence: str,
    clips: Sequence[Clip] = (),
    info: DatasetInfo | None = None,
    title: str = "",
    severity: Severity | None = None,
    about: Mapping[str, str] = {},
    more: tuple[Fix, ...] = (),
    **values: Any,
) -> Finding:
    """Create a finding about clips' pictures, or about their captions if `info` is given.

    kind: a key of KINDS; title and severity override its own.
    about: for a companion, its kind and file name (`beside`). values: data for the fixes. more: fixes before the usual.
    """
    usual = KINDS[kind]
    return Finding(
        kind=kind,
        title=title or usual.title,
        sentence=sentence,
        severity=severity or usual.severity,
        clips=tuple(clip.file_name for clip in clips),
        pictures={} if info else {clip.file_name: clip.sha256 for clip in clips},
        captions={clip.file_name: caption_hash(clip, info) for clip in clips} if info else {},
        fixes=(*more, *usual.fixes),
        values={**values, **about},
    )


def caption_hash(clip: Clip, info: DatasetInfo) -> str:
    """Hash a caption, both as written and as trained with the trigger word."""
    return hashlib.sha256(f"{clip.text}\n{info.caption(clip)}".encode()).hexdigest()[:16]


class _Report(BaseModel):
    """findings.json."""

    checked_at: Number
    model: str
    clips: dict[str, str]
    findings: list[Finding]


def write_report(dataset: Path, checked_at: float, model: str, clips: Sequence[Clip], found: Sequence[Finding]) -> None:
    """Replace the findings, sorted by severity and kind. Raises CannotWrite."""
    severities, kinds = list(Severity), list(KINDS)
    ordered = sorted(found, key=lambda one: (severities.index(one.severity), kinds.index(one.kind)))
    hashes = {clip.file_name: _content(clip) for clip in clips}
    kept = _Report(checked_at=checked_at, model=model, clips=hashes, findings=ordered)
    write_json(dataset / FOLDER / FILE, kept.model_dump(mode="json"))


def read_report(dataset: Path) -> CheckReport | None:
    """Read the last check's findings that still apply; None if there was no check or the file is damaged."""
    try:
        kept = _Report.model_validate(read_json(dataset / FOLDER / FILE))
    except (ConfigError, ValidationError):
        return None
    info = known_info(dataset)
    clips = {clip.file_name: clip for clip in read_clips(dataset)}

    def holds(finding: Finding) -> bool:
        return (
            all(name in clips for name in finding.clips)
            and all(clips[name].sha256 == sha256 for name, sha256 in finding.pictures.items())
            and all(caption_hash(clips[name], info) == known for name, known in finding.captions.items())
            and (finding.holds_beside is None or finding.holds_beside in clips[finding.clips[0]].companions.items())
        )

    return CheckReport(
        checked_at=kept.checked_at,
        model=kept.model,
        clips=len(kept.clips),
        findings=tuple(filter(holds, kept.findings)),
        new_clips=sum(kept.clips.get(name) != _content(clip) for name, clip in clips.items()),
    )


def _content(clip: Clip) -> str:
    """Identify the content of a clip's pictures and companions."""
    return " ".join((clip.sha256, *clip.companions.values()))


def read_findings(dataset: Path) -> list[Finding]:
    """Read the last check's findings that still apply, the worst first."""
    return list(report.findings) if (report := read_report(dataset)) else []

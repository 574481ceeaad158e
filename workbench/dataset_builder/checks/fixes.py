"""Fix what the dataset check found: one finding or many, in one change of the history, which one undo takes back.

What changes records alone is done at once. What cuts clips encodes them and so takes its time: that is a task (`run`).
Not covered: finding (dataset_check), how parts are made (recutting).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from workbench import jobs
from workbench.clips.records import Clip, DatasetInfo, read_clips, read_info
from workbench.dataset_builder import history, parallel
from workbench.dataset_builder.checks.findings import FIXES, Finding, Fix, read_findings
from workbench.dataset_builder.cuts import recutting
from workbench.dataset_builder.cuts.cut import FEWEST, Cut, cut_of, master_of
from workbench.dataset_builder.cuts.recutting import Wanted
from workbench.dataset_builder.parallel import OnProgress, silent
from workbench.errors import ConfigError, DataError
from workbench.settings import Settings, field

NOTHING = "Nothing was left to do."
SENTENCE_SHARE = 2 / 3  # of what is read: a caption ends with a sentence if that leaves this much, else with a word


class FixSettings(Settings):
    """What `datasets/<slug>/.fix/config.json` holds. A person chooses findings and a fix instead of filling it in."""

    fix: Fix = field("crop_bars", title="Fix", section="Fixing")
    """What to do about the findings."""

    findings: tuple[str, ...] = field((), title="Findings", section="Fixing", lines=3)
    """Ids of the findings of the last check to fix."""


def is_task(fix: Fix) -> bool:
    """Whether it encodes clips and so is to be started as a task."""
    return fix in CUTTING


def apply(dataset: Path, findings: Sequence[Finding], fix: Fix, on_progress: OnProgress = silent) -> str:
    """Fix all findings alike; says what was done.

    Raises ConfigError, DataError, CannotWrite, and what `on_progress` raises.
    """
    check_findings(dataset, findings, fix)
    clips = {clip.file_name: clip for clip in read_clips(dataset)}
    if fix in CUTTING:
        return _recut(dataset, findings, clips, fix, on_progress)
    records, done = RECORDS[fix](findings, clips, read_info(dataset))
    changed = {name: new for name, new in records.items() if list(new) != [clips[name]]}
    if not changed:
        return NOTHING
    sentence = done.format(_clips(len(changed)))
    history.change(dataset, sentence[0].lower() + sentence[1:].rstrip("."), changed)
    return sentence


def check_findings(dataset: Path, findings: Sequence[Finding], fix: Fix) -> None:
    """Raises ConfigError unless the fix fits all of the findings, and their clips are there."""
    if not findings:
        raise ConfigError("no finding is chosen: choose one or more")
    if unfit := [finding for finding in findings if fix not in finding.fixes]:
        raise ConfigError(
            f"{FIXES.get(fix, fix)!r} does not fix {unfit[0].title!r}: use "
            f"{' or '.join(map(repr, unfit[0].buttons.values())) or 'nothing'}"
        )
    names = {clip.file_name for clip in read_clips(dataset)}
    if gone := [name for finding in findings for name in finding.clips if name not in names]:
        raise ConfigError(f"there is no clip {gone[0]!r} in this dataset any more: check again")


# ---- the job --------------------------------------------------------------------------------------------------------


def check(dataset: Path, settings: FixSettings) -> None:
    """Raises ConfigError unless the findings hold and the fix fits them."""
    found = _found(dataset, settings)
    if settings.findings and not found:
        raise ConfigError("none of these findings holds any more: check again")
    check_findings(dataset, found, settings.fix)


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Fix as config.json says. The outcome: {done: in words}.

    A finding that no longer holds is left alone: its clip was changed since, perhaps by this very task before it was
    killed.
    """
    settings = FixSettings.load(config)
    found = _found(dataset, settings)
    done = apply(dataset, found, settings.fix, parallel.job_progress(job)) if found else NOTHING
    print(done, flush=True)  # noqa: T201 - the job's log
    job.outcome = {"done": done}


def _found(dataset: Path, settings: FixSettings) -> list[Finding]:
    return [finding for finding in read_findings(dataset) if finding.id in settings.findings]


# ---- records only ---------------------------------------------------------------------------------------------------

Records = Mapping[str, Sequence[Clip]]


def _remove(findings: Sequence[Finding], clips: Mapping[str, Clip], info: DatasetInfo) -> tuple[Records, str]:
    return {name: () for finding in findings for name in finding.clips}, "Removed {}."


def _keep_best(findings: Sequence[Finding], clips: Mapping[str, Clip], info: DatasetInfo) -> tuple[Records, str]:
    records: dict[str, Sequence[Clip]] = {}
    for finding in findings:
        blur = finding.values["blur"]
        best = max(finding.clips, key=lambda name: _worth(clips[name], blur[name]))
        records |= {name: () for name in finding.clips if name != best}
    return records, "Removed {} that copy a better one."


def _worth(clip: Clip, blur: float) -> tuple[float, ...]:
    """What a person would keep: their own caption, any caption, then size, sharpness, length."""
    by_hand = clip.caption_by == "hand" and bool(clip.text)
    return by_hand, bool(clip.text), clip.width * clip.height, -round(blur, 1), clip.seconds


def _shorten(findings: Sequence[Finding], clips: Mapping[str, Clip], info: DatasetInfo) -> tuple[Records, str]:
    records = {}
    for finding in findings:
        clip = clips[finding.clips[0]]
        records[clip.file_name] = [clip.changed(text=shortened(clip.text, finding.values["cut"]))]
    return records, "Shortened the captions of {} to what the model reads."


def shortened(text: str, cut: str) -> str:
    """The caption without its unread end `cut`: up to its last whole sentence if that leaves enough, else word."""
    position = text.rfind(cut)
    read = text[: position if position >= 0 else len(text)]
    sentence = max((match.end() for match in re.finditer(r"[.!?](?=\s|$)", read)), default=0)
    if sentence >= SENTENCE_SHARE * len(read):
        return read[:sentence].strip()
    whole_word = (
        read if text[len(read) : len(read) + 1].isspace() or read.endswith(" ") else read[: read.rfind(" ") + 1]
    )
    return (whole_word or read).rstrip(" ,;:-")


def _add_trigger(findings: Sequence[Finding], clips: Mapping[str, Clip], info: DatasetInfo) -> tuple[Records, str]:
    found = [clips[name] for finding in findings for name in finding.clips]
    records = {clip.file_name: [clip.changed(text=info.caption(clip))] for clip in found}
    return records, f"Added {info.trigger_word!r} to the captions of {{}}."


def _tag(findings: Sequence[Finding], clips: Mapping[str, Clip], info: DatasetInfo) -> tuple[Records, str]:
    tags: dict[str, tuple[str, ...]] = {}
    for finding in findings:
        for name in finding.clips:
            old = tags.get(name, clips[name].tags)
            tags[name] = old if finding.kind in old else (*old, finding.kind)
    return {name: [clips[name].changed(tags=new)] for name, new in tags.items()}, "Tagged {}."


RECORDS: dict[str, Callable[[Sequence[Finding], Mapping[str, Clip], DatasetInfo], tuple[Records, str]]] = {
    "remove": _remove,
    "keep_best": _keep_best,
    "shorten_caption": _shorten,
    "add_trigger": _add_trigger,
    "tag": _tag,
}


# ---- other files ----------------------------------------------------------------------------------------------------


def _recut(
    dataset: Path, findings: Sequence[Finding], clips: Mapping[str, Clip], fix: Fix, on_progress: OnProgress
) -> str:
    wanted, failed = [], dict[str, str]()
    for finding in findings:
        clip = clips[finding.clips[0]]
        try:
            master = master_of(dataset, clip)
        except DataError as error:
            failed[clip.file_name] = str(error)
        else:
            cuts = CUTTING[fix](finding, cut_of(clip, master), master.fps / (clip.fps or 1))
            wanted.append(Wanted(clip, tuple(cuts)))

    def what(count: int, parts: int) -> str:
        return {
            "split_at_cuts": f"split {_clips(count)} into {parts}",
            "keep_longest_shot": f"kept the longest shot of {_clips(count)}",
            "crop_bars": f"cropped the bars of {_clips(count)}",
        }[fix]

    done = recutting.recut(dataset, wanted, what, on_progress)
    failed |= done.failed
    if failed and not done.clips:
        raise DataError("; ".join(f"{clips[name].source or name}: {reason}" for name, reason in failed.items()))
    sentence = f"{what(done.clips, done.parts).capitalize()}." if done.clips else NOTHING
    return " ".join([sentence, *(f"{clips[name].source or name} stays: {why}." for name, why in failed.items())])


def _shots(finding: Finding, cut: Cut, step: float) -> list[Cut]:
    """The parts between a clip's cuts, as parts of its source video.

    step: how many frames of the source video a frame of the clip stands for
    """
    bounds = [cut.start, *(cut.start + round(frame * step) for frame in finding.values["frames"]), cut.end]
    fewest = FEWEST * step
    return [Cut(start, end, cut.crop, cut.fps) for start, end in pairwise(bounds) if end - start >= fewest]


def _longest_shot(finding: Finding, cut: Cut, step: float) -> list[Cut]:
    return [max(_shots(finding, cut, step), key=lambda shot: shot.end - shot.start)]


def _without_bars(finding: Finding, cut: Cut, step: float) -> list[Cut]:
    left, top, width, height = finding.values["crop"]
    outer = cut.crop or (0, 0, 0, 0)
    return [Cut(cut.start, cut.end, (outer[0] + left, outer[1] + top, width, height), cut.fps)]


CUTTING: dict[str, Callable[[Finding, Cut, float], list[Cut]]] = {
    "split_at_cuts": _shots,
    "keep_longest_shot": _longest_shot,
    "crop_bars": _without_bars,
}


def _clips(count: int) -> str:
    return f"{count} clip{'s' if count != 1 else ''}"

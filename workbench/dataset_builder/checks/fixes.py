"""Fix findings of the dataset check, one or many, as one change in the history.

Fixes that only change records are immediate. Fixes that encode clips or listen to them take time and run as a task
(`run`).
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from workbench import jobs
from workbench.clips.records import Clip, DatasetInfo, clip_file, read_clips, read_info
from workbench.dataset_builder import history, tasks
from workbench.dataset_builder.checks.findings import FIXES, WORDS, Finding, Fix, read_findings
from workbench.dataset_builder.companions import attach_all, companion_path
from workbench.dataset_builder.cuts import cutting
from workbench.dataset_builder.cuts.cutting import FEWEST, Cut, cut_of, master_of
from workbench.dataset_builder.tasks import ClipProgress, OnProgress, silent
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.settings import Settings, field

NOTHING = "Nothing was left to do."
CUTTING: tuple[Fix, ...] = ("split_at_cuts", "keep_longest_shot", "crop_bars")  # fixes that encode clips
BESIDE: tuple[Fix, ...] = ("fit_beside", "invert_mask")  # fixes that encode companions
HEARD: tuple[Fix, ...] = ("match_loudness",)  # fixes that encode sounds
SLOW: tuple[Fix, ...] = (*CUTTING, *BESIDE, *HEARD, "quote_speech")  # fixes that run as a task
LISTENING = 1.0  # seconds for a second of sound, on a CPU of two cores
STARTING_SECONDS = 2.0  # to start the process that cuts
PIXELS_A_SECOND = 4e6  # decoded and encoded by one core
SENTENCE_SHARE = 2 / 3  # shorten a caption to a whole sentence if that keeps this share of it, else to a whole word


class FixSettings(Settings):
    """Settings of a fix (`datasets/<slug>/.fix/config.json`)."""

    fix: Fix = field("crop_bars", title="Fix", section="Fixing")
    """What to do about the findings."""

    findings: tuple[str, ...] = field((), title="Findings", section="Fixing", lines=3)
    """Ids of the last check's findings to fix."""

    speech_model: str = field("", title="Speech model", section="Fixing", advanced=True, path=True)
    """For quote-speech: a Whisper model, as OWNER/NAME on the Hub (openai/whisper-base is smaller) or a folder. Empty:
    Whisper Small."""


def preview(dataset: Path, findings: Sequence[Finding], fix: Fix) -> str:
    """Describe what `apply` would do, without changing anything. Raises ConfigError, DataError."""
    check_findings(dataset, findings, fix)
    clips, info = {clip.file_name: clip for clip in read_clips(dataset)}, read_info(dataset)
    if fix in CUTTING:
        found = {finding.clips[0]: finding for finding in findings}
        bounds = ([0, *one.values.get("frames", ()), clips[name].frames] for name, one in found.items())
        parts = sum(len(_shots(one, 1)) for one in bounds)
        return f"{_sentence(fix, 0, len(found), parts)}."
    if fix == "quote_speech":
        from workbench.vision import local_models, transcribing

        using = local_models.opening(transcribing.MODELS[0].id, transcribing.MODELS)
        return f"{_sentence(fix, 0, len(findings))}, with {using}."
    if fix in (*BESIDE, *HEARD):
        return f"{_sentence(fix, 0, len({finding.clips[0] for finding in findings}))}."
    changed = _changed_records(findings, clips, info, fix)
    return f"{_sentence(fix, 0, len(changed), trigger=info.trigger_word)}." if changed else "Nothing is left to do."


def expected_seconds(dataset: Path, findings: Sequence[Finding], fix: Fix) -> float:
    """Estimate how long a fix takes on this machine; 0 if it only changes records."""
    if fix not in SLOW:
        return 0.0
    wanted = {finding.clips[0] for finding in findings}
    clips = [clip for clip in read_clips(dataset) if clip.file_name in wanted]
    if fix == "quote_speech":
        return STARTING_SECONDS + LISTENING * sum(clip.seconds for clip in clips)
    pixels = sum(clip.frames * clip.width * clip.height for clip in clips)
    return STARTING_SECONDS + pixels / (PIXELS_A_SECOND * min(tasks.WORKERS, max(1, len(wanted))))


def apply(
    dataset: Path, findings: Sequence[Finding], fix: Fix, on_progress: OnProgress = silent, speech_model: str = ""
) -> str:
    """Apply a fix to findings; return what was done in words.

    Raises ConfigError, DataError, CannotWrite, and whatever `on_progress` raises.
    """
    check_findings(dataset, findings, fix)
    clips, info = {clip.file_name: clip for clip in read_clips(dataset)}, read_info(dataset)
    if fix in CUTTING:
        return _recut(dataset, findings, clips, fix, on_progress)
    if fix in BESIDE:
        return _fit_beside(dataset, findings, clips, fix, on_progress)
    if fix in HEARD:
        return _match_loudness(dataset, findings, clips, on_progress)
    if fix == "quote_speech":
        return _quote_speech(dataset, findings, clips, on_progress, speech_model)
    if not (changed := _changed_records(findings, clips, info, fix)):
        return NOTHING
    sentence = _sentence(fix, 1, len(changed), trigger=info.trigger_word)
    history.change(dataset, _uncapitalized(sentence), changed)
    return f"{sentence}."


def _sentence(fix: Fix, done: int, clips: int, parts: int = 0, trigger: str = "") -> str:
    """Describe a fix of so many clips. done: 0 for the future, 1 for the past."""
    _, *verbs, what = WORDS[fix]
    return f"{verbs[done]} {what.format(clips=counted(clips, 'clip'), parts=parts, trigger=trigger)}"


def _uncapitalized(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def check_findings(dataset: Path, findings: Sequence[Finding], fix: Fix) -> None:
    """Raise ConfigError unless the fix applies to all findings and their clips exist."""
    if not findings:
        raise ConfigError("no finding is chosen: choose one or more")
    if unfit := [finding for finding in findings if fix not in finding.fixes]:
        raise ConfigError(
            f"{FIXES.get(fix, fix)!r} does not fix {unfit[0].title!r}: use "
            f"{' or '.join(map(repr, unfit[0].buttons.values())) or 'nothing'}"
        )
    names = {clip.file_name for clip in read_clips(dataset)}
    if gone := [finding for finding in findings if not names.issuperset(finding.clips)]:
        raise ConfigError(f"a clip of {gone[0].title!r} is no longer in this dataset: check again")


# ---- the job --------------------------------------------------------------------------------------------------------


def check(dataset: Path, settings: FixSettings) -> None:
    """Raise ConfigError unless the findings still apply and the fix applies to them."""
    found = _found(dataset, settings)
    if settings.findings and not found:
        raise ConfigError("these findings no longer apply: check again")
    check_findings(dataset, found, settings.fix)


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Apply a fix as a job. The outcome: {done: in words}.

    Skips findings that no longer apply because the clip has changed, perhaps in this task before it was killed.
    """
    settings = FixSettings.load(config)
    found = _found(dataset, settings)
    progress = tasks.job_progress(job)
    done = apply(dataset, found, settings.fix, progress, settings.speech_model) if found else NOTHING
    print(done, flush=True)  # noqa: T201 - the job's log
    job.outcome = {"done": done}


def _found(dataset: Path, settings: FixSettings) -> list[Finding]:
    return [finding for finding in read_findings(dataset) if finding.id in settings.findings]


# ---- records only ---------------------------------------------------------------------------------------------------


def _changed_records(
    findings: Sequence[Finding], clips: Mapping[str, Clip], info: DatasetInfo, fix: Fix
) -> dict[str, Sequence[Clip]]:
    """Return the changes: file name -> the records that replace it."""
    pairs = [(finding, clips[name]) for finding in findings for name in finding.clips]
    if fix == "remove":
        return {clip.file_name: () for _, clip in pairs}
    if fix == "keep_best":

        def worth(finding: Finding, name: str) -> tuple[float, ...]:
            """Prefer captions by hand, then any caption, then sound, size, sharpness, length."""
            clip, blur = clips[name], round(finding.values["blur"][name], 1)
            by_hand = clip.caption_by == "hand" and bool(clip.text)
            return by_hand, bool(clip.text), bool(clip.sound), clip.width * clip.height, -blur, clip.seconds

        best = {finding.id: max(finding.clips, key=functools.partial(worth, finding)) for finding in findings}
        return {clip.file_name: () for finding, clip in pairs if clip.file_name != best[finding.id]}
    new = dict[str, Clip]()
    for finding, clip in pairs:
        if fix == "tag":
            tags = new.get(clip.file_name, clip).tags
            new[clip.file_name] = clip.changed(tags=tags if finding.kind in tags else (*tags, finding.kind))
        elif fix == "detach":
            kind, now = finding.values["kind"], new.get(clip.file_name, clip)
            masters = {one: name for one, name in (now.companion_masters or {}).items() if one != kind}
            new[clip.file_name] = now.changed(**{kind: "", "companion_masters": masters or None})
        elif fix == "shorten_caption":
            new[clip.file_name] = clip.changed(text=shortened(clip.text, finding.values["cut"]))
        else:
            new[clip.file_name] = clip.changed(text=info.caption(clip))
    return {name: (clip,) for name, clip in new.items() if clip != clips[name]}


def shortened(text: str, cut: str) -> str:
    """Remove the unread end `cut` from a caption, back to the last whole sentence if that keeps enough, else word."""
    position = text.rfind(cut)
    read = text[: position if position >= 0 else len(text)]
    sentence = max((match.end() for match in re.finditer(r"[.!?](?=\s|$)", read)), default=0)
    if sentence >= SENTENCE_SHARE * len(read):
        return read[:sentence].strip()
    between_words = text[len(read) : len(read) + 1].isspace() or read.endswith(" ")
    whole_words = read if between_words else read[: read.rfind(" ") + 1]
    return (whole_words or read).rstrip(" ,;:-")


def _quote_speech(
    dataset: Path, findings: Sequence[Finding], clips: Mapping[str, Clip], on_progress: OnProgress, model: str
) -> str:
    """Add what is said in clips to their captions, as one change."""
    from workbench.clips.sound import read_sound
    from workbench.vision.transcribing import RATE, Listener

    names = list(dict.fromkeys(finding.clips[0] for finding in findings))
    changed, kept, began = dict[str, Sequence[Clip]](), list[str](), time.monotonic()
    with Listener(model, device="cpu") as listener:
        for done, name in enumerate(names):
            seconds = (time.monotonic() - began) / max(1, done)
            on_progress(ClipProgress("listening", done, len(names), seconds, f"{done} of {len(names)}"))
            clip = clips[name]
            try:
                words = listener.words(read_sound(clip_file(dataset, name), rate=RATE, channels=1)[0])
            except DataError as error:
                kept.append(f"{clip.name}: {error}.")
                continue
            if words:
                changed[name] = (clip.changed(text=quoted(clip.text, words)),)
            else:
                kept.append(f"{clip.name}: no words were heard.")
    if not changed:
        return " ".join(kept) or NOTHING
    sentence = _sentence("quote_speech", 1, len(changed))
    history.change(dataset, _uncapitalized(sentence), changed)
    return " ".join([f"{sentence}.", *kept])


def quoted(text: str, words: str) -> str:
    """Add to a caption what is said."""
    text = text.rstrip()
    end = "" if text.endswith((".", "!", "?", "。")) else "."
    return f'{text}{end} A voice says: "{words.replace(chr(34), chr(39))}"'


# ---- other files ----------------------------------------------------------------------------------------------------


def _fit_beside(
    dataset: Path, findings: Sequence[Finding], clips: Mapping[str, Clip], fix: Fix, on_progress: OnProgress
) -> str:
    """Conform or invert the companions of clips, as one change."""
    wanted: dict[tuple[str, str], tuple[Clip, str, Path]] = {}
    for finding in findings:
        clip, kind = clips[finding.clips[0]], finding.values["kind"]
        whole = (clip.companion_masters or {}).get(kind, "")
        if path := companion_path(dataset, clip, kind):
            wanted[clip.file_name, kind] = clip, kind, clip_file(dataset, whole) if whole else path
    sentence = _sentence(fix, 1, len(wanted))
    done, began = 0, time.monotonic()

    def tick(count: int = 1) -> None:
        nonlocal done
        done += count
        seconds = (time.monotonic() - began) / done
        on_progress(ClipProgress("fitting", done, len(wanted), seconds, f"{done} of {len(wanted)}"))

    what, fit, invert = _uncapitalized(sentence), fix == "fit_beside", fix == "invert_mask"
    attach_all(dataset, list(wanted.values()), what, tick=tick, fit=fit, invert=invert)
    return f"{sentence}."


def _match_loudness(
    dataset: Path, findings: Sequence[Finding], clips: Mapping[str, Clip], on_progress: OnProgress
) -> str:
    """Replace clips with copies whose sound has the gain that the check found, as one change."""
    wanted = {finding.clips[0]: float(finding.values["gain"]) for finding in findings}

    def make(name: str, tick: tasks.Tick) -> Clip | str:
        try:
            return cutting.make_louder(dataset, clips[name], wanted[name], tick)
        except DataError as error:
            return str(error)

    frames = sum(clips[name].frames for name in wanted)
    made = dict(zip(wanted, tasks.each("matching", frames, list(wanted), make, on_progress), strict=True))
    parts = {name: [one] for name, one in made.items() if isinstance(one, Clip)}
    failed = [f"{clips[name].name}: {one}" for name, one in made.items() if isinstance(one, str)]
    if failed and not parts:
        raise DataError("; ".join(failed))
    sentence = _sentence("match_loudness", 1, len(parts))
    cutting.replace(dataset, _uncapitalized(sentence), parts)
    return " ".join([f"{sentence}.", *(f"{one}." for one in failed)])


def _recut(
    dataset: Path, findings: Sequence[Finding], clips: Mapping[str, Clip], fix: Fix, on_progress: OnProgress
) -> str:
    wanted, failed = list[tuple[Clip, list[Cut]]](), dict[str, str]()
    for finding in findings:
        clip = clips[finding.clips[0]]
        try:
            master = master_of(dataset, clip)
        except DataError as error:
            failed[clip.file_name] = str(error)
        else:
            wanted.append((clip, _new_cuts(finding, cut_of(clip, master), master.fps / (clip.fps or 1), fix)))

    def what(count: int, parts: int) -> str:
        return _uncapitalized(_sentence(fix, 1, count, parts))

    count, parts, failures = cutting.recut(dataset, wanted, what, on_progress)
    failed |= failures
    if failed and not count:
        raise DataError("; ".join(f"{clips[name].name}: {reason}" for name, reason in failed.items()))
    sentence = f"{what(count, parts).capitalize()}." if count else NOTHING
    return " ".join([sentence, *(f"{clips[name].name} stays: {why}." for name, why in failed.items())])


def _new_cuts(finding: Finding, cut: Cut, step: float, fix: Fix) -> list[Cut]:
    """Return the cuts that replace a clip. step: frames of the source video per frame of the clip."""
    if fix == "crop_bars":
        left, top, width, height = finding.values["crop"]
        outer = cut.crop or (0, 0, 0, 0)
        return [Cut(cut.start, cut.end, (outer[0] + left, outer[1] + top, width, height), cut.fps)]
    bounds = [cut.start, *(cut.start + round(frame * step) for frame in finding.values["frames"]), cut.end]
    shots = _shots(bounds, step)
    if fix == "keep_longest_shot":
        shots = sorted(shots, key=lambda shot: shot[0] - shot[1])[:1]
    return [Cut(start, end, cut.crop, cut.fps) for start, end in shots]


def _shots(bounds: Sequence[int], step: float) -> list[tuple[int, int]]:
    """Return the shots between the bounds that are long enough for a clip. step: as in `_new_cuts`."""
    return [(start, end) for start, end in pairwise(bounds) if end - start >= FEWEST * step]

"""What is wrong with clips' pictures, from their measures and the chosen model's frame plan.

Not covered: bars of other colours than black (letterbox says why).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from workbench.clips import frame_metrics, frame_plan, still_pictures
from workbench.clips.frame_plan import Shape
from workbench.clips.records import Clip, clip_file
from workbench.dataset_builder.checks import text_detection
from workbench.dataset_builder.checks.findings import Finding, Severity, finding_of
from workbench.dataset_builder.checks.measures import Measures
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.display.quantities import counted
from workbench.errors import DataError
from workbench.families.latents_file import Fit


def check_pictures(
    clips: Sequence[Clip], measured: Mapping[str, Measures], settings: CheckSettings
) -> Iterator[Finding]:
    """Findings of one clip each, then groups of near-duplicates. measured: file name -> measures."""
    if not text_detection.can_read():
        yield finding_of("text_unknown", f"Subtitles and watermarks were not looked for: {text_detection.MISSING}.")
    for clip in clips:
        found = measured[clip.file_name]
        if found.error:
            yield finding_of("damaged", f"{clip.name} {found.error}", [clip])
            continue
        yield from _check_look(clip, found, settings)
        if not clip.is_image:
            yield from _check_motion(clip, found, settings)
    yield from _near_duplicates(clips, measured, settings.near_duplicate)


def _check_look(clip: Clip, found: Measures, settings: CheckSettings) -> Iterator[Finding]:
    if found.letterbox:
        _, _, width, height = found.letterbox
        sides = "above and below" if width >= clip.width else "at the sides" if height >= clip.height else "all around"
        bars = f"black bars {sides}: the picture is {width}x{height} of {clip.width}x{clip.height}"
        yield finding_of("letterbox", f"{clip.name} has {bars}.", [clip], crop=list(found.letterbox))
    if found.text:
        frames = 1 if clip.is_image else text_detection.LOOKS
        where = "; ".join(
            f"{position}, in {looks} of {frames} sampled frames ({_short(text)!r})"
            for position, looks, text in found.text
        )
        yield finding_of("text", f"{clip.name} shows text: {where}. The model learns them, too.", [clip])
    if found.blur > settings.blur:
        limit = f"0 is sharp, more than {settings.blur:g} is called blurred"
        sentence = f"{clip.name} has a blur of {found.blur:.2f} ({limit}): the model learns the blur, too."
        yield finding_of("blur", sentence, [clip])


def _check_motion(clip: Clip, found: Measures, settings: CheckSettings) -> Iterator[Finding]:
    if found.still >= settings.still:
        share = f"{found.still:.0%} of its {clip.seconds:.1f} s"
        sentence = f"In {clip.name} nothing moves for {share}: a model trained on this generates still pictures."
        yield finding_of("still", sentence, [clip])
    if found.shake > settings.shake:
        amount = f"{found.shake:.1f}% of the picture from look to look (more than {settings.shake:g}% is called shaky)"
        yield finding_of("shake", f"The camera of {clip.name} jerks by {amount}.", [clip])
    if bright := [first for first, _, height in found.flashes if height >= settings.flash]:
        times = f"{counted(len(bright), 'time')}, at {_times(clip, bright)}"
        yield finding_of("flashes", f"{clip.name} flashes {times}.", [clip])
    if cuts := [frame for frame, score in found.cuts if score >= settings.cut]:
        times = f"{counted(len(cuts), 'cut')}, at {_times(clip, cuts)}"
        yield finding_of("cuts", f"{clip.name} has {times}: the model would learn to jump.", [clip], frames=cuts)


def _near_duplicates(clips: Sequence[Clip], measured: Mapping[str, Measures], threshold: float) -> Iterator[Finding]:
    readable = [clip for clip in clips if not measured[clip.file_name].error]
    for kind in (True, False):  # an image of a clip is no copy of it
        same_kind = [clip for clip in readable if clip.is_image == kind]
        for group in frame_metrics.alike([measured[clip.file_name].print_bytes for clip in same_kind], threshold):
            found = [same_kind[index] for index in group]
            names = ", ".join(clip.name for clip in found[:4]) + (" ..." if len(found) > 4 else "")
            sentence = f"{len(found)} clips look alike: {names}. The model sees this scene as many times as often."
            blur = {clip.file_name: measured[clip.file_name].blur for clip in found}
            yield finding_of("near_duplicates", sentence, found, blur=blur)


def check_plans(clips: Sequence[Clip], shape: Shape, title: str) -> Iterator[Finding]:
    """What the chosen model cannot take, or takes badly. title: the model's."""
    videos = [clip for clip in clips if not clip.is_image]
    images = [clip for clip in clips if clip.is_image]
    plans = [frame_plan.plan(clip, shape) for clip in videos]
    severity = Severity.STOPS if all(plan.dropped for plan in plans) else None
    for clip, plan in zip(videos, plans, strict=True):
        if plan.dropped:
            sentence = f"{clip.name} is {plan.dropped}."
            yield finding_of("left_out", sentence, [clip], title=f"Left out by {title}", severity=severity)
        for warning in plan.warnings:
            sentence = f"{clip.name}{' is' if warning.startswith('too small') else ':'} {warning}."
            yield finding_of("fits_badly", sentence, [clip], title=f"Fits {title} badly")
    if images:
        number = f"{len(images)} of {len(clips)} clips {'is an image' if len(images) == 1 else 'are images'}"
        sentence = f"{number}: they teach looks, no motion, and train in a bucket of 1 frame only."
        effect = still_pictures.effect_on_motion(len(images) / len(clips))
        severity = Severity.HURTS if effect else None
        yield finding_of("images", " ".join(filter(None, (sentence, effect))), images, severity=severity)


def check_latents(dataset: Path, clips: Sequence[Clip], fit: Fit, title: str) -> Iterator[Finding]:
    """Latents that the chosen model cannot be trained on, whatever their size. title: the model's."""
    for clip in clips:
        if clip.is_latents:
            try:
                reason = fit.misfit(clip_file(dataset, clip.file_name))
            except DataError as error:
                reason = str(error)
            if reason:
                yield finding_of("left_out", f"{clip.name}: {reason}.", [clip], title=f"Left out by {title}")


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:36]} ..."


def _times(clip: Clip, frames: Sequence[int]) -> str:
    """ "0.8 s, 2.4 s", at most five."""
    listed = ", ".join(f"{frame / clip.fps:.1f} s" for frame in frames[:5])
    return listed + (" ..." if len(frames) > 5 else "")

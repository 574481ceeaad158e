"""What is wrong with clips' pictures, from their measures and the chosen model's frame plan.

Not covered: bars of other colours than black (letterbox says why).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from workbench.clips import frame_metrics, frame_plan
from workbench.clips.frame_plan import Shape
from workbench.clips.records import Clip
from workbench.dataset_builder.checks import text_detection
from workbench.dataset_builder.checks.findings import Finding, Fix, Severity, picture_finding
from workbench.dataset_builder.checks.measures import Measures
from workbench.dataset_builder.checks.settings import CheckSettings

LOOK_FIXES: tuple[Fix, ...] = ("remove", "tag")


def check_pictures(
    clips: Sequence[Clip], measured: Mapping[str, Measures], settings: CheckSettings
) -> Iterator[Finding]:
    """Findings of one clip each, then groups of near-duplicates. measured: file name -> measures."""
    if not text_detection.can_read():
        yield Finding(
            kind="text_unknown",
            title="Text not looked for",
            severity=Severity.LOOK,
            sentence=f"Subtitles and watermarks were not looked for: {text_detection.MISSING}.",
        )
    for clip in clips:
        found = measured[clip.file_name]
        if found.error:
            yield picture_finding(
                "damaged", "Cannot be read", f"{_name(clip)} {found.error}", Severity.STOPS, [clip], ["remove"]
            )
            continue
        yield from _look(clip, found, settings)
        if not clip.is_image:
            yield from _motion(clip, found, settings)
    yield from _near_duplicates(clips, measured, settings.near_duplicate)


def _look(clip: Clip, found: Measures, settings: CheckSettings) -> Iterator[Finding]:
    if found.letterbox:
        left, top, width, height = found.letterbox
        sides = "above and below" if width >= clip.width else "at the sides" if height >= clip.height else "all around"
        yield picture_finding(
            "letterbox",
            "Black bars",
            f"{_name(clip)} has black bars {sides}: the picture is {width}x{height} of {clip.width}x{clip.height}.",
            Severity.HURTS,
            [clip],
            ["crop_bars", *LOOK_FIXES],
            crop=[left, top, width, height],
        )
    if found.text:
        frames = 1 if clip.is_image else text_detection.LOOKS
        where = "; ".join(
            f"{position}, in {looks} of {frames} sampled frames ({_short(text)!r})"
            for position, looks, text in found.text
        )
        yield picture_finding(
            "text",
            "Text in the picture",
            f"{_name(clip)} shows text: {where}. The model learns them, too.",
            Severity.HURTS,
            [clip],
            LOOK_FIXES,
        )
    if found.blur > settings.blur:
        yield picture_finding(
            "blur",
            "Blurred",
            f"{_name(clip)} has a blur of {found.blur:.2f} (0 is sharp, more than "
            f"{settings.blur:g} is called blurred): the model learns the blur, too.",
            Severity.HURTS,
            [clip],
            LOOK_FIXES,
        )


def _motion(clip: Clip, found: Measures, settings: CheckSettings) -> Iterator[Finding]:
    if found.still >= settings.still:
        yield picture_finding(
            "still",
            "Stands still",
            f"In {_name(clip)} nothing moves for {found.still:.0%} of its {clip.seconds:.1f} "
            "s: a model trained on this generates still pictures.",
            Severity.HURTS,
            [clip],
            LOOK_FIXES,
        )
    if found.shake > settings.shake:
        yield picture_finding(
            "shake",
            "Shaky",
            f"The camera of {_name(clip)} jerks by {found.shake:.1f}% of the picture from look to "
            f"look (more than {settings.shake:g}% is called shaky).",
            Severity.LOOK,
            [clip],
            LOOK_FIXES,
        )
    bright = [first for first, _, height in found.flashes if height >= settings.flash]
    if bright:
        times = _times(clip, bright)
        yield picture_finding(
            "flashes",
            "Flashes",
            f"{_name(clip)} flashes {_count(len(bright), 'time')}, at {times}.",
            Severity.LOOK,
            [clip],
            LOOK_FIXES,
        )
    cuts = [frame for frame, times in found.cuts if times >= settings.cut]
    if cuts:
        yield picture_finding(
            "cuts",
            "Cuts inside the clip",
            f"{_name(clip)} has {_count(len(cuts), 'cut')}, at {_times(clip, cuts)}: the model would learn to jump.",
            Severity.HURTS,
            [clip],
            ["split_at_cuts", "keep_longest_shot", *LOOK_FIXES],
            frames=cuts,
        )


def _near_duplicates(clips: Sequence[Clip], measured: Mapping[str, Measures], threshold: float) -> Iterator[Finding]:
    readable = [clip for clip in clips if not measured[clip.file_name].error]
    for kind in (True, False):  # an image of a clip is no copy of it
        same_kind = [clip for clip in readable if clip.is_image == kind]
        for group in frame_metrics.alike([measured[clip.file_name].print_bytes for clip in same_kind], threshold):
            found = [same_kind[index] for index in group]
            names = ", ".join(_name(clip) for clip in found[:4]) + (" ..." if len(found) > 4 else "")
            yield picture_finding(
                "near_duplicates",
                "Nearly the same",
                f"{len(found)} clips look alike: {names}. The model sees this scene as many times as often.",
                Severity.HURTS,
                found,
                ["keep_best", *LOOK_FIXES],
                blur={clip.file_name: measured[clip.file_name].blur for clip in found},
            )


def check_plans(clips: Sequence[Clip], shape: Shape, title: str) -> Iterator[Finding]:
    """What the chosen model cannot take, or takes badly. title: the model's."""
    videos = [clip for clip in clips if not clip.is_image]
    images = [clip for clip in clips if clip.is_image]
    dropped = {clip.file_name: frame_plan.why_dropped(clip, shape) for clip in videos}
    none_left = bool(videos) and all(dropped.values())
    for clip in videos:
        if reason := dropped[clip.file_name]:
            yield picture_finding(
                "left_out",
                f"Left out by {title}",
                f"{_name(clip)} is {reason}.",
                Severity.STOPS if none_left else Severity.HURTS,
                [clip],
                LOOK_FIXES,
            )
        for warning in frame_plan.plan(clip, shape).warnings:
            yield picture_finding(
                "fits_badly",
                f"Fits {title} badly",
                f"{_name(clip)} is {warning}." if warning.startswith("too small") else f"{_name(clip)}: {warning}.",
                Severity.LOOK,
                [clip],
                LOOK_FIXES,
            )
    if images and videos:
        verb = "is an image" if len(images) == 1 else "are images"
        yield picture_finding(
            "images",
            "Images among videos",
            f"{len(images)} of {len(clips)} clips {verb}: they teach looks, no "
            "motion, and train in a bucket of 1 frame only.",
            Severity.LOOK,
            images,
            LOOK_FIXES,
        )


def _name(clip: Clip) -> str:
    return clip.source or clip.id


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:36]} ..."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


def _times(clip: Clip, frames: Sequence[int]) -> str:
    """ "0.8 s, 2.4 s", at most five."""
    listed = ", ".join(f"{frame / clip.fps:.1f} s" for frame in frames[:5])
    return listed + (" ..." if len(frames) > 5 else "")

"""Check a dataset, as a job: find clips and captions that would stop or hurt a training.

Pictures are measured once per content (measures). Captions are counted with the model's own tokenizer if it is on
disk; nothing is downloaded or estimated. Findings come with fixes (fixes).

    .check/tokens.json    {model, limit, trigger_word, counts: {text_hash: tokens}}: for statistics
"""

from __future__ import annotations

import base64
import hashlib
import re
import statistics
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from workbench import jobs
from workbench.clips import frame_metrics, frame_plan
from workbench.clips.frame_plan import Shape
from workbench.clips.records import COMPANION_NAMES, Clip, DatasetInfo, clip_file, file_sha256, read_clips, read_info
from workbench.dataset_builder import tasks
from workbench.dataset_builder.checks import measures
from workbench.dataset_builder.checks.findings import Finding, Fix, Severity, finding_of, write_report
from workbench.dataset_builder.checks.measures import FOLDER, Heard, Measures, Pair
from workbench.dataset_builder.companions import RATE
from workbench.dataset_builder.ingest.results import read_import_results
from workbench.dataset_builder.settings import CheckSettings
from workbench.display.quantities import counted, shortened
from workbench.errors import DataError, ModelUnavailable
from workbench.families.base import Family
from workbench.families.latents_file import Fit
from workbench.families.model import Model
from workbench.families.model_inputs import CaptionTokens
from workbench.workspace import write_json
from workbench.workspace.records import read_record


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Check the whole dataset and replace its findings. Raises ConfigError, DataError, CannotWrite, jobs.Stop."""
    settings = CheckSettings.load(config)
    clips, info = read_clips(dataset), read_info(dataset)
    family, model = settings.resolved
    found: list[Finding] = []
    if settings.pictures:
        shape = frame_plan.shape_of(settings, model)
        videos = [clip for clip in clips if not clip.is_latents]
        # Records of another tool's folder have no sha256.
        hashed = [c if c.sha256 else c.changed(sha256=file_sha256(clip_file(dataset, c.file_name))) for c in videos]
        known = measures.measure_all(dataset, hashed, tasks.job_progress(job))
        measured = {clip.file_name: known[clip.sha256] for clip in hashed}
        found += check_pictures(videos, measured, settings)
        silenced = {one.clip.id for one in read_import_results(dataset) if one.clip and one.silenced}
        found += check_sound([clip for clip in videos if not clip.is_image], measured, silenced)
        if settings.captions and "sound" in family.own_settings(model):
            found += check_speech(videos, measured, info)
        paired = [clip for clip in [*hashed, *(clip for clip in clips if clip.is_latents)] if clip.companions]
        found += check_pairs(dataset, paired, measures.measure_pairs(dataset, paired, tasks.job_progress(job)))
        found += check_plans(clips, shape, model.title)
        found += check_latents(dataset, clips, Fit(family, model), model.title)
    if settings.captions:
        job.beat("captions", 0, len(clips))
        found += check_captions(clips, info, settings.fewest_words)
        too_long, tokens = check_tokens(clips, info, family, model)
        found += too_long
        write_json(dataset / FOLDER / TOKENS, tokens)
    write_report(dataset, time.time(), model.id, clips, found)
    counts = {severity.value: sum(f.severity == severity for f in found) for severity in Severity}
    job.outcome = {"clips": len(clips), "findings": counts}
    job.beat("check", len(clips), len(clips))


# ---- pictures --------------------------------------------------------------------------------------------------------


def check_pictures(
    clips: Sequence[Clip], measured: Mapping[str, Measures], settings: CheckSettings
) -> Iterator[Finding]:
    """Yield findings about single clips, then groups of near-duplicates. measured: by file name."""
    if not measures.can_read_text():
        yield finding_of("text_unknown", f"Subtitles and watermarks were not checked: {measures.MISSING}.")
    for clip in clips:
        found = measured[clip.file_name]
        if found.error:
            yield finding_of("damaged", f"{clip.name} cannot be read: {found.error}.", [clip])
            continue
        yield from _check_picture(clip, found, settings)
    yield from _near_duplicates(clips, measured, settings.near_duplicate)


def _check_picture(clip: Clip, found: Measures, settings: CheckSettings) -> Iterator[Finding]:
    if found.letterbox:
        _, _, width, height = found.letterbox
        sides = "above and below" if width >= clip.width else "at the sides" if height >= clip.height else "all around"
        bars = f"black bars {sides}: the picture is {width}x{height} of {clip.width}x{clip.height}"
        yield finding_of("letterbox", f"{clip.name} has {bars}.", [clip], crop=list(found.letterbox))
    if found.text:
        frames = 1 if clip.is_image else measures.TEXT_LOOKS
        where = "; ".join(
            f"{position}, in {looks} of {frames} sampled frames ({_short(text, 40)!r})"
            for position, looks, text in found.text
        )
        yield finding_of("text", f"{clip.name} shows text: {where}. The model would learn it, too.", [clip])
    if found.blur > settings.blur:
        limit = f"0 is sharp, the limit is {settings.blur:g}"
        sentence = f"{clip.name} has a blur of {found.blur:.2f} ({limit}): the model would learn the blur, too."
        yield finding_of("blur", sentence, [clip])
    if clip.is_image:
        return
    if found.still >= settings.still:
        share = f"{found.still:.0%} of its {clip.seconds:.1f} s"
        sentence = f"In {clip.name}, nothing moves for {share}: the model would learn to generate still pictures."
        yield finding_of("still", sentence, [clip])
    if found.shake > settings.shake:
        amount = f"{found.shake:.1f}% of the width from sample to sample (the limit is {settings.shake:g}%)"
        yield finding_of("shake", f"The camera of {clip.name} shakes by {amount}.", [clip])
    if bright := [first for first, _, height in found.flashes if height >= settings.flash]:
        times = f"{counted(len(bright), 'time')}, at {_times(clip, bright)}"
        yield finding_of("flashes", f"{clip.name} flashes {times}.", [clip])
    if cuts := [frame for frame, score in found.cuts if score >= settings.cut]:
        times = f"{counted(len(cuts), 'cut')}, at {_times(clip, cuts)}"
        yield finding_of("cuts", f"{clip.name} has {times}: the model would learn to jump.", [clip], frames=cuts)


def _near_duplicates(clips: Sequence[Clip], measured: Mapping[str, Measures], threshold: float) -> Iterator[Finding]:
    readable = [clip for clip in clips if not measured[clip.file_name].error]
    for is_image in (True, False):  # an image taken from a clip is not a duplicate of it
        same_kind = [clip for clip in readable if clip.is_image == is_image]
        prints = [base64.b64decode(measured[clip.file_name].fingerprint) for clip in same_kind]
        for group in frame_metrics.alike(prints, threshold):
            found = [same_kind[index] for index in group]
            names = shortened([clip.name for clip in found], 4)
            sentence = (
                f"{len(found)} clips look alike: {names}. The model would see this scene {len(found)} times as often."
            )
            blur = {clip.file_name: measured[clip.file_name].blur for clip in found}
            yield finding_of("near_duplicates", sentence, found, blur=blur)


# ---- sound -----------------------------------------------------------------------------------------------------------

SILENT, QUIET = -60.0, -42.0  # dB of full scale; speech and music have about -30 to -10
CLIPPED = 0.001  # share of samples
SHORT = 0.15  # seconds that the sound may end before the picture
APART = 9.0  # dB from the dataset's median at which a sound is louder or softer than most
FEWEST_HEARD = 4  # clips with sound that make a median
USUAL, HEADROOM = -23.0, -1.0  # dB: the loudness aimed at without a median, and the peak that a gain may lead to
LEAST_GAIN = 3.0  # dB; less is not worth another encoding


def check_sound(
    clips: Sequence[Clip], measured: Mapping[str, Measures], silenced: Collection[str]
) -> Iterator[Finding]:
    """Yield findings about sound tracks, then about clips without one.

    silenced: ids of the whole source clips that an import stored without the sound of their files.
    """
    tracks = [(clip, heard) for clip in clips if (heard := measured[clip.file_name].sound)]
    levels = [heard.rms for _, heard in tracks if not heard.error and heard.rms >= SILENT]
    median = statistics.median(levels) if len(levels) >= FEWEST_HEARD else None
    target = USUAL if median is None or median < QUIET else median
    for clip, heard in tracks:
        yield from _check_track(clip, heard, median, round(min(target - heard.rms, HEADROOM - heard.peak), 1))
    mute = [clip for clip in clips if not measured[clip.file_name].sound and not measured[clip.file_name].error]
    removed = [clip for clip in mute if clip.source_id in silenced]
    missing = [clip for clip in mute if clip.source_id not in silenced]
    if removed:
        were = f"{counted(len(removed), 'clip')} {'was' if len(removed) == 1 else 'were'}"
        sentence = f"{were} imported without the sound of the files: to train on it, import them into a new dataset."
        yield finding_of("sound_removed", sentence, removed)
    if missing and len(mute) < len(clips) / 2:
        have = "has" if len(missing) == 1 else "have"
        sentence = f"{len(missing)} of {len(clips)} clips {have} no sound: a model with sound learns none from them."
        yield finding_of("sound_missing", sentence, missing)


def _check_track(clip: Clip, heard: Heard, median: float | None, gain: float) -> Iterator[Finding]:
    """Yield findings about one sound track.

    Args:
        median: Of the dataset's loudness in dB; None with too few sounds.
        gain: By how many dB to make the sound louder, as far as its peaks allow.
    """
    said, matching = f"The sound of {clip.name}", abs(gain) >= LEAST_GAIN
    if heard.error:
        yield finding_of("sound_damaged", f"{said} cannot be read: {heard.error}.", [clip])
    elif heard.rms < SILENT:
        sentence = f"{said} is silent ({heard.rms:.0f} dB): a model with sound would learn silence."
        yield finding_of("sound_silent", sentence, [clip])
    elif heard.rms < QUIET:
        sentence = f"{said} is very quiet: {heard.rms:.0f} dB, while speech and music have about -30 to -10 dB."
        more: tuple[Fix, ...] = ("match_loudness",) if matching and gain > 0 else ()
        yield finding_of("sound_quiet", sentence, [clip], more=more, gain=gain)
    elif median is not None and abs(heard.rms - median) > APART and matching and gain * (median - heard.rms) > 0:
        than = "louder" if gain < 0 else "softer"
        sentence = f"{said} is {abs(heard.rms - median):.0f} dB {than} than most ({heard.rms:.0f} dB): "
        sentence += f"matched, it is {abs(gain):.0f} dB {'softer' if gain < 0 else 'louder'}."
        yield finding_of("sound_level", sentence, [clip], gain=gain)
    if heard.clipped > CLIPPED:
        share = f"{heard.clipped:.1%} of its samples are at full level"
        sentence = f"{said} is distorted, {share}: a model with sound would learn the distortion, too."
        yield finding_of("sound_clipped", sentence, [clip])
    if not heard.error and heard.seconds < clip.seconds - SHORT:
        sentence = f"{said} ends after {heard.seconds:.2f} of {clip.seconds:.2f} s: the rest counts as silence."
        yield finding_of("sound_short", sentence, [clip])


# Quoted words, or English ones for a voice.
SAYS = re.compile(
    r"[\"“”„«»「『]|\b(say(s|ing)?|said|speak\w*|spoke\w*|talk\w*|tell(s|ing)?|told|voices?|vocals?|narrat\w*|speech\w*"
    r"|convers\w*|dialog\w*|whisper\w*|shout\w*|yell(s|ed|ing)?|sing(s|ing|ers?)?|sang|songs?|announc\w*|ask(s|ed|ing)?"
    r"|answer\w*|repl(y|ies|ied)|lectur\w*|interview\w*|murmur\w*|chat(s|ting)?|comment\w*)\b",
    re.IGNORECASE,
)


def check_speech(clips: Sequence[Clip], measured: Mapping[str, Measures], info: DatasetInfo) -> Iterator[Finding]:
    """Yield clips with speech whose captions mention none. Models with sound are prompted with the words."""
    for clip in clips:
        heard = measured[clip.file_name].sound
        if heard and heard.speech and heard.rms >= SILENT and clip.text.strip() and not SAYS.search(clip.text):
            sentence = f"{clip.name} seems to have speech, which its caption leaves out: quote the words, such as "
            yield finding_of("speech_unsaid", sentence + 'A woman says: "Look at that!"', [clip], info)


def check_plans(clips: Sequence[Clip], shape: Shape, title: str) -> Iterator[Finding]:
    """Yield clips that the model cannot use, or does not fit well. title: the model's."""
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
            yield finding_of("fits_badly", sentence, [clip], title=f"Poor fit for {title}")
    if images:
        number = f"{len(images)} of {len(clips)} clips {'is an image' if len(images) == 1 else 'are images'}"
        sentence = f"{number}: they teach looks but no motion, and train only in a bucket of 1 frame."
        effect = frame_plan.effect_on_motion(len(images) / len(clips))
        severity = Severity.HURTS if effect else None
        yield finding_of("images", " ".join(filter(None, (sentence, effect))), images, severity=severity)


def check_latents(dataset: Path, clips: Sequence[Clip], fit: Fit, title: str) -> Iterator[Finding]:
    """Yield latents that the model cannot train on, whatever their size. title: the model's."""
    for clip in clips:
        if clip.is_latents:
            try:
                reason = fit.misfit(clip_file(dataset, clip.file_name))
            except DataError as error:
                reason = str(error)
            if reason:
                yield finding_of("left_out", f"{clip.name}: {reason}.", [clip], title=f"Left out by {title}")


def _times(clip: Clip, frames: Sequence[int]) -> str:
    """List up to five times: "0.8 s, 2.4 s"."""
    return shortened([f"{frame / clip.fps:.1f} s" for frame in frames], 5)


# ---- companions ------------------------------------------------------------------------------------------------------

# Correlation of the changes, cell by cell: matching pairs of real clips have 0.3 to 1, others at most 0.25.
FOLLOWS = 0.25


def check_pairs(dataset: Path, clips: Sequence[Clip], measured: Mapping[measures.Key, Pair]) -> Iterator[Finding]:
    """Yield the problems of clips' companions, one finding per file and problem."""
    for clip, (kind, name) in ((one, item) for one in clips for item in one.companions.items()):
        said = f"The {COMPANION_NAMES[kind]} of {clip.name}"
        about = {"kind": kind, "beside": name}
        found = measured.get((clip.sha256, name))
        if not measures.is_there(dataset, name):
            yield finding_of("beside_missing", f"{said} is missing ({name}).", [clip], about=about)
        elif found is not None and found.error:
            yield finding_of("beside_damaged", f"{said} cannot be read: {found.error}.", [clip], about=about)
        elif found is not None and kind in ("control", "mask"):
            yield from _check_pair(clip, kind, found, said, about)


def _check_pair(clip: Clip, kind: str, found: Pair, said: str, about: dict[str, str]) -> Iterator[Finding]:
    ours = f"{clip.frames} frames at {clip.fps:.4g} fps"
    same_rate = not clip.fps or not found.fps or abs(found.fps / clip.fps - 1) < RATE
    if found.frames < clip.frames or not same_rate:
        theirs = f"{found.frames} frames at {found.fps:.4g} fps"
        yield finding_of("beside_short", f"{said} has {theirs}, the clip has {ours}.", [clip], about=about)
    elif found.frames > clip.frames:
        yield finding_of("beside_long", f"{said} has {found.frames} frames, the clip has {ours}.", [clip], about=about)
    if (found.width, found.height) != (clip.width, clip.height):
        sizes = f"{found.width}x{found.height}, the clip is {clip.width}x{clip.height}"
        yield finding_of("beside_size", f"{said} is {sizes}.", [clip], about=about)
    if kind == "mask" and found.brightest <= measures.MARKED:
        sentence = f"{said} is black in every frame: it marks nothing, so nothing would be learned."
        yield finding_of("mask_empty", sentence, [clip], about=about)
    elif kind == "mask" and found.darkest >= 255 - measures.MARKED:
        sentence = f"{said} is white in every frame: it marks everything, as if there were no mask."
        yield finding_of("mask_full", sentence, [clip], about=about)
    elif kind == "mask" and found.empty:
        share = f"{found.empty} of its {found.frames} frames"
        yield finding_of("mask_gaps", f"{said} is black in {share}: nothing is learned there.", [clip], about=about)
    if kind == "control" and found.follows is not None and found.follows < FOLLOWS:
        sentence = (
            f"{said} does not move like the clip (the correlation is {found.follows:.2f}, but matching pairs have "
            f"more than {FOLLOWS:g}): it may belong to another clip."
        )
        yield finding_of("beside_motion", sentence, [clip], about=about)


# ---- captions --------------------------------------------------------------------------------------------------------

TOKENS = "tokens.json"


def check_captions(clips: Sequence[Clip], info: DatasetInfo, fewest_words: int) -> Iterator[Finding]:
    """Yield findings that need no tokenizer."""
    same: dict[str, list[Clip]] = {}
    for clip in clips:
        words = len(clip.text.split())
        if not words:
            taught = f"only the trigger word {info.trigger_word!r}" if info.trigger_word else "nothing"
            yield finding_of(
                "no_caption", f"{clip.name} has no caption: {taught} describes it to the model.", [clip], info
            )
            continue
        same.setdefault(" ".join(clip.text.lower().split()), []).append(clip)
        if words < fewest_words:
            sentence = f"{clip.name} is described in {counted(words, 'word')}: {clip.text.strip()!r}."
            yield finding_of("short_caption", sentence, [clip], info)
    for group in same.values():
        if len(group) > 1:
            shared = f"{len(group)} clips share the caption {_short(group[0].text)!r}"
            yield finding_of("same_caption", f"{shared}: the model cannot tell them apart by words.", group, info)
    # Training prepends the trigger word where it is missing, so that only matters if other captions contain it.
    word = info.trigger_word.strip()
    captioned = [clip for clip in clips if clip.text.strip()]
    without = [clip for clip in captioned if info.caption(clip) != clip.text.strip()] if word else []
    if without and len(without) < len(captioned):
        yield finding_of(
            "trigger",
            f"{len(without)} of {len(captioned)} captions do not contain {word!r}: training here adds it in front, "
            "but other tools that read this dataset do not.",
            without,
            info,
        )


def check_tokens(
    clips: Sequence[Clip], info: DatasetInfo, family: Family, model: Model
) -> tuple[list[Finding], dict[str, Any]]:
    """Return the findings and the content of tokens.json, which is empty if the tokenizer is not on disk."""
    folder = family.on_disk(model)
    try:
        if folder is None:
            raise ModelUnavailable(f"The tokenizer of {model.title} is not on this machine yet")
        tokenized = family.caption_tokens(folder, [info.caption(clip) for clip in clips])
    except ModelUnavailable as error:
        sentence = f"{error}: download the model (a training run does), then check again."
        return [finding_of("tokens_unknown", sentence)], {}
    found = [_too_long(clip, info, tokens, model) for clip, tokens in zip(clips, tokenized, strict=True) if tokens.cut]
    counts = {text_hash(clip): tokens.count for clip, tokens in zip(clips, tokenized, strict=True)}
    limit = tokenized[0].limit if tokenized else 0
    return found, {"model": model.id, "limit": limit, "trigger_word": info.trigger_word, "counts": counts}


def _too_long(clip: Clip, info: DatasetInfo, tokens: CaptionTokens, model: Model) -> Finding:
    """Describe a caption beyond the limit; an unread trigger word matters most, as the concept would not be learned."""
    found = f"The caption of {clip.name} has {tokens.count} tokens, but {model.title} reads {tokens.limit}: "
    read = info.caption(clip).removesuffix(tokens.cut)
    if info.trigger_word.strip() and info.caption(clip.changed(text=read)) != read.strip():
        found += f"it never sees the trigger word {info.trigger_word.strip()!r}, which comes later."
        return finding_of("trigger_unread", found, [clip], info, cut=tokens.cut)
    return finding_of(
        "long_caption", f"{found}it never sees {_short(tokens.cut, 200)!r}.", [clip], info, cut=tokens.cut
    )


class _Tokens(BaseModel):
    """tokens.json."""

    limit: int
    trigger_word: str
    counts: dict[str, int]


def read_tokens(dataset: Path, info: DatasetInfo) -> tuple[int, dict[str, int]]:
    """Read the token limit and counts (by `text_hash`) of the last check; (0, {}) if they are unknown or outdated."""
    known = read_record(dataset / FOLDER / TOKENS, _Tokens)
    if known is None or known["trigger_word"] != info.trigger_word:  # the trigger word counts, too
        return 0, {}
    return known["limit"], known["counts"]


def text_hash(clip: Clip) -> str:
    """Hash a caption as written."""
    return hashlib.sha256(clip.text.encode()).hexdigest()[:16]


def _short(text: str, longest: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= longest else f"{text[: longest - 4]} ..."

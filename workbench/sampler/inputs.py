"""The inputs of one sample: settings with the model's values filled in and checked without weights, and files.

Files such as a first frame or a video to continue come from the user, from anywhere, so only plain picture formats are
read, and videos only through `media`. When a sample is requested, they are copied to samples/inputs/<sha256>.<ext>, so
that later changes do not affect it.
"""

from __future__ import annotations

import functools
import itertools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.clips import media
from workbench.clips.frame_plan import Shape, shape_of
from workbench.clips.media import Pixels
from workbench.clips.records import file_sha256
from workbench.clips.sound import Samples, read_sound
from workbench.errors import ConfigError, DataError
from workbench.families import settle
from workbench.families.base import Family
from workbench.families.conditioning import BESIDE, NOTHING, Conditioning, GivenKind, as_clip, conditioning_of, on_white
from workbench.families.denoising import Guidance
from workbench.families.model import Model
from workbench.families.settings import check_own
from workbench.families.sound import Sound
from workbench.sampler.loras import Lora, absolute, read_header, resolve
from workbench.sampler.settings import INPUT_FILES, Kind, SampleSettings, parse_keyframes
from workbench.workspace import Workspace, named_paths, replacing

if TYPE_CHECKING:
    import torch
    from PIL import Image

FOLDER = "inputs"
FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
GIVEN_RATE = 48000  # samples per second of a given sound in its sample's file


@dataclass(frozen=True)
class SampleInputs:
    """Everything that determines a sample, with all defaults resolved.

    kept_frames:      the number of last frames of `settings.continue_from` that the video begins with.
    following_frames: the number of first frames of `settings.continue_to` that it ends with.
    """

    settings: SampleSettings
    shape: Shape
    steps: int
    guidance: Guidance
    negative_prompt: str
    scheduler: str
    flow_shift: float | None
    temperature: float | None
    loras: tuple[Lora, ...]
    kept_frames: int = 0
    following_frames: int = 0


def inputs_of(workspace: Workspace, settings: SampleSettings) -> SampleInputs:
    """Fill in the model's own values and check everything that needs no weights. Raises ConfigError."""
    family, model = resolved = settings.resolved
    check_own(settings, resolved)
    _check_pictures(family, model, settings)
    _check_streams(settings)
    scheduler = model.scheduler if settings.scheduler == "model" else settings.scheduler
    if scheduler not in family.schedulers:
        rule = " or ".join(("model", *family.schedulers))
        raise ConfigError.of("scheduler", f"scheduler is {scheduler}, {model.title} has {rule}: choose one of these")
    shape = shape_of(settings, model)
    _check_keyframes(settings, shape)
    steps = settings.steps or model.steps
    if settings.video and not settings.mask and int(steps * settings.strength) < 1:
        least = f"use {1 / steps:.2g} or more"
        raise ConfigError.of("strength", f"strength is {settings.strength:g}, too low for {steps} steps: {least}")
    kept_frames = _frames_at_end(model, settings, shape, "continue_from", "kept_frames")
    following_frames = _frames_at_end(model, settings, shape, "continue_to", "following_frames")
    if kept_frames + following_frames >= shape.frames:
        sentence = f"following_frames is {following_frames} and kept_frames {kept_frames}, which leaves none of the "
        sentence += f"{shape.frames} frames to generate: use fewer, or raise frames"
        raise ConfigError.of("following_frames", sentence)
    temperature = settings.temperature
    if temperature is None and "temperature" in (own := family.own_settings(model)):
        temperature = own["temperature"].default
    scale = model.guidance_scale if settings.guidance_scale is None else settings.guidance_scale
    return SampleInputs(
        settings=settings,
        shape=shape,
        steps=steps,
        guidance=Guidance(
            scale,
            settings.dynamic_guidance,
            settings.guidance_from,
            settings.guidance_until,
            settings.guidance_rescale,
            settings.zero_star,
            model.guidance_scale_2 if settings.guidance_scale_2 is None else settings.guidance_scale_2,
            1000 * model.boundary,
        ),
        negative_prompt=model.negative_prompt if settings.negative_prompt is None else settings.negative_prompt,
        scheduler=scheduler,
        flow_shift=settings.flow_shift or model.flow_shift_at(shape.height, shape.width),
        temperature=temperature,
        loras=tuple(resolve(workspace, settings.loras)),
        kept_frames=kept_frames,
        following_frames=following_frames,
    )


def _frames_at_end(model: Model, settings: SampleSettings, shape: Shape, video: str, setting: str) -> int:
    """Return how many frames the video shares with the video before or after it; 0 without one. Raises ConfigError.

    Args:
        video: The setting that names the other video.
        setting: The setting for the number of frames.
    """
    if getattr(settings, video):
        check_continues(model, shape)
    possible = [count for count in (1, *model.frame_rule.legal()) if count < shape.frames]
    count: int | None = getattr(settings, setting)
    if count is not None and count not in possible:
        nearest = min(possible, key=lambda legal: abs(legal - count))
        rule = f"1 or {model.frame_rule}, and fewer than the video's {shape.frames}"
        raise ConfigError.of(setting, f"{setting} is {count}, must be {rule}: use {nearest}")
    if not getattr(settings, video):
        return 0
    # By default as many as the model's shortest clip, which shows motion; one frame if that is the whole video.
    return count or (possible[1] if len(possible) > 1 else 1)


def check_continues(model: Model, shape: Shape) -> None:
    """Raise ConfigError if a video would be continued with a single frame."""
    if shape.frames == 1:
        least = f"use {model.frame_rule.legal()[0]} or more"
        raise ConfigError.of("frames", f"frames is 1, a picture, which cannot continue a video: {least}")


def _check_keyframes(settings: SampleSettings, shape: Shape) -> None:
    for frame, file in parse_keyframes(settings.keyframes).items():
        if frame >= shape.frames:
            rule = f"must be below the video's {shape.frames} frames: use at most {shape.frames - 1}"
            raise ConfigError.of("keyframes", f"keyframes has {Path(file).name} at frame {frame}, which {rule}")
        check_picture(named_paths.resolve(file, "keyframes"), "keyframes")


def _check_conditioning(family: Family, model: Model, settings: SampleSettings) -> None:
    """Refuse conditioning that the model does not take or that contradicts itself."""
    for kind, setting in settings.conditioning.items():
        if why := family.refusal(model, kind):
            value = ", ".join(settings.keyframes) if setting == "keyframes" else getattr(settings, setting)
            raise ConfigError.of(setting, f"{setting} is {value}, {why}")
    if settings.mask and not settings.video:
        raise ConfigError.of("mask", "mask is set, but video is empty: give the video whose masked part is regenerated")
    for name in ("image", "last_image", "keyframes", "continue_from", "continue_to"):
        if settings.mask and getattr(settings, name):
            sentence = f"{name} and mask are both given, but a mask takes all known frames from video: leave one out"
            raise ConfigError.of(name, sentence)
    if settings.last_image and settings.continue_to:
        sentence = "last_image and continue_to are both given, and each sets how the video ends: leave one out"
        raise ConfigError.of("continue_to", sentence)
    if settings.last_image:
        check_picture(named_paths.resolve(settings.last_image, "last_image"), "last_image")


def _check_pictures(family: Family, model: Model, settings: SampleSettings) -> None:
    """Refuse a first frame that the model does not take, a missing one that it needs, and files that cannot be used."""
    from_image = model.task == "image-to-video"
    _check_conditioning(family, model, settings)
    if settings.image and not from_image and family.refusal(model, "first"):
        sentence = f"image is {settings.image}, {model.title} starts from the prompt alone: leave it empty"
        raise ConfigError.of("image", sentence)
    begins = (
        settings.image or settings.continue_from or settings.given_video or settings.conditioning.keys() - set(BESIDE)
    )
    if from_image and not begins and family.refusal(model, NOTHING):
        raise ConfigError.of("image", f"image is empty, {model.title} starts from a first frame: give a picture file")
    if settings.image:
        check_picture(named_paths.resolve(settings.image, "image"))
    alone = settings.image and from_image and not (settings.last_image or settings.keyframes)
    if alone and family.given_kinds(model) and (why := family.refusal(model, "first")):
        raise ConfigError.of("image", f"image is given alone, {why}")
    if settings.video and from_image and not settings.mask:
        raise ConfigError.of(
            "video", f"video is {settings.video}, {model.title} starts from a first frame: choose a text-to-video model"
        )
    if settings.video and settings.continue_from:
        raise ConfigError.of("video", "video and continue_from are both given: change a video, or continue one")
    for name in ("video", "continue_from", "continue_to", "mask", "control", "given_video"):
        if file := getattr(settings, name):
            check_video(named_paths.resolve(file, name), name)
    if settings.reference:
        path = named_paths.resolve(settings.reference, "reference")
        if family.joins_conditioning(model) and not media.is_picture(path):
            sentence = f"{model.title} takes a picture: give a PNG, JPEG, WebP or BMP file"
            raise ConfigError.of("reference", f"reference is {path.name}, but {sentence}")
        (check_picture if media.is_picture(path) else check_video)(path, "reference")


def _check_streams(settings: SampleSettings) -> None:
    """Refuse a given video together with other inputs, and a sound that cannot be used."""
    others = ("image", "video", "continue_from", "given_sound", "last_image", "keyframes", "continue_to", "reference")
    for name in others:
        if settings.given_video and getattr(settings, name):
            sentence = "which keeps all of its picture and gets a new sound: leave one out"
            raise ConfigError.of(name, f"{name} and given_video are both given, {sentence}")
    if settings.given_sound:
        check_sound(named_paths.resolve(settings.given_sound, "given_sound"), "given_sound")


def portable(workspace: Workspace, settings: SampleSettings) -> SampleSettings:
    """Return the settings for another process, with absolute paths and the model pinned to a commit.

    Raises ConfigError, ModelUnavailable.
    """
    files = {key: getattr(settings, key) for key in INPUT_FILES}
    found: dict[str, Any] = {key: str(named_paths.resolve(file, key)) for key, file in files.items() if file}
    if pictures := parse_keyframes(settings.keyframes):
        found["keyframes"] = [f"{named_paths.resolve(file, 'keyframes')}={at}" for at, file in pictures.items()]
    return settings.changed(
        model=settle(workspace.model(settings.model)), loras=list(absolute(workspace, settings.loras)), **found
    )


# ---- reading files


def check_picture(path: Path, setting: str = "image") -> None:
    """Raise ConfigError if a file's header is not that of a readable picture."""
    _open(path, setting).close()


def read_picture(path: Path, height: int, width: int, setting: str = "image") -> Pixels:
    """Read a picture, upright, on white, scaled and center-cropped: uint8 [1, height, width, 3]. Raises ConfigError."""
    import numpy as np

    return np.asarray(_fitted(_upright(path, setting), height, width))[None]


def read_whole_picture(path: Path, setting: str) -> Pixels:
    """Read a picture, upright, on white, in its own size: uint8 [1, H, W, 3]. Raises ConfigError."""
    import numpy as np

    return np.asarray(_upright(path, setting))[None]


def _upright(path: Path, setting: str) -> Image.Image:
    from PIL import Image, ImageOps

    try:
        with _open(path, setting) as opened:
            picture = ImageOps.exif_transpose(opened).convert("RGBA")
    except (OSError, SyntaxError, ValueError) as error:
        raise _refusal(setting, path, "is damaged: copy it again") from error
    white = Image.new("RGBA", picture.size, "white")
    return Image.alpha_composite(white, picture).convert("RGB")


def _open(path: Path, setting: str) -> Image.Image:
    from PIL import Image, UnidentifiedImageError

    try:
        media.check_file(path)
        return Image.open(path, formats=FORMATS)
    except DataError as error:
        raise _refusal(setting, path, f"cannot be used: {error}") from error
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError) as error:
        raise _refusal(setting, path, "cannot be read as a picture: give a PNG, JPEG, WebP or BMP file") from error


def check_video(path: Path, setting: str = "video") -> None:
    """Raise ConfigError if a file is not a readable video."""
    try:
        media.probe(path)
    except DataError as error:
        raise _refusal(setting, path, f"cannot be used: {error}") from error


def check_sound(path: Path, setting: str = "given_sound") -> None:
    """Raise ConfigError if a file is not a readable sound or video with sound."""
    _sound(path, setting, seconds=0.1)


def given_sound(settings: SampleSettings, seconds: float, rate: int) -> Samples:
    """Read a sample's given sound: float32 [2, samples], cut or followed by silence. Raises ConfigError."""
    return _sound(named_paths.resolve(settings.given_sound, "given_sound"), "given_sound", seconds=seconds, rate=rate)


def _sound(path: Path, setting: str, **how: Any) -> Samples:
    try:
        return read_sound(path, alone=True, **how)
    except DataError as error:
        raise _refusal(setting, path, f"cannot be used: {error}") from error


def given_frames(settings: SampleSettings, shape: Shape) -> Pixels:
    """Read the frames of a sample's given video: uint8 [F, H, W, 3]. Raises ConfigError."""
    path = named_paths.resolve(settings.given_video, "given_video")
    return first_frames(path, shape.frames, shape.fps, shape.height, shape.width, "given_video")


class GivenBack(NamedTuple):
    """What a sample has of its given files instead of decoded latents: uint8 frames, or the sound; None for neither."""

    frames: Pixels | None = None
    sound: Sound | None = None


def given_back(record: Mapping[str, Any]) -> GivenBack:
    """Read what a sample's record says was given to it, unless the file is gone. Raises ConfigError."""
    values = record.get("settings") or {}
    named = {name: values.get(name) for name in ("given_video", "given_sound")}
    settings = SampleSettings().changed(**{name: path for name, path in named.items() if path and Path(path).is_file()})
    shape = Shape(record["frames"], record["height"], record["width"], float(record["fps"]))
    frames = given_frames(settings, shape) if settings.given_video else None
    sound = given_sound(settings, shape.frames / shape.fps, GIVEN_RATE) if settings.given_sound else None
    return GivenBack(frames, None if sound is None else Sound(sound, GIVEN_RATE))


def first_frames(path: Path, count: int, fps: float, height: int, width: int, setting: str = "video") -> Pixels:
    """Read a video's first frames at a frame rate: uint8 [count, height, width, 3]. Raises ConfigError.

    A video that is too short is padded with its last frame.
    """
    times = _times(path, setting)
    return _frames(path, [_nearest(times, index / fps) for index in range(count)], height, width, setting)


def last_frames(path: Path, count: int, fps: float, height: int, width: int) -> Pixels:
    """Read a video's last frames at a frame rate: uint8 [count, height, width, 3]. Raises ConfigError.

    A video that is too short at that rate gives its last frames at its own rate, padded with its first frame.
    """
    times = _times(path, "continue_from")
    if (count - 1) / fps > times[-1]:
        wanted = [max(0, len(times) - count + index) for index in range(count)]
    else:
        wanted = [_nearest(times, times[-1] - (count - 1 - index) / fps) for index in range(count)]
    return _frames(path, wanted, height, width, "continue_from")


def conditioning_from(inputs: SampleInputs, taken_over: Pixels | None, downscale: int = 1) -> Conditioning:
    """Read a sample's conditioning, in pixels.

    Args:
        taken_over: The last frames of the video to continue, [F, H, W, 3].
        downscale: How many times smaller than the video the reference is.

    Raises:
        ConfigError: A file cannot be read, or the size cannot be divided by `downscale`.
    """
    import torch

    settings, shape = inputs.settings, inputs.shape
    size = (shape.height, shape.width)
    family, model = settings.resolved
    as_one = family.joins_conditioning(model)

    def video(setting: str, smaller: int = 1) -> torch.Tensor:
        path = named_paths.resolve(getattr(settings, setting), setting)
        height, width = (side // smaller for side in size)
        if setting == "reference" and media.is_picture(path):
            return as_clip(read_picture(path, height, width, setting))
        return as_clip(first_frames(path, shape.frames, shape.fps, height, width, setting))

    control = video("control") if settings.control else None
    reference = None
    if settings.reference and as_one:
        picture = read_whole_picture(named_paths.resolve(settings.reference, "reference"), "reference")
        reference = on_white(as_clip(picture), *size)
    elif settings.reference:
        unit = settings.resolved.model.size_multiple * downscale
        if any(side % unit for side in size):
            sentence = f"its LoRA takes a reference {downscale} times smaller than the video"
            rule = f"use a height and width that are multiples of {unit}"
            raise ConfigError.of("reference", f"reference is {Path(settings.reference).name}, but {sentence}: {rule}")
        reference = video("reference", downscale)
    if settings.mask:
        mask = (video("mask").mean(1, keepdim=True) + 1) / 2
        told = conditioning_of(GivenKind("mask", side=settings.mask_keeps), video("video"), mask)
        return told.changed(control=control, reference=reference)
    pictures = {frame: (file, "keyframes") for frame, file in parse_keyframes(settings.keyframes).items()}
    pictures |= {0: (settings.image, "image")} if settings.image else {}
    pictures |= {shape.frames - 1: (settings.last_image, "last_image")} if settings.last_image else {}
    known = {
        frame: as_clip(read_picture(named_paths.resolve(file, setting), *size, setting))[0, :, 0]
        for frame, (file, setting) in pictures.items()
    }
    if taken_over is not None:
        count = len(taken_over) if settings.tell_frames else 1  # or the first frame alone
        known = {**{frame: as_clip(taken_over)[0, :, frame] for frame in range(count)}, **known}
    if (count := inputs.following_frames) > 0:
        path = named_paths.resolve(settings.continue_to, "continue_to")
        follows = as_clip(first_frames(path, count, shape.fps, *size, "continue_to"))
        known = {**{shape.frames - count + frame: follows[0, :, frame] for frame in range(count)}, **known}
    if not known and not as_one:
        return Conditioning(shape.frames, control=control, reference=reference)
    clip = torch.zeros(1, 3, shape.frames, *size)
    for frame, pixels in known.items():
        clip[0, :, frame] = pixels
    return Conditioning(shape.frames, tuple(sorted(known)), clip, control=control, reference=reference)


def _times(path: Path, setting: str) -> list[float]:
    try:
        return media.read_times(path).presented
    except DataError as error:
        raise _refusal(setting, path, f"cannot be used: {error}") from error


def _frames(path: Path, wanted: list[int], height: int, width: int, setting: str) -> Pixels:
    import numpy as np
    from PIL import Image

    try:
        found = {
            number: np.asarray(_fitted(Image.fromarray(picture), height, width))
            for number, (_, picture) in enumerate(itertools.islice(media.decode(path), max(wanted) + 1))
            if number in wanted
        }
    except DataError as error:
        raise _refusal(setting, path, f"cannot be used: {error}") from error
    if missing := sorted(set(wanted) - found.keys()):
        raise _refusal(setting, path, f"has no frame {missing[0]} and is damaged: copy it again")
    return np.stack([found[number] for number in wanted])


def _nearest(times: list[float], moment: float) -> int:
    return min(range(len(times)), key=lambda number: abs(times[number] - moment))


def _fitted(picture: Image.Image, height: int, width: int) -> Image.Image:
    from PIL import Image, ImageOps

    return ImageOps.fit(picture, (width, height), Image.Resampling.BICUBIC)


def _refusal(setting: str, path: Path, reason: str) -> ConfigError:
    return ConfigError.of(setting, f"{setting} is {path.name}, which {reason}")


# ---- copies in the workspace


def keep(workspace: Workspace, path: Path, kind: Kind) -> Path:
    """Copy a file into the workspace, unless it is there, and return the copy. Raises ConfigError, CannotWrite."""
    path = named_paths.resolve(path, kind)
    folder = workspace.samples / FOLDER
    if path.parent == folder:
        return path
    if kind == "sound":
        check_sound(path)
    else:
        (check_picture if kind == "picture" or media.is_picture(path) else check_video)(path)
    return _copied(path, folder / f"{file_sha256(path)}{path.suffix.lower()}")


def _copied(path: Path, target: Path) -> Path:
    if not target.exists():
        with replacing(target) as temporary:
            shutil.copyfile(path, temporary)
    return target


def kept(workspace: Workspace, many: Sequence[SampleSettings]) -> list[SampleSettings]:
    """Copy every file that settings name into the workspace, and return the settings with the copies' paths.

    Raises ConfigError, CannotWrite.
    """
    kept_file = functools.cache(lambda file, kind: str(keep(workspace, Path(file), kind)))
    found = []
    for settings in many:
        files: dict[str, Any] = {
            name: kept_file(file, kind) for name, kind in INPUT_FILES.items() if (file := getattr(settings, name))
        }
        if pictures := parse_keyframes(settings.keyframes):
            files["keyframes"] = [f"{kept_file(file, 'picture')}={at}" for at, file in pictures.items()]
        found.append(settings.changed(**files) if files else settings)
    return found


def keep_lora(workspace: Workspace, path: Path) -> Path:
    """Copy a LoRA file into the workspace, unless it is there, and return the copy. Raises ConfigError, CannotWrite."""
    path = named_paths.resolve(path, "loras")
    read_header(path)
    return _copied(path, workspace.samples / FOLDER / f"{path.stem[:60]}-{file_sha256(path)[:8]}{path.suffix}")

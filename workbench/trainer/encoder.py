"""Encode once: captions and clips become tensors in the cache, with one encoder in memory at a time.

    cache/<key>.safetensors     the tensors of a caption, or of a view of a clip, with a checksum

A key is the hash of everything that determines the tensors: the clip's bytes, the frames and crop taken, the model and
its revision, the dtype. Entries therefore never go stale, and two datasets that share a clip encode it once.

A clip has one entry per view:

    clip                        the clip itself; every view may also be stored flipped
    first frame, picture        the first frame of image-to-video models: as pixels if every step adds new noise to it
                                ("first frame"), else encoded ("picture")
    low resolution              the clip scaled down and up again
    told first+last             frames given by the run's conditioning, one view per kind; "told first, control" with
                                the control video for models that encode both together (Family.joins_conditioning)
    told nothing                no conditioning, for those models; the same for all clips of a shape
    control                     the control video
    reference 2                 the reference, 2 times smaller than the clip; "reference whole" in its own size
    opposite                    the other half of a slider's pair
    text                        the caption's embeddings of a clip that is stored as latents, taken from its file
    mask                        the loss weight of each latent cell; needs no model
    sound                       the clip's sound, as long as its planned frames, of runs that learn it
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.clips.records import clip_file
from workbench.errors import ConfigError, DataError
from workbench.families.base import Family
from workbench.families.conditioning import (
    NOTHING,
    Conditioning,
    GivenKind,
    as_clip,
    conditioning_of,
    largest,
    on_white,
    parse_kind,
)
from workbench.families.model import Model
from workbench.families.model_files import part_identity
from workbench.families.model_inputs import Tensors
from workbench.families.noise_schedules import DEFAULTS
from workbench.fit.constants import CAPTIONS_AT_ONCE, PRECISIONS
from workbench.jobs.log import log
from workbench.jobs.torch_devices import free_memory
from workbench.runs.data import RunClip, TrainingData, load_data, read_mask
from workbench.runs.settings import TrainSettings
from workbench.sampler.inputs import FORMATS
from workbench.workspace import Workspace, named_paths, write_bytes
from workbench.workspace.records import key_of

if TYPE_CHECKING:
    import torch

Progress = Callable[[str, int, int, float], None]  # phase, done, total, seconds each
View = str  # see above
FIRST_FRAME_VIEWS = ("first frame", "picture")
CONDITIONING, CONTROL, REFERENCE, OPPOSITE = "told", "control", "reference", "opposite"
NO_CONDITIONING, WITH_CONTROL, WHOLE = f"{CONDITIONING} {NOTHING}", f", {CONTROL}", "whole"
DRIFT_INPUTS = 3  # captions, or clips, on each side of the prior drift measurement
DTYPES = {short: name for name, short in PRECISIONS.items()}  # precision -> torch dtype
FIRST_FRAME = "first_frame"  # the only tensor of a "first frame" entry: uint8 [1, 3, H, W]
SOUND = "sound"  # a view, and the only tensor of its entry: [1, tokens, channels]
MASK = "mask"  # the only tensor of a "mask" entry: 0 to 1, shaped as latents with one channel
MEMORY_BYTES = 2 * 1024**3  # of cache entries kept in memory
CHECKSUM = "sha256"  # in an entry's metadata: the hash of its tensors' names, dtypes, shapes and bytes


class Piece(NamedTuple):
    """One view of one clip."""

    item: RunClip
    view: View = "clip"
    flipped: bool = False


def view_of(model: Model, settings: TrainSettings) -> View:
    """Return the view that conditions the model: "clip" for none, "told" for those of `conditioning_views`.

    Raises ConfigError if the setting `condition` does not fit the model.
    """
    if settings.tells or settings.resolved.family.joins_conditioning(model):
        return CONDITIONING
    if model.task == "text-to-video":
        return "clip"
    once = settings.resolved.family.image_noise is None
    if settings.condition == "first frame":
        return "picture" if once else "first frame"
    if once:
        raise ConfigError.of(
            "condition", f"condition is {settings.condition!r}, {model.title} is shown a first frame: use first frame"
        )
    return "low resolution"


def conditioning_view(kind: GivenKind) -> View:
    return f"{CONDITIONING} {kind}"


def conditioning_views(settings: TrainSettings, item: RunClip, whole: bool = False) -> list[View]:
    """Return the views of all conditioning that a run uses for a clip; of a held-out clip, for measurements only.

    whole: see Family.joins_conditioning
    """
    shares, frames = settings.given_shares, len(item.plan.indices)
    fixed, held_out = largest(shares), item.role == "held_out"
    kinds = [fixed] if held_out else [one.kind for one in shares]
    kinds = [kind for kind in kinds if kind is not None and kind.leaves_something(frames)]
    ways = [views_of(settings, kind, whole) for kind in kinds]
    sometimes_none = not held_out and (sum(one.share for one in shares) < 1 or len(kinds) < len(shares))
    if not kinds or (whole and sometimes_none):
        ways.append(views_of(settings, None, whole))
    if whole:  # for captions without a clip
        ways.append([NO_CONDITIONING])
    return list(dict.fromkeys([*(way[0] for way in ways if way), *(view for way in ways for view in way[1:])]))


def views_of(settings: TrainSettings, kind: GivenKind | None, whole: bool) -> list[View]:
    """Return the views of one kind of given frames (None for no frames) with the run's control and reference.

    whole: see Family.joins_conditioning
    """
    found = [] if kind is None else [conditioning_view(kind)]
    if whole and found and settings.control:
        found = [f"{found[0]}{WITH_CONTROL}"]
    elif settings.control:
        found.append(CONTROL)
    elif whole and not found:
        found.append(NO_CONDITIONING)
    if settings.reference:
        found.append(f"{REFERENCE} {WHOLE if whole else settings.reference_downscale}")
    return found


class Encoder:
    """Encodes captions and clips for one model into the cache, and reads them from it."""

    def __init__(
        self,
        family: Family,
        model: Model,
        folder: Path,
        cache: Cache,
        device: torch.device | str,
        precision: str,
        reduction: float = 1.0,
        defaults: int = DEFAULTS,
    ) -> None:
        """Prepare the keys; encoders are loaded when needed.

        Args:
            folder: The model's folder.
            precision: fp32, fp16 or bf16.
            reduction: How many times smaller the low-resolution view is.
            defaults: The version of the families' default values that the run started with (noise_schedules).
        """
        self.family = family
        self.folder = folder
        self.cache = cache
        self._device, self._dtype, self._reduction = device, DTYPES[precision], reduction
        self._vae_dtype = "float32" if family.float32_vae and defaults > 1 else self._dtype
        parts = family.weighted_parts(model)
        texts = ["text_encoder", "tokenizer"]
        texts += ["text_encoder_2", "tokenizer_2"] if "text_encoder_2" in parts else []
        texts += ["connectors"] if "connectors" in parts else []
        self._text = "".join(part_identity(model, folder, part) for part in texts)
        self._vae = part_identity(model, folder, "vae")
        self._image = part_identity(model, folder, "image_encoder") if "image_encoder" in parts else ""
        self._sound = part_identity(model, folder, "audio_vae") if "audio_vae" in parts else ""
        self._whole = family.joins_conditioning(model)
        self._loaded: tuple[str, Any] = ("", None)  # name and encoder
        self._users = 0
        self.generates_with: Any = None  # what determines the generated clips of a slider without a dataset
        self._one_at_a_time = threading.RLock()

    @property
    def device(self) -> torch.device:
        import torch

        return torch.device(self._device)

    @property
    def dtype(self) -> torch.dtype:
        import torch

        found: torch.dtype = getattr(torch, self._dtype)
        return found

    def caption_key(self, caption: str) -> str:
        form = self.family.text_form(self.folder)
        what = {"text": caption, "encoder": self._text, "dtype": f"torch.{self._dtype}"}
        return key_of(what | ({"form": form} if form else {}))

    def clip_key(self, item: RunClip, view: View = "clip", flipped: bool = False) -> str:
        plan, pictured, told = item.plan, view in FIRST_FRAME_VIEWS, is_conditioned(view)
        size = (item.bucket.frames, item.bucket.height, item.bucket.width)
        if view == "mask":
            what: dict[str, Any] = {"view": view, "mask": item.mask, "soften": item.soften, "flipped": flipped}
            what |= {"indices": plan.indices, "resize": plan.resize, "crop": plan.crop, "family": self.family.name}
            return key_of(what | {"shape": self.family.latents_shape(self.folder, *size)})
        if view == SOUND:
            return key_of({"view": view, "clip": item.sha256, "span": item.plan.sound_span, "encoder": self._sound})
        if view == NO_CONDITIONING:
            return key_of({"view": view, "size": size, "vae": self._vae, "dtype": f"torch.{self._vae_dtype}"})
        what = {
            "clip": item.sha256,
            "indices": plan.indices[:1] if pictured else plan.indices,
            "resize": plan.resize,
            "crop": plan.crop,
        }
        what |= {"picture": plan.clip.first_frame} if pictured and given_picture(item) else {}
        what |= {"view": view} if pictured or told or view == OPPOSITE else {}
        what |= {"companions": companions_of(item, view)} if told or view == OPPOSITE else {}
        what |= {} if view == "first frame" else {"vae": self._vae, "dtype": f"torch.{self._vae_dtype}"}
        what |= {"frames": len(plan.indices), "encoder": self._image} if view == "picture" or told else {}
        what |= {"whole": True} if told and self._whole else {}
        what |= {"flipped": True} if flipped else {}
        what |= {"generated": self.generates_with} if item.generated is not None and not pictured else {}
        what |= {"reduction": self._reduction} if view == "low resolution" else {}
        what |= {"text": self._dtype} if view == "text" else {}
        return key_of(what)

    def caption(self, caption: str) -> Tensors:
        """Read a caption's embeddings from the cache, encoding it again if its file is damaged."""
        return self._read(self.caption_key(caption), lambda: self.encode_captions([caption], lambda *_: None))

    def clip(self, piece: Piece) -> Tensors:
        """Read a view of a clip from the cache, encoding it again if its file is damaged."""
        return self._read(self.clip_key(*piece), lambda: self.encode_clip(piece))

    def _read(self, key: str, encode: Callable[[], None]) -> Tensors:
        import torch

        try:
            return self.cache.get(key)
        except Damaged:
            # Several loader threads, or a measurement under autocast, may get here.
            with self._one_at_a_time, torch.autocast(self.device.type, enabled=False):
                if key not in self.cache:
                    log(f"cache file {key} is damaged or missing: encoding it again")
                    encode()
            return self.cache.get(key)

    def encode_captions(self, captions: Iterable[str], progress: Progress) -> None:
        """Encode every caption that is not in the cache, then free the text encoder."""
        missing = sorted({caption for caption in captions if self.caption_key(caption) not in self.cache})
        if not missing:
            return
        progress("loading the text encoder", 0, len(missing), 0.0)
        with self.kept_loaded():
            encoder = self._part("text encoder", self._text_encoder)
            began = time.monotonic()
            for start in range(0, len(missing), CAPTIONS_AT_ONCE):
                part = missing[start : start + CAPTIONS_AT_ONCE]
                encoded = self.family.encode_text(encoder, part)
                for index, caption in enumerate(part):
                    one = {name: tensor[index : index + 1] for name, tensor in encoded.items()}
                    self.cache.put(self.caption_key(caption), one)
                done = start + len(part)
                progress("encoding captions", done, len(missing), (time.monotonic() - began) / done)
            del encoder

    def encode_clips(self, pieces: Iterable[Piece], progress: Progress) -> None:
        """Encode every view that is not in the cache, then free the VAE."""
        keyed = {self.clip_key(*piece): piece for piece in pieces}
        missing = [piece for key, piece in keyed.items() if key not in self.cache]
        missing.sort(key=lambda piece: piece.view == SOUND)  # one encoder after the other
        if not missing:
            return
        if any(piece.view != "mask" for piece in missing):
            progress("loading the video encoder", 0, len(missing), 0.0)
        with self.kept_loaded():
            began = time.monotonic()
            for done, piece in enumerate(missing, 1):
                self.encode_clip(piece)
                progress("encoding clips", done, len(missing), (time.monotonic() - began) / done)

    def encode_clip(self, piece: Piece) -> None:
        """Encode one view of one clip into the cache, even if it is there. Raises DataError for a generated clip."""
        if piece.item.generated is not None and piece.view not in (*FIRST_FRAME_VIEWS, NO_CONDITIONING):
            raise DataError("a clip that the base model generated is gone from the cache: start the run again")
        self.cache.put(self.clip_key(*piece), self._encoded(*piece))

    def _encoded(self, item: RunClip, view: View, flipped: bool) -> Tensors:
        import torch
        from safetensors import SafetensorError
        from safetensors.torch import load

        if view == "mask":
            mask = torch.from_numpy(read_mask(item))[None, None]
            return {MASK: self.family.mask_cells(self.folder, mask.flip(-1) if flipped else mask)}
        if view == SOUND:
            with self.kept_loaded():
                encoder = self._part("sound encoder", lambda: self.family.load_sound_encoder(self.folder, self.device))
                return self.family.encode_sound(encoder, read_clip_sound(item, self.family.sound_rate(self.folder)))
        if item.plan.clip.is_latents and view not in (*FIRST_FRAME_VIEWS, NO_CONDITIONING):
            try:
                tensors = load(item.path.read_bytes())
            except SafetensorError as error:
                raise DataError(f"{item.name} cannot be read ({error}): import it again") from error
            if view == "text":
                return self.family.text_from_file(tensors, self.dtype)
            return self.family.moments_from_file(self.folder, tensors)
        if is_conditioned(view):
            told = read_conditioning(item, view, flipped)
            with self.kept_loaded():
                vae, image_encoder = self._part("vae", self._video_encoder)
                return self._whole_or_tiled(vae, partial(self.family.encode_conditioning, vae, image_encoder, told))
        if view == OPPOSITE:
            video = read_reference(item, item.plan.clip.reference, 1)
        else:
            video = read_first_frame(item) if view in FIRST_FRAME_VIEWS else read_video(item)
        video = video.flip(-1) if flipped else video
        if view == "first frame":
            return {FIRST_FRAME: ((video[:, :, 0] + 1.0) * 127.5).round().byte()}
        video = reduced(video, self._reduction) if view == "low resolution" else video
        with self.kept_loaded():
            vae, image_encoder = self._part("vae", self._video_encoder)
            if view == "picture":
                frames = len(item.plan.indices)
                encode = partial(self.family.encode_image, vae, image_encoder, video[:, :, 0], frames, "pipeline")
            else:
                encode = partial(self.family.encode_video, vae, video)
            return self._whole_or_tiled(vae, encode)

    @contextlib.contextmanager
    def kept_loaded(self) -> Iterator[None]:
        """Keep an encoder loaded until the outermost of these contexts ends or the other encoder is needed."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users and self._loaded[0]:
                self._loaded = ("", None)
                free_memory()

    def _part(self, name: str, load: Callable[[], Any]) -> Any:
        if self._loaded[0] != name:
            self._loaded = ("", None)
            free_memory()
            self._loaded = (name, load())
        return self._loaded[1]

    def _text_encoder(self) -> Any:
        """Load the text encoder on the device, or on the CPU if it does not fit."""
        import torch

        try:
            return self.family.load_text_encoder(self.folder, self.device, self.dtype)
        except torch.OutOfMemoryError:
            free_memory()
        return self.family.load_text_encoder(self.folder, torch.device("cpu"), self.dtype)

    def _video_encoder(self) -> tuple[Any, Any]:
        """Load the VAE together with the model's image encoder, if any: a view may need both."""
        import torch

        dtype = getattr(torch, self._vae_dtype)
        vae = self.family.load_vae(self.folder, self.device, dtype)
        return vae, self.family.load_image_encoder(self.folder, self.device, dtype)

    def _whole_or_tiled(self, vae: Any, encode: Callable[[], Tensors]) -> Tensors:
        """Encode; if memory runs out, switch the VAE to tiles for this clip and all that follow."""
        import torch

        try:
            return encode()
        except torch.OutOfMemoryError:
            if vae.use_tiling:
                raise
        vae.enable_tiling()
        free_memory()
        return encode()


def is_conditioned(view: View) -> bool:
    """Return whether a view is conditioning that the run sets."""
    return view == CONTROL or view.startswith((f"{CONDITIONING} ", f"{REFERENCE} "))


def kind_of(view: View) -> GivenKind:
    """Return a view's kind of given frames."""
    _, name, *more = view.removesuffix(WITH_CONTROL).split(" ")
    kind = parse_kind(name, "".join(more))
    assert kind is not None, f"{view} is not a view of given frames"
    return kind


def companions_of(item: RunClip, view: View) -> dict[str, str]:
    """Return companion -> file name for the files beside a clip that a view needs. A changed file has a new name."""
    clip = item.plan.clip
    if view == CONTROL:
        return {CONTROL: clip.control}
    if view == OPPOSITE or view.startswith(REFERENCE):
        return {REFERENCE: clip.reference}
    if view == NO_CONDITIONING:
        return {}
    kind, control = kind_of(view), {CONTROL: clip.control} if view.endswith(WITH_CONTROL) else {}
    if kind.name == "mask":
        return {"mask": clip.mask, **control}
    known, indices = kind.frames(len(item.plan.indices)), item.plan.indices
    first = 0 in known and indices[0] == 0
    last = len(indices) - 1 in known and indices[-1] == clip.frames - 1
    found = {"first_frame": clip.first_frame if first else "", "last_frame": clip.last_frame if last else ""}
    return {name: file for name, file in found.items() if file} | control


def read_conditioning(item: RunClip, view: View, flipped: bool = False) -> Conditioning:
    """Read a view's conditioning, in pixels.

    A first or last frame that was imported with the clip replaces the clip's own. Raises DataError if a companion is
    missing or cannot be read.
    """
    import torch

    beside, bucket = companions_of(item, view), item.bucket
    if view == NO_CONDITIONING:
        return Conditioning(bucket.frames, video=torch.zeros(1, 3, bucket.frames, bucket.height, bucket.width))
    if view == CONTROL:
        control = read_companion(item, beside[CONTROL])
        return Conditioning(control.shape[2], control=control.flip(-1) if flipped else control)
    if REFERENCE in beside:
        _, smaller = view.split()
        if smaller == WHOLE:
            shown = on_white(read_whole_picture(item, beside[REFERENCE]), bucket.height, bucket.width)
        else:
            shown = read_reference(item, beside[REFERENCE], int(smaller))
        return Conditioning(len(item.plan.indices), reference=shown.flip(-1) if flipped else shown)
    kind, video, mask = kind_of(view), read_video(item), None
    for name, frame in (("first_frame", 0), ("last_frame", -1)):
        if name in beside:
            video[:, :, frame] = read_companion_picture(item, companion_file(item, beside[name]))[:, :, 0]
    if kind.name == "mask":
        mask = (read_companion(item, beside["mask"]).mean(1, keepdim=True) + 1) / 2
    control = read_companion(item, beside[CONTROL]) if CONTROL in beside else None
    if flipped:
        video, mask, control = (None if one is None else torch.flip(one, [-1]) for one in (video, mask, control))
    assert video is not None
    told = conditioning_of(kind, video, mask)
    return told if control is None else told.changed(control=control)


def companion_file(item: RunClip, name: str) -> Path:
    return clip_file(item.path.parent.parent, name)


def read_companion(item: RunClip, name: str) -> torch.Tensor:
    """Read the planned frames of a companion video with the clip's frames and size: [1, 3, F, H, W]."""
    from workbench.clips.media import read_frames

    plan = item.plan
    path = companion_file(item, name)
    return as_clip(read_frames(path, plan.indices, plan.resize, plan.crop))


def read_whole_picture(item: RunClip, name: str) -> torch.Tensor:
    """Read a companion picture in its own size: [1, 3, 1, H, W]."""
    import numpy as np
    from PIL import Image

    with Image.open(companion_file(item, name), formats=["PNG"]) as image:
        return as_clip(np.array(image.convert("RGB"))[None])


def read_reference(item: RunClip, name: str, downscale: int) -> torch.Tensor:
    """Read a clip's reference, `downscale` times smaller than the clip: [1, 3, F, H, W], with F = 1 for a picture.

    A video with the clip's frames and size follows the clip's frame plan, so that they match frame by frame. Any other
    video is read from its start at the run's frame rate, padded with its last frame and center-cropped.
    """
    import numpy as np
    from PIL import Image, ImageOps
    from torch.nn.functional import avg_pool3d

    from workbench.clips.media import probe, read_frames

    plan, clip = item.plan, item.plan.clip
    path, size = companion_file(item, name), (plan.crop[3] // downscale, plan.crop[2] // downscale)
    if path.suffix == ".png":
        with Image.open(path, formats=["PNG"]) as image:
            frames = np.asarray(ImageOps.fit(image.convert("RGB"), size, Image.Resampling.BICUBIC))[None]
    else:
        about = probe(path)
        if (about.frames, about.height, about.width) == (clip.frames, clip.height, clip.width):
            return avg_pool3d(read_companion(item, name)[0], (1, downscale, downscale))[None]
        times = (round(index * about.fps / plan.fps) for index in range(len(plan.indices)))
        found = read_frames(path, [min(number, about.frames - 1) for number in times])
        fitted = (ImageOps.fit(Image.fromarray(frame), size, Image.Resampling.BICUBIC) for frame in found)
        frames = np.stack([np.asarray(picture) for picture in fitted])
    return as_clip(frames)


def given_picture(item: RunClip) -> Path | None:
    """Return the first frame that was imported with the clip, if the frame plan begins there."""
    name = item.plan.clip.first_frame
    return companion_file(item, name) if name and item.plan.indices[0] == 0 else None


def read_first_frame(item: RunClip) -> torch.Tensor:
    """Read the picture that conditions a clip: [1, 3, 1, H, W], float32 in [-1, 1]."""
    if item.picture:
        return read_picture(item.picture, item).unsqueeze(2)
    path = given_picture(item)
    return read_video(item, first_only=True) if path is None else read_companion_picture(item, path)


def read_picture(path: Path | str, like: RunClip) -> torch.Tensor:
    """Read one of `preview_images`, scaled and cropped to a clip's shape: float32 [1, 3, H, W] in [-1, 1].

    Raises ConfigError if it cannot be read.
    """
    import numpy as np
    from PIL import Image, ImageOps

    size = (like.bucket.width, like.bucket.height)
    try:
        with Image.open(named_paths.resolve(path, "preview_images"), formats=FORMATS) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
            fitted = ImageOps.fit(upright, size, Image.Resampling.BICUBIC)
    except (OSError, ValueError) as error:
        raise ConfigError.of(
            "preview_images",
            f"preview_images has {str(path)!r}, which cannot be read as a picture ({error}): give another",
        ) from error
    return as_clip(np.array(fitted)[None])[:, :, 0]


def read_companion_picture(item: RunClip, path: Path) -> torch.Tensor:
    """Read a companion picture, cropped like the clip: [1, 3, 1, H, W], float32 in [-1, 1]."""
    import numpy as np
    from PIL import Image

    (height, width), (top, left, tall, wide) = item.plan.resize, item.plan.crop
    with Image.open(path, formats=["PNG"]) as image:
        picture = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    return as_clip(np.array(picture.crop((left, top, left + wide, top + tall)))[None])


def read_video(item: RunClip, first_only: bool = False) -> torch.Tensor:
    """Read a clip's planned frames, or only the first: [1, 3, F, H, W], float32 in [-1, 1]."""
    from workbench.clips.media import read_frames, read_own_clip

    clip, plan = item.plan.clip, item.plan
    indices = plan.indices[:1] if first_only else plan.indices
    if clip.sha256 and clip.sha256 == item.sha256:  # the file is as the import wrote it
        pixels = read_own_clip(item.path, (clip.frames, clip.height, clip.width), indices, plan.resize, plan.crop)
    else:
        pixels = read_frames(item.path, indices, plan.resize, plan.crop)
    return as_clip(pixels)


def read_clip_sound(item: RunClip, rate: int) -> torch.Tensor:
    """Read the sound of a clip's planned frames: float32 [2, samples] in [-1, 1]. Raises DataError."""
    import torch

    from workbench.clips.sound import read_span

    return torch.from_numpy(read_span(item.path, item.plan.sound_span, rate))


def reduced(video: torch.Tensor, factor: float) -> torch.Tensor:
    """Scale a clip [1, 3, F, H, W] down and up again, frame by frame (SAT diffusion_video.py, lr_scale)."""
    from torch.nn.functional import interpolate

    frames = video[0].transpose(0, 1)
    height, width = frames.shape[-2:]
    size = (max(1, round(height / factor)), max(1, round(width / factor)))
    small = interpolate(frames, size=size, mode="bilinear", align_corners=False, antialias=True)
    large = interpolate(small, size=(height, width), mode="bilinear", align_corners=False)
    return large.transpose(0, 1).unsqueeze(0)


# ---- what a run has to encode


@dataclass(frozen=True)
class EncodingWork:
    """The captions and views of clips to encode."""

    captions: tuple[str, ...]
    pieces: tuple[Piece, ...]

    def keys(self, encoder: Encoder) -> list[str]:
        """Return the cache keys of all its tensors."""
        captions = [encoder.caption_key(caption) for caption in self.captions]
        return [*captions, *(encoder.clip_key(*piece) for piece in self.pieces)]


def preservation_prompts(family: Family, model: Model, settings: TrainSettings) -> list[str]:
    """Return the preservation prompts; without a preservation weight, only those that prior drift is measured on."""
    own = [prompt for prompt in settings.preservation_prompts if prompt.strip()]
    known = own or list(model.preservation_prompts or family.preservation_prompts)
    return known if settings.preservation_weight else known[:DRIFT_INPUTS]


def drift_captions(data: TrainingData) -> list[str]:
    """Return the captions of the new concept for prior drift in a run without a regularization dataset."""
    return list(dict.fromkeys(item.caption for item in data.train))[:DRIFT_INPUTS]


def precision_of(family: Family, folder: Path, settings: TrainSettings, kind: str) -> str:
    """Return the precision of a run on a kind of device: fp32, fp16 or bf16."""
    if settings.precision != "auto":
        return settings.precision
    return "fp32" if kind == "cpu" else PRECISIONS[family.auto_dtype(family.stored_dtype(folder))]


def encoding_work(settings: TrainSettings, data: TrainingData) -> EncodingWork:
    """Return what a run encodes before its first step. Raises ConfigError for an unknown model."""
    family, model = settings.resolved
    captions = [item.caption for item in (*data.train, *data.held_out) if not item.given_text]
    captions += [*drift_captions(data), *(item.caption for item in data.regularization)]
    captions += [*settings.preview_prompts, *preservation_prompts(family, model, settings)]
    captions += [prompt for pair in settings.slider_pairs for prompt in pair] if settings.is_slider else []
    captions += [model.negative_prompt, ""]
    views, whole, pieces = (
        dict.fromkeys(("clip", view_of(model, settings))),
        family.joins_conditioning(model),
        list[Piece](),
    )
    for items, both in (((*data.train, *data.regularization), settings.horizontal_flip > 0), (data.held_out, False)):
        for item in items:
            own = tuple(view for view in views if view != CONDITIONING)
            if item.generated is not None:  # the base model generates the clip; only its picture exists
                own = tuple(view for view in own if view in FIRST_FRAME_VIEWS)
            own += tuple(conditioning_views(settings, item, whole)) if CONDITIONING in views else ()
            own += ("mask",) if item.mask else ()
            pieces += [Piece(item, SOUND)] if item.heard else []
            own += (OPPOSITE,) if settings.has_pairs and item.role == "train" else ()
            for view in (*own, "text") if item.given_text else own:
                pieces += [Piece(item, view, flip) for flip in ((False, True) if both and item.flippable else (False,))]
    return EncodingWork(tuple(dict.fromkeys(captions)), tuple(pieces))


def encoder_of(
    workspace: Workspace,
    settings: TrainSettings,
    folder: Path,
    device: torch.device | str,
    precision: str,
    defaults: int = DEFAULTS,
) -> Encoder:
    """Return the encoder of a run. folder: the model's"""
    family, model = settings.resolved
    cache, reduction = Cache(workspace.cache), settings.low_resolution_scale
    return Encoder(family, model, folder, cache, device, precision, reduction, defaults)


def portable_keys(workspace: Workspace, settings: TrainSettings) -> list[str]:
    """Return the keys of a run's tensors that are in the cache and are valid on any machine.

    The keys of a model in a local folder depend on the folder's path and times, so none of them are portable. Raises
    what load_data raises.
    """
    family, model = settings.resolved
    folder = family.on_disk(model)
    if not model.revision or folder is None:
        return []
    work = encoding_work(settings, load_data(workspace, settings))
    precisions = {precision_of(family, folder, settings, kind) for kind in ("cpu", "cuda")}
    encoders = [encoder_of(workspace, settings, folder, "cpu", precision) for precision in precisions]
    keys = {key for encoder in encoders for key in work.keys(encoder)}
    return sorted(key for key in keys if (workspace.cache / f"{key}.safetensors").is_file())


# ---- the cache


class Damaged(Exception):
    """A cache entry is missing, or was damaged and is now removed."""


class Cache:
    """Tensors by key, on disk; up to 2 GiB of the most recently used ones also in memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._memory: OrderedDict[str, dict[str, torch.Tensor]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()  # guards what is in memory

    def __contains__(self, key: str) -> bool:
        """Return whether the entry can be opened. A truncated file is removed."""
        from safetensors import SafetensorError, safe_open

        path = self._path(key)
        with contextlib.suppress(SafetensorError, OSError), safe_open(path, "pt") as file:
            if CHECKSUM in (file.metadata() or {}):
                return True
        path.unlink(missing_ok=True)
        return False

    def put(self, key: str, tensors: Mapping[str, torch.Tensor]) -> None:
        """Store tensors under a key, atomically. Raises CannotWrite."""
        from safetensors.torch import save

        stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        write_bytes(self._path(key), save(stored, {CHECKSUM: _checksum(stored)}))

    def get(self, key: str) -> dict[str, torch.Tensor]:
        """Read the tensors of a key. Raises Damaged."""
        with self._lock:
            if key in self._memory:
                self._memory.move_to_end(key)
                return self._memory[key]
        tensors = self._read(key)
        with self._lock:
            if key not in self._memory:
                self._memory[key] = tensors
                self._bytes += _bytes(tensors)
            while self._bytes > MEMORY_BYTES and len(self._memory) > 1:
                self._bytes -= _bytes(self._memory.popitem(last=False)[1])
        return tensors

    def _read(self, key: str) -> dict[str, torch.Tensor]:
        from safetensors import SafetensorError
        from safetensors.torch import load

        try:
            data = self._path(key).read_bytes()  # not memory-mapped: a file truncated meanwhile would kill the process
            stored = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"][CHECKSUM]
            tensors = load(data)
            if stored == _checksum(tensors):
                return tensors
        except (FileNotFoundError, SafetensorError, ValueError, KeyError, TypeError):
            pass
        self._path(key).unlink(missing_ok=True)
        raise Damaged(key)

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.safetensors"


def _checksum(tensors: Mapping[str, torch.Tensor]) -> str:
    import torch

    found = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def _bytes(tensors: Mapping[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())

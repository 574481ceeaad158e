"""Encode once: captions and clips become tensors in the cache, with one encoder in memory at a time.

A clip gives one entry a view: as it is, flipped, and for models that need more than the caption its first frame (as
pixels: its noise is sampled anew at each step) or its low-resolution self. Not covered: which clips and frames (data,
frame_plan), sampling latents from what is stored (the family)."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.families.base import Family, Model, Tensors
from workbench.runs.data import RunClip
from workbench.runs.settings import TrainSettings
from workbench.trainer.inputs.cache import Cache, Damaged, key_of, part_identity

if TYPE_CHECKING:
    import torch

Progress = Callable[[str, int, int, float], None]  # phase, done, total, seconds each
View = Literal["clip", "first frame", "low resolution"]
CAPTIONS_AT_ONCE = 8
FIRST_FRAME = "first_frame"  # the one tensor of a first-frame entry: uint8 [1, 3, H, W]


def view_of(model: Model, settings: TrainSettings) -> View:
    """The model's input beside the caption: "clip" stands for nothing more."""
    if model.task == "text-to-video":
        return "clip"
    return "first frame" if settings.condition == "first frame" else "low resolution"


class Encoder:
    """Fills the cache for one model and gives back its keys."""

    def __init__(
        self, family: Family, model: Model, folder: Path, cache: Cache, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.family = family
        self.folder = folder
        self.cache = cache
        self.device = device
        self.dtype = dtype
        self._text = part_identity(model, folder, "text_encoder") + part_identity(model, folder, "tokenizer")
        self._vae = part_identity(model, folder, "vae")
        self._loaded: tuple[str, Any] = ("", None)  # one of the two encoders
        self._users = 0
        self.log: Callable[[str], None] = lambda text: None
        self._one_at_a_time = threading.RLock()

    def caption_key(self, caption: str) -> str:
        return key_of({"text": caption, "encoder": self._text, "dtype": str(self.dtype)})

    def clip_key(self, item: RunClip, view: View = "clip", flipped: bool = False, reduction: float = 1.0) -> str:
        """Where a view of a clip is kept; reduction: how many times smaller its low-resolution self is."""
        plan = item.plan
        what: dict[str, Any] = {
            "clip": item.sha256,
            "indices": plan.indices[:1] if view == "first frame" else plan.indices,
            "resize": plan.resize,
            "crop": plan.crop,
        }
        what |= {"picture": plan.clip.first_frame} if view == "first frame" and given_picture(item) else {}
        what |= {"view": view} if view == "first frame" else {"vae": self._vae, "dtype": str(self.dtype)}
        what |= {"flipped": True} if flipped else {}
        what |= {"reduction": reduction} if view == "low resolution" else {}
        return key_of(what)

    def caption(self, caption: str) -> Tensors:
        """The embedding of a caption that was encoded; encoded again where its file is damaged."""
        return self._read(self.caption_key(caption), lambda: self.encode_captions([caption], lambda *_: None))

    def clip(self, item: RunClip, view: View = "clip", flipped: bool = False, reduction: float = 1.0) -> Tensors:
        """A view of a clip that was encoded; encoded again where its file is damaged."""
        key = self.clip_key(item, view, flipped, reduction)
        return self._read(key, lambda: self.encode_clip(item, view, flipped, reduction))

    def _read(self, key: str, encode: Callable[[], None]) -> Tensors:
        import torch

        try:
            return self.cache.get(key)
        except Damaged:
            # Threads that read ahead, and a measurement under autocast, may meet it.
            with self._one_at_a_time, torch.autocast(self.device.type, enabled=False):
                if key not in self.cache:
                    self.log(f"the file {key} of the cache is damaged or gone: encoded again")
                    encode()
            return self.cache.get(key)

    def encode_captions(self, captions: Iterable[str], progress: Progress) -> None:
        """Embed every caption that is not in the cache yet; the text encoder is freed afterwards."""
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

    def encode_clips(
        self, items: Iterable[RunClip], views: Iterable[View], also_flipped: bool, reduction: float, progress: Progress
    ) -> None:
        """Encode every view that is not in the cache yet, also flipped with `also_flipped`; the VAE is freed
        afterwards."""
        missing: dict[str, tuple[RunClip, View, bool]] = {}
        for item in items:
            for view in views:
                for flipped in (False, True) if also_flipped else (False,):
                    key = self.clip_key(item, view, flipped, reduction)
                    if key not in self.cache:
                        missing[key] = (item, view, flipped)
        if not missing:
            return
        progress("loading the video encoder", 0, len(missing), 0.0)
        with self.kept_loaded():
            began = time.monotonic()
            for done, (item, view, flipped) in enumerate(missing.values(), 1):
                self.encode_clip(item, view, flipped, reduction)
                progress("encoding clips", done, len(missing), (time.monotonic() - began) / done)

    def encode_clip(self, item: RunClip, view: View, flipped: bool, reduction: float) -> None:
        """Encode one view of one clip, whether it is in the cache or not."""
        key = self.clip_key(item, view, flipped, reduction)
        video = read_first_frame(item) if view == "first frame" else read_video(item)
        video = video.flip(-1) if flipped else video
        if view == "first frame":
            self.cache.put(key, {FIRST_FRAME: ((video[:, :, 0] + 1.0) * 127.5).round().byte()})
            return
        video = reduced(video, reduction) if view == "low resolution" else video
        with self.kept_loaded():
            vae = self._part("vae", lambda: self.family.load_vae(self.folder, self.device, self.dtype))
            self.cache.put(key, self._encoded(vae, video))

    @contextlib.contextmanager
    def kept_loaded(self) -> Iterator[None]:
        """An encoder that was loaded stays until the outermost of these ends, or until the other one is needed."""
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
        """On the device, or on the processor where it does not fit: slower, and only once for each caption."""
        import torch

        try:
            return self.family.load_text_encoder(self.folder, self.device, self.dtype)
        except torch.OutOfMemoryError:
            free_memory()
        return self.family.load_text_encoder(self.folder, torch.device("cpu"), self.dtype)

    def _encoded(self, vae: Any, video: torch.Tensor) -> Tensors:
        """In one piece, or in tiles from the first clip on that is too large for the device's memory."""
        import torch

        try:
            return self.family.encode_video(vae, video)
        except torch.OutOfMemoryError:
            if vae.use_tiling:
                raise
        vae.enable_tiling()
        free_memory()
        return self.family.encode_video(vae, video)


def given_picture(item: RunClip) -> Path | None:
    """The picture that came with the clip as its first frame, where the run takes that frame."""
    name = item.plan.clip.first_frame
    return item.path.parent.parent / name if name and item.plan.indices[0] == 0 else None


def read_first_frame(item: RunClip) -> torch.Tensor:
    """The picture that a clip is trained to begin with: [1, 3, 1, H, W], float32 in [-1, 1]."""
    path = given_picture(item)
    if path is None:
        return read_video(item, first_only=True)
    import numpy as np
    import torch
    from PIL import Image

    (height, width), (top, left, tall, wide) = item.plan.resize, item.plan.crop
    with Image.open(path) as image:
        picture = image.convert("RGB").resize((width, height), Image.Resampling.BICUBIC)
    pixels = torch.from_numpy(np.array(picture.crop((left, top, left + wide, top + tall))))
    return (pixels.permute(2, 0, 1).float() / 127.5 - 1.0)[None, :, None]


def read_video(item: RunClip, first_only: bool = False) -> torch.Tensor:
    """The planned frames of a clip, or the first of them: [1, 3, F, H, W], float32 in [-1, 1]."""
    import torch

    from workbench.clips.media import read_frames, read_own_clip

    clip, plan = item.plan.clip, item.plan
    indices = plan.indices[:1] if first_only else plan.indices
    if clip.sha256 and clip.sha256 == item.sha256:  # it is what the import wrote
        pixels = read_own_clip(item.path, (clip.frames, clip.height, clip.width), indices, plan.resize, plan.crop)
    else:
        pixels = read_frames(item.path, indices, plan.resize, plan.crop)
    frames = torch.from_numpy(pixels)
    return (frames.permute(3, 0, 1, 2).float() / 127.5 - 1.0).unsqueeze(0)


def reduced(video: torch.Tensor, factor: float) -> torch.Tensor:
    """A clip [1, 3, F, H, W] scaled down and up again, frame by frame (SAT diffusion_video.py, lr_scale)."""
    from torch.nn.functional import interpolate

    frames = video[0].transpose(0, 1)
    height, width = frames.shape[-2:]
    size = (max(1, round(height / factor)), max(1, round(width / factor)))
    small = interpolate(frames, size=size, mode="bilinear", align_corners=False, antialias=True)
    large = interpolate(small, size=(height, width), mode="bilinear", align_corners=False)
    return large.transpose(0, 1).unsqueeze(0)


def free_memory() -> None:
    """Give memory of dropped modules back to the GPU."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()

"""Clips of a workbench dataset for the tiny Phenaki's training.

Of each clip as many windows are taken as there are renditions: each begins anywhere, and its picture is cut from
anywhere. They are read once and kept as `windows.pt`, so that a step costs no decoding however large the videos are.
The clips' frames, rate and size are those of the frame plan, as in any other training. Pictures are left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import tiny_accuracy
import torch
from tiny_clips import AT_ONCE, Report, reconstruct
from tiny_training import say, step_generator
from torch import Tensor

from workbench.clips import media
from workbench.clips.frame_plan import FramePlan, Shape, Taking, available_frames, plan, shape_for, take
from workbench.clips.records import METADATA, Clip
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError
from workbench.families.model import Frames
from workbench.families.phenaki.models import TINY
from workbench.families.phenaki.tokenizer import PhenakiTokenizer
from workbench.families.phenaki.transformer import PhenakiTransformer
from workbench.families.prompt_encoder import PromptEncoder

WINDOWS, WINDOWS_STAGE = "windows.pt", 13
MODEL = replace(TINY, title="Phenaki", frame_rule=Frames(TINY.frame_rule.step, 129))  # whose shapes are legal


def legal_shape(frames: int, height: int, width: int, fps: int) -> Shape:
    """A shape that the model can have. Raises ConfigError with the nearest one."""
    return shape_for(MODEL, frames, height, width, fps)


class DatasetClips:
    """The captioned videos of a dataset's folder; see `tiny_clips.Clips`."""

    form_weights: tuple[float, ...] = (1.0,)

    def __init__(self, folder: Path, shape: Shape, held_out: int, renditions: int, seed: int, work: Path) -> None:
        """held_out: clips that are never trained on, chosen by their content. Raises ConfigError, DataError."""
        if not (folder / METADATA).is_file():
            raise ConfigError(f"{folder} is no dataset, it has no {METADATA}: give a folder of workspace/datasets")
        dataset = Dataset(folder)
        self._folder, self._renditions, self._seed, self._work = folder, renditions, seed, work
        self.shape = shape
        usable = self._usable(dataset.clips)
        aside = chosen_aside(usable, held_out, seed)
        self.trained = [clip for clip in usable if content(clip) not in aside]
        self.held_out = [clip for clip in usable if content(clip) in aside]
        captions = dataset.captions
        self.captions = [[captions[clip.file_name] for clip in self.trained]]
        size = f"{shape.frames}x{shape.height}x{shape.width} at {shape.fps:g}"
        self.identity = f"{dataset.content_hash} {size}, {held_out} held out, {renditions} renditions, seed {seed}"

    def _usable(self, clips: list[Clip]) -> list[Clip]:
        """The clips that give the shape; says which do not and why."""
        found = []
        for clip in clips:
            if clip.is_image:
                why: str | None = "an image, videos alone are trained on"
            elif not (self._folder / clip.file_name).is_file():
                why = "the file is missing"
            else:
                why = plan(clip, self.shape).dropped
            if why:
                say(f"{clip.name} is left out: {why}")
            else:
                found.append(clip)
        return found

    @cached_property
    def windows(self) -> Tensor:
        """uint8 [renditions, clips, F, H, W, 3] of the clips that are trained on."""
        file = self._work / WINDOWS
        if not file.exists():
            say(f"reading {self._renditions} windows of each of {len(self.trained)} clips")
            generator = step_generator(self._seed, WINDOWS_STAGE, 0)
            found = [
                self._read(sample_window(clip, self.shape, generator))
                for _ in range(self._renditions)
                for clip in self.trained
            ]
            torch.save(torch.stack(found).unflatten(0, (self._renditions, -1)), file.with_suffix(".tmp"))
            file.with_suffix(".tmp").replace(file)
        windows: Tensor = torch.load(file, weights_only=True)
        return windows

    def _read(self, planned: FramePlan) -> Tensor:
        """uint8 [F, H, W, 3]. Raises DataError."""
        path = self._folder / planned.clip.file_name
        return torch.from_numpy(media.read_frames(path, planned.indices, planned.resize, planned.crop))

    def tokenizer_batch(self, count: int, generator: torch.Generator) -> Tensor:
        rendition = torch.randint(len(self.windows), (count,), generator=generator)
        return as_clips(self.windows[rendition, torch.randint(len(self.trained), (count,), generator=generator)])

    def pool(self) -> Iterator[Tensor]:
        for rendition in self.windows:
            yield from map(as_clips, rendition.split(AT_ONCE))

    def tokenizer_report(self, tokenizer: PhenakiTokenizer, count: int) -> Report:
        """PSNR (dB) of reconstructions: of windows that are trained on, and of the middle of held-out clips."""
        sets = {"trained": self.windows[0, :count]}
        if self.held_out:
            middles = [self._read(plan(clip, self.shape)) for clip in self.held_out[:count]]
            sets["held-out"] = torch.stack(middles)
        found = {name: as_clips(pixels) for name, pixels in sets.items()}
        return {f"{name} PSNR": tiny_accuracy.psnr(reconstruct(tokenizer, one), one) for name, one in found.items()}

    def prompt_report(
        self, tokenizer: PhenakiTokenizer, transformer: PhenakiTransformer, text_encoder: PromptEncoder, count: int
    ) -> Report:
        """Nothing: no check knows what a dataset's clips show."""
        return {}


def content(clip: Clip) -> str:
    """What tells clips apart; a plain VideoFolder has no checksums."""
    return clip.sha256 or clip.file_name


def chosen_aside(clips: list[Clip], count: int, seed: int) -> set[str]:
    """The contents of clips that are held out, as runs choose them: adding a clip moves no other. Raises DataError."""
    contents = {content(clip) for clip in clips}
    if count >= len(contents):
        raise DataError(
            f"{count} clips are to be held out and {len(contents)} can be used: lower --held-out, or add clips"
        )
    return set(sorted(contents, key=lambda text: hashlib.sha256(f"{seed}:{text}".encode()).digest())[:count])


def last_start(clip: Clip, shape: Shape) -> int:
    """The last frame at which a window of the shape may begin."""
    start = clip.frames - 1
    while start and available_frames(clip.changed(frames=clip.frames - start), shape.fps) < shape.frames:
        start -= 1
    return start


def sample_window(clip: Clip, shape: Shape, generator: torch.Generator) -> FramePlan:
    """A window that begins anywhere in the clip, its picture cut from anywhere."""
    start = int(torch.randint(last_start(clip, shape) + 1, (1,), generator=generator))
    seed = int(torch.randint(2**62, (1,), generator=generator))
    return take(clip, shape, Taking("start", skip_start=start, crop="random", seed=seed))[0]


def as_clips(pixels: Tensor) -> Tensor:
    """Clips [N, 3, F, H, W] in [-1, 1] of pixels, uint8 [N, F, H, W, 3]."""
    return pixels.permute(0, 4, 1, 2, 3).float() / 127.5 - 1.0

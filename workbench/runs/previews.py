"""The videos that a run generates during training, with their records. No torch; `trainer.previewer` generates them.

previews/step-00000250/0.mp4 0.json             the preview of the first prompt; step 0 is the base model
previews/step-00000250/0-scale-0.5.mp4          the same with the LoRA at another scale
previews/step-00000250/0.safetensors            a preview kept as latents
previews/step-00000250/control-0.mp4            a control: a preservation prompt, which the LoRA should not affect
previews/step-00000250/live-0.mp4               a live sample
previews/step-00000000/input-0.mp4 reconstruction-0.mp4    a training clip, and its VAE reconstruction
previews/film-0.mp4                             the previews of the first prompt and seed, step after step
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from workbench.clips import media
from workbench.errors import ConfigError, DataError
from workbench.settings import Settings, field, parse
from workbench.workspace import read_object, step_folders

FOLDER = "previews"
LARGEST_SCALE = 1000.0  # larger numbers in a file name are not a LoRA scale
LIVE_SAMPLES = 12  # how many of the newest to read
NAMES = re.compile(r"(?P<control>control-)?(?P<index>\d+)(-scale-(?P<scale>.+))?")
Kind = Literal["preview", "scaled", "control"]


@dataclass(frozen=True)
class Preview:
    """One preview video of a run."""

    step: int
    index: int
    prompt: str
    video: Path
    scale: float = 1.0
    record: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)


class LiveSample(Settings):
    """A video with a running run's current weights; empty settings are those of its previews."""

    SECTION = "Live sample"

    prompt: str = field("", title="Prompt", lines=2)
    """Empty: the run's first preview prompt."""

    seed: int = field(0, title="Seed", low=0, high=2**31 - 1)
    """The same seed starts from the same noise."""

    guidance_scale: float | None = field(None, title="Guidance scale", low=0.0, high=50.0)
    """How closely the video follows the prompt. Empty: as in the run's previews."""

    steps: int | None = field(None, title="Denoising steps", low=1, high=1000, unit="steps")
    """More steps give finer results and take longer. Empty: as in the run's previews."""

    scale: float = field(1.0, title="LoRA scale", low=-4.0, high=4.0)
    """0 is the base model, 1 the LoRA as trained."""

    @classmethod
    def read(cls, values: Any) -> LiveSample:
        """Parse a command's JSON. Raises ConfigError."""
        return parse(cls, values if isinstance(values, dict) else {"live_sample": values})


@dataclass(frozen=True)
class LiveVideo:
    """A live sample, with its record."""

    video: Path
    record: Mapping[str, Any]

    @property
    def prompt(self) -> str:
        return str(self.record.get("prompt", ""))

    @property
    def facts(self) -> list[str]:
        """How it was generated, in short texts."""
        record, scale = self.record, self.record.get("scale", 1.0)
        return [
            f"step {record.get('step')}",
            f"seed {record.get('seed')}",
            f"{record.get('steps')} denoising steps",
            f"guidance {record.get('guidance_scale')}",
            f"LoRA at {scale:g}" if isinstance(scale, int | float) and scale else "base model",
        ]


@dataclass(frozen=True)
class TrainingInput:
    """A training clip as the model's input, and its VAE reconstruction; None if that is missing."""

    caption: str
    clip: Path
    reconstruction: Path | None


@dataclass(frozen=True)
class RunPreviews:
    """Everything in a run's folder of previews.

    previews: with the LoRA at scale 1, by step, then prompt.
    scaled: with the LoRA at other scales.
    controls: of preservation prompts, by step, then prompt.
    live: live samples, newest first.
    latents: how many previews exist only as latents.
    """

    previews: tuple[Preview, ...] = ()
    scaled: tuple[Preview, ...] = ()
    controls: tuple[Preview, ...] = ()
    inputs: tuple[TrainingInput, ...] = ()
    live: tuple[LiveVideo, ...] = ()
    latents: int = 0

    @cached_property
    def steps(self) -> list[int]:
        return sorted({preview.step for preview in self.previews})

    @cached_property
    def prompts(self) -> dict[int, str]:
        """Every prompt by its index."""
        return dict(sorted({preview.index: preview.prompt for preview in self.previews}.items()))

    def at(self, index: int, step: int) -> Preview | None:
        return self._cells.get((index, step))

    @cached_property
    def _cells(self) -> dict[tuple[int, int], Preview]:
        return {(preview.index, preview.step): preview for preview in self.previews}

    @property
    def pairs(self) -> list[tuple[Preview, Preview]]:
        """(base model, newest LoRA) for every prompt that has both."""
        last = max(self.steps, default=0)
        found = [(self.at(index, 0), self.at(index, last)) for index in self.prompts] if last else []
        return [(before, after) for before, after in found if before and after]

    @property
    def by_scale(self) -> list[list[Preview]]:
        """Previews of the newest step that has several scales, by prompt, lowest scale first."""
        step = max((one.step for one in self.scaled), default=None)
        every = [one for one in (*self.scaled, *self.previews) if one.step == step]
        prompts = sorted({one.index for one in self.scaled if one.step == step})
        return [sorted((one for one in every if one.index == index), key=lambda one: one.scale) for index in prompts]


def _by_kind(run: Path, step: int) -> list[tuple[Kind, Preview]]:
    """Read the previews of a step with their kinds, by prompt, then scale."""
    folder, found = run / FOLDER / f"step-{step:08d}", list[tuple[Kind, Preview]]()
    with contextlib.suppress(OSError):
        names = set(os.listdir(folder))
        for name in names:
            stem, _, suffix = name.rpartition(".")
            named = NAMES.fullmatch(stem)  # others are live samples and training inputs
            if suffix != "mp4" or not named or f"{stem}.json" not in names:
                continue
            with contextlib.suppress(ValueError):
                index, scale, video = int(named["index"]), float(named["scale"] or 1), folder / name
                kind: Kind = "control" if named["control"] else "scaled" if named["scale"] else "preview"
                if abs(scale) < LARGEST_SCALE:
                    record = _record(video)
                    if record or kind != "control":
                        found.append((kind, Preview(step, index, str(record.get("prompt", "")), video, scale, record)))
    return sorted(found, key=lambda one: (one[1].index, one[1].scale))


def previews_of(run: Path, step: int, kind: Kind = "preview") -> list[Preview]:
    """Read the previews of a step, by prompt, then scale."""
    return [one for own, one in _by_kind(run, step) if own == kind]


def changes(before: Sequence[Preview], after: Sequence[Preview]) -> list[float | None]:
    """Compare each later preview with the earlier one of the same number and prompt, made from the same noise.

    Returns:
        The mean difference in levels of 255; None if the earlier one is missing or cannot be read.
    """
    videos, found = {(one.index, one.prompt): one.video for one in before}, list[float | None]()
    for one in after:
        apart = None
        if (earlier := videos.get((one.index, one.prompt))) is not None:
            with contextlib.suppress(DataError):
                apart = media.difference(earlier, one.video)
        found.append(apart.levels if apart else None)
    return found


def all_previews(run: Path, kind: Kind = "preview") -> list[Preview]:
    """Read every preview of a kind, by step, then prompt."""
    return [one for step in sorted(step_folders(run / FOLDER)) for one in previews_of(run, step, kind)]


def read_previews(run: Path) -> RunPreviews:
    """Read a run's folder of previews."""
    folders = step_folders(run / FOLDER)
    files = [folder / name for folder in folders.values() for name in os.listdir(folder)]
    latents = [one for one in files if one.suffix == ".safetensors"]
    live = [one for one in files if one.name.startswith("live-") and one.suffix == ".mp4"]
    live = sorted(live, key=lambda video: video.stat().st_mtime, reverse=True)[:LIVE_SAMPLES]
    inputs = []
    for clip in sorted((run / FOLDER / "step-00000000").glob("input-*.mp4")):
        kept = clip.with_name(clip.name.replace("input-", "reconstruction-"))
        inputs.append(TrainingInput(str(_record(clip).get("prompt", "")), clip, kept if kept.exists() else None))
    every = [one for step in sorted(folders) for one in _by_kind(run, step)]
    return RunPreviews(
        previews=tuple(one for kind, one in every if kind == "preview"),
        scaled=tuple(one for kind, one in every if kind == "scaled"),
        controls=tuple(one for kind, one in every if kind == "control"),
        inputs=tuple(inputs),
        live=tuple(LiveVideo(video, _record(video)) for video in live),
        latents=sum(not one.with_suffix(".mp4").exists() for one in latents),
    )


def _record(video: Path) -> dict[str, Any]:
    return read_object(video.with_suffix(".json"))


# ---- a film to share: one prompt and seed, step after step

FILM_HEIGHT = 240  # smaller videos are enlarged, so that the step can be read


def write_film(run: Path, index: int = 0) -> tuple[Path, list[int]]:
    """Write the previews with one number as an mp4 that labels each with its step; return it and the steps.

    Raises ConfigError if there are fewer than two steps, DataError, CannotWrite.
    """
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    shown = [one for one in all_previews(run) if one.index == index]
    if len(shown) < 2:
        known = ", ".join(str(number + 1) for number in sorted({one.index for one in all_previews(run)})) or "none"
        raise ConfigError.of(
            "video", f"{run.name} has no two previews of video {index + 1} to film: choose from {known}"
        )
    frames, steps, last = list[Any](), list[int](), shown[-1].step
    for one in shown:
        pictures = [picture for _, picture in media.decode(one.video)]
        factor = -(-FILM_HEIGHT // len(pictures[0]))
        if frames and frames[0].shape[:2] != tuple(factor * side for side in pictures[0].shape[:2]):
            continue  # the size of previews was changed
        steps.append(one.step)
        for picture in pictures:
            enlarged = Image.fromarray(picture.repeat(factor, 0).repeat(factor, 1))
            width, height = enlarged.size
            canvas, font = ImageDraw.Draw(enlarged), ImageFont.load_default(max(12, height // 18))
            text = f"step {one.step:,}" if one.step else "base model"
            canvas.text(
                (height // 30, height - height // 18), text, "white", font, "ls", stroke_width=2, stroke_fill="black"
            )
            canvas.rectangle((0, height - height // 60, width * one.step // max(1, last), height), "white")
            frames.append(np.asarray(enlarged))
    path = run / FOLDER / f"film-{index}.mp4"
    media.encode(np.stack(frames), path, float(shown[0].record.get("fps") or 8.0))
    return path, steps

"""One set of weights that a family can train: facts for forms, checks and downloads. Not the sizes: see `facts`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from workbench.errors import ConfigError
from workbench.families.denoising import Curve

# What LoRAs on the built-in models should leave alone.
TINY_PROMPTS = (
    "a red circle moves left on a blue background",
    "a green square moves right on a white background",
    "a yellow triangle moves up on a black background",
)
SMALL = 832 * 480  # pixels of a frame, which authors call 480p
Task = Literal["text-to-video", "image-to-video"]


@dataclass(frozen=True)
class Frames:
    """Legal frame counts: step * n + 1, up to `longest`."""

    step: int
    longest: int

    def legal(self) -> list[int]:
        return list(range(1 + self.step, self.longest + 1, self.step))

    def __str__(self) -> str:
        return f"{self.step}k+1, from {self.step + 1} to {self.longest}"


@dataclass(frozen=True)
class Expert:
    """A transformer of a model that has one or two, each for a part of the noise levels.

    name: "" where it is the only one;  part: the folder of its weights
    lowest, highest: the shares of noise for which it is there, the lowest included
    """

    name: str
    part: str = "transformer"
    lowest: float = 0.0
    highest: float = 1.0

    def covers(self, timestep: float) -> bool:
        """Whether it computes at a timestep, 0 to 1000."""
        return 1000 * self.lowest <= timestep and (timestep < 1000 * self.highest or self.highest == 1)


HIGH_NOISE, LOW_NOISE = "high noise", "low noise"


@dataclass(frozen=True)
class Model:
    """One set of weights.

    id:       its name in settings;  title: its name for people
    source:   Hub repository, or a folder when `local`
    revision: commit of the Hub repository: the pinned one, or one that a person named
    variant:  which of the repository's sets of weights, "" for the one without a name
    aliases:  the repository's other names on the Hub
    frames, fps, height, width: what it was made for and what a form starts with
    frame_rule, size_multiple, largest: what is legal; largest is (height, width), None when there is no limit
    fixed_size: whether no height and width but its own are legal
    license_file: where the repository has its text, "" for its page
    steps, guidance_scale, scheduler, negative_prompt: what samples and previews start with
    guidance_scale_2: of the expert for low noise, None: the same
    flow_shift: of the noise levels of samples and previews, where a family has the setting; None: the scheduler's own
    small_flow_shift: the same of videos of at most SMALL pixels, where authors take another; None: no other
    dynamic_guidance: the curve of the guidance scale over the steps (guidance.Guidance)
    boundary: the share of noise above which another transformer computes; 0: one computes all
    zeros_without_prompt: whether guidance compares with zeros where there is no negative prompt: of a full fine-tune
    pipeline: diffusers' class that generates with it, where the task does not say which of the family's
    preservation_prompts: what a LoRA should leave alone; empty: the family's
    recipes: the table of recipes.py that says how LoRAs on it were trained; "": the family's
    """

    id: str
    title: str
    family: str
    source: str
    revision: str | None
    task: Task
    frames: int
    fps: int
    height: int
    width: int
    frame_rule: Frames
    size_multiple: int
    steps: int
    guidance_scale: float
    scheduler: str
    license: str
    license_file: str = "LICENSE"
    largest: tuple[int, int] | None = None
    download_gb: float = 0.0
    local: bool = False
    embedded: bool = False
    fixed_size: bool = False
    preservation_prompts: tuple[str, ...] = ()
    recipes: str = ""
    variant: str = ""
    negative_prompt: str = ""
    guidance_scale_2: float | None = None
    flow_shift: float | None = None
    small_flow_shift: float | None = None
    dynamic_guidance: Curve = "off"
    boundary: float = 0.0
    zeros_without_prompt: bool = False
    pipeline: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def experts(self) -> tuple[Expert, ...]:
        """Its transformers, most noise first."""
        if not self.boundary:
            return (Expert(""),)
        return (Expert(HIGH_NOISE, lowest=self.boundary), Expert(LOW_NOISE, "transformer_2", highest=self.boundary))

    def expert(self, name: str) -> Expert:
        """The one of that name, or the only one."""
        return next((one for one in self.experts if one.name == name), self.experts[0])

    def experts_for(self, names: Sequence[str]) -> tuple[Expert, ...]:
        """Those that a LoRA is for: all where nothing names one."""
        return tuple(one for one in self.experts if one.name in names) or self.experts

    def in_folder(self, folder: Path) -> Model:
        """A model like this one whose files are in a folder."""
        return replace(
            self,
            id=str(folder),
            title=folder.name,
            source=str(folder),
            revision=None,
            variant="",
            aliases=(),
            local=True,
            embedded=False,
            download_gb=0.0,
        )

    @property
    def pinned(self) -> str:
        """Repository, variant and commit of a Hub model: what decides its weights."""
        return f"{self.source}{':' if self.variant else ''}{self.variant}@{self.revision}"

    def flow_shift_at(self, height: int, width: int) -> float | None:
        """`flow_shift` of videos of a size."""
        small = self.small_flow_shift is not None and height * width <= SMALL
        return self.small_flow_shift if small else self.flow_shift

    @property
    def makes_pictures(self) -> bool:
        """Whether one frame is legal: it is of every model that is not given it."""
        return self.task == "text-to-video"

    @property
    def frame_counts(self) -> list[int]:
        """The legal frame counts, in order."""
        return [1, *self.frame_rule.legal()] if self.makes_pictures else self.frame_rule.legal()

    @property
    def frames_in_words(self) -> str:
        """The same for people: "1 or 8k+1, from 9 to 49"."""
        return f"1 or {self.frame_rule}" if self.makes_pictures else str(self.frame_rule)

    def check_shape(self, frames: int, height: int, width: int) -> None:
        """Refuse what the model cannot generate. Raises ConfigError naming the nearest legal values."""
        legal = self.frame_counts
        if frames not in legal:
            nearest = sorted(sorted(legal, key=lambda n: abs(n - frames))[:2])
            choice = " or ".join(str(n) for n in nearest)
            sentence = f"frames is {frames}, {self.title} needs {self.frames_in_words}: use {choice}"
            raise ConfigError(sentence, {"frames": f"use {choice}"})
        for name, pixels in (("height", height), ("width", width)):
            if pixels < self.size_multiple or pixels % self.size_multiple:
                nearest_size = max(self.size_multiple, round(pixels / self.size_multiple) * self.size_multiple)
                rule = f"use {nearest_size}"
                raise ConfigError(
                    f"{name} is {pixels}, {self.title} needs a multiple of {self.size_multiple}: {rule}", {name: rule}
                )
        if self.fixed_size and (height, width) != (self.height, self.width):
            rule = f"use {self.width}x{self.height}"
            raise ConfigError(
                f"size is {width}x{height}, {self.title} knows positions of {self.width}x{self.height} alone: {rule}",
                {"height": rule, "width": rule},
            )
        if self.largest and (height > self.largest[0] or width > self.largest[1]):
            rule = f"use at most {self.largest[1]}x{self.largest[0]}"
            raise ConfigError(
                f"size is {width}x{height}, {self.title} is made for {self.largest[1]}x{self.largest[0]}: {rule}"
            )

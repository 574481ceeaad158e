"""A model, as forms, checks and downloads see it: its source, legal clip sizes and sampling defaults.

`facts` has its sizes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from workbench.errors import ConfigError
from workbench.families.denoising import Curve

# Preservation prompts for the built-in models.
TINY_PROMPTS = (
    "a red circle moves left on a blue background",
    "a green square moves right on a white background",
    "a yellow triangle moves up on a black background",
)
SMALL = 832 * 480  # pixels per frame at what Wan's authors call 480p
ClipSize = tuple[int, int, int]  # frames, height, width
Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
Task = Literal["text-to-video", "image-to-video"]


@dataclass(frozen=True)
class Frames:
    """Legal frame counts: step * k + 1, up to `longest`."""

    step: int
    longest: int

    def legal(self) -> list[int]:
        return list(range(1 + self.step, self.longest + 1, self.step))

    def __str__(self) -> str:
        return f"{self.step}k+1, from {self.step + 1} to {self.longest}"


@dataclass(frozen=True)
class Expert:
    """One of a model's transformers. Models have one, or two for different noise levels."""

    name: str  # "" if it is the only one
    part: str = "transformer"  # subfolder of its weights
    # lowest, highest: range of noise levels it handles, 0 to 1, without the upper end
    lowest: float = 0.0
    highest: float = 1.0

    def covers(self, timestep: float) -> bool:
        """Return whether it handles a timestep, 0 to 1000."""
        return 1000 * self.lowest <= timestep and (timestep < 1000 * self.highest or self.highest == 1)


DISTILLED_NAME = re.compile(r"distill|lightx2v|lightning|turbo|causvid|self.?forcing|fusionx|dmd", re.IGNORECASE)
HIGH_NOISE, LOW_NOISE = "high noise", "low noise"


@dataclass(frozen=True)
class Model:
    """One set of weights.

    steps, guidance_scale, scheduler, negative_prompt: defaults of samples and previews.
    """

    id: str  # its name in settings
    title: str  # its name for people
    family: str
    source: str  # Hub repository, or a folder if `local`
    revision: str | None  # commit of the Hub repository, pinned or chosen by the user
    task: Task
    # frames, fps, height, width: what it was trained for, and the defaults of forms
    frames: int
    fps: int
    height: int
    width: int
    # frame_rule, size_multiple: legal frame counts and sizes
    frame_rule: Frames
    size_multiple: int
    steps: int
    guidance_scale: float
    scheduler: str
    license: str
    license_file: str = "LICENSE"  # path of the license text in the repository; "" for the repository's page
    largest: tuple[int, int] | None = None  # largest legal (height, width); None for no limit
    download_gb: float = 0.0
    local: bool = False
    embedded: bool = False
    fixed_size: bool = False  # only its own height and width are legal
    preservation_prompts: tuple[str, ...] = ()  # prompts that measure prior drift; empty: the family's
    recipes: str = ""  # table of assets/recipes.toml; "": the family's
    # Values of the scheduler's config that the variant needs and the repository's scheduler lacks
    scheduler_changes: tuple[tuple[str, bool | float], ...] = ()
    variant: str = ""  # set of weights in the repository, such as "fp16"; "" for the default one
    negative_prompt: str = ""
    guidance_scale_2: float | None = None  # guidance scale of the low-noise expert; None: the same
    flow_shift: float | None = None  # shift of the noise levels in samples and previews; None: the scheduler's own
    small_flow_shift: float | None = None  # the same for frames of at most SMALL pixels; None: no difference
    dynamic_guidance: Curve = "off"  # curve of the guidance scale over the steps (denoising.Guidance)
    # Noise level above which the high-noise expert takes over, 0 to 1; 0 for models with one transformer
    boundary: float = 0.0
    # Guide away from zero embeddings without a negative prompt, for some full fine-tunes
    zeros_without_prompt: bool = False
    pipeline: str = ""  # diffusers' pipeline class, if the family has several for the task
    aliases: tuple[str, ...] = ()  # other names of the repository on the Hub
    # What was distilled into its weights, "guidance" or "steps"; "" if nothing was
    distilled: Literal["", "guidance", "steps"] = ""
    distilled_from: str = ""  # id of the model that it was distilled from, which is the one to train
    # (part, path of a single file) for parts whose weights are read from a file instead: see own_files
    files: tuple[tuple[str, str], ...] = ()
    stored: str = ""  # the transformer's dtype for precision auto, if its weights are read from a file
    whole_gb: float = 0.0  # download_gb of the model whose parts `files` replace; 0 without files

    @property
    def experts(self) -> tuple[Expert, ...]:
        """Its transformers, high noise first."""
        if not self.boundary:
            return (Expert(""),)
        return (Expert(HIGH_NOISE, lowest=self.boundary), Expert(LOW_NOISE, "transformer_2", highest=self.boundary))

    def expert(self, name: str) -> Expert:
        """Return the expert of that name, or the first."""
        return next((one for one in self.experts if one.name == name), self.experts[0])

    def experts_for(self, names: Sequence[str]) -> tuple[Expert, ...]:
        """Return the experts of those names, or all if there are none."""
        return tuple(one for one in self.experts if one.name in names) or self.experts

    def in_folder(self, folder: Path) -> Model:
        """Return a copy whose files are in a folder."""
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
    def base_id(self) -> str:
        """The id of the model whose parts `files` replace; its own without files."""
        return self.id.rpartition(" + ")[2] if self.files else self.id

    @property
    def distillation(self) -> str:
        """Return what to do instead of training on a distilled model, as sentences; "" for other models.

        Folders, repositories and files are known by their names.
        """
        names = [path for _, path in self.files] or [self.source]
        if not self.distilled and not any(DISTILLED_NAME.search(Path(name).name) for name in names):
            return ""
        need = {"guidance": "no guidance", "steps": "few steps", "": "few steps or no guidance"}[self.distilled]
        instead = self.distilled_from or (self.base_id if self.files else "the model that it was distilled from")
        return (
            f"{self.title} is distilled to need {need}, which training slowly undoes. Train on {instead} and check the "
            f"LoRA on both, or use a LoRA that undoes the distillation as the training adapter."
        )

    @property
    def pinned(self) -> str:
        """Repository, variant and commit of a Hub model, which identify its weights."""
        return f"{self.source}{':' if self.variant else ''}{self.variant}@{self.revision}"

    def flow_shift_at(self, height: int, width: int) -> float | None:
        """Return `flow_shift` for a size in pixels."""
        small = self.small_flow_shift is not None and height * width <= SMALL
        return self.small_flow_shift if small else self.flow_shift

    @property
    def makes_pictures(self) -> bool:
        """Whether one frame is legal: not for image-to-video, which starts from it."""
        return self.task == "text-to-video"

    @property
    def frame_counts(self) -> list[int]:
        """The legal frame counts, in order."""
        return [1, *self.frame_rule.legal()] if self.makes_pictures else self.frame_rule.legal()

    @property
    def frames_in_words(self) -> str:
        """The legal frame counts, for people: "1 or 8k+1, from 9 to 49"."""
        return f"1 or {self.frame_rule}" if self.makes_pictures else str(self.frame_rule)

    def check_shape(self, frames: int, height: int, width: int) -> None:
        """Refuse a size that the model cannot generate. Raises ConfigError with the nearest legal values."""
        if frames not in self.frame_counts:
            nearest = sorted(self.frame_counts, key=lambda legal: abs(legal - frames))[:2]
            rule = f"use {' or '.join(map(str, sorted(nearest)))}"
            sentence = f"frames is {frames}, {self.title} needs {self.frames_in_words}: {rule}"
            raise ConfigError(sentence, {"frames": rule})
        multiple = self.size_multiple
        for name, pixels in (("height", height), ("width", width)):
            if pixels < multiple or pixels % multiple:
                rule = f"use {max(multiple, round(pixels / multiple) * multiple)}"
                raise ConfigError(
                    f"{name} is {pixels}, {self.title} needs a multiple of {multiple}: {rule}", {name: rule}
                )
        if self.fixed_size and (height, width) != (self.height, self.width):
            rule = f"use {self.width}x{self.height}"
            raise ConfigError(
                f"size is {width}x{height}, {self.title} supports only {self.width}x{self.height}: {rule}",
                {"height": rule, "width": rule},
            )
        if self.largest and (height > self.largest[0] or width > self.largest[1]):
            rule = f"use at most {self.largest[1]}x{self.largest[0]}"
            raise ConfigError(
                f"size is {width}x{height}, {self.title} is made for {self.largest[1]}x{self.largest[0]}: {rule}"
            )

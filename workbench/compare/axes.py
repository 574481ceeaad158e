"""From a grid's settings to its rows, columns and the settings of each video; names of cells. Pure, no torch.

Columns that come to the same settings are one: the base model is one column, however many scales the LoRA has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

from workbench.clips.frame_plan import Shape, shape_for
from workbench.compare.settings import BASE, EXPORT, NONE, GridSettings
from workbench.errors import ConfigError
from workbench.families.model import Model
from workbench.runs.checkpoints import LORA, folder_of
from workbench.runs.run import EXPORT as EXPORT_FILE
from workbench.sampler.loras import split_scale
from workbench.sampler.settings import INPUT_FILES, SampleSettings
from workbench.workspace import Workspace

AXES = ("checkpoints", "loras", "scales", "guidance", "steps", "schedulers", "column_seeds")
LORA_AXES = frozenset({"checkpoints", "loras", "scales"})
MOST_CELLS = 2000
PLAIN = SampleSettings().model_dump(mode="json")
BASE_MODEL = "base model"
STACK = " + "


@dataclass(frozen=True)
class Row:
    """What the videos of a row have in common. image: the first frame's file, "" for none."""

    prompt: str
    image: str
    seed: int
    label: str


@dataclass(frozen=True)
class Column:
    """What the videos of a column have in common.

    labels:    a word or two for each axis, the outer one first; "" where it says nothing
    changes:   of SampleSettings
    step:      of the run's checkpoint, None for others;  final: whether it is the run's export
    reference: index of the column that this one is compared with: the base model, all else the same
    """

    labels: tuple[str, ...]
    changes: dict[str, Any] = field(hash=False)
    step: int | None = None
    final: bool = False
    base: bool = False
    reference: int = 0

    @property
    def name(self) -> str:
        return ", ".join(label for label in self.labels if label)


@dataclass(frozen=True)
class GridPlan:
    """The layout of a grid. keys: [row][column]; samples: by key; fixed: axes of one value, in words."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...]
    samples: dict[str, SampleSettings]
    fixed: tuple[str, ...]


def plan_grid(workspace: Workspace, settings: GridSettings, base: SampleSettings) -> GridPlan:
    """Lay a grid out. Raises ConfigError: more than two axes, no prompt, a shape that the model refuses."""
    rows, (columns, fixed) = _rows(settings, base), _columns(workspace, settings, base)
    if len(rows) * len(columns) > MOST_CELLS:
        raise ConfigError(
            f"the grid has {len(rows) * len(columns)} videos, at most {MOST_CELLS} are allowed: leave out "
            f"some prompts, seeds or columns"
        )
    model = base.resolved.model
    shape = shape_for(model, base.frames, base.height, base.width)
    keys, samples = [], {}
    for row in rows:
        line = []
        for column in columns:
            sample = base.changed(**{"prompt": row.prompt, "image": row.image, "seed": row.seed, **column.changes})
            line.append(_name(workspace, model, shape, sample))
            samples[line[-1]] = sample
        keys.append(tuple(line))
    return GridPlan(tuple(rows), tuple(columns), tuple(keys), samples, tuple(fixed))


def _rows(settings: GridSettings, base: SampleSettings) -> list[Row]:
    prompts = settings.prompts or ((base.prompt,) if base.prompt else ())
    if not prompts:
        raise ConfigError("prompts is empty: write one a line", {"prompts": "prompts is empty: write one a line"})
    if len(settings.images) > 1 and len(settings.images) != len(prompts):
        sentence = (
            f"images has {len(settings.images)} files for {len(prompts)} prompts: give one for each, or one for all"
        )
        raise ConfigError(sentence, {"images": sentence})
    images = settings.images or (base.image,)
    images = images * len(prompts) if len(images) == 1 else images
    seeds = [int(seed) for seed in settings.seeds] or [base.seed or 0]
    if len(seeds) > 1 and settings.column_seeds:
        sentence = "seeds are rows and columns at once: give them in one of the two"
        raise ConfigError(sentence, {"column_seeds": sentence})
    rows = {}
    for (prompt, image), seed in product(zip(prompts, images, strict=True), seeds):
        rows[prompt, image, seed] = Row(prompt, image, seed, f"seed {seed}" if len(seeds) > 1 else "")
    return list(rows.values())


def _columns(workspace: Workspace, settings: GridSettings, base: SampleSettings) -> tuple[list[Column], list[str]]:
    """The columns, and the axes of one value in words."""
    axes = [(name, values) for name in AXES if (values := getattr(settings, name))]
    wide = [name for name, values in axes if len(values) > 1]
    if len(wide) > 2:
        sentence = f"{' and '.join(wide)} all have several values, columns have two at most: give one of them one value"
        raise ConfigError(sentence, {wide[-1]: sentence})
    found: list[Column] = []
    for combination in product(*(values for _, values in axes)):
        choice = dict(zip([name for name, _ in axes], combination, strict=True))
        changes = _changes(workspace, settings.run, choice, base)
        if any(changes == column.changes for column in found):
            continue
        checkpoint = choice.get("checkpoints", "")
        bare = not changes["loras"]
        found.append(
            Column(
                _labels(choice, wide, bare),
                changes,
                step=int(checkpoint) if checkpoint.isdecimal() and not bare else None,
                final=checkpoint == EXPORT and not bare,
                base=bare,
            )
        )
    columns = [Column(one.labels, one.changes, one.step, one.final, one.base, _reference(one, found)) for one in found]
    fixed = [_word(name, values[0]) for name, values in axes if name not in wide]
    return columns, fixed


def _changes(workspace: Workspace, run: str, choice: dict[str, str], base: SampleSettings) -> dict[str, Any]:
    """What a column changes of the base's settings; the LoRAs always among it."""
    scale = float(choice.get("scales", "1"))
    compared: list[str] = []
    checkpoint = choice.get("checkpoints", BASE)
    if checkpoint != BASE:
        compared.append(str(lora_file(workspace, run, checkpoint)))
    stack = choice.get("loras", NONE)
    if stack != NONE:
        compared += [part.strip() for part in stack.split(STACK)]
    kept = list(base.loras)
    if "checkpoints" not in choice and "loras" not in choice:
        kept, compared = [], kept
    scaled = [(name, own * scale) for name, own in map(split_scale, compared)]
    loras = kept + [f"{name}={value:g}" for name, value in scaled if value]
    read: dict[str, tuple[str, Callable[[str], Any]]] = {
        "guidance": ("guidance_scale", float),
        "steps": ("steps", int),
        "schedulers": ("scheduler", str),
        "column_seeds": ("seed", int),
    }
    return {"loras": loras, **{name: of(choice[axis]) for axis, (name, of) in read.items() if axis in choice}}


def lora_file(workspace: Workspace, run: str, checkpoint: str) -> Path:
    """Path of the LoRA of a run's checkpoint, there or not. Raises ConfigError for a name that is no run's."""
    folder = workspace.run(run)
    return folder / EXPORT_FILE if checkpoint == EXPORT else folder_of(folder, int(checkpoint)) / LORA


def _labels(choice: dict[str, str], wide: Sequence[str], bare: bool) -> tuple[str, ...]:
    """The words above a column. Without a LoRA it is the base model, on whichever axis."""
    words = []
    for name in wide:
        if bare and name in LORA_AXES:
            words.append("" if BASE_MODEL in words else BASE_MODEL)
        else:
            words.append(_word(name, choice[name]))
    return tuple(words) or ("all",)


def _word(name: str, value: str) -> str:
    if name == "checkpoints":
        return BASE_MODEL if value == BASE else "final LoRA" if value == EXPORT else f"step {value}"
    if name == "loras":
        return BASE_MODEL if value == NONE else STACK.join(Path(part).name for part in value.split(STACK))
    if name == "schedulers":
        return "the model's scheduler" if value == "model" else value
    title = {"scales": "scale", "guidance": "guidance", "column_seeds": "seed"}
    return f"{value} steps" if name == "steps" else f"{title[name]} {value}"


def _reference(column: Column, columns: Sequence[Column]) -> int:
    """The base model's column with the same of everything else, else any of the base model, else the first."""
    others = {name: value for name, value in column.changes.items() if name != "loras"}
    bare = [index for index, one in enumerate(columns) if one.base]
    same = [index for index in bare if {**columns[index].changes, "loras": None} == {**others, "loras": None}]
    return (same or bare or [0])[0]


def _name(workspace: Workspace, model: Model, shape: Shape, sample: SampleSettings) -> str:
    """A cell's name, from all that decides its video. Open settings are filled in as the model does, so that giving the
    model's own value changes nothing; the device and the workspace's location do not count."""
    within = f"{workspace.root}/"  # a path inside the workspace counts from there on, so that a workspace can be moved
    # Only what differs from the defaults: a setting of a later version changes no name.
    values: dict[str, Any] = {
        **{name: value for name, value in sample.model_dump(mode="json").items() if value != PLAIN[name]},
        "model": model.id,
        "prompt": sample.prompt,
        "seed": sample.seed,
        "steps": sample.steps or model.steps,
        "guidance_scale": model.guidance_scale if sample.guidance_scale is None else sample.guidance_scale,
        "scheduler": model.scheduler if sample.scheduler == "model" else sample.scheduler,
        "frames": shape.frames,
        "height": shape.height,
        "width": shape.width,
        "loras": [text.removeprefix(within) for text in sample.loras],
    }
    values.pop("device", None)
    for name in INPUT_FILES:
        if values.get(name):
            values[name] = values[name].removeprefix(within)
    if values.get("keyframes"):
        values["keyframes"] = [text.removeprefix(within) for text in values["keyframes"]]
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:20]


def merged(name: str, now: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """The values of an axis and more of them, each once: sorted where they were in order, else the new ones last."""
    every = tuple(dict.fromkeys((*now, *more)))
    if name == "checkpoints":
        ends = {BASE: -1.0, EXPORT: float("inf")}
        return tuple(sorted(every, key=lambda value: ends[value] if value in ends else float(value)))
    number: Callable[[str], float] = float
    try:
        return tuple(sorted(every, key=number)) if list(now) == sorted(now, key=number) else every
    except ValueError:
        return every


def work(settings: SampleSettings, steps: int) -> float:
    """Passes of the model that a video takes; a guided step takes two."""
    guided = settings.guidance_scale is None or settings.guidance_scale > 1
    return (settings.steps or steps) * (2 if guided else 1)

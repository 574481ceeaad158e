"""Turn a grid's settings into rows, columns, and the settings and name of each video. Pure, no torch.

Columns with the same settings are merged: the base model is one column, however many scales the LoRA has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

from workbench.clips.frame_plan import Shape, shape_for
from workbench.compare.settings import BASE, EXPORT, NONE, GridSettings
from workbench.errors import ConfigError
from workbench.families.model import Model
from workbench.runs.checkpoints import LORA, folder_of
from workbench.runs.run import EXPORT as EXPORT_FILE
from workbench.sampler.loras import split_lora
from workbench.sampler.settings import INPUT_FILES, SampleSettings
from workbench.workspace import Workspace
from workbench.workspace.records import key_of

AXES = ("checkpoints", "loras", "scales", "guidance", "steps", "schedulers", "column_seeds")
LORA_AXES = frozenset({"checkpoints", "loras", "scales"})
MOST_CELLS = 2000
PLAIN = SampleSettings().model_dump(mode="json")
BASE_MODEL = "base model"
STACK = " + "


@dataclass(frozen=True)
class Row:
    """What the videos of a row have in common; `image` is the first frame's file, if any."""

    prompt: str
    image: str
    seed: int
    label: str


@dataclass(frozen=True)
class Column:
    """What the videos of a column have in common.

    labels: a word or two for each axis, the outer one first; "" if there is nothing to say.
    changes: changes to the SampleSettings.
    step: step of the run's checkpoint; None for other columns.
    final: whether it is the run's export.
    base: whether it is the base model.
    reference: index of the column to compare with: the base model with all else the same.
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
    """The layout of a grid: keys as [row][column], samples by key, and axes with one value, in words."""

    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    keys: tuple[tuple[str, ...], ...]
    samples: dict[str, SampleSettings]
    fixed: tuple[str, ...]


def plan_grid(workspace: Workspace, settings: GridSettings, base: SampleSettings) -> GridPlan:
    """Lay out a grid. Raises ConfigError for more than two axes, no prompt, or a shape that the model refuses."""
    rows, (columns, fixed) = _rows(settings, base), _columns(workspace, settings, base)
    if (count := len(rows) * len(columns)) > MOST_CELLS:
        raise ConfigError(
            f"the grid has {count} videos, but at most {MOST_CELLS} are allowed: remove some prompts, seeds or columns"
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
        raise ConfigError.of("prompts", "prompts is empty: write one prompt per line")
    if len(settings.images) > 1 and len(settings.images) != len(prompts):
        raise ConfigError.of(
            "images",
            f"images has {len(settings.images)} files for {len(prompts)} prompts: give one for each, or one for all",
        )
    images = settings.images or (base.image,)
    images = images * len(prompts) if len(images) == 1 else images
    seeds = [int(seed) for seed in settings.seeds] or [base.seed or 0]
    if len(seeds) > 1 and settings.column_seeds:
        raise ConfigError.of("column_seeds", "seeds and column_seeds both have values: leave one of them empty")
    rows = {}
    for (prompt, image), seed in product(zip(prompts, images, strict=True), seeds):
        rows[prompt, image, seed] = Row(prompt, image, seed, f"seed {seed}" if len(seeds) > 1 else "")
    return list(rows.values())


def _columns(workspace: Workspace, settings: GridSettings, base: SampleSettings) -> tuple[list[Column], list[str]]:
    """Return the columns, and the axes with one value in words."""
    axes = [(name, values) for name in AXES if (values := getattr(settings, name))]
    wide = [name for name, values in axes if len(values) > 1]
    if len(wide) > 2:
        sentence = f"{' and '.join(wide)} have several values, but at most two of them may: leave one with one value"
        raise ConfigError.of(wide[-1], sentence)
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
    columns = [replace(one, reference=_reference(one, found)) for one in found]
    fixed = [_word(name, values[0]) for name, values in axes if name not in wide]
    return columns, fixed


def _changes(workspace: Workspace, run: str, choice: dict[str, str], base: SampleSettings) -> dict[str, Any]:
    """Return a column's changes to the base settings, which always include the LoRAs."""
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
    scaled = [lora._replace(scale=lora.scale * scale) for lora in map(split_lora, compared)]
    loras = kept + [str(lora) for lora in scaled if lora.scale]
    read: dict[str, tuple[str, Callable[[str], Any]]] = {
        "guidance": ("guidance_scale", float),
        "steps": ("steps", int),
        "schedulers": ("scheduler", str),
        "column_seeds": ("seed", int),
    }
    return {"loras": loras, **{name: of(choice[axis]) for axis, (name, of) in read.items() if axis in choice}}


def lora_file(workspace: Workspace, run: str, checkpoint: str) -> Path:
    """Return the path of a checkpoint's LoRA, whether it exists or not. Raises ConfigError for an invalid run name."""
    folder = workspace.run(run)
    return folder / EXPORT_FILE if checkpoint == EXPORT else folder_of(folder, int(checkpoint)) / LORA


def _labels(choice: dict[str, str], wide: Sequence[str], bare: bool) -> tuple[str, ...]:
    """Return the labels of a column. Without a LoRA it is the base model, whichever the axis."""
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
    """Return the base model's column that is otherwise the same; else any base model column; else the first."""
    others = {name: value for name, value in column.changes.items() if name != "loras"}
    bare = [index for index, one in enumerate(columns) if one.base]
    same = [index for index in bare if {**columns[index].changes, "loras": None} == {**others, "loras": None}]
    return (same or bare or [0])[0]


def _name(workspace: Workspace, model: Model, shape: Shape, sample: SampleSettings) -> str:
    """Hash everything that determines a cell's video into its name.

    Empty settings count as the model's defaults, so that setting a default explicitly changes nothing. The device and
    the workspace's location do not count.
    """
    within = f"{workspace.root}/"  # paths in the workspace are relative, so that the workspace can be moved
    # Only settings that differ from the defaults, so that a setting added by a later version changes no name.
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
    return key_of(values)[:20]


def merged(name: str, now: tuple[str, ...], more: tuple[str, ...]) -> tuple[str, ...]:
    """Add values to an axis without duplicates: sorted if the axis was sorted, otherwise at the end."""
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
    """Return the number of model passes for a video; a guided step takes two."""
    guided = settings.guidance_scale is None or settings.guidance_scale > 1
    return (settings.steps or steps) * (2 if guided else 1)

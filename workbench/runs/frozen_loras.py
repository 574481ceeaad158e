"""Frozen LoRAs of a run: active next to the trained one, never changed, and not part of the run's export.

    training_adapter    only in training: undoes a distillation
    base_lora           always: the new LoRA is trained on top of it, and needs it in use
    preview_lora        only in previews: a few-step LoRA makes them faster

Each is written WHAT=STRENGTH; WHAT is a LoRA of the workspace (workspace.lora_names) or a .safetensors file. This
module resolves its name and compares its header with the model, without torch; `trainer.trainable` computes with it.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.clips.records import file_sha256
from workbench.errors import ConfigError, ResumeRefused
from workbench.families.base import ResolvedModel
from workbench.families.lora_files import TEXT_ENCODER, is_lora_file, unwrapped
from workbench.families.lora_names import FIT_LIMIT, TENSOR, WHOLE
from workbench.families.low_rank import FACTOR
from workbench.runs.settings import TrainSettings
from workbench.workspace import SLUG, Workspace, lora_names, named_paths
from workbench.workspace.safetensors_header import read_header

TRAINING_ADAPTER, BASE_LORA, PREVIEW_LORA = FROZEN = ("training_adapter", "base_lora", "preview_lora")
IN_TRAINING, IN_PREVIEWS = (TRAINING_ADAPTER, BASE_LORA), (BASE_LORA, PREVIEW_LORA)


@dataclass(frozen=True)
class FrozenLora:
    """A frozen LoRA: the setting that names it, its name there without the strength, its file and its strength."""

    setting: str
    name: str
    path: Path
    scale: float

    @property
    def identity(self) -> dict[str, str | float]:
        """What must be the same when a run resumes."""
        return {"sha256": file_sha256(self.path), "scale": self.scale}


def frozen_loras(workspace: Workspace, settings: TrainSettings) -> tuple[FrozenLora, ...]:
    """Find the files of the run's frozen LoRAs. Raises ConfigError."""
    if settings.method == "full":
        return ()
    given = ((setting, str(getattr(settings, setting) or "").strip()) for setting in FROZEN)
    return tuple(_found(workspace, setting, text) for setting, text in given if text)


def _found(workspace: Workspace, setting: str, text: str) -> FrozenLora:
    name, scale = split_strength(setting, text)
    if is_lora_file(name) and not lora_names.is_name(name):
        if not name.endswith(".safetensors"):
            made = Path(name).with_suffix(".safetensors").name
            raise ConfigError.about(
                f"{setting} is {name!r}: convert it first: workbench loras convert {name} diffusers {made}"
            )
        path = named_paths.resolve(name, setting)
        if not path.is_file():
            raise ConfigError.about(f"{setting} is {name!r}, which is not a file: check the path")
        return FrozenLora(setting, name, path, scale)
    full = f"{lora_names.RUNS}/{name}" if SLUG.fullmatch(name) else name
    if lora_names.is_name(full) and (path := lora_names.path_of(workspace, full)).is_file():
        return FrozenLora(setting, name, path, scale)
    run = name.removeprefix(f"{lora_names.RUNS}/")
    if SLUG.fullmatch(run) and workspace.run(run).is_dir():
        raise ConfigError.about(f"{setting} is {name!r}, a run that {lora_names.why_none(workspace, run)}")
    raise ConfigError.about(
        f"{setting} is {name[:120]!r}, which is neither a LoRA of the library nor a .safetensors file: choose one, or "
        f"import it first (workbench loras import)"
    )


def split_strength(setting: str, text: str) -> tuple[str, float]:
    """Split WHAT=STRENGTH; the strength defaults to 1. Raises ConfigError."""
    name, equals, tail = text.rpartition("=")
    if not equals or is_lora_file(tail):
        return text, 1.0
    with contextlib.suppress(ValueError):
        if name and math.isfinite(scale := float(tail)) and scale != 0:
            return name, scale
    raise ConfigError.about(
        f"{setting} is {text[:120]!r}: write LORA=STRENGTH with a strength other than 0, as in turbo=0.8"
    )


def check_frozen(workspace: Workspace, settings: TrainSettings, resolved: ResolvedModel) -> None:
    """Refuse frozen LoRAs that do not fit the model (by their headers) or the other settings. Raises ConfigError."""
    for lora in frozen_loras(workspace, settings):
        if settings.is_dora and lora.setting in IN_TRAINING:
            raise ConfigError.about(
                f"dora is on and {lora.setting} is set, but a DoRA needs the magnitudes of the base model's own rows, "
                f"which another LoRA changes: turn dora off, or leave {lora.setting} empty"
            )
        _check_header(lora, resolved)


def _check_header(lora: FrozenLora, resolved: ResolvedModel) -> None:
    """Compare names and sizes in a file's header with the model's layers. Raises ConfigError."""
    setting, title = lora.setting, resolved.model.title
    try:
        shapes = read_header(lora.path).shapes
    except (OSError, ValueError) as error:
        raise ConfigError.about(
            f"{setting} is {lora.path.name}, which cannot be read ({error}): export or download it again"
        ) from error
    own = {name: (one.outputs, one.inputs) for name, one in resolved.facts.named()}
    layers, wrong = set[str](), set[str]()
    for name, shape in shapes.items():
        plain = unwrapped(name)
        match = next((match for one in (TENSOR, FACTOR, WHOLE) if (match := one.fullmatch(plain))), None)
        if match is None or TEXT_ENCODER.match(plain):  # an alpha, or a tensor that is not loaded
            continue
        layer = resolved.family.layer_names.layer_of(match["layer"]) or match["layer"]
        layers.add(layer)
        sizes, matrix = own.get(layer), match["matrix"] if match.re is TENSOR and len(shape) > 1 else ""
        other_inputs = sizes and matrix.endswith(("_A", "down")) and math.prod(shape[1:]) != sizes[1]
        other_outputs = sizes and matrix.endswith(("_B", "up")) and shape[0] != sizes[0]
        if sizes is None or other_inputs or other_outputs:
            wrong.add(layer)
    if not layers or len(wrong) > (1 - FIT_LIMIT) * len(layers):
        which = f" (not {min(wrong)[:80]})" if wrong else ""
        raise ConfigError.about(
            f"{setting} is {lora.name}, but only {len(layers) - len(wrong)} of its {len(layers)} layers fit "
            f"{title}{which}: choose a LoRA made for this model"
        )


def identities(loras: Sequence[FrozenLora]) -> dict[str, dict[str, str | float]]:
    """Return what a checkpoint stores about the LoRAs that were active during training."""
    return {lora.setting: lora.identity for lora in loras if lora.setting in IN_TRAINING}


def trained_over(loras: Sequence[FrozenLora]) -> dict[str, str]:
    """Return the exported file's metadata about the LoRA that it needs; {} if it needs none."""
    return {
        key: value
        for lora in loras
        if lora.setting == BASE_LORA
        for key, value in (("trained_over", lora.name), ("trained_over_scale", f"{lora.scale:g}"))
    }


def refuse_others(saved: Mapping[str, Mapping[str, str | float]], loras: Sequence[FrozenLora]) -> None:
    """Refuse to resume with LoRAs other than those a checkpoint was trained with. Raises ResumeRefused."""
    now = identities(loras)
    for setting in IN_TRAINING:
        before, after = saved.get(setting), now.get(setting)
        if before != after:
            what = "was not set before" if before is None else "is no longer set" if after is None else "has changed"
            raise ResumeRefused(
                f"this run cannot resume, because it would no longer be the same run: {setting} {what} (file or "
                f"strength). To resume it, undo the change; to keep it, fork the run"
            )

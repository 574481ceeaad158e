"""Gather the facts about a LoRA to publish, from its run or from the library. No torch."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any, get_args

from workbench.clips import media
from workbench.clips.records import Clip, clip_file, read_clips
from workbench.display.quantities import shortened
from workbench.errors import ConfigError, DataError
from workbench.families import families, find_model
from workbench.families.base import Family, ResolvedModel
from workbench.families.denoising import Curve
from workbench.families.model import Model
from workbench.loras.library import LibraryLora
from workbench.runs.data import read_lock
from workbench.runs.model_card import CardFacts, card_facts
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, read_json
from workbench.workspace.lora_names import ALSO

MOST_PREVIEWS = 12
MACHINE = (
    "preview_images",
    "tracker",
    "tracker_project",
    "device",
    "gpus",
    "loader_threads",
    "stall_timeout",
    "nccl_timeout",
    "push_to_hub",
    "repository",
)
PATH = re.compile(r"(?:^|(?<=[\s='\"(]))(?:~|[A-Za-z]:)?[/\\][^\s'\"]*[/\\][^\s'\"=]*")
PICTURES = ("PNG", "JPEG", "WEBP", "BMP")  # allowed formats of a first frame


@dataclass(frozen=True)
class PublishedPreview:
    """One preview and its settings."""

    video: Path
    prompt: str
    seed: int
    model: Model  # the base model with the steps, guidance, flow shift and negative prompt it was generated with
    picture: bytes | None  # its first frame as a PNG without metadata, if it was given one
    shape: tuple[int, int, int] | None  # (frames, height, width); None if its record does not say
    left_out: str = ""  # why the picture in its record is not published; "" if it is


@dataclass(frozen=True)
class Facts:
    """Everything about a LoRA that is published."""

    lora: LibraryLora
    family: Family
    model: Model
    card: CardFacts | None  # the content of its run's card; None without a run
    shape: tuple[int, int, int]  # (frames, height, width) of its videos
    previews: tuple[PublishedPreview, ...]
    experts: tuple[str, ...] = ()  # the experts that it is for; () if the model has only one
    # trained, held_out: lines of dataset.lock.json
    trained: tuple[dict[str, Any], ...] = ()
    held_out: tuple[dict[str, Any], ...] = ()
    clips: tuple[tuple[Path, Clip], ...] = ()  # its training clips that still exist, as (dataset's folder, clip)

    @property
    def generated_with(self) -> Model:
        """The base model with the settings of the first preview."""
        return self.previews[0].model if self.previews else self.model

    @property
    def settings(self) -> TrainSettings | None:
        """Its run's settings."""
        return self.card.settings if self.card else None

    @property
    def statistics(self) -> list[tuple[str, str]]:
        """Statistics about the training clips, without their names."""
        if not self.trained:
            return []
        found = [("Clips trained on", f"{len(self.trained):,}"), ("Clips held out", f"{len(self.held_out):,}")]
        clips = [clip for _, clip in self.clips]
        if len(clips) == len(self.trained):
            found.append(("Length", f"{sum(clip.seconds for clip in clips):,.1f} s in all"))
            found.append(("Sizes", _counted(f"{clip.width}x{clip.height}" for clip in clips)))
            found.append(("Frames per second", _counted(f"{clip.fps:g}" for clip in clips)))
        inputs = _counted(
            f"{len(line['indices'])} frames of {line['crop'][3]}x{line['crop'][2]}" for line in self.trained
        )
        return [*found, ("As the model input", inputs)]


def gather(workspace: Workspace, lora: LibraryLora) -> Facts:
    """Gather the facts. Raises DataError if the file is damaged, its model unknown or a link leads outside."""
    if lora.sound:
        raise DataError(lora.sound)
    videos = lora.previews[:MOST_PREVIEWS]
    check_links(workspace, [lora.path, lora.folder / ALSO, *videos, *(one.with_suffix(".json") for one in videos)])
    family, model = base_of(lora)
    previews = tuple(one for video in videos if (one := published_preview(workspace, video, model)))
    shape = next(filter(None, (one.shape for one in previews)), None)
    common: dict[str, Any] = {"lora": lora, "family": family, "model": model, "previews": previews}
    # All of a model's experts if the file does not say.
    common["experts"] = tuple(one.name for one in model.experts_for(lora.experts)) if model.boundary else ()
    if lora.run is None:
        return Facts(**common, card=None, shape=shape or (model.frames, model.height, model.width))
    settings = lora.run.settings
    lines = read_lock(lora.run.folder)
    trained = tuple(line for line in lines if line.get("role") == "train")
    trained_shape = (settings.frames or model.frames, settings.height or model.height, settings.width or model.width)
    return Facts(
        **common,
        card=card_facts(lora.run, settings, lora.steps or settings.steps),
        shape=shape or trained_shape,
        trained=trained,
        held_out=tuple(line for line in lines if line.get("role") == "held_out"),
        clips=tuple(_clips(workspace, settings, trained)),
    )


def base_of(lora: LibraryLora) -> ResolvedModel:
    """Return a LoRA's base model. Raises DataError if it is unknown."""
    with contextlib.suppress(ConfigError):
        return find_model(lora.model)
    for family in families():
        for model in family.models:
            if lora.base_model and lora.base_model in (model.source, model.id, model.title):
                return ResolvedModel(family, model)
    named = (lora.model or lora.base_model or "empty")[:80]
    raise DataError(
        f"{lora.title} does not say which model it is for, but its card must: set its model in the library (now "
        f"{named!r})"
    )


def training_clips(facts: Facts) -> list[tuple[Path, Clip]]:
    """Return the clips that it was trained on. Raises DataError if any is missing or has changed."""
    if facts.settings is None:
        raise DataError(f"clips is on, but {facts.lora.title} was not trained here: turn it off")
    kept = {(clip.file_name, clip.sha256) for _, clip in facts.clips}
    gone = [line["file_name"] for line in facts.trained if (line["file_name"], line["sha256"]) not in kept]
    gone += [clip.file_name for folder, clip in facts.clips if not clip_file(folder, clip.file_name).is_file()]
    if gone or not facts.clips:
        raise DataError(
            f"clips is on, but {len(gone) or 'all'} of the clips that {facts.lora.title} was trained on are gone or "
            f"have changed ({', '.join(gone[:3])}): restore them, or turn it off"
        )
    if latents := sum(clip.is_latents for _, clip in facts.clips):
        raise DataError(f"clips is on, but {latents} of the clips are latents, which nobody can watch: turn it off")
    return list(facts.clips)


def _clips(workspace: Workspace, settings: TrainSettings, trained: Sequence[dict[str, Any]]) -> list[tuple[Path, Clip]]:
    """Return the clips of the run's datasets that have not changed since it was trained on them."""
    wanted = {(line["file_name"], line["sha256"]) for line in trained}
    found: dict[tuple[str, str], tuple[Path, Clip]] = {}
    for name in (settings.dataset, *(text.split("=")[0] for text in settings.more_datasets)):
        with contextlib.suppress(ConfigError, DataError):  # the dataset may be gone
            folder = workspace.dataset(name)
            for clip in read_clips(folder):
                if (clip.file_name, clip.sha256) in wanted:
                    found.setdefault((clip.file_name, clip.sha256), (folder, clip))
    return list(found.values())


def check_links(workspace: Workspace, paths: Iterable[Path]) -> None:
    """Raise DataError if a file to publish is a link that leads out of the workspace."""
    for path in paths:
        try:
            workspace.inside(path)
        except ConfigError:
            raise DataError(
                f"{path.name} of {path.parent.name} is a link that leads out of the workspace, where nothing is "
                "published from: replace it with the file itself"
            ) from None


def published_preview(workspace: Workspace, video: Path, model: Model) -> PublishedPreview | None:
    """Read a preview and its record; None if it has no prompt."""
    record = _record(video)
    chosen = record["settings"] if isinstance(record.get("settings"), dict) else {}
    both = {**chosen, **record}
    if "prompt" not in both:
        return None
    picture, left_out = _picture(workspace, str(chosen.get("image") or ""))
    sizes = [size for name in ("frames", "height", "width") if isinstance(size := record.get(name), int) and size > 0]
    return PublishedPreview(
        video=video,
        prompt=str(both["prompt"]),
        seed=_whole(both.get("seed"), 0),
        model=_generated_with(model, both),
        picture=picture,
        shape=(sizes[0], sizes[1], sizes[2]) if len(sizes) == 3 else None,
        left_out=left_out,
    )


def _picture(workspace: Workspace, name: str) -> tuple[bytes | None, str]:
    """Read the picture that a record names, or say why it is left out: only pictures of this workspace are published.

    It is rewritten as a PNG of its pixels alone, without location, camera data or appended files.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    if not name:
        return None, ""
    try:
        path = workspace.inside(name)
        media.check_file(path)
        with Image.open(path, formats=PICTURES) as opened:
            picture = ImageOps.exif_transpose(opened).convert("RGB")
        data = io.BytesIO()
        Image.frombytes("RGB", picture.size, picture.tobytes()).save(data, "PNG")
    except ConfigError:
        return None, "its record names a file outside this workspace"
    except (DataError, UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError, ValueError):
        return None, "its record names a file that is missing or not a picture"
    return data.getvalue(), ""


def _whole(value: Any, default: int) -> int:
    """Return a record's number as an integer, or the default if it is not a number."""
    return int(value) if isinstance(value, int | float) and math.isfinite(value) else default


def _generated_with(model: Model, record: Mapping[str, Any]) -> Model:
    """Return the model with the values of a record in place of its own."""
    found: dict[str, Any] = {}
    for name in ("guidance_scale", "guidance_scale_2", "flow_shift"):
        if isinstance(value := record.get(name), int | float) and math.isfinite(value):
            found[name] = float(value)
    if isinstance(text := record.get("negative_prompt"), str):
        found["negative_prompt"] = text
    if "flow_shift" in found:
        found["small_flow_shift"] = None
    if (curve := record.get("dynamic_guidance")) in get_args(Curve):
        found["dynamic_guidance"] = curve
    if not model.boundary:
        found.pop("guidance_scale_2", None)
    elif "guidance_scale" in found:
        found.setdefault("guidance_scale_2", None)  # the same as guidance_scale
    return replace(model, steps=_whole(record.get("steps"), 0) or model.steps, **found)


def _record(video: Path) -> dict[str, Any]:
    """Read the JSON beside a video, or else the one inside it; {} if there is none."""
    value: Any = None
    with contextlib.suppress(ConfigError, DataError, ValueError):
        beside = video.with_suffix(".json")
        value = read_json(beside) if beside.exists() else json.loads(media.read_comment(video) or "null")
    return value if isinstance(value, dict) else {}


def _counted(texts: Any) -> str:
    """List the most common texts with their counts."""
    common = Counter(texts).most_common()
    if len(common) == 1:
        return str(common[0][0])
    return shortened([f"{text} ({count})" for text, count in common], 5)


# ---- without paths of this machine ----------------------------------------------------------------------------------


def anonymous_text(value: str) -> str:
    """Shorten paths of this machine in a text to their last part."""
    return PATH.sub(lambda found: PurePath(found[0].replace("\\", "/")).name or "a folder", value)


def anonymous_settings(values: dict[str, Any]) -> dict[str, Any]:
    """Remove settings that only concern this machine, and shorten paths."""
    return {name: _value(value) for name, value in values.items() if name not in MACHINE}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return anonymous_text(value)
    return [_value(one) for one in value] if isinstance(value, list) else value

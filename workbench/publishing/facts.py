"""What is known of a LoRA that is to be published, gathered from its run or from the library. No torch.

Not covered: how it is said (card), what is sent (lora, space).
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.records import Clip, read_clips
from workbench.errors import ConfigError, DataError
from workbench.families import find_model, models
from workbench.families.base import Family, Model
from workbench.loras.library import LibraryLora
from workbench.runs.metrics import read_metrics
from workbench.runs.sessions import read_sessions
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, read_json

LOCK = "dataset.lock.json"
MOST_PREVIEWS = 12


@dataclass(frozen=True)
class PublishedPreview:
    """One preview, and its settings. picture: the first frame that it was given, if any."""

    video: Path
    prompt: str
    seed: int
    steps: int
    guidance: float
    picture: Path | None = None


@dataclass(frozen=True)
class Facts:
    """Everything that is published of one LoRA.

    settings: of its run, None for others;  shape: (frames, height, width) of its videos
    trained, held_out: lines of dataset.lock.json;  clips: as (dataset's folder, clip), as far as they are still here
    losses:   held-out loss at first and at last;  changes: see runs.model_card.CardFacts
    """

    lora: LibraryLora
    family: Family
    model: Model
    settings: TrainSettings | None
    shape: tuple[int, int, int]
    previews: tuple[PublishedPreview, ...]
    trained: tuple[dict[str, Any], ...] = ()
    held_out: tuple[dict[str, Any], ...] = ()
    clips: tuple[tuple[Path, Clip], ...] = ()
    losses: tuple[float | None, float | None] = (None, None)
    changes: tuple[float, float] | None = None
    packages: tuple[tuple[str, str], ...] = ()

    @property
    def statistics(self) -> list[tuple[str, str]]:
        """What the training clips are like, without a name of any."""
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
    """Raises ConfigError, DataError when its base model is not known or its file is not sound."""
    if lora.sound:
        raise DataError(lora.sound)
    family, model = base_of(lora)
    previews = tuple(one for video in lora.previews[:MOST_PREVIEWS] if (one := _preview(video, model)))
    shape = next(filter(None, (_shape(one.video) for one in previews)), None)
    common: dict[str, Any] = {"lora": lora, "family": family, "model": model, "previews": previews}
    if lora.run is None:
        return Facts(**common, settings=None, shape=shape or (model.frames, model.height, model.width))
    settings = lora.run.settings
    lock = lora.run.folder / LOCK
    lines = read_json(lock) if lock.exists() else []
    trained = tuple(line for line in lines if line.get("role") == "train")
    measured = [line for line in read_metrics(lora.run.folder)[0] if line["step"] <= (lora.steps or line["step"])]
    losses = [line["held_out_loss"] for line in measured if "held_out_loss" in line]
    changes = [(line["change_own"], line["change_others"]) for line in measured if "change_own" in line]
    starts = read_sessions(lora.run.folder)
    return Facts(
        **common,
        settings=settings,
        shape=shape or _configured_shape(settings, model),
        trained=trained,
        held_out=tuple(line for line in lines if line.get("role") == "held_out"),
        clips=tuple(_clips(workspace, settings, trained)),
        losses=(losses[0], losses[-1]) if losses else (None, None),
        changes=changes[-1] if changes else None,
        packages=tuple(starts[-1].versions.items()) if starts else (),
    )


def base_of(lora: LibraryLora) -> tuple[Family, Model]:
    """The base model. Raises DataError when the LoRA does not say which."""
    with contextlib.suppress(ConfigError):
        return find_model(lora.model)
    for model in models():
        if lora.base_model and lora.base_model in (model.source, model.id, model.title):
            return find_model(model.id)
    raise DataError(
        f"{lora.title} does not say which model it is for, and a card has to: name it in the library (its model is "
        f"{(lora.model or lora.base_model or 'empty')[:80]!r})"
    )


def training_clips(facts: Facts) -> list[tuple[Path, Clip]]:
    """The clips that it was trained on. Raises DataError when any is gone or another, by what the dataset says."""
    if facts.settings is None:
        raise DataError(f"clips is on, but {facts.lora.title} was not trained here: turn it off")
    kept = {(clip.file_name, clip.sha256) for _, clip in facts.clips}
    gone = [line["file_name"] for line in facts.trained if (line["file_name"], line["sha256"]) not in kept]
    gone += [clip.file_name for folder, clip in facts.clips if not (folder / clip.file_name).is_file()]
    if gone or not facts.clips:
        raise DataError(
            f"clips is on, but {len(gone) or 'all'} of the clips that {facts.lora.title} was trained on are gone or "
            f"have changed ({', '.join(gone[:3])}): bring them back, or turn it off"
        )
    return list(facts.clips)


def _clips(workspace: Workspace, settings: TrainSettings, trained: Sequence[dict[str, Any]]) -> list[tuple[Path, Clip]]:
    """Clips of the run's datasets that are still those that were trained on."""
    wanted = {(line["file_name"], line["sha256"]) for line in trained}
    found: dict[tuple[str, str], tuple[Path, Clip]] = {}
    for name in (settings.dataset, *(text.split("=")[0] for text in settings.more_datasets)):
        with contextlib.suppress(ConfigError, DataError):  # a dataset that is gone
            folder = workspace.dataset(name)
            for clip in read_clips(folder):
                if (clip.file_name, clip.sha256) in wanted:
                    found.setdefault((clip.file_name, clip.sha256), (folder, clip))
    return list(found.values())


def _preview(video: Path, model: Model) -> PublishedPreview | None:
    """A preview with its record; None for one without a prompt."""
    record = record_of(video)
    chosen = record.get("settings") if isinstance(record.get("settings"), dict) else {}
    both = {**(chosen or {}), **{key: value for key, value in record.items() if key != "settings"}}
    if "prompt" not in both:
        return None
    picture = Path(str((chosen or {}).get("image") or ""))
    return PublishedPreview(
        video=video,
        prompt=str(both["prompt"]),
        seed=int(both.get("seed") or 0),
        steps=int(both.get("steps") or model.steps),
        guidance=float(both.get("guidance_scale") or model.guidance_scale),
        picture=picture if picture.name and picture.is_file() else None,
    )


def record_of(video: Path) -> dict[str, Any]:
    """The JSON beside a video, else the one inside it; {} when there is none."""
    value: Any = None
    with contextlib.suppress(ConfigError, DataError, ValueError):
        beside = video.with_suffix(".json")
        value = read_json(beside) if beside.exists() else json.loads(media.read_comment(video) or "null")
    return value if isinstance(value, dict) else {}


def _configured_shape(settings: TrainSettings, model: Model) -> tuple[int, int, int]:
    return settings.frames or model.frames, settings.height or model.height, settings.width or model.width


def _shape(video: Path) -> tuple[int, int, int] | None:
    """(frames, height, width) of a preview."""
    record = record_of(video)
    sizes = [record.get(name) for name in ("frames", "height", "width")]
    return (sizes[0], sizes[1], sizes[2]) if all(isinstance(size, int) and size > 0 for size in sizes) else None  # type: ignore[return-value]


def _counted(texts: Any) -> str:
    """The texts that are most common, with how often."""
    common = Counter(texts).most_common()
    if len(common) == 1:
        return str(common[0][0])
    return ", ".join(f"{text} ({count})" for text, count in common[:5]) + (" ..." if len(common) > 5 else "")

"""The LoRA library: every LoRA of a workspace and its facts. No torch; files are reread only when they change.

loras/NAME/lora.safetensors     in diffusers' layout
loras/NAME/lora.json            what it is and how it was made: title, how, summary, made_of, model, base_model,
                                trigger, steps, error, sha256, time; written last
loras/NAME/previews/*.mp4       videos generated with it
loras/stars.json                {"loras": [names to keep]}; stars of checkpoints are kept in their runs
published.json                  beside a LoRA that is on the Hub (publishing)
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field

from workbench import jobs
from workbench.clips.records import file_sha256
from workbench.errors import ConfigError, Unknown
from workbench.families.lora_files import DIFFUSERS_KEY, experts_of, is_lokr
from workbench.runs import checkpoints
from workbench.runs.checkpoints import FOLDER as CHECKPOINTS
from workbench.runs.metrics import METRICS
from workbench.runs.run import Run
from workbench.sampler.loras import read_header, split_scale
from workbench.snapshots import Snapshot
from workbench.workspace import (
    Workspace,
    from_json,
    is_slug,
    read_object,
    read_to_change,
    step_folders,
    step_of,
    write_json,
)
from workbench.workspace.lora_names import LORAS, NOTES, RUNS, checkpoint_names, folder, is_name, names, path_of
from workbench.workspace.records import LATEST, read_once, read_record
from workbench.workspace.safetensors_header import Header

STARS = "stars.json"


@dataclass(frozen=True)
class LibraryLora:
    """One LoRA of a workspace.

    name: as `workspace.lora_names` defines it; `title` is its name for people.
    run: the run that trained it, or None.
    step: of a checkpoint; None for others.
    model: for `find_model`; "" if unknown.
    base_model: the model as its file names it.
    rank: the largest rank of a layer.
    mixed: whether layers differ in rank or alpha.
    alpha: None if the file does not say it; the scale is then 1.
    experts: the experts that its file names, for models with two; () if it names none.
    steps: training steps; None if unknown.
    origin: where it comes from, in one sentence.
    created: Unix time.
    published: content of published.json; {} if it is not on the Hub.
    sound: "" or what is wrong with the file.
    """

    name: str
    title: str
    path: Path
    run: Run | None = field(compare=False)
    step: int | None
    model: str
    base_model: str
    trigger: str
    rank: int
    mixed: bool
    alpha: float | None
    dora: bool
    lokr: bool
    experts: tuple[str, ...]
    steps: int | None
    bytes: int
    previews: tuple[Path, ...]
    origin: str
    created: float
    starred: bool
    best: bool
    published: dict[str, Any] = field(default_factory=dict)
    sound: str = ""

    @property
    def flags(self) -> frozenset[str]:
        """Those of "starred", "best" and "published" that apply. Any of them protects it from removal."""
        held = {"starred": self.starred, "best": self.best, "published": bool(self.published)}
        return frozenset(name for name, holds in held.items() if holds)

    @property
    def folder(self) -> Path:
        return self.path.parent


class LoraSource(Snapshot):
    """A source that a LoRA was made from."""

    name: str
    """Name of the LoRA or the model."""

    weight: float = 1.0
    """Its weight in a merge, or its scale when fused."""

    blocks: str = ""
    """Factors of its scale for single blocks, as in [0-9:0.5]; "" if there were none."""

    sha256: str = ""
    """SHA-256 of its file; "" if unknown."""


class Notes(BaseModel):
    """The content of lora.json."""

    title: str = ""
    summary: str = ""
    made_of: list[LoraSource] = []
    model: str = ""
    base_model: str = ""
    trigger: str = ""
    steps: int | None = None
    match: dict[str, Any] = {}
    time: Annotated[float, Field(ge=0.0, le=LATEST)] = 0.0


def all_loras(workspace: Workspace, checkpoints: bool = False) -> list[LibraryLora]:
    """List the LoRAs of the workspace, newest first. checkpoints: include those in runs' checkpoints."""
    wanted = names(workspace)
    if checkpoints:
        runs = sorted(path.name for path in workspace.runs.glob("*") if is_name(f"{RUNS}/{path.name}"))
        wanted += [name for run in runs for name in checkpoint_names(workspace, run)]
    found = [lora for name in wanted if (lora := _read_lora(workspace, name)) is not None]
    return sorted(found, key=lambda lora: (-lora.created, lora.name))


def find(workspace: Workspace, name: str) -> LibraryLora:
    """Return the LoRA with this name. Raises Unknown if there is none."""
    if (lora := _read_lora(workspace, name) if is_name(name) else None) is None:
        known = ", ".join(names(workspace)[:10]) or "none yet"
        raise Unknown(f"there is no LoRA {name[:120]!r} here: choose one of {known}")
    return lora


def checkpoints_of(workspace: Workspace, run: str) -> list[LibraryLora]:
    """List the LoRAs in a run's checkpoints, oldest first."""
    found = [_read_lora(workspace, name) for name in checkpoint_names(workspace, run)]
    return [lora for lora in found if lora is not None]


def notes(lora: LibraryLora) -> dict[str, Any]:
    """Return lora.json of a LoRA in `loras/`; {} for a run's LoRA."""
    return dict(read_once(lora.folder / NOTES, _notes)) if lora.run is None else {}


def _notes(path: Path) -> dict[str, Any]:
    return read_record(path, Notes) or {}


# ---- stars ----------------------------------------------------------------------------------------------------------


def star(workspace: Workspace, name: str, on: bool = True) -> None:
    """Star a LoRA, which protects it from removal, or remove the star. Raises ConfigError, CannotWrite."""
    lora = find(workspace, name)
    if lora.run is not None and lora.step is not None:
        checkpoints.star(lora.run.folder, lora.step, on)
        return
    path = folder(workspace) / STARS
    path.parent.mkdir(parents=True, exist_ok=True)
    with jobs.locked(path.parent / ".stars.lock"):
        read_to_change(path)
        kept = _starred(workspace) - {name}
        write_json(path, {"loras": sorted(kept | ({name} if on else set()))})


def _starred(workspace: Workspace) -> set[str]:
    found = read_once(folder(workspace) / STARS, read_object).get("loras")
    return {str(name) for name in found} if isinstance(found, list) else set()


# ---- one LoRA -------------------------------------------------------------------------------------------------------


def _read_lora(workspace: Workspace, name: str) -> LibraryLora | None:
    """Read everything that is known about a LoRA; None if its file does not exist."""
    path = path_of(workspace, name)
    try:
        stat = path.stat()
    except OSError:
        return None
    sound = ""
    try:
        header = read_once(path, read_header)
    except ConfigError as error:
        header, sound = Header({}, {}, 0), str(error)
    metadata = header.metadata
    rank, mixed, alpha = _strength(header)
    common: dict[str, Any] = {
        "name": name,
        "path": path,
        "rank": rank,
        "mixed": mixed,
        "alpha": alpha,
        "dora": any("lora_magnitude_vector" in key for key in header.tensors),
        "lokr": is_lokr(header.tensors),
        "experts": experts_of(header.tensors, metadata, path.name),
        "bytes": stat.st_size,
        "published": read_once(path.parent / checkpoints.PUBLISHED, read_object),
        "sound": sound,
        "trigger": metadata.get("trigger_word", ""),
        "base_model": metadata.get("base_model", ""),
        "created": stat.st_mtime,
    }
    more = _library_facts if name.startswith(f"{LORAS}/") else _run_facts
    return LibraryLora(**{**common, **more(workspace, name, path, metadata)})


def _library_facts(workspace: Workspace, name: str, path: Path, metadata: Any) -> dict[str, Any]:
    notes = read_once(path.parent / NOTES, _notes)
    steps = notes.get("steps")
    return {
        "title": str(notes.get("title") or path.parent.name),
        "run": None,
        "step": None,
        "model": str(notes.get("model", "")),
        "base_model": str(notes.get("base_model") or metadata.get("base_model", "")),
        "trigger": str(notes.get("trigger") or metadata.get("trigger_word", "")),
        "steps": steps if isinstance(steps, int) else None,
        "previews": tuple(sorted(path.parent.glob("previews/*.mp4"))),
        "origin": str(notes.get("summary") or "unknown origin"),
        "created": _finite(notes.get("time")) or path.stat().st_mtime,
        "starred": name in _starred(workspace),
        "best": False,
    }


def _run_facts(workspace: Workspace, name: str, path: Path, metadata: Any) -> dict[str, Any]:
    checkpoint = path.parent.parent.name == CHECKPOINTS
    run_folder = path.parent.parent.parent if checkpoint else path.parent
    step = step_of(path.parent.name) if checkpoint else None
    steps = step if step is not None else _number(metadata.get("step"))
    videos = [] if steps is None else run_folder.glob(f"previews/step-{steps:08d}/*.mp4")
    return {
        "title": f"{run_folder.name}, step {step}" if checkpoint else run_folder.name,
        "run": Run(run_folder),
        "step": step,
        "model": str(read_once(run_folder / jobs.CONFIG, read_object).get("model", "")),
        "steps": steps,
        "previews": tuple(sorted(video for video in videos if video.stem.isdecimal())),  # 0.mp4, 1.mp4 ...
        "origin": f"trained here, {'a checkpoint' if checkpoint else 'the export'} of the run {run_folder.name}",
        "starred": step in checkpoints.starred(run_folder) if checkpoint else name in _starred(workspace),
        "best": checkpoint and step in _best(run_folder),
    }


def _best(run: Path) -> set[int | None]:
    """Return a run's best steps: the one with the lowest held-out loss and the one a person chose."""
    chosen = _number(read_once(run / checkpoints.CHOSEN, read_object).get("step"))
    saved = tuple(step_folders(run / CHECKPOINTS))
    return {chosen, read_once(run / METRICS, lambda path: checkpoints.best(path.parent), saved)} - {None}


def _strength(header: Header) -> tuple[int, bool, float | None]:
    """Return (largest rank, whether layers differ, alpha or None) of a file in diffusers' layout."""
    ranks = {shape[0] for key, shape in header.shapes.items() if ".lora_A." in key and len(shape) > 1}
    adapter: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        value = from_json(header.metadata.get(DIFFUSERS_KEY, "{}"))
        adapter = {key.rsplit(".", 1)[-1]: one for key, one in value.items()} if isinstance(value, dict) else {}
    if is_lokr(header.tensors):
        return _number(adapter.get("r")) or 0, bool(adapter.get("rank_pattern")), _finite(adapter.get("alpha"))
    mixed = len(ranks) > 1 or bool(adapter.get("alpha_pattern"))
    return max(ranks, default=0), mixed, _finite(adapter.get("lora_alpha"))


def _finite(value: Any) -> float | None:
    """Return a finite number from a file; None for anything else."""
    with contextlib.suppress(OverflowError):
        if type(value) in (int, float) and math.isfinite(value):
            return float(value)
    return None


def _number(value: Any) -> int | None:
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return int(value)
    return None


def find_file(workspace: Workspace, path: Path) -> LibraryLora | None:
    """Return the LoRA that a file is a copy of, or None."""
    size, sha256 = path.stat().st_size, ""
    for lora in sorted(all_loras(workspace, checkpoints=True), key=lambda one: one.step is not None):
        if lora.bytes == size and not lora.sound:
            sha256 = sha256 or file_sha256(path)
            if read_once(lora.path, file_sha256) == sha256:
                return lora
    return None


# ---- trigger words in prompts ---------------------------------------------------------------------------------------


def words_of(workspace: Workspace, loras: Sequence[str]) -> list[str]:
    """List the trigger words of LoRAs, each once. loras: NAME=SCALE texts; files and Hub names are ignored."""
    return list(dict.fromkeys(word for text in loras for word in _words(workspace, text)))


def words_of_grid(workspace: Workspace, run: str, loras: Sequence[str]) -> list[str]:
    """List the trigger words of a grid's run and LoRAs. loras: entries may be several LoRAs joined with " + "."""
    checkpoints = checkpoint_names(workspace, run)[-1:] if is_slug(run) else []  # the run may have no export yet
    stacks = [one.strip() for entry in loras for one in entry.split(" + ")]
    return words_of(workspace, [*([f"{RUNS}/{run}"] if run else []), *checkpoints, *stacks])


def lacking(prompt: str, words: Sequence[str]) -> list[str]:
    """Return the words that the prompt lacks."""
    return [word for word in words if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", prompt, re.IGNORECASE)]


def inserted(prompt: str, words: Sequence[str]) -> str:
    """Put the words that a prompt lacks in front of it, as in training captions."""
    return " ".join([*lacking(prompt, words), prompt.strip()]).strip()


def _words(workspace: Workspace, text: str) -> list[str]:
    try:
        name, scale = split_scale(text)
        known = name if is_name(name) else f"{RUNS}/{name}"
        found = find(workspace, known).trigger if scale else ""
    except ConfigError:  # a file, a LoRA on the Hub, or a missing one, which sampling will report
        return []
    return [word.strip() for word in found.split(",") if word.strip()]  # merged LoRAs have several

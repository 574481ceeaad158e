"""All that a run needs on a target: its settings, its clips, its newest checkpoint, and encoded tensors.

A path here is one below the remote folder, which is a workspace of its own; a file of this machine that a setting names
(start_from, preview_images) goes to `inputs/`, and the sent config.json says so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

from workbench import jobs, policy
from workbench.clips.records import INFO, METADATA, clip_file, file_sha256, read_clips
from workbench.remote.base import SCRATCH
from workbench.remote.remote_folder import BELOW
from workbench.runs import checkpoints
from workbench.runs.checkpoints import PARENT
from workbench.runs.checks import initial_lora
from workbench.runs.data import datasets_of
from workbench.runs.metrics import METRICS, SESSIONS
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.encoder import portable_keys
from workbench.workspace import Workspace, write_json

# Of the run's folder, besides its settings and its newest checkpoint.
STATE = ("dataset.lock.json", PARENT, SESSIONS, METRICS, "stars.json", "tracker.json")
Files = dict[str, tuple[str, Path]]


def bundle(workspace: Workspace, run: Run, progress: Callable[[int], None] = lambda count: None) -> Files:
    """path in the remote folder -> (SHA-256, file here); progress: called with the number of files read, may raise.

    Raises ConfigError when something the settings name is not there.
    """
    found: Files = {}
    for path, file in _files(workspace, run):
        found[path] = (file_sha256(file), file)
        progress(len(found))
    return found


def _files(workspace: Workspace, run: Run) -> Iterator[tuple[str, Path]]:
    settings, home = run.settings, f"runs/{run.name}"
    for name in dict.fromkeys(name for _, name in datasets_of(settings)):
        yield from _dataset(workspace.dataset(name), f"datasets/{name}")
    config = settings.model_dump(mode="json")
    for path, file in _named(workspace, settings, config):
        yield path, file
    sent = run.folder / SCRATCH / jobs.CONFIG
    write_json(sent, config)
    yield f"{home}/{jobs.CONFIG}", sent
    for name in STATE:
        if (file := run.folder / name).is_file():
            yield f"{home}/{name}", file
    if (newest := checkpoints.newest(run.folder)) is not None:
        for file in sorted(newest[1].iterdir()):
            yield f"{home}/{checkpoints.FOLDER}/{newest[1].name}/{file.name}", file
    for key in portable_keys(workspace, settings):
        yield f"cache/{key}.safetensors", workspace.cache / f"{key}.safetensors"


def _dataset(folder: Path, path: str) -> Iterator[tuple[str, Path]]:
    """Records, clips, and the first frames that came with them."""
    for name in (INFO, METADATA):
        if (folder / name).is_file():
            yield f"{path}/{name}", folder / name
    for clip in read_clips(folder):
        for name in filter(None, (clip.file_name, clip.first_frame)):
            if (file := clip_file(folder, name)).is_file():
                yield f"{path}/{name}", file


def _named(workspace: Workspace, settings: TrainSettings, config: dict[str, object]) -> Iterator[tuple[str, Path]]:
    """Files that settings name; `config` then names them by their paths in the remote folder."""
    if (lora := initial_lora(workspace, settings)) is not None:
        if lora.is_relative_to(workspace.runs):
            yield f"runs/{settings.start_from}/{lora.name}", lora
        else:
            path = _input(lora)
            config["start_from"] = BELOW + path
            yield path, lora
    pictures = [policy.resolve(name, "preview_images") for name in settings.preview_images]
    config["preview_images"] = [BELOW + _input(picture) for picture in pictures]
    yield from ((_input(picture), picture) for picture in pictures)


def _input(file: Path) -> str:
    """By its path here: the same file has the same path there every time."""
    return f"inputs/{hashlib.sha256(str(file).encode()).hexdigest()[:12]}/{file.name}"

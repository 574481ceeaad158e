"""The child process that reads untrusted files: `python -m workbench.dataset_builder.ingest.worker DATASET_FOLDER`.

Tasks and their answers:

    {source, name, sha256, longest_side}    a source file -> import result; {frames, fps} for numbered pictures,
                                            {keep_sound: false} to leave the sound out
    {companion, kind, clip}                 a file beside a clip -> {name, whole, notes} or {error};
                                            {fit} and {invert} change it (companions.conform)

It runs under the limits of jobs.limited. If a file crashes it, intake restarts it.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.records import LATENTS, Clip, file_sha256
from workbench.clips.sound import track_of
from workbench.dataset_builder.ingest.canonical import convert, convert_animation
from workbench.dataset_builder.ingest.pictures import keep_first_frame, read_numbered
from workbench.dataset_builder.ingest.results import ImportResult, Outcome, clip_name
from workbench.errors import CannotWrite, ConfigError, DataError, ModelUnavailable
from workbench.families.latents_file import check_values, read_facts
from workbench.jobs.limited import Watch, serve
from workbench.workspace import replacing
from workbench.workspace.safetensors_header import is_safetensors

MODULES = ("av", "numpy", "PIL.Image")
TOO_MUCH_MEMORY = "it needs more memory than an import may use: scale it down"
CODEC_ERROR = "its codec reported an unexpected error ({}): save it again as an ordinary mp4"


def main(dataset: Path) -> None:
    """Handle tasks until stdin ends."""

    def handle(task: dict[str, Any], watch: Watch) -> str:
        if "companion" in task:
            return json.dumps(beside(dataset, task, watch))
        return judge(dataset, task, watch).model_dump_json()

    serve(handle, MODULES)


def beside(dataset: Path, task: dict[str, Any], watch: Watch) -> dict[str, Any]:
    """Write a clip's companion or first frame, or return the error. Raises CannotWrite."""
    import av

    from workbench.dataset_builder.companions import conform

    try:
        clip, file = Clip.model_validate(task["clip"]), Path(task["companion"])
        if task["kind"] == "first_frame":
            name, note = keep_first_frame(dataset, file, clip)
            return {"name": name, "notes": [note]}
        changes = {name: bool(task.get(name)) for name in ("fit", "invert")}
        return conform(dataset, clip, task["kind"], file, watch.progress, **changes)
    except (DataError, ConfigError) as error:
        return {"error": str(error)}
    except MemoryError:
        return {"error": TOO_MUCH_MEMORY}
    except av.FFmpegError as error:
        return {"error": CODEC_ERROR.format(error.strerror)}


def judge(dataset: Path, task: dict[str, Any], watch: Watch) -> ImportResult:
    """Create the clip and thumbnail of one source file, or refuse it with the reason. Raises CannotWrite."""
    import av

    source, sha256, longest_side = Path(task["source"]), task["sha256"], task["longest_side"]

    def refused(reason: str) -> ImportResult:
        return ImportResult(source=str(source), outcome="refused", sha256=sha256, notes=(reason,))

    name = clip_name(sha256)
    try:
        if task["name"].lower().endswith(LATENTS) or is_safetensors(source):
            return _take_latents(dataset, source, sha256)
        if "frames" in task:
            numbered = read_numbered([Path(path) for path in task["frames"]], task["fps"])
            made = convert_animation(numbered, dataset / name, longest_side, watch.progress)
        else:
            keep_sound = task.get("keep_sound", True)
            made = convert(source, dataset / name, longest_side, watch.progress, keep_sound=keep_sound)
        thumbnail = dataset / "thumbs" / f"{Path(name).stem}.jpg"
        if made.middle is None:
            media.thumbnail(dataset / name, thumbnail)
        else:
            media.write_thumbnail(made.middle.to_ndarray(format="rgb24"), thumbnail)
    except DataError as error:
        return refused(str(error))
    except MemoryError:
        return refused(TOO_MUCH_MEMORY)
    except CannotWrite:
        raise
    except av.FFmpegError as error:
        return refused(CODEC_ERROR.format(error.strerror))
    except Exception as error:  # noqa: BLE001 - one strange file must not end the import
        return refused(f"it cannot be read ({type(error).__name__}: {error})")
    clip = Clip(
        file_name=name,
        fps=made.fps,
        frames=made.frames,
        width=made.width,
        height=made.height,
        sha256=file_sha256(dataset / name),
        sound=track_of(dataset / name),
    )
    outcome: Outcome = "converted" if made.changes else "taken"
    notes = made.changes + made.warnings
    return ImportResult(source=str(source), outcome=outcome, notes=notes, sha256=sha256, clip=clip)


def _take_latents(dataset: Path, source: Path, sha256: str) -> ImportResult:
    """Check a latents file and copy it byte for byte. Raises DataError, CannotWrite."""
    try:
        about = read_facts(source)
    except (ConfigError, ModelUnavailable) as error:
        raise DataError(f"its metadata names a model whose sizes are unknown: {error}") from error
    check_values(source)
    name = clip_name(sha256, latents=True)
    with replacing(dataset / name) as target:
        shutil.copyfile(source, target)
    media.write_poster("latents", (about.width, about.height), dataset / "thumbs" / f"{Path(name).stem}.jpg")
    clip = Clip(
        file_name=name,
        text=about.caption,
        fps=about.fps,
        frames=about.frames,
        width=about.width,
        height=about.height,
        sha256=sha256,
        latents_model=about.model,
        embeddings="" if about.embeddings else None,
    )
    return ImportResult(source=str(source), outcome="taken", notes=about.notes, sha256=sha256, clip=clip)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except CannotWrite as error:
        sys.exit(int(error.exit_code))

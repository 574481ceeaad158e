"""The child that touches foreign files: `python -m workbench.dataset_builder.ingest.worker DATASET_FOLDER`.

Each task is {source, sha256, seconds, longest_side}, its answer an import result. Not covered: the limits that it works
under (jobs.limited), starting it again after a file that brought it down (intake).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.records import file_sha256
from workbench.dataset_builder.ingest.canonical import convert
from workbench.dataset_builder.ingest.results import ImportResult, clip_id
from workbench.errors import CannotWrite, DataError
from workbench.jobs.limited import Watch, serve

MODULES = ("av", "numpy", "PIL.Image")


def main(dataset: Path) -> None:
    """Handle tasks until stdin ends."""

    def handle(task: dict[str, Any], watch: Watch) -> str:
        result = judge(dataset, Path(task["source"]), task["sha256"], task["longest_side"], watch)
        return result.model_dump_json()

    serve(handle, MODULES)


def judge(dataset: Path, source: Path, sha256: str, longest_side: int | None, watch: Watch) -> ImportResult:
    """Make clip and thumbnail of one source file, or say why not. Raises CannotWrite."""
    import av

    refused = ImportResult(source=str(source), outcome="refused", sha256=sha256)
    name = f"clips/{clip_id(sha256)}.mp4"
    try:
        made = convert(source, dataset / name, longest_side, watch.progress)
        thumbnail = dataset / "thumbs" / f"{clip_id(sha256)}.jpg"
        if made.middle is None:
            media.thumbnail(dataset / name, thumbnail)
        else:
            media.write_thumbnail(made.middle.to_ndarray(format="rgb24"), thumbnail)
    except DataError as error:
        return refused.model_copy(update={"notes": (str(error),)})
    except MemoryError:
        return refused.model_copy(update={"notes": ("it needs more memory than an import may use: scale it down",)})
    except CannotWrite:
        raise
    except av.FFmpegError as error:
        reason = f"its codec reports what nobody foresaw ({error.strerror}): save it anew as an ordinary mp4"
        return refused.model_copy(update={"notes": (reason,)})
    except Exception as error:  # noqa: BLE001 - one strange file must not end the import
        return refused.model_copy(update={"notes": (f"it cannot be read ({type(error).__name__}: {error})",)})
    return ImportResult(
        source=str(source),
        outcome="converted" if made.changes else "taken",
        notes=made.changes + made.warnings,
        sha256=sha256,
        file_name=name,
        clip_sha256=file_sha256(dataset / name),
        fps=made.fps,
        frames=made.frames,
        width=made.width,
        height=made.height,
    )


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except CannotWrite as error:
        sys.exit(int(error.exit_code))

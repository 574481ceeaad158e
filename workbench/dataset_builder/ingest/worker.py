"""The child that touches foreign files: `python -m workbench.dataset_builder.ingest.worker DATASET_FOLDER`.

It says READY; then each line on stdin is a task {source, sha256, seconds, longest_side}, each line on stdout its
Verdict, after lines of ALIVE while frames come. It has a memory limit, a time limit that works even when a decoder
spins in native code (`seconds` without a new frame), and low priority; it ends with its parent. Not covered: starting
it again after a file that brought it down (ingest).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

from workbench.clips import media
from workbench.clips.records import file_sha256
from workbench.dataset_builder.ingest.canonical import convert
from workbench.dataset_builder.ingest.results import ImportResult, clip_id
from workbench.errors import CannotWrite, DataError

READY, ALIVE = "ready", "alive"
MEMORY_BYTES = 6 * 1024**3
ALIVE_SECONDS = 1.0


def main(dataset: Path) -> None:
    """Handle tasks until stdin ends."""
    os.nice(10)
    with contextlib.suppress(ValueError, OSError):  # macOS refuses the limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for module in ("av", "numpy", "PIL.Image"):  # starting up is no file's fault, so it counts against none
        importlib.import_module(module)
    print(READY, flush=True)  # noqa: T201 - stdout is the protocol
    for line in sys.stdin:
        task = json.loads(line)
        watch = Watch(task["seconds"])
        result = judge(dataset, Path(task["source"]), task["sha256"], task["longest_side"], watch)
        watch.end()
        print(result.model_dump_json(), flush=True)  # noqa: T201 - stdout is the protocol


class Watch:
    """Ends the process when a file takes too long to the next frame.

    The timer's default action works in native code too, so that even an orphan cannot spin for ever. It counts
    computing time: a busy machine makes no file bad.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds, self._reported = seconds, time.monotonic()
        signal.setitimer(signal.ITIMER_PROF, seconds)

    def frame(self) -> None:
        """Note a frame: the time starts anew, and now and then the parent hears of it."""
        if time.monotonic() - self._reported > ALIVE_SECONDS:
            self._reported = time.monotonic()
            signal.setitimer(signal.ITIMER_PROF, self._seconds)
            print(ALIVE, flush=True)  # noqa: T201 - stdout is the protocol

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)


def judge(dataset: Path, source: Path, sha256: str, longest_side: int | None, watch: Watch) -> ImportResult:
    """Make clip and thumbnail of one source file, or say why not. Raises CannotWrite."""
    import av

    refused = ImportResult(source=str(source), outcome="refused", sha256=sha256)
    name = f"clips/{clip_id(sha256)}.mp4"
    try:
        made = convert(source, dataset / name, longest_side, watch.frame)
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

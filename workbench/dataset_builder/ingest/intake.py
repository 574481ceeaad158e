"""Take source files into a dataset: each gets its import result from a child process, so a bad file costs only itself.

What is done is on disk at once (clip, thumbnail, a line in sources.jsonl; metadata.jsonl every few seconds: ledger), so
an import that was killed goes on where it was. Not covered: how a file is judged (worker, canonical), where captions
come from (sources).
"""

from __future__ import annotations

import contextlib
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from workbench.clips import media, records
from workbench.dataset_builder.ingest.ledger import Ledger
from workbench.dataset_builder.ingest.results import ImportResult, clip_id, storable
from workbench.dataset_builder.sources import archives
from workbench.dataset_builder.sources.tree import SourceFile
from workbench.errors import CannotWrite, DataError
from workbench.jobs.limited import ChildClosed, ChildLost, LimitedChild
from workbench.jobs.locks import locked
from workbench.workspace import writing

WORKER = "workbench.dataset_builder.ingest.worker"
SECONDS_PER_FRAME = 60.0  # of computing without a new frame, which the child itself watches
SECONDS_PER_MEGABYTE = 0.1  # more, for finding the frames in a large file
WAITING = 20.0  # times as long on the clock, for a child that hangs without computing
MOST_MEMBER_BYTES = 8 * 1024**3
TICK_SECONDS = 0.5
FOLDER, SCRATCH, LOCK = ".import", "scratch", "lock"
Progress = Callable[[int, int, ImportResult | None], None]
"""Called with (done, total, result) after each file, and with None twice a second meanwhile; may raise to stop."""


def ingest(
    dataset: Path,
    sources: Sequence[SourceFile],
    on_progress: Progress = lambda *_: None,
    longest_side: int | None = None,
) -> list[ImportResult]:
    """The import result of every source, in their order; pictures are scaled down to `longest_side` pixels, if given.

    Raises ConfigError when another import into the dataset is running, CannotWrite, and whatever `on_progress` raises.
    """
    with _alone(dataset):
        return _ingest(dataset, sources, on_progress, longest_side)


@contextlib.contextmanager
def _alone(dataset: Path) -> Iterator[None]:
    """Hold the dataset's import, with what a killed one left behind cleared away. Raises ConfigError, CannotWrite."""
    folder = dataset / FOLDER
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK, busy=f"another import into {dataset.name} is running: wait until it ends, or stop it"):
        for leftover in (*dataset.glob("clips/.*.tmp"), *dataset.glob("thumbs/.*.tmp")):
            leftover.unlink(missing_ok=True)
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
        yield


def _ingest(
    dataset: Path, sources: Sequence[SourceFile], on_progress: Progress, longest_side: int | None
) -> list[ImportResult]:
    tasks: queue.SimpleQueue[SourceFile] = queue.SimpleQueue()
    for source in sources:
        tasks.put(source)
    results: queue.SimpleQueue[ImportResult | CannotWrite] = queue.SimpleQueue()
    ledger = Ledger(dataset, sources)
    count = min(_cores(), len(sources))
    workers = [_Worker(dataset, ledger, longest_side, number) for number in range(count)]
    threads = [threading.Thread(target=worker.work, args=(tasks, results), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    try:
        done = 0
        while done < len(sources):
            try:
                result = results.get(timeout=TICK_SECONDS)
            except queue.Empty:
                on_progress(done, len(sources), None)
                continue
            if isinstance(result, CannotWrite):
                raise result
            done += 1
            on_progress(done, len(sources), ledger.add(result))
    finally:
        for worker in workers:
            worker.close()
        for thread in threads:
            thread.join(timeout=10)
        ledger.save()
    return [ledger.results[storable(source.key)] for source in sources]


def _cores() -> int:
    """How many cores this process may use: fewer than the machine has in a container or a batch job."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker:
    """A thread's side of one child process: hand it files, watch its time, replace it when a file brought it down."""

    def __init__(self, dataset: Path, ledger: Ledger, longest_side: int | None, number: int) -> None:
        self._dataset, self._ledger, self._longest_side = dataset, ledger, longest_side
        self._scratch = dataset / FOLDER / SCRATCH / str(number)
        self._child = LimitedChild(WORKER, dataset)

    def work(
        self, tasks: queue.SimpleQueue[SourceFile], results: queue.SimpleQueue[ImportResult | CannotWrite]
    ) -> None:
        """Judge files until none is left, then let the child go."""
        try:
            while True:
                results.put(self._judge(tasks.get_nowait()))
        except (queue.Empty, ChildClosed):
            pass
        except CannotWrite as error:
            results.put(error)
        finally:
            self._child.close()

    def close(self) -> None:
        """End the child now; its thread then ends by itself."""
        self._child.kill()

    def _judge(self, source: SourceFile) -> ImportResult:
        refused = ImportResult(source=source.key, outcome="refused")
        try:
            with self._on_disk(source) as path:
                media.check_file(path)
                return self._judge_file(refused, path)
        except DataError as error:
            return refused.model_copy(update={"notes": (str(error),)})
        except OSError as error:
            return refused.model_copy(update={"notes": (f"it cannot be read: {error.strerror}",)})

    @contextlib.contextmanager
    def _on_disk(self, source: SourceFile) -> Iterator[Path]:
        """The source's file; a member of an archive lies in a scratch file meanwhile. Raises DataError, CannotWrite."""
        if not source.member:
            yield source.path
            return
        try:
            with writing(self._scratch):
                self._scratch.parent.mkdir(parents=True, exist_ok=True)
                self._scratch.unlink(missing_ok=True)
            archives.extract(source, self._scratch, MOST_MEMBER_BYTES)
            yield self._scratch
        finally:
            self._scratch.unlink(missing_ok=True)

    def _judge_file(self, refused: ImportResult, path: Path) -> ImportResult:
        sha256 = records.file_sha256(path)
        if known := self._ledger.known(refused.source, sha256):
            return known
        clip = self._dataset / "clips" / f"{clip_id(sha256)}.mp4"
        there = clip.exists()
        task: dict[str, object] = {"source": str(path), "sha256": sha256, "longest_side": self._longest_side}
        seconds = SECONDS_PER_FRAME + SECONDS_PER_MEGABYTE * path.stat().st_size / 1e6
        try:
            answer = self._child.ask(task, seconds, WAITING)
            result = ImportResult.model_validate_json(answer).model_copy(update={"source": refused.source})
        except ChildLost as lost:
            result = refused.model_copy(update={"notes": (self._reason(lost, seconds),), "sha256": sha256})
        if not result.usable and not there:
            clip.unlink(missing_ok=True)
        return result

    def _reason(self, lost: ChildLost, seconds: float) -> str:
        """Why there is no answer, in words. Raises CannotWrite."""
        if lost.late:
            return f"no frame came within {seconds:.0f} s: it may be damaged, copy it again"
        if lost.code == CannotWrite.exit_code:
            raise CannotWrite(f"cannot write {self._dataset}: free some space, or choose another workspace")
        return f"reading it brought the decoder down ({lost.code}): it is damaged, copy it again"

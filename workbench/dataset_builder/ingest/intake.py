"""Import what a person gives into a dataset: each file is judged in a child process, so a bad one costs only itself.

What is done is on disk at once (clip, thumbnail, a line in sources.jsonl; metadata.jsonl every few seconds: ledger), so
an import that was killed goes on where it was. Not covered: what was given and where captions come from
(sources.survey), how a file is judged (worker, canonical), the job (job).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from workbench.clips import media, records
from workbench.dataset_builder import history
from workbench.dataset_builder.ingest import pictures
from workbench.dataset_builder.ingest.contents import Contents
from workbench.dataset_builder.ingest.ledger import Ledger
from workbench.dataset_builder.ingest.results import ImportResult, clip_name, storable
from workbench.dataset_builder.sources import archives
from workbench.dataset_builder.sources.columns import USUAL, Columns
from workbench.dataset_builder.sources.files import first_names
from workbench.dataset_builder.sources.survey import Survey, survey
from workbench.dataset_builder.sources.tree import SourceFile
from workbench.errors import CannotWrite, DataError
from workbench.jobs.limited import ChildClosed, ChildLost, LimitedChild
from workbench.jobs.locks import locked
from workbench.workspace import make_folder, writing

WORKER = "workbench.dataset_builder.ingest.worker"
SECONDS_PER_FRAME = 60.0  # of computing without a new frame, which the child itself watches
SECONDS_PER_MEGABYTE = 0.1  # more, for finding the frames in a large file
WAITING = 20.0  # times as long on the clock, for a child that hangs without computing
MOST_MEMBER_BYTES = 8 * 1024**3
TICK_SECONDS = 0.5
FOLDER, SCRATCH, LOCK = ".import", "scratch", "lock"
Progress = Callable[[int, int, ImportResult | None], None]
"""Called with (done, total, result) after each file, and with None twice a second meanwhile; may raise to stop."""
Task = tuple[int, SourceFile]
"""A source and its number in the order given."""
Answer = tuple[int, ImportResult, str, str]
"""(number, result, name of the first frame that was kept or "", what became of the one that came with it or "")."""


def import_files(
    dataset: Path,
    paths: Iterable[Path | str],
    on_progress: Progress = lambda *_: None,
    layout: str = "",
    longest_side: int | None = None,
    columns: Columns = USUAL,
    on_survey: Callable[[Survey], None] = lambda _: None,
    frame_rate: float | None = None,
) -> list[ImportResult]:
    """Take in videos, pictures, folders and archives of them, now.

    layout: the name of one to read everything as, "" to find it out; longest_side: larger pictures are scaled down to
    it; columns: what the columns of tables are called; on_survey: called with what is there before it is read;
    frame_rate: of numbered pictures, each folder of which is then one video.
    Raises DataError when no file is found or none can be used, ConfigError, CannotWrite.
    """
    given = [str(path) for path in paths]
    surveyed = survey(given, layout, columns, frame_rate)
    sources = surveyed.sources
    on_survey(surveyed)
    if not sources:
        named = first_names([Path(path).name for path in given])
        raise DataError(
            f"no videos in {named or 'an empty list'}: give {media.ENDINGS} files, pictures, or a zip or tar of them"
        )
    results = ingest(dataset, sources, on_progress, longest_side)
    new = sum(result.outcome in ("taken", "converted") for result in results)
    history.note(dataset, f"imported {new} of {len(results)} files", new)
    if not any(result.usable for result in results):
        raise DataError(f"none of the {len(results)} files can be used: {results[0].sentence}")
    return results


def ingest(
    dataset: Path,
    sources: Sequence[SourceFile],
    on_progress: Progress = lambda *_: None,
    longest_side: int | None = None,
) -> list[ImportResult]:
    """The import result of every source, in their order; pictures are scaled down to `longest_side` pixels, if given.

    Raises ConfigError when another import into the dataset is running, CannotWrite, and whatever `on_progress` raises.
    """
    with import_lock(dataset):
        tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        for task in enumerate(sources):
            tasks.put(task)
        answers: queue.SimpleQueue[Answer | CannotWrite] = queue.SimpleQueue()
        ledger, contents = Ledger(dataset, sources), Contents()
        count = min(_cores(), len(sources))
        workers = [_Worker(dataset, ledger, contents, longest_side, index) for index in range(count)]
        threads = [threading.Thread(target=worker.work, args=(tasks, answers), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        try:
            done = 0
            while done < len(sources):
                try:
                    answer = answers.get(timeout=TICK_SECONDS)
                except queue.Empty:
                    on_progress(done, len(sources), None)
                    continue
                if isinstance(answer, CannotWrite):
                    raise answer
                done += 1
                number, result, picture, note = answer
                result = ledger.add(result, picture, note)
                contents.leave(number)
                on_progress(done, len(sources), result)
        finally:
            contents.close()
            for worker in workers:
                worker.close()
            for thread in threads:
                thread.join(timeout=10)
            ledger.save()
        return [ledger.results[storable(source.key)] for source in sources]


@contextlib.contextmanager
def import_lock(dataset: Path) -> Iterator[None]:
    """Keep other imports out of the dataset, and clear away what a killed one left. Raises ConfigError, CannotWrite."""
    folder = dataset / FOLDER
    make_folder(folder)
    with locked(folder / LOCK, busy=f"another import into {dataset.name} is running: wait until it ends, or stop it"):
        for name in ("clips", "latents", "thumbs"):
            for leftover in dataset.glob(f"{name}/.*.tmp"):
                leftover.unlink(missing_ok=True)
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
        yield


def _cores() -> int:
    """Cores that this process may use. In a container or a batch job the machine may have more."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker:
    """One child process and the thread that hands it files, limits its time, and replaces it after a crash."""

    def __init__(self, dataset: Path, ledger: Ledger, contents: Contents, longest_side: int | None, index: int) -> None:
        self._dataset, self._ledger, self._contents, self._longest_side = dataset, ledger, contents, longest_side
        self._scratch = dataset / FOLDER / SCRATCH / str(index)
        self._child = LimitedChild(WORKER, dataset)

    def work(self, tasks: queue.SimpleQueue[Task], answers: queue.SimpleQueue[Answer | CannotWrite]) -> None:
        """Judge files until none is left, then let the child go."""
        try:
            while True:
                number, source = tasks.get_nowait()
                result = self._judge(number, source)
                answers.put((number, result, *self._first_frame(source.first_frame, result)))
        except (queue.Empty, ChildClosed):
            pass
        except CannotWrite as error:
            answers.put(error)
        finally:
            self._child.close()

    def close(self) -> None:
        """End the child now; its thread then ends by itself."""
        self._child.kill()

    def _judge(self, number: int, source: SourceFile) -> ImportResult:
        result = ImportResult(source=source.key, outcome="refused")
        try:
            if source.frames:
                return self._joined(number, source, result)
            with self._on_disk(source, MOST_MEMBER_BYTES) as path:
                sha256 = records.file_sha256(path)
                self._contents.enter(number, sha256)
                if known := self._ledger.known(result.source, sha256):
                    return known
                return self._converted(result.model_copy(update={"sha256": sha256}), {"source": str(path)}, [path])
        except DataError as error:
            return result.model_copy(update={"notes": (str(error),)})

    def _joined(self, number: int, source: SourceFile, result: ImportResult) -> ImportResult:
        """Judge numbered pictures as one video. Raises DataError, CannotWrite."""
        with contextlib.ExitStack() as stack:
            paths, left, digest = list[Path](), MOST_MEMBER_BYTES, hashlib.sha256(f"{source.fps:g} fps".encode())
            for index, frame in enumerate(source.frames):
                try:
                    scratch = self._scratch.with_name(f"{self._scratch.name}-{index}")
                    paths.append(stack.enter_context(self._on_disk(frame, left, scratch)))
                except DataError as error:
                    raise DataError(f"its frame {frame.name!r} cannot be used: {error}") from error
                left -= paths[-1].stat().st_size
                digest.update(records.file_sha256(paths[-1]).encode())
            self._contents.enter(number, digest.hexdigest())
            if known := self._ledger.known(result.source, digest.hexdigest()):
                return known
            task = {"source": str(paths[0]), "frames": [str(path) for path in paths], "fps": source.fps}
            return self._converted(result.model_copy(update={"sha256": digest.hexdigest()}), task, paths)

    def _converted(self, result: ImportResult, task: Mapping[str, object], paths: Sequence[Path]) -> ImportResult:
        clip = self._dataset / clip_name(result.sha256)
        there = clip.exists()
        task = {**task, "name": result.name, "sha256": result.sha256, "longest_side": self._longest_side}
        size = sum(path.stat().st_size for path in paths)
        try:
            answer = self._ask(task, SECONDS_PER_FRAME + SECONDS_PER_MEGABYTE * size / 1e6)
            result = ImportResult.model_validate_json(answer).model_copy(update={"source": result.source})
        except DataError as error:
            result = result.model_copy(update={"notes": (str(error),)})
        if not result.usable and not there:
            clip.unlink(missing_ok=True)
        return result

    def _first_frame(self, picture: SourceFile | None, result: ImportResult) -> tuple[str, str]:
        """The last two of an Answer: the picture that came with a clip becomes its first frame, or is left out."""
        if picture is None or result.clip is None or not (self._dataset / result.clip.file_name).exists():
            return "", ""
        try:
            with self._on_disk(picture, pictures.MOST_PICTURE_BYTES) as path:
                clip = result.clip
                size = [clip.width, clip.height] if clip.is_latents else None
                task = {"picture": str(path), "clip": clip.file_name, "size": size}
                name, note = json.loads(self._ask(task, SECONDS_PER_FRAME))
                return name, note
        except DataError as error:
            return "", pictures.LEFT_OUT.format(error)

    @contextlib.contextmanager
    def _on_disk(self, source: SourceFile, most_bytes: int, scratch: Path | None = None) -> Iterator[Path]:
        """The source's file; a member of an archive lies in a scratch file meanwhile. Raises DataError, CannotWrite."""
        scratch = scratch or self._scratch
        path = scratch if source.member else source.target or source.path
        try:
            if source.refused:
                raise DataError(source.refused)
            if source.member:
                with writing(path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.unlink(missing_ok=True)
                archives.extract(source, path, most_bytes)
            media.check_file(path, source.name)
            yield path
        except OSError as error:
            raise DataError(f"it cannot be read: {error.strerror}") from error
        finally:
            scratch.unlink(missing_ok=True)

    def _ask(self, task: Mapping[str, object], seconds: float) -> bytes:
        """The child's answer. Raises DataError, saying why there is none, CannotWrite, ChildClosed."""
        try:
            return self._child.ask({**task}, seconds, WAITING)
        except ChildLost as lost:
            if lost.late:
                reason = f"no frame came within {seconds:.0f} s: it may be damaged, copy it again"
                raise DataError(reason) from None
            if lost.code == CannotWrite.exit_code:
                sentence = f"cannot write {self._dataset}: free some space, or choose another workspace"
                raise CannotWrite(sentence) from None
            reason = f"reading it brought the decoder down ({lost.code}): it is damaged, copy it again"
            raise DataError(reason) from None

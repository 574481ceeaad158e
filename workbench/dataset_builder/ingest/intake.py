"""The import job: convert the sources named in its config.json, file by file, and add them to the dataset.

Each file is converted in a child process (worker, canonical), so a bad one affects nothing else. Clip, thumbnail and a
line in sources.jsonl are written per file, and metadata.jsonl every few seconds (results.Ledger), so a killed import
can resume.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import queue
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from workbench import jobs
from workbench.clips import media, records
from workbench.clips.records import BESIDE_NAMES
from workbench.clips.video_files import ENDINGS
from workbench.dataset_builder import history
from workbench.dataset_builder.ingest.results import (
    OUTCOMES,
    SKIPPED,
    SKIPPED_NOTE,
    ImportResult,
    Ledger,
    clip_name,
    storable,
)
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.sources import archives, fetched
from workbench.dataset_builder.sources.survey import Survey, survey
from workbench.dataset_builder.sources.tree import SourceFile
from workbench.display.quantities import listed
from workbench.errors import CannotWrite, DataError
from workbench.jobs.limited import ChildClosed, ChildLost, LimitedChild
from workbench.jobs.locks import locked
from workbench.workspace import make_folder, writing

MOST_PROBLEMS = 20  # caption problems repeated when the import ends
MOST_NAMED = 24  # files listed per outcome when the import ends; sources.jsonl has all
LONGEST_NOTE = 200  # characters
DEFAULTS = ImportSettings()


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Import the sources, resuming where an earlier import was killed. Raises DataError, CannotWrite, jobs.Stop."""
    settings = ImportSettings.load(config)
    if settings.trigger_word:
        history.set_trigger_word(dataset, settings.trigger_word)
    began = time.monotonic()
    counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
    files, new, problems = list[dict[str, str]](), list[str](), list[str]()
    companions = Counter[str]()
    job.outcome = {"counts": counts, "files": files, "problems": problems, "new": new, "companions": companions}

    def add(name: str, outcome: str, note: str) -> None:
        counts[outcome] += 1
        if counts[outcome] <= MOST_NAMED:
            files.append({"name": name[-LONGEST_NOTE:], "outcome": outcome, "note": note[:LONGEST_NOTE]})

    def on_survey(surveyed: Survey) -> None:
        problems[:] = surveyed.problems[:MOST_PROBLEMS]
        for name in surveyed.skipped:
            add(name, SKIPPED, SKIPPED_NOTE)
        for name, reason in surveyed.not_read.items():
            add(name, "refused", reason)
        sys.stdout.write("".join(f"{sentence}\n" for sentence in surveyed.sentences))

    def on_progress(done: int, total: int, result: ImportResult | None) -> None:
        nonlocal began
        if result is not None:
            add(result.name, result.outcome, ", ".join((*result.notes, *result.left_out)))
            companions.update(result.companions)
            problems.extend(f"{result.name}: {sentence}." for sentence in result.left_out)
            if result.clip and result.outcome in ("taken", "converted"):
                new.append(result.clip.file_name)
            sys.stdout.write(f"{result.sentence}\n")
        read = done - counts["known"]
        if not read:  # known files take no time, so leave them out of the estimate
            began = time.monotonic()
        seconds = (time.monotonic() - began) / read if read else None
        job.beat("import", done, total, step_seconds=seconds, message=result.sentence if result else "")
        job.check_stop(f"stopped after {done} of {total} files: start it again to continue")

    import_files(dataset, _sources(settings, config.parent, job), on_progress, settings, on_survey)


def _sources(settings: ImportSettings, folder: Path, job: jobs.Job) -> list[Path | str]:
    """Return the sources to import, after writing those from the Hub and the user's own code to the task's folder."""
    sources: list[Path | str] = list(settings.sources)
    if settings.hub_dataset:
        job.beat("looking at the Hub")
        remote = fetched.inspect(settings.hub_dataset, settings.revision, settings.hub_config)
        sys.stdout.write(f"{remote.sentence}\n")
        began = time.monotonic()

        def on_file(done: int, total: int) -> None:
            job.beat("downloading", done, total, step_seconds=(time.monotonic() - began) / max(1, done))
            job.check_stop(f"stopped after {done} of {total} files: start it again to continue")

        sources.append(fetched.fetch(remote, folder / "hub", on_file))
    if settings.own_source.strip():

        def on_item(count: int) -> None:
            job.beat(f"reading {settings.own_source}", message=f"{count} items")
            job.check_stop(f"stopped after {count} items: start it again to continue")

        sources.append(fetched.fetch_own(settings.own_source, folder / "own", on_item))
    return sources


# ---- the files -------------------------------------------------------------------------------------------------------

WORKER = "workbench.dataset_builder.ingest.worker"
SECONDS_PER_FRAME = 60.0  # CPU time without a new frame, enforced by the child itself
SECONDS_PER_MEGABYTE = 0.1  # added to that, for locating the frames of a large file
WAITING = 20.0  # times that limit in wall-clock time, for a child that hangs without using the CPU
MOST_MEMBER_BYTES = 8 * 1024**3
TICK_SECONDS = 0.5
FOLDER, SCRATCH, LOCK = ".import", "scratch", "lock"
Progress = Callable[[int, int, ImportResult | None], None]
"""Called with (done, total, result) after each file, and twice a second with None; may raise to stop."""
Answer = tuple[int, ImportResult, Mapping[str, tuple[str, str]], Sequence[str]]
"""(number, then the arguments of Ledger.add)."""


def import_files(
    dataset: Path,
    paths: Iterable[Path | str],
    on_progress: Progress = lambda *_: None,
    settings: ImportSettings = DEFAULTS,
    on_survey: Callable[[Survey], None] = lambda _: None,
) -> list[ImportResult]:
    """Import videos, pictures, and folders and archives of them, in this process.

    settings: how to read and convert them. Its own sources are ignored.
    on_survey: called with the survey before any file is opened.

    Raises DataError if no file was found or none can be used, ConfigError, CannotWrite.
    """
    given = [str(path) for path in paths]
    surveyed = survey(given, settings.wanted_layout, settings.columns, settings.rate_of_frames)
    sources = surveyed.sources
    on_survey(surveyed)
    if not sources:
        named = listed([Path(path).name for path in given])
        raise DataError(
            f"no videos in {named or 'an empty list'}: add {ENDINGS} files, pictures, or a zip or tar of them"
        )
    results = ingest(dataset, sources, on_progress, settings)
    new = sum(result.outcome in ("taken", "converted") for result in results)
    history.note(dataset, f"imported {new} of {len(results)} files", new)
    if not any(result.usable for result in results):
        raise DataError(f"none of the {len(results)} files can be used: {results[0].sentence}")
    return results


def ingest(
    dataset: Path,
    sources: Sequence[SourceFile],
    on_progress: Progress = lambda *_: None,
    settings: ImportSettings = DEFAULTS,
) -> list[ImportResult]:
    """Import the sources and return their results in order.

    Raises ConfigError if another import into the dataset is running, CannotWrite, and whatever `on_progress` raises.
    """
    with import_lock(dataset):
        answers: queue.SimpleQueue[Answer | CannotWrite] = queue.SimpleQueue()
        ledger, turns = Ledger(dataset, sources), Turns(sources)
        # In a container or batch job, the process may not use all of the machine's cores.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        count = min(cores, len(sources))
        how = settings.model_dump(include={"longest_side", "keep_sound"})
        workers = [_Worker(dataset, ledger, turns, how, index) for index in range(count)]
        threads = [threading.Thread(target=worker.work, args=(answers,), daemon=True) for worker in workers]
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
                number, result, beside, left_out = answer
                result = ledger.add(result, beside, left_out)
                turns.leave(number)
                on_progress(done, len(sources), result)
        finally:
            turns.close()
            for worker in workers:
                worker.child.kill()  # which ends its thread
            for thread in threads:
                thread.join(timeout=10)
            ledger.save()
        return [ledger.results[storable(source.key)] for source in sources]


@contextlib.contextmanager
def import_lock(dataset: Path) -> Iterator[None]:
    """Lock the dataset against other imports and clean up after a killed one. Raises ConfigError, CannotWrite."""
    folder = dataset / FOLDER
    make_folder(folder)
    with locked(folder / LOCK, busy=f"another import into {dataset.name} is running: wait for it, or stop it"):
        for name in ("clips", "latents", "thumbs"):
            for leftover in dataset.glob(f"{name}/.*.tmp"):
                leftover.unlink(missing_ok=True)
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
        yield


class _Worker:
    """A child process and the thread that sends it files, limits its time, and restarts it after a crash."""

    def __init__(self, dataset: Path, ledger: Ledger, turns: Turns, how: Mapping[str, object], index: int) -> None:
        self._dataset, self._ledger, self._turns, self._how = dataset, ledger, turns, how
        self._scratch = dataset / FOLDER / SCRATCH / str(index)
        self.child = LimitedChild(WORKER, dataset)

    def work(self, answers: queue.SimpleQueue[Answer | CannotWrite]) -> None:
        """Import files until none is left, then close the child."""
        try:
            while task := self._turns.take():
                result = self._result_of(*task)
                answers.put((task[0], result, *self._beside(task[1], result)))
        except ChildClosed:
            pass
        except CannotWrite as error:
            answers.put(error)
        finally:
            self.child.close()

    def _result_of(self, number: int, source: SourceFile) -> ImportResult:
        """Import a file, or numbered pictures as one video."""
        result, stale = ImportResult(source=source.key, outcome="refused"), None
        try:
            with contextlib.ExitStack() as stack:
                paths, left = list[Path](), MOST_MEMBER_BYTES
                for index, file in enumerate(source.frames or (source,)):
                    scratch = self._scratch.with_name(f"{self._scratch.name}-{index}")
                    try:
                        paths.append(stack.enter_context(self._on_disk(file, left, scratch)))
                    except DataError as error:
                        if not source.frames:
                            raise
                        raise DataError(f"frame {file.name!r} cannot be used: {error}") from error
                    left -= paths[-1].stat().st_size
                sha256 = "".join(map(records.file_sha256, paths))
                task: dict[str, object] = {"source": str(paths[0])}
                if source.frames:
                    sha256 = hashlib.sha256(f"{source.fps:g} fps{sha256}".encode()).hexdigest()
                    task |= {"frames": [str(path) for path in paths], "fps": source.fps}
                self._turns.enter(number, sha256)
                if known := self._ledger.known(result.source, sha256):
                    return known
                result = result.model_copy(update={"sha256": sha256})
                clip = self._dataset / clip_name(sha256)
                stale = None if clip.exists() else clip  # what a failed conversion leaves
                task |= {"name": result.name, "sha256": sha256, **self._how}
                seconds = SECONDS_PER_FRAME + SECONDS_PER_MEGABYTE * (MOST_MEMBER_BYTES - left) / 1e6
                found = ImportResult.model_validate_json(self._ask(task, seconds))
                result = found.model_copy(update={"source": result.source})
        except DataError as error:
            result = result.model_copy(update={"notes": (str(error),)})
        if stale and not result.usable:
            stale.unlink(missing_ok=True)
        return result

    def _beside(self, source: SourceFile, result: ImportResult) -> tuple[dict[str, tuple[str, str]], list[str]]:
        """Store the files that came with a clip; return `beside` and `left_out` for Ledger.add."""
        beside, left_out = dict[str, tuple[str, str]](), list[str]()
        if result.clip is None:
            return beside, left_out
        exists = (self._dataset / result.clip.file_name).exists()
        for kind, file in source.companions:
            try:
                if not exists:
                    raise DataError("the clip has since been split or removed: attach it to its parts")
                if file.frames:
                    raise DataError("it consists of numbered pictures: make a video of them first")
                with self._on_disk(file, MOST_MEMBER_BYTES, self._scratch) as path:
                    seconds = SECONDS_PER_FRAME + SECONDS_PER_MEGABYTE * path.stat().st_size / 1e6
                    clip = result.clip.model_dump(mode="json")
                    answer = json.loads(self._ask({"companion": str(path), "kind": kind, "clip": clip}, seconds))
                if why := answer.get("error"):
                    raise DataError(why)
                said = ", ".join(answer["notes"])
                if kind != "first_frame":
                    said = f"stored with its {BESIDE_NAMES[kind]}{f' ({said})' if said else ''}"
                beside[kind] = answer["name"], said
            except DataError as error:
                left_out.append(f"its {BESIDE_NAMES[kind]} ({file.name}) was left out: {error}")
        return beside, left_out

    @contextlib.contextmanager
    def _on_disk(self, source: SourceFile, most_bytes: int, scratch: Path) -> Iterator[Path]:
        """Yield the source's path, extracting archive members to `scratch`. Raises DataError, CannotWrite."""
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
        """Return the child's answer. Raises DataError with the reason if there is none, CannotWrite, ChildClosed."""
        try:
            return self.child.ask({**task}, seconds, WAITING)
        except ChildLost as lost:
            if lost.late:
                reason = f"no frame within {seconds:.0f} s: it may be damaged, copy it again"
                raise DataError(reason) from None
            if lost.code == CannotWrite.exit_code:
                sentence = f"cannot write {self._dataset}: free some space, or choose another workspace"
                raise CannotWrite(sentence) from None
            reason = f"reading it crashed the decoder ({lost.code}): it is damaged, copy it again"
            raise DataError(reason) from None


# ---- sources with the same content -----------------------------------------------------------------------------------


class Turns:
    """Hand out sources in the given order, and let those with the same content wait for the first. Thread-safe.

    Otherwise the fastest worker would decide a clip's name and caption.
    """

    def __init__(self, sources: Iterable[SourceFile]) -> None:
        self._left = enumerate(sources)
        self._changed = threading.Condition()
        self._read: dict[int, str] = {}  # source in progress -> SHA-256, "" while it is unknown
        self._closed = False

    def take(self) -> tuple[int, SourceFile] | None:
        """Return the number and source to import next, None after the last."""
        with self._changed:
            task = next(self._left, None)
            self._read |= {} if task is None else {task[0]: ""}
            return task

    def enter(self, number: int, sha256: str) -> None:
        """Wait until no earlier source in progress has, or may have, the same content. Raises ChildClosed."""
        with self._changed:
            self._read[number] = sha256
            self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._closed or not any(self._read[one] in ("", sha256) for one in self._read if one < number)
            )
            if self._closed:
                raise ChildClosed

    def leave(self, number: int) -> None:
        """Mark the source as done, whether or not its content could be read."""
        with self._changed:
            del self._read[number]
            self._changed.notify_all()

    def close(self) -> None:
        """Wake all waiting threads, which then raise ChildClosed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

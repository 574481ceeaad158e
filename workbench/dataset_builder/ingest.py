"""Take source files into a dataset: each gets its verdict from a child process, so a bad file costs only itself.

What is done is on disk at once (clip, thumbnail, a line in sources.jsonl; metadata.jsonl every few seconds), so an
import that was killed goes on where it was. Captions that a dataset already has are never replaced. Not covered: how a
file is judged (worker, normalise), where captions come from (sources).
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench import clips, media
from workbench.dataset_builder.history import editing
from workbench.dataset_builder.sources import Source
from workbench.dataset_builder.verdicts import Verdict, append_verdict, clip_id, read_verdicts
from workbench.errors import CannotWrite, DataError
from workbench.workspace import writing

WORKER = "workbench.dataset_builder.worker"
SECONDS_PER_FILE = 60.0  # of computing, which the child itself watches
SECONDS_PER_MEGABYTE = 2.0
STARTING_SECONDS = 300.0
WAITING = 20.0  # times as long on the clock, for a child that hangs without computing
SAVE_SECONDS = 3.0
TICK_SECONDS = 0.5
Progress = Callable[[int, int, Verdict | None], None]
"""Called with (done, total, verdict) after each file, and with None twice a second meanwhile; may raise to stop."""


def ingest(dataset: Path, sources: Sequence[Source], on_progress: Progress = lambda *_: None) -> list[Verdict]:
    """The verdict on every source, in their order. Raises CannotWrite, and whatever `on_progress` raises."""
    with writing(dataset):
        dataset.mkdir(parents=True, exist_ok=True)
    for leftover in (*dataset.glob("clips/.*.tmp"), *dataset.glob("thumbs/.*.tmp")):
        leftover.unlink(missing_ok=True)
    tasks: queue.SimpleQueue[Source] = queue.SimpleQueue()
    for source in sources:
        tasks.put(source)
    results: queue.SimpleQueue[Verdict | CannotWrite] = queue.SimpleQueue()
    ledger = _Ledger(dataset, sources)
    workers = [_Worker(dataset, ledger) for _ in range(min(os.cpu_count() or 1, len(sources)))]
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
            ledger.add(result)
            on_progress(done, len(sources), result)
    finally:
        for worker in workers:
            worker.close()
        for thread in threads:
            thread.join(timeout=10)
        ledger.save()
    return [ledger.verdicts[str(source.path)] for source in sources]


class _Ledger:
    """What is known of the dataset's sources, and the clips still to be written to metadata.jsonl."""

    def __init__(self, dataset: Path, sources: Sequence[Source]) -> None:
        self.dataset = dataset
        self.verdicts = {verdict.source: verdict for verdict in read_verdicts(dataset)}
        self.captions = {str(source.path): source.caption for source in sources}
        self._order = {str(source.path): number for number, source in enumerate(sources)}
        self._new: dict[str, int] = {}  # file name -> place among the clips of this import
        self._made = {v.sha256: v for v in self.verdicts.values() if v.outcome in ("taken", "mended")}
        self._unsaved: list[Verdict] = []
        self._saved_at = time.monotonic()

    def made_from(self, sha256: str) -> Verdict | None:
        """The verdict that made a clip of this content, if the clip is still there."""
        verdict = self._made.get(sha256)
        return verdict if verdict and (self.dataset / verdict.file_name).exists() else None

    def add(self, verdict: Verdict) -> None:
        """Put a verdict on disk. The same content twice, met by two workers at once, counts once."""
        first = self._made.setdefault(verdict.sha256, verdict) if verdict.usable else verdict
        if first.source != verdict.source and verdict.outcome != "known":
            verdict = _known(verdict.source, first)
        earlier = self.verdicts.get(verdict.source)
        if not (verdict.outcome == "known" and earlier and earlier.sha256 == verdict.sha256 and earlier.usable):
            append_verdict(self.dataset, verdict)
        self.verdicts[verdict.source] = verdict
        if verdict.usable:
            self._unsaved.append(verdict)
        if time.monotonic() - self._saved_at > SAVE_SECONDS:
            self.save()

    def save(self) -> None:
        """Bring metadata.jsonl up to date: new clips are added, captions filled in where there is none."""
        self._saved_at = time.monotonic()
        if not self._unsaved:
            return
        with editing(self.dataset):
            known = {clip.file_name: clip for clip in clips.read_clips(self.dataset)}
            for verdict in self._unsaved:
                caption = self.captions.get(verdict.source, "")
                if verdict.file_name not in known:
                    self._new.setdefault(verdict.file_name, self._order[verdict.source])
                clip = known.setdefault(verdict.file_name, verdict.clip(caption))
                if caption and not clip.text:
                    known[verdict.file_name] = clip.changed(text=caption, caption_by="file")
            # Children finish in any order; clips stand in the order they were given, so that a run can be repeated.
            ordered = sorted(known.values(), key=lambda clip: self._new.get(clip.file_name, -1))
            clips.write_clips(self.dataset, ordered)
        self._unsaved.clear()


def _known(source: str, first: Verdict) -> Verdict:
    same = first.source == source
    note = "imported before" if same else f"the same content as {Path(first.source).name!r}: kept once"
    return first.model_copy(update={"source": source, "outcome": "known", "notes": (note,)})


class _Worker:
    """A thread's side of one child process: hand it files, watch its time, replace it when a file brought it down."""

    def __init__(self, dataset: Path, ledger: _Ledger) -> None:
        self._dataset, self._ledger = dataset, ledger
        self._child: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def work(self, tasks: queue.SimpleQueue[Source], results: queue.SimpleQueue[Verdict | CannotWrite]) -> None:
        """Judge files until none is left, then let the child go."""
        try:
            while not self._closed:
                results.put(self._judge(tasks.get_nowait().path))
        except queue.Empty:
            pass
        except CannotWrite as error:
            results.put(error)
        finally:
            self._let_go()

    def close(self) -> None:
        """End the child now; its thread then ends by itself."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()

    def _judge(self, path: Path) -> Verdict:
        refused = Verdict(source=str(path), outcome="refused")
        try:
            media.check_file(path)
            size = path.stat().st_size
            sha256 = clips.file_sha256(path)
        except DataError as error:
            return refused.model_copy(update={"notes": (str(error),)})
        except OSError as error:
            return refused.model_copy(update={"notes": (f"it cannot be read: {error.strerror}",)})
        if first := self._ledger.made_from(sha256):
            return _known(str(path), first)
        seconds = SECONDS_PER_FILE + SECONDS_PER_MEGABYTE * size / 1e6
        answer, reason = self._ask({"source": str(path), "sha256": sha256, "seconds": seconds}, seconds)
        if answer is None:
            return refused.model_copy(update={"notes": (reason,), "sha256": sha256})
        verdict = Verdict.model_validate_json(answer)
        if verdict.outcome == "refused":
            (self._dataset / "clips" / f"{clip_id(sha256)}.mp4").unlink(missing_ok=True)
        return verdict

    def _ask(self, task: dict[str, object], seconds: float) -> tuple[bytes | None, str]:
        """(answer, "") or (None, why there is none)."""
        child = self._started()
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            child.stdin.write(json.dumps(task).encode() + b"\n")
            child.stdin.flush()
            answer = _line_within(child.stdout.fileno(), WAITING * seconds)
        except BrokenPipeError:
            answer = b""
        if answer:
            return answer, ""
        if answer is None:
            child.kill()
        code = self._let_go()
        if answer is None or code == -signal.SIGPROF:
            return None, f"it took longer than {seconds:.0f} s to read: it may be damaged, copy it again"
        if code == CannotWrite.exit_code:
            raise CannotWrite(f"cannot write {self._dataset}: free some space, or choose another workspace")
        return None, f"reading it brought the decoder down ({code}): it is damaged, copy it again"

    def _started(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise CannotWrite("the import was ended")
            if self._child is None:
                # A decoder that a file has taken over finds no tokens in its environment.
                kept = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
                environment = {name: os.environ[name] for name in kept if name in os.environ}
                root = str(Path(__file__).resolve().parents[2])
                self._child = subprocess.Popen(
                    [sys.executable, "-P", "-m", WORKER, str(self._dataset)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**environment, "PYTHONPATH": root, "OPENBLAS_NUM_THREADS": "1"},
                )
                assert self._child.stdout is not None
                _line_within(self._child.stdout.fileno(), STARTING_SECONDS)
            return self._child

    def _let_go(self) -> int | None:
        """Close the child's pipes, upon which it ends, and return its exit code."""
        with self._lock:
            child, self._child = self._child, None
        if child is None:
            return None
        with contextlib.suppress(BrokenPipeError):
            child.communicate()
        return child.wait()


def _line_within(descriptor: int, seconds: float) -> bytes | None:
    """The child's next line; b"" when it ended, None when the time is up."""
    end, line = time.monotonic() + seconds, b""
    while (left := end - time.monotonic()) > 0:
        if select.select([descriptor], [], [], left)[0]:
            piece = os.read(descriptor, 65536)
            line += piece
            if not piece or line.endswith(b"\n"):
                return line if piece else b""
    return None

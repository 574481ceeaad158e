"""A grid on disk: create it, generate its videos, extend it, mark videos, and read its state at any time. No torch.

docs/file_formats.md describes its folder. A video is named by a hash of everything that determines it (axes), so it is
never generated twice, whatever rows and columns come and go.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel

from workbench import jobs
from workbench.clips.records import file_sha256
from workbench.compare.axes import AXES, Column, GridPlan, Row, merged, plan_grid, work
from workbench.compare.settings import GridSettings
from workbench.compare.suggestions import base_of, completed
from workbench.errors import ConfigError, Unknown
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.sampler import queue
from workbench.sampler.loras import split_scale
from workbench.sampler.queue import RequestState
from workbench.sampler.samples import read_sample_record
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, parse
from workbench.workspace import (
    Workspace,
    disk,
    fresh_folder,
    is_slug,
    named_paths,
    read_json,
    read_object,
    read_to_change,
    write_json,
    writing,
)
from workbench.workspace.records import read_once, sound

FILE, CELLS, REQUESTS, MEASUREMENTS = "grid.json", "cells", "requests.json", "measurements.json"
REMOVED = ".removed"
TAKEN = ("new", "curves")  # names with another meaning in the page's addresses
RETRY_SECONDS, POLL_SECONDS = 60.0, 0.2
MODULE = "workbench.compare"
MEASURING = ".measurements"
EXTENDABLE = (*AXES, "seeds", "prompts")
MARKS = "marks.json"
FEWEST = 5  # votes; with fewer, no difference is significant
S = TypeVar("S", bound=Settings)


# ---- a grid at one moment -------------------------------------------------------------------------------------------


class CellState(StrEnum):
    """The state of a video, derived from files."""

    DONE = "done"
    MISSING = "missing"  # not requested, or canceled
    WAITING = "waiting"
    GENERATING = "generating"  # or loading its model
    FAILED = "failed"

    @property
    def pending(self) -> bool:
        return self in (CellState.WAITING, CellState.GENERATING)


STATES = {
    RequestState.WAITING: CellState.WAITING,
    RequestState.LOADING: CellState.GENERATING,
    RequestState.GENERATING: CellState.GENERATING,
    RequestState.FAILED: CellState.FAILED,
}


@dataclass(frozen=True)
class Cell:
    """One video.

    message: why it failed or is waiting.
    preview: a picture of the latents so far.
    measurements: as in measurements.json; {} if not measured yet.
    outdated: whether the file of a LoRA it was generated with has changed since.
    """

    key: str
    settings: SampleSettings
    state: CellState
    step: int = 0
    total: int = 0
    seconds_left: float | None = None
    message: str = ""
    video: Path | None = None
    preview: Path | None = None
    record: dict[str, Any] = field(default_factory=dict)
    measurements: dict[str, Any] = field(default_factory=dict)
    starred: bool = False
    rejected: bool = False
    outdated: bool = False

    @property
    def incomplete(self) -> bool:
        """Whether `Grid.generate` requests it."""
        return not self.state.pending and (self.state is not CellState.DONE or self.outdated)


@dataclass(frozen=True)
class GridState:
    """A whole grid.

    cells: [row][column].
    seconds_left: estimated from the videos done; None before the first.
    references: key -> the video of its row to measure a cell against, as KEY@VERSION; "" for none (yet).
    """

    name: str
    title: str
    plan: GridPlan
    cells: tuple[tuple[Cell, ...], ...]
    seconds_left: float | None
    references: dict[str, str]

    @property
    def rows(self) -> tuple[Row, ...]:
        return self.plan.rows

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.plan.columns

    @property
    def all(self) -> list[Cell]:
        return [cell for row in self.cells for cell in row]

    def count(self, *states: CellState) -> int:
        """Count the videos in any of these states."""
        return sum(cell.state in states for cell in self.all)

    def is_measured(self, cell: Cell) -> bool:
        """Whether its measurements match the current versions of the video and its reference."""
        return bool(cell.measurements.get("reference") == self.references[cell.key])

    @property
    def measured(self) -> bool:
        """Whether every finished video was measured."""
        return all(self.is_measured(cell) for cell in self.all if cell.video)

    @property
    def complete(self) -> bool:
        return self.count(CellState.DONE) == len(self.all)

    @property
    def going(self) -> bool:
        return any(cell.state.pending for cell in self.all)

    def cell(self, key: str) -> Cell:
        """Return the cell of a finished video. Raises ConfigError if there is none."""
        found = next((cell for cell in self.all if cell.key == key and cell.video), None)
        if found is None:
            raise ConfigError(f"the grid {self.name} has no such video: choose one that is done")
        return found


def seconds_left(cells: Iterable[Cell], steps: int, gaps: Sequence[float]) -> float | None:
    """Estimate the seconds for pending videos from the pace of finished ones; None before the first.

    Args:
        steps: The model's default number of denoising steps.
        gaps: Seconds from one finished video to the next, including decoding and writing.
    """
    every = list(cells)
    done = [cell for cell in every if cell.state is CellState.DONE]
    waiting = [cell for cell in every if cell.state.pending]
    if not waiting or not done:
        return None
    passes = sum(work(cell.settings, steps) for cell in done)
    seconds = sum(float(cell.record.get("seconds", 0.0)) for cell in done)
    # Gaps much longer than a video are pauses of the queue and do not count.
    alone = seconds / len(done)
    near = [gap for gap in gaps if gap < 3 * alone + 5]
    more = max(1.0, (sum(near) / len(near)) / alone) if near and alone else 1.0
    left = sum((1 - cell.step / (cell.total or math.inf)) * work(cell.settings, steps) for cell in waiting)
    return left * more * seconds / passes


# ---- a grid on disk -------------------------------------------------------------------------------------------------


class Grid:
    """A grid's folder. Properties read the disk every time."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self.folder = workspace, folder

    @classmethod
    def create(cls, workspace: Workspace, settings: GridSettings, base: SampleSettings | None = None) -> Self:
        """Check the settings and write the grid's folder. Call `generate` to generate its videos.

        Args:
            settings: Rows and columns.
            base: The settings that samples start from; None for those of the run's previews.

        Raises ConfigError, CannotWrite.
        """
        base = base or base_of(workspace, settings)
        settings = completed(workspace, settings)
        plan = plan_grid(workspace, settings, base)
        title = settings.title or plan.rows[0].prompt[:40]
        folder = fresh_folder(workspace.grids, title, TAKEN)
        with writing(folder):
            (folder / CELLS).mkdir()
        grid = cls(workspace, folder)
        grid._save(settings.changed(title=title), base)
        return grid

    @classmethod
    def open(cls, workspace: Workspace, slug: str) -> Self:
        """Open an existing grid. Raises ConfigError if there is none with that name."""
        folder = workspace.grid(slug)
        if not (folder / FILE).exists():
            known = ", ".join(grid.name for grid in cls.all(workspace)) or "none yet"
            raise ConfigError(f"there is no grid {slug!r}: choose one of {known}")
        return cls(workspace, folder)

    @classmethod
    def all(cls, workspace: Workspace) -> list[Self]:
        """List the workspace's grids, newest first."""
        files = [path for path in workspace.grids.glob(f"*/{FILE}") if is_slug(path.parent.name)]
        return [cls(workspace, path.parent) for path in sorted(files, key=lambda f: f.stat().st_mtime, reverse=True)]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def title(self) -> str:
        """The title, or the name if grid.json is damaged."""
        try:
            return self.settings.title
        except ConfigError:
            return self.name

    @property
    def settings(self) -> GridSettings:
        return self._parsed(GridSettings, "settings")

    @property
    def base(self) -> SampleSettings:
        return self._parsed(SampleSettings, "sample")

    @property
    def marked(self) -> Marks:
        """The marks; empty if the file is missing or damaged."""
        raw = read_object(self.folder / MARKS)
        with contextlib.suppress(TypeError, AttributeError):
            votes = tuple(vote for vote in raw.get("votes", ()) if {"left", "right", "chosen"} <= vote.keys())
            stars, rejects = frozenset(raw.get("stars", ())), frozenset(raw.get("rejects", ()))
            return Marks(stars, rejects, votes, dict(raw.get("best") or {}))
        return Marks()

    @property
    def plan(self) -> GridPlan:
        """Rows and columns. Raises ConfigError if the file is damaged or the model is missing."""
        return self._read()[2]

    def _read(self) -> tuple[GridSettings, SampleSettings, GridPlan]:
        """Return settings, base and plan, computed once per version of grid.json."""
        if not (self.folder / FILE).exists():
            raise ConfigError(f"the grid {self.name} no longer exists: choose another one")

        def laid_out(_: Path) -> tuple[GridSettings, SampleSettings, GridPlan]:
            settings, base = self.settings, self.base
            return settings, base, plan_grid(self.workspace, settings, base)

        return read_once(self.folder / FILE, laid_out)

    def video(self, key: str) -> Path:
        """Return the path of a cell's video, whether it exists or not."""
        return self.folder / CELLS / f"{key}.mp4"

    # ---- changing it

    def change(self, settings: GridSettings) -> None:
        """Change rows and columns; videos of removed ones stay on disk. Raises ConfigError."""
        settings = completed(self.workspace, settings)
        plan_grid(self.workspace, settings, self.base)
        self._save(settings.changed(title=settings.title or self.settings.title), self.base)

    def extend(self, **more: Sequence[str]) -> None:
        """Add values to axes, seeds or prompts, as in extend(checkpoints=["600"]). Raises ConfigError."""
        unknown = sorted(set(more) - set(EXTENDABLE))
        if unknown:
            raise ConfigError(f"a grid cannot be extended by {unknown[0]}: choose from {', '.join(EXTENDABLE)}")
        now, added = self.settings, GridSettings().changed(**{name: list(values) for name, values in more.items()})
        values = {name: list(merged(name, getattr(now, name), getattr(added, name))) for name in more}
        self.change(now.changed(**values))

    def delete(self) -> str:
        """Cancel the grid's requests, move its folder to grids/.removed, and return the name for `restore`.

        Raises CannotWrite.
        """
        self.cancel()
        jobs.kill(self.folder / MEASURING)
        with writing(self.folder):
            removed = fresh_folder(self.workspace.grids / REMOVED, self.name)
            disk.replace(self.folder, removed)
        return removed.name

    @classmethod
    def restore(cls, workspace: Workspace, removed: str) -> Self:
        """Restore a removed grid, under its old name if that is free. Raises Unknown, CannotWrite."""
        folder = workspace.grids / REMOVED / removed
        if not is_slug(removed) or not (folder / FILE).exists():
            raise Unknown(f"there is no removed grid {removed[:80]!r}: it was not removed, or was already restored")
        back = fresh_folder(workspace.grids, removed)
        with writing(back):
            disk.replace(folder, back)
        return cls(workspace, back)

    def _save(self, settings: GridSettings, base: SampleSettings) -> None:
        created = self._file("created") if (self.folder / FILE).exists() else time.time()
        kept = {"settings": settings.model_dump(mode="json"), "sample": base.model_dump(mode="json")}
        write_json(self.folder / FILE, {**kept, "created": created})

    def _parsed(self, kind: type[S], name: str) -> S:
        """Parse settings in grid.json. Raises ConfigError, which names the file."""
        try:
            return parse(kind, self._file(name), given=())
        except ConfigError as error:
            path = str(self.folder / FILE)
            raise ConfigError(str(error) if path in str(error) else f"{path} is damaged ({error}): fix it") from error

    def _file(self, name: str) -> Any:
        value = read_json(self.folder / FILE)
        if not isinstance(value, dict) or name not in value:
            raise ConfigError(f"{self.folder / FILE} is damaged ({name} is missing): create the grid again")
        return value[name]

    # ---- generating

    def generate(self, keys: Iterable[str] | None = None) -> int:
        """Request missing, failed and outdated videos, of all cells or only of `keys`; return how many.

        Raises ConfigError, DeviceBusy or CannotWrite without requesting anything.
        """
        with jobs.locked(self.folder / ".requests.lock"):
            state = self.state()
            wanted = set(keys) if keys is not None else {cell.key for cell in state.all}
            cells = [cell for cell in state.all if cell.key in wanted and cell.incomplete]
            causes = {cell.key: cause for cell in cells if (cause := self._missing_lora(cell.settings))}
            if causes and len(causes) == len(cells):
                raise ConfigError(causes[cells[0].key])
            cells = in_order([cell for cell in cells if cell.key not in causes], state.plan)
            if not cells:
                return 0
            folder = self.folder.relative_to(self.workspace.root).as_posix()
            into = [f"{folder}/{CELLS}/{cell.key}" for cell in cells]
            ids = queue.submit_all(self.workspace, [cell.settings for cell in cells], into=into, bulk=True)
            requests = dict(zip([cell.key for cell in cells], ids, strict=True))
            write_json(self.folder / REQUESTS, {**self._requests(), **requests})
        return len(cells)

    def cancel(self) -> None:
        """Cancel the grid's requests. Raises CannotWrite."""
        requests, pending = self._requests(), set(queue.pending(self.workspace))
        queue.cancel_all(self.workspace, [one for one in requests.values() if one in pending])

    def _requests(self) -> dict[str, str]:
        """Return the request id of each requested video, by key."""
        return {key: one for key, one in read_object(self.folder / REQUESTS).items() if isinstance(one, str)}

    def _missing_lora(self, settings: SampleSettings) -> str:
        """Say which LoRA file is missing to generate a video; "" if none."""
        for text in settings.loras:
            path = Path(split_scale(text)[0])
            if path.is_absolute() and not named_paths.resolve(path, "loras").exists():
                with contextlib.suppress(ValueError):
                    path = path.relative_to(self.workspace.root)
                return f"{path} no longer exists: choose another checkpoint"
        return ""

    def maintain(self, state: GridState) -> None:
        """Keep requests and measurements going. Cheap; call it regularly while watching a grid."""
        queue.revive(self.workspace)
        last = jobs.status(self.folder / MEASURING)
        failed_lately = last.state is jobs.State.FAILED and time.time() - (last.ended_at or 0) < RETRY_SECONDS
        if state.count(CellState.DONE) and not state.measured and not last.state.alive and not failed_lately:
            self.measure()

    def wait(self, seconds: float | None = None, each: Callable[[GridState], None] = lambda state: None) -> GridState:
        """Wait until nothing is pending or the time is up, calling `each` with every state. Raises like `state`."""
        end = None if seconds is None else time.monotonic() + seconds
        while (state := self.state()).going and (end is None or time.monotonic() < end):
            self.maintain(state)
            each(state)
            time.sleep(POLL_SECONDS)
        return state

    def measure(self) -> jobs.Status:
        """Start the job that measures finished videos."""
        write_json(self.folder / MEASURING / jobs.CONFIG, {})
        return jobs.start(self.folder / MEASURING, MODULE)

    # ---- its state

    def state(self) -> GridState:
        """Read the grid's state. Raises ConfigError if grid.json is damaged or the model is missing."""
        settings, base, plan = self._read()
        requests, marked = self._requests(), self.marked
        measured = read_measurements(self.folder)
        cells = {
            key: self._cell(key, sample, requests.get(key), measured.get(key, {}), marked)
            for key, sample in plan.samples.items()
        }
        steps = base.resolved.model.steps
        versions = {key: stamp(cell.video) for key, cell in cells.items() if cell.video}
        times = sorted(version / 1e9 for version in versions.values())
        references = dict.fromkeys(cells, "")
        for keys in plan.keys:
            for key, column in zip(keys, plan.columns, strict=True):
                other = keys[column.reference]
                references[key] = f"{other}@{versions[other]}" if other in versions and other != key else ""
        return GridState(
            self.name,
            settings.title,
            plan,
            tuple(tuple(cells[key] for key in keys) for keys in plan.keys),
            seconds_left(cells.values(), steps, [later - earlier for earlier, later in pairwise(times)]),
            references,
        )

    def _cell(
        self, key: str, sample: SampleSettings, request: str | None, measured: dict[str, Any], marked: Marks
    ) -> Cell:
        progress = None
        if request:  # read it first, so that a video finishing right now is neither pending nor missing
            with contextlib.suppress(ConfigError):
                progress = queue.progress(self.workspace, request)
        state = STATES.get(progress.state) if progress else None
        video = self.video(key)
        record = read_once(video.with_suffix(".json"), read_sample_record)
        common: dict[str, Any] = {"starred": key in marked.stars, "rejected": key in marked.rejects}
        if record and video.exists() and not (state and state.pending):
            common |= {"measurements": measured} if measured.get("version") == stamp(video) else {}
            old = outdated(record, video)
            return Cell(key, sample, CellState.DONE, video=video, record=record, outdated=old, **common)
        if progress and state:
            common |= {"step": progress.step, "total": progress.total, "seconds_left": progress.seconds_left}
            return Cell(key, sample, state, message=progress.message, preview=progress.picture, **common)
        if cause := self._missing_lora(sample):
            return Cell(key, sample, CellState.FAILED, message=cause, **common)
        return Cell(key, sample, CellState.MISSING, message=progress.message if progress else "", **common)

    # ---- marks and votes

    def mark(self, key: str, *, starred: bool | None = None, rejected: bool | None = None) -> None:
        """Star or reject a video, or undo that. Starring and rejecting exclude each other.

        Raises ConfigError for a video that is not in the grid, CannotWrite.
        """
        if key not in self.plan.samples:
            raise ConfigError(f"the video {key[:40]!r} is not in the grid {self.name}: reload the page")
        with self.changing_marks() as raw:
            for name, other, chosen in (("stars", "rejects", starred), ("rejects", "stars", rejected)):
                if chosen is not None:
                    raw[name] = sorted({*raw[name], key} if chosen else {*raw[name]} - {key})
                if chosen:
                    raw[other] = sorted({*raw[other]} - {key})

    def vote(self, left: str, right: str, chosen: str) -> None:
        """Record a blind vote between two videos of a row; `chosen` is one of them, or "" for neither.

        Raises ConfigError, CannotWrite.
        """
        if not any({left, right} <= set(keys) for keys in self.plan.keys):
            raise ConfigError("a vote needs two videos from the same row: choose two from one row")
        if chosen not in (left, right, "") or left == right:
            raise ConfigError("the vote is for neither of the two videos: vote again")
        with self.changing_marks() as raw:
            raw["votes"].append({"left": left, "right": right, "chosen": chosen, "time": time.time()})

    def choose_best(self, column: int, why: str = "") -> str:
        """Make a column's checkpoint the best of its run, which stars it, and return a sentence that says so.

        Raises ConfigError if the column is not a checkpoint of the run.
        """
        columns, run = self.plan.columns, self.settings.run
        if not 0 <= column < len(columns):
            raise ConfigError(f"the grid has {len(columns)} columns: choose 1 to {len(columns)}")
        chosen = columns[column]
        step = chosen.step
        if run and chosen.final and (steps := Run.open(self.workspace, run).checkpoints):
            step = steps[-1]
        if not run or step is None:
            raise ConfigError(
                f"{chosen.name or 'this column'} is not a checkpoint of a run: choose the column of a checkpoint"
            )
        why = why or f"judged best in the grid {self.name}" + (f" ({chosen.name})" if chosen.name else "")
        checkpoints.choose_best(self.workspace.run(run), step, why)
        with self.changing_marks() as raw:
            raw["best"] = {"column": chosen.name, "step": step, "why": why, "time": time.time()}
        return f"step {step} is now the best checkpoint of {run}: it is starred and shown on the run's page"

    @contextlib.contextmanager
    def changing_marks(self) -> Iterator[dict[str, Any]]:
        """Yield the marks to change, and write them when the block ends. Locked against concurrent changes."""
        file = self.folder / MARKS
        with jobs.locked(self.folder / ".marks.lock"):
            present, now = read_to_change(file), self.marked
            if now == Marks() and any(present.values()):
                raise ConfigError(f"{file} is damaged, and saving would overwrite its content: fix or remove it")
            raw = {
                "stars": sorted(now.stars),
                "rejects": sorted(now.rejects),
                "votes": list(now.votes),
                "best": now.best,
            }
            yield raw
            write_json(file, raw)

    def _repr_html_(self) -> str:
        from workbench.compare.export import grid_html

        return grid_html(self)


class _Measured(BaseModel):
    """Types that readers can rely on in a video's measurements, for keys that are present."""

    version: int
    reference: str = ""
    distance: float | None = None
    psnr: float | None = None
    motion: float | None = None
    sharpness: float | None = None
    nearest: str = ""
    nearest_difference: float = 0.0


def read_measurements(folder: Path) -> dict[str, dict[str, Any]]:
    """Read the measurements of a grid's videos, by key, without damaged entries, which are then measured again."""
    cells = read_object(folder / MEASUREMENTS).get("cells")
    found = ((key, sound(one, _Measured)) for key, one in cells.items()) if isinstance(cells, dict) else ()
    return {key: one for key, one in found if "version" in one and ("nearest" in one) == ("nearest_difference" in one)}


def stamp(video: Path) -> int:
    """Return a video's version, which changes when it is generated again."""
    try:
        return video.with_suffix(".json").stat().st_mtime_ns
    except OSError:
        return 0


def outdated(record: dict[str, Any], video: Path) -> bool:
    """Whether the file of a LoRA that the video was generated with has changed."""
    for lora in record.get("loras") or ():
        with contextlib.suppress(OSError, ConfigError):
            path = named_paths.resolve(str(lora.get("file", "")), "loras")
            later = path.is_file() and path.stat().st_mtime_ns > stamp(video)
            if later and read_once(path, file_sha256) != lora.get("sha256"):
                return True
    return False


def in_order(cells: Sequence[Cell], plan: GridPlan) -> list[Cell]:
    """Order cells for generation: by LoRA file, so that the model seldom switches LoRAs, then by column."""
    column = {key: index for keys in plan.keys for index, key in enumerate(keys)}
    row = {key: index for index, keys in enumerate(plan.keys) for key in keys}
    files = {cell.key: tuple(split_scale(text)[0] for text in cell.settings.loras) for cell in cells}
    first: dict[tuple[str, ...], int] = {}
    for cell in cells:
        first[files[cell.key]] = min(first.get(files[cell.key], column[cell.key]), column[cell.key])
    return sorted(cells, key=lambda cell: (first[files[cell.key]], column[cell.key], row[cell.key]))


# ---- marks and votes ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Marks:
    """The content of marks.json; `best` is {"column", "step", "why", "time"}, or {} before a choice."""

    stars: frozenset[str] = frozenset()
    rejects: frozenset[str] = frozenset()
    votes: tuple[dict[str, Any], ...] = ()
    best: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tally:
    """The votes on a column."""

    won: int = 0
    lost: int = 0
    tied: int = 0

    @property
    def votes(self) -> int:
        return self.won + self.lost + self.tied

    @property
    def confidence(self) -> str:
        """Say whether the wins could be chance, by a two-sided sign test without ties.

        "clearly": p of at most 0.05; "likely": p of at most 0.2.
        """
        count, most = self.won + self.lost, max(self.won, self.lost)
        if count < FEWEST:
            return "too few votes to say"
        chance = min(1.0, 2 * sum(math.comb(count, one) for one in range(most, count + 1)) / 2**count)
        side = "better" if self.won > self.lost else "worse"
        if chance <= 0.05:
            return f"clearly {side}"
        return f"likely {side}" if chance <= 0.2 else "no difference seen"


def tallies(plan: GridPlan, votes: tuple[dict[str, Any], ...]) -> list[Tally]:
    """Count the votes of each column, in order. Votes on videos that are no longer in the grid do not count."""
    column = {key: index for keys in plan.keys for index, key in enumerate(keys)}
    found = [Counter[str]() for _ in plan.columns]
    for one in votes:
        left, right = column.get(one["left"]), column.get(one["right"])
        if left is not None and right is not None:
            chosen = one["chosen"]
            found[left]["won" if chosen == one["left"] else "lost" if chosen else "tied"] += 1
            found[right]["tied" if not chosen else "lost" if chosen == one["left"] else "won"] += 1
    return [Tally(**counts) for counts in found]

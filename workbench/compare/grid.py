"""A grid on disk: make it, ask for its videos, extend it, mark them; look at it at any time. No torch.

    grids/<slug>/
      grid.json               {"settings": GridSettings, "sample": SampleSettings, "created"}
      cells/<key>.mp4 .json   a video and all that made it; the key is the hash of that (axes)
      requests.json           {key: id of the request that draws it} (sampler.queue)
      marks.json              stars, rejects, votes, the best (marks)
      numbers.json            what each video measures (numbers); .numbers/ the job that does it
      export/                 <slug>.mp4 .gif .html: the whole grid in a file; .export/ the job that makes them
    grids/.removed/           grids that were deleted

A video that is there is never drawn again, whatever rows and columns come and go. Not covered: drawing (sampler),
measuring (numbers) and exporting (exporting), which are jobs.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from workbench import inline_html, jobs
from workbench.compare import marks
from workbench.compare.axes import AXES, Column, GridPlan, merged, plan_grid
from workbench.compare.cell_files import outdated, read_object, record_of, stamp
from workbench.compare.settings import FORMATS, GridExportSettings, GridSettings
from workbench.compare.state import Cell, CellState, GridState, seconds_left
from workbench.compare.suggestions import base_of, completed
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.runs import retention
from workbench.runs.run import Run
from workbench.sampler import queue
from workbench.sampler.loras import split_scale
from workbench.sampler.queue import RequestState
from workbench.sampler.settings import SampleSettings
from workbench.settings import parse
from workbench.workspace import Workspace, fresh_folder, is_slug, read_json, write_json, writing

FILE, CELLS, REQUESTS, NUMBERS = "grid.json", "cells", "requests.json", "numbers.json"
REMOVED = ".removed"
AGAIN_SECONDS, POLL_SECONDS = 60.0, 0.2
MODULE = "workbench.compare"
MEASURING, EXPORTING = ".numbers", ".export"
MORE = (*AXES, "seeds", "prompts")  # what a grid can be extended by
STATES = {
    RequestState.WAITING: CellState.WAITING, RequestState.LOADING: CellState.DRAWING,
    RequestState.GENERATING: CellState.DRAWING, RequestState.FAILED: CellState.FAILED,
}  # fmt: skip

_LAID_OUT: dict[Path, tuple[int, GridSettings, SampleSettings, GridPlan]] = {}
MOST_KEPT = 50


class Grid:
    """One grid's folder. Every property is read afresh from disk."""

    def __init__(self, workspace: Workspace, folder: Path) -> None:
        self.workspace, self.folder = workspace, folder

    # ---- which there are

    @classmethod
    def create(cls, workspace: Workspace, settings: GridSettings, base: SampleSettings | None = None) -> Self:
        """Check the settings and write the grid's folder; nothing is drawn before `ask`.

        base: what the samples begin with; None: as the run's previews. Raises ConfigError, CannotWrite.
        """
        base = base or base_of(workspace, settings)
        settings = completed(workspace, settings)
        plan = plan_grid(workspace, settings, base)
        title = settings.title or plan.rows[0].prompt[:40]
        folder = fresh_folder(workspace.grids, title)
        with writing(folder):
            (folder / CELLS).mkdir()
        grid = cls(workspace, folder)
        grid._save(settings.changed(title=title), base)
        return grid

    @classmethod
    def open(cls, workspace: Workspace, slug: str) -> Self:
        """An existing grid. Raises ConfigError when there is none of that name."""
        folder = workspace.grid(slug)
        if not (folder / FILE).exists():
            known = ", ".join(grid.name for grid in cls.all(workspace)) or "none yet"
            raise ConfigError(f"there is no grid {slug!r}: choose one of {known}")
        return cls(workspace, folder)

    @classmethod
    def all(cls, workspace: Workspace) -> list[Self]:
        """Every grid of the workspace, newest first."""
        files = [path for path in workspace.grids.glob(f"*/{FILE}") if is_slug(path.parent.name)]
        return [cls(workspace, path.parent) for path in sorted(files, key=lambda f: f.stat().st_mtime, reverse=True)]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def settings(self) -> GridSettings:
        return parse(GridSettings, self._file("settings"), given=())

    @property
    def base(self) -> SampleSettings:
        return parse(SampleSettings, self._file("sample"), given=())

    @property
    def marked(self) -> marks.Marks:
        return marks.read(self.folder)

    @property
    def plan(self) -> GridPlan:
        """Its rows and columns. Raises ConfigError when the file was damaged or the model is gone."""
        return self._read()[2]

    def _read(self) -> tuple[GridSettings, SampleSettings, GridPlan]:
        """Settings, base and grid, worked out once for each state of grid.json."""
        try:
            changed = (self.folder / FILE).stat().st_mtime_ns
        except OSError:
            raise ConfigError(f"the grid {self.name} is no longer there: choose another one") from None
        known = _LAID_OUT.get(self.folder)
        if known is None or known[0] != changed:
            settings, base = self.settings, self.base
            known = (changed, settings, base, plan_grid(self.workspace, settings, base))
            if len(_LAID_OUT) > MOST_KEPT:
                _LAID_OUT.clear()
            _LAID_OUT[self.folder] = known
        return known[1:]

    def video(self, key: str) -> Path:
        """Where a cell's video is, or will be."""
        return self.folder / CELLS / f"{key}.mp4"

    # ---- changing it

    def change(self, settings: GridSettings) -> None:
        """Give it other rows and columns; videos that it no longer shows stay on disk. Raises ConfigError."""
        settings = completed(self.workspace, settings)
        plan_grid(self.workspace, settings, self.base)
        self._save(settings.changed(title=settings.title or self.settings.title), self.base)

    def extend(self, **more: Sequence[str]) -> None:
        """Add values to axes, seeds or prompts: extend(checkpoints=["600"]). Nothing is drawn before `ask`.

        Raises ConfigError.
        """
        unknown = sorted(set(more) - set(MORE))
        if unknown:
            raise ConfigError(f"a grid cannot be extended by {unknown[0]}: choose among {', '.join(MORE)}")
        now, asked = self.settings, GridSettings().changed(**{name: list(values) for name, values in more.items()})
        values = {name: list(merged(name, getattr(now, name), getattr(asked, name))) for name in more}
        self.change(now.changed(**values))

    def delete(self) -> None:
        """Take the grid away, its requests too; the folder moves to grids/.removed. Raises CannotWrite."""
        self.cancel()
        for job in (MEASURING, EXPORTING):
            jobs.kill(self.folder / job)
        with writing(self.folder):
            removed = fresh_folder(self.workspace.grids / REMOVED, self.name)
            os.replace(self.folder, removed)

    def _save(self, settings: GridSettings, base: SampleSettings) -> None:
        created = self._file("created") if (self.folder / FILE).exists() else time.time()
        kept = {"settings": settings.model_dump(mode="json"), "sample": base.model_dump(mode="json")}
        write_json(self.folder / FILE, {**kept, "created": created})

    def _file(self, name: str) -> Any:
        value = read_json(self.folder / FILE)
        if not isinstance(value, dict) or name not in value:
            raise ConfigError(f"{self.folder / FILE} is damaged ({name} is missing): make the grid again")
        return value[name]

    # ---- drawing

    def ask(self, keys: Iterable[str] | None = None) -> int:
        """Ask for the videos that are missing or failed, or for those of some cells; returns how many that are.

        Those that use one LoRA follow one another, so that the model changes it as seldom as can be. Raises
        ConfigError, DeviceBusy, CannotWrite; then nothing was asked for.
        """
        with jobs.locked(self.folder / ".ask.lock"):
            view = self.look()
            wanted = set(keys) if keys is not None else {cell.key for cell in view.all}
            # A LoRA whose file is gone is not asked for: `look` says so of its cells.
            open_cells = [
                cell for cell in view.all
                if cell.key in wanted and not cell.state.pending and (cell.state is not CellState.DONE or cell.outdated)
            ]  # fmt: skip
            causes = {cell.key: cause for cell in open_cells if (cause := self._gone(cell.settings))}
            cells = in_order([cell for cell in open_cells if cell.key not in causes], view.plan)
            if not cells and causes:
                raise ConfigError(next(iter(causes.values())))
            if not cells:
                return 0
            place = self.folder.relative_to(self.workspace.root)
            into = [f"{place.as_posix()}/{CELLS}/{cell.key}" for cell in cells]
            ids = queue.submit_all(self.workspace, [cell.settings for cell in cells], into=into, bulk=True)
            asked = dict(zip([cell.key for cell in cells], ids, strict=True))
            write_json(self.folder / REQUESTS, {**read_object(self.folder / REQUESTS), **asked})
        return len(cells)

    def cancel(self) -> None:
        """Take back what is not drawn yet. Raises CannotWrite."""
        asked, pending = read_object(self.folder / REQUESTS), set(queue.pending(self.workspace))
        queue.cancel_all(self.workspace, [one for one in asked.values() if one in pending])

    def _gone(self, settings: SampleSettings) -> str:
        """Why a video cannot be drawn any more: a LoRA's file that is not there; "" when it can."""
        for text in settings.loras:
            path = Path(split_scale(text)[0])
            if path.is_absolute() and not path.exists():
                with contextlib.suppress(ValueError):
                    path = path.relative_to(self.workspace.root)
                return f"{path} is no longer there: choose another checkpoint"
        return ""

    # ---- looking

    def look(self) -> GridState:
        """The grid as its files tell it. Raises ConfigError when grid.json was damaged or the model is gone."""
        settings, base, plan = self._read()
        asked, found = read_object(self.folder / REQUESTS), self.marked
        numbers = read_object(self.folder / NUMBERS).get("cells", {})
        known: dict[str, Cell] = {}
        for key, sample in plan.samples.items():
            known[key] = self._cell(key, sample, asked.get(key), numbers.get(key, {}), found)
        against = references(plan, known)
        steps = find_model(base.model)[1].steps
        return GridState(
            self.name,
            settings.title,
            plan,
            tuple(tuple(known[key] for key in keys) for keys in plan.keys),
            seconds_left(known.values(), steps, self._gaps(known.values())),
            all(cell.numbers.get("against") == against[key] for key, cell in known.items() if cell.video),
            against,
        )

    def _cell(
        self, key: str, sample: SampleSettings, request: str | None, numbers: dict[str, Any], found: marks.Marks
    ) -> Cell:
        video = self.video(key)
        record = record_of(video.with_suffix(".json"))
        common: dict[str, Any] = {"starred": key in found.stars, "rejected": key in found.rejects}
        going = self._progress(request) if request else None
        if record and video.exists() and not (going and going.state in STATES and not going.state.over):
            current = numbers if numbers.get("drawn") == stamp(video) else {}
            return Cell(
                key, sample, CellState.DONE, video=video, record=record, numbers=current,
                outdated=outdated(record, video), **common,
            )  # fmt: skip
        if going and going.state in STATES:
            return Cell(
                key, sample, STATES[going.state], going.step, going.total, going.seconds_left, going.message,
                picture=going.picture, **common,
            )  # fmt: skip
        if gone := self._gone(sample):
            return Cell(key, sample, CellState.FAILED, message=gone, **common)
        return Cell(key, sample, CellState.MISSING, message=going.message if going else "", **common)

    def _progress(self, request: str) -> queue.Progress | None:
        with contextlib.suppress(ConfigError):
            return queue.progress(self.workspace, request)
        return None

    def _gaps(self, cells: Iterable[Cell]) -> list[float]:
        """Seconds from one finished video to the next."""
        times = []
        for cell in cells:
            if cell.video:
                with contextlib.suppress(OSError):
                    times.append(cell.video.with_suffix(".json").stat().st_mtime)
        times.sort()
        return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]

    def follow(self, view: GridState) -> None:
        """What whoever watches a grid does now and then: keep its requests alive and its numbers coming. Cheap."""
        queue.revive(self.workspace)
        last = jobs.status(self.folder / MEASURING)
        # One that fails is not started again and again.
        tired = last.state is jobs.State.FAILED and time.time() - (last.ended_at or 0) < AGAIN_SECONDS
        if view.count(CellState.DONE) and not view.measured and not last.state.alive and not tired:
            self.measure()

    def wait(self, seconds: float | None = None) -> GridState:
        """Wait until nothing is on its way any more, or the time is up; follows meanwhile. Raises as `look`."""
        end = None if seconds is None else time.monotonic() + seconds
        while (view := self.look()).going and (end is None or time.monotonic() < end):
            self.follow(view)
            time.sleep(POLL_SECONDS)
        return view

    # ---- jobs

    def measure(self) -> jobs.Status:
        """Start the job that measures the videos that are done; see numbers."""
        write_json(self.folder / MEASURING / jobs.CONFIG, {})
        return jobs.start(self.folder / MEASURING, MODULE)

    def export(self, settings: GridExportSettings | None = None) -> jobs.Status:
        """Start the job that makes files to show around; see exporting. Raises ConfigError while no video is done."""
        if not self.look().count(CellState.DONE):
            raise ConfigError(f"the grid {self.name} has no video yet: wait for the first one")
        folder = self.folder / EXPORTING
        if not jobs.status(folder).state.alive:
            (settings or GridExportSettings()).save(folder / jobs.CONFIG)
        return jobs.start(folder, MODULE)

    @property
    def exported(self) -> list[Path]:
        """The files of the last export that was finished."""
        made = [self.folder / "export" / f"{self.name}.{kind}" for kind in FORMATS]
        return [path for path in made if path.exists()]

    # ---- what people think

    def mark(self, key: str, *, starred: bool | None = None, rejected: bool | None = None) -> None:
        """Star or reject a video, or take it back. Raises ConfigError for a video that is not in the grid."""
        self._known(key)
        marks.mark(self.folder, key, starred=starred, rejected=rejected)

    def vote(self, left: str, right: str, chosen: str) -> None:
        """Note a blind vote between two videos of a row; chosen is one of them, "" for neither. Raises ConfigError."""
        rows = [set(keys) for keys in self.plan.keys]
        if not any({left, right} <= keys for keys in rows):
            raise ConfigError("a vote is between two videos of one row: choose two of one row")
        marks.vote(self.folder, left, right, chosen)

    def choose_best(self, column: int, why: str = "") -> str:
        """Tell the run that a column's checkpoint is its best: it is starred there, and shown. Returns it in words.

        Raises ConfigError for a column that is no checkpoint of the run.
        """
        columns, run = self.plan.columns, self.settings.run
        if not 0 <= column < len(columns):
            raise ConfigError(f"the grid has {len(columns)} columns: choose 1 to {len(columns)}")
        chosen = columns[column]
        step = _step(self.workspace, run, chosen)
        said = why or f"found best in the grid {self.name}" + (f" ({chosen.name})" if chosen.name else "")
        retention.choose_best(self.workspace.run(run), step, said)
        marks.note_best(self.folder, {"column": chosen.name, "step": step, "why": said, "time": time.time()})
        return f"step {step} is the best checkpoint of {run} from now on: it is starred, and shown on the run's page"

    def _repr_html_(self) -> str:
        return inline_html.rendered("workbench.compare.display:grid_html", self)

    def _known(self, key: str) -> None:
        if not any(key in keys for keys in self.plan.keys):
            raise ConfigError(f"the video {key[:40]!r} is not in the grid {self.name}: look at it again")


def references(plan: GridPlan, known: Mapping[str, Cell]) -> dict[str, str]:
    """Key -> which video of its row a cell is measured against, and in which state; "" for none (yet)."""
    found = {}
    for keys in plan.keys:
        for key, column in zip(keys, plan.columns, strict=True):
            other = known[keys[column.reference]]
            found[key] = f"{other.key}@{stamp(other.video)}" if other.video and other.key != key else ""
    return found


def _step(workspace: Workspace, run: str, column: Column) -> int:
    """The checkpoint behind a column. Raises ConfigError where it is none."""
    if run and column.step is not None:
        return column.step
    if run and column.final:
        steps = Run.open(workspace, run).checkpoints
        if steps:
            return steps[-1]
    raise ConfigError(f"{column.name or 'this column'} is no checkpoint of a run: choose a column of a checkpoint")


def in_order(cells: Sequence[Cell], plan: GridPlan) -> list[Cell]:
    """The order in which videos are drawn: those of one LoRA file together, whatever their scale; then by column."""
    column = {key: place for keys in plan.keys for place, key in enumerate(keys)}
    row = {key: place for place, keys in enumerate(plan.keys) for key in keys}
    files = {cell.key: tuple(split_scale(text)[0] for text in cell.settings.loras) for cell in cells}
    first: dict[tuple[str, ...], int] = {}
    for cell in cells:
        first[files[cell.key]] = min(first.get(files[cell.key], column[cell.key]), column[cell.key])
    return sorted(cells, key=lambda cell: (first[files[cell.key]], column[cell.key], row[cell.key]))

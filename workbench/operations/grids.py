"""Grids: videos with a prompt per row and a variation per column. Make, extend, rate, export and remove them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from workbench.compare import CellState, Grid, GridSettings
from workbench.compare.export import export_cell, export_page, export_tiles, exported_page
from workbench.compare.grid import FILE
from workbench.compare.snapshot import GridReader, details_of, snapshot
from workbench.compare.suggestions import base_of, cost, newest, suggested
from workbench.compare.suggestions import of_sample as around
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DeviceBusy, WorkbenchError
from workbench.loras.library import inserted, lacking, words_of_grid
from workbench.operations.registry import Fields, Opened, operation
from workbench.operations.shared import Written
from workbench.runs.run import Run
from workbench.sampler.samples import Samples
from workbench.sampler.settings import SampleSettings
from workbench.settings import parse
from workbench.snapshots import HIDDEN, Snapshot
from workbench.workspace import Workspace

Name = Annotated[str, Field(title="Grid", description="Name of the grid.")]
NamedGrid = Annotated[Grid, Opened(Grid.open, Name)]
Row = Annotated[int, Field(ge=1, description="Row of the video, counted from 1.")]
Column = Annotated[int, Field(ge=1, description="Column, counted from 1.")]
Off = Annotated[bool, Field(description="Remove the mark.")]
# Sample settings that the rows and columns set.
OWN = ("prompt", "image", "seed", "loras", "guidance_scale", "steps", "scheduler", "video", "strength", "continue_from")
AXES = ("prompts", "seeds", "checkpoints", "scales", "loras", "guidance", "steps", "schedulers", "column_seeds")
WORDS = {CellState.MISSING: "not generated"}


class GridLine(Snapshot):
    """A grid in a list."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "videos", "folder", "problem")

    name: str
    """Name of the grid, as commands take it."""

    folder: str
    """Path of its folder."""

    done: int | None
    """Number of videos that are generated; null if the grid cannot be read."""

    videos: int | None
    """Number of videos in total; null if the grid cannot be read."""

    problem: str
    """Why the grid cannot be read; "" if it can."""

    title: str = ""
    """Display title."""

    about: Annotated[str, HIDDEN] = ""
    """What it compares, in a few words."""

    video: Annotated[str | None, HIDDEN] = None
    """Path of one of its videos; null if there is none yet."""

    going: Annotated[bool, HIDDEN] = False
    """Whether its videos are being generated."""

    progress: Annotated[str, HIDDEN] = ""
    """Its progress in words."""

    changed: Annotated[float, HIDDEN] = 0.0
    """When its settings last changed, as Unix time."""

    def text_of(self, name: str) -> str:
        return f"{self.done} of {self.videos}" if name == "videos" and not self.problem else super().text_of(name)


class GridView(Snapshot):
    """A grid with its videos."""

    grid: str
    """Name of the grid."""

    folder: str
    """Path of its folder."""

    title: str
    """Display title."""

    run: str
    """The run whose checkpoints it compares; "" for none."""

    fixed: tuple[Any, ...]
    """Settings that all videos share."""

    rows: tuple[dict[str, Any], ...]
    """For each row: prompt, label."""

    columns: tuple[dict[str, Any], ...]
    """For each column: name, votes ..."""

    heads: tuple[Any, ...]
    """Column headings, line by line: text, span."""

    best: dict[str, Any]
    """The column chosen as best: column, step, why, time; {} if none was."""

    votes: tuple[tuple[str, str], ...]
    """Pairs [left, right] of videos that were compared."""

    cells: tuple[tuple[dict[str, Any], ...], ...]
    """For each row, the videos by column: key, state, url, measurements, starred, rejected ..."""

    help: dict[str, str]
    """Measurement -> what it means."""

    progress: dict[str, Any]
    """Its progress: text, all, done, going, open."""

    fps: float
    """Frame rate of the videos."""

    frames: int
    """Number of frames in each video."""

    width: int
    """Width of the videos in pixels."""

    height: int
    """Height of the videos in pixels."""

    settings: dict[str, Any] = {}
    """Its rows and columns, as `make` takes them."""

    preserved: tuple[str, ...] = ()
    """Preservation prompts of the run."""

    exported: str = ""
    """Path of the exported page; "" before the first export."""

    exported_newer: bool = False
    """Whether videos were generated after that export."""

    warning: str = ""
    """Why the requested videos cannot be generated now; "" if they can."""

    @property
    def over(self) -> bool:
        return not self.progress["going"]

    def lines(self) -> Iterator[tuple[str, str]]:
        yield self.progress["text"], ""
        for one in self.columns if self.votes else ():
            yield one["name"], f"won {one['won']} of {one['votes']} votes, {one['confidence']}"

    def table(self) -> tuple[Sequence[str], list[Sequence[str]]]:
        heads = ("", "prompt", "column", "", "from base", "motion", "sharpness", "training clips", "mark", "file")
        return heads, list(self._rows())

    def _rows(self) -> Iterator[Sequence[str]]:
        for row, cells in enumerate(self.cells):
            for column, cell in enumerate(cells):
                found = {one["name"]: one for one in cell.get("measurements", ())}
                yield (
                    f"{row + 1},{column + 1}",
                    "" if column else self.rows[row]["prompt"][:40],
                    self.columns[column]["name"],
                    WORDS.get(cell["state"], cell["state"]) + (" (older LoRA file)" if cell["outdated"] else ""),
                    *(found[name]["value"] if name in found else "" for name in ("distance", "motion", "sharpness")),
                    found["nearest"]["words"] if "nearest" in found else "",
                    "star" if cell["starred"] else "reject" if cell["rejected"] else "",
                    cell["url"].removeprefix(f"{self.folder}/") if "url" in cell else cell["message"],
                )


class Votes(Snapshot):
    """The votes for a column."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "won", "votes", "confidence")

    name: str
    """Name of the column."""

    won: int
    """Number of votes that it won."""

    votes: int
    """Number of votes that it was in."""

    confidence: str
    """How certain the ranking is, in words."""


class Chosen(Snapshot):
    """The result of a mark or a choice."""

    message: str
    """What was done, in one sentence."""


class Gone(Chosen):
    """A removed grid."""

    id: str
    """Its id in the bin, as `restore` takes it."""


_readers: dict[Path, GridReader] = {}  # kept because the page polls the list


@operation(path="/grids", none="no grids yet: make one with workbench grid make --run NAME")
def list_(workspace: Workspace) -> list[GridLine]:
    """List the grids, newest first."""
    return [_line(_readers.setdefault(one.folder, GridReader(one))) for one in Grid.all(workspace)]


def _line(reader: GridReader) -> GridLine:
    grid = reader.grid
    plain: dict[str, Any] = {"name": grid.name, "folder": str(grid.folder), "title": grid.title}
    try:
        found = reader.read()
    except WorkbenchError as error:  # a damaged grid must not hide the others
        return GridLine(**plain, done=None, videos=None, problem=str(error))
    videos = [cell["url"] for row in found["cells"] for cell in row if "url" in cell]
    progress = found["progress"]
    return GridLine(
        **plain,
        done=progress["done"],
        videos=progress["all"],
        problem="",
        about=_compared(found["columns"]),
        video=videos[-1] if videos else None,
        going=progress["going"],
        progress=progress["text"],
        changed=(grid.folder / FILE).stat().st_mtime,
    )


def _compared(columns: Sequence[dict[str, Any]]) -> str:
    """Describe the columns in a few words: "base, 3 checkpoints"."""
    others = [one for one in columns if not one["base"]]
    noun = "checkpoint" if all(one["checkpoint"] for one in others) else "column"
    number = len({one["labels"][0] for one in others} if noun == "checkpoint" else others)
    words = ["base"] if len(others) < len(columns) else []
    return ", ".join([*words, counted(number, noun)] if others else words)


def _watched(workspace: Workspace, name: str) -> Callable[[], GridView]:
    """Watch a grid without the settings of each video, which are long. `details` returns them."""
    reader = GridReader(Grid.open(workspace, name), keep_going=True)
    return lambda: _view(reader.grid, reader.read())


@operation(path="/grids/{name}", watch=_watched)
def show(grid: NamedGrid) -> GridView:
    """Show a grid's videos with their measurements, marks and files."""
    return view(grid)


def view(grid: Grid) -> GridView:
    """Measure new videos and return the grid."""
    state = grid.state()
    grid.maintain(state)
    return _view(grid, snapshot(grid, state, details=True))


def _view(grid: Grid, found: dict[str, Any]) -> GridView:
    page, preserved = exported_page(grid), tuple[str, ...]()
    with contextlib.suppress(ConfigError):  # the run was removed, or a newer version wrote it
        if run := grid.settings.run:
            preserved = Run.open(grid.workspace, run).settings.preservation_prompts
    newest = max((path.stat().st_mtime for path in (grid.folder / "cells").glob("*.json")), default=0.0)
    return GridView.model_validate(
        {
            **found,
            "folder": str(grid.folder),
            "settings": grid.settings.model_dump(mode="json"),
            "preserved": preserved,
            "exported": str(page) if page.exists() else "",
            "exported_newer": page.exists() and newest > page.stat().st_mtime,
        }
    )


class Details(Snapshot):
    """The settings of a video."""

    details: tuple[tuple[str, str], ...]
    """Name and value of each setting that differs from the default."""

    settings: dict[str, Any]
    """All of its settings, as a sample takes them."""


Key = Annotated[str, Field(pattern=r"^[0-9a-f]{0,64}$", description="Key of the video, as `show` lists it.")]


@operation(shell=False)
def details(grid: NamedGrid, key: Key) -> Details:
    """Show the settings of one video in a grid."""
    cell = grid.state().cell(key)
    found = tuple((title, value) for title, value in details_of(cell.settings, cell.record))
    return Details(details=found, settings=cell.settings.model_dump(mode="json"))


class Proposed(Snapshot):
    """A proposed grid."""

    grid: dict[str, Any]
    """Its settings."""

    cost: str
    """Number of videos and how long they take, in one sentence; "" while a setting is wrong."""

    problems: dict[str, str]
    """Setting -> what is wrong with it and how to fix it, in one sentence; {} if nothing is wrong."""

    lacking: tuple[str, ...]
    """Trigger words that are missing in prompts."""

    with_words: tuple[str, ...]
    """The prompts with these words added."""


GridValues = Annotated[dict[str, Any], Field(description="Rows and columns: settings of a grid.")]
SampleValues = Annotated[dict[str, Any], Field(description="Settings of a sample that all videos share.")]


@operation(path="/grid-suggestion", shell=False)
def suggest(
    workspace: Workspace,
    *,
    run: Annotated[str, Field(description="The run. Empty: the newest one with something to compare.")] = "",
) -> Proposed:
    """Suggest a grid for a run: its prompts, with the base model and the last checkpoints as columns."""
    name = run or newest(workspace)
    settings = suggested(workspace, name) if name else GridSettings()
    return propose(workspace, grid=settings.model_dump(mode="json"))


@operation(path="/grid-cost", shell=False)
def propose(
    workspace: Workspace,
    *,
    grid: GridValues = {},  # noqa: B006
    sample: SampleValues = {},  # noqa: B006
) -> Proposed:
    """Estimate how long a grid takes, and check its settings."""
    sentence, problems, settings = "", {}, GridSettings()
    try:
        settings = parse(GridSettings, grid)
        sentence = cost(workspace, settings, _base(workspace, settings, sample))
    except ConfigError as error:
        problems = error.problems or {"": str(error)}
    words = words_of_grid(workspace, settings.run, settings.loras)
    return Proposed(
        grid=grid,
        cost=sentence,
        problems=problems,
        lacking=tuple(dict.fromkeys(word for prompt in settings.prompts for word in lacking(prompt, words))),
        with_words=tuple(inserted(prompt, words) for prompt in settings.prompts),
    )


def _base(workspace: Workspace, settings: GridSettings, sample: dict[str, Any]) -> SampleSettings:
    base = base_of(workspace, settings).model_dump(mode="json")
    return parse(SampleSettings, {**base, **sample}, given=sample)


@operation(path="/grids", changes=True, status=202, shell=False)
def make(
    workspace: Workspace,
    *,
    grid: GridValues,
    sample: SampleValues = {},  # noqa: B006
) -> GridView:
    """Make a grid and request its videos.

    With only a run, the grid compares the base model and the run's last checkpoints on the run's prompts.
    """
    settings = parse(GridSettings, grid)
    made = Grid.create(workspace, settings, _base(workspace, settings, sample))
    return _generated(made)


def _generated(made: Grid) -> GridView:
    """Request the missing videos. If none can be generated now, return the grid with a warning."""
    try:
        made.generate()
    except (ConfigError, DeviceBusy) as error:
        return view(made).model_copy(update={"warning": f"The comparison is kept, but not generated yet: {error}"})
    return view(made)


@operation(path="/grids/of-sample", changes=True, status=202, shell=False)
def of_sample(workspace: Workspace, id: Annotated[str, Field(description="Id of the sample.")]) -> GridView:
    """Make a grid around a sample, with its LoRAs at other scales or, without LoRAs, other guidance scales."""
    one = Samples(workspace).get(id)
    settings, base = around(one.settings, float(one.record.get("guidance_scale") or 1))
    return _generated(Grid.create(workspace, settings, base))


@operation(changes=True, status=202, shell=False)
def change(found: NamedGrid, *, grid: GridValues) -> GridView:
    """Change the rows and columns of a grid. Videos that it already has are not generated again."""
    found.change(parse(GridSettings, grid))
    return _generated(found)


@operation(changes=True, status=202, shell=False)
def generate(
    grid: NamedGrid,
    *,
    keys: Annotated[
        tuple[str, ...], Field(description="Keys of videos. Empty: all that are missing, failed or outdated.")
    ] = (),
) -> GridView:
    """Generate the missing videos of a grid, or the given ones."""
    grid.generate(keys or None)
    return view(grid)


@operation(changes=True, status=202, shell=False)
def extend(grid: NamedGrid, more: Annotated[GridSettings, Fields(only=AXES)]) -> GridView:
    """Add rows or columns to a grid and generate its missing videos."""
    if axes := {axis: values for axis in AXES if (values := getattr(more, axis))}:
        grid.extend(**axes)
    grid.generate()
    return view(grid)


@operation(changes=True, says=lambda _: "the remaining videos are canceled: `grid extend` requests them again")
def stop(grid: NamedGrid) -> GridView:
    """Cancel the remaining videos of a grid. `extend` requests them again."""
    grid.cancel()
    return view(grid)


@operation(changes=True, says=lambda one: one.file)
def export(
    grid: NamedGrid,
    *,
    row: Annotated[int | None, Field(ge=1, description="Export only the video in this row, counted from 1.")] = None,
    column: Annotated[
        int | None, Field(ge=1, description="Export only the video in this column, counted from 1.")
    ] = None,
    format: Annotated[
        Literal["page", "mp4", "gif", "png"],
        Field(description="page: a self-contained page. gif, png: all videos side by side. mp4: a single video."),
    ] = "page",
) -> Written:
    """Export a grid as a page, a GIF or a PNG, or export one of its videos."""
    if (row is None) != (column is None):
        raise ConfigError("row and column select one video together: give both, or neither")
    if row is not None and column is not None:
        return Written(file=str(export_cell(grid, key_of(grid, row, column), "mp4" if format == "page" else format)))
    if format == "mp4":
        raise ConfigError("format is mp4, which holds a single video: give row and column, or choose gif or png")
    return Written(file=str(export_page(grid) if format == "page" else export_tiles(grid, format)))


@operation()
def to_remove(grid: NamedGrid) -> list[GridLine]:
    """Show the grid that `remove` would move to the bin."""
    return [_line(GridReader(grid))]


@operation(changes=True, confirm=to_remove, says=lambda one: one.message)
def remove(grid: NamedGrid) -> Gone:
    """Remove a grid. Its folder moves to grids/.removed."""
    id = grid.delete()
    return Gone(message=f"moved to {grid.folder.parent / '.removed'}", id=id)


@operation(changes=True, shell=False)
def restore(
    workspace: Workspace, name: Annotated[str, Field(description="Id of the grid, as `remove` returned it.")]
) -> GridView:
    """Restore a removed grid."""
    return view(Grid.restore(workspace, name))


# ---- ratings


@operation(changes=True, says=lambda one: one.message)
def star(grid: NamedGrid, row: Row, column: Column, *, off: Off = False) -> Chosen:
    """Star a video of a grid."""
    grid.mark(key_of(grid, row, column), starred=not off)
    return Chosen(message="no longer starred" if off else "starred")


@operation(changes=True, says=lambda one: one.message)
def reject(grid: NamedGrid, row: Row, column: Column, *, off: Off = False) -> Chosen:
    """Reject a video of a grid."""
    grid.mark(key_of(grid, row, column), rejected=not off)
    return Chosen(message="no longer rejected" if off else "rejected")


@operation(changes=True)
def vote(
    grid: NamedGrid,
    row: Row,
    better: Annotated[int, Field(ge=1, description="The column whose video is better.")],
    other: Annotated[int, Field(ge=1, description="The column that it beats.")],
    *,
    tie: Annotated[bool, Field(description="Record a tie: neither video is better.")] = False,
) -> list[Votes]:
    """Vote for the better of two videos in a row, and show the votes of all columns."""
    first, second = key_of(grid, row, better), key_of(grid, row, other)
    grid.vote(first, second, "" if tie else first)
    return [Votes.model_validate(one) for one in snapshot(grid)["columns"]]


@operation(changes=True, says=lambda one: one.message)
def best(
    grid: NamedGrid, column: Column, *, why: Annotated[str, Field(description="The reason, for the run's page.")] = ""
) -> Chosen:
    """Mark a column's checkpoint as the best of its run, and star it."""
    return Chosen(message=grid.choose_best(column - 1, why))


def key_of(grid: Grid, row: int, column: int) -> str:
    """Return the key of the video at a row and a column, counted from 1. Raises ConfigError."""
    keys = grid.plan.keys
    if row > len(keys) or column > len(keys[0]):
        raise ConfigError(f"the grid has {len(keys)} rows and {len(keys[0])} columns: count both from 1")
    return keys[row - 1][column - 1]

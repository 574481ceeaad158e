"""Grids: videos of the same prompts in rows, what differs in columns. Make, extend, look, mark, export and remove."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from workbench.compare import CellState, Grid, GridSettings
from workbench.compare.export import export_cell, export_page, export_tiles
from workbench.compare.snapshot import snapshot
from workbench.compare.suggestions import base_of
from workbench.errors import ConfigError, WorkbenchError
from workbench.operations.registry import Fields, Snapshot, operation
from workbench.sampler.settings import SampleSettings
from workbench.settings import parse
from workbench.workspace import Workspace

Name = Annotated[str, Field(title="Grid", description="A grid's name.")]
Row = Annotated[int, Field(ge=1, description="Counted from 1.")]
Column = Annotated[int, Field(ge=1, description="Counted from 1.")]
Off = Annotated[bool, Field(description="Remove the mark.")]
# Settings of a sample that belong to rows and columns.
OWN = ("prompt", "image", "seed", "loras", "guidance_scale", "steps", "scheduler", "video", "strength", "continue_from")
AXES = ("prompts", "seeds", "checkpoints", "scales", "loras", "guidance", "steps", "schedulers", "column_seeds")
WORDS = {CellState.MISSING: "not generated"}


class GridLine(Snapshot):
    """A grid in the list."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "videos", "folder", "problem")

    name: str
    """What commands take."""

    folder: str
    """Its folder."""

    done: int | None
    """Number of generated videos; null if the grid cannot be read."""

    videos: int | None
    """Number of all its videos; null if the grid cannot be read."""

    problem: str
    """Why the grid cannot be read; "" if it can."""

    def text_of(self, name: str) -> str:
        return f"{self.done} of {self.videos}" if name == "videos" and not self.problem else super().text_of(name)


class GridView(Snapshot):
    """One grid, as its player reads it."""

    grid: str
    """Its name."""

    folder: str
    """Its folder."""

    title: str
    """For people."""

    run: str
    """That it compares checkpoints of; "" for none."""

    fixed: tuple[Any, ...]
    """What all videos have in common."""

    rows: tuple[dict[str, Any], ...]
    """Prompt and label of each row."""

    columns: tuple[dict[str, Any], ...]
    """Name, votes ... of each column."""

    heads: tuple[Any, ...]
    """Headings of the columns, line by line: text, span."""

    best: dict[str, Any]
    """The column chosen as best: column, step, why, time; {} before."""

    votes: tuple[tuple[str, str], ...]
    """Pairs [left, right] of videos that were compared."""

    cells: tuple[tuple[dict[str, Any], ...], ...]
    """By row and column: key, state, url, measurements, starred, rejected ..."""

    help: dict[str, str]
    """What each measurement means."""

    progress: dict[str, Any]
    """Text, all, done, going, open."""

    fps: float
    """Of the videos."""

    frames: int
    """Of the videos."""

    width: int
    """Of the videos, pixels."""

    height: int
    """Of the videos, pixels."""

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
    """How a column did in the votes."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("name", "won", "votes", "confidence")

    name: str
    """Name of the column."""

    won: int
    """Number of votes it won."""

    votes: int
    """Number of votes it took part in."""

    confidence: str
    """How certain the ranking is, in words."""


class Exported(Snapshot):
    """A file that was written."""

    file: str
    """Its path."""


class Chosen(Snapshot):
    """The outcome of a mark or a choice."""

    message: str
    """One sentence."""


@operation(path="/grids", none="no grid yet: workbench grid make --run NAME")
def list_(workspace: Workspace) -> list[GridLine]:
    """List the grids, newest first."""
    return [_line(one) for one in Grid.all(workspace)]


def _line(grid: Grid) -> GridLine:
    try:
        state, problem = grid.state(), ""
    except WorkbenchError as error:  # one damaged grid costs the list none of the others
        state, problem = None, str(error)
    done, videos = (state.count(CellState.DONE), len(state.all)) if state else (None, None)
    return GridLine(name=grid.name, folder=str(grid.folder), done=done, videos=videos, problem=problem)


@operation(path="/grids/{name}")
def show(workspace: Workspace, name: Name) -> GridView:
    """Show a grid's videos with their measurements, marks and files."""
    return view(Grid.open(workspace, name))


def view(grid: Grid) -> GridView:
    """Return a grid at this moment; what has changed since is measured."""
    state = grid.state()
    grid.maintain(state)
    return GridView.model_validate({**snapshot(grid, state, details=True), "folder": str(grid.folder)})


@operation(path="/grids", changes=True, status=202, shell=False)
def make(
    workspace: Workspace,
    *,
    grid: Annotated[dict[str, Any], Field(description="Rows and columns: settings of a grid.")],
    sample: Annotated[dict[str, Any], Field(description="Settings of a sample that all videos share.")] = {},  # noqa: B006
) -> GridView:
    """Make a grid and request its videos. A run alone compares its base model and last checkpoints on its prompts."""
    settings = parse(GridSettings, grid)
    base = base_of(workspace, settings).model_dump(mode="json")
    made = Grid.create(workspace, settings, parse(SampleSettings, {**base, **sample}, given=sample))
    made.generate()
    return view(made)


@operation(path="/grids/{name}/extend", changes=True, status=202, shell=False)
def extend(workspace: Workspace, name: Name, more: Annotated[GridSettings, Fields(only=AXES)]) -> GridView:
    """Add columns or rows; only their videos are generated. Without any: generate what is missing."""
    grid = Grid.open(workspace, name)
    if axes := {axis: values for axis in AXES if (values := getattr(more, axis))}:
        grid.extend(**axes)
    grid.generate()
    return view(grid)


@operation(changes=True, says=lambda _: "what was not generated yet is cancelled: `grid extend` requests it again")
def stop(workspace: Workspace, name: Name) -> GridView:
    """Cancel what is not generated yet; `extend` requests it again."""
    grid = Grid.open(workspace, name)
    grid.cancel()
    return view(grid)


@operation(path="/grids/{name}/export", changes=True, says=lambda one: one.file)
def export(
    workspace: Workspace,
    name: Name,
    *,
    row: Annotated[int | None, Field(ge=1, description="With a column: only this video, counted from 1.")] = None,
    column: Annotated[int | None, Field(ge=1, description="With a row: only this video, counted from 1.")] = None,
    format: Annotated[
        Literal["page", "mp4", "gif", "png"],
        Field(description="A page that needs nothing else; gif or png: all videos side by side; mp4: of one video."),
    ] = "page",
) -> Exported:
    """Write the grid as a page, as one GIF or PNG, or one of its videos."""
    grid = Grid.open(workspace, name)
    if (row is None) != (column is None):
        raise ConfigError("row and column name one video together: give both, or neither")
    if row is not None and column is not None:
        return Exported(file=str(export_cell(grid, key_of(grid, row, column), "mp4" if format == "page" else format)))
    if format == "mp4":
        raise ConfigError("format is mp4, of a single video: give row and column, or choose gif or png")
    return Exported(file=str(export_page(grid) if format == "page" else export_tiles(grid, format)))


@operation(path="/grids/{name}/to-remove")
def to_remove(workspace: Workspace, name: Name) -> list[GridLine]:
    """Show the grid that `remove` would remove."""
    return [_line(Grid.open(workspace, name))]


@operation(changes=True, confirm=to_remove, says=lambda one: one.message)
def remove(workspace: Workspace, name: Name) -> Chosen:
    """Remove a grid; its folder moves to grids/.removed."""
    grid = Grid.open(workspace, name)
    grid.delete()
    return Chosen(message=f"moved to {grid.folder.parent / '.removed'}")


# ---- what people think


@operation(changes=True, says=lambda one: one.message)
def star(workspace: Workspace, name: Name, row: Row, column: Column, *, off: Off = False) -> Chosen:
    """Star the video in a row and a column."""
    grid = Grid.open(workspace, name)
    grid.mark(key_of(grid, row, column), starred=not off)
    return Chosen(message="not starred any more" if off else "starred")


@operation(changes=True, says=lambda one: one.message)
def reject(workspace: Workspace, name: Name, row: Row, column: Column, *, off: Off = False) -> Chosen:
    """Reject the video in a row and a column."""
    grid = Grid.open(workspace, name)
    grid.mark(key_of(grid, row, column), rejected=not off)
    return Chosen(message="not rejected any more" if off else "rejected")


@operation(changes=True)
def vote(
    workspace: Workspace,
    name: Name,
    row: Row,
    better: Annotated[int, Field(ge=1, description="The column whose video is better.")],
    other: Annotated[int, Field(ge=1, description="The column that it beats.")],
    *,
    tie: Annotated[bool, Field(description="Neither is better.")] = False,
) -> list[Votes]:
    """Vote for one of two videos in a row; lists all votes."""
    grid = Grid.open(workspace, name)
    first, second = key_of(grid, row, better), key_of(grid, row, other)
    grid.vote(first, second, "" if tie else first)
    return [Votes.model_validate(one) for one in snapshot(grid)["columns"]]


@operation(changes=True, says=lambda one: one.message)
def best(
    workspace: Workspace,
    name: Name,
    column: Column,
    *,
    why: Annotated[str, Field(description="Why, for the run's page.")] = "",
) -> Chosen:
    """Make a column's checkpoint the best of its run, which stars it."""
    return Chosen(message=Grid.open(workspace, name).choose_best(column - 1, why))


def key_of(grid: Grid, row: int, column: int) -> str:
    """Return the key of a video, whose row and column are counted from 1. Raises ConfigError."""
    keys = grid.plan.keys
    if row > len(keys) or column > len(keys[0]):
        raise ConfigError(f"the grid has {len(keys)} rows and {len(keys[0])} columns: count both from 1")
    return keys[row - 1][column - 1]

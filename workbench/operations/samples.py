"""Samples: request, cancel, decode, list, star, remove and restore them; the queue and the history on the page."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from workbench.compare.snapshot import side_by_side
from workbench.display.quantities import moment
from workbench.errors import ConfigError
from workbench.jobs import gpu_lock
from workbench.operations.registry import operation
from workbench.operations.shared import Written
from workbench.sampler import prompt_enhancer, queue, samples, view
from workbench.sampler.inputs import kept
from workbench.sampler.queue import Progress, RequestState
from workbench.sampler.samples import LATENTS, SampleQuery, Samples
from workbench.sampler.settings import BatchSettings, SampleSettings, expand
from workbench.snapshots import HIDDEN, Place, Shown, Snapshot
from workbench.workspace import Workspace

Ids = Annotated[
    tuple[str, ...], Field(title="Samples", description="Ids of samples, as `list` shows them.", min_length=1)
]
BIN = "in the bin: `workbench samples list --show removed` lists them, `restore ID` brings one back"
Day = Annotated[str, Field(description="Only samples from this day or later: YYYY-MM-DD, or a Unix time.")]
LastDay = Annotated[str, Field(description="Only samples from this day or earlier: YYYY-MM-DD, or a Unix time.")]


class Known(Snapshot):
    """What every view of a finished sample includes."""

    id: str
    """Id of the sample, as commands take it."""

    created: Annotated[float, Shown("generated", moment)]
    """When it was requested, as Unix time."""

    starred: Annotated[bool, Shown(text=lambda starred: "★" if starred else "")]
    """Whether it is starred."""

    video: Place | None
    """Path of its video; null if only its latents were kept."""


class Sample(Known):
    """A finished sample."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "created", "starred", "prompt", "loras", "seed")

    prompt: Annotated[str, Shown(text=lambda prompt: " ".join(prompt.split()))]
    """Its prompt."""

    problem: str
    """Why its record cannot be read; "" if it can."""

    loras: Annotated[tuple[str, ...], Shown("LoRAs", ", ".join)]
    """Short names of its LoRAs."""

    seed: Annotated[int | None, Shown(right=True)]
    """Its seed; null if unknown."""

    latents: Place | None
    """Path of its latents, if only these were kept; otherwise null."""

    record: Annotated[dict[str, Any], HIDDEN]
    """Everything that it was made from, as in its JSON file."""

    def text_of(self, name: str) -> str:
        if name != "prompt":
            return super().text_of(name)
        return self.problem or super().text_of(name) + (f" ({view.LATENTS_ONLY})" if self.latents else "")


class Requested(Snapshot):
    """A requested sample and its progress."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "state", "message")

    id: str
    """Id of the sample, as commands take it."""

    state: str
    """`waiting`, `loading`, `generating`, `done`, `failed` or `cancelled`."""

    step: int
    """Number of denoising steps that are done."""

    steps: int
    """Total number of denoising steps; 0 while unknown."""

    seconds_left: float | None
    """Estimated time left in seconds; null while unknown."""

    message: str
    """What it is waiting for, or why it failed, in one sentence."""

    video: Place | None
    """Path of its video; null if there is none."""

    latents: Place | None
    """Path of its latents, if only these were kept; otherwise null."""

    latents_only: bool
    """Whether it is done and only its latents were kept."""

    settings: Annotated[dict[str, Any] | None, HIDDEN]
    """All of its settings; null if they cannot be read."""

    scenes: tuple[str, ...]
    """Ids of the samples that it joins; [] if it is not a joined video."""

    more: tuple[str, ...] = ()
    """Ids of the other samples in the same request."""


def request_of(found: queue.Progress) -> Requested:
    """Convert the progress of a request to a snapshot."""
    only_latents = found.video is not None and found.video.suffix == LATENTS
    return Requested.from_objects(
        found,
        steps=found.total,
        video=None if only_latents else found.video,
        latents=found.video if only_latents else None,
        latents_only=only_latents,
        settings=found.settings.model_dump(mode="json") if found.settings else None,
    )


def _requests(workspace: Workspace, ids: Iterable[str]) -> list[Requested]:
    return [request_of(queue.progress(workspace, one)) for one in ids]


Words = Annotated[
    str, Field(max_length=1000, description="Only samples with all these words in prompt, model, LoRAs or seed.")
]
Show = Annotated[
    Literal["all", "starred", "removed"],
    Field(description="Which samples: all in the history, only the starred ones, or those in the bin."),
]


@operation(path="/samples", none="no samples: generate one with workbench sample PROMPT")
def list_(
    workspace: Workspace,
    *,
    search: Words = "",
    show: Show = "all",
    since: Day = "",
    until: LastDay = "",
    limit: Annotated[int, Field(ge=1, le=1000, description="Maximum number of samples to list.")] = 50,
) -> list[Sample]:
    """List the finished samples, newest first."""
    query = SampleQuery(search=search, show=show, since=_time("since", since), until=_time("until", until, end=True))
    return [_sample(one) for one in Samples(workspace).history(limit, query)]


def _time(name: str, text: str, end: bool = False) -> float | None:
    """Convert a day or a number to Unix time; None for "". With `end`, use the end of the day."""
    if not text:
        return None
    try:
        if "-" not in text[1:]:
            return float(text)
        day = datetime.strptime(text, "%Y-%m-%d")
        return (day + timedelta(days=1) if end else day).timestamp()
    except (ValueError, OverflowError) as error:
        raise ConfigError(
            f"{name} is {text[:40]!r}, must be a day as YYYY-MM-DD or a Unix time", {name: "write YYYY-MM-DD"}
        ) from error


def submitted(workspace: Workspace, settings: SampleSettings, batch: BatchSettings) -> list[str]:
    """Request samples and return their ids."""
    return queue.submit_all(workspace, kept(workspace, expand(settings, batch)), chains=batch.chains)


@operation(path="/samples", changes=True, status=202, shell=False)
def request(workspace: Workspace, settings: SampleSettings, batch: BatchSettings) -> Requested:
    """Request one or several samples. Returns the first one, with the ids of the others in `more`."""
    first, *others = submitted(workspace, settings, batch)
    return request_of(queue.progress(workspace, first)).model_copy(update={"more": tuple(others)})


@operation(changes=True, status=202, shell=False)
def again(
    workspace: Workspace,
    ids: Ids,
    *,
    force: Annotated[bool, Field(description="Use LoRAs even if they do not fit the model.")] = False,
) -> list[Requested]:
    """Retry failed samples."""
    names = _checked(ids, partial(queue.progress, workspace))
    for name in names:
        queue.again(workspace, name, **({"force_loras": True} if force else {}))
    return _requests(workspace, names)


@operation(changes=True)
def cancel(workspace: Workspace, ids: Ids) -> list[Requested]:
    """Cancel samples that are waiting or being generated."""
    names = _checked(ids, partial(queue.progress, workspace))
    queue.cancel_all(workspace, names)
    return _requests(workspace, names)


@operation(path="/samples/cancel", changes=True, none="no samples are waiting")
def cancel_all(workspace: Workspace) -> list[Requested]:
    """Cancel all samples that are waiting or being generated, except those of grids."""
    names = queue.pending_samples(workspace)
    queue.cancel_all(workspace, names)
    return _requests(workspace, names)


@operation(changes=True, status=202, shell=False)
def decode(workspace: Workspace, ids: Ids) -> list[Requested]:
    """Decode the videos of samples that were kept as latents."""
    names = _checked(ids, Samples(workspace).get)
    for name in names:
        queue.decode(workspace, name)
    return _requests(workspace, names)


@operation(changes=True)
def star(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Star samples."""
    return _star(workspace, ids, True)


@operation(changes=True)
def unstar(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Unstar samples."""
    return _star(workspace, ids, False)


def _star(workspace: Workspace, ids: Iterable[str], starred: bool) -> list[Sample]:
    found = Samples(workspace)
    for name in (names := _checked(ids, found.get)):
        found.star(name, starred)
    return _samples(workspace, names)


@operation(changes=True, afterwards=BIN)
def remove(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Move samples to the bin. `restore` brings them back."""
    found = Samples(workspace)
    for name in (names := _checked(ids, found.get)):
        found.remove(name)
    return _samples(workspace, names, removed=True)


@operation(changes=True)
def restore(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Restore samples from the bin."""
    names, found = list(dict.fromkeys(ids)), Samples(workspace)
    for name in names:
        found.restore(name)
    return _samples(workspace, names)


@operation(changes=True, shell=False)
def download(
    workspace: Workspace,
    ids: Ids,
    *,
    kind: Annotated[
        Literal["zip", "gif", "png"], Field(description="A zip, or a GIF or PNG with all of them side by side.")
    ] = "zip",
) -> Written:
    """Write samples to one file for download, which is kept for an hour."""
    found = [Samples(workspace).get(name) for name in dict.fromkeys(ids)]
    return Written(file=str(samples.write_download(found, workspace, f".{kind}")))


def _checked(ids: Iterable[str], find: Callable[[str], object]) -> list[str]:
    """Return the ids without duplicates, after checking all of them with `find`, which raises Unknown."""
    names = list(dict.fromkeys(ids))
    for name in names:
        find(name)
    return names


def _samples(workspace: Workspace, ids: Iterable[str], removed: bool = False) -> list[Sample]:
    return [_sample(Samples(workspace).get(one, removed)) for one in ids]


def _sample(one: samples.Sample) -> Sample:
    seed = one.record.get("seed", one.settings.seed)
    return Sample.from_objects(
        one,
        prompt=one.settings.prompt,
        loras=tuple(view.short_name(lora) for lora in one.settings.loras),
        seed=seed if type(seed) is int else None,  # the record is a file, which may contain anything
        video=None if one.latents_only else one.path,
        latents=one.path if one.latents_only else None,
    )


# ---- queue and history on the page


class Queue(Snapshot):
    """The queue of samples."""

    requests: tuple[dict[str, Any], ...]
    """The first requests: id, state, title, subtitle, status, message, share, picture (a preview of the latents) ..."""

    more: int
    """Number of further requests."""

    grids: int
    """Number of waiting videos of grids."""

    failed: tuple[dict[str, Any], ...]
    """Those of the given samples that failed, with the same keys."""

    note: str
    """Why nothing can be generated now; "" if something can."""


MOST_SHOWN = 8  # requests that `queue_` lists; it counts the others


@operation(path="/sample-queue", shell=False)
def queue_(
    workspace: Workspace,
    *,
    ids: Annotated[tuple[str, ...], Field(description="Also show these samples if they failed.", max_length=100)] = (),
) -> Queue:
    """Show the samples that are waiting or being generated."""
    queue.revive(workspace)
    every, own = queue.pending(workspace), queue.pending_samples(workspace)
    shown = [one for one in _known(workspace, own[:MOST_SHOWN]) if not one.state.over]
    failed = [one for one in _known(workspace, ids) if one.state is RequestState.FAILED]
    return Queue(
        requests=tuple(map(_waiting, shown)),
        more=max(0, len(own) - MOST_SHOWN),
        grids=len(every) - len(own),
        failed=tuple(map(_waiting, failed)),
        note="" if every else _gpu_note(workspace),
    )


def _known(workspace: Workspace, ids: Iterable[str]) -> Iterable[Progress]:
    for name in ids:
        with contextlib.suppress(ConfigError):  # it may have been removed
            yield queue.progress(workspace, name)


def _waiting(one: Progress) -> dict[str, Any]:
    return {**asdict(view.request_view(one)), "picture": str(one.picture) if one.picture else None, "step": one.step}


def _gpu_note(workspace: Workspace) -> str:
    holder = gpu_lock.holder(workspace.locks)
    if not holder or holder == queue.HOLDER:
        return ""
    return (
        f"The GPU is in use by {holder}. A training run can generate a video between two steps. Pausing the run frees "
        "the GPU."
    )


class Thumbnail(Known):
    """What every view of a sample in the history includes."""

    title: str
    """Its prompt, or why it cannot be read."""

    width: int
    """Width of the video in pixels; 0 if unknown."""

    height: int
    """Height of the video in pixels; 0 if unknown."""


class Tile(Thumbnail):
    """A sample in the history."""

    about: str
    """Its LoRAs in words."""

    length: float | None
    """Length of the video in seconds; null if unknown."""


class Page(Snapshot):
    """A page of the history."""

    samples: tuple[Tile, ...]
    """The samples on this page, newest first."""

    page: int
    """Number of this page, from 0."""

    size: int
    """Maximum number of samples on a page."""

    matching: int
    """Number of samples that match."""

    all: int
    """Number of samples, not counting the bin."""

    removed: int
    """Number of samples in the bin."""


@operation(
    path="/sample-page", watch=lambda workspace, **asked: partial(_page, Samples(workspace), **asked), shell=False
)
def page(
    workspace: Workspace,
    *,
    search: Words = "",
    show: Show = "all",
    since: Day = "",
    until: LastDay = "",
    page: Annotated[int, Field(ge=0, description="Number of the page, from 0.")] = 0,
    size: Annotated[int, Field(ge=1, le=200, description="Maximum number of samples on a page.")] = 24,
) -> Page:
    """Show one page of the history of samples, newest first."""
    return _page(Samples(workspace), search, show, since, until, page, size)


def _page(reader: Samples, search: str, show: Show, since: str, until: str, page: int, size: int) -> Page:
    removed, listing = show == "removed", reader.listing()
    query = SampleQuery(search=search, show=show, since=_time("since", since), until=_time("until", until, end=True))
    ids = reader.find(query, listing)
    page = min(page, max(0, (len(ids) - 1) // size))
    found = [reader.read(name, removed) for name in ids[page * size : (page + 1) * size]]
    return Page(
        samples=tuple(_tile(one, one.id in listing.starred) for one in found if one),
        page=page,
        size=size,
        matching=len(ids),
        all=len(listing.ids),
        removed=len(listing.removed),
    )


def _thumbnail(one: samples.Sample, starred: bool) -> Thumbnail:
    return Thumbnail(
        id=one.id,
        video=None if one.latents_only else str(one.path),
        title=view.title_of(one),
        created=one.created,
        starred=starred,
        width=view.width_of(one.settings, one.record) or 0,
        height=int(one.record.get("height") or one.settings.height or 0),
    )


def _tile(one: samples.Sample, starred: bool) -> Tile:
    known, frames, fps = _thumbnail(one, starred), one.record.get("frames"), one.record.get("fps")
    return Tile.from_objects(
        known,
        title=f"{known.title} ({view.LATENTS_ONLY})" if one.latents_only else known.title,
        about=view.loras_used(one),
        length=frames / fps if frames and fps else None,
    )


class Made(Thumbnail):
    """A sample and how it was made."""

    file: str
    """Path of the file to download: the video or the latents."""

    scenes: tuple[str, ...]
    """Prompts of its scenes, if it joins several; otherwise []."""

    short: str
    """The short prompt that the prompt enhancer expanded; "" if it was not used."""

    facts: tuple[tuple[str, str], ...]
    """Name and value of each setting that it was made with."""

    loras: tuple[dict[str, Any], ...]
    """For each LoRA: name, scale, fits, rank, alpha, made_for, left_out."""

    actions: tuple[tuple[str, str], ...]
    """Name and label of each action that you can take."""

    frames: int
    """Number of frames in the video; 0 if unknown."""


@operation(path="/samples/{id}/made", shell=False)
def made(workspace: Workspace, id: Annotated[str, Field(description="Id of the sample.")]) -> Made:
    """Show a sample and how it was made."""
    one = Samples(workspace).get(id)
    return Made.from_objects(
        _thumbnail(one, one.starred),
        file=str(one.path),
        scenes=tuple(view.scenes_of(one)),
        short=prompt_enhancer.shorts(workspace).get(one.settings.prompt, ""),
        facts=() if one.problem else tuple(view.facts(one)),
        loras=tuple(lora._asdict() for lora in view.applied_loras(one.record)),
        actions=tuple(view.actions(one)),
        frames=int(one.record.get("frames") or 0),
    )


class SideBySide(Snapshot):
    """Samples as a grid with one row."""

    grid: dict[str, Any]
    """The grid, as `grids/show` returns it."""


@operation(shell=False)
def side_by_side_(workspace: Workspace, ids: Ids) -> SideBySide:
    """Show samples side by side, as a grid with one row."""
    return SideBySide(grid=side_by_side([Samples(workspace).get(name) for name in dict.fromkeys(ids)], str))

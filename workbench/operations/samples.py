"""Samples: list and search them, request, cancel and decode them, star, remove and restore them; the page's history."""

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
from workbench.operations.registry import HIDDEN, Shown, Snapshot, operation
from workbench.operations.shared import Written
from workbench.sampler import prompt_enhancer, queue, samples, view
from workbench.sampler.inputs import kept
from workbench.sampler.queue import Progress, RequestState
from workbench.sampler.samples import LATENTS, SampleQuery, Samples
from workbench.sampler.settings import BatchSettings, SampleSettings, expand
from workbench.workspace import Workspace

Ids = Annotated[
    tuple[str, ...], Field(title="Samples", description="Ids of samples, as `list` shows them.", min_length=1)
]
BIN = "in the bin: `workbench samples list --show removed` lists it, `restore ID` brings one back"
Day = Annotated[str, Field(description="Generated on this day or later: YYYY-MM-DD, or a Unix time.")]
LastDay = Annotated[str, Field(description="Generated on this day or before: YYYY-MM-DD, or a Unix time.")]


class Sample(Snapshot):
    """One sample that is done."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "created", "starred", "prompt", "loras", "seed")

    id: str
    """What commands take."""

    created: Annotated[float | None, Shown("generated", moment)]
    """Unix time at which it was requested."""

    starred: Annotated[bool, Shown(text=lambda starred: "★" if starred else "")]
    """Whether it is starred."""

    prompt: Annotated[str, Shown(text=lambda prompt: " ".join(prompt.split()))]
    """What it was generated from."""

    problem: str
    """Why its record cannot be read; "" if it can."""

    loras: Annotated[tuple[str, ...], Shown("LoRAs", ", ".join)]
    """Short names of its LoRAs."""

    seed: Annotated[int | None, Shown(right=True)]
    """The seed that was used."""

    video: str | None
    """Path of its video; null if only latents were kept."""

    latents: str | None
    """Path of the latents if only these were kept, else null."""

    record: Annotated[dict[str, Any], HIDDEN]
    """Everything that made it, as in the JSON file beside it."""

    def text_of(self, name: str) -> str:
        if name != "prompt":
            return super().text_of(name)
        return self.problem or super().text_of(name) + (f" ({view.LATENTS_ONLY})" if self.latents else "")


class Requested(Snapshot):
    """A sample that was requested, at this moment."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "state", "message")

    id: str
    """What commands take."""

    state: str
    """`waiting`, `loading`, `generating`, `done`, `failed` or `cancelled`."""

    step: int
    """Denoising steps that are done."""

    steps: int
    """Denoising steps in all; 0 while that is unknown."""

    seconds_left: float | None
    """Seconds until it is done; null while that is unknown."""

    message: str
    """What it waits for, or why it failed, one sentence."""

    video: str | None
    """Path of its video, null without one."""

    latents: str | None
    """Path of the latents of one that was kept as latents only, else null."""

    latents_only: bool
    """Whether it is done and only its latents were kept."""

    settings: Annotated[dict[str, Any] | None, HIDDEN]
    """All of its settings; null where they cannot be read."""

    scenes: tuple[str, ...]
    """Ids of the samples that it joins; [] of one that was generated."""

    more: tuple[str, ...] = ()
    """Ids of the others that were requested with it, where there are several."""


def request_of(found: queue.Progress) -> Requested:
    """Return what a request's files say, as a snapshot."""
    path = str(found.video) if found.video else None
    only_latents = found.video is not None and found.video.suffix == LATENTS
    return Requested(
        id=found.id,
        state=found.state.value,
        step=found.step,
        steps=found.total,
        seconds_left=found.seconds_left,
        message=found.message,
        video=None if only_latents else path,
        latents=path if only_latents else None,
        latents_only=only_latents,
        settings=found.settings.model_dump(mode="json") if found.settings else None,
        scenes=found.scenes,
    )


def _requests(workspace: Workspace, ids: Iterable[str]) -> list[Requested]:
    return [request_of(queue.progress(workspace, one)) for one in ids]


Words = Annotated[str, Field(max_length=1000, description="Words that all occur in prompt, model, LoRAs or seed.")]
Show = Annotated[
    Literal["all", "starred", "removed"],
    Field(description="All in the history, the starred ones, or those in the bin."),
]


@operation(path="/samples", none="no sample: workbench sample PROMPT generates one")
def list_(
    workspace: Workspace,
    *,
    search: Words = "",
    show: Show = "all",
    since: Day = "",
    until: LastDay = "",
    limit: Annotated[int, Field(ge=1, le=1000, description="How many at most.")] = 50,
) -> list[Sample]:
    """List the samples that are done, newest first."""
    query = SampleQuery(search=search, show=show, since=_time("since", since), until=_time("until", until, end=True))
    return [_sample(one) for one in Samples(workspace).history(limit, query)]


def _time(name: str, text: str, end: bool = False) -> float | None:
    """Return the Unix time that a day or a number stands for; None for "". end: of the day, its end"""
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


@operation(path="/samples", changes=True, status=202, shell=False)
def request(workspace: Workspace, settings: SampleSettings, batch: BatchSettings) -> Requested:
    """Request a sample, or several: answers with the first."""
    many = kept(workspace, expand(settings, batch))
    first, *others = queue.submit_all(workspace, many, chains=batch.chains)
    return _requests(workspace, [first])[0].model_copy(update={"more": tuple(others)})


@operation(changes=True, status=202, shell=False)
def again(
    workspace: Workspace, ids: Ids, *, force: Annotated[bool, Field(description="Use LoRAs that do not fit.")] = False
) -> list[Requested]:
    """Request failed samples once more."""
    names = _each(workspace, ids, queue.progress)
    for name in names:
        queue.again(workspace, name, **({"force_loras": True} if force else {}))
    return _requests(workspace, names)


@operation(changes=True)
def cancel(workspace: Workspace, ids: Ids) -> list[Requested]:
    """Cancel samples that are not done."""
    names = _each(workspace, ids, queue.progress)
    queue.cancel_all(workspace, names)
    return _requests(workspace, names)


@operation(path="/samples/cancel", changes=True, none="no sample waits")
def cancel_all(workspace: Workspace) -> list[Requested]:
    """Cancel all samples that are not done, but for those of grids."""
    names = queue.pending_samples(workspace)
    queue.cancel_all(workspace, names)
    return _requests(workspace, names)


@operation(changes=True, status=202, shell=False)
def decode(workspace: Workspace, ids: Ids) -> list[Requested]:
    """Request the videos of samples that were kept as latents."""
    names = _each(workspace, ids, _in_the_history)
    for name in names:
        queue.decode(workspace, name)
    return _requests(workspace, names)


@operation(changes=True)
def star(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Star samples."""
    return _star(workspace, ids, True)


@operation(changes=True)
def unstar(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Take the stars of samples away."""
    return _star(workspace, ids, False)


def _star(workspace: Workspace, ids: Iterable[str], starred: bool) -> list[Sample]:
    names, found = _each(workspace, ids, _in_the_history), Samples(workspace)
    for name in names:
        found.star(name, starred)
    return _samples(workspace, names)


@operation(changes=True, afterwards=BIN)
def remove(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Move samples to the bin; `restore` brings them back."""
    names, found = _each(workspace, ids, _in_the_history), Samples(workspace)
    for name in names:
        found.remove(name)
    return _samples(workspace, names, removed=True)


@operation(changes=True)
def restore(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Bring samples back from the bin."""
    found = Samples(workspace)
    for name in dict.fromkeys(ids):
        found.restore(name)
    return _samples(workspace, dict.fromkeys(ids))


@operation(changes=True, shell=False)
def download(
    workspace: Workspace,
    ids: Ids,
    *,
    kind: Annotated[
        Literal["zip", "gif", "png"], Field(description="A zip, or all side by side in a picture.")
    ] = "zip",
) -> Written:
    """Write samples as one file to download; it is kept for an hour."""
    found = [Samples(workspace).get(name) for name in _each(workspace, ids, _in_the_history)]
    return Written(file=str(samples.write_download(found, workspace, f".{kind}")))


def _in_the_history(workspace: Workspace, id: str) -> object:
    return Samples(workspace).get(id)


def _each(workspace: Workspace, ids: Iterable[str], find: Callable[[Workspace, str], object]) -> list[str]:
    """Return the ids, each once, when all of them are there: an unknown one raises before anything is changed."""
    names = list(dict.fromkeys(ids))
    for name in names:
        find(workspace, name)
    return names


def _samples(workspace: Workspace, ids: Iterable[str], removed: bool = False) -> list[Sample]:
    return [_sample(Samples(workspace).get(one, removed)) for one in ids]


def _sample(one: samples.Sample) -> Sample:
    seed = one.record.get("seed", one.settings.seed)
    return Sample(
        id=one.id,
        created=one.created,
        starred=one.starred,
        prompt=one.settings.prompt,
        problem=one.problem,
        loras=tuple(view.short_name(lora) for lora in one.settings.loras),
        seed=seed if type(seed) is int else None,  # of a file, which may hold anything
        video=None if one.latents_only else str(one.path),
        latents=str(one.path) if one.latents_only else None,
        record=one.record,
    )


# ---- what the page shows


class Queue(Snapshot):
    """What waits and what is being generated."""

    requests: tuple[dict[str, Any], ...]
    """The first ones: id, state, title, subtitle, status, message, share, picture (of the latents so far) ..."""

    more: int
    """How many others wait."""

    grids: int
    """How many videos of grids wait."""

    failed: tuple[dict[str, Any], ...]
    """Those of the requested samples that failed, likewise."""

    note: str
    """Why nothing can be generated now; "" if nothing does."""


MOST_SHOWN = 8  # requests; the others are counted


@operation(path="/sample-queue", shell=False)
def queue_(
    workspace: Workspace,
    *,
    ids: Annotated[tuple[str, ...], Field(description="Samples whose failure is shown, too.", max_length=100)] = (),
) -> Queue:
    """Show what waits and what is being generated."""
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
        with contextlib.suppress(ConfigError):  # it is gone by now
            yield queue.progress(workspace, name)


def _waiting(one: Progress) -> dict[str, Any]:
    return {**asdict(view.request_view(one)), "picture": str(one.picture) if one.picture else None, "step": one.step}


def _gpu_note(workspace: Workspace) -> str:
    holder = gpu_lock.holder(workspace.locks)
    if not holder or holder == queue.HOLDER:
        return ""
    return (
        f"The GPU is held by {holder}. A training run can generate a video between two steps, or be paused: then the "
        "GPU is free."
    )


class Thumbnail(Snapshot):
    """What every view of a sample in the history says of it."""

    id: str
    """What commands take."""

    video: str | None
    """Path of its video; null if only latents were kept."""

    title: str
    """Its prompt, or why it cannot be read."""

    created: float
    """Unix time at which it was requested."""

    starred: bool
    """Whether it is starred."""

    width: int
    """Width of the video, in pixels; 0 if unknown."""

    height: int
    """Height of the video, in pixels; 0 if unknown."""


class Tile(Thumbnail):
    """A sample in the history."""

    about: str
    """Its LoRAs."""

    length: float | None
    """Seconds that the video lasts; null if unknown."""


class Page(Snapshot):
    """A page of the history."""

    samples: tuple[Tile, ...]
    """Newest first."""

    page: int
    """Its number, from 0."""

    size: int
    """How many samples a page has at most."""

    matching: int
    """How many samples match in all."""

    all: int
    """How many samples there are, those in the bin not counted."""

    removed: int
    """How many samples are in the bin."""


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
    page: Annotated[int, Field(ge=0, description="Its number, from 0.")] = 0,
    size: Annotated[int, Field(ge=1, le=200, description="How many at most.")] = 24,
) -> Page:
    """Show a page of the history, newest first."""
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


def _thumbnail(one: samples.Sample, starred: bool) -> dict[str, Any]:
    return {
        "id": one.id,
        "video": None if one.latents_only else str(one.path),
        "title": view.title_of(one),
        "created": one.created,
        "starred": starred,
        "width": view.width_of(one.settings, one.record) or 0,
        "height": int(one.record.get("height") or one.settings.height or 0),
    }


def _tile(one: samples.Sample, starred: bool) -> Tile:
    known, frames, fps = _thumbnail(one, starred), one.record.get("frames"), one.record.get("fps")
    known["title"] += f" ({view.LATENTS_ONLY})" if one.latents_only else ""
    return Tile(**known, about=view.loras_used(one), length=frames / fps if frames and fps else None)


class Made(Thumbnail):
    """A sample, and how it was made."""

    file: str
    """Path of what there is to download: the video, or the latents."""

    scenes: tuple[str, ...]
    """For one that joins scenes, their prompts."""

    short: str
    """The short prompt from which a language model wrote this one; "" if a person wrote it."""

    facts: tuple[tuple[str, str], ...]
    """Name and value of each setting that made it."""

    loras: tuple[dict[str, Any], ...]
    """For each LoRA: name, scale, fits, rank, alpha, made_for, left_out."""

    actions: tuple[tuple[str, str], ...]
    """Name and label of what can be done with it."""

    frames: int
    """Frames of the video."""


@operation(path="/samples/{id}/made", shell=False)
def made(workspace: Workspace, id: Annotated[str, Field(description="Id of the sample.")]) -> Made:
    """Show a sample and how it was made."""
    one = Samples(workspace).get(id)
    return Made(
        **_thumbnail(one, one.starred),
        file=str(one.path),
        scenes=tuple(view.scenes_of(one)),
        short=prompt_enhancer.shorts(workspace).get(one.settings.prompt, ""),
        facts=() if one.problem else tuple(view.facts(one)),
        loras=tuple(lora._asdict() for lora in view.applied_loras(one.record)),
        actions=tuple(view.actions(one)),
        frames=int(one.record.get("frames") or 0),
    )


class SideBySide(Snapshot):
    """Samples as the player of grids shows them: one row, a column each."""

    grid: dict[str, Any]
    """As `grids/show` has it."""


@operation(shell=False)
def side_by_side_(workspace: Workspace, ids: Ids) -> SideBySide:
    """Put samples side by side."""
    return SideBySide(grid=side_by_side([Samples(workspace).get(name) for name in dict.fromkeys(ids)], str))

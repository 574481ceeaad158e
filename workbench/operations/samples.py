"""Samples: list and search them, request, cancel and decode them, star, remove and restore them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from workbench.display.quantities import moment
from workbench.errors import ConfigError
from workbench.operations.registry import HIDDEN, Shown, Snapshot, operation
from workbench.sampler import queue, samples, view
from workbench.sampler.inputs import kept
from workbench.sampler.samples import LATENTS, SampleQuery, Samples
from workbench.sampler.settings import SampleSettings
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
    """Why its record cannot be read; "" where it can."""

    loras: Annotated[tuple[str, ...], Shown("LoRAs", ", ".join)]
    """Short names of its LoRAs."""

    seed: Annotated[int | None, Shown(right=True)]
    """The seed that was used."""

    video: str | None
    """Path of its video; null where only latents were kept."""

    latents: str | None
    """Path of the latents where only these were kept, else null."""

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


@operation(path="/samples", visitors="own session", none="no sample: workbench sample PROMPT generates one")
def list_(
    workspace: Workspace,
    *,
    search: Annotated[
        str, Field(max_length=1000, description="Words that all occur in prompt, model, LoRAs or seed.")
    ] = "",
    show: Annotated[
        Literal["all", "starred", "removed"],
        Field(description="All in the history, the starred ones, or those in the bin."),
    ] = "all",
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


@operation(path="/samples", changes=True, status=202, visitors="own session", shell=False)
def request(workspace: Workspace, settings: SampleSettings) -> Requested:
    """Request a sample."""
    (ready,) = kept(workspace, [settings])
    return _requests(workspace, [queue.submit(workspace, ready)])[0]


@operation(changes=True, visitors="own session")
def cancel(workspace: Workspace, ids: Ids) -> list[Requested]:
    """Cancel samples that are not done."""
    names = _each(workspace, ids, queue.progress)
    queue.cancel_all(workspace, names)
    return _requests(workspace, names)


@operation(path="/samples/cancel", changes=True, visitors="own session", none="no sample waits")
def cancel_all(workspace: Workspace) -> list[Requested]:
    """Cancel all samples that are not done, but for those of grids."""
    names = queue.pending_samples(workspace)
    queue.cancel_all(workspace, names)
    return _requests(workspace, names)


@operation(changes=True, status=202, visitors="own session", shell=False)
def decode(workspace: Workspace, ids: Ids) -> list[Requested]:
    """Request the videos of samples that were kept as latents."""
    names = _each(workspace, ids, _in_the_history)
    for name in names:
        queue.decode(workspace, name)
    return _requests(workspace, names)


@operation(changes=True, visitors="own session")
def star(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Star samples."""
    return _star(workspace, ids, True)


@operation(changes=True, visitors="own session")
def unstar(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Take the stars of samples away."""
    return _star(workspace, ids, False)


def _star(workspace: Workspace, ids: Iterable[str], starred: bool) -> list[Sample]:
    names, found = _each(workspace, ids, _in_the_history), Samples(workspace)
    for name in names:
        found.star(name, starred)
    return _samples(workspace, names)


@operation(changes=True, visitors="own session", afterwards=BIN)
def remove(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Move samples to the bin; `restore` brings them back."""
    names, found = _each(workspace, ids, _in_the_history), Samples(workspace)
    for name in names:
        found.remove(name)
    return _samples(workspace, names, removed=True)


@operation(changes=True, visitors="own session")
def restore(workspace: Workspace, ids: Ids) -> list[Sample]:
    """Bring samples back from the bin."""
    found = Samples(workspace)
    for name in dict.fromkeys(ids):
        found.restore(name)
    return _samples(workspace, dict.fromkeys(ids))


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

"""Samples: list and search them, request, cancel and decode them, star, remove and restore them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from workbench.compare.axes import work
from workbench.compare.snapshot import side_by_side
from workbench.compare.suggestions import pace
from workbench.display.quantities import moment
from workbench.errors import ConfigError
from workbench.families import known_model
from workbench.families.model import Model
from workbench.form_rules import needless, own_values, summary, without_effect
from workbench.jobs import State, gpu_lock
from workbench.loras.library import find_file, inserted, lacking, words_of
from workbench.operations.registry import HIDDEN, Shown, Snapshot, operation
from workbench.sampler import prompt_enhancer, queue, samples, view
from workbench.sampler.inputs import INPUT_FILES, inputs_of, keep, keep_lora, kept
from workbench.sampler.prompt_enhancer import PromptSettings
from workbench.sampler.queue import Progress, RequestState
from workbench.sampler.samples import LATENTS, SampleQuery, SampleReader, Samples, joins_scenes, settings_of
from workbench.sampler.settings import BatchSettings, SampleSettings, expand
from workbench.settings import parse
from workbench.workspace import Workspace, named_paths

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

    more: tuple[str, ...] = ()
    """Ids of the others that were requested with it, where there are several."""


class Packed(Snapshot):
    """A file to download."""

    file: str
    """Its path."""


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


@operation(path="/samples", visitors="own session", none="no sample: workbench sample PROMPT generates one")
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


@operation(path="/samples", changes=True, status=202, visitors="own session", shell=False)
def request(workspace: Workspace, settings: SampleSettings, batch: BatchSettings) -> Requested:
    """Request a sample, or several: answers with the first."""
    many = kept(workspace, expand(settings, batch))
    first, *others = queue.submit_all(workspace, many, chains=batch.chains)
    return _requests(workspace, [first])[0].model_copy(update={"more": tuple(others)})


@operation(changes=True, status=202, visitors="own session", shell=False)
def again(
    workspace: Workspace,
    ids: Ids,
    *,
    force: Annotated[bool, Field(description="Use LoRAs that do not fit.")] = False,
) -> list[Requested]:
    """Request failed samples once more."""
    names = _each(workspace, ids, queue.progress)
    for name in names:
        queue.again(workspace, name, **({"force_loras": True} if force else {}))
    return _requests(workspace, names)


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


@operation(changes=True, visitors="own session", shell=False)
def download(
    workspace: Workspace,
    ids: Ids,
    *,
    kind: Annotated[
        Literal["zip", "gif", "png"], Field(description="A zip, or all side by side in a picture.")
    ] = "zip",
) -> Packed:
    """Write samples as one file to download; it is kept for an hour."""
    found = [Samples(workspace).get(name) for name in _each(workspace, ids, _in_the_history)]
    return Packed(file=str(samples.write_download(found, workspace, f".{kind}")))


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
    """Of the samples that were asked for those that failed, likewise."""

    note: str
    """Why nothing can be generated now; "" where nothing prevents it."""


MOST_SHOWN = 8  # requests; the others are counted


@operation(path="/sample-queue", visitors="own session", shell=False)
def queue_(
    workspace: Workspace,
    *,
    ids: Annotated[tuple[str, ...], Field(description="Samples whose failure is shown, too.", max_length=100)] = (),
) -> Queue:
    """Show what waits and what is being generated."""
    queue.revive(workspace)
    active = [one for one in _known(workspace, queue.pending(workspace)) if not one.state.over]
    own = [one for one in active if not one.into]
    failed = [one for one in _known(workspace, ids) if one.state is RequestState.FAILED]
    return Queue(
        requests=tuple(map(_waiting, own[:MOST_SHOWN])),
        more=max(0, len(own) - MOST_SHOWN),
        grids=len(active) - len(own),
        failed=tuple(map(_waiting, failed)),
        note="" if active else _gpu_note(workspace),
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


class Tile(Snapshot):
    """A sample in the history."""

    id: str
    """What commands take."""

    video: str | None
    """Path of its video; null where only latents were kept."""

    title: str
    """Its prompt, or why it cannot be read."""

    about: str
    """Its LoRAs."""

    length: float | None
    """Seconds that the video lasts; null where that is unknown."""

    created: float
    """Unix time at which it was requested."""

    starred: bool
    """Whether it is starred."""

    width: int
    """Of the video, pixels; 0 where it is unknown."""

    height: int
    """Of the video, pixels; 0 where it is unknown."""


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


def _watched_page(workspace: Workspace, **asked: Any) -> Callable[[], Page]:
    reader = SampleReader(workspace)
    return lambda: _page(reader, **asked)


@operation(path="/sample-page", watch=_watched_page, visitors="own session", shell=False)
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
    return _page(SampleReader(workspace), search, show, since, until, page, size)


def _page(
    reader: SampleReader,
    search: str,
    show: Show,
    since: str,
    until: str,
    page: int,
    size: int,
) -> Page:
    removed, listing = show == "removed", reader.listing()
    query = SampleQuery(search=search, show=show, since=_time("since", since), until=_time("until", until, end=True))
    ids = listing.find(query, reader.read)
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


def _tile(one: samples.Sample, starred: bool) -> Tile:
    frames, fps = one.record.get("frames"), one.record.get("fps")
    return Tile(
        id=one.id,
        video=None if one.latents_only else str(one.path),
        title=view.title_of(one) + (f" ({view.LATENTS_ONLY})" if one.latents_only else ""),
        about=view.loras_used(one),
        length=frames / fps if frames and fps else None,
        created=one.created,
        starred=starred,
        width=view.width_of(one.settings, one.record) or 0,
        height=int(one.record.get("height") or one.settings.height or 0),
    )


class Made(Snapshot):
    """A sample, and how it was made."""

    id: str
    """What commands take."""

    video: str | None
    """Path of its video; null where only latents were kept."""

    file: str
    """Path of what there is to download: the video, or the latents."""

    title: str
    """Its prompt, or why it cannot be read."""

    scenes: tuple[str, ...]
    """Of one that joins scenes their prompts."""

    short: str
    """The short prompt from which a language model wrote this one; "" where a person wrote it."""

    created: float
    """Unix time at which it was requested."""

    starred: bool
    """Whether it is starred."""

    facts: tuple[tuple[str, str], ...]
    """Name and value of what made it."""

    loras: tuple[dict[str, Any], ...]
    """Of each LoRA: name, scale, fits, rank, alpha, made_for, left_out."""

    actions: tuple[tuple[str, str], ...]
    """Name and label of what can be done with it."""

    frames: int
    """Of the video."""

    width: int
    """Of the video, pixels; 0 where it is unknown."""

    height: int
    """Of the video, pixels; 0 where it is unknown."""


@operation(path="/samples/{id}/made", visitors="own session", shell=False)
def made(workspace: Workspace, id: Annotated[str, Field(description="Of the sample.")]) -> Made:
    """Show a sample and how it was made."""
    one = Samples(workspace).get(id)
    tile = _tile(one, one.starred)
    return Made(
        **tile.model_dump(include={"id", "video", "created", "starred", "width", "height"}),
        file=str(one.path),
        title=view.title_of(one),
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


@operation(visitors="own session", shell=False)
def side_by_side_(workspace: Workspace, ids: Ids) -> SideBySide:
    """Put samples side by side."""
    return SideBySide(grid=side_by_side([Samples(workspace).get(name) for name in dict.fromkeys(ids)], str))


# ---- the form


class Filled(Snapshot):
    """What a form takes over."""

    values: dict[str, Any]
    """Settings of a sample; those that are not here stay as they are."""

    scenes: bool
    """Whether each line of the prompt is a scene."""

    message: str
    """What has been taken over, one sentence."""


@operation(path="/samples/{id}/reuse", visitors="own session", shell=False)
def reuse(
    workspace: Workspace,
    id: Annotated[str, Field(description="Of the sample.")],
    what: Annotated[
        Literal["settings", "seed", "change", "continue"],
        Field(description="All of its settings, its seed alone, or its video to be changed or continued."),
    ],
) -> Filled:
    """Show what a form takes over from a sample."""
    one = Samples(workspace).get(id)
    joined = what == "settings" and "scenes" in one.record
    return Filled(values=view.reused(what, one), scenes=joined, message=view.REUSED[what])


File = Annotated[str, Field(description="Path of a file.", json_schema_extra={"path": True})]


@operation(path="/samples/read-file", changes=True, visitors="own session", shell=False)
def read_file(workspace: Workspace, file: File) -> Filled:
    """Read the settings in a video, latents or JSON file that the workbench made; of a LoRA how to use it."""
    path = named_paths.resolve(file)
    try:
        return Filled(
            values=settings_of(path, workspace).model_dump(mode="json"),
            scenes=joins_scenes(path),
            message=view.REUSED["settings"],
        )
    except ConfigError:
        if path.suffix != LATENTS:
            raise
    known = find_file(workspace, path)
    name = known.name if known else str(keep_lora(workspace, path))
    model = known.model if known else ""
    values: dict[str, Any] = {"loras": [name]}
    if known_model(model) is not None:
        values["model"] = model
    return Filled(values=values, scenes=False, message="The form now uses this LoRA.")


class KeptFile(Snapshot):
    """A file that a sample begins with."""

    file: str
    """Path of the copy in the workspace."""


@operation(path="/samples/keep-file", changes=True, visitors="own session", shell=False)
def keep_file(
    workspace: Workspace,
    file: File,
    *,
    name: Annotated[
        Literal["image", "video", "continue_from"], Field(description="The setting of a sample that it is for.")
    ] = "image",
) -> KeptFile:
    """Keep a copy of a picture or a video that a sample begins with."""
    return KeptFile(file=str(keep(workspace, Path(file), INPUT_FILES[name])))


class Planned(Snapshot):
    """What a request would come to, while its form is being filled in."""

    problems: dict[str, str]
    """Setting -> what is wrong with it and what to do, one sentence; {} when nothing is."""

    without_effect: tuple[str, ...]
    """Settings that have no effect with these values."""

    notes: tuple[str, ...]
    """A sentence for each given setting that has no effect."""

    videos: int | None
    """How many videos it makes; null while a setting is wrong."""

    seconds: float | None
    """About how long it takes, at the pace of earlier samples; null where that is unknown."""

    model: str
    """The model in one line."""

    own: dict[str, Any]
    """Setting -> what it stands for while it is empty."""

    sizes: tuple[tuple[int, int], ...]
    """Width and height of usual sizes, the model's own first."""

    lengths: tuple[int, ...]
    """Legal numbers of frames."""

    fps: float
    """Frames per second."""

    lacking: tuple[str, ...]
    """Trigger words of the LoRAs that the prompt lacks."""

    with_words: str
    """The prompt with these words."""


@operation(path="/sample-plan", visitors="own session", shell=False)
def plan(
    workspace: Workspace,
    *,
    values: Annotated[
        dict[str, Any], Field(description="Settings of samples and batches that differ from their defaults.")
    ] = {},  # noqa: B006 - never changed
) -> Planned:
    """Show what a request would come to: what is wrong with it, what the model brings, how long it takes."""
    of_batch = {name: value for name, value in values.items() if name in BatchSettings.model_fields}
    given = {name: value for name, value in values.items() if name not in of_batch}
    model = None
    settings, problems, many = SampleSettings(), {}, list[SampleSettings]()
    try:
        # By itself: what the model brings is shown while another setting is wrong.
        settings = parse(SampleSettings, {name: given[name] for name in ("model",) if name in given})
        model = named.model if (named := known_model(settings.model)) else None
        settings, batch = parse(SampleSettings, given), parse(BatchSettings, of_batch)
        many = expand(settings, batch)
        for one in many[:1] if model else ():
            inputs_of(workspace, one)
    except ConfigError as error:
        problems = error.problems or {"": str(error)}
    prompts = [one.prompt for one in many] or [str(given.get("prompt", ""))]
    words = words_of(workspace, settings.loras)
    by_line = bool(of_batch.get("each_line") or of_batch.get("scenes"))
    prompt = str(given.get("prompt", ""))
    lines = [line for line in prompt.splitlines() if line.strip()] if by_line else []
    all_values = {**SampleSettings().model_dump(), **given, "model": settings.model}
    return Planned(
        problems=problems,
        without_effect=tuple(without_effect(SampleSettings, all_values)),
        notes=() if problems else tuple(needless(settings, given)),
        videos=None if problems else len(many),
        seconds=None if problems or model is None else _seconds(workspace, many, model),
        model=summary(settings.model),
        own=_own(model, settings) if model else {},
        sizes=_sizes(model) if model else (),
        lengths=tuple(model.frame_counts) if model else (),
        fps=settings.fps or (model.fps if model else 8),
        lacking=tuple(dict.fromkeys(word for one in prompts for word in lacking(one, words))),
        with_words="\n".join(inserted(line, words) for line in lines or [prompt]),
    )


def _own(model: Model, settings: SampleSettings) -> dict[str, Any]:
    names = ("guidance_scale", "guidance_scale_2", "steps", "frames", "height", "width", "fps", "negative_prompt")
    found = {name: getattr(model, name) for name in names if getattr(model, name) is not None}
    return {**own_values(settings.model), **found}


def _sizes(model: Model) -> tuple[tuple[int, int], ...]:
    """The model's own size, upright, and a square of its height, as far as they are legal."""
    found = []
    for width, height in ((model.width, model.height), (model.height, model.width), (model.height, model.height)):
        with contextlib.suppress(ConfigError):
            model.check_shape(model.frames, height, width)
            found.append((width, height))
    return tuple(dict.fromkeys(found))


def _seconds(workspace: Workspace, many: list[SampleSettings], model: Model) -> float | None:
    each = pace(workspace, many[0].changed(frames=many[0].frames or model.frames))
    return None if each is None else each * sum(work(one, model.steps) for one in many)


# ---- the prompt enhancer


class Enhanced(Snapshot):
    """The prompt enhancer: what it does, and what it has written last."""

    going: bool
    """Whether it is writing."""

    message: str
    """What it does, or why nothing was written; "" where there is nothing to say."""

    prompt: str
    """What was written last; "" for nothing."""

    short: str
    """The short prompt from which that was written."""

    tokens: int | None
    """How many tokens of it the video model reads; null where that is unknown."""

    limit: int | None
    """How many tokens the video model reads at most; null where that is unknown."""

    settings: dict[str, Any]
    """With which it was used last."""


@operation(path="/prompt-enhancer", visitors="own session", shell=False)
def enhanced(workspace: Workspace) -> Enhanced:
    """Show what the prompt enhancer does, and what it has written last."""
    status, written = prompt_enhancer.status(workspace), prompt_enhancer.written(workspace)
    message = ""
    if status.state.alive:
        message = status.phase or "starting"
    elif status.state in (State.FAILED, State.DIED):
        message = f"No prompt was written. {status.message}"
    return Enhanced(
        going=status.state.alive,
        message=message,
        prompt=written.prompt if written else "",
        short=written.short if written else "",
        tokens=written.tokens if written else None,
        limit=written.limit if written else None,
        settings=prompt_enhancer.settings_of(workspace).model_dump(mode="json"),
    )


@operation(path="/prompt-enhancer", changes=True, status=202, visitors="own session", shell=False)
def enhance(
    workspace: Workspace,
    settings: PromptSettings,
    *,
    prompt: Annotated[str, Field(description="A few words.")] = "",
    model: Annotated[str, Field(description="The video model, which reads so many tokens.")] = SampleSettings().model,
    image: Annotated[str, Field(description="The first frame, where the video has one.")] = "",
) -> Enhanced:
    """Write a long prompt from a short one, by a language model, in the background."""
    prompt_enhancer.write(workspace, settings, SampleSettings(model=model, prompt=prompt, image=image))
    return enhanced(workspace)


@operation(path="/prompt-enhancer/stop", changes=True, visitors="own session", shell=False)
def stop_enhancing(workspace: Workspace) -> Enhanced:
    """Stop the prompt enhancer."""
    prompt_enhancer.stop(workspace)
    return enhanced(workspace)


@operation(path="/prompt-enhancer/use", changes=True, visitors="own session", shell=False)
def use_enhanced(
    workspace: Workspace,
    text: Annotated[str, Field(description="What was written, maybe changed by hand.")],
    *,
    prompt: Annotated[str, Field(description="The prompt that it replaces.")] = "",
) -> Filled:
    """Use a written prompt; what it was written from is recorded."""
    taken = prompt_enhancer.take(workspace, text, prompt)
    return Filled(values={"prompt": taken}, scenes=False, message="The form now has the written prompt.")

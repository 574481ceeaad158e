"""Which clips caused what a sample, or a part of it, shows: ask, follow the search, read the answers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from workbench import jobs
from workbench.clips.records import Clip, read_clips
from workbench.dataset_builder.history import thumbnail_name
from workbench.errors import ConfigError, Unknown, WorkbenchError
from workbench.jobs import queue
from workbench.jobs.devices import DeviceChoice
from workbench.operations.registry import operation
from workbench.operations.shared import Question
from workbench.sampler.samples import Samples
from workbench.snapshots import HIDDEN, Shown, Snapshot
from workbench.trainer import causes as searches
from workbench.workspace import Workspace, is_slug

SampleId = Annotated[str, Field(description="Id of the sample.")]
SearchId = Annotated[str, Field(description="Id of the search, as `causes` returned it.")]
MOST_NAMED = 8  # clips that the shell lists on each side


class Cause(Snapshot):
    """A clip's part in what a sample shows."""

    dataset: str
    """The dataset that it belongs to."""

    clip: str
    """Its id in the dataset."""

    name: str
    """Its name."""

    caption: Annotated[str, Shown(text=lambda text: " ".join(text.split()))]
    """The caption that it was trained with."""

    file: str
    """Path of its video; "" if it was removed from the dataset since."""

    picture: str
    """Path of its thumbnail; "" if there is none."""

    score: Annotated[float, Shown(text="{:+.3f}".format, right=True)]
    """Similarity of its gradient to the sample's, relative to the average clip, -1 to 1. Above 0, training on it made
    the sample more likely."""

    usual: float
    """Distance of the score from the median in robust standard deviations."""

    part: str
    """`caused it`, if its score stands out; `for` and `against` otherwise."""


class Causes(Question):
    """A search for the clips that caused what a sample shows."""

    STOP = "samples stop-causes"

    sample: str
    """Id of the sample."""

    run: str
    """The run whose clips were compared."""

    steps: tuple[int, ...]
    """Steps of the checkpoints at which gradients were compared."""

    box: tuple[int, ...]
    """The marked box: left, top, width and height in pixels; [] for the whole picture."""

    frames: tuple[int, ...]
    """The first and the last marked frame, from 0; [] for all frames."""

    sentence: str
    """The answer in words: which clips stand out, or why none can be named; "" until there is one."""

    sure: bool
    """Whether clips stand out."""

    agreement: float | None = None
    """Rank correlation between the scores of the two noise draws, -1 to 1; null until there is an answer."""

    clips: Annotated[tuple[Cause, ...], HIDDEN]
    """All clips, the largest contribution to the sample first."""

    missing: Annotated[tuple[str, ...], Shown(text=", ".join)] = ()
    """Names of clips that the run trained on and that are gone from its datasets; they were not compared."""

    def outcome(self) -> Iterable[str]:
        yield self.sentence
        parts = [one for one in self.clips if one.part != "against"][:MOST_NAMED]
        parts += [one for one in self.clips if one.part == "against"][-MOST_NAMED:]
        for one in parts:
            yield f"{one.part:<10}{one.score:+.3f}  {one.name}  {one.text_of('caption')}"


@operation(path="/causes/{id}", shell=False)
def found_causes(workspace: Workspace, id: SearchId) -> Causes:
    """Show a search for the clips that caused what a sample shows: its progress, or the answer."""
    sample, _, key = id.rpartition("-")
    if not is_slug(id) or not key:
        raise ConfigError(f"id is {id[:80]!r}: give the id that `causes` returned")
    one = Samples(workspace).get(sample)
    folder = workspace.cache / searches.FOLDER / id
    answer = next((answer for answer in searches.answers(one) if answer.key == id), None)
    if answer is None and not (folder / jobs.CONFIG).exists():
        raise Unknown(f"there is no search {id[:80]!r}: ask again")
    return _causes(workspace, one.id, id, answer)


@operation(changes=True, job=found_causes, path="/samples/{id}/causes")
def causes(
    workspace: Workspace,
    id: SampleId,
    *,
    run: Annotated[str, Field(description="The run to ask about, if LoRAs of several runs made the sample.")] = "",
    box: Annotated[
        tuple[int, ...],
        Field(description="Mark a fault: left, top, width and height of a box in pixels. Default: the whole picture."),
    ] = (),
    frames: Annotated[
        tuple[int, ...],
        Field(description="Mark a span: its first and last frame, counted from 0. Default: all frames."),
    ] = (),
    device: Annotated[DeviceChoice, Field(description="The device to compute on.")] = "auto",
) -> Causes:
    """Find the clips that caused what a sample of a run's LoRA, or a marked part of it, shows."""
    one = Samples(workspace).get(id)
    status = searches.request(workspace, one, run, box, frames, device)
    return found_causes(workspace, status.folder.name)


@operation(path="/samples/{id}/causes", none="no searches for causes yet: workbench samples causes ID", shell=False)
def known_causes(workspace: Workspace, id: SampleId) -> list[Causes]:
    """List the searches on a sample, running ones and answers, newest first."""
    one = Samples(workspace).get(id)
    told = {answer.key: answer for answer in searches.answers(one)}
    running = [path.name for path in searches.searches(workspace, one.id) if path.name not in told]
    return [_causes(workspace, one.id, key, told.get(key)) for key in (*running, *told)]


@operation(changes=True, path="/causes/{id}/stop")
def stop_causes(workspace: Workspace, id: SearchId) -> Causes:
    """Stop a search for causes. What it has computed of the clips is kept for the next one."""
    shown = found_causes(workspace, id)
    jobs.stop(workspace.cache / searches.FOLDER / shown.id)
    return found_causes(workspace, id)


def _causes(workspace: Workspace, sample: str, key: str, answer: searches.Answer | None) -> Causes:
    folder = workspace.cache / searches.FOLDER / key
    return Causes.of(
        queue.with_position(workspace, jobs.status(folder)),
        searches.CausesSettings.load_or_default(folder / jobs.CONFIG),
        answer,
        sample=sample,
        sentence=searches.sentence(answer) if answer else "",
        sure=bool(answer and searches.named(answer)),
        clips=_clips_of(workspace, answer) if answer else (),
    )


def _clips_of(workspace: Workspace, answer: searches.Answer) -> tuple[Cause, ...]:
    named = {one.file_name for one in searches.named(answer)}
    datasets = {one.dataset for one in answer.clips}
    present = {(name, clip.file_name): clip for name in datasets for clip in _clips(workspace, name)}
    found = []
    for one in answer.clips:
        folder, clip = workspace.dataset(one.dataset), present.get((one.dataset, one.file_name))
        thumbnail = folder / thumbnail_name(clip) if clip else None
        above = one.score > 0
        found.append(
            Cause.from_objects(
                one,
                clip=Path(one.file_name).stem,
                file=str(folder / clip.file_name) if clip else "",
                picture=str(thumbnail) if thumbnail and thumbnail.exists() else "",
                part="caused it" if one.file_name in named else "for" if above else "against",
            )
        )
    return tuple(found)


def _clips(workspace: Workspace, dataset: str) -> Iterable[Clip]:
    with contextlib.suppress(WorkbenchError):  # it may have been removed since
        yield from read_clips(workspace.dataset(dataset))

"""What if a run were trained without a clip, a word, or with another setting: ask, follow it, read the answer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import Field

from workbench import jobs
from workbench.display.quantities import counted
from workbench.errors import ConfigError, Unknown
from workbench.jobs import queue
from workbench.operations.registry import Fields, operation
from workbench.operations.run_list import Name
from workbench.operations.runs import NamedRun
from workbench.operations.shared import Question
from workbench.runs.run import Run
from workbench.snapshots import HIDDEN, Shown, Snapshot
from workbench.trainer import what_if as asking
from workbench.trainer.what_if import WhatIfSettings
from workbench.workspace import Workspace, is_slug

QuestionId = Annotated[str, Field(description="Id of the question, as `what-if` returned it.")]


class Measure(Snapshot):
    """A measure without and with a change, averaged over the repeats."""

    name: str
    """`sample` (how far the LoRA moves toward the sample in question), `effect` (toward the clips), `drift`
    (of what should stay as it is) or `held_out_loss`."""

    before: float
    """As the run was trained."""

    after: float
    """With the change."""

    low: float
    """Lower end of the 95% interval of the difference."""

    high: float
    """Upper end of it."""

    band: float
    """Standard deviation over the unchanged trainings, which differ in their seeds alone."""

    verdict: str
    """`told` for a clear difference, `chance` for none, or `same` if all measurements are exactly the same."""


class WhatIfVideo(Snapshot):
    """Videos of one prompt and seed, side by side."""

    prompt: str
    """The prompt."""

    before: str
    """Path of the video as the run was trained."""

    after: tuple[str, ...]
    """Paths of the videos with each change, in the order of `changes`."""


class WhatIfChange(Snapshot):
    """What a change did."""

    change: str
    """The change, such as `without clip 07_cat`."""

    sentence: str
    """The answer in words."""

    verdict: str
    """The verdict of the first measure, which decides: `told`, `chance` or `same`."""

    measures: tuple[Measure, ...]
    """All measures, the deciding one first."""


class WhatIf(Question):
    """A question: what a run would be without a clip, a word, or with another setting."""

    STOP = "runs stop-what-if"

    run: str
    """The run."""

    asked: Annotated[tuple[str, ...], Shown(text="; ".join)]
    """The changes that were asked about, each compared with the unchanged training."""

    sample: str
    """Id of the sample in question; "" for the concept as a whole."""

    begin: int | None
    """The step at which all trainings begin; null while unknown."""

    steps: int | None
    """How many steps are trained again."""

    repeats: int
    """How often each training is repeated, with another seed each time."""

    changes: Annotated[tuple[WhatIfChange, ...], HIDDEN]
    """The answer, the change that matters most first; [] until there is one."""

    videos: Annotated[tuple[WhatIfVideo, ...], HIDDEN]
    """For each prompt and seed, the videos side by side."""

    width: Annotated[int, HIDDEN] = 0
    """Width of the videos in pixels; 0 without any."""

    height: Annotated[int, HIDDEN] = 0
    """Height of them."""

    def outcome(self) -> Iterable[str]:
        for one in self.changes:
            yield one.sentence
        if self.changes:
            yield f"{self.repeats} trainings each, of {counted(self.steps or 0, 'step')}, from step {self.begin}."
        if self.videos:
            yield f"Videos: {Path(self.videos[0].before).parent}"


@operation(path="/what-if/{id}", shell=False)
def found_what_if(workspace: Workspace, id: QuestionId) -> WhatIf:
    """Show what was asked about a run with `what-if`: the progress, or the answer."""
    name, _, key = id.rpartition("-")
    if not is_slug(id) or not name:
        raise ConfigError(f"id is {id[:80]!r}: give the id that `what-if` returned")
    run = Run.open(workspace, name)
    if key not in asking.questions(workspace, run):
        raise Unknown(f"there is no question {id[:80]!r}: ask again")
    return _shown(workspace, run, key)


@operation(changes=True, job=found_what_if, visitors="never")
def what_if(
    workspace: Workspace,
    run: NamedRun,
    settings: Annotated[WhatIfSettings, Fields(without=("run",))],
) -> WhatIf:
    """Train part of a run again with and without a change, and say whether the change makes a difference."""
    status = asking.request(workspace, run, settings)
    return _shown(workspace, run, status.folder.name.rpartition("-")[2])


@operation(path="/runs/{name}/what-if", none="nothing was asked yet: workbench runs what-if NAME", shell=False)
def known_what_ifs(workspace: Workspace, name: Name) -> list[WhatIf]:
    """List what was asked about a run with `what-if`, newest first."""
    run = Run.open(workspace, name)
    return [_shown(workspace, run, key) for key in asking.questions(workspace, run)]


@operation(changes=True, path="/what-if/{id}/stop")
def stop_what_if(workspace: Workspace, id: QuestionId) -> WhatIf:
    """Stop the trainings of `what-if`. Those that were finished are kept; asking the same again goes on from there."""
    shown = found_what_if(workspace, id)
    jobs.stop(workspace.root / asking.FOLDER / shown.id)
    return found_what_if(workspace, id)


def _shown(workspace: Workspace, run: Run, key: str) -> WhatIf:
    folder = workspace.root / asking.FOLDER / f"{run.name}-{key}"
    settings, answer = WhatIfSettings.load_or_default(folder / jobs.CONFIG), asking.read_answer(run, key)
    return WhatIf.of(
        queue.with_position(workspace, jobs.status(folder)),
        settings,
        answer,
        run=run.name,
        asked=tuple(map(asking.label, answer.asked if answer else settings.changes)),
        changes=tuple(map(_change, answer.changes)) if answer else (),
        videos=_videos(run.folder / asking.KEPT / key, answer) if answer else (),
    )


def _change(one: asking.Changed) -> WhatIfChange:
    return WhatIfChange(
        change=asking.label(one.change),
        sentence=asking.sentence(one),
        verdict=one.measures[0].verdict,
        measures=tuple(Measure(name=told.measure, **told.model_dump(exclude={"measure"})) for told in one.measures),
    )


def _videos(folder: Path, answer: asking.Answer) -> tuple[WhatIfVideo, ...]:
    order = [answer.asked.index(one.change) + 1 for one in answer.changes]
    found = sorted(folder.glob("0-*.mp4"), key=lambda path: int(path.stem.partition("-")[2]))
    rows = [(path, [folder / f"{number}-{path.stem.partition('-')[2]}.mp4" for number in order]) for path in found]
    return tuple(
        WhatIfVideo(prompt=prompt, before=str(path), after=tuple(map(str, others)))
        for prompt, (path, others) in zip(answer.prompts, rows, strict=False)
        if all(other.exists() for other in others)
    )

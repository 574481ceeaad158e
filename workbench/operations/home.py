"""The home page: what needs attention, the recorded example run, and the demo."""

from __future__ import annotations

from functools import partial
from typing import Any

from workbench import demo as material
from workbench import jobs
from workbench.demo_space import replays
from workbench.errors import ConfigError
from workbench.fit.estimate import estimate
from workbench.jobs import State
from workbench.operations.registry import operation
from workbench.overview import NowLine, OverviewReader
from workbench.runs.run import Run
from workbench.sampler.samples import Sample
from workbench.sampler.view import loras_used
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace

DEMO = "demo"


class Now(Snapshot):
    """What is happening in the workspace, and what needs attention."""

    entries: tuple[NowLine, ...]
    """Runs and datasets that need attention, most urgent first."""

    samples: tuple[dict[str, Any], ...]
    """The newest samples: id, video, prompt, loras (in words), at, width, height, seconds."""

    first: bool
    """Whether the workspace is still empty."""


class Example(Snapshot):
    """A recorded run that comes with the workbench."""

    name: str
    """Name of the run."""

    description: str
    """A description in a few sentences."""

    model: str
    """Title of the model."""

    device: str
    """The device it ran on."""

    seconds: float
    """Its duration in seconds."""

    steps: int
    """Number of steps."""

    clips: int
    """Number of clips that it was trained on."""

    clip: str
    """Path of one of these clips."""

    width: int
    """Width of the previews in pixels."""

    height: int
    """Height of the previews in pixels."""

    prompt: str
    """Prompt of the previews."""

    previews: tuple[tuple[int, str], ...]
    """Step and path of each preview, in order. Step 0 is the base model."""


class Recorded(Snapshot):
    """A recorded run with its curves and previews."""

    title: str
    """Name of the run."""

    description: str
    """A description in a few sentences."""

    facts: tuple[str, ...]
    """Model, steps, time, device, version."""

    chart: dict[str, Any]
    """Its curves: title, note, lines."""

    steps: tuple[int, ...]
    """Steps with previews. Step 0 is the base model."""

    seconds: tuple[float, ...]
    """When each step's previews were done, in seconds from the start."""

    rows: tuple[dict[str, Any], ...]
    """For each prompt: prompt, videos (a path for each step, or null)."""

    settings: str
    """Its settings in words."""

    width: int
    """Width of the previews in pixels."""

    height: int
    """Height of the previews in pixels."""

    frames: int
    """Frames of each preview; 0 if unknown."""

    verdict: dict[str, Any] | None
    """The verdict on the run: tone, claim, evidence."""

    grid: dict[str, Any] | None
    """A comparison of its checkpoints with the base model, as `grids/show` returns it."""


class Demo(Snapshot):
    """The demo, which trains a small model on the included clips."""

    clips: int
    """Number of clips that it is trained on."""

    seconds: float
    """Duration on this machine in seconds: of the last demo run, or an estimate."""

    run: str
    """Name of the newest demo run; "" before the first."""

    state: str
    """State of that run; "" before the first."""


def _now(reader: OverviewReader) -> Now:
    seen = reader.read()
    samples = tuple(_sample(one) for one in seen.samples if not one.problem)
    return Now(entries=tuple(reader.now(seen)), samples=samples, first=seen.empty)


def _sample(one: Sample) -> dict[str, Any]:
    frames, fps = one.record.get("frames"), one.record.get("fps")
    return {
        "id": one.id,
        "video": str(one.path),
        "prompt": one.settings.prompt,
        "loras": loras_used(one),
        "at": one.path.stat().st_mtime if one.path.exists() else None,
        "width": one.record.get("width"),
        "height": one.record.get("height"),
        "seconds": frames / fps if frames and fps else None,
    }


@operation(watch=lambda workspace: partial(_now, OverviewReader(workspace)), shell=False)
def now(workspace: Workspace) -> Now:
    """Show what is happening and what needs attention, each with the next step."""
    return _now(OverviewReader(workspace))


@operation(shell=False)
def example(workspace: Workspace) -> Example:
    """Show the recorded run that comes with the workbench, step by step."""
    found = _shipped()
    record, folder = found.record, found.folder
    clips = sorted((material.DEMO_CLIPS / material.concept()).glob("*.mp4"))
    return Example(
        name=record["title"],
        description=record["description"],
        model=record["model_title"],
        device=record["device"],
        seconds=record["seconds"],
        steps=record["steps"],
        clips=len(clips),
        clip=str(clips[0]),
        width=record["size"][0],
        height=record["size"][1],
        prompt=record["prompts"][0],
        previews=tuple((step, str(folder / name)) for _, step, prompt, name in record["previews"] if prompt == 0),
    )


def _shipped() -> replays.Replay:
    if not (found := replays.shipped()):
        raise ConfigError("this copy of the workbench has no recorded run")
    return found[0]


@operation(path="/example/replay", shell=False)
def replay(workspace: Workspace) -> Recorded:
    """Show the whole recorded run: its curves, and its previews at every step."""
    found = _shipped()
    seen = replays.shown(found)
    rows = ({**row, "videos": [name and str(found.folder / name) for name in row["videos"]]} for row in seen["rows"])
    grid = seen["grid"] and replays.addressed(seen["grid"], lambda name: str(found.folder / name))
    return Recorded(**{**seen, "rows": tuple(rows), "grid": grid})


@operation(shell=False)
def demo(workspace: Workspace) -> Demo:
    """Show the demo, how long it takes on this machine, and its newest run."""
    runs = [one for one in jobs.jobs_in(workspace.runs) if one.name == DEMO or one.name.startswith(f"{DEMO}-")]
    durations = [
        one.ended_at - one.started_at for one in runs if one.state is State.FINISHED and one.ended_at and one.started_at
    ]
    newest = runs[0] if runs else None
    return Demo(
        clips=len(list(material.DEMO_CLIPS.glob("*/*.mp4"))),
        seconds=durations[0] if durations else estimate(workspace, material.watched("", "")).times.total,
        run=newest.name if newest else "",
        state=newest.state.value if newest else "",
    )


@operation(path="/demo/train", changes=True, shell=False)
def train_demo(workspace: Workspace) -> Demo:
    """Import the demo's clips and start its run."""
    run = Run.create(workspace, material.prepare(workspace), DEMO)
    run.start()
    return demo(workspace)

"""What the first page shows: a real run step by step, what waits for somebody, and the demo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench import demo as material
from workbench import jobs
from workbench.demo_space import replays
from workbench.errors import ConfigError
from workbench.fit.estimate import estimate
from workbench.jobs import State
from workbench.operations.registry import Snapshot, operation
from workbench.overview import NowLine, OverviewReader
from workbench.runs.run import Run
from workbench.sampler.samples import Sample
from workbench.sampler.view import loras_used
from workbench.workspace import Workspace

DEMO = "demo"


class Now(Snapshot):
    """What is happening, and what waits for somebody."""

    entries: tuple[NowLine, ...]
    """Runs and datasets that something is to be done about, the most urgent first."""

    samples: tuple[dict[str, Any], ...]
    """The newest: id, video, prompt, loras (in words), at, width, height, seconds."""

    first: bool
    """Whether nothing was ever made here."""


class Example(Snapshot):
    """A run that truly happened, as it was recorded."""

    name: str
    """Name of the run."""

    description: str
    """What it is, in sentences."""

    model: str
    """Its title."""

    device: str
    """What it ran on."""

    seconds: float
    """How long it took."""

    steps: int
    """How many it took."""

    clips: int
    """How many it was trained on."""

    clip: str
    """Path of one of them."""

    width: int
    """Width of the previews, in pixels."""

    height: int
    """Height of the previews, in pixels."""

    prompt: str
    """Prompt of the previews."""

    previews: tuple[tuple[int, str], ...]
    """Step and path of each, in order; step 0 is before the training."""


class Recorded(Snapshot):
    """A recorded run, as its page shows it."""

    title: str
    """The run's name."""

    description: str
    """What it is, in sentences."""

    facts: tuple[str, ...]
    """Model, steps, time, device, version."""

    chart: dict[str, Any]
    """Its curves: title, note, lines."""

    steps: tuple[int, ...]
    """Steps with previews; 0 is before the training."""

    seconds: tuple[float, ...]
    """When each was there, from the start."""

    rows: tuple[dict[str, Any], ...]
    """A prompt each: prompt, videos (the path of each step's, null where there is none)."""

    settings: str
    """What it was trained with."""

    width: int
    """Of the previews, pixels."""

    height: int
    """Pixels."""


class Demo(Snapshot):
    """The demo: a small model learns what its clips show."""

    clips: int
    """How many it is trained on."""

    seconds: float
    """How long it takes here: as it took last time, else an estimate."""

    run: str
    """Its newest run; "" before the first."""

    state: str
    """State of that run."""


def _watch_now(workspace: Workspace) -> Callable[[], Now]:
    reader = OverviewReader(workspace)

    def read() -> Now:
        seen = reader.read()
        return Now(
            entries=tuple(reader.now(seen)),
            samples=tuple(_sample(one) for one in seen.samples if not one.problem),
            first=seen.empty,
        )

    return read


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


@operation(watch=_watch_now, shell=False)
def now(workspace: Workspace) -> Now:
    """Show what is happening and what waits for somebody, each with the one thing to do next."""
    return _watch_now(workspace)()


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
        raise ConfigError("this copy of the workbench comes with no recorded run")
    return found[0]


@operation(path="/example/replay", shell=False)
def replay(workspace: Workspace) -> Recorded:
    """Show all that was recorded of that run: its curves, and its previews at every step."""
    found = _shipped()
    seen = replays.shown(found)
    rows = ({**row, "videos": [name and str(found.folder / name) for name in row["videos"]]} for row in seen["rows"])
    return Recorded(**{**seen, "rows": tuple(rows)})


@operation(shell=False)
def demo(workspace: Workspace) -> Demo:
    """Show what the demo is, how long it takes here, and its newest run."""
    runs = [one for one in jobs.jobs_in(workspace.runs) if one.name == DEMO or one.name.startswith(f"{DEMO}-")]
    took = [
        one.ended_at - one.started_at for one in runs if one.state is State.FINISHED and one.ended_at and one.started_at
    ]
    newest = runs[0] if runs else None
    return Demo(
        clips=len(list(material.DEMO_CLIPS.glob("*/*.mp4"))),
        seconds=took[0] if took else estimate(workspace, material.teach("", "")).times.total,
        run=newest.name if newest else "",
        state=newest.state.value if newest else "",
    )


@operation(path="/demo/train", changes=True, shell=False)
def train_demo(workspace: Workspace) -> Demo:
    """Take in the clips of the demo and start its run."""
    run = Run.create(workspace, material.prepare(workspace), DEMO)
    run.start()
    return demo(workspace)

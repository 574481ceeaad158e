"""What the panels of the Dataset tab have in common: what they look at, and how a click becomes a change on disk.

A panel never keeps anything: `values` says what it shows of a dataset, read from the folder, and a listener changes the
folder. After every click the whole tab is refreshed. Not covered: what a panel shows.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import gradio as gr

from workbench.clips.frame_plan import Shape, shape_for
from workbench.clips.records import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.tasks import Name
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.settings import Settings, parse
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler, tell
from workbench.ui.core.form import Form, sentences
from workbench.workspace import Workspace

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True)
class DatasetView:
    """What a panel looks at.

    dataset:  the chosen one;  clip: the clip that is open in it, None when none is
    selected: file names marked in the grid
    shape:    what every clip is brought to for the chosen model, None when that is not legal; `problem` says why
    mark:     changes whenever the dataset's records do
    """

    dataset: Dataset
    clip: Clip | None
    selected: tuple[str, ...]
    model: str
    shape: Shape | None
    problem: str
    mark: tuple[Any, ...]


class DatasetPanel(ABC):
    """One part of the tab. Build the components in __init__ and name those that follow the dataset in `view`."""

    view: dict[str, Any]

    def values(self, look: DatasetView) -> dict[str, Any]:
        """What the components of `view` show, by name; costly ones as (signature, function that makes it)."""
        return {}

    def wire(self, host: DatasetHost) -> None:  # noqa: B027 - a panel that only shows has none
        """Connect the listeners."""


def start_task(
    dataset: Dataset,
    name: Name,
    form: Form[S],
    values: Sequence[Any],
    settings: type[Settings] | None = None,
    **more: Any,
) -> str:
    """Start a task with the form's settings and `more`; what is wrong comes back as HTML for the form's problems.

    settings: the task's own class, where it knows more than the form asks for
    """
    try:
        chosen = form.parse(values).model_dump(mode="json") | more
        dataset.task(name).start(parse(settings or form.settings, chosen))
    except ConfigError as error:
        return sentences(error, form.settings)
    return render.problems([])


class DatasetHost:
    """What a panel may use of the tab: what is chosen, and `act` for everything a person can do."""

    def __init__(
        self,
        workspace: Workspace,
        chosen: gr.BrowserState,
        clip: gr.BrowserState,
        selected: gr.State,
        model: Any,
        frames: Any,
    ) -> None:
        self.workspace = workspace
        self.chosen, self.clip, self.selected = chosen, clip, selected
        self.model, self.frames = model, frames
        self.refresh: Callable[[Any], Any] = lambda event: event  # the tab sets it: shows everything anew

    def open(self, chosen: str | None) -> Dataset:
        """The chosen dataset, else the first. Raises ConfigError when there is none."""
        known = Dataset.all(self.workspace)
        if not known:
            raise ConfigError("there is no dataset yet: give it a title and press Create")
        return next((dataset for dataset in known if dataset.name == chosen), known[0])

    def act(
        self, events: Any, action: Callable[..., Any], inputs: Sequence[Any] = (), outputs: Sequence[Any] = ()
    ) -> Any:
        """Call `action(dataset, *inputs)` at an event (or any of several) and then show the tab anew.

        What it returns goes to `outputs`; without outputs a sentence that it returns is shown for a moment.
        """

        def listener(chosen: str | None, *values: Any) -> Any:
            done = action(self.open(chosen), *values)
            if not outputs and isinstance(done, str):
                tell(done)
            return done if outputs else None

        listener.__qualname__ = action.__qualname__
        triggers = events if isinstance(events, list) else [events]
        event = gr.on(triggers, handler(listener), [self.chosen, *inputs], list(outputs) or None, **QUIET)
        return self.refresh(event)


def wanted_shape(model: str, frames: str) -> Shape:
    """What every clip is brought to. Raises ConfigError when the model or the number of frames is not legal."""
    return shape_for(find_model(model)[1], number_of_frames(frames))


def number_of_frames(text: str) -> int | None:
    """What the field for the number of frames says; None when it is empty. Raises ConfigError."""
    frames = text.strip()
    if frames and not frames.isdecimal():
        raise ConfigError(f"frames is {frames[:20]!r}, must be a whole number: leave it empty for the model's own")
    return int(frames) if frames else None

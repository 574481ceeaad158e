"""What the panels of the Dataset tab have in common: what they look at, and how a click becomes a change on disk.

A panel never keeps anything: `values` says what it shows of a dataset, read from the folder, and a listener changes the
folder. After every click the whole tab is shown anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import gradio as gr

from workbench.clips.frame_plan import Shape, shape_for
from workbench.clips.records import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.ui.core.boundary import on
from workbench.ui.core.form import Form
from workbench.ui.core.problems import Fields
from workbench.ui.core.view import LiveView, Values, remembered
from workbench.workspace import Workspace


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


class DatasetPanel:
    """One part of the tab. Build the components in __init__; those that follow the dataset are its `view`."""

    view: Sequence[Any] = ()
    parts: Sequence[DatasetPanel] = ()

    def values(self, look: DatasetView) -> Values:
        """What the components of `view` show; costly ones as (signature, function that makes it)."""
        return {}

    def wire(self, host: DatasetHost) -> None:
        """Connect the listeners."""


class DatasetHost(LiveView):
    """What a panel may use of the tab: what is chosen, and `change` for everything a person can do to the dataset."""

    def __init__(
        self,
        workspace: Workspace,
        components: Sequence[Any],
        read: Callable[..., Values],
        model: Any,
        frames: Any,
        search: Any,
    ) -> None:
        """model, frames: the components with the model and the number of frames that clips are judged for

        search: the one with what the list of datasets is searched for
        """
        self.workspace, self.model, self.frames = workspace, model, frames
        self.chosen, self.clip, self.selected = remembered("dataset"), remembered("clip"), gr.State([])
        super().__init__(components, read, [self.chosen, self.clip, self.selected, model, frames, search])

    def open(self, chosen: str | None) -> Dataset:
        """The chosen dataset, else the first. Raises ConfigError when there is none."""
        known = Dataset.all(self.workspace)
        if not known:
            raise ConfigError("there is no dataset yet: give it a title and press Create")
        named = {one.name: one for one in known}
        former = self.workspace.former_names.get(chosen or "", "")
        return named.get(chosen or "") or named.get(former) or known[0]

    def change(
        self,
        events: Any,
        action: Callable[..., Any],
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        form: Form[Any] | Fields | None = None,
        clip: bool = False,
    ) -> Any:
        """Call `action(dataset, *inputs)` at an event and show everything anew, as `act` does.

        clip: `action(dataset, open clip, *inputs)`
        """
        return self.act(events, *self._of_dataset(action, inputs, clip), outputs, form)

    def ask(
        self,
        events: Any,
        question: Callable[..., Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        clip: bool = False,
        slow: bool = False,
    ) -> None:
        """Call `question(dataset, *inputs)` at an event; the answers go to `outputs`, and nothing else is shown anew.

        clip: as in `change`;  slow: the outputs show that they wait
        """
        waiting: Any = {"show_progress": "full", "show_progress_on": list(outputs)} if slow else {}
        on(events, *self._of_dataset(question, inputs, clip), outputs, **waiting)

    def _of_dataset(
        self, action: Callable[..., Any], inputs: Sequence[Any], clip: bool
    ) -> tuple[Callable[..., Any], list[Any]]:
        """A listener that calls the action with the chosen dataset, and its inputs."""

        def listener(chosen: str | None, name: str | None, *values: Any) -> Any:
            dataset = self.open(chosen)
            if not clip:
                return action(dataset, *values)
            opened = dataset.successor(name) if name else None
            if opened is None:
                raise ConfigError("no clip is open: open one under Clips")
            return action(dataset, opened, *values)

        listener.__qualname__ = action.__qualname__
        return listener, [self.chosen, self.clip, *inputs]


def with_parts(panels: Iterable[DatasetPanel]) -> list[DatasetPanel]:
    """The panels, and after each one its parts."""
    return [one for panel in panels for one in (panel, *panel.parts)]


def wanted_shape(model: str, frames: str) -> Shape:
    """What every clip is brought to. Raises ConfigError when the model or the number of frames is not legal."""
    return shape_for(find_model(model).model, number_of_frames(frames))


def number_of_frames(text: str) -> int | None:
    """What the field for the number of frames says; None when it is empty. Raises ConfigError."""
    frames = text.strip()
    if frames and not frames.isdecimal():
        raise ConfigError(f"frames is {frames[:20]!r}, must be a whole number: leave it empty for the model's own")
    return int(frames) if frames else None

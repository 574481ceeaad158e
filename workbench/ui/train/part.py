"""What the parts of the Train tab have in common: what they render of a run, and how a click becomes a command.

A part keeps nothing: `values` renders a snapshot, a listener changes the run's folder, and then the tab reads it again.
Not covered: what a part renders.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.runs.actions import Action, perform
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core.boundary import QUIET, Seen, handler, tell
from workbench.ui.core.form import Form
from workbench.ui.core.live import Live
from workbench.workspace import Workspace

NO_RUN = "there is no run yet: start one with the form on the left"


class TrainPart(ABC):
    """One part of the tab. Build the components in __init__ and name those that follow the run in `view`."""

    view: dict[str, Any]

    def values(self, snapshot: RunSnapshot) -> dict[str, Any]:
        """What the components of `view` show, by name; costly ones as (signature, function that makes it)."""
        return {}

    def wire(self, host: TrainHost) -> None:  # noqa: B027 - a part that only shows has none
        """Connect the listeners."""

    @staticmethod
    def button(action: Action | None) -> tuple[str | None, Callable[[], Any]]:
        """A value of `values`: the button of an action, hidden where there is none."""
        label = action.label if action else None
        return label, lambda: gr.update(visible=label is not None, value=label or "")

    @staticmethod
    def visibility(visible: bool) -> tuple[bool, Callable[[], Any]]:
        """A value of `values`: a component that is visible or not."""
        return visible, lambda: gr.update(visible=visible)


class TrainHost:
    """What a part may use of the tab: which run is shown, the form, and `act` for everything that can be done."""

    def __init__(
        self,
        live: Live,
        form: Form[TrainSettings],
        chosen: gr.BrowserState,
        seen: gr.State,
        outputs: Sequence[Any],
        show: Callable[[str, Seen], list[Any]],
    ) -> None:
        """chosen: remembers the shown run's name; outputs: all that follows it, which `show(name, seen)` fills"""
        self.live, self.form, self.chosen = live, form, chosen
        self._seen, self._outputs, self._show = seen, list(outputs), show

    @property
    def workspace(self) -> Workspace:
        return self.live.workspace

    def snapshot(self, chosen: str | None) -> RunSnapshot:
        """The run that is shown, whether it was chosen or came up by itself. Raises ConfigError when there is none."""
        found = self.live.snapshot(chosen) or self.live.snapshot(self.live.default())
        if found is None:
            raise ConfigError(NO_RUN)
        return found

    def act(self, event: Any, action: Callable[..., Any], inputs: Sequence[Any] = (), fills: bool = False) -> Any:
        """Call `action(run, *inputs)` at an event and show everything anew.

        A run that it returns is the chosen one from then on; a sentence is shown for a moment; settings go into the
        form, where `fills` says that it may return some.
        """

        def listener(chosen: str | None, seen: Seen, *values: Any) -> list[Any]:
            run = self.snapshot(chosen).run
            done = action(run, *values)
            if isinstance(done, str):
                tell(done)
            name = done.name if isinstance(done, Run) else run.name
            return [name, *self._show(name, seen), *(self._filled(done) if fills else ())]

        listener.__qualname__ = action.__qualname__
        filled = [self.form.problems, *self.form.inputs] if fills else []
        outputs = [self.chosen, *self._outputs, *filled]
        made = event(handler(listener), [self.chosen, self._seen, *inputs], outputs, **QUIET)
        if fills:
            self.form.follow(made)
        return made

    def perform(self, event: Any, choose: Callable[[RunSnapshot], Action | None], fills: bool = False) -> Any:
        """Do at an event what the snapshot of that moment offers, as `act` does."""

        def performed(run: Run) -> Run | TrainSettings | str:
            return perform_chosen(self.workspace, self.live.snapshot(run.name, now=True), choose)

        return self.act(event, performed, fills=fills)

    def _filled(self, done: Any) -> list[Any]:
        if not isinstance(done, TrainSettings):
            return [gr.skip()] * (1 + len(self.form.inputs))
        tell("The form on the left now holds these settings.")
        return ["", *self.form.write(done.model_dump(mode="json"))]

    def ask(self, event: Any, question: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Call `question(snapshot, *inputs)` at an event and put its answers into the outputs; nothing else changes."""

        def listener(chosen: str | None, *values: Any) -> Any:
            return question(self.snapshot(chosen), *values)

        listener.__qualname__ = question.__qualname__
        return event(handler(listener), [self.chosen, *inputs], list(outputs), **QUIET)


def perform_chosen(
    workspace: Workspace, snapshot: RunSnapshot | None, choose: Callable[[RunSnapshot], Action | None]
) -> Run | TrainSettings | str:
    """Perform an action of the snapshot. Raises ConfigError when it is not offered any more."""
    action = choose(snapshot) if snapshot else None
    if snapshot is None or action is None:
        raise ConfigError("the run has gone on meanwhile: look at it again")
    return perform(workspace, snapshot.run, action)

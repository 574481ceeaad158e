"""What the parts of the Train tab have in common: what they render of a run, and how a click becomes a command.

A part keeps nothing: `values` renders a snapshot, a listener changes the run's folder, and then the tab reads it again.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.runs.run import Action, Run, perform
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core.boundary import on, tell
from workbench.ui.core.form import Form
from workbench.ui.core.live import Live
from workbench.ui.core.problems import NO_PROBLEMS
from workbench.ui.core.view import LiveView, button
from workbench.workspace import Workspace

NO_RUN = "there is no run yet: start one under New run"


class TrainPart(ABC):
    """One part of the tab. Its components are built in __init__; `components` are those that follow the run.

    typed: those of them that a person types in (LiveView)
    """

    components: list[Any]
    typed: Sequence[Any] = ()

    @abstractmethod
    def values(self, snapshot: RunSnapshot) -> dict[Any, Any]:
        """component -> what it shows; costly ones as (signature, function that makes it)."""

    @abstractmethod
    def wire(self, host: TrainHost) -> None:
        """Connect the listeners."""


def action_button(action: Action | None) -> Any:
    """The value of an action's button, hidden where there is none."""
    return button(action.label if action else "")


class TrainHost:
    """What a part may use of the tab: which run is shown, the form, and `act` for everything that can be done."""

    def __init__(self, live: Live, form: Form[TrainSettings], view: LiveView) -> None:
        """view: all that follows the chosen run"""
        self.live, self.form, self.chosen, self._view = live, form, view.choice, view

    @property
    def workspace(self) -> Workspace:
        return self.live.workspace

    def snapshot(self, chosen: str | None) -> RunSnapshot:
        """The run that is shown, whether it was chosen or came up by itself. Raises ConfigError when there is none."""
        found = self.live.chosen(chosen)
        if found is None:
            raise ConfigError(NO_RUN)
        return found

    def act(
        self,
        events: Any,
        action: Callable[..., Any],
        inputs: Sequence[Any] = (),
        form: Form[Any] | None = None,
        fills: bool = False,
    ) -> Any:
        """Call `action(run, *inputs)` at an event and show everything anew. form: as `LiveView.act`

        A run that it returns is the chosen one from then on; a sentence is shown for a moment; settings go into the
        form of new runs, where `fills` says that it may return some.
        """

        @functools.wraps(action)
        def listener(chosen: str | None, *values: Any) -> Any:
            run = self.snapshot(chosen).run
            done = action(run, *values)
            if isinstance(done, str):
                tell(done)
            name = done.name if isinstance(done, Run) else run.name
            self.live.refresh(name)
            return [name, *self._filled(done)] if fills else name

        filled = [self.form.fold, self.form.problems, *self.form.inputs] if fills else []
        made = self._view.act(events, listener, [self.chosen, *inputs], [self.chosen, *filled], form)
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
            return [gr.skip()] * (2 + len(self.form.inputs))
        tell("New run now holds these settings.")
        return [gr.update(open=True), NO_PROBLEMS, *self.form.write(done)]

    def ask(self, event: Any, question: Callable[..., Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Call `question(snapshot, *inputs)` at an event and put its answers into the outputs; nothing else changes."""

        @functools.wraps(question)
        def listener(chosen: str | None, *values: Any) -> Any:
            return question(self.snapshot(chosen), *values)

        return on(event, listener, [self.chosen, *inputs], outputs)


def perform_chosen(
    workspace: Workspace, snapshot: RunSnapshot | None, choose: Callable[[RunSnapshot], Action | None]
) -> Run | TrainSettings | str:
    """Perform an action of the snapshot. Raises ConfigError when it is not offered any more."""
    action = choose(snapshot) if snapshot else None
    if snapshot is None or action is None:
        raise ConfigError("the run has gone on meanwhile: look at it again")
    return perform(workspace, snapshot.run, action)

"""A choice above Start where the workspace has targets: train on this machine, or on one of them.

Not covered: adding targets (the shell: workbench targets), moving a run to another one (runs start --target).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.remote import targets
from workbench.ui.core.boundary import TICK, tick
from workbench.workspace import Workspace

HELP = "Add targets in a terminal: workbench targets. Such a run looks here like any other."


class TargetPart:
    """The choice; hidden while there are no targets."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.choice = gr.Dropdown(
            self._choices(),
            value=targets.LOCAL,
            label="Target",
            info=HELP,
            visible=len(self._choices()) > 1,
            elem_id="train-target",
        )

    def wire(self, load: Any) -> None:
        load(tick(self._look), None, [self.choice], **TICK)

    def _look(self) -> Any:
        return gr.update(choices=self._choices(), visible=len(self._choices()) > 1)

    def _choices(self) -> list[str]:
        return [targets.LOCAL, *targets.names(self.workspace)]

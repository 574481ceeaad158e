"""A choice above Start where the workspace has places: train here, or there.

Not covered: making places (the shell: workbench places), moving a run that is there already (runs start --on).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.remote import targets
from workbench.ui.core.boundary import TICK, tick
from workbench.workspace import Workspace

HELP = "Places are made in a terminal: workbench places. Such a run looks here like any other."


class WherePart:
    """The choice; it is not there while there are no places."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.place = gr.Dropdown(
            self._choices(), value=targets.HERE, label="Where", info=HELP, visible=len(self._choices()) > 1,
            elem_id="train-where",
        )  # fmt: skip

    def wire(self, load: Any) -> None:
        load(tick(self._look), None, [self.place], **TICK)

    def _look(self) -> Any:
        return gr.update(choices=self._choices(), visible=len(self._choices()) > 1)

    def _choices(self) -> list[str]:
        return [targets.HERE, *targets.names(self.workspace)]

"""Publishing the chosen LoRA: what will go, the push, and the demo Space made of it. Work is done by jobs alone.

Not covered: what is pushed and how (workbench.publishing), which LoRA is chosen (shelf).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.ui.live import Live
from workbench.workspace import Workspace


class PublishPart:
    """The part's components; `wire` connects them."""

    def __init__(self, workspace: Workspace, live: Live) -> None:
        self.workspace, self.live = workspace, live
        self.account = gr.HTML(elem_id="publish-account")

    def wire(self, timer: gr.Timer, load: Any, chosen: Any) -> None:
        """Connect the listeners; chosen: the component that holds the name of the chosen LoRA."""

"""The removed things of a kind and the button that restores one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from workbench.ui.core.view import visible


class RemovedList:
    """What was removed of a kind, "run" or "dataset", and a button that restores the chosen one; hidden while empty."""

    def __init__(self, kind: str, removed: Callable[[], Sequence[str]]) -> None:
        """removed: the names, newest first"""
        self._removed = removed
        with gr.Accordion(f"Removed {kind}s", open=False, visible=False, elem_id=f"removed-{kind}s") as self.box:
            self.names = gr.Dropdown([], label=f"Removed {kind}", elem_id=f"removed-{kind}")
            self.restore = gr.Button("Restore", elem_id=f"restore-{kind}")
        self.components = [self.box, self.names]

    def values(self) -> dict[Any, Any]:
        """For a LiveView."""
        names = self._removed()
        first = names[0] if names else None
        return {self.box: visible(bool(names)), self.names: (names, lambda: gr.update(choices=names, value=first))}

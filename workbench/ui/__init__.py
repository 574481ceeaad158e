"""The page, made with Gradio. Start it with `python webui.py`; `workbench.ui.app.build` makes it for other hosts."""

import inspect
from typing import Any
from unittest import mock

from workbench.jobs import processes


def _import_gradio() -> None:
    """Import it in half the time.

    At every import Gradio parses the sources of its components, only to write editor hints (.pyi) beside them. For a
    component whose file cannot be told it leaves that out.
    """
    where = inspect.getfile

    def getfile(thing: Any) -> str:
        if str(getattr(thing, "__module__", "")).startswith("gradio."):
            raise OSError
        return where(thing)

    with processes.loading(), mock.patch.object(inspect, "getfile", getfile):
        import gradio  # noqa: F401


_import_gradio()

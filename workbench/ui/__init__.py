"""The page, made with Gradio. Start it with `python webui.py`; `workbench.ui.app.build` makes it for other hosts."""

import inspect
import os
from typing import Any
from unittest import mock

from workbench.jobs import processes

# After each call of a handler Gradio sums up the last 10,000 calls with pandas, for a page of statistics that is never
# served here. That took more time than the calls. Now it keeps one call and sums up after 10^12 of them.
os.environ |= {"GRADIO_ANALYTICS_MAX_EVENTS": "1", "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(10**12)}


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

"""The page, hosted by Gradio. Start it with `python webui.py`; other hosts use `workbench.ui.app.build`."""

import inspect
import os
from typing import Any
from unittest import mock

from workbench.jobs import processes

# After each call, Gradio summarizes the last 10,000 calls with pandas for a statistics page that is not served here.
# That took longer than the calls. These values make it keep one call and never summarize.
os.environ |= {"GRADIO_ANALYTICS_MAX_EVENTS": "1", "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(10**12)}


def _import_gradio() -> None:
    """Import Gradio in half the time.

    At every import Gradio parses the sources of its components to write type stubs (.pyi). It skips components whose
    file it cannot find.
    """
    original = inspect.getfile

    def getfile(thing: Any) -> str:
        if str(getattr(thing, "__module__", "")).startswith("gradio."):
            raise OSError
        return original(thing)

    with processes.loading(), mock.patch.object(inspect, "getfile", getfile):
        import gradio  # noqa: F401


_import_gradio()

"""The page, hosted by Gradio. Start it with `python webui.py`; other hosts use `workbench.ui.app.build`."""

import inspect
import os
from typing import Any
from unittest import mock

from workbench.jobs import processes

# After each call, Gradio summarizes the last 10,000 calls with pandas for a statistics page that is not served here.
# That took longer than the calls. These values make it keep one call and never summarize.
os.environ |= {"GRADIO_ANALYTICS_MAX_EVENTS": "1", "GRADIO_ANALYTICS_CACHE_FREQUENCY": str(10**12)}


# At every import Gradio parses the sources of its components to write type stubs (.pyi), which doubles the time. It
# skips components whose file it cannot find.
_getfile = inspect.getfile


def _without_gradio(thing: Any) -> str:
    if str(getattr(thing, "__module__", "")).startswith("gradio."):
        raise OSError
    return _getfile(thing)


with processes.loading(), mock.patch.object(inspect, "getfile", _without_gradio):
    import gradio  # noqa: F401

"""The web page inside a notebook: `show_page(workspace, "dataset")` starts the page of a workspace, or finds it.

The page is a process of its own, `python webui.py`. It listens on this machine only, allows notebooks of this machine
and Colab to show it in a frame, and ends with the kernel that started it. The workspace keeps its address, readable
only by its owner, so that another notebook or a restarted kernel shows the same page:

    <workspace>/.notebook-page.json     {"pid", "start_time", "boot_id", "address"}
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from urllib.parse import urlsplit

from workbench import jobs
from workbench.display.inline_html import escaped
from workbench.errors import ConfigError, WorkbenchError
from workbench.jobs import platform, processes
from workbench.notebook.colab import in_colab
from workbench.paths import PAGE
from workbench.workspace import Workspace, read_object, write_json

Tab = Literal["dataset", "train", "sample", "compare", "loras"]
FILE, LOCK = ".notebook-page.json", ".notebook-page.lock"
FRAMES = ("http://localhost:*", "http://127.0.0.1:*")  # notebooks of this machine
COLAB_HOSTS = ("*.googleusercontent.com", "colab.research.google.com")
START_SECONDS, POLL_SECONDS = 120.0, 0.1
# Browsers send no cookies to a frame of another site, so the frame uses the host name of the notebook. Its address is
# set only once: browsers can lose one that changes while the frame loads.
SAME_HOST = """<script>(() => {
  const frame = document.getElementById("ID"), url = frame.dataset.url;
  frame.src = location.hostname === "localhost" ? url.replace("//127.0.0.1:", "//localhost:") : url;
})()</script>"""


@dataclass(frozen=True)
class PageView:
    """A running page and one of its tabs. The last line of a cell shows it in a frame.

    Attributes:
        process: Identity of its process (jobs.processes).
        address: Its address with the login token.
    """

    workspace: Workspace
    process: dict[str, Any]
    address: str
    tab: Tab
    height: int

    @property
    def url(self) -> str:
        """The address of the tab with the login token."""
        return urlsplit(self.address)._replace(fragment=f"/{self.tab}").geturl()

    def stop(self) -> None:
        """Stop the page in every notebook that shows it. Runs and tasks continue."""
        if not processes.request_end(self.process):
            processes.end(self.process)
        (self.workspace.root / FILE).unlink(missing_ok=True)

    def __repr__(self) -> str:
        return self.url

    def _repr_html_(self) -> str:
        frame, url = f"workbench-page-{self.tab}-{time.time_ns()}", escaped(self.url)
        style = f"width:100%;height:{self.height}px;border:1px solid rgba(127,127,127,.4)"
        link = f'<a href="{url}" target="_blank">Open the page in a new tab</a>'
        script = SAME_HOST.replace("ID", frame)
        return f'<iframe id="{frame}" data-url="{url}" style="{style}"></iframe>{script}<p>{link}</p>'

    def _ipython_display_(self) -> None:
        if in_colab():
            from google.colab import output

            parts = urlsplit(self.url)
            path = f"/?{parts.query}#{parts.fragment}"
            output.serve_kernel_port_as_iframe(parts.port, path=path, height=str(self.height))
            return
        from IPython.display import display

        display({"text/html": self._repr_html_(), "text/plain": repr(self)}, raw=True)


def show_page(workspace: Workspace, tab: Tab = "train", height: int = 900) -> PageView:
    """Show a workspace's web page in the notebook, and start it if needed. A plain shell shows its address.

    `height` is the frame's, in pixels. Raises ConfigError for an unknown tab, CannotWrite, and WorkbenchError if the
    page does not start.
    """
    if tab not in get_args(Tab):
        raise ConfigError(f"the page has no tab {tab!r}: choose one of {', '.join(get_args(Tab))}")
    with jobs.locked(workspace.root / LOCK):
        kept = read_object(workspace.root / FILE)
        if not (processes.alive(kept) and "address" in kept):
            kept = _started(workspace)
            write_json(workspace.root / FILE, kept, mode=0o600)
    address = kept.pop("address")
    return PageView(workspace, kept, address, tab, height)


def _started(workspace: Workspace) -> dict[str, Any]:
    """Start the page and wait for its address. Raises WorkbenchError with the end of its log."""
    command = [sys.executable, str(PAGE), "--workspace", str(workspace.root)]
    command += [f"--allow-frame={origin}" for origin in FRAMES]
    if in_colab():
        command += [f"--allow-host={host}" for host in COLAB_HOSTS]
    # The log's first line holds the token. Only its owner can read a temporary file.
    with tempfile.NamedTemporaryFile(prefix="workbench-page-", suffix=".log", delete=False) as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, **platform.detached())
    identity = processes.identity(process.pid)
    atexit.register(_end, process, Path(log.name))
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < end:
        for word in Path(log.name).read_text(encoding="utf-8").split():
            if word.startswith("http://") and "?token=" in word:
                return {**identity, "address": word}
        time.sleep(POLL_SECONDS)
    output = Path(log.name).read_text(encoding="utf-8")[-500:]
    _end(process, Path(log.name))
    raise WorkbenchError(f"the page did not start: {output or 'no output'}")


def _end(process: subprocess.Popen[bytes], log: Path) -> None:
    """End a page that this process started, when the kernel ends."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
    log.unlink(missing_ok=True)

"""The web page inside a notebook: `show_page(workspace, "dataset")` starts it for this workspace, or finds it.

The page is a process of its own, `python webui.py`, which listens to this machine alone, may be shown in a frame by
notebooks of this machine and of Colab, and ends with the kernel that started it. Its address is kept in the workspace,
readable for its owner alone, so that another notebook or a restarted kernel shows the same page:

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
# A cookie is not sent to a frame of another site: the frame uses the name by which the browser reached the notebook.
# It gets its address once: an address that is changed while it loads can be lost in the browser.
SAME_HOST = """<script>(() => {
  const frame = document.getElementById("ID"), url = frame.dataset.url;
  frame.src = location.hostname === "localhost" ? url.replace("//127.0.0.1:", "//localhost:") : url;
})()</script>"""


@dataclass(frozen=True)
class PageView:
    """A running page and the tab that is shown. As the last line of a cell it is shown in a frame.

    process: its identity (jobs.processes);  address: with the token that lets its reader in
    """

    workspace: Workspace
    process: dict[str, Any]
    address: str
    tab: Tab
    height: int

    @property
    def url(self) -> str:
        """The address of the tab, with the token."""
        return urlsplit(self.address)._replace(fragment=f"/{self.tab}").geturl()

    def stop(self) -> None:
        """End the page, in every notebook that shows it. Runs and tasks go on."""
        if not processes.request_end(self.process):
            processes.end(self.process)
        (self.workspace.root / FILE).unlink(missing_ok=True)

    def __repr__(self) -> str:
        return self.url

    def _repr_html_(self) -> str:
        frame, url = f"workbench-page-{self.tab}-{time.time_ns()}", escaped(self.url)
        style = f"width:100%;height:{self.height}px;border:1px solid rgba(127,127,127,.4)"
        link = f'<a href="{url}" target="_blank">Open the page in a tab of its own</a>'
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
    """The web page of a workspace at one of its tabs, inside the notebook; it is started where none is running.

    height: of the frame, pixels. In a plain shell the result is the address. Raises ConfigError for an unknown tab,
    WorkbenchError when the page does not start, CannotWrite.
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
    # Only its owner can read a temporary file; the log's first line holds the token.
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

"""Jobs and pages are begun by a process that has imported what is large (tests.warm_host), and are as others.

Were they not, no test would fail: all would take longer.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.driving import create
from tests.patience import PATIENCE, until, until_run
from tests.serving import ROOT, Page
from tests.warm_processes import WarmHost, WarmHosts
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.families.model import Model
from workbench.jobs import State, processes
from workbench.runs.run import Run
from workbench.workspace import Workspace, read_json

pytestmark = [
    pytest.mark.release,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="all jobs begin from nothing here"),
]


@pytest.fixture(scope="module", autouse=True)
def hosts_of_now(warm: WarmHosts) -> Iterator[None]:
    """What earlier tests imported may have set variables, after which jobs begin from nothing."""
    before = warm.jobs, warm.pages
    warm.jobs, warm.pages = WarmHost("job", processes.environment()), WarmHost("page", os.environ)
    yield
    warm.close()
    warm.jobs, warm.pages = before


@pytest.fixture
def run(workspace: Workspace, dataset: Dataset, toy_model: Model) -> Run:
    return create(workspace, toy_model.source, steps=100_000)


def test_it_is_a_process_of_its_own_and_how_it_was_killed_is_known(run: Run, warm: WarmHosts) -> None:
    run.start()
    until_run(run, lambda: run.metrics)
    process = psutil.Process(run.status.pid)
    assert process.ppid() == warm.jobs.pid != os.getpid()
    assert process.cmdline() == processes.command("workbench.trainer", run.folder)
    assert os.getsid(process.pid) == os.getpgid(process.pid) == process.pid
    outputs = [os.readlink(f"/proc/{process.pid}/fd/{number}") for number in (0, 1, 2)]
    assert outputs == [os.devnull, *[str(run.folder / jobs.LOG)] * 2]
    process.kill()
    assert run.wait(PATIENCE).state is State.DIED
    until(lambda: read_json(run.folder / jobs.PROCESS).get("signal") == signal.SIGKILL)
    assert jobs.status(run.folder).message.startswith("The process was killed")


def test_another_environment_begins_from_nothing(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_OF_THIS_TEST", "1")  # a package may look at it when it is imported
    run.start()
    assert psutil.Process(run.status.pid).ppid() == os.getpid()
    jobs.kill(run.folder)


def test_a_page_answers_and_ends_as_any_other(tmp_path: Path, warm: WarmHosts) -> None:
    page = Page(tmp_path / "workspace")
    process = psutil.Process(page.process.pid)
    assert process.ppid() == warm.pages.pid
    assert process.cmdline()[1:3] == [str(ROOT / "webui.py"), "--workspace"]
    with page.client() as client:
        assert "Video LoRA Workbench" in client.get("/").text
    page.process.send_signal(signal.SIGTERM)
    assert page.process.wait(PATIENCE) == -signal.SIGTERM
    page.close()

"""Fixtures for every test: a workspace, real clips, a small imported dataset, a random miniature model.

Nothing is faked: clips are encoded, datasets come through the real import with its child processes.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.drawing import MakeClip, draw
from tests.patience import PATIENCE
from tests.shell import Shell, run_command
from tests.warm_processes import WarmHosts, warm_hosts
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.families import families
from workbench.families.model import Model
from workbench.jobs.processes import bare_environment
from workbench.paths import ASSETS
from workbench.workspace import Workspace

HOSTS: pytest.StashKey[WarmHosts] = pytest.StashKey()  # of the process that starts the workers
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch: how many cores there are decides no bit of a test


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long tests come first, so that at the end no worker waits for one of them."""
    long = {item.path for item in items if item.get_closest_marker("long") or item.get_closest_marker("browser")}
    items.sort(key=lambda item: item.path not in long)


@contextlib.contextmanager
def environment_kept() -> Iterator[None]:
    """What is changed in the environment meanwhile, by an import too, is taken away: later jobs fit the warm hosts'."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in {*before, *os.environ} - {"PYTEST_CURRENT_TEST"}:
            if name not in before:
                del os.environ[name]
            elif os.environ.get(name) != before[name]:
                os.environ[name] = before[name]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported for the tests is no garbage: it is not looked for meanwhile."""
    gc.disable()
    try:
        with environment_kept():
            return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """A failure is written when it comes: a run that is ended from outside has then said why."""
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(FailuresAtOnce(terminal))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The workers of one run of the tests share its warm hosts."""
    if sys.platform.startswith("linux"):
        if HOSTS not in node.config.stash:
            node.config.stash[HOSTS] = WarmHosts()
        node.workerinput["warm_hosts"] = node.config.stash[HOSTS].names()


def pytest_unconfigure(config: pytest.Config) -> None:
    if hosts := config.stash.get(HOSTS, None):
        hosts.close()


class FailuresAtOnce:
    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self.terminal = terminal

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome in ("failed", "rerun"):
            self.terminal.ensure_newline()
            self.terminal.section(f"{report.nodeid} ({report.outcome} in {report.duration:.0f} s)", sep="-")
            self.terminal.line("\n".join(report.longreprtext.splitlines()[-40:]))
            for title, text in report.sections:
                self.terminal.line(f"{title}: {text[-2000:]}")


@pytest.fixture(scope="module", autouse=True)
def imports_at_rest() -> None:
    """What was imported need not be looked at by every collection, as in a job: 0.3 s each once torch is there."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def warm(request: pytest.FixtureRequest) -> Iterator[WarmHosts | None]:
    """Jobs that load torch and pages are begun by a process that has it (tests.warm_host), where the system can."""
    if not sys.platform.startswith("linux"):
        yield None
        return
    told = getattr(request.config, "workerinput", {}).get("warm_hosts")
    with warm_hosts(WarmHosts(told)) as hosts:
        yield hosts


@pytest.fixture(autouse=True)
def from_nothing(request: pytest.FixtureRequest, warm: WarmHosts | None) -> Iterator[None]:
    """Those of a test that is marked so begin from nothing, as everywhere else."""
    if warm is not None:
        warm.on = request.node.get_closest_marker("from_nothing") is None
    with environment_kept():
        yield
    if warm is not None:
        warm.on = True


@pytest.fixture
def compute(warm: WarmHosts | None) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `python SCRIPT OPTIONS`, a script of assets/, to its end; what is wrong with it fails the test."""

    def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(ASSETS / script), *options]
        how = subprocess.run if warm is None else warm.run
        environment = {**bare_environment(), "OMP_NUM_THREADS": "1"}
        return how(command, env=environment, capture_output=True, text=True, timeout=3 * PATIENCE, check=True)

    return run


@pytest.fixture(scope="session")
def make_clip() -> MakeClip:
    """Write a real mp4: make_clip(path, frames=9, size=(64, 64), fps=8, color="red") -> path."""

    def make(path: Path, frames: int = 9, size: tuple[int, int] = (64, 64), fps: float = 8, color: str = "red") -> Path:
        media.encode(draw(frames, size, color), path, fps)
        return path

    return make


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """An empty workspace."""
    return Workspace.open(tmp_path / "workspace")


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Run a command in this process, in the test's workspace: shell("dataset", "list") -> Said(code, out, err)."""
    monkeypatch.setenv("WORKBENCH_HOME", str(workspace.root))
    return functools.partial(run_command, capsys)


@pytest.fixture(scope="session")
def imported(tmp_path_factory: pytest.TempPathFactory, make_clip: MakeClip) -> Path:
    """A dataset folder of six captioned clips, 17 or 18 frames, 64x64, 8 fps, trigger word "zwx"; never change it."""
    base = tmp_path_factory.mktemp("imported")
    for number, color in enumerate(("red", "green", "blue", "yellow", "red", "blue")):
        clip = make_clip(base / "given" / f"{number}.mp4", 17 + number // 4, color=color)
        clip.with_suffix(".txt").write_text(f"a {color} square moving right, {number}")
    dataset = Dataset.create(Workspace.open(base / "workspace"), "Squares", trigger_word="zwx")
    dataset.import_files([base / "given"])
    return dataset.folder


@pytest.fixture
def dataset(workspace: Workspace, imported: Path) -> Dataset:
    """The six clips as a dataset named "squares" of this test's workspace."""
    shutil.copytree(imported, workspace.dataset("squares"))
    return Dataset.open(workspace, "squares")


@pytest.fixture(scope="session")
def toy_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A random miniature of the first family, in diffusers' layout; its `source` is the folder. Never write into it."""
    family = families()[0]
    return family.toy(tmp_path_factory.mktemp("models") / "toy", family.toys[0])

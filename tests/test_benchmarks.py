"""Every benchmark runs: in its smallest form, in a process of its own, to a table and a JSON file.

A new script in benchmarks/ is found by itself.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.patience import until
from tests.warm_host import ROOM

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = {
    path.stem: path
    for path in sorted((ROOT / "benchmarks").glob("*.py"))
    if "arguments(" in path.read_text(encoding="utf-8") and path.stem != "common"
}
WITH_A_PAGE = {name for name, path in SCRIPTS.items() if "playwright" in path.read_text(encoding="utf-8")}
LONGEST_FIRST = ("kill_resume", "waiting_runs", "grid", "sampling", "long_run", "two_ranks", "whole_command")
CASES = [pytest.param(name, marks=[pytest.mark.browser] if name in WITH_A_PAGE else []) for name in SCRIPTS]

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], int]]:
    """Wait for a script's end: its exit code. All that the session has chosen run two at a time."""
    folder = tmp_path_factory.mktemp("benchmarks")
    asked = [
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == Path(__file__) and hasattr(item, "callspec")
    ]
    asked.sort(key=lambda name: LONGEST_FIRST.index(name) if name in LONGEST_FIRST else len(LONGEST_FIRST))
    scripts = [str(SCRIPTS[name]) for name in asked]
    command = [sys.executable, "-m", "tests.benchmark_host", str(folder), "-" * ROOM, *scripts]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    codes: dict[str, int] = {}
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        reader = threading.Thread(target=lambda out: [lines.put(line) for line in out], args=(host.stdout,))
        reader.start()

        def wait(name: str) -> int:
            while name not in codes:
                until(lambda: not lines.empty() or host.poll() is not None)
                assert not lines.empty(), f"the process that runs the scripts ended with {host.poll()}"
                script, code = lines.get().split()
                codes[script] = int(code)
            return codes[name]

        wait.folder = folder  # type: ignore[attr-defined]
        yield wait
        host.kill()
        reader.join()


@pytest.mark.parametrize("name", CASES)
def test_a_benchmark_runs_in_its_smallest_form(ended: Callable[[str], int], name: str) -> None:
    code = ended(name)
    folder: Path = ended.folder  # type: ignore[attr-defined]
    assert code == 0, (folder / f"{name}.log").read_text()[-4000:]
    result = json.loads((folder / f"{name}.json").read_text())
    assert result["rows"]
    assert all(result["rows"])
    assert {"machine", "versions"} <= set(result)
    (folder / f"{name}.json").unlink()

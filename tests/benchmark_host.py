"""Runs scripts in their smallest form, each in a process forked from this one, which has imported what most need.

    python -m tests.benchmark_host FOLDER ROOM SCRIPT ...

So are the jobs that a script starts, and its pages from one that has imported Gradio (tests.warm_host; ROOM is for
their command lines). Two scripts at a time. A
script's output goes to FOLDER/NAME.log, its result to FOLDER/NAME.json; a line "NAME EXIT_CODE" on stdout says that it
has ended.
"""

from __future__ import annotations

import os
import re
import runpy
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from tests import warm_host
from tests.warm_processes import WarmHost, WarmHosts, warm_hosts
from workbench.jobs import processes

AT_ONCE = 2
PAGES = re.compile(r"tests\.(serving|browser\.server)")


class ForkedHost(WarmHost):
    """Is forked from this process, which has imported the same."""

    def __init__(self, kind: str, environment: dict[str, str], made: dict[str, str]) -> None:
        super().__init__(kind, environment)
        self._made = made

    def _start(self, asked: socket.socket, life: socket.socket) -> None:
        assert self._life is not None
        if not os.fork():
            self._life.close()
            _end_with(lambda: self._serve(asked, life))

    def _serve(self, asked: socket.socket, life: socket.socket) -> None:
        if command := warm_host.serve(asked, life, self._environment, self._made):
            warm_host.run(command)


def main(folder: Path, scripts: list[Path]) -> None:
    made = warm_host.import_for("job")
    hosts = WarmHosts(ForkedHost("job", processes.environment(), made))
    hosts.jobs.begin()  # now, while this process has one thread
    hosts.children.begin()
    if any(PAGES.search(script.read_text(encoding="utf-8")) for script in scripts):
        hosts.pages.begin()
    running: dict[int, str] = {}
    with warm_hosts(hosts):
        for script in scripts:
            while len(running) >= AT_ONCE:
                _one_ended(running)
            if not (child := os.fork()):
                _run(script, folder)
            running[child] = script.stem
        while running:
            _one_ended(running)


def _one_ended(running: dict[int, str]) -> None:
    child, status = os.wait()
    print(running.pop(child), os.waitstatus_to_exitcode(status), flush=True)


def _run(script: Path, folder: Path) -> None:
    """The script as Python would run it; this process ends with it."""
    log = os.open(folder / f"{script.stem}.log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = [str(script), "--smallest", "--json", str(folder / f"{script.stem}.json")]
    sys.path[0] = str(script.parent)
    _end_with(lambda: runpy.run_path(str(script), run_name="__main__"))


def _end_with(program: Callable[[], object]) -> NoReturn:
    """Run it, and end this process as Python would."""
    code: object = 1
    try:
        program()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
        if isinstance(code, str):
            print(code)
    except BaseException:  # noqa: BLE001 - the traceback is the test's message, and the process ends here
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(name) for name in sys.argv[3:]])

"""A child with limits: it answers task after task, and one that it does not survive costs only itself."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from workbench.jobs.limited import ChildClosed, ChildLost, LimitedChild, Watch, serve

MODULE = "tests.jobs.test_limited"


def handle(task: dict[str, Any], watch: Watch) -> str:
    if task["do"] == "crash":
        os.abort()
    while task["do"] == "spin":
        pass
    if task["do"] == "leave":
        sys.exit(7)
    return f"{task['do']} {'TOKEN' in os.environ}"


def test_tasks_are_answered_and_a_lost_one_costs_only_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    child = LimitedChild(MODULE)
    assert child.ask({"do": "one"}, 60.0) == b"one False\n"
    for task, late in (("crash", False), ("spin", True), ("leave", False)):
        with pytest.raises(ChildLost) as caught:
            child.ask({"do": task}, 1.0)
        assert caught.value.late == late
    assert caught.value.code == 7
    assert child.ask({"do": "two"}, 60.0) == b"two False\n"
    assert child.close() == 0
    assert child.close() is None
    child.kill()
    with pytest.raises(ChildClosed):
        child.ask({"do": "three"}, 60.0)


if __name__ == "__main__":
    serve(handle, ["json"])

"""Tests that wait: for as long as it takes on however slow a machine. What is measured is benchmarks' affair."""

from __future__ import annotations

import ast
from pathlib import Path

ASKING = {"get", "post", "put", "patch", "delete", "head", "options", "request", "stream", "Client", "AsyncClient"}


def test_no_answer_is_waited_for_as_short_as_httpx_does_by_itself() -> None:
    """Five seconds: too short for a page on a machine with other work."""
    short = []
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            of_httpx = isinstance(node.func.value, ast.Name) and node.func.value.id == "httpx"
            said = {one.arg for one in node.keywords}
            if of_httpx and node.func.attr in ASKING and not said & {"timeout", "transport"}:
                short.append(f"{path.name}:{node.lineno}")
    assert not short, f"{', '.join(short)}: give timeout=PATIENCE"

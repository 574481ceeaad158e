"""What the tests of operations share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from workbench.operations.registry import REGISTRY, operations
from workbench.workspace import Workspace

Call = Callable[..., Any]


@pytest.fixture
def call(workspace: Workspace) -> Call:
    """Call an operation as elements do: call("runs/show", name="cats")."""
    operations()

    def called(operation: str, /, **values: Any) -> Any:
        noun, _, verb = operation.partition("/")
        return REGISTRY[noun, verb].plain(REGISTRY[noun, verb](workspace, values))

    return called

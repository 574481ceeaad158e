"""Errors: the tree in the docstring is the tree, and exit codes are a closed list."""

from __future__ import annotations

import re

import pytest

from workbench import errors
from workbench.errors import ExitCode, NonFiniteLoss, OutOfMemory, ProcessFailed, WorkbenchError

TREE = dict(re.findall(r"(\w+) +(\d+)  ", errors.__doc__ or ""))


def subclasses() -> list[type[WorkbenchError]]:
    """Those with a code of their own."""
    return [WorkbenchError, *(one for one in WorkbenchError.__subclasses__() if one is not ProcessFailed)]


def test_the_docstring_draws_the_tree_whose_codes_are_told_apart_and_outside_the_shells_own() -> None:
    assert {one.__name__: str(int(one.exit_code)) for one in subclasses()} == TREE
    codes = [one.exit_code for one in subclasses()]
    assert len(set(codes)) == len(codes)
    assert all(code == 0 or 64 <= code <= 113 for code in ExitCode)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NonFiniteLoss("step 3: the loss is NaN"), ExitCode.NON_FINITE_LOSS),
        (OutOfMemory("no memory"), ExitCode.OUT_OF_MEMORY),
        (MemoryError("cannot allocate"), ExitCode.OUT_OF_MEMORY),
        (KeyError("x"), ExitCode.BUG),
        (ProcessFailed("Process 2 of 2: no memory", 91), ExitCode.OUT_OF_MEMORY),
        (ProcessFailed("Process 2 of 2: killed", -9), ExitCode.BUG),
    ],
)
def test_every_error_that_ends_a_job_has_a_code_and_one_line(error: Exception, code: ExitCode) -> None:
    found, sentence = errors.explain(error)
    assert found is code
    assert sentence
    assert "\n" not in sentence

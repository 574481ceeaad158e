"""Small words about what a run does."""

from __future__ import annotations

from workbench.runs.run import Run


def steps(run: Run) -> list[int]:
    """The steps it has made, as the metrics here say."""
    return [line["step"] for line in run.metrics if "loss" in line]

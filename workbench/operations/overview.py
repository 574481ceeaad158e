"""The overview: what goes on in a workspace, and what comes next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from workbench.operations.registry import Snapshot, operation
from workbench.overview import OverviewReader
from workbench.workspace import Workspace

Lines = tuple[dict[str, Any], ...]


class Overview(Snapshot):
    """What goes on in the workspace."""

    active: Lines
    """Runs that train, wait or are paused: name, state, tone, activity, share of the steps, message."""

    failed: Lines
    """Runs that failed in the last days, the same; message says why and what is next."""

    ended: Lines
    """The newest of the other runs, the same."""

    samples: Lines
    """The newest: id, video, prompt, problem."""

    datasets: Lines
    """The newest: name, title, contents, activity, next_step."""

    next_steps: Lines
    """What comes next: kind, label, reason, target."""

    machine: str
    """A disk that is nearly full; "" otherwise."""


def _watched(workspace: Workspace) -> Callable[[], Overview]:
    reader = OverviewReader(workspace)
    return lambda: overview_of(reader)


@operation(path="/status", watch=_watched, visitors="own session", by_hand="status")
def overview(workspace: Workspace) -> Overview:
    """Show what goes on: runs at work, waiting or failed, the newest samples and datasets, and what comes next."""
    return overview_of(OverviewReader(workspace))


def overview_of(reader: OverviewReader) -> Overview:
    """Return what a reader sees now; it remembers what has not changed on the disk."""
    seen = reader.read()
    kinds = ("active", "failed", "ended", "datasets", "next_steps")
    lines: dict[str, Any] = {name: tuple(asdict(one) for one in getattr(seen, name)) for name in kinds}
    samples = tuple(
        {"id": one.id, "video": str(one.path), "prompt": one.settings.prompt, "problem": one.problem}
        for one in seen.samples
    )
    return Overview(**lines, samples=samples, machine=seen.machine)

"""The overview: what is happening in a workspace, and what to do next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from workbench.operations.registry import Snapshot, operation
from workbench.overview import OverviewReader
from workbench.workspace import Workspace

Lines = tuple[dict[str, Any], ...]


class Overview(Snapshot):
    """What is happening in the workspace."""

    active: Lines
    """Runs that are training, waiting or paused: name, state, tone, activity, share of the steps, message."""

    failed: Lines
    """Runs that failed recently, likewise; message says why and what to do."""

    ended: Lines
    """The newest of the other runs, likewise."""

    samples: Lines
    """The newest: id, video, prompt, problem."""

    datasets: Lines
    """The newest: name, title, contents, activity, next_step."""

    next_steps: Lines
    """What to do next: kind, label, reason, target."""

    machine: str
    """A warning if the disk is nearly full; otherwise ""."""


def _watched(workspace: Workspace) -> Callable[[], Overview]:
    reader = OverviewReader(workspace)
    return lambda: overview_of(reader)


@operation(path="/status", watch=_watched, visitors="own session", by_hand="status")
def overview(workspace: Workspace) -> Overview:
    """Show what is happening: active, waiting and failed runs, the newest samples and datasets, what to do next."""
    return overview_of(OverviewReader(workspace))


def overview_of(reader: OverviewReader) -> Overview:
    """Return what a reader sees now; unchanged parts of the disk are not read again."""
    seen = reader.read()
    kinds = ("active", "failed", "ended", "datasets", "next_steps")
    lines: dict[str, Any] = {name: tuple(asdict(one) for one in getattr(seen, name)) for name in kinds}
    samples = tuple(
        {"id": one.id, "video": str(one.path), "prompt": one.settings.prompt, "problem": one.problem}
        for one in seen.samples
    )
    return Overview(**lines, samples=samples, machine=seen.machine)

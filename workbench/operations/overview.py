"""The overview: what is happening in a workspace, and what to do next."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from urllib.parse import quote

from workbench import jobs
from workbench.jobs import quota
from workbench.operations.registry import Snapshot, operation
from workbench.overview import OverviewReader
from workbench.workspace import Workspace, lora_names

SAMPLES = 100  # that can be found by their prompts

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
    """The newest: name, title, contents, clips (how many), activity, next_step."""

    next_steps: Lines
    """What to do next: kind, label, reason, target."""

    machine: str
    """A warning if the disk is nearly full; otherwise ""."""

    counts: dict[str, int]
    """Number of datasets, runs, runs that are running, waiting or failed recently, queued samples, LoRAs."""

    computer: dict[str, Any]
    """What jobs compute on by default: name, gpu, memory_used, memory_total and disk_free (bytes), busy (a share),
    disk_low."""

    notice: str
    """What a visitor of the public demo should know; "" for everybody else."""

    sign_in: str
    """Address at which the owner of the demo signs in; "" if there is none."""


class Object(Snapshot):
    """Something that can be opened by its name."""

    title: str
    """Its name, or the prompt of a sample."""

    kind: str
    """`run`, `dataset`, `LoRA`, `sample` or `grid`."""

    address: str
    """Address of its view, below the page's own address."""


def _watched(workspace: Workspace) -> Callable[[], Overview]:
    reader = OverviewReader(workspace)
    return lambda: overview_of(reader)


@operation(path="/status", watch=_watched, by_hand="status")
def overview(workspace: Workspace) -> Overview:
    """Show what is happening: active, waiting and failed runs, the newest samples and datasets, what to do next."""
    return overview_of(OverviewReader(workspace))


def overview_of(reader: OverviewReader) -> Overview:
    """Return what a reader sees now; unchanged parts of the disk are not read again."""
    seen, notice = reader.read(), ""
    if quota.current():
        from workbench.demo_space import limits

        notice = limits.notice()
    kinds = ("active", "failed", "ended", "datasets", "next_steps")
    lines: dict[str, Any] = {name: tuple(asdict(one) for one in getattr(seen, name)) for name in kinds}
    samples = tuple(
        {"id": one.id, "video": str(one.path), "prompt": one.settings.prompt, "problem": one.problem}
        for one in seen.samples
    )
    return Overview(
        **lines,
        samples=samples,
        machine=seen.machine,
        counts=seen.counts,
        computer=asdict(seen.computer),
        notice=notice,
        sign_in=os.environ.get("WORKBENCH_LOGIN", ""),
    )


@operation(shell=False)
def objects(workspace: Workspace) -> list[Object]:
    """List everything that has a name here: runs, datasets, LoRAs, grids, the newest samples."""
    from workbench.operations import datasets, grids, samples  # `workbench status` needs none of them

    named = [
        *(("run", status.name, ("train", status.name)) for status in jobs.jobs_in(workspace.runs)),
        *(("dataset", one.title, ("dataset", one.name)) for one in datasets.list_(workspace)),
        *(("LoRA", name, ("loras", name)) for name in lora_names.names(workspace)),
        *(("grid", one.name, ("compare", one.name)) for one in grids.list_(workspace)),
        *(("sample", one.prompt, ("sample", one.id)) for one in samples.list_(workspace, limit=SAMPLES)),
    ]
    return [
        Object(kind=kind, title=title, address="#/" + "/".join(quote(part, safe="") for part in parts))
        for kind, title, parts in named
    ]

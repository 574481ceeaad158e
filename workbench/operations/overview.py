"""The overview of a workspace: what is happening and what to do next."""

from __future__ import annotations

import os
from functools import partial
from typing import Any
from urllib.parse import quote

from workbench import jobs
from workbench.jobs import quota
from workbench.operations.registry import operation
from workbench.overview import Computer, DatasetLine, NextStep, OverviewReader, RunLine
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace, lora_names

SAMPLES = 100  # the newest samples, which `objects` lists by prompt


class Overview(Snapshot):
    """What is happening in the workspace."""

    active: tuple[RunLine, ...]
    """Runs that are training, waiting or paused: name, state, tone, activity, share (of the steps), message."""

    failed: tuple[RunLine, ...]
    """Runs that failed recently, with the same keys; message says why and what to do."""

    ended: tuple[RunLine, ...]
    """The newest of the other runs, with the same keys."""

    samples: tuple[dict[str, Any], ...]
    """The newest samples: id, video, prompt, problem."""

    datasets: tuple[DatasetLine, ...]
    """The newest datasets: name, title, contents, clips (their number), activity, next_step."""

    next_steps: tuple[NextStep, ...]
    """What to do next: kind, label, reason, target."""

    machine: str
    """A warning if the disk is nearly full; otherwise ""."""

    counts: dict[str, int]
    """Number of datasets, runs, runs that are running, waiting or failed recently, queued samples, LoRAs."""

    computer: Computer
    """The default device: name, gpu, memory_used, memory_total and disk_free (bytes), busy (0 to 1), disk_low."""

    notice: str
    """A notice for visitors of the public demo; "" for everyone else."""

    sign_in: str
    """Address where the owner of the public demo signs in; "" if there is none."""


class Object(Snapshot):
    """A named item that the page can open."""

    title: str
    """Its name; for a sample, its prompt."""

    kind: str
    """`run`, `dataset`, `LoRA`, `sample` or `grid`."""

    address: str
    """Address of its view, relative to the page."""


@operation(path="/status", watch=lambda workspace: partial(overview_of, OverviewReader(workspace)), by_hand="status")
def overview(workspace: Workspace) -> Overview:
    """Show what is happening: active and failed runs, the newest samples and datasets, and what to do next."""
    return overview_of(OverviewReader(workspace))


def overview_of(reader: OverviewReader) -> Overview:
    """Return the overview now. The reader does not read unchanged files again."""
    seen, notice = reader.read(), ""
    if quota.current():
        from workbench.demo_space import limits

        notice = limits.notice()
    samples = (
        {"id": one.id, "video": str(one.path), "prompt": one.settings.prompt, "problem": one.problem}
        for one in seen.samples
    )
    own = {"samples": tuple(samples), "notice": notice, "sign_in": os.environ.get("WORKBENCH_LOGIN", "")}
    return Overview.model_validate({**vars(seen), **own})


@operation(shell=False)
def objects(workspace: Workspace) -> list[Object]:
    """List everything that the page can open: runs, datasets, LoRAs, grids, the newest samples."""
    from workbench.operations import datasets, grids, samples  # not needed for `workbench status`

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

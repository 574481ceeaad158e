"""The overview of a workspace: what is happening and what to do next."""

from __future__ import annotations

from functools import partial
from urllib.parse import quote

from workbench import jobs
from workbench.jobs import quota
from workbench.operations.registry import operation
from workbench.overview import Overview, OverviewReader
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace, lora_names

SAMPLES = 100  # the newest samples, which `objects` lists by prompt


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
    if quota.current():
        from workbench.demo_space import limits

        return reader.read().model_copy(update={"notice": limits.notice()})
    return reader.read()


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

"""The cost of a grid before it is created: how many videos, and about how long they take. No torch.

Not covered: the time left of a grid that is being generated (state).
"""

from __future__ import annotations

from workbench.compare.axes import plan_grid
from workbench.compare.settings import GridSettings
from workbench.compare.state import work
from workbench.compare.suggestions import completed
from workbench.families import find_model
from workbench.jobs import duration
from workbench.sampler.samples import Samples
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

HISTORY = 24  # newest samples, which tell the pace


def cost(workspace: Workspace, settings: GridSettings, base: SampleSettings) -> str:
    """A sentence: how many videos, and the time at the pace of earlier samples like these. Raises ConfigError.

    base: what the samples begin with (suggestions.base_of)
    """
    if not settings.run and not settings.prompts:
        return "Choose a run, or write prompts and choose LoRAs."
    plan = plan_grid(workspace, completed(workspace, settings), base)
    rows, columns = len(plan.rows), len(plan.columns)
    text = f"{rows * columns} videos: {rows} {'row' if rows == 1 else 'rows'} by {columns} columns"
    seconds = pace(workspace, base)
    if seconds is not None:
        model = find_model(base.model)[1]
        total = sum(work(sample, model.steps) for sample in plan.samples.values())
        text += f", about {duration(total * seconds)} at the pace of earlier samples"
    return f"{text}. Videos that exist already are not generated again."


def pace(workspace: Workspace, base: SampleSettings) -> float | None:
    """Seconds for a pass of the model in earlier samples like these; None where there are none."""
    model = find_model(base.model)[1]
    for sample in Samples(workspace).history(HISTORY):
        record = sample.record
        alike = sample.settings.model in (base.model, model.id) and sample.settings.speed == base.speed
        if alike and record.get("frames") in (base.frames, None) and record.get("seconds"):
            return float(record["seconds"]) / work(sample.settings, model.steps)
    return None

"""`workbench runs` without a command: the runs as a table or as JSON, searched and in an order.

Not covered: what is searched and how groups are made (workbench.runs.listing).
"""

from __future__ import annotations

from collections.abc import Mapping

from workbench import jobs, strange_names
from workbench.cli import json_values
from workbench.cli.follow import doing
from workbench.cli.printing import print_json, say
from workbench.cli.tables import print_table
from workbench.quantities import moment
from workbench.runs import queue
from workbench.runs.listing import Order, RunListReader, by_group, matching, ordered, summary_of
from workbench.runs.run import Run
from workbench.workspace import Workspace, read_object

HEADS = ("run", "state", "step", "loss", "held-out loss", "diagnosis", "dataset", "model", "started", "ended")
NUMBERS = ("step", "loss", "held-out loss")


def print_runs(workspace: Workspace, search: str, group: str | None, order: Order, as_json: bool) -> None:
    """All that match."""
    waiting, runs = queue.order(workspace), {run.name: run for run in Run.all(workspace)}
    entries = RunListReader().read([jobs.status(run.folder) for run in runs.values()], waiting)
    found = ordered(matching(entries, search, group), order)
    if as_json:
        print_json([json_values.run_line(runs[one.name], one, doing(runs[one.name].status), waiting) for one in found])
        return
    if not found:
        say("no run matches" if runs else "no runs yet: workbench train --dataset NAME starts one")
        return
    positions = {name: f"waiting, {position} of {len(waiting)}" for position, name in enumerate(waiting, 1)}
    sections = by_group(found)
    grouped = len(sections) > 1 or bool(sections[0][0])
    rows = [
        (*([one.group] if grouped else []), *_row(runs[one.name], positions)) for _, part in sections for one in part
    ]
    print_table((*(["group"] if grouped else []), *HEADS), rows, NUMBERS)
    if strange := strange_names.sentence(strange_names.strange_in(workspace.runs, "runs"), workspace.root):
        say(strange)


def _row(run: Run, positions: Mapping[str, str]) -> tuple[str, ...]:
    status = run.status
    summary = summary_of(run, not status.state.alive)
    config = read_object(run.folder / jobs.CONFIG)  # not checked: a run of another version still has a line
    dataset, model, total = (config.get(name) for name in ("dataset", "model", "steps"))
    return (
        run.name,
        positions.get(run.name, doing(status)),
        f"{summary.step}/{total if isinstance(total, int) else '?'}",
        f"{summary.loss:.4f}" if summary.loss is not None else "",
        f"{summary.held_out[0]:.4f} > {summary.held_out[-1]:.4f}" if summary.held_out else "",
        summary.diagnosis,
        dataset if isinstance(dataset, str) else "?",
        model if isinstance(model, str) else "?",
        jobs.ago(status.started_at) if status.started_at else "",
        moment(status.ended_at) if status.ended_at and not status.state.alive else "",
    )

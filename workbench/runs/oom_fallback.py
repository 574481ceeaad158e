"""A run whose memory ran out goes on, once, with the next cheaper settings that do not change what is learned.

    runs/NAME/oom_fallback.json     {time, step, before, after, why}: settings by name as they were and as they are now

config.json stays what the person chose; a run that is started again goes on with the cheaper settings. Runs of several
processes end instead, because their ranks could not agree on a step. No torch. Not covered: releasing what the run
holds (trainer.loop).
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from workbench.errors import WorkbenchError
from workbench.families import find_model
from workbench.records import read_record
from workbench.runs.settings import TrainSettings
from workbench.settings import specs
from workbench.workspace import write_json

RECORD = "oom_fallback.json"
RECOMPUTING = ("none", "keep attention", "full", "offloaded")  # fastest first


class FallbackRecord(BaseModel):
    """What the file holds."""

    time: float
    step: int
    before: dict[str, Any]
    after: dict[str, Any]
    why: str


def record(run: Path) -> dict[str, Any]:
    """What was changed, {} of a run whose memory never ran out."""
    return dict(read_record(run / RECORD, FallbackRecord) or {})


def in_use(run: Path, settings: TrainSettings) -> TrainSettings:
    """The settings that the run computes with: its own, or the cheaper ones since its memory ran out."""
    found = record(run)
    # A person who has chosen others meanwhile knows better.
    if found and all(getattr(settings, name) == value for name, value in found["before"].items()):
        return settings.changed(**found["after"])
    return settings


def step(run: Path, settings: TrainSettings, at: int, why: str) -> str:
    """Note that the run goes on with cheaper settings; the sentence that says so, "" when there are none to go on with.

    at: the last step done; why: the error's message. Raises CannotWrite.
    """
    if not settings.oom_fallback or record(run):
        return ""
    others = cheaper(settings)
    if others is None:
        return ""
    noted = {
        "time": time.time(),
        "step": at,
        "before": others.difference(settings),
        "after": settings.difference(others),
        "why": why.strip().split("\n")[0][:300],
    }
    write_json(run / RECORD, noted)
    return sentence(noted)


def sentence(noted: dict[str, Any]) -> str:
    """The record in words, "" for an empty one."""
    if not noted:
        return ""
    titles = {spec.name: spec.title.lower() for spec in specs(TrainSettings)}
    changes = ", ".join(
        f"{titles.get(name, name)} {noted['before'].get(name)} → {value}" for name, value in noted["after"].items()
    )
    return f"Memory ran out after step {noted['step']}; the run went on with less: {changes}. It learns the same."


def cheaper(settings: TrainSettings) -> TrainSettings | None:
    """The next cheaper settings that leave what is learned as it is, bit for bit on a processor; None at the end.

    First more is computed twice, then blocks are swapped: half of them, then all.
    """
    level = RECOMPUTING.index(settings.gradient_checkpointing)
    if level + 1 < len(RECOMPUTING):
        return settings.changed(gradient_checkpointing=RECOMPUTING[level + 1])
    if settings.method != "lora":
        return None
    try:
        family, model = find_model(settings.model)
        blocks = family.facts(model).blocks
    except WorkbenchError:
        return None
    more = next((count for count in (blocks // 2, blocks) if count > settings.blocks_to_swap), None)
    return None if more is None else settings.changed(blocks_to_swap=more)

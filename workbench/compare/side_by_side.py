"""Chosen samples side by side, as the player of grids reads them: one row, in which each column is a sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workbench.compare.snapshot import details_of
from workbench.compare.state import Cell, CellState
from workbench.errors import ConfigError
from workbench.sampler.samples import Sample
from workbench.sampler.view import loras_used, title_of, width_of

FEWEST, MOST = 2, 4
LETTERS = 48  # of a prompt above its video


def side_by_side(samples: Sequence[Sample], url: Callable[[Path], str]) -> dict[str, Any]:
    """The value of the player. url: of a file. Raises ConfigError for fewer or more samples than fit."""
    if not FEWEST <= len(samples) <= MOST:
        raise ConfigError(f"{len(samples)} samples are chosen, must be {FEWEST} to {MOST} to stand side by side")
    names, same = _names(samples), len({one.settings.prompt for one in samples}) == 1
    record = samples[0].record
    return {
        "grid": " ".join(one.id for one in samples),
        "title": "Side by side",
        "reference": "the first",
        "run": "",
        "fixed": [],
        "rows": [{"prompt": title_of(samples[0]) if same else "One clock for all", "label": ""}],
        "columns": [_column(name, samples[index]) for index, name in enumerate(names)],
        "heads": [[{"text": name, "span": 1} for name in names]],
        "best": {},
        "votes": [],
        "cells": [[_cell(one, url) for one in samples]],
        "help": {},
        "progress": {"text": "", "all": 0, "done": 0, "going": False, "open": 0},
        "fps": max(float(one.record.get("fps") or 8) for one in samples),
        "frames": max(int(one.record.get("frames") or 1) for one in samples),
        "width": width_of(samples[0].settings, record) or 64,
        "height": int(record.get("height") or samples[0].settings.height or 64),
    }


def _names(samples: Sequence[Sample]) -> list[str]:
    """What tells each from the others: of prompt, LoRAs, seed, steps and guidance what differs, else the time."""
    aspects: list[list[str]] = [
        [_short(title_of(one)) for one in samples],
        [loras_used(one) for one in samples],
        [f"seed {one.record.get('seed', one.settings.seed)}" for one in samples],
        [f"{one.record.get('steps', one.settings.steps)} steps" for one in samples],
        [f"guidance {one.record.get('guidance_scale', one.settings.guidance_scale)}" for one in samples],
        [one.settings.speed for one in samples],
    ]
    different = [texts for texts in aspects if len(set(texts)) > 1]
    times = [time.strftime("%d %b, %H:%M:%S", time.localtime(one.created)) for one in samples]
    return [" · ".join(texts) for texts in zip(*(different or [times]), strict=True)]


def _short(text: str) -> str:
    return text if len(text) <= LETTERS else f"{text[: LETTERS - 1].rstrip()}…"


def _column(name: str, sample: Sample) -> dict[str, Any]:
    counts = {"won": 0, "votes": 0, "stars": int(sample.starred), "rejects": 0}
    return {
        "name": name,
        "labels": [name],
        "reference": 0,
        "base": False,
        "checkpoint": False,
        "confidence": "",
        **counts,
    }


def _cell(sample: Sample, url: Callable[[Path], str]) -> dict[str, Any]:
    cell = Cell(sample.id, sample.settings, CellState.DONE, video=sample.video, record=sample.record)
    marks = {"starred": sample.starred, "rejected": False, "message": "", "outdated": False, "measurements": []}
    return {"key": sample.id, "state": "done", "url": url(sample.video), "details": details_of(cell), **marks}

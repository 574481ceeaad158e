#!/usr/bin/env python3
"""Write the tables of docs/memory.md with the settings that *Fit to GPU* and recipes choose for each GPU.

    python scripts/write_gpu_presets.py

tests/fit/test_gpu_presets.py checks that the file is up to date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from workbench.families import find_model  # noqa: E402
from workbench.fit import levels  # noqa: E402
from workbench.fit.estimate import estimate_from_facts, pace  # noqa: E402
from workbench.fit.gpus import SIZES, gpu_of  # noqa: E402
from workbench.runs.settings import TrainSettings  # noqa: E402

FILE = ROOT / "docs/memory.md"
PART = re.compile(r"(<!-- presets of (.+?) -->\n).*?(<!-- end of presets -->)", re.DOTALL)


def table(names: list[str]) -> str:
    """Return a table with a row per GPU and a column per model."""
    titles = [find_model(name)[1].title for name in names]
    rows = [["GPU", *titles], ["---"] * (len(names) + 1)]
    rows += [[size, *(cell(name, size) for name in names)] for size in SIZES]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def cell(name: str, size: str) -> str:
    """Return the settings that fit a model on a GPU, their memory, and the time of a step."""
    family, model = find_model(name)
    known, gpu = family.facts(model), gpu_of(size)
    wanted = TrainSettings().changed(model=model.id, rank=64)
    # Hide bitsandbytes, so that the file is the same on every machine.
    with mock.patch("importlib.util.find_spec", return_value=None):
        chosen = levels.fitting_smaller(wanted, model, known, gpu).settings
    if chosen is None:
        return "nothing fits"
    fit = estimate_from_facts(chosen, model, known, gpu)
    changed = wanted.difference(chosen)
    smaller = [f"{changed['width']}x{changed['height']}"] if "height" in changed else []
    smaller += [f"{changed['frames']} frames"] if "frames" in changed else []
    base = [chosen.base_model_precision] if chosen.base_model_precision != "as stored" else []
    swapped = [f"{chosen.blocks_to_swap} blocks swapped"] if chosen.blocks_to_swap else []
    how = ", ".join([*smaller, chosen.gradient_checkpointing, *base, *swapped])
    return f"{how}: {fit.peak.gb:.1f} GB, {pace(fit.times.step)}"


def written(text: str) -> str:
    """Return the document with updated tables."""
    return PART.sub(lambda part: f"{part[1]}{table(part[2].split(', '))}{part[3]}", text)


if __name__ == "__main__":
    FILE.write_text(written(FILE.read_text(encoding="utf-8")), encoding="utf-8")

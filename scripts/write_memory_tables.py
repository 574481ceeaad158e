#!/usr/bin/env python3
"""Write the tables of docs/fit_accuracy.md that compare the fit check with simulated runs.

    python benchmarks/memory_simulation.py --json benchmarks/results/memory_simulation.json
    python scripts/write_memory_tables.py

tests/fit/test_simulated_memory.py checks that the file is up to date.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs/fit_accuracy.md"
RESULTS = ROOT / "benchmarks/results/memory_simulation.json"
PART = re.compile(r"(<!-- simulated: (.+?) -->\n).*?(<!-- end of simulated -->)", re.DOTALL)
# Table -> cases (after the model's name), which are also the headings of the columns.
COLUMNS = {
    "levels": ("training, none", "training, keep attention", "training, full", "training, offloaded"),
    "weights": (
        "training, full, fp8",
        "training, full, int8",
        "training, full, nf4",
        "training, full, half of the blocks swapped",
        "training, offloaded, nf4, all blocks swapped",
    ),
    "previews": (
        "previews, denoising",
        "encoding clips, in one piece",
        "encoding clips, in tiles",
        "previews, decoding, in tiles",
    ),
    "preview weights": (
        "previews, denoising, fp8",
        "previews, denoising, int8",
        "previews, denoising, nf4",
        "previews, denoising, half of the blocks swapped",
        "previews, denoising, nf4, all blocks swapped",
    ),
    "settings": (
        "training, full, 8-bit AdamW",
        "training, full, feed-forward too",
        "training, full, two clips",
        "training, full, all weights",
    ),
    "operations": ("training, none", "training, full", "previews, denoising"),
    "others": (),
    "causes": ("training, none", "training, full", "training, offloaded"),
}
CAUSES = ("weights", "trained", "optimizer", "inputs", "gradients", "kept", "backward")


def rows() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the results by model and case."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for row in json.loads(RESULTS.read_text(encoding="utf-8"))["rows"]:
        model, name = row["case"].split(": ", 1)
        found.setdefault(model, {})[name] = row
    return found


def table(name: str) -> str:
    made = {"causes": causes, "others": others}.get(name)
    return "".join(f"| {' | '.join(row)} |\n" for row in (made() if made else compared(name)))


def compared(name: str) -> list[list[str]]:
    """Return a row per model with estimated / simulated memory."""
    columns, keys = COLUMNS[name], ("ours", "reference")
    if name == "operations":
        keys = ("operations", "operations simulated")
    lines = [
        ["Model", *(column.removeprefix("training, ").removeprefix("previews, denoising, ") for column in columns)],
        ["---"] * (len(columns) + 1),
    ]
    for model, known in rows().items():
        cells = [_pair(known[column], keys) if column in known else "" for column in columns]
        if any(cells):
            lines.append([f"`{model}`", *cells])
    return lines


def others() -> list[list[str]]:
    """Return the cases that no other table has."""
    shown = {column for columns in COLUMNS.values() for column in columns}
    lines = [["Case", "Estimated / simulated"], ["---"] * 2]
    for model, known in rows().items():
        lines += [
            [f"{model}: {name}", _pair(row, ("ours", "reference"))] for name, row in known.items() if name not in shown
        ]
    return lines


def causes() -> list[list[str]]:
    """Return what occupies memory at the peak."""
    lines = [["Model", "Level", *CAUSES], ["---"] * (len(CAUSES) + 2)]
    for model, known in rows().items():
        for column in COLUMNS["causes"]:
            if column in known:
                cells = [_number(known[column][cause]) for cause in CAUSES]
                lines.append([f"`{model}`", column.removeprefix("training, "), *cells])
    return lines


def _pair(row: dict[str, Any], keys: tuple[str, str]) -> str:
    return " / ".join(_number(row[key]) for key in keys)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 0.95 else f"{value:.2f}"


def written(text: str) -> str:
    """Return the document with updated tables."""
    return PART.sub(lambda part: f"{part[1]}{table(part[2])}{part[3]}", text)


if __name__ == "__main__":
    FILE.write_text(written(FILE.read_text(encoding="utf-8")), encoding="utf-8")

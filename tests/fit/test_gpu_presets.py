"""The tables of docs/memory.md that say what fits which GPU are what the fit check chooses."""

from __future__ import annotations

import pytest

from scripts.write_gpu_presets import FILE, PART, cell

TABLES = {part[2]: part[0] for part in PART.finditer(FILE.read_text(encoding="utf-8"))}
NAMES = [name for names in TABLES for name in names.split(", ")]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", ["16 GB", "48 GB"])
def test_the_tables_say_what_is_chosen(name: str, size: str) -> None:
    names, text = next((names.split(", "), text) for names, text in TABLES.items() if name in names.split(", "))
    (row,) = (line for line in text.splitlines() if line.startswith(f"| {size} |"))
    assert row.strip("| ").split(" | ")[1 + names.index(name)] == cell(name, size), "run scripts/write_gpu_presets.py"

"""Shared by all benchmarks: options, machine facts, the table, the JSON file.

`--smallest` runs a script at its smallest size, in seconds. It proves that the script works but measures nothing; `make
benchmarks` runs every script this way (smallest.py).

{"machine": ..., "versions": ..., "rows": [{"case": ..., "ours": ..., "reference": ..., "ratio": ...}]}
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("torch", "diffusers", "transformers", "peft", "accelerate")


def published(model: str, part: str) -> dict[str, Any]:
    """Return the published config of a part of a known model."""
    from workbench.families import facts, find_model

    return dict(facts.published()[find_model(model)[1].source].parts[part].config)


class Smallest(argparse.Action):
    """Set the script's own options to their smallest values. Later options override them."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        for name, value in {**self.const, self.dest: True}.items():
            setattr(namespace, name, value)


def arguments(description: str, **smallest: Any) -> argparse.ArgumentParser:
    """Return a parser with the options that every benchmark has.

    smallest: values of the script's own options under `--smallest`. `options.smallest` tells that it was given.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    seconds = "the smallest form, in seconds: it shows that the script runs and measures nothing"
    parser.add_argument("--smallest", action=Smallest, nargs=0, const=smallest, default=False, help=seconds)
    return parser


def machine() -> dict[str, Any]:
    """Return the machine and package versions of a measurement."""
    here = {"system": platform.platform(), "processor": _processor(), "cores": psutil.cpu_count()}
    return {"machine": here, "versions": {name: version(name) for name in PACKAGES}}


def report(rows: Sequence[Mapping[str, Any]], path: Path | None, **more: Any) -> None:
    """Print the rows as a table, and write them with machine and versions to the file."""
    columns = list(rows[0])
    cells = [[_shown(row[column]) for column in columns] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(columns, *cells, strict=True)]
    for line in (columns, ["-" * width for width in widths], *cells):
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    if path:
        write(rows, path, **more)


def write(rows: Sequence[Mapping[str, Any]], path: Path, **more: Any) -> None:
    """Write the JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**machine(), **more, "rows": rows}, indent=2) + "\n")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _processor() -> str:
    """Return the CPU's name if the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())

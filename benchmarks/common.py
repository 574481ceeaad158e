"""What every benchmark shares: its options, the machine, the table, the JSON file.

`--smallest` runs a script in its smallest form, in seconds: it proves that the script runs and measures nothing.
`make benchmarks` runs every script here so (smallest.py).

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
    """The config of a part of a known model, as published."""
    from workbench.families import facts, find_model

    return dict(facts.published()[find_model(model)[1].source].parts[part].config)


class Smallest(argparse.Action):
    """Sets the script's own options to those of its smallest form; options that come after it win."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: Any = None) -> None:
        for name, value in {**self.const, self.dest: True}.items():
            setattr(namespace, name, value)


def arguments(description: str, **smallest: Any) -> argparse.ArgumentParser:
    """A parser with the options every benchmark has.

    smallest: what `--smallest` sets the script's own options to; `options.smallest` says that it was given
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    seconds = "the smallest form, in seconds: it shows that the script runs and measures nothing"
    parser.add_argument("--smallest", action=Smallest, nargs=0, const=smallest, default=False, help=seconds)
    return parser


def machine() -> dict[str, Any]:
    """Where and with which packages something was measured."""
    here = {"system": platform.platform(), "processor": _processor(), "cores": psutil.cpu_count()}
    return {"machine": here, "versions": {name: version(name) for name in PACKAGES}}


def report(rows: Sequence[Mapping[str, Any]], path: Path | None, **more: Any) -> None:
    """Print the rows as a table; write them with machine and versions to the file."""
    columns = list(rows[0])
    cells = [[_shown(row[column]) for column in columns] for row in rows]
    widths = [max(len(text) for text in column) for column in zip(columns, *cells, strict=True)]
    for line in (columns, ["-" * width for width in widths], *cells):
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())
    if path:
        write(rows, path, **more)


def write(rows: Sequence[Mapping[str, Any]], path: Path, **more: Any) -> None:
    """The JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**machine(), **more, "rows": rows}, indent=2) + "\n")


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.processor())

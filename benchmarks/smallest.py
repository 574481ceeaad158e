"""Run every script here in its smallest form, which shows that it runs and measures nothing: `make benchmarks`.

    python benchmarks/smallest.py [NAME ...]

Two scripts at a time, each in a process of its own. Prints a line a script, and the end of its output where it failed;
ends with 1 if any did. `make test` only asks each script whether it knows its options (tests/test_benchmarks.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
AT_ONCE = 2
LONGEST_FIRST = ("whole_command", "two_ranks", "long_run", "sampling", "grid", "waiting_runs", "kill_resume")
SHOWN = 4000  # characters of a failed script's output


def scripts() -> dict[str, Path]:
    """By name, those that are called: what has the options of `common`, the long ones first."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.py"))}
    others = (Path(__file__).name, "common.py")
    found = [path for path, text in texts.items() if "arguments" + "(" in text and path.name not in others]
    found.sort(key=lambda path: -LONGEST_FIRST.index(path.stem) - 1 if path.stem in LONGEST_FIRST else 0)
    return {path.stem: path for path in found}


def tried(path: Path, folder: Path) -> str:
    """Run a script; what is wrong, or "". Its result must have rows, the machine and the versions."""
    began, result = time.monotonic(), folder / f"{path.stem}.json"
    command = [sys.executable, str(path), "--smallest", "--json", str(result)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, cwd=HERE.parent, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    wrong = f"it ended with {done.returncode}" if done.returncode else ""
    if not wrong:
        held = json.loads(result.read_text(encoding="utf-8")) if result.exists() else {}
        if not held.get("rows") or not all(held["rows"]) or not {"machine", "versions"} <= set(held):
            wrong = "its JSON file lacks rows, machine or versions"
    print(f"{'failed' if wrong else 'ran':6}  {path.stem}  {time.monotonic() - began:.0f} s", flush=True)
    return f"{path.stem}: {wrong}\n{done.stdout[-SHOWN:]}" if wrong else ""


def main() -> int:
    known, names = scripts(), sys.argv[1:]
    if unknown := set(names) - set(known):
        print(f"there is no benchmark {', '.join(sorted(unknown))}: choose from {', '.join(sorted(known))}")
        return 2
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        chosen = [known[name] for name in names] or list(known.values())
        failures = [wrong for wrong in pool.map(lambda path: tried(path, Path(folder)), chosen) if wrong]
    print("\n".join(["", *failures] if failures else [f"{len(chosen)} benchmarks run"]))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

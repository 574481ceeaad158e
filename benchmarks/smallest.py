"""Run every script here at its smallest size, to show that it works without measuring anything: `make benchmarks`.

    python benchmarks/smallest.py [NAME ...]

It runs two scripts at a time, each in a separate process, and prints a line per script, with the end of its output if
it failed. Exits with 1 if any failed. `make test` only checks that each script knows its options
(tests/test_benchmarks.py).
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
    """Return the requested scripts by name: those with the options of `common`, the slow ones first."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.py"))}
    others = (Path(__file__).name, "common.py")
    found = [path for path, text in texts.items() if "arguments" + "(" in text and path.name not in others]
    found.sort(key=lambda path: -LONGEST_FIRST.index(path.stem) - 1 if path.stem in LONGEST_FIRST else 0)
    return {path.stem: path for path in found}


def tried(path: Path, folder: Path) -> str:
    """Run a script and return what is wrong, or "". Its result must have rows, the machine and the versions."""
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

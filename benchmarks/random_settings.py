"""Pass random settings through the shell, as flags and as JSON: accepted, or refused in a sentence, never a traceback.

    python benchmarks/random_settings.py                  300 cases
    python benchmarks/random_settings.py --count 1000 --seed 7

A case is a command and one to six of its settings: legal values, values out of bounds, of other types, and extremes
(NaN, infinity, numbers of hundreds of digits, texts of 300 and 100,000 characters, control characters, NUL, names in
other alphabets, paths that lead outside). Everything is real: accepted runs are written and put into the queue, while
another program holds the device, so that nothing trains. Exits with 1 if a case ended in a traceback or was refused
without a sentence.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import arguments, report

from workbench import jobs
from workbench.cli import main as workbench
from workbench.compare.settings import GridSettings
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.settings import CaptionSettings, CheckSettings, ExportSettings, ImportSettings, SplitTask
from workbench.demo import DEMO_CLIPS
from workbench.jobs import gpu_lock, queue
from workbench.loras.settings import MergeSettings, ResizeSettings
from workbench.runs.previews import LiveSample
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, Spec, specs
from workbench.workspace import Workspace

NUMBERS = ("0", "-1", "1e400", "-1e400", "nan", "inf", "-inf", "9" * 400, "1e-400", "²", "٣", "0x10", "1_000", " 1", "")
TEXTS = (
    "",
    " ",
    "x" * 300,
    "y" * 100_000,
    "../../etc/passwd",
    "/",
    "Été 2",
    "a\nb",
    "\x1b[31mred",
    "\udcff",
    "🎬",
    "~",
    "-1",
    "runs/x@²",
    "owner/name",
    "http://127.0.0.1:1/x",
    "=",
    "a=b=c",
    "%s",
    "{0}",
    "[bold]",
    "NaN",
    "null",
    "x/" * 3000,
)
WRONG = (
    None,
    True,
    [],
    {},
    [[]],
    [None],
    {"a": {"b": 1}},
    "x",
    "\0",
    "a\0b",
    -1,
    0,
    1.5,
    10**30,
    10**400,
    float("nan"),
    float("inf"),
    -float("inf"),
    1e308,
    2**63,
    "\ud800",
    functools.reduce(lambda inner, _: [inner], range(900), []),
)


@dataclass(frozen=True)
class Command:
    """A command, its settings, its fixed arguments, and whether it also takes settings with --config."""

    words: Sequence[str]
    settings: type[Settings]
    after: Sequence[str] = ()
    config: bool = False
    without: Sequence[str] = ()


NOT_THERE = ("--lora", "no-such-run")  # so that a legal sample, too, is refused before a model is loaded
COMMANDS = (
    Command(("train",), TrainSettings, ("--detach",), True),
    Command(("train",), TrainSettings, ("--dataset", "clips", "--detach"), True),
    Command(("fit",), TrainSettings, ("--dataset", "clips"), True),
    Command(("sample", "a cat"), SampleSettings, NOT_THERE, True, ("prompt", "loras")),
    Command(("grid", "make"), GridSettings, (*NOT_THERE, "--detach")),
    Command(("runs", "live-sample", "no-such-run"), LiveSample),
    Command(("loras", "merge", "no-such-run"), MergeSettings, (), False, ("loras",)),
    Command(("loras", "resize", "no-such-run"), ResizeSettings, (), False, ("lora",)),
    Command(("dataset", "split", "no-such-dataset"), SplitTask, (), False, ("clips",)),
    Command(("dataset", "check", "no-such-dataset"), CheckSettings),
    Command(("dataset", "auto-caption", "no-such-dataset"), CaptionSettings, (), False, ("chosen",)),
    Command(("dataset", "import", "new", "/no/such/folder"), ImportSettings, (), False, ("sources", "dataset")),
    Command(("dataset", "export", "no-such-dataset", "/no/such"), ExportSettings, (), False, ("target",)),
)
# What is not a setting, and takes numbers, names and paths from a person as well.
OTHERS = tuple(
    line.split()
    for line in """
    dataset trim clips {clip} {number} {number}
    dataset set-fps clips {clip} --fps {number}
    dataset split-at clips {clip} {number}
    dataset show {text}
    dataset import {text} {text}
    train --fork {text}
    train --clone {text}
    train --config {text}
    train --model {text} --dataset clips --detach
    train --sweep {text} --dataset clips
    train --dataset clips --name {text} --detach
    fit --model {text}
    runs show {text}
    runs report {text}
    runs star {text} {number}
    runs queue --move {text} {number}
    loras show {text}
    loras import {text}
    grid show {text}
    sample cat --config {text}
    publish lora {text} --dry-run
    --workspace {text} runs
""".strip().splitlines()
)


def main() -> None:
    parser = arguments(__doc__ or "", count=12)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ |= {"WORKBENCH_HOME": f"{folder}/workspace", "HF_HUB_OFFLINE": "1", "HF_HOME": f"{folder}/home"}
        workspace = Workspace.open()
        Dataset.create(workspace, "Clips").import_files(sorted(DEMO_CLIPS.glob("*/*.mp4"))[:4])
        try:
            with gpu_lock.hold(workspace.locks, "", "the benchmark"):
                rows, said = measure(Path(folder), workspace, random.Random(chosen.seed), chosen.count)
        finally:
            for one in (queue.STARTER, *(path.name for path in workspace.runs.glob("*/")), queue.STARTER):
                jobs.kill(workspace.runs / one)
    report(rows, chosen.json)
    print("\n\n".join(said))
    sys.exit(bool(said))


def measure(
    folder: Path, workspace: Workspace, chance: random.Random, count: int
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a row for each way to pass settings, and the failures with the command that shows each."""
    ways = ("flags", "JSON", "other words")
    rows = {way: {"case": way, "asked": 0, "taken": 0, "refused": 0, "tracebacks": 0} for way in ways}
    wrong = []
    clip = Dataset.open(workspace, "clips").clips[0].id
    for number in range(count):
        way = ways[number % 3]
        words = command_line(folder, way, chance, clip)
        code, said, trace = ask(words)
        row = rows[way]
        row["asked"] += 1
        row["tracebacks"] += bool(trace)
        row["taken" if code == 0 else "refused"] += not trace
        if trace or (code and not said.strip()):
            wrong.append(
                f"workbench {' '.join(repr(word[:200]) for word in words)}\n{trace or 'refused without a word'}"
            )
    return list(rows.values()), wrong


def command_line(folder: Path, way: str, chance: random.Random, clip: str) -> list[str]:
    """Return the words of one command."""
    if way == "other words":
        known = {"{clip}": (clip,), "{number}": NUMBERS, "{text}": TEXTS}
        return [chance.choice(known[word]) if word in known else word for word in chance.choice(OTHERS)]
    command = chance.choice([one for one in COMMANDS if one.config or way == "flags"])
    settings = [spec for spec in specs(command.settings) if spec.name not in command.without]
    some = chance.sample(settings, min(len(settings), chance.randint(1, 6)))
    share = chance.choice((0.5, 1.0))  # of legal values
    if way == "JSON":
        path = folder / "settings.json"
        path.write_text(json.dumps({spec.name: json_value(spec, chance, share) for spec in some}))
        return [*command.words, "--config", str(path), *command.after]
    return [*command.words, *(word for spec in some for word in flag(spec, chance, share)), *command.after]


def json_value(spec: Spec, chance: random.Random, share: float) -> Any:
    """Return a legal value with this probability, else one of any kind."""
    if chance.random() < share:
        return legal(spec, chance)
    return chance.choice([*WRONG, *TEXTS, legal(spec, chance)])


def flag(spec: Spec, chance: random.Random, share: float) -> list[str]:
    """Return the same as a flag and its text."""
    name = "--" + spec.name.replace("_", "-")
    if spec.kind == "switch":
        return [chance.choice([name, f"--no-{name[2:]}"])]
    value = legal(spec, chance) if chance.random() < share else chance.choice([*NUMBERS, *TEXTS])
    texts = ["" if one is None else str(one) for one in (value if isinstance(value, list) else [value])]
    return [word for text in texts for word in (name, text)]


def legal(spec: Spec, chance: random.Random) -> Any:
    """Return a value within the bounds, often at one of them."""
    if spec.choices:
        return chance.choice(spec.choices)
    low, high = spec.low if spec.low is not None else 0, spec.high if spec.high is not None else 10_000
    if spec.kind == "integer":
        return int(chance.choice([low, high, chance.randint(int(low), int(high))]))
    if spec.kind == "number":
        return float(chance.choice([low, high, chance.uniform(low, high)]))
    if spec.kind == "switch":
        return chance.random() < 0.5
    default = list(spec.default) if isinstance(spec.default, tuple) else spec.default
    return chance.choice([default, ["clips"] if spec.kind == "texts" else "clips"])


def ask(words: Sequence[str]) -> tuple[int, str, str]:
    """Run a command in this process and return (exit code, output, traceback or "")."""
    # As a shell's: what cannot be encoded is an error on stdout, and is written otherwise on stderr.
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", "backslashreplace", write_through=True)
    code, trace = 0, ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            workbench(list(words))
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except Exception:  # noqa: BLE001 - this is what it looks for
            trace = traceback.format_exc(limit=-4)
    said = b"".join(one.buffer.getvalue() for one in (out, err)).decode()  # type: ignore[attr-defined]
    return code, said, trace or ("Traceback in its output:\n" + said if "Traceback (most recent" in said else "")


if __name__ == "__main__":
    main()

"""Strange names and nonsense in files, in every folder of a workspace: left out or shown as bad; all else works."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.loras.making import layer, write_lora
from tests.shell import Shell
from tests.written_run import add_preview, write_run
from workbench import jobs
from workbench.compare.grid import Grid
from workbench.dataset_builder import Dataset
from workbench.jobs import queue
from workbench.loras.library import all_loras
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.runs.snapshot import snapshot
from workbench.runs.view import videos
from workbench.sampler.samples import Samples
from workbench.workspace import Workspace, read_json, write_json
from workbench.workspace.strange_names import RULES, strange_names

COPIES = ("step-00000010.bak", "step-00000020 (copy)", "step-²", "Été", "a..b", "step-1")  # of healthy folders
SLUGS = {"step-00000010.bak", "step-1"}  # of these, names that a run or a dataset may have
FILES = ("x.bak", "notes.txt", "step-00000030")
NONSENSE: dict[str, bytes | None] = {
    "deep": b"[" * 100_000, "deeper": b'{"a":' * 100_000, "null": b"null", "a list": b"[1, null, {}]", "text": b'"x"',
    "bytes": b"\xff\xfe\x00\x01" * 10, "nothing": b"", "a folder": None,
}  # fmt: skip
VALUES = (None, [], {}, "x", float("inf"), float("nan"), -1, 10**400, True, [[]], {"a": [1]}, [None, 1])


@pytest.fixture
def bad(workspace: Workspace, make_clip: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run with everything that a run may have, beside a healthy one."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # hundreds of files are written and thrown away
    clip = make_clip(tmp_path / "clip.mp4")
    write_run(workspace, "good", steps=20)
    run = write_run(workspace, "bad", steps=20)
    for stem, more in (("0", {}), ("0-scale-0.5", {"scale": 0.5}), ("live-0", {})):
        add_preview(run, 10, clip, stem=stem, **more)
    changed = {"run": "good", "step": 10, "changed": {"rank": [4, 8]}, "dropped": ["x"]}
    write_json(run.folder / "parent.json", changed)
    less = {"time": 1.0, "step": 3, "before": {"rank": 4}, "after": {"rank": 4}, "why": "x"}
    write_json(run.folder / "oom_fallback.json", less)
    write_json(run.folder / jobs.HEARTBEAT, {"phase": "x", "step": 1, "total": 2, "time": 1.0, "still": 1})
    write_lora(run.folder / "lora.safetensors", layer("blocks.0.attn1.to_q", 2, 8, 8), 2.0)
    shutil.copy(run.folder / "lora.safetensors", run.folder / "checkpoints" / "step-00000010")
    made = workspace.root / "loras" / "made"
    made.mkdir(parents=True)
    shutil.copy(run.folder / "lora.safetensors", made)
    source = {"name": "runs/good", "weight": 1.0, "sha256": "0"}
    write_json(made / "lora.json", {"title": "t", "made_of": [source], "steps": 3, "time": 1.0})
    checkpoints.choose_best(run.folder, 10, "why")
    return run


def read_all(shell: Shell, workspace: Workspace) -> None:
    """Every list and view of shell, page and notebook: none fails, and the healthy run is in each."""
    for words in (
        ("runs",), ("runs", "show", "bad"), ("runs", "report", "bad"), ("runs", "compare", "good", "bad"),
        ("runs", "queue"), ("runs", "prune", "bad", "--keep", "2"), ("loras", "list"),
        ("loras", "show", "loras/made"),
    ):  # fmt: skip
        said = shell(*words)
        assert said.code == 0 or "\n" not in said.err.strip(), (words, said)
        assert words != ("runs",) or (said.code == 0 and "good" in said.out), said
    all_loras(workspace, checkpoints=True)
    assert snapshot(Run(workspace.run("good")))
    snapshot(Run(workspace.run("bad")))
    run = Run(workspace.run("bad"))
    run._repr_html_()
    videos(snapshot(run))


def files(workspace: Workspace, run: Run) -> list[Path]:
    names = (
        "config.json", "process.json", "heartbeat.json", "result.json", "parent.json", "metrics.jsonl",
        "sessions.jsonl", "stars.json", "best.json", "oom_fallback.json", "dataset.lock.json", "published.json",
        "README.md", "job.log", "remote.json", "waiting.json", ".summary.json", ".curves.jsonl", "lora.safetensors",
        "previews/step-00000010/0.json", "previews/step-00000010/0-scale-0.5.json",
        "previews/step-00000010/live-0.json", "checkpoints/step-00000010/MANIFEST.json",
    )  # fmt: skip
    loras = workspace.root / "loras"
    found = [loras / "stars.json", loras / "made" / "lora.json", workspace.runs / queue.QUEUE]
    return [*(run.folder / name for name in names), *found]


def test_nonsense_in_any_file_of_a_run_costs_that_file_alone(shell: Shell, workspace: Workspace, bad: Run) -> None:
    read_all(shell, workspace)
    before = {path: path.read_bytes() if path.exists() else None for path in files(workspace, bad)}
    for content in NONSENSE.values():  # whole files, all at once: no reader stops at the first
        for path in before:
            path.unlink(missing_ok=True)
            path.mkdir() if content is None else path.write_bytes(content)
        read_all(shell, workspace)
        for path, data in before.items():
            path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
            if data is not None:
                path.write_bytes(data)
    read_all(shell, workspace)
    for value in VALUES:  # every key of every record has a value of another type
        for path, data in before.items():
            if data is not None and path.suffix in (".json", ".jsonl"):
                path.write_text("\n".join(wrong(line, value) for line in lines_of(path, data)) + "\n")
        read_all(shell, workspace)


def lines_of(path: Path, data: bytes) -> list[Any]:
    texts = data.decode().splitlines() if path.suffix == ".jsonl" else [data.decode()]
    return [json.loads(text) for text in texts]


def wrong(line: Any, value: Any) -> str:
    """The record with the value in place of everything it holds, but for a line's step, by which it is known."""
    if isinstance(line, list):
        return json.dumps([value for _ in line])
    return json.dumps({key: each if key == "step" else value for key, each in line.items()})


def test_one_bad_line_of_metrics_breaks_nothing(shell: Shell, workspace: Workspace, bad: Run) -> None:
    with (bad.folder / "metrics.jsonl").open("a") as file:
        for value in VALUES:
            file.write(json.dumps({"step": 20, "loss": value, "samples": value, "held_out_bands": [value]}) + "\n")
            file.write(json.dumps({"step": value, "loss": 0.5}) + "\n")
        file.write("[" * 100_000 + "\n" + json.dumps({"step": 21, "loss": 0.25}) + "\n")
    assert bad.metrics[-1] == {"step": 21, "loss": 0.25}
    assert "21/20" in shell("runs").out


def test_strange_names_anywhere_are_left_out_and_named(
    shell: Shell, workspace: Workspace, bad: Run, dataset: Dataset
) -> None:
    whole = bad.folder / "checkpoints" / "step-00000010"
    preview = bad.folder / "previews" / "step-00000010"
    sources = {
        "datasets": dataset.folder,
        "runs": bad.folder,
        "loras": workspace.root / "loras" / "made",
        "runs/*/checkpoints": whole,
        "runs/*/previews": preview,
    }
    expected = set[Path]()
    for pattern in RULES:
        parent = workspace.root / pattern.replace("*", "bad")
        parent.mkdir(exist_ok=True)
        for name in COPIES:
            if pattern in sources:
                shutil.copytree(
                    sources[pattern], parent / name, ignore=shutil.ignore_patterns("checkpoints", "previews")
                )
            else:
                (parent / name).mkdir()
        for name in FILES:
            (parent / name).write_text("x")
        named = "*" not in pattern and pattern not in ("samples", "cache", "locks")
        expected |= {parent / name for name in (*COPIES, *FILES) if not (named and name in SLUGS)}
    steps = [10, 20]
    assert (bad.checkpoints, checkpoints.doomed(bad.folder, 5), [one.step for one in bad.previews]) == (steps, [], [10])
    assert {run.name for run in Run.all(workspace)} == {"good", "bad", *SLUGS}
    assert {one.name for one in Dataset.all(workspace)} == {"squares", *SLUGS}
    assert not Grid.all(workspace)
    assert not Samples(workspace).history()
    read_all(shell, workspace)
    assert shell("runs", "star", "bad", "20").code == 0
    assert checkpoints.starred(bad.folder) == [10, 20]

    assert set(strange_names(workspace)) == expected
    assert "'runs/notes.txt'" in shell("runs").out
    assert "'checkpoints/step-00000010.bak'" in shell("runs", "show", "bad").out
    assert "ignored, because the workbench did not create them: 'cache/" in shell("doctor", "--quick").out
    assert read_json(bad.folder / "stars.json") == {"checkpoints": [10, 20]}


def test_a_lora_whose_header_is_whole_and_odd_is_bad_or_read_without_what_is_odd(
    shell: Shell, workspace: Workspace, bad: Run
) -> None:
    """Numbers that are none, and notes too deep to be read, in a header that is otherwise right."""
    path = bad.folder / "lora.safetensors"
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    name = next(key for key in json.loads(data[8:end]) if key != "__metadata__")
    tensors = workspace.root / "loras" / "made" / "lora.safetensors"
    notes = "lora_adapter_metadata"
    for key, value in (
        ("shape", [float("inf"), 2]), ("shape", [-1, 2]), ("data_offsets", [0, float("inf")]),
        ("data_offsets", [0, 10**400]), (notes, json.dumps({"transformer.lora_alpha": 10**400})),
        (notes, json.dumps({"transformer.lora_alpha": float("inf")})), (notes, "[" * 100_000), (notes, "null"),
    ):  # fmt: skip
        header = json.loads(data[8:end])
        header["__metadata__" if key == notes else name][key] = value
        head = json.dumps(header).encode()
        for file in (path, tensors):
            file.write_bytes(len(head).to_bytes(8, "little") + head + data[end:])
        read_all(shell, workspace)
        found = {one.name: one for one in all_loras(workspace)}["loras/made"]
        assert found.sound or found.alpha is None, (key, value)

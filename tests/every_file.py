"""A workspace with every kind of file, ways to damage one of them, and everything that reads them.

`benchmarks/damaged_files.py` goes through all damages of all files, tests/faults/test_damaged_files.py through some.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import click
from starlette.testclient import TestClient

from tests.drawing import draw
from tests.loras.making import layer, put_lora, write_lora
from tests.test_overview import add_sample
from tests.written_grid import write_grid
from tests.written_run import add_preview, write_run
from workbench import choices, jobs
from workbench.cli import cli
from workbench.clips import media
from workbench.compare.grid import Grid
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, WorkbenchError
from workbench.jobs import queue
from workbench.loras.library import all_loras
from workbench.operations.registry import Operation, operations
from workbench.runs import checkpoints
from workbench.runs.recipes import load_preset, preset_names, save_preset
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler.samples import Samples
from workbench.sampler.settings import SampleSettings
from workbench.settings import Source, specs
from workbench.workspace import Workspace, append_line, write_json, write_text

LEFT_ALONE = re.compile(r".*\.lock|.*\.room|.*\.tmp|.*\.log")  # job.log is among the files: see `files`
VALUES: tuple[Any, ...] = (
    None, True, -1, 1.5, 10**400, float("nan"), float("inf"), "x", "\ud800", "\x1b[31m", [], [[]], [None, 1], {},
    {"a": [1]},
)  # fmt: skip


# ---- the workspace


def fill(workspace: Workspace) -> None:
    """Write one object of each kind that is never damaged ("good"), and one that is ("bad")."""
    given = workspace.root.parent / "given"
    for number in range(3):
        media.encode(draw(9 + number, (32, 32), "red"), given / f"{number}.mp4", 8)
        (given / f"{number}.txt").write_text(f"a red square, {number}")
    (given / "broken.mp4").write_bytes(b"no video")
    dataset = Dataset.create(workspace, "bad", trigger_word="zwx")
    dataset.import_files([given])
    dataset.set_caption(dataset.clips[0].file_name, "another caption")
    dataset.remove(dataset.clips[2].file_name)
    dataset.tag("night", dataset.clips[0].file_name)
    dataset.undo()
    dataset.write_notes("some notes")
    dataset.set_group("pets")
    dataset.check()
    shutil.copytree(dataset.folder, workspace.dataset("good"))
    task = workspace.dataset("bad") / ".import"
    shutil.copytree(workspace.dataset("bad") / ".check", task, dirs_exist_ok=True)
    (task / "measures.jsonl").unlink(missing_ok=True)
    (task / "findings.json").unlink(missing_ok=True)
    (task / "tokens.json").unlink(missing_ok=True)
    write_json(task / "config.json", {"sources": [str(given)], "dataset": "bad"})
    file = {"name": "0.mp4", "outcome": "taken", "note": ""}
    write_json(
        task / "result.json",
        {"status": "finished", "exit_code": 0, "message": "", "counts": {"taken": 1}, "files": [file], "problems": []},
    )
    write_json(workspace.datasets / ".former_names.json", {"old": "bad"})
    clip = given / "0.mp4"
    for name in ("good", "bad"):
        _fill_run(workspace, name, clip)
    waits = Run.create(workspace, TrainSettings(dataset="good", steps=10, held_out=1), "waits")
    jobs.put_off(waits.folder, "workbench.trainer", {}, contextlib.nullcontext())
    write_json(workspace.runs / queue.QUEUE, ["waits"])
    for name in ("good", "bad"):
        tensors = layer("blocks.0.attn1.to_q", 2, 8, 8)
        source = {"name": "runs/good", "weight": 1.0, "sha256": "0"}
        put_lora(workspace, name, tensors, 2.0, made_of=[source], steps=3, how="merged", summary="merged of one")
    write_json(workspace.root / "loras" / "stars.json", {"loras": ["loras/good"]})
    gone = workspace.root / "loras" / ".removed" / "gone"
    shutil.copytree(workspace.root / "loras" / "bad", gone)
    removed = {"name": "loras/gone", "title": "gone", "from": "loras/gone", "files": 2, "bytes": 9, "time": time.time()}
    write_json(gone / "removed.json", removed)
    job = workspace.root / "loras" / ".jobs" / "one"
    write_json(job / "config.json", {"task": "merge", "loras": ["loras/good", "loras/bad"], "name": "made"})
    write_json(job / "result.json", {"status": "finished", "exit_code": 0, "message": "", "made": "loras/bad"})
    for prompt in ("a good sample", "a bad sample"):
        add_sample(workspace, prompt, "runs/good")
    (day,) = workspace.samples.glob("2*")
    (starred, *_) = sorted(path.stem for path in day.glob("*.json"))
    Samples(workspace).star(starred)
    removed_one = add_sample(workspace, "a removed sample")
    Samples(workspace).remove(removed_one)
    worker = workspace.samples / ".worker"
    settings = SampleSettings(prompt="waits").model_dump(mode="json")
    for part, stem, more in (
        ("failed", "20260101-000000-000001-aaaa", {"message": "no room", "exit_code": 70}),
        ("done", "20260101-000000-000002-aaaa", {"into": "grids/x/cells/y"}),
        ("progress", "20260101-000000-000003-aaaa", {"phase": "generating", "step": 1, "total": 2}),
        ("active", "20260101-000000-000003-aaaa", {"settings": settings, "into": "", "bulk": False}),
        ("requests", "20260101-000000-000004-aaaa", {"settings": settings, "into": "", "bulk": False}),
    ):
        write_json(worker / part / f"{stem}.json", {"settings": settings, "into": "", **more} | more)
    write_json(worker / "config.json", {})
    this = jobs.processes.identity(os.getpid())  # as if this process sampled: nothing starts another one
    write_json(worker / "process.json", {**this, "module": "workbench.sampler", "started_at": time.time()})
    write_json(worker / "heartbeat.json", {"phase": "sampling", "step": 0, "total": 0, "time": time.time() + 3000})
    for _ in range(2):
        grid = write_grid(workspace)
        key = grid.state().cells[0][0].key
        write_json(grid.folder / "requests.json", {key: "20260101-000000-000001-aaaa"})
        vote = {"left": key, "right": key, "chosen": "", "time": 1.0}
        best = {"column": "x", "step": 100, "why": "", "time": 1.0}
        write_json(grid.folder / "marks.json", {"stars": [key], "rejects": [], "votes": [vote], "best": best})
        measured = {"version": 1, "reference": 1, "distance": 1.0, "psnr": 30.0, "motion": 1.0, "sharpness": 0.5}
        near = {"nearest": "a.mp4", "nearest_difference": 0.5, "copied": False}
        write_json(grid.folder / "measurements.json", {"cells": {key: measured | near}})
    settings_of_run = TrainSettings(dataset="good", steps=10)
    for name in ("good", "bad"):
        save_preset(workspace, name, settings_of_run)
        target = {"kind": "ssh", "host": "somewhere", "python": "python3", "folder": "work"}
        write_json(workspace.root / "targets" / f"{name}.json", target)
    write_json(workspace.root / "publishing" / "lora--bad" / "config.json", {"name": "runs/bad", "repo_id": "a/b"})
    pushed = {"status": "finished", "exit_code": 0, "message": "", "url": "https://x", "commit": "0", "changed": True}
    write_json(workspace.root / "publishing" / "lora--bad" / "result.json", pushed)
    write_json(workspace.root / "models" / "fused" / "fused.json", {"model": "tiny", "made_of": [], "time": 1.0})
    write_text(workspace.root / ".page-key", "0" * 64)


def _fill_run(workspace: Workspace, name: str, clip: Path) -> None:
    run = write_run(workspace, name, steps=20)
    TrainSettings(dataset="good", steps=20).save(run.folder / jobs.CONFIG)
    for stem, more in (("0", {}), ("0-scale-0.5", {"scale": 0.5}), ("live-0", {}), ("control-0", {"kind": "control"})):
        add_preview(run, 10, clip, stem=stem, **more)
    write_json(run.folder / "parent.json", {"run": "good", "step": 10, "changed": {"rank": [4, 8]}, "dropped": ["x"]})
    less = {"time": 1.0, "step": 3, "before": {"rank": 4}, "after": {"rank": 4}, "why": "x"}
    write_json(run.folder / "oom_fallback.json", less)
    write_json(run.folder / jobs.HEARTBEAT, {"phase": "x", "step": 20, "total": 20, "time": time.time(), "still": 1})
    write_lora(run.folder / "lora.safetensors", layer("blocks.0.attn1.to_q", 2, 8, 8), 2.0, base_model="tiny")
    for step in (10, 20):
        folder = run.folder / "checkpoints" / f"step-{step:08d}"
        shutil.copy(run.folder / "lora.safetensors", folder)
        write_json(folder / "state.json", {"step": step, "settings": {}, "versions": {}, "precision": "fp32"})
    write_text(run.folder / "README.md", "# A run\n")
    write_text(run.folder / "job.log", "a line\nanother line\n")
    run.write_notes("some notes")
    run.set_group("pets")
    write_json(run.folder / "published.json", {"repo_id": "a/b", "url": "https://x", "commit": "0", "time": 1.0})
    visible = {"step": 20, "time": time.time(), "preview_changes": [9.0], "control_changes": [1.0]}
    append_line(run.folder / "metrics.jsonl", json.dumps({**visible, "visible_effects": [9.0], "visible_effect": 9.0}))
    write_json(run.folder / "tracker.json", {"run": "x"})
    checkpoints.choose_best(run.folder, 10, "why")


def files(workspace: Workspace) -> dict[str, Path]:
    """The files that may be damaged, one of each kind: the kind -> the file of an object that is called bad."""
    found: dict[str, Path] = {}
    for path in sorted(workspace.root.rglob("*")):
        relative = path.relative_to(workspace.root).as_posix()
        if not path.is_file() or path.is_symlink() or path.suffix in (".mp4", ".jpg", ".png", ".star", ".webp"):
            continue
        if LEFT_ALONE.fullmatch(path.name) and path.name != jobs.LOG:
            continue
        if re.search(r"(^|/)(good|first)[./]", relative) or relative.startswith(("cache/page", "locks")):
            continue
        kind = re.sub(r"[0-9a-f]{16,}|\d{8}-\d{6}-\d{6}-[0-9a-f]{4}|\d{4}-\d\d-\d\d", "*", relative)
        found.setdefault(re.sub(r"step-\d+|(?<=history/)\d+", "*", kind), path)
    return found


# ---- damages


def damages(data: bytes, chance: random.Random) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """The ways in which a file may be damaged: a name, and what does it."""

    def at() -> int:
        return chance.randrange(max(1, len(data)))

    def put(new: bytes) -> Callable[[Path], None]:
        return lambda path: _write(path, new)

    for number in range(4):
        place = at()
        flipped = bytes([*data[place : place + 1]][0:1] or [0])[0] ^ (1 << chance.randrange(8)) if data else 1
        yield f"bit {number}", put(data[:place] + bytes([flipped]) + data[place + 1 :])
    for number in range(3):
        place = at()
        yield f"0xff {number}", put(data[:place] + b"\xff" + data[place:])
    place = at()
    yield "high byte", put(data[:place] + bytes([0x80 + chance.randrange(128)]) + data[place + 1 :])
    yield "cut", put(data[: at()])
    yield "empty", put(b"")
    place = at()
    yield "zeros", put(data[:place] + bytes(min(64, len(data) - place)) + data[place + 64 :])
    yield "all zeros", put(bytes(len(data)))
    for name, text in (
        ("list", b"[1, null, {}]"), ("null", b"null"), ("number", b"17"), ("text", b'"x"'),
        ("huge number", b"1" + b"0" * 5000), ("float", b"1e999"), ("NaN", b"NaN"), ("object", b"{}"),
        ("deep list", b"[" * 100_000 + b"]" * 100_000), ("deep object", b'{"a":' * 100_000),
        ("surrogate", b'{"text": "\\ud800", "title": "\\udfff"}'),
    ):  # fmt: skip
        yield name, put(text + b"\n")
    lines = data.splitlines(keepends=True) or [b""]
    line = chance.randrange(len(lines))
    yield "line twice", put(b"".join([*lines[: line + 1], *lines[line:]]))
    yield "CRLF", put(data.replace(b"\n", b"\r\n"))
    yield "BOM", put(b"\xef\xbb\xbf" + data)
    yield "UTF-16", put(data.decode(errors="replace").encode("utf-16"))
    yield "folder", lambda path: (path.unlink(), path.mkdir())[0]
    yield "dangling link", lambda path: (path.unlink(), path.symlink_to("nowhere"))[0]
    yield "endless link", lambda path: (path.unlink(), path.symlink_to(path.name))[0]
    for number in range(6):  # in place of a value
        if (changed := _changed(data, chance)) is not None:
            yield f"value {number}", put(changed)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.utime(path, ns=(time.time_ns(), time.time_ns()))


def _changed(data: bytes, chance: random.Random) -> bytes | None:
    """A JSON file, or a line of JSON Lines, with one value, at any depth, replaced by another or left out."""
    lines = data.split(b"\n")
    whole = len(lines) < 3 or lines[0].strip() in (b"{", b"[")
    number = 0 if whole else chance.randrange(len(lines) - 1)
    try:
        value = json.loads(data if whole else lines[number])
    except ValueError:
        return None
    places: list[tuple[Any, Any]] = []

    def walk(one: Any) -> None:
        keys = one if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in keys:
            places.append((one, key))
            walk(one[key])

    walk(value)
    if not places:
        return None
    holder, key = chance.choice(places)
    if chance.random() < 0.15:
        del holder[key]
    else:
        holder[key] = chance.choice(VALUES)
    new = json.dumps(value).encode()
    return new + b"\n" if whole else b"\n".join([*lines[:number], new, *lines[number + 1 :]])


@contextlib.contextmanager
def damaged(path: Path, damage: Callable[[Path], None]) -> Iterator[None]:
    """The file is damaged meanwhile."""
    data, times = path.read_bytes(), path.stat()
    damage(path)
    try:
        yield
    finally:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        os.utime(path, ns=(times.st_atime_ns, time.time_ns()))


# ---- readers

# What reads more than lists, by the folder of a damaged file: a pattern of the readers' names.
ABOUT = {
    "datasets": r"datasets? |/datasets|fit", "runs": r"runs? |/runs|loras show runs", "loras": r"loras show",
    "grids": r"grid ", "samples": r"samples|grid ", "presets": r"preset",
}  # fmt: skip


class Failure(NamedTuple):
    """What went wrong. reader: which one;  what: an error, or what its answer lacks"""

    reader: str
    what: str


class Readers:
    """Everything that a face reads of a workspace, in this process."""

    def __init__(self, workspace: Workspace, page: bool = True) -> None:
        self.workspace = workspace
        from workbench.api.app import api

        self.client = TestClient(api(workspace))
        self.names = {
            "dataset": [one.name for one in Dataset.all(workspace)],
            "run": [run.name for run in Run.all(workspace)],
            "grid": [grid.name for grid in Grid.all(workspace)],
            "lora": [lora.name for lora in all_loras(workspace)],
            "sample": [one.id for one in Samples(workspace).history()],
        }
        self.views = list(_views(workspace)) if page else []

    def failures(self, kind: str = "", damage: str = "") -> Iterator[Failure]:
        """Read all lists, and what is about such a kind of file ("" for every kind); what went wrong.

        Behind a link that leads nowhere there is no file: then the object need not be listed. Without the page's
        views, one kind is read as text, as JSON or by text and API, by lot: the operations below are the same.
        """
        about = ABOUT.get(kind.split("/")[0], "")
        lot = random.Random(kind).choice(("text", "JSON", "API")) if kind and not self.views else "all"
        forms = {"all": ((), ("--json",)), "JSON": (("--json",),)}.get(lot, ((),))
        for name, call, expected in self._calls(forms):
            if name.startswith("GET") and lot not in ("API", "all"):
                continue
            if kind and expected is None and not (about and re.search(about, name)):
                continue
            try:
                # What reads is to start no worker for the requests that wait, nor to end them.
                with patch.object(jobs, "start"), patch.object(queue.Requests, "fail"):
                    answer = call()
            except WorkbenchError as error:
                if expected is not None:
                    yield Failure(name, f"refused: {error}")
                elif "\n" in str(error):
                    yield Failure(name, f"more than a sentence: {error}")
            except Exception as error:  # noqa: BLE001 - any of them is what is looked for
                yield Failure(name, f"{type(error).__name__}: {str(error)[:200]} {_where(error)}")
            else:
                missing = [one for one in expected or () if one not in answer and not damage.endswith("link")]
                if missing:
                    yield Failure(name, f"lacks {', '.join(missing)}")

    def _calls(  # noqa: C901 - a list
        self, forms: tuple[tuple[str, ...], ...]
    ) -> Iterator[tuple[str, Callable[[], str], list[str] | None]]:
        """Name, call, and what its answer must name; None where it may be refused with a sentence."""
        names, workspace = self.names, self.workspace
        lists: list[tuple[tuple[str, ...], list[str]]] = [
            (("status",), []), (("dataset", "list"), names["dataset"]), (("runs",), names["run"]),
            (("runs", "queue"), []), (("grid", "list"), names["grid"]),
            (("loras", "list", "--checkpoints"), names["lora"]), (("samples",), names["sample"]),
            (("targets", "list"), ["good"]),
        ]  # fmt: skip
        for words, expected in lists:
            for more in forms:
                yield " ".join([*words, *more]), lambda words=(*words, *more): self._shell(*words), expected
        yield "dataset list --search", lambda: self._shell("dataset", "list", "--search", "good"), ["good"]
        yield "dataset bin", lambda: self._shell("dataset", "bin", "--json"), []
        yield "runs bin", lambda: self._shell("runs", "bin", "--json"), []
        yield "loras bin", lambda: self._shell("loras", "bin", "--json"), []
        yield "samples --removed", lambda: self._shell("samples", "--show", "removed", "--json"), []
        yield "doctor", lambda: str(_doctor(workspace)), []
        for path in ("status", "datasets", "runs", "samples", "samples?show=removed", "removed-datasets"):
            expected = names.get(path.rstrip("s"), [])
            expected = expected if path in ("datasets", "runs", "samples") else []
            yield f"GET /{path}", lambda path=path: self._get(path, 200), expected
        shown: dict[str, tuple[tuple[str, ...], ...]] = {
            "dataset": (
                ("dataset", "show"), ("dataset", "stats"), ("dataset", "history"), ("dataset", "findings"),
                ("dataset", "tags"), ("dataset", "tasks"), ("dataset", "plan"), ("dataset", "note"),
            ),
            "run": (("runs", "show"), ("runs", "note")),
            "grid": (("grid", "show"),),
            "lora": (("loras", "show"),),
        }  # fmt: skip
        for kind, commands in shown.items():
            for name in names[kind]:
                if name == "waits" or name.startswith("first"):
                    continue
                healthy: list[str] | None = None
                for command in commands:
                    for more in forms:
                        words = (*command, name, *more)
                        yield " ".join(words), lambda words=words: self._shell(*words), healthy
        for name in (name for name in names["run"] if name in ("good", "bad")):
            yield f"runs report {name}", lambda name=name: self._shell("runs", "report", name), None
            yield f"runs prune {name}", lambda name=name: self._shell("runs", "prune", name, "--keep", "9"), None
            yield f"GET /runs/{name}", lambda name=name: self._get(f"runs/{name}"), None
            run = Run(workspace.run(name))
            yield (
                f"run {name} in a notebook",
                lambda run=run: run._repr_html_() if hasattr(run, "_repr_html_") else "",
                None,
            )
        if len(names["run"]) > 1:
            yield "runs compare", lambda: self._shell("runs", "compare", *names["run"][:2], "--json"), None
        for name in names["dataset"]:
            yield f"GET /datasets/{name}", lambda name=name: self._get(f"datasets/{name}"), None
            one = Dataset(workspace.dataset(name))
            yield f"dataset {name} in a notebook", lambda one=one: one._repr_html_(), None
            yield f"dataset {name} captions", lambda one=one: str((one.captions, one.removed, one.undoable)), None
            fit = ("fit", "--dataset", name, "--held-out", "1", "--json")
            yield " ".join(fit), lambda fit=fit: self._shell(*fit), None
        for name in names["sample"]:
            yield f"GET /samples/{name}", lambda name=name: self._get(f"samples/{name}"), None
        for name in ("20260101-000000-000001-aaaa", "20260101-000000-000003-aaaa", "20260101-000000-000004-aaaa"):
            yield f"GET /samples/{name}", lambda name=name: self._get(f"samples/{name}"), None
        yield "workspace in a notebook", workspace._repr_html_, []
        for source, spec in {spec.source: spec for spec in specs(TrainSettings)}.items():
            if source and source != "models":
                yield f"choices of {source}", lambda spec=spec: str(choices.choices_of(spec, workspace)), []
        for name in preset_names(workspace):
            yield f"preset {name}", lambda name=name: str(load_preset(workspace, name)), None
        for name, look in self.views:
            yield name, look, []

    def _shell(self, *words: str) -> str:
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", write_through=True)
        before = os.environ.get("WORKBENCH_HOME")
        os.environ["WORKBENCH_HOME"] = str(self.workspace.root)
        try:
            with contextlib.redirect_stdout(out):
                cli.main(list(words), prog_name="workbench", standalone_mode=False)
        except click.ClickException as error:
            raise AssertionError(f"the command is wrong: {error.format_message()}") from None
        finally:
            os.environ.pop("WORKBENCH_HOME") if before is None else os.environ.update(WORKBENCH_HOME=before)
        said = out.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]
        if "--json" in words:
            json.loads(said, parse_constant=_refuse)
        return said

    def _get(self, path: str, *allowed: int) -> str:
        answer = self.client.get(f"/{path}")
        if answer.status_code not in (allowed or (200, 400, 404)):
            raise AssertionError(f"{answer.status_code} {answer.text[:200]}")
        json.loads(answer.text, parse_constant=_refuse)
        return answer.text


def _refuse(name: str) -> Any:
    raise AssertionError(f"{name} is no JSON")


def _where(error: BaseException) -> str:
    """The last two lines of ours in the traceback."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if "/workbench/" in one.filename]
    return " < ".join(f"{Path(one.filename).name}:{one.lineno}" for one in reversed(frames[-3:]))


def _doctor(workspace: Workspace) -> Any:
    from workbench.workspace.strange_names import strange_names

    return strange_names(workspace)


def _views(workspace: Workspace) -> Iterator[tuple[str, Callable[[], str]]]:
    """What the elements of the page read: every operation that changes nothing, of every object that can be open."""
    names = {"datasets": ["good", "bad"], "clips": ["good", "bad"], "runs": ["good", "bad"]}
    names["grids"] = [grid.name for grid in Grid.all(workspace)]
    for one in operations():
        inputs = one.inputs.model_fields
        required = [name for name, field in inputs.items() if field.is_required()]
        if one.changes or one.noun in ("publishing", "targets", "machine") or set(required) - {"name"}:
            continue
        for given in [{"name": name} for name in names.get(one.noun, [])] if "name" in required else [{}]:

            def look(one: Operation = one, given: dict[str, str] = given) -> str:
                try:
                    return str(one.plain(one(workspace, given)))
                except ConfigError as error:
                    return str(error)

            yield f"page: {one.noun}/{one.verb} {given.get('name', '')}".strip(), look


__all__ = ["Failure", "Readers", "Source", "damaged", "damages", "files", "fill"]
if __name__ == "__main__":
    sys.exit("python benchmarks/damaged_files.py")

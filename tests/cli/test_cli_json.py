"""--json: every command that prints data prints one JSON document with the keys listed in docs/json.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from tests.loras.making import put_export
from tests.shell import Shell
from tests.test_overview import add_sample, at_work
from tests.written_grid import write_grid
from tests.written_run import write_run
from workbench.cli import COMMANDS, cli
from workbench.cli.operations import documents
from workbench.dataset_builder.dataset import Dataset
from workbench.jobs.queue import QUEUE
from workbench.loras import removal as loras
from workbench.operations.samples import request_of
from workbench.runs.failures import STACKS
from workbench.runs.run import remove_run
from workbench.sampler.queue import Progress, RequestState
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, write_json

SAMPLE = "20260101-000000-000000-abcd"
DOCUMENTS = documents()
GIVEN = {
    **{
        f"dataset {verb}": ("squares",)
        for verb in (
            *("show", "stats", "check", "findings", "tasks", "history", "plan", "tags", "removed-clips", "group"),
            *("to-remove", "restore", "undo", "redo", "trigger", "companions"),
        )
    },
    "dataset export": ("squares", "OUT/all.zip"),
    "dataset make": ("squares", "--maker", "gray"),
    "dataset detach": ("squares", "reference"),
    "dataset mask": ("squares", "PAINTED"),
    "dataset paint": ("squares", "PAINTED", "0"),
    "dataset write-plan": ("squares", "OUT/seen"),
    "dataset note": ("squares", "blurred at the end"),
    "dataset rename": ("squares", "squares"),
    "dataset remove": ("squares", "--yes"),
    "dataset start": ("squares", "check"),
    "dataset split": ("squares", "--preview"),
    "dataset caption": ("squares", "CLIP", "a red square"),
    "dataset prefix": ("squares", "film of"),
    "dataset suffix": ("squares", "at night"),
    "dataset remove-tag": ("squares", "red"),
    **{f"dataset {verb}": ("squares", "square", "box") for verb in ("to-replace", "replace")},
    "dataset split-at": ("squares", "CLIP", "0.5"),
    "dataset trim": ("squares", "OTHER", "0", "1"),
    "dataset crop": ("squares", "WHOLE", "0", "0", "32", "32"),
    "dataset restore-clips": ("squares", "GONE"),
    "fit": ("--dataset", "squares", "--gpu-memory", "24"),
    "runs show": ("done",),
    "runs compare": ("done", "other"),
    **{f"runs {verb}": ("done",) for verb in ("note", "report")},
    **{f"runs {verb}": ("working",) for verb in ("save", "pause", "resume", "preview", "live-sample", "stop")},
    "runs to-prune": ("done", "--keep", "1"),
    **{f"runs {verb}": ("done", "20") for verb in ("star", "unstar")},
    "runs prune": ("done", "--keep", "1", "--yes"),
    "runs group": ("done", "rank study"),
    "runs move": ("waits", "1"),
    "runs rename": ("later", "last"),
    "runs remove": ("last",),
    "runs restore": ("gone",),
    "runs stacks": ("done",),
    "loras show": ("runs/ring",),
    "loras blocks": ("runs/ring",),
    "loras check": ("runs/ring",),
    **{f"samples {verb}": (SAMPLE,) for verb in ("star", "unstar", "cancel", "remove", "restore")},
    "loras star": ("runs/ring", "--off"),
    "loras to-remove": ("runs/ring",),
    "loras remove": ("runs/spare", "--yes"),
    "loras clean": ("--yes",),
    "loras restore": ("runs-older",),
    "loras empty-bin": ("--yes",),
}
FILLED = {f"dataset {verb}" for verb in ("history", "tags", "removed-clips", "bin")}
FILLED |= {"runs bin", "loras bin", "loras formats"}
# They need a worker, another machine (tests/remote/test_ssh.py), a file (tests/loras/test_strangers_files.py).
ELSEWHERE = {"sample", "targets check", "runs decode", "grid remove", "loras survives", "loras repair"}
ELSEWHERE |= {f"loras {verb}" for verb in ("import", "convert", "merge", "resize", "extract", "fuse", "job", "stop")}
ELSEWHERE |= {f"samples {verb}" for verb in ("causes", "stop-causes")}  # they need a run's LoRA
ELSEWHERE |= {f"publish {verb}" for verb in ("lora", "model", "space", "dataset")}  # tests/publishing
ELSEWHERE |= {f"runs {verb}" for verb in ("what-if", "stop-what-if", "film")}  # tests/trainer, tests/runs
# They need other clips, findings or tasks. Their operations are tested in tests/dataset_builder and tests/operations.
ELSEWHERE |= {
    f"dataset {verb}"
    for verb in (
        *("preview", "import", "auto-caption", "reconstruct", "to-fix", "fix", "stop"),
        *("crop-bars", "uncrop", "set-fps", "reset-cut", "remove-clips", "attach", "track", "mask-edge"),
    )
}
# These report success in their exit code and print a line or two for people.
ACTING = {
    "": ("train", "encode", "convert", "record", "replay", "webui", "notebooks", "mcp", "demo"),
    "runs": ("start",),
    "samples": ("decode", "export"),
    "grid": ("make", "extend"),
    "targets": ("add hf-jobs", "add slurm", "add ssh"),
}
# These print data that is not one document, and why.
NO_DOCUMENT = {
    "dataset follow": "lines over a time; dataset tasks --json gives the state at a moment",
    "runs follow": "lines over a time; runs show --json gives the state at a moment",
    "api-token": "the token is all that it prints",
}


def commands(with_json: bool) -> Iterator[str]:
    """Yield every command that runs on its own and has --json, or lacks it."""

    def below(command: click.Command, name: str) -> Iterator[str]:
        itself = not isinstance(command, click.Group) or command.invoke_without_command
        if itself and any("--json" in option.opts for option in command.params) is with_json:
            yield name
        if isinstance(command, click.Group):
            context = click.Context(command)
            for one in command.list_commands(context):
                if (found := command.get_command(context, one)) is not None:
                    yield from below(found, f"{name} {one}".strip())

    yield from below(cli, "")


def test_every_command_with_json_is_documented() -> None:
    assert set(commands(with_json=True)) == set(DOCUMENTS)
    assert {name.split()[0] for name in DOCUMENTS} <= set(COMMANDS)
    done = Progress(SAMPLE, RequestState.DONE, SampleSettings(prompt="a cat"))
    check("sample", [request_of(done).model_dump(mode="json")])


def test_every_command_without_json_is_one_that_acts() -> None:
    acting = {f"{group} {name}".strip() for group, names in ACTING.items() for name in names}
    assert set(commands(with_json=False)) == acting | set(NO_DOCUMENT)


def test_each_prints_one_document_with_the_keys_that_are_documented(
    shell: Shell, workspace: Workspace, dataset: Dataset, tmp_path: Path
) -> None:
    (write_run(workspace, "done", 20).folder / STACKS).write_text("Thread 0x1: in loader\n")
    write_run(workspace, "other", 20, rank=4)
    for name in ("working", "waits"):
        at_work(write_run(workspace, name, 20))
    write_json(workspace.runs / QUEUE, ["waits"])
    write_run(workspace, "later", 20)
    add_sample(workspace, "a cat", id=SAMPLE)
    put_export(workspace, "ring", rank=4, alpha=2.0, step=30)
    grid = write_grid(workspace)
    gone, *clips = [one.id for one in dataset.clips]
    dataset.remove(gone)
    words = {"OUT": str(tmp_path), "GONE": gone}
    words |= dict(zip(("CLIP", "OTHER", "WHOLE", "PAINTED"), clips, strict=False))
    remove_run(workspace, write_run(workspace, "gone", 20))
    for name in ("old", "older", "spare"):
        put_export(workspace, name, rank=4, alpha=2.0, step=30)
    loras.remove(workspace, ["runs/old", "runs/older"])
    write_json(workspace.root / "targets" / "box.json", {"kind": "ssh", "host": "box"})
    write_json(workspace.root / "targets" / "bad.json", {"kind": "ftp"})
    of_grid = {
        **{f"grid {verb}": (grid.name,) for verb in ("show", "export", "stop", "to-remove")},
        **{f"grid {verb}": (grid.name, "1", "1") for verb in ("star", "reject")},
        "grid vote": (grid.name, "1", "1", "2"),
        "grid best": (grid.name, "2"),
    }
    given = {**GIVEN, **of_grid, "doctor": ("--quick",), "targets remove": ("bad",)}
    for command in [name for name in DOCUMENTS if name not in ELSEWHERE]:
        arguments = [re.sub("[A-Z]{3,}", lambda found: words[found[0]], one) for one in given.get(command, ())]
        done = shell(*command.split(), *arguments, "--json")
        assert done.out, (command, done.err)
        check(command, json.loads(done.out))
        if command in FILLED:
            assert json.loads(done.out), command
    buckets = json.loads(shell("dataset", "plan", "squares", "--buckets", "2", "--json").out)
    check("dataset plan", buckets)
    assert sum(buckets["buckets"].values()) == sum(one["bucket"] is not None for one in buckets["clips"])
    listed = json.loads(shell("runs", "--json").out)
    states = {one["name"]: one["state"] for one in listed}
    assert (states["done"], states["working"]) == ("finished", "stopping")
    assert json.loads(shell("runs", "queue", "--json").out)["now"] == ["working"]
    assert json.loads(shell("dataset", "note", "squares", "--json").out)["own_notes"] == "blurred at the end"
    assert json.loads(shell("runs", "group", "done", "--json").out) == {"name": "done", "group": "rank study"}
    assert [one["name"] for one in json.loads(shell("targets", "list", "--json").out)] == ["box"]


def check(command: str, printed: Any) -> None:
    document = DOCUMENTS[command]
    assert isinstance(printed, list) == document.many, command
    for one in printed if document.many else [printed]:
        assert set(one) == set(document.keys), command


def test_a_preview_of_files_names_them_with_their_captions(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "cat.mp4").write_bytes(b"0" * 100)
    (tmp_path / "in" / "cat.txt").write_text("a cat")
    found = json.loads(shell("dataset", "preview", tmp_path / "in", "--json").out)
    check("dataset preview", found)
    (source,) = found["sources"]
    assert source["files"] == [{"name": "cat.mp4", "caption": "a cat"}]
    assert (source["bytes"], source["path"]) == (100, str(tmp_path / "in"))


def test_json_is_the_answer_alone(shell: Shell, dataset: Dataset) -> None:
    started = json.loads(shell("dataset", "check", "squares", "--json", "--detach").out)
    assert started["id"] == "squares/check"
    assert started["state"] in ("starting", "running", "finished")
    refused = shell("fit", "--dataset", "squares", "--measure", "--json")
    assert (refused.code, refused.out) == (64, "")
    unknown = shell("runs", "show", "nobody", "--json")
    assert unknown.code
    assert not unknown.out

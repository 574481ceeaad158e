"""Attack: names, captions, metadata and logs that steer the terminal on which the shell shows them."""

from __future__ import annotations

import ast
import io
import json
import struct
import unicodedata
from pathlib import Path

import pytest

from tests.dataset_builder.small import write_dataset
from tests.serving import ROOT
from tests.shell import Shell
from tests.written_run import ended, write_run
from workbench import jobs
from workbench.cli import follow, printing
from workbench.cli.printing import print_table
from workbench.clips.records import read_clips, write_clips, write_info
from workbench.dataset_builder.dataset import Dataset
from workbench.workspace import Workspace, read_json, write_json

# Clipboard (OSC 52), a link (OSC 8), a color by a C1 control, the writing direction, line ends of every kind.
NASTY = "a\x1b]52;c;c3dvcmQ=\x07\x1b]8;;http://evil\x1b\\b\x9b31mc\u202ed\r\nFORGED\nFORGED"
NASTY += "\x0bFORGED\x85FORGED\u2028FORGED\x7f"
ALLOWED = "\n\u200c\u200d"
VIDEO = b"\x00\x00\x00\x18ftypmp42"


def check(text: str) -> None:
    steering = {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - set(ALLOWED)
    assert not steering, text
    assert not [line for line in text.split("\n") if line.startswith("FORGED")], text


def write_lora(path: Path) -> None:
    """A LoRA of one layer with metadata of a stranger's."""
    notes = {name: NASTY for name in ("base_model", "trigger_word", "ss_tag", NASTY)} | {"format": "pt"}
    key = "transformer.transformer_blocks.0.attn1.to_q.lora_{}.weight"
    tensors = {
        key.format(side): {"dtype": "F32", "shape": [1, 1], "data_offsets": [4 * at, 4 * at + 4]}
        for at, side in enumerate("AB")
    }
    head = json.dumps({"__metadata__": notes, **tensors}).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(head)) + head + b"\0" * 8)


@pytest.fixture
def hostile(workspace: Workspace) -> Workspace:
    """A workspace in which every text that a stranger may choose is one."""
    folder = write_dataset(workspace.dataset("cats"), captions=[NASTY, NASTY], trigger_word=NASTY)
    clips = [one.changed(source=NASTY, tags=(NASTY,), caption_by=NASTY) for one in read_clips(folder)]
    write_clips(folder, clips)
    dataset = Dataset(folder)
    write_info(folder, dataset.info.model_copy(update={"title": NASTY, "trigger_word": NASTY}))
    dataset.write_notes(NASTY)
    (workspace.datasets / f"x{NASTY.replace('/', '')[:100]}").mkdir()
    run = write_run(workspace, "dogs", 20)
    values = read_json(run.folder / jobs.CONFIG)
    write_json(run.folder / jobs.CONFIG, {**values, "preview_prompts": [NASTY], "model": values["model"]})
    ended(run.folder, "failed", 65, NASTY)
    (run.folder / jobs.LOG).write_text(f"loading {NASTY}\n", encoding="utf-8")
    (run.folder / "notes.md").write_text(NASTY, encoding="utf-8")
    lora = workspace.root / "loras" / "birds"
    write_lora(lora / "lora.safetensors")
    texts = ("title", "summary", "model", "base_model", "trigger")
    made_of = [{"name": NASTY, "weight": 1.0, "sha256": NASTY}]
    write_json(lora / "lora.json", {**dict.fromkeys(texts, NASTY), "made_of": made_of, "time": 1.0})
    write_json(lora / "published.json", {"repo_id": NASTY, "url": NASTY})
    write_json(
        workspace.root / "loras" / ".removed" / "gone" / "removed.json",
        {"name": NASTY, "title": NASTY, "bytes": 1, "time": 1.0, "from": "loras/x", "files": []},
    )
    sample = "20260101-000000-000000-abcd"
    day = workspace.samples / "2026-01-01"
    record = {
        "settings": {"prompt": NASTY, "loras": [f"{NASTY}.safetensors=1"]}, "model": NASTY, "seed": NASTY,
        "created": NASTY, "device": NASTY, "loras": [{"name": NASTY, "scale": 1}],
    }  # fmt: skip
    write_json(day / f"{sample}.json", record)
    (day / f"{sample}.mp4").write_bytes(VIDEO)
    write_json(
        workspace.root / "replay" / "replay.json",
        {
            "title": NASTY, "description": NASTY, "points": [[0.0, 1, 1.0, 1.0, None]], "previews": [],
            "seconds": 1.0, "steps": 1, "model": NASTY, "settings": {}, "versions": {"workbench": NASTY},
        },
    )  # fmt: skip
    return workspace


COMMANDS = """
status
dataset list
dataset show cats
dataset stats cats
dataset history cats
dataset tasks cats
dataset tags cats
dataset findings cats
dataset plan cats
dataset plan cats --buckets 2
dataset list --search x
runs
runs show dogs
runs compare dogs dogs
runs queue
runs report dogs
runs follow dogs
runs pause dogs
loras list
loras show loras/birds
loras bin
loras jobs
samples
runs note dogs
runs bin
loras formats
targets
grid list
recipes
doctor --quick
replay {w}/replay
fit --dataset cats
train --help
sample --help
dataset preview {w}/datasets
dataset removed-clips cats
publish lora loras/birds --to a/b --dry-run
runs show {nasty}
loras show {nasty}
dataset show {nasty}
{nasty}
runs --{nasty}
samples remove {nasty}
sample x --lora {nasty}
train --dataset {nasty}
train --config {nasty}
sample --config {nasty}
train --dataset cats --steps {nasty}
convert {nasty} {nasty}
grid show {nasty}
targets check {nasty}
"""


def test_no_command_passes_on_what_steers_the_terminal(
    shell: Shell, hostile: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile.root)
    shown = 0
    for command in COMMANDS.strip().split("\n"):
        arguments = [one.format(w=hostile.root, nasty=NASTY) for one in command.split()]
        said = shell(*arguments)
        check(said.out)
        check(said.err)
        shown += r"\x1b]52" in said.out + said.err
    assert shown > 20


def test_a_program_gets_the_exact_text(shell: Shell, hostile: Workspace) -> None:
    said = shell("dataset", "show", "cats", "--json")
    check(said.out)
    assert NASTY in json.loads(said.out)["clips"][0]["tags"]
    found = json.loads(shell("loras", "list", "--json").out)
    assert NASTY in {value for one in found for value in one.values() if isinstance(value, str)}


def test_texts_of_every_language_stay_as_they_are() -> None:
    for text in (
        "été, Zürich", "日本\u3000語", "א ב ג", "مرحبا", "👩\u200d👩\u200d👧", "नमस्ते", "a\u00a0b", "C:\\new\\x1b",
    ):  # fmt: skip
        assert printing.visible(text) == text


def test_a_wide_table_and_a_progress_bar_show_names_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import rich.console

    print_table(("name", "text"), [(NASTY, "x" * 300), ("[link=http://evil]b[/link]", NASTY)])
    check(capsys.readouterr().out)
    screen = io.StringIO()
    made = rich.console.Console
    monkeypatch.setattr(rich.console, "Console", lambda **_: made(file=screen, force_terminal=True, width=200))
    bar = follow.Bar()
    bar.show(f"loading {NASTY}", 1, 2, "[link=http://evil]note[/link] [red]x")
    bar.close()
    assert "\x1b]" not in screen.getvalue()
    assert "\x9b" not in screen.getvalue()
    assert "[link=http://evil]" in screen.getvalue()


def test_a_crash_prints_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ValueError(NASTY)
    except ValueError as error:
        printing.show_crash(type(error), error, error.__traceback__)
    check(capsys.readouterr().err)


def test_everything_the_shell_prints_goes_through_one_printer() -> None:
    for path in sorted((ROOT / "workbench" / "cli").rglob("*.py")):
        if path.name in ("printing.py", "trial.py"):  # the second prints JSON for another process
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("click.echo", "click.secho", "click.confirm", "click.prompt", "print", "echo"), (
                    f"{path.name}, line {node.lineno}: print with workbench.cli.printing"
                )
                assert not called.endswith(("stdout.write", "stderr.write")), f"{path.name}, line {node.lineno}"

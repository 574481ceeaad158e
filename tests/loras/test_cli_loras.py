"""`workbench loras` in the shell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.loras.making import layer, put_export, put_lora
from tests.shell import run_command
from workbench.workspace import Workspace

QUERY = "transformer_blocks.0.attn1.to_q"
Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "work"))
    return Workspace.open()


def test_the_library_is_listed_shown_and_cleaned(workspace: Workspace, capsys: Capsys) -> None:
    assert "no LoRA yet" in run_command(capsys, "loras", "list").out
    put_export(workspace, "ring", rank=4, alpha=2.0, step=30, checkpoints=(10, 20, 30))
    source = {"name": "runs/ring", "file": "lora.safetensors", "sha256": "0" * 64, "weight": 0.5}
    put_lora(workspace, "made", layer(QUERY, 2, 8, 8), alpha=1.0, summary="merged from 0.5 x ring", made_of=[source])
    listed = run_command(capsys, "loras", "list").out
    assert "runs/ring" in listed
    assert "4, alpha 2" in listed
    assert "runs/ring@10" not in listed
    assert "runs/ring@10" in run_command(capsys, "loras", "list", "--checkpoints").out
    shown = run_command(capsys, "loras", "show", "loras/made").out
    assert "merged from 0.5 x ring" in shown
    assert "0.5 x runs/ring" in shown
    run_command(capsys, "loras", "star", "runs/ring@10")
    refused = run_command(capsys, "loras", "remove", "runs/ring@10", "--yes")
    assert (refused.code, "is starred and stays" in refused.err) == (64, True)
    cleaned = run_command(capsys, "loras", "clean", "--yes").out
    assert "runs/ring@20" in cleaned
    assert "runs/ring@10" not in cleaned
    (gone,) = json.loads(run_command(capsys, "loras", "bin", "--json").out)
    assert gone["title"] == "ring, step 20"
    assert "runs/ring@20" in run_command(capsys, "loras", "restore", gone["id"]).out
    assert "the bin is empty" in run_command(capsys, "loras", "bin").out
    assert "nothing to remove" in run_command(capsys, "loras", "clean", "--checkpoints", "3").out


def test_an_operation_is_followed_and_its_refusal_is_a_sentence(workspace: Workspace, capsys: Capsys) -> None:
    put_lora(workspace, "a", layer(QUERY, 2, 8, 8), alpha=1.0)
    done = run_command(capsys, "loras", "merge", "loras/a=2", "--name", "twice")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "loras/twice"
    assert "comfyui" in run_command(capsys, "loras", "formats").out
    wrong = run_command(capsys, "loras", "resize", "loras/a", "--rank", "0")
    assert (wrong.code, "rank" in wrong.err) == (64, True)

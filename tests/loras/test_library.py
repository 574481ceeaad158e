"""The LoRA library: its contents, verdicts, removal and restoring, also in the shell."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.loras.making import layer, put_export, put_lora, write_lora
from tests.patience import PATIENCE
from tests.shell import run_command
from tests.written_run import write_run
from workbench import jobs
from workbench.errors import ConfigError
from workbench.loras import library, removal, view
from workbench.loras.library import inserted, lacking, words_of, words_of_grid
from workbench.loras.removal import CleaningSettings
from workbench.loras.settings import MergeSettings
from workbench.operations import loras
from workbench.runs import checkpoints
from workbench.runs.analysis.diagnosis import CLAIMS, RULES
from workbench.workspace import Workspace, lora_names, write_json

QUERY = "transformer_blocks.0.attn1.to_q"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.open(tmp_path / "work")


def test_a_run_its_checkpoints_and_made_loras_stand_there_by_name(workspace: Workspace) -> None:
    put_export(workspace, "ring", rank=4, alpha=2.0, step=30, checkpoints=(10, 30))
    put_lora(workspace, "both", layer(QUERY, 2, 8, 8), title="Both")
    assert set(lora_names.names(workspace)) == {"runs/ring", "loras/both"}
    assert [one.name for one in library.checkpoints_of(workspace, "ring")] == ["runs/ring@10", "runs/ring@30"]
    assert len(library.all_loras(workspace)) == 2
    assert len(library.all_loras(workspace, checkpoints=True)) == 4
    export = library.find(workspace, "runs/ring")
    assert (export.rank, export.alpha, export.steps, export.trigger) == (4, 2.0, 30, "ohwx")
    assert export.run.name == "ring"
    assert export.model == "tiny-cogvideox"
    assert [path.name for path in export.previews] == ["0.mp4"]
    assert library.find(workspace, "loras/both").title == "Both"
    with pytest.raises(ConfigError, match="there is no LoRA 'runs/nothing' here"):
        library.find(workspace, "runs/nothing")
    with pytest.raises(ConfigError, match="is not a LoRA's name"):
        lora_names.path_of(workspace, "runs/../x")


def test_stars_the_best_and_what_is_published_are_flags(workspace: Workspace) -> None:
    run = put_export(workspace, "ring", rank=2, alpha=2.0, step=30, checkpoints=(10, 20, 30))
    library.star(workspace, "runs/ring@10")
    library.star(workspace, "runs/ring")
    write_json(run / "best.json", {"step": 20, "why": "looks best"})
    write_json(run / "published.json", {"repo_id": "me/ring", "url": "https://hub/me/ring"})
    flags = {one.name: set(one.flags) for one in library.all_loras(workspace, checkpoints=True)}
    assert flags == {
        "runs/ring": {"starred", "published"},
        "runs/ring@10": {"starred"},
        "runs/ring@20": {"best"},
        "runs/ring@30": set(),
    }
    library.star(workspace, "runs/ring", on=False)
    assert not library.find(workspace, "runs/ring").starred


def test_the_best_is_also_the_one_of_the_lowest_held_out_loss(workspace: Workspace) -> None:
    run = put_export(workspace, "ring", rank=2, alpha=2.0, step=30, checkpoints=(10, 20, 30))
    losses = {10: 0.3, 20: 0.1, 30: 0.2}
    lines = [json.dumps({"step": step, "held_out_loss": loss}) for step, loss in losses.items()]
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    best = [one.step for one in library.checkpoints_of(workspace, "ring") if one.best]
    assert best == [20]


# ---- triggers


def test_the_trigger_words_of_the_chosen_loras_are_missed(workspace: Workspace) -> None:
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx")
    put_lora(workspace, "both", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx, sks")
    put_lora(workspace, "plain", layer("blocks.0.to_q", 4, 8, 8))
    stacked = words_of(workspace, ["loras/cat=0.8", "loras/both=1"])
    assert stacked == lacking("a cat", stacked) == ["ohwx", "sks"]
    assert lacking("An OHWX cat", ["ohwx"]) == []
    assert lacking("ohwxy cat", ["ohwx"]) == ["ohwx"]
    elsewhere = ["loras/cat=0", "loras/plain", "loras/gone", "runs/gone@3", "me/there", "/some/lora.safetensors=1"]
    assert words_of(workspace, elsewhere) == []
    assert inserted(" a cat ", ["ohwx", "sks"]) == "ohwx sks a cat"
    assert inserted("sks cat", ["ohwx", "sks"]) == "ohwx sks cat"


def test_a_grid_has_the_words_of_its_run_and_of_its_stacked_loras(workspace: Workspace) -> None:
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx")
    put_lora(workspace, "dog", layer("blocks.0.to_q", 4, 8, 8), trigger="sks")
    assert words_of_grid(workspace, "", ["none", "loras/cat + loras/dog=0.5", "loras/cat"]) == ["ohwx", "sks"]
    checkpoint = workspace.run("new") / "checkpoints" / "step-00000010"
    write_lora(checkpoint / "lora.safetensors", layer("blocks.0.to_q", 4, 8, 8), 8.0, trigger_word="zwx")
    (checkpoint / "MANIFEST.json").write_text("{}")
    assert words_of_grid(workspace, "new", []) == ["zwx"]
    assert words_of_grid(workspace, "../new", []) == []


# ---- verdicts


LAYER = layer("transformer_blocks.0.attn1.to_q", 4, 8, 8)


def claim(workspace: Workspace, name: str) -> tuple[str, str] | None:
    found = view.verdict(library.find(workspace, name))
    return None if found is None else (found.tone, found.claim)


def test_every_diagnosis_has_its_claim() -> None:
    assert {rule.kind for rule in RULES} | {"too short"} == set(CLAIMS)


def test_an_export_has_the_verdict_of_its_run(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    write_lora(run.folder / "lora.safetensors", LAYER, 8.0, step="200")
    found = loras.show(workspace, "runs/cats")
    assert "sat" in found.formats
    assert "musubi" not in found.formats  # only what its family writes
    assert (found.verdict.tone, found.verdict.claim) == ("idle", "Still learning at the end")
    assert found.verdict.evidence.startswith("Held-out loss 0.8000 → 0.60")
    assert found.metadata["step"] == "200"


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ({}, None),
        ({"match": {"matched": 20, "layers": 24}}, ("warn", "4 of 24 layers left out")),
        ({"match": {"matched": 24, "layers": 24}}, ("good", "All 24 layers fit its model")),
        ({"match": {"matched": 24, "layers": 24, "nothing": "all its B are zero"}}, ("bad", "Changes nothing")),
        ({"error": 0.25}, ("idle", "25% of the change lost")),
        ({"error": 0.0}, None),
    ],
)
def test_another_has_what_its_import_or_its_making_says(
    workspace: Workspace, notes: dict[str, Any], said: tuple[str, str] | None
) -> None:
    put_lora(workspace, "ring", LAYER, 8.0, **notes)
    assert claim(workspace, "loras/ring") == said


def test_a_damaged_file_says_so(workspace: Workspace) -> None:
    put_lora(workspace, "ring", LAYER, 8.0).write_bytes(b"<html>")
    assert claim(workspace, "loras/ring") == ("bad", "Damaged")
    assert loras.show(workspace, "loras/ring").metadata == {}


def test_an_operation_is_stopped(workspace: Workspace) -> None:
    put_lora(workspace, "ring", LAYER, 8.0)
    started = loras.merge(workspace, MergeSettings(loras=("loras/ring=2",), name="twice"))
    assert loras.stop(workspace, started.id).id == started.id
    ended = jobs.wait(loras.folder(workspace) / ".jobs" / started.id, PATIENCE)
    assert ended.state is jobs.State.STOPPED
    assert loras.job(workspace, started.id).tone == "plain"


# ---- removal


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_removed_comes_back_to_the_byte_and_goes_for_good_when_emptied(workspace: Workspace) -> None:
    put_lora(workspace, "a", layer(QUERY, 2, 8, 8))
    put_export(workspace, "ring", rank=2, alpha=2.0, step=20, checkpoints=(10, 20))
    before = files(workspace.root)
    names = ["loras/a", "runs/ring@10", "runs/ring"]
    shown = removal.preview(workspace, names)
    assert [one.lora.name for one in shown] == names
    assert removal.remove(workspace, names) == shown
    assert [one.name for one in library.all_loras(workspace, checkpoints=True)] == ["runs/ring@20"]
    gone = removal.removed(workspace)
    assert {one.name: one.bytes for one in gone} == {one.lora.name: one.bytes for one in shown}
    for one in gone:
        removal.restore(workspace, one.id)
    assert files(workspace.root) == before
    removal.remove(workspace, ["loras/a"])
    assert removal.empty(workspace) > 0
    assert removal.removed(workspace) == []
    with pytest.raises(ConfigError, match="is not in the bin"):
        removal.restore(workspace, "loras-a")


def test_what_has_been_replaced_meanwhile_is_not_overwritten(workspace: Workspace) -> None:
    put_lora(workspace, "a", layer(QUERY, 2, 8, 8))
    removal.remove(workspace, ["loras/a"])
    put_lora(workspace, "a", layer(QUERY, 4, 8, 8))
    with pytest.raises(ConfigError, match="cannot be restored because .* exists"):
        removal.restore(workspace, removal.removed(workspace)[0].id)
    assert library.find(workspace, "loras/a").rank == 4


def test_starred_best_and_published_stay_whoever_asks(workspace: Workspace) -> None:
    run = put_export(workspace, "ring", rank=2, alpha=2.0, step=50, checkpoints=(10, 20, 30, 40, 50))
    put_lora(workspace, "kept", layer(QUERY, 2, 8, 8))
    put_lora(workspace, "other", layer(QUERY, 2, 8, 8))
    library.star(workspace, "runs/ring@10")
    library.star(workspace, "loras/kept")
    write_json(run / "best.json", {"step": 20, "why": "looks best"})
    write_json(run / "checkpoints/step-00000030/published.json", {"url": "https://hub/me/ring"})
    everything = CleaningSettings(checkpoints=1, made=True)
    assert {one.lora.name for one in removal.to_remove(workspace, everything)} == {"runs/ring@40", "loras/other"}
    for name, reason in [
        ("runs/ring@10", "is starred"),
        ("runs/ring@20", "is the best"),
        ("runs/ring@30", "published"),
    ]:
        with pytest.raises(ConfigError, match=reason):
            removal.preview(workspace, [name])
    went = removal.clean(workspace, everything)
    assert {one.lora.name for one in went} == {"runs/ring@40", "loras/other"}
    left = {one.name for one in library.all_loras(workspace, checkpoints=True)}
    assert left == {"runs/ring", "loras/kept", *(f"runs/ring@{step}" for step in (10, 20, 30, 50))}


def test_a_runs_own_thinning_spares_what_is_published_and_what_a_person_found_best(workspace: Workspace) -> None:
    run = put_export(workspace, "ring", rank=2, alpha=2.0, step=40, checkpoints=(10, 20, 30, 40))
    write_json(run / "best.json", {"step": 20, "why": "looks best"})
    write_json(run / "checkpoints/step-00000010/published.json", {"url": "https://hub/me/ring"})
    assert [one.step for one in checkpoints.doomed(run, keep=1)] == [30]


def test_age_decides_where_it_is_asked_for(workspace: Workspace) -> None:
    run = put_export(workspace, "ring", rank=2, alpha=2.0, step=30, checkpoints=(10, 20, 30))
    old = time.time() - 9 * removal.DAY
    os.utime(run / "checkpoints/step-00000010/lora.safetensors", (old, old))
    assert [one.lora.step for one in removal.to_remove(workspace, CleaningSettings(days=8))] == [10]
    assert removal.to_remove(workspace, CleaningSettings(days=10)) == []


# ---- in the shell


Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "work"))
    return Workspace.open()


def test_an_operation_is_followed_and_its_refusal_is_a_sentence(home: Workspace, capsys: Capsys) -> None:
    put_lora(home, "a", layer(QUERY, 2, 8, 8), alpha=1.0)
    done = run_command(capsys, "loras", "merge", "loras/a=2", "--name", "twice")
    assert done.code == 0, done.err
    assert done.out.splitlines()[-1] == "loras/twice"
    assert "comfyui" in run_command(capsys, "loras", "formats").out
    wrong = run_command(capsys, "loras", "resize", "loras/a", "--rank", "0")
    assert (wrong.code, "rank" in wrong.err) == (64, True)

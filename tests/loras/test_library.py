"""The LoRA library: which LoRAs there are, by name, and their facts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.loras.making import layer, put_export, put_lora, write_lora
from workbench.errors import ConfigError
from workbench.loras import library
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
    assert export.run is not None
    assert export.run.name == "ring"
    assert export.model == "tiny-cogvideox"
    assert [path.name for path in export.previews] == ["0.mp4"]
    assert library.find(workspace, "loras/both").title == "Both"
    with pytest.raises(ConfigError, match="there is no LoRA 'runs/nothing' here"):
        library.find(workspace, "runs/nothing")
    with pytest.raises(ConfigError, match="is no LoRA's name"):
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


def test_a_damaged_file_stays_in_the_library_and_says_so(workspace: Workspace) -> None:
    path = put_lora(workspace, "torn", layer(QUERY, 2, 8, 8))
    path.write_bytes(path.read_bytes()[:-5])
    assert "cut short" in library.find(workspace, "loras/torn").sound


def test_looking_again_reads_a_file_that_has_changed(workspace: Workspace) -> None:
    path = put_lora(workspace, "grows", layer(QUERY, 2, 8, 8))
    assert library.find(workspace, "loras/grows").rank == 2
    write_lora(path, layer(QUERY, 6, 8, 8))
    assert library.find(workspace, "loras/grows").rank == 6

"""What goes is shown first, can be brought back, and is never what a person wants to keep."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.loras.making import layer, put_export, put_lora
from workbench.errors import ConfigError
from workbench.loras import library, removal
from workbench.loras.removal import CleaningSettings
from workbench.runs import checkpoints
from workbench.workspace import Workspace, write_json

QUERY = "transformer_blocks.0.attn1.to_q"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.open(tmp_path / "work")


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
    with pytest.raises(ConfigError, match="is not among what was removed"):
        removal.restore(workspace, "loras-a")


def test_what_has_been_replaced_meanwhile_is_not_overwritten(workspace: Workspace) -> None:
    put_lora(workspace, "a", layer(QUERY, 2, 8, 8))
    removal.remove(workspace, ["loras/a"])
    put_lora(workspace, "a", layer(QUERY, 4, 8, 8))
    with pytest.raises(ConfigError, match="its path .* is taken"):
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

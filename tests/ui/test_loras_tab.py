"""The LoRAs tab: what its cards say, what it makes of a person's fields, what it refuses to read."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gradio as gr
import pytest

from tests.loras.making import layer, put_export, put_lora
from workbench import jobs, policy
from workbench.errors import ConfigError
from workbench.jobs import State, Status
from workbench.loras import library
from workbench.loras.settings import MergeSettings, ResizeSettings
from workbench.loras.tasks import LoraTask
from workbench.ui.core.boundary import Seen
from workbench.ui.core.live import Live
from workbench.ui.loras import chosen, grid, work
from workbench.ui.loras.tab import LorasTab
from workbench.workspace import Workspace

EVIL = "<img src=x onerror=alert(1)>"
QUERY = "transformer_blocks.0.attn1.to_q"


@pytest.fixture
def tab(workspace: Workspace) -> LorasTab:
    async def build() -> LorasTab:
        with gr.Blocks():
            return LorasTab(workspace, Live(workspace))

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


def test_cards_stand_for_exports_checkpoints_and_made_loras(workspace: Workspace) -> None:
    put_export(workspace, "ring", rank=4, alpha=2.0, step=30, checkpoints=(10, 30))
    put_lora(workspace, "made", layer(QUERY, 2, 8, 8), title=EVIL, summary=EVIL)
    library.star(workspace, "runs/ring@10")
    cards = {card["name"]: card for card in grid.data(library.all_loras(workspace, True), ["runs/ring"])["loras"]}
    assert cards["runs/ring"]["facts"][:2] == ["rank 4, alpha 2", "30 steps"]
    assert cards["runs/ring"]["video"].endswith("/previews/step-00000030/0.mp4")
    assert cards["runs/ring@10"]["run"] == "ring"
    assert cards["runs/ring@10"]["flags"] == ["starred"]
    assert cards["loras/made"]["video"] == ""
    shown = chosen.description([library.find(workspace, "loras/made")])
    assert "<img" not in shown
    both = chosen.description([library.find(workspace, name) for name in ("loras/made", "runs/ring")])
    assert "different models" not in both
    put_lora(workspace, "other", layer(QUERY, 2, 8, 8), model="cogvideox-5b")
    assert "different models" in chosen.description(
        [library.find(workspace, name) for name in ("loras/other", "runs/ring")]
    )


def test_fields_become_settings_or_a_sentence() -> None:
    assert chosen._merge(["a"], "a=0.5\n\n b", "", "both") == MergeSettings(loras=("a=0.5", "b"), name="both")
    assert chosen._resize(["a"], "8", "0.99", "") == ResizeSettings(lora="a", rank=8, share=0.99)
    with pytest.raises(ConfigError, match="rank"):
        chosen._merge(["a"], "a", "many", "")
    with pytest.raises(ConfigError, match="2 LoRAs are chosen"):
        chosen._resize(["a", "b"], "8", "", "")


def test_a_removal_is_previewed_and_a_star_forbids_it(workspace: Workspace, tab: LorasTab) -> None:
    put_lora(workspace, "made", layer(QUERY, 2, 8, 8))
    note, sure = tab.chosen.preview(["loras/made"])
    assert "loras/made" in note
    assert sure["visible"]
    tab._star(["loras/made"], Seen(), True)
    with pytest.raises(ConfigError, match="remove the star"):
        tab.chosen.preview(["loras/made"])
    tab._star(["loras/made"], Seen(), False)
    tab._remove(["loras/made"], Seen())
    assert library.all_loras(workspace) == []
    gone = tab._removed()
    tab._restore([], Seen(), gone["value"])
    assert [lora.name for lora in library.all_loras(workspace)] == ["loras/made"]


def test_a_file_outside_of_the_allowed_folders_is_not_read(tab: LorasTab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_roots", [tab.workspace.root.resolve()])
    started: list[Any] = []
    monkeypatch.setattr("workbench.ui.loras.tab.tasks.start", lambda workspace, settings: started.append(settings))
    index = [spec.name for spec in tab.importing.specs].index("source")

    def imported(source: str, file: str | None = None) -> str:
        values = ["", "", "", ""]
        values[index] = source
        return str(tab._import([], Seen(), file, *values)[0])

    for source in ("/etc/secret.safetensors", "~/x.pt", "../x.safetensors", "/etc/passwd", "a/../../x.safetensors"):
        assert "this page may not read" in imported(source), source
    assert "there is nothing to import" in imported("")
    assert not started
    assert imported("owner/name") == ""
    assert imported("owner/name:a.safetensors") == ""
    assert imported(str(tab.workspace.root / "a.safetensors")) == ""
    assert imported("", str(tab.workspace.cache / "page" / "dropped.safetensors")) == ""
    assert [settings.source for settings in started][-1].endswith("dropped.safetensors")


def test_work_shows_how_far_it_is_and_how_it_ended(tmp_path: Path) -> None:
    def task(state: State, **more: Any) -> LoraTask:
        name = more.pop("name", "merge")
        return LoraTask(
            tmp_path, name, Status(tmp_path, state, ended_at=4e9, **more), str(tmp_path / "a.pt"), "done: a"
        )

    shown = work.operations([task(State.RUNNING, phase="merging", step=3, total=12, seconds_left=9.0)])
    assert "merging · layer 3 of 12 · about 9 s left" in shown
    assert "Resizing failed. no room" in work.operations([task(State.FAILED, message="no room", name="resize")])
    assert 'download="a.pt"' in work.operations([task(State.FINISHED, name="convert")])
    assert "nothing was made" in work.operations([task(State.STOPPED)])
    assert jobs.log_tail(tmp_path) == ""

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
from workbench.loras import library, tasks
from workbench.loras.removal import CleaningSettings
from workbench.loras.settings import LoraImportSettings, MergeSettings, ResizeSettings
from workbench.loras.tasks import LoraTask
from workbench.settings import Settings
from workbench.ui.loras import listing, operations
from workbench.ui.loras.tab import LorasTab
from workbench.workspace import Workspace

EVIL = "<img src=x onerror=alert(1)>"
QUERY = "transformer_blocks.0.attn1.to_q"


@pytest.fixture
def tab(workspace: Workspace) -> LorasTab:
    async def build() -> LorasTab:
        with gr.Blocks():
            return LorasTab(workspace)

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


def test_cards_stand_for_exports_checkpoints_and_made_loras(workspace: Workspace) -> None:
    put_export(workspace, "ring", rank=4, alpha=2.0, step=30, checkpoints=(10, 30))
    put_lora(workspace, "made", layer(QUERY, 2, 8, 8), title=EVIL, summary=EVIL)
    library.star(workspace, "runs/ring@10")
    shown = {card["name"]: card for card in listing.data(library.all_loras(workspace, True), ["runs/ring"])["loras"]}
    assert shown["runs/ring"]["facts"][:2] == ["rank 4, alpha 2", "30 steps"]
    assert shown["runs/ring"]["video"].endswith("/previews/step-00000030/0.mp4")
    assert shown["runs/ring@10"]["run"] == "ring"
    assert shown["runs/ring@10"]["flags"] == ["starred"]
    assert shown["loras/made"]["video"] == ""
    assert "<img" not in listing.description([library.find(workspace, "loras/made")])
    both = listing.description([library.find(workspace, name) for name in ("loras/made", "runs/ring")])
    assert "different models" not in both
    put_lora(workspace, "other", layer(QUERY, 2, 8, 8), model="cogvideox-5b")
    assert "different models" in listing.description(
        [library.find(workspace, name) for name in ("loras/other", "runs/ring")]
    )


def test_fields_become_settings_or_a_sentence(tab: LorasTab, monkeypatch: pytest.MonkeyPatch) -> None:
    def made(settings: type[Settings], names: list[str], **values: Any) -> Settings:
        """What the form of an operation holds once these LoRAs are chosen and these fields are filled in."""
        part = tab.operations[settings]
        held = {"loras" if "loras" in settings.model_fields else "lora": part.value(names), **values}
        found: Settings = part.form.parse([held.get(spec.name, spec.default) for spec in part.form.specs])
        return found

    merged = made(MergeSettings, ["a", "b"], name="both")
    assert merged == MergeSettings(loras=("a=1", "b=1"), name="both")
    assert made(ResizeSettings, ["a"], rank="8", share="0.99") == ResizeSettings(lora="a", rank=8, share=0.99)
    with pytest.raises(ConfigError, match="rank"):
        made(MergeSettings, ["a"], rank="many")
    started: list[Settings] = []
    monkeypatch.setattr(tasks, "start", lambda workspace, settings: started.append(settings))
    with pytest.raises(ConfigError, match="lora is empty: choose a LoRA above"):
        tab._begin(made(ResizeSettings, ["a", "b"], rank="8"))
    tab._begin(merged)
    assert started == [merged]


def test_a_removal_is_previewed_and_a_star_forbids_it(workspace: Workspace, tab: LorasTab) -> None:
    put_lora(workspace, "made", layer(QUERY, 2, 8, 8))
    note, sure = tab._preview(["loras/made"])
    assert "loras/made" in note
    assert sure["visible"]
    tab._star(["loras/made"], True)
    with pytest.raises(ConfigError, match="remove the star"):
        tab._preview(["loras/made"])
    tab._star(["loras/made"], False)
    tab._remove(["loras/made"])
    assert library.all_loras(workspace) == []
    tab._restore(tab._values([])[tab.removed]["value"])
    assert [lora.name for lora in library.all_loras(workspace)] == ["loras/made"]


def test_a_cleanup_removes_what_it_has_listed_and_nothing_else(workspace: Workspace, tab: LorasTab) -> None:
    put_lora(workspace, "old", layer(QUERY, 2, 8, 8))
    note, sure, listed = tab._preview_cleaning(CleaningSettings(days=0, made=True))
    assert ("loras/old" in note, sure["visible"], listed) == (True, True, ["loras/old"])
    put_lora(workspace, "new", layer(QUERY, 2, 8, 8))
    tab._clean(listed)
    assert [lora.name for lora in library.all_loras(workspace)] == ["loras/new"]


def test_a_file_outside_of_the_allowed_folders_is_not_read(tab: LorasTab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "_roots", [tab.workspace.root.resolve()])
    started: list[Any] = []
    monkeypatch.setattr("workbench.ui.loras.tab.tasks.start", lambda workspace, settings: started.append(settings))

    def imported(source: str, file: str | None = None) -> None:
        tab._import(file, LoraImportSettings().changed(source=source))

    def refused(source: str, why: str) -> None:
        with pytest.raises(ConfigError, match=why):
            imported(source)

    for source in ("/etc/secret.safetensors", "~/x.pt", "../x.safetensors", "/etc/passwd", "a/../../x.safetensors"):
        refused(source, "this page may not read")
    refused("", "there is nothing to import")
    assert not started
    imported("owner/name")
    imported("owner/name:a.safetensors")
    imported(str(tab.workspace.root / "a.safetensors"))
    imported("", str(tab.workspace.cache / "page" / "dropped.safetensors"))
    assert [settings.source for settings in started][-1].endswith("dropped.safetensors")


def test_work_shows_how_far_it_is_and_how_it_ended(tmp_path: Path) -> None:
    def task(state: State, **more: Any) -> LoraTask:
        name = more.pop("name", "merge")
        return LoraTask(
            tmp_path,
            name,
            Status(tmp_path, state, ended_at=4e9, **more),
            str(tmp_path / "a.pt"),
            "done: a",
            files=[str(tmp_path / one) for one in ("a.pt", "b.pt") if name == "convert"],
        )

    shown = operations.operations([task(State.RUNNING, phase="merging", step=3, total=12, seconds_left=9.0)])
    assert "merging · layer 3 of 12 · about 9 s left" in shown
    assert "Resizing failed. no room" in operations.operations([task(State.FAILED, message="no room", name="resize")])
    converted = operations.operations([task(State.FINISHED, name="convert")])
    assert 'download="a.pt"' in converted
    assert 'download="b.pt"' in converted
    assert "nothing was made" in operations.operations([task(State.STOPPED)])
    assert jobs.log_tail(tmp_path) == ""

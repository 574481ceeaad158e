"""Presets are saved under a name, chosen again and shared as files; what belongs to one workspace stays there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workbench.errors import ConfigError
from workbench.runs.recipes import NOT_SHARED, add_preset, load_preset, preset_names, preset_text, save_preset
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


def test_a_preset_comes_back_without_what_names_things_of_the_workspace(workspace: Workspace) -> None:
    settings = TrainSettings(dataset="cats", rank=64, learning_rate=3e-4, preview_prompts=("a cat",))
    assert preset_names(workspace) == []
    assert save_preset(workspace, "My style!", settings) == "my-style"
    assert preset_names(workspace) == ["my-style"]
    loaded = load_preset(workspace, "my-style")
    assert not set(NOT_SHARED) & loaded.keys()
    assert TrainSettings(dataset="cats").changed(**loaded) == settings


def test_a_shared_file_is_taken_in_and_checked(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "Friend's.json"
    file.write_text(json.dumps({"rank": 32, "dataset": "theirs"}))
    assert add_preset(workspace, file) == "friend-s"
    assert load_preset(workspace, "friend-s") == {"rank": 32}
    assert json.loads(preset_text(workspace, "friend-s")) == {"rank": 32}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"rank": 0}', "rank is 0, must be"),
        ('{"loss": 1}', "loss is not a setting"),
        ("[]", "must hold a JSON object"),
        ("rank=3", "cannot be read as JSON"),
    ],
)
def test_a_file_that_is_no_preset_is_refused(workspace: Workspace, tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        add_preset(workspace, file)
    assert preset_names(workspace) == []


def test_a_preset_needs_a_name(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match="the preset has no name"):
        save_preset(workspace, " ", TrainSettings())

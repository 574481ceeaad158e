"""Presets are saved under a name, chosen again and shared as files; what belongs to one workspace stays there."""

from __future__ import annotations

import pytest

from workbench.errors import ConfigError
from workbench.runs.recipes import NOT_SHARED, load_preset, preset_names, save_preset
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
    (workspace.presets / "friend-s.json").write_text('{"rank": 32, "dataset": "theirs"}')
    assert load_preset(workspace, "friend-s") == {"rank": 32}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"rank": 0}', "rank is 0, must be"),
        ('{"loss": 1}', "loss is not a setting"),
        ("[]", "must hold a JSON object"),
        ("rank=3", "cannot be read as JSON"),
    ],
)
def test_a_file_that_is_no_preset_is_refused(workspace: Workspace, content: str, sentence: str) -> None:
    workspace.presets.mkdir(parents=True, exist_ok=True)
    (workspace.presets / "wrong.json").write_text(content)
    with pytest.raises(ConfigError, match=sentence):
        load_preset(workspace, "wrong")


def test_a_preset_needs_a_name(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match="the preset has no name"):
        save_preset(workspace, " ", TrainSettings())

"""Places in the shell: made, listed, refused with a remedy; nothing secret is in their files."""

from __future__ import annotations

import pytest

from tests.shell import Shell
from workbench.errors import ConfigError
from workbench.remote import targets
from workbench.remote.backends import engine_class
from workbench.remote.settings import SshPlace
from workbench.runs.run import Run
from workbench.workspace import Workspace


def test_places_are_made_listed_and_forgotten(shell: Shell, workspace: Workspace) -> None:
    assert "no places yet" in shell("places").out
    said = shell("places", "add", "ssh", "gpubox", "--host", "me@gpubox", "--python", "~/venv/bin/python")
    assert said.code == 0, said.err
    assert "workbench places check gpubox" in said.out
    place = targets.load(workspace, "gpubox")
    assert isinstance(place, SshPlace)
    assert (place.host, place.python) == ("me@gpubox", "~/venv/bin/python")
    assert shell("places", "add", "slurm", "cluster", "--hours", "12").code == 0
    listed = shell("places").out
    assert "host=me@gpubox" in listed
    assert "hours=12" in listed
    assert "must be 0.05 to 1000" in shell("places", "add", "slurm", "other", "--hours", "0").err
    assert shell("places", "remove", "cluster").code == 0
    assert targets.names(workspace) == ["gpubox"]
    with pytest.raises(ConfigError, match="cannot be a place's"):
        targets.save(workspace, "here", place)


def test_a_place_that_is_not_there_makes_no_run(shell: Shell, workspace: Workspace) -> None:
    said = shell("train", "--dataset", "squares", "--on", "moon")
    assert said.code == 64
    assert "there is no place 'moon'" in said.err
    assert not Run.all(workspace)


def test_a_missing_package_is_named_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.remote.base.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"asyncssh: pip install 'video-lora-workbench\[ssh\]'"):
        engine_class(SshPlace()).require()

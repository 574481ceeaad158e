"""Targets in the shell: added, listed, refused with a remedy; nothing secret is in their files."""

from __future__ import annotations

import pytest

from tests.shell import Shell
from workbench.errors import ConfigError
from workbench.remote import targets
from workbench.remote.targets import SshTarget, backend_class
from workbench.runs.run import Run
from workbench.workspace import Workspace


def test_targets_are_added_listed_and_removed(shell: Shell, workspace: Workspace) -> None:
    assert "no targets yet" in shell("targets").out
    result = shell("targets", "add", "ssh", "gpubox", "--host", "me@gpubox", "--python", "~/venv/bin/python")
    assert result.code == 0, result.err
    assert "workbench targets check gpubox" in result.out
    target = targets.load(workspace, "gpubox")
    assert isinstance(target, SshTarget)
    assert (target.host, target.python) == ("me@gpubox", "~/venv/bin/python")
    assert shell("targets", "add", "slurm", "cluster", "--hours", "12").code == 0
    listed = shell("targets").out
    assert "host=me@gpubox" in listed
    assert "hours=12" in listed
    assert "must be 0.05 to 1000" in shell("targets", "add", "slurm", "other", "--hours", "0").err
    assert shell("targets", "remove", "cluster").code == 0
    assert targets.names(workspace) == ["gpubox"]
    with pytest.raises(ConfigError, match="a target cannot be named"):
        targets.save(workspace, "local", target)


def test_an_unknown_target_makes_no_run(shell: Shell, workspace: Workspace) -> None:
    result = shell("train", "--dataset", "squares", "--target", "moon")
    assert result.code == 64
    assert "there is no target 'moon'" in result.err
    assert not Run.all(workspace)


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.remote.base.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"asyncssh: pip install 'video-lora-workbench\[ssh\]'"):
        backend_class(SshTarget())

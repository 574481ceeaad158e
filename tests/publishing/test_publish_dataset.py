"""A dataset in the shell: what would go, the push, and the same push again."""

from __future__ import annotations

import re

from tests.dataset_builder.small import write_dataset
from tests.fake_hub import FakeHub
from tests.shell import Shell
from workbench.workspace import Workspace


def test_a_dataset_is_shown_then_pushed_once(shell: Shell, workspace: Workspace, hub: FakeHub) -> None:
    write_dataset(workspace.dataset("squares"), trigger_word="zwx")
    command = ("publish", "dataset", "squares", "--to", "me/squares", "--license", "cc0-1.0")
    said = shell(*command, "--dry-run")
    assert said.code == 0, said.err
    assert "to the dataset me/squares (private)" in said.out
    assert "license: cc0-1.0" in said.out
    named = set(re.findall(r"^ +[\d.,]+ [kM]B  (\S+)$", said.out, re.MULTILINE))
    assert not hub.repos

    assert f"7 clips written: {hub.url}/datasets/me/squares" in shell(*command).out
    assert set(hub.repos["datasets/me/squares"]) == named
    assert hub.private == {"datasets/me/squares"}
    assert "no new commit" in shell(*command).out
    assert len(hub.commits) == 1
    assert "give it with --to" in shell("publish", "dataset", "squares").err

"""The notebook's part that has a prompt written: a server that speaks the protocol, the real job, the buttons."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dataset_builder.chat_server import chat_server, refuses, says
from tests.patience import until
from workbench.notebook import sample_panel
from workbench.workspace import Workspace

pytestmark = pytest.mark.long


def test_a_prompt_is_written_shown_changed_and_only_then_used(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path / "workspace")
    panel = sample_panel(workspace, prompt="a ring rolls")
    writer = panel.writer
    writer.take_button.click()
    assert "is empty: write one first" in writer.said.value
    writer.write_button.click()
    assert "base_url" in writer.said.value
    with chat_server() as server:
        server.answer = lambda number, body: says("A <ring>.")
        writer.settings.set({"base_url": server.url, "endpoint_model": "writer"})
        writer.write_button.click()
        assert writer.said.value == ""
        until(lambda: writer.text.value == "A <ring>.")
        assert panel.form.settings.prompt == "a ring rolls", "nothing is used before a person says so"
        writer.text.value += " It is red."
        writer.take_button.click()
        assert panel.form.settings.prompt == "A <ring>. It is red."
        until(lambda: not writer.ticker.running)

        server.answer = lambda number, body: refuses(401, "no such key")
        writer.write_button.click()
        until(lambda: "No prompt was written" in writer.doing_now.value)
        assert "The idea: a ring rolls" in server.questions[-1], "written anew from the words of one's own"
    panel.close()
    again = sample_panel(workspace)
    assert again.writer.settings.settings.endpoint_model == "writer"
    again.close()

"""The prompt enhancer in a notebook: a server that speaks the protocol, the real job, the buttons."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dataset_builder.chat_server import chat_server, refuses, says
from tests.patience import until
from workbench.notebook import sample_panel
from workbench.workspace import Workspace

pytestmark = pytest.mark.long


def test_a_prompt_is_written_edited_and_used_on_a_click(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path / "workspace")
    panel = sample_panel(workspace, prompt="a ring rolls")
    enhancer = panel.enhancer
    enhancer.use_button.click()
    assert "is empty: write one first" in enhancer.message.value
    enhancer.write_button.click()
    assert "base_url" in enhancer.message.value
    with chat_server() as server:
        server.answer = lambda number, body: says("A <ring>.")
        enhancer.settings.set({"base_url": server.url, "endpoint_model": "writer"})
        enhancer.write_button.click()
        assert enhancer.message.value == ""
        until(lambda: enhancer.text.value == "A <ring>.")
        assert panel.form.settings.prompt == "a ring rolls", "nothing is used before a person says so"
        enhancer.text.value += " It is red."
        enhancer.use_button.click()
        assert panel.form.settings.prompt == "A <ring>. It is red."
        until(lambda: not enhancer.ticker.running)

        server.answer = lambda number, body: refuses(401, "no such key")
        enhancer.write_button.click()
        until(lambda: "No prompt was written" in enhancer.status.value)
        assert "The idea: a ring rolls" in server.questions[-1], "written anew from the words of one's own"
    panel.close()
    again = sample_panel(workspace)
    assert again.enhancer.settings.settings.endpoint_model == "writer"
    again.close()

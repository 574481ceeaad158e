"""Tools for agents: `workbench mcp` makes a LoRA from a folder of clips."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.patience import PATIENCE
from workbench.api.app import api
from workbench.jobs import State
from workbench.operations.registry import operations
from workbench.paths import ASSETS
from workbench.workspace import Workspace

mcp = pytest.importorskip("mcp", reason="an extra")
OVER = {state.value for state in State if not state.alive} - {State.NEW.value}


def answer(result: Any) -> Any:
    """What a tool answered; its refusal fails the test."""
    (said,) = result.content
    assert not result.is_error, said.text
    return json.loads(said.text)


async def until_over(client: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    """A job or a run when it is over, asked as an agent asks."""
    for _ in range(int(PATIENCE * 5)):
        found: dict[str, Any] = answer(await client.call_tool(tool, arguments))
        if found["state"] in OVER:
            assert found["state"] == "finished", found
            return found
        await asyncio.sleep(0.2)
    raise AssertionError(f"{tool} {arguments} is not over")


def test_an_agent_makes_a_lora_from_a_folder_of_clips(workspace: Workspace, tmp_path: Path) -> None:
    clips = tmp_path / "clips"
    clips.mkdir()
    for path in sorted((ASSETS / "demo_clips" / "stripes").glob("*"))[:6]:
        shutil.copy(path, clips)
    command = mcp.StdioServerParameters(
        command=sys.executable, args=["-m", "workbench", "mcp", "--workspace", str(workspace.root)]
    )

    async def drive() -> None:
        async with mcp.Client(command) as client:
            tools = {one.name: one for one in (await client.list_tools()).tools}
            assert len(tools) == len(operations())
            assert tools["runs_show"].annotations.read_only_hint
            assert tools["loras_remove"].annotations.destructive_hint
            skill = (await client.get_prompt("train-a-video-lora")).messages[0].content.text
            assert "# Train a LoRA from a folder of clips" in skill
            started = answer(await client.call_tool("datasets_import", {"name": "stripes", "sources": [str(clips)]}))
            await until_over(client, "datasets_job", id=started["id"])
            shown = answer(await client.call_tool("datasets_show", {"name": "stripes"}))
            assert shown["summary"]["clips"] >= 3
            refused = await client.call_tool("runs_create", {"settings": {"dataset": "stripes", "steps": -1}})
            assert refused.is_error
            assert "steps is -1, must be 1 to" in refused.content[0].text
            settings = {"dataset": "stripes", "steps": 3, "rank": 2, "held_out": 0, "preview_every": 0, "device": "cpu"}
            made = answer(await client.call_tool("runs_create", {"settings": settings, "name": "one"}))
            assert made["created"] == ["one"]
            assert (await until_over(client, "runs_show", name="one"))["step"] == 3
            listed = (await client.call_tool("loras_list", {})).structured_content["result"]
            assert [one["name"] for one in listed] == ["runs/one"]
            assert Path(listed[0]["file"]).stat().st_size > 1000

    asyncio.run(drive())


def test_without_the_package_the_call_says_what_to_install(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.lowlevel", None)
    answer = TestClient(api(workspace)).post("/mcp", json={})
    assert (answer.status_code, "pip install" in answer.json()["error"]) == (400, True)

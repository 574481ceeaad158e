"""Tools for agents over the Model Context Protocol. Each operation is a tool, generated from its declaration.

`workbench mcp` serves them on stdin and stdout, and the page at /api/v1/mcp, behind the API token. A call returns the
operation's result as JSON. An error is returned as text, marked as an error, so that the agent can read the setting,
value, rule and remedy. The skill in docs/agent_skill.md is available as a prompt.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.errors import ConfigError, WorkbenchError
from workbench.operations.registry import Operation, operations
from workbench.paths import SKILL, extra_command
from workbench.snapshots import keys_of
from workbench.workspace import Workspace, finite

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from starlette.types import Receive, Scope, Send

NAME = "video-lora-workbench"
PROMPT = "train-a-video-lora"
INSTRUCTIONS = (
    f"The Video LoRA Workbench on this machine. The prompt {PROMPT} explains step by step how to train a LoRA from a "
    "folder of clips. The tool NOUN_VERB does what `workbench NOUN VERB` does. A tool that starts a job returns its id "
    "right away: call the job's tool until its state is finished, failed, stopped or died."
)


def server(workspace: Workspace) -> Server[Any]:
    """Create the server of a workspace's tools. Raises ConfigError if the package mcp is not installed."""
    try:
        import mcp_types as types
        from mcp.server.lowlevel import Server
    except ImportError as error:
        raise ConfigError(f"tools for agents need the package mcp: {extra_command('mcp')}") from error
    tools = {f"{op.noun}_{op.verb}".replace("-", "_"): op for op in operations()}  # runs_live_sample

    async def list_tools(_: Any, __: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=name,
                    description=f"{op.help}\n\n{_result(op)}",
                    input_schema=op.inputs.model_json_schema(),
                    annotations=types.ToolAnnotations(
                        read_only_hint=not op.changes, destructive_hint=op.confirm is not None
                    ),
                )
                for name, op in tools.items()
            ]
        )

    async def call_tool(_: Any, asked: types.CallToolRequestParams) -> types.CallToolResult:
        op = tools.get(asked.name)
        if op is None:
            return refused(f"there is no tool {asked.name[:80]!r}: list the tools")
        try:
            result = await asyncio.to_thread(op, workspace, asked.arguments or {})
        except WorkbenchError as error:
            return refused(str(error))
        plain = finite(op.plain(result))
        text = types.TextContent(type="text", text=json.dumps(plain, ensure_ascii=False))
        return types.CallToolResult(content=[text], structured_content={"result": plain} if op.many else plain)

    def refused(sentence: str) -> types.CallToolResult:
        return types.CallToolResult(content=[types.TextContent(type="text", text=sentence)], is_error=True)

    async def list_prompts(_: Any, __: Any) -> types.ListPromptsResult:
        about = "How to train a LoRA from a folder of clips, step by step, and what to check after each step."
        return types.ListPromptsResult(prompts=[types.Prompt(name=PROMPT, description=about)])

    async def get_prompt(_: Any, asked: types.GetPromptRequestParams) -> types.GetPromptResult:
        if asked.name != PROMPT:
            raise ValueError(f"there is no prompt {asked.name[:80]!r}: the only one is {PROMPT}")
        text = types.TextContent(type="text", text=SKILL.read_text(encoding="utf-8"))
        return types.GetPromptResult(messages=[types.PromptMessage(role="user", content=text)])

    return Server(
        NAME,
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_prompts=list_prompts,
        on_get_prompt=get_prompt,
    )


def _result(op: Operation) -> str:
    """Describe an operation's result with the keys of its JSON."""
    keys = "\n".join(f"- {name}: {text}" for name, text in keys_of(op.snapshot).items())
    return f"Returns {'a list of objects' if op.many else 'an object'} with these keys:\n{keys}"


def serve(workspace: Workspace) -> None:
    """Serve the tools on stdin and stdout until the client closes them. Raises ConfigError without the package mcp."""
    made = server(workspace)

    async def run() -> None:
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read, write):
            await made.run(read, write, made.create_initialization_options())

    asyncio.run(run())


class OverHttp:
    """The tools over HTTP: a stateless ASGI application that starts with the first request."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._serving: asyncio.Task[None] | None = None
        self._ready = asyncio.Event()
        self._manager: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._manager is None:
            tools = server(self._workspace)
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

            self._manager = StreamableHTTPSessionManager(tools, stateless=True, json_response=True)
            self._serving = asyncio.create_task(self._serve())
        await self._ready.wait()
        await self._manager.handle_request(scope, receive, send)

    async def _serve(self) -> None:
        async with self._manager.run():
            self._ready.set()
            await asyncio.Event().wait()

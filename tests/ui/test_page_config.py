"""What is left out of Gradio's description of the page: as much as nobody reads, and no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import gradio as gr
import pytest
from gradio.state_holder import StateHolder

from workbench.paths import ASSETS
from workbench.ui.app import build
from workbench.ui.server import page_config
from workbench.ui.server.page_config import SCRIPT_COMMENT, STYLE_COMMENT
from workbench.workspace import Workspace

MOST_TARGETS = 450  # each is looked up among all components as the page opens


def shortened(page: Any) -> dict[str, Any]:
    """The description of a page that is not launched, as Gradio keeps it of one that is."""
    StateHolder().set_blocks(page)
    page.config = page.get_config_file()
    page_config.shorten(page)
    return page.config  # type: ignore[no-any-return]


def test_a_new_session_keeps_only_what_its_handlers_change() -> None:
    async def made() -> Any:  # Gradio asks for an event loop
        with gr.Blocks() as page:
            return page, gr.Textbox(), gr.State([0]), gr.Dropdown(["a"])

    page, typed, count, choice = asyncio.run(made())
    shortened(page)
    one, two = page.state_holder["one"], page.state_holder["two"]
    assert one.config_values == {}
    one[count._id].append(1)
    one._update_value_in_config(typed._id, "hello")
    one[choice._id] = gr.Dropdown(["a", "b"], render=False)
    assert set(one.config_values) == {typed._id, choice._id}
    assert one.config_values[typed._id]["props"]["value"] == "hello"
    assert (page.state_holder["one"][count._id], two[count._id]) == ([0, 1], [0])
    assert page.state_holder["one"][choice._id].choices == [("a", "a"), ("b", "b")]
    assert two[choice._id].choices == [("a", "a")], "another page has its own"


def test_handlers_that_programs_may_call_stay_described() -> None:
    async def made() -> Any:
        with gr.Blocks() as page:
            given, own = gr.Textbox(), gr.Textbox()
            first = given.submit(str.upper, given, given, api_name="shout")
            first.then(str.upper, own, own, api_visibility="private")
        return page, given, own

    page, given, own = asyncio.run(made())
    config = shortened(page)
    components = {one["id"]: one for one in config["components"]}
    assert "api_info" in components[given._id]
    assert "api_info" not in components[own._id]
    assert list(page.get_api_info()["named_endpoints"]) == ["/shout"]
    assert [one["targets"] for one in config["dependencies"]] == [[(given._id, "submit")], []]


def test_the_whole_page_is_short(workspace: Workspace) -> None:
    async def made() -> Any:
        return build(workspace)

    page = asyncio.run(made())
    config = shortened(page)
    assert sum(len(one["targets"]) for one in config["dependencies"]) < MOST_TARGETS
    assert not [one["id"] for one in config["components"] if "api_info" in one or "preserved_by_key" in one["props"]]
    assert page.get_api_info(all_endpoints=True)["named_endpoints"] == {}
    scripts = {one["props"]["js_on_load"] for one in config["components"] if one["props"].get("js_on_load")}
    assert not [line for text in scripts for line in text.splitlines() if line.strip().startswith("//")]


def test_gradio_reads_nothing_of_what_is_left_out() -> None:
    chunks = list((Path(gr.__file__).parent / "templates" / "frontend" / "assets").glob("*.js"))
    assert chunks
    names = [*page_config.UNREAD[1:], *page_config.UNREAD_PROPS]  # "api_info" is what its client calls the endpoints
    found = {name for chunk in chunks for name in names if name in chunk.read_text(encoding="utf-8")}
    assert not found


@pytest.mark.parametrize("script", sorted(ASSETS.glob("*.js")), ids=lambda file: file.stem)
def test_no_more_than_comments_is_taken_out_of_a_script(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    out = [one[0] for one in SCRIPT_COMMENT.finditer(text)]
    assert out
    assert all(one.strip().startswith("// ") for one in out)
    for one in out:
        before = text[: text.index(one)].rpartition("\n")[2]
        assert all(before.count(quote) % 2 == 0 for quote in "'\"`"), f"in a text: {one}"
        code = text[: text.index(one)]
        assert code.count("`") % 2 == 0, f"in a template: {one}"


def test_comments_go_and_texts_stay() -> None:
    code = (
        "// whole\nconst a = 'http://x'; // after code\n  // it's\nconst b = '// no'; // don't\nconst c = `a // ${b}`;"
    )
    assert SCRIPT_COMMENT.sub("", code) == (
        "const a = 'http://x';\nconst b = '// no'; // don't\nconst c = `a // ${b}`;"
    )
    assert STYLE_COMMENT.sub("", "a { b: c; } /* one\n two */\nd { e: url(/*x*/y); }") == (
        "a { b: c; }\nd { e: url(y); }"
    )

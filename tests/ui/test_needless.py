"""Boxes around fields: gone where they hold one alone or all of a row, and nothing else of the page."""

from __future__ import annotations

import asyncio
from typing import Any

import gradio as gr
from gradio.layouts.form import Form

from workbench.ui.core.needless import remove_needless_boxes


def names(node: dict[str, Any], page: gr.Blocks) -> Any:
    """A layout as it is sent: the names of fields, and of each box its kind and what is inside."""
    block = page.blocks[node["id"]]
    kind = block.get_block_name()
    return (kind, [names(one, page) for one in node["children"]]) if node.get("children") else block.label or kind


def test_only_boxes_of_several_fields_among_other_things_stay() -> None:
    async def made() -> gr.Blocks:
        with gr.Blocks() as page:
            with gr.Row(elem_classes="fields", elem_id="row"):
                gr.Textbox(label="a"), gr.Number(label="b")
            with gr.Column():
                gr.Textbox(label="c")
                gr.Button("go")
                gr.Textbox(label="d"), gr.Textbox(label="e")
            with gr.Row(elem_id="mixed"):
                gr.Textbox(label="f"), gr.Button("more")
        return page

    page = asyncio.run(made())
    assert len([block for block in page.blocks.values() if isinstance(block, Form)]) == 4
    remove_needless_boxes(page)
    config = page.get_config_file()
    assert [names(node, page) for node in config["layout"]["children"]] == [
        ("row", ["a", "b"]),
        ("column", ["c", "button", ("form", ["d", "e"])]),
        ("row", ["f", "button"]),
    ]
    sent = {component["props"].get("elem_id"): component["props"] for component in config["components"]}
    assert sent["row"]["elem_classes"] == ["fields", "joined"]
    assert "joined" not in sent["mixed"].get("elem_classes", [])
    assert [component["type"] for component in config["components"]].count("form") == 1

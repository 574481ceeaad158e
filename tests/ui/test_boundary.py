"""Which of several events counts while a listener answers the first."""

from __future__ import annotations

import asyncio
from typing import Any

import gradio as gr

from workbench.ui.app import build
from workbench.ui.core.boundary import CHOICES, EACH, count_last_choices, on
from workbench.workspace import Workspace


def modes(page: gr.Blocks) -> list[tuple[str, str]]:
    return [(one.targets[0][1] if one.targets[0][0] else "then", one.trigger_mode) for one in page.fns.values()]


def test_the_last_choice_counts_and_what_comes_after_it_and_a_button_waits() -> None:
    async def made() -> Any:
        with gr.Blocks() as page:
            typed, button, file = gr.Textbox(), gr.Button(), gr.UploadButton()
            on(typed.input, str, [typed], [typed]).then(str, typed, typed).then(str, typed, typed)
            on(button.click, str, [typed], [typed]).then(str, typed, typed)
            on(typed.blur, str, [typed], [typed], **EACH)
            on(file.upload, str, [file], [typed])
        count_last_choices(page)
        return page

    found = [("input", "always_last"), ("then", "always_last"), ("then", "always_last")]
    found += [("click", "once"), ("then", "once"), ("blur", "multiple"), ("upload", "multiple")]
    assert modes(asyncio.run(made())) == found


def test_no_choice_on_the_page_is_lost(workspace: Workspace) -> None:
    async def made() -> Any:
        return build(workspace)

    page = asyncio.run(made())
    found = {(event, one.trigger_mode) for one in page.fns.values() for _, event in one.targets if event in CHOICES}
    assert {event for event, _ in found} == set(CHOICES)
    assert "once" not in {mode for _, mode in found}

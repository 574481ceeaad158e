"""Components that follow the disk: what a tick sends, what an action sends, and what problems of a form leave."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import gradio as gr
import pytest

from workbench.errors import ConfigError
from workbench.loras.removal import CleaningSettings
from workbench.ui.core.form import Form
from workbench.ui.core.view import LiveView, Seen, button, remembered, unseen_first, visible
from workbench.workspace import Workspace


class Page:
    """A view with one quick component and one slow one, and the listeners that were connected."""

    def __init__(self, workspace: Workspace) -> None:
        self.disk = {"head": "0 %", "title": "cat"}

        async def build() -> None:
            with gr.Blocks() as self.blocks:
                self.head, self.title, self.press = gr.HTML(), gr.HTML(), gr.Button()
                self.form = Form(CleaningSettings, workspace, CleaningSettings())
                self.choice = gr.State(None)
                self.view = LiveView([self.head, self.title], self._read, [self.choice], quick=[self.head])

        asyncio.run(build())

    def _read(self, choice: str | None) -> dict[Any, Any]:
        return {self.head: self.disk["head"], self.title: self.disk["title"]}

    def connect(self, action: Any, outputs: Any = (), form: Any = None) -> Any:
        """The listener of an action, as Gradio calls it."""

        async def add() -> None:
            with self.blocks:
                self.view.act(self.press.click, action, [self.choice], outputs, form)

        asyncio.run(add())
        return self.blocks.fns[max(self.blocks.fns)].fn


def test_a_tick_sends_the_quick_components_and_calls_for_the_others(workspace: Workspace) -> None:
    page, seen = Page(workspace), Seen()
    assert page.view._whole(None, seen) == ["0 %", "cat"]
    page.disk["head"] = "1 %"
    head, pulse = page.view._ticked(None, seen)
    assert head == "1 %"
    assert isinstance(pulse, dict)  # nothing else has changed
    page.disk["title"] = "dog"
    _, pulse = page.view._ticked(None, seen)
    assert page.view._pulsed(None, seen, pulse)[1] == "dog"


def test_an_action_that_chooses_sends_everything_and_stops_ticks_of_the_old_choice(workspace: Workspace) -> None:
    page, seen = Page(workspace), Seen()
    page.view._whole("old", seen)
    name, pulse = page.connect(lambda chosen: "new", [page.choice])("old")
    assert name == "new"
    assert page.view._pulsed("new", seen, pulse) == ["0 %", "cat"]
    assert page.view._ticked("old", seen) == gr.skip()


def test_an_action_that_did_nothing_sends_nothing(workspace: Workspace) -> None:
    page = Page(workspace)
    assert page.connect(lambda chosen: None, [page.choice, page.title])("old") == gr.skip()


def test_an_error_leaves_everything_as_it_is(workspace: Workspace) -> None:
    def refuse(chosen: str | None, settings: Any = None) -> None:
        raise ConfigError("there is no run")

    page = Page(workspace)
    with pytest.warns(UserWarning, match="there is no run"):
        assert page.connect(refuse)(None) == gr.skip()
    typed = json.dumps([component.value for component in page.form.inputs])
    shown = page.connect(refuse, [page.title], page.form)(None, typed)
    assert list(shown) == [page.form.problems]


def test_a_button_without_a_label_is_hidden() -> None:
    assert button("Stop")[1]()["visible"]
    assert not button("")[1]()["visible"]
    assert visible(True)[0]


def test_what_a_tick_asks_for_and_nobody_sees_is_found_first() -> None:
    async def build() -> gr.Blocks:
        with gr.Blocks() as page:
            for make in (gr.HTML, gr.Timer, gr.Button, gr.State, lambda: remembered("run")):
                make()
        unseen_first(page)
        return page

    kinds = [type(child) for child in asyncio.run(build()).children]
    assert kinds == [gr.Timer, gr.State, gr.BrowserState, gr.HTML, gr.Button]

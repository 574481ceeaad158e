"""The line below the form of a new run, and what its buttons do; the browser's part is in tests/browser."""

from __future__ import annotations

import asyncio
from typing import Any

import gradio as gr
import pytest

from workbench.errors import ConfigError
from workbench.fit.gpus import HERE
from workbench.runs.settings import TrainSettings
from workbench.ui.core.form import Form
from workbench.ui.core.live import Live
from workbench.ui.train.fit import FitPart
from workbench.ui.train.tab import TrainTab
from workbench.workspace import Workspace


@pytest.fixture
def part(workspace: Workspace) -> FitPart:
    async def build() -> FitPart:
        with gr.Blocks():
            return FitPart(workspace, Form(TrainSettings, workspace, TrainSettings()))

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


def values(part: FitPart, **settings: Any) -> list[Any]:
    """What the form's fields hold."""
    wanted = TrainSettings().changed(**settings).model_dump(mode="json")
    shown = part.form.write(wanted)
    return [update["value"] for update in shown]


def test_the_line_is_red_where_it_does_not_fit_and_offers_what_does(part: FitPart) -> None:
    large = values(part, model="cogvideox-5b", rank=64)
    line, table, button = part.look("24 GB", *large)
    assert "note fit-line bad" in line
    assert "It does not fit: most is needed in training." in line
    assert 'class="stacked-row over"' in table
    assert button["visible"]
    said, changed = part.fit_to_gpu("24 GB", part.form.parse(large))
    assert "Fits with gradient checkpointing full" in said
    assert changed == {"gradient_checkpointing": "full"}
    line, _, button = part.look("24 GB", *values(part, model="cogvideox-5b", rank=64, **changed))
    assert "note fit-line good" in line
    assert not button["visible"]


def test_a_form_that_is_being_filled_in_says_nothing(part: FitPart) -> None:
    broken = values(part)
    broken[[spec.name for spec in part.form.specs].index("frames")] = "10"
    assert part.look(HERE, *broken)[0] == ""
    line, table, _ = part.look(HERE, *values(part))
    assert "estimated." in line
    assert "Python and its libraries" in table


def test_where_nothing_fits_the_form_stays(part: FitPart) -> None:
    said, changed = part.fit_to_gpu("8 GB", TrainSettings().changed(model="cogvideox1.5-5b"))
    assert "33 would fit" in said
    assert changed == {}


def test_what_does_not_fit_here_is_asked_about_before_it_starts(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def build() -> TrainTab:
        with gr.Blocks():
            return TrainTab(workspace, Live(workspace))

    tab = asyncio.run(build())
    started: list[tuple[Any, ...]] = []
    monkeypatch.setattr(tab, "_start", lambda *given: started.append(given) or ["mine", None])
    small = TrainSettings(dataset="cats")
    large = small.changed(model="cogvideox-5b", batch_size=256)

    name, _, note, row = tab._start_or_ask("shown", "mine", "", "", large)
    assert (name, row["visible"], started) == ("shown", True, [])
    assert "It does not fit" in note or "too small" in note
    with pytest.raises(ConfigError, match="dataset is empty"):  # what is wrong comes first
        tab._start_or_ask("shown", "mine", "", "", large.changed(dataset=""))

    name, _, note, row = tab._start_or_ask("shown", "mine", "", "", small)
    assert (name, note, row["visible"]) == ("mine", "", False)
    tab._start_or_ask("shown", "mine", "", "elsewhere", large)  # this machine's memory says nothing of another's
    assert [given[-1] for given in started] == [small, large]

"""The guide stands where it is needed: whole at the form of a run, by its sections at captions and at samples."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import gradio as gr
import pytest

from workbench.ui.core.guide import CAPTIONS, OVER_TRAINING, guide
from workbench.ui.datasets.captions import CaptionPanel
from workbench.ui.sample.tab import SampleTab
from workbench.ui.train.recipes import RecipesPart
from workbench.workspace import Workspace

PARTS: dict[str, tuple[Callable[[Workspace], Any], tuple[str, ...]]] = {
    "guide": (lambda workspace: RecipesPart(workspace).more(), ()),
    "guide-captions": (CaptionPanel, (CAPTIONS,)),
    "guide-sample": (SampleTab, (CAPTIONS, OVER_TRAINING)),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_fold_shows_the_guide_at_its_section_when_it_is_opened(workspace: Workspace, name: str) -> None:
    build, sections = PARTS[name]

    async def built() -> gr.Blocks:
        with gr.Blocks() as page:
            build(workspace)
        return page

    page = asyncio.run(built())
    (fold,) = (one for one in page.blocks.values() if getattr(one, "elem_id", None) == name)
    assert isinstance(fold, gr.Accordion)
    assert not fold.open
    (opened,) = (one for one in page.fns.values() if (fold._id, "expand") in one.targets)
    (text,) = opened.outputs
    assert text.parent is fold
    assert asyncio.run(page.process_api(opened, [], None))["data"] == [guide(*sections).strip()]


def test_sections_are_whole_and_their_links_lead_somewhere() -> None:
    both = guide(CAPTIONS, OVER_TRAINING)
    assert [line for line in both.splitlines() if line.startswith("## ")] == [f"## {CAPTIONS}", f"## {OVER_TRAINING}"]
    assert "Use it in prompts, too." in both
    assert "or a lower scale in Sample, often does." in both
    assert "[diffusers]: https://" in both
    assert ".md)" not in both
    assert set(both.splitlines()) <= set(guide().splitlines())

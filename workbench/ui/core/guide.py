"""The guide to training, whole or by its sections, in a fold that reads it when a person opens it."""

from __future__ import annotations

import re
from functools import partial

import gradio as gr

from workbench.paths import GUIDE
from workbench.ui.core.boundary import QUIET

CAPTIONS, OVER_TRAINING = "Captions and trigger words", "Over-training, and keeping what the model knew"


def guide_fold(title: str, elem_id: str, *sections: str) -> None:
    """A closed fold with these sections of the guide, or all of it; it is not there where the guide is not."""
    with gr.Accordion(title, open=False, visible=GUIDE.is_file(), elem_id=elem_id) as fold:
        text = gr.Markdown()
    fold.expand(partial(guide, *sections), None, text, **QUIET)


def guide(*sections: str) -> str:
    """The guide, or these sections of it, without links to files of the project, which the page does not serve."""
    text = re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]+\)", r"\1", GUIDE.read_text(encoding="utf-8"))
    if not sections:
        return text
    parts = {part.partition("\n")[0]: f"## {part}" for part in text.split("\n## ")[1:]}
    return "\n".join([*(parts[title] for title in sections), *re.findall(r"^\[[^\]]+\]: .*$", text, re.MULTILINE)])

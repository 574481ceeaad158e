"""Takes the boxes out of a page that Gradio puts around fields where they hold one alone, or all of a row.

The browser builds a tree of all components before it shows the first, and looks each of them up several times: a tenth
of the page were such boxes. A row whose fields had one gets the class "joined", for the look of it (style.css).
"""

from __future__ import annotations

import gradio as gr
from gradio.layouts.form import Form


def remove_needless_boxes(page: gr.Blocks) -> None:
    """Of a page that is built: Gradio adds the boxes as each of its layouts ends."""
    for box in [block for block in page.blocks.values() if isinstance(block, Form)]:
        parent = box.parent
        assert isinstance(parent, gr.blocks.BlockContext)
        fills_row = isinstance(parent, gr.Row) and len(parent.children) == 1
        if fills_row:
            parent.elem_classes = [*(parent.elem_classes or []), "joined"]
        elif len(box.children) > 1:
            continue
        at = parent.children.index(box)
        parent.children[at : at + 1] = box.children
        for child in box.children:
            child.parent = parent
        del page.blocks[box._id]

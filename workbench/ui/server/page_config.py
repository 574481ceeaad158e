"""What Gradio describes of the page, to the browser and to itself, without what nobody reads.

It describes every component for programs that call handlers, though ours are the page's own (workbench.api is for
programs); and once more for each new session, 0.08 s and 2 MB for links to a state of the page, which the guard
refuses. An event after another one has a target that is none, and Gradio's browser part goes through all components to
find it. The class of a component is named by 64 digits, which a browser needs for components of other packages alone.
"""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

# No part of Gradio that runs in the browser names them.
UNREAD = ("api_info", "api_info_as_input", "api_info_as_output", "example_inputs", "skip_api")
UNREAD_PROPS = ("preserved_by_key",)
# Lines of comments, and comments after code; no text in a script of ours has what they look like.
SCRIPT_COMMENT = re.compile(r"^[ \t]*//.*\n|[ \t]+// [^'\"`\n]*$", re.MULTILINE)
STYLE_COMMENT = re.compile(r"\s*/\*.*?\*/", re.DOTALL)


def shorten(page: Any) -> None:
    """Leave it out of a page that was launched and that nobody has opened yet."""
    page.state_holder.blocks = SimpleNamespace(default_config=page.default_config, blocks={})
    config = page.config
    called = [one for one in config["dependencies"] if one["backend_fn"] and one["api_visibility"] != "private"]
    described = {number for one in called for number in [*one["inputs"], *one["outputs"]]}
    for one in config["components"]:
        for name in UNREAD if one["id"] not in described else ():
            one.pop(name, None)
        for name in UNREAD_PROPS:
            one["props"].pop(name, None)
        one["component_class_id"] = one["type"]
    for one in config["dependencies"]:
        one["targets"] = [target for target in one["targets"] if target[0] is not None]
    props = [one["props"] for one in config["components"]]
    for texts, name, comment in (
        *((one, "js_on_load", SCRIPT_COMMENT) for one in props),
        *((one, "css_template", STYLE_COMMENT) for one in props),
        (config, "js", SCRIPT_COMMENT),
        (config, "css", STYLE_COMMENT),
    ):
        if texts.get(name):
            texts[name] = comment.sub("", texts[name])

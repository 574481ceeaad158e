"""Which tab is open, as the browser shows it, for scripts that keep it: a reload comes back there.

Gradio selects the first tab by itself as a page opens, and on a busy machine says so long after: an event that a tab
was selected is no sign of a person's choice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

MOMENT = "await new Promise((go) => setTimeout(go, 60));"  # after a change, until the browser has marked the open tab


def marked(names: Sequence[str]) -> str:
    """A script's expression: the one of these tabs that is marked as open, or undefined."""
    return f"""{json.dumps(list(names))}.find((name) =>
        document.getElementById(`tab-${{name}}-button`)?.getAttribute('aria-selected') === 'true')"""


def keep(names: Sequence[str], key: str) -> str:
    """A script's statement: keep the open tab under a key, once the page has opened the one of before."""
    return f"""((open) => {{
        if (open && window.workbenchTabs) localStorage.setItem('{key}', open);
    }})({marked(names)});"""

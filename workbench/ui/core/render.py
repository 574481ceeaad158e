"""HTML of the page beside what all faces share (workbench.display.html): videos by their address, bars, notes, logs."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import quote, urlsplit

from workbench.display.html import PIXEL_ART, badge, escaped, facts, table, video_table
from workbench.display.states import icon
from workbench.paths import ASSETS

__all__ = ["PIXEL_ART", "badge", "escaped", "facts", "table", "video_table"]

FOR_READERS = re.compile(r"^[ \t]*(?://.*\n|[ \t])", re.MULTILINE)  # of a script: lines of comments, indentation


def script(name: str) -> str:
    """The JavaScript of a component: what all components share, its logic without the page, its elements."""
    files = [ASSETS / f"{part}.js" for part in ("elements", f"{name}.logic", name)]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files if file.exists())
    return FOR_READERS.sub("", text)


def style(name: str) -> str:
    """The style sheet of a component."""
    return (ASSETS / f"{name}.css").read_text(encoding="utf-8")


def url(path: Path) -> str:
    """The address of a file of the workspace, whose folders are served directly."""
    return below_prefix(f"/gradio_api/file={quote(path.as_posix())}")


def below_prefix(path: str) -> str:
    """A path of this server as the browser must ask for it, behind a proxy that puts a path of its own before it."""
    return urlsplit(os.environ.get("GRADIO_ROOT_PATH", "")).path.rstrip("/") + path


def video(path: Path, source_width: int, label: str, classes: str = "") -> str:
    """A silent video in a loop. label: for screen readers."""
    sharp = "pixelated" if source_width <= PIXEL_ART else ""
    return (
        f'<video class="{sharp} {classes}" src="{escaped(url(path))}" aria-label="{escaped(label)}" '
        "muted loop autoplay playsinline disablepictureinpicture></video>"
    )


def download(path: Path, name: str) -> str:
    """A link that saves a file of the workspace under a name."""
    return f'<a class="download" href="{escaped(url(path))}" download="{escaped(name)}">Download {escaped(name)}</a>'


def bar(share: float | None, kind: str = "going") -> str:
    """A progress bar, indeterminate without a share. kind: going, good, bad or idle."""
    if share is None:
        return f'<div class="bar {kind} unknown" role="progressbar" aria-label="done"><i></i></div>'
    percent = round(100 * min(max(share, 0.0), 1.0), 1)
    return (
        f'<div class="bar {kind}" role="progressbar" aria-label="done" aria-valuenow="{percent}">'
        f'<i style="width:{percent}%"></i></div>'
    )


def note(text: str, kind: str = "plain") -> str:
    """A sentence in a box. kind: plain, good, bad or empty (nothing yet, and the next action)."""
    mark = icon("", "good" if kind == "good" else "bad") if kind in ("good", "bad") else ""
    return f'<div class="note {kind}">{mark}{escaped(text)}</div>'


def empty_state(text: str, label: str, opens: str) -> str:
    """What will be here, and one button to what comes first. opens: selector of a tab, a fold or a field (page.js)"""
    button = f'<button type="button" data-opens="{escaped(opens)}">{escaped(label)}</button>'
    return f'<div class="empty-state"><p>{escaped(text)}</p>{button}</div>'


def listed(lines: Sequence[str], most: int) -> str:
    """A list of so many lines at most, and how many more there are; "" without lines."""
    more = [f"... and {len(lines) - most:,} more"] if len(lines) > most else []
    items = "".join(f"<li>{escaped(line)}</li>" for line in [*lines[:most], *more])
    return f'<ul class="note">{items}</ul>' if items else ""


def working(share: float | None, text: str) -> str:
    """A progress bar with what is done now below it."""
    return f'{bar(share)}<p class="doing">{escaped(text)}</p>'


def problems(sentences: Iterable[str]) -> str:
    """A list of problems; "" when there are none."""
    lines = "".join(f"<li>{escaped(sentence)}</li>" for sentence in sentences)
    return f'<ul class="note bad problems">{lines}</ul>' if lines else ""


def log_box(text: str) -> str:
    """The end of a log, as text."""
    return f'<pre class="log">{escaped(text)}</pre>' if text else note("The log is empty so far.", "empty")

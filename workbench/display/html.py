"""Pieces of HTML that the page, the report and the notebook share. What a person or a file wrote is escaped here."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path

from workbench.display.states import Tone, icon, tone_of

PIXEL_ART = 128  # pixels of width; smaller videos are enlarged with sharp edges instead of a blur
TYPES = {
    ".mp4": "video/mp4",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".html": "text/html",
}


def escaped(text: object) -> str:
    """Text that is safe inside HTML and inside an attribute."""
    return html.escape(str(text), quote=True)


def table(head: Sequence[str], rows: Iterable[Sequence[object]], classes: str = "plain") -> str:
    """Texts in rows and columns; "" without rows."""
    lines = "".join("<tr>" + "".join(f"<td>{escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return _table(head, lines, classes) if lines else ""


def video_table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Videos in rows, each row named by its prompt. The cells are HTML, "" for an empty one; "" without rows."""
    lines = "".join(
        f'<tr><th scope="row">{escaped(name)}</th>' + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        for name, cells in rows
    )
    return _table(head, lines, "previews") if lines else ""


def _table(head: Sequence[str], lines: str, classes: str) -> str:
    titles = "".join(f"<th>{escaped(title)}</th>" for title in head)
    top = f"<thead><tr>{titles}</tr></thead>" if any(head) else ""
    return f'<div class="scroll" tabindex="0"><table class="{classes}">{top}<tbody>{lines}</tbody></table></div>'


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """Short values under their names, side by side."""
    lines = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in pairs)
    return f'<dl class="facts">{lines}</dl>'


def badge(text: str, tone: Tone | None = None) -> str:
    """A word in a colored pill with its icon. tone: of a word that is no state"""
    tone = tone or tone_of(text)
    return f'<span class="badge {tone}">{icon(text, tone)}{escaped(text)}</span>'


def data_url(path: Path, limit: int | None = None) -> str | None:
    """A file's content as a data URL; None when it is gone or larger than limit bytes."""
    try:
        if limit is not None and path.stat().st_size > limit:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    return f"data:{TYPES[path.suffix.lower()]};base64,{base64.b64encode(content).decode()}"

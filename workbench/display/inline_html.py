"""HTML that carries its styles and files inside: what objects of the library show as the last line of a notebook cell.

A notebook's page often cannot reach the kernel's files (Colab, VS Code), so pictures and videos are embedded as data
URLs. Text from people and files is escaped here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from workbench.display import html
from workbench.display.html import PIXEL_ART, escaped
from workbench.display.states import Tone, icon, tone_of

EMBED_LIMIT = 8 * 1024 * 1024  # bytes; a notebook that carries more than this per video gets slow to open
BLUE, AMBER, GREEN, RED, GRAY = "#2f6fd0", "#b26a00", "#2e7d32", "#c62828", "#6b7688"
TONE_COLORS: dict[Tone, str] = {"plain": GRAY, "going": BLUE, "idle": GRAY, "good": GREEN, "warn": AMBER, "bad": RED}
NOTE_COLORS = {"plain": "inherit", "error": RED, "good": GREEN}
CELL = 'style="padding:4px 6px;text-align:left;vertical-align:top;font-weight:normal;border:0;background:none"'


# ---- files


def data_url(path: Path) -> str | None:
    """A file's content as a data URL; None when it is gone or too large to embed."""
    return html.data_url(path, EMBED_LIMIT)


def video(path: Path, width: int = 192, source_width: int | None = None, label: str = "") -> str:
    """A silent video that plays in a loop; a line of text when it cannot be shown.

    width: on the page, pixels;  source_width: the video's own, pixels, so that tiny ones keep sharp edges;
    label: for screen readers
    """
    url = data_url(path)
    if url is None:
        reason = f"{escaped(path)} is too large to show here" if path.exists() else f"{escaped(path.name)} is gone"
        return f'<div style="width:{width}px;opacity:.7;overflow-wrap:anywhere">{reason}</div>'
    sharp = "image-rendering:pixelated;" if source_width is None or source_width <= PIXEL_ART else ""
    return (
        f'<video src="{url}" aria-label="{escaped(label or path.stem)}" '
        f'autoplay loop muted playsinline controls controlslist="nofullscreen nodownload" '
        f'style="width:{width}px;{sharp}border-radius:4px;display:block"></video>'
    )


def picture(path: Path, name: str, width: int = 96) -> str:
    """A still picture; its name where it cannot be shown. width: on the page, pixels"""
    url = data_url(path)
    if url is None:
        return f'<div style="width:{width}px;opacity:.7">{escaped(name)}</div>'
    return f'<img src="{url}" alt="{escaped(name)}" style="width:{width}px;border-radius:4px;margin:0 4px 4px 0">'


def figure(path: Path, caption: str, width: int = 192, source_width: int | None = None) -> str:
    """A video with a line of text below."""
    text = f'<figcaption style="width:{width}px;font-size:90%;line-height:1.3">{escaped(caption)}</figcaption>'
    return f'<figure style="margin:0 12px 12px 0">{video(path, width, source_width)}{text}</figure>'


def download(path: Path) -> str:
    """A link that saves a file on the reader's machine; the file's path where it is too large to embed."""
    url = data_url(path)
    if url is None:
        return f"<code>{escaped(path)}</code>"
    return f'<a download="{escaped(path.name)}" href="{url}">{escaped(path.name)}</a>, <code>{escaped(path)}</code>'


# ---- text


def note(text: str, kind: str = "plain") -> str:
    """A sentence. kind: plain, error or good."""
    faint = ";opacity:.75" if kind == "plain" else ""
    return f'<div style="color:{NOTE_COLORS[kind]}{faint};line-height:1.4;overflow-wrap:anywhere">{escaped(text)}</div>'


def heading(text: str) -> str:
    """A line in bold."""
    return f'<div style="margin:8px 0 4px"><b>{escaped(text)}</b></div>'


def badge(text: str, tone: Tone | None = None) -> str:
    """A word in a colored pill with its icon. tone: of a word that is no state"""
    tone = tone or tone_of(text)
    style = f"background:{TONE_COLORS[tone]};color:#fff;border-radius:9px;padding:1px 9px"
    return f'<span style="{style}">{icon(text, tone)}{escaped(text)}</span>'


# ---- several things


def row(cells: Sequence[str]) -> str:
    """Pieces of HTML side by side; they wrap where the page ends."""
    return f'<div style="display:flex;flex-wrap:wrap">{"".join(cells)}</div>'


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Texts in rows and columns."""
    return html_table(list(map(escaped, heads)), [list(map(escaped, cells)) for cells in rows])


def html_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Pieces of HTML in rows and columns."""
    head = "".join(f"<th {CELL}><b>{name}</b></th>" for name in heads)
    lines = ("".join(f"<td {CELL}>{cell}</td>" for cell in cells) for cells in rows)
    # Jupyter gives every second row of a table a background.
    body = "".join(f'<tr style="background:none">{cells}</tr>' for cells in lines)
    return f'<table style="border-collapse:collapse;line-height:1.3"><tr>{head}</tr>{body}</table>'


def folded(title: str, content: str) -> str:
    """HTML that is shown after a click."""
    return f"<details><summary>{escaped(title)}</summary>{content}</details>"

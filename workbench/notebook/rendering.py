"""HTML of the notebook panels, as plain strings: videos that play anywhere, tables of them, links that bring a file.

Videos are embedded as data URLs, because a notebook's page cannot reach the kernel's files in Colab and VS Code.
Everything that a person or a file wrote is escaped here. Not covered: what a run looks like (run_drawing), widgets and
when things are redrawn (panels).
"""

from __future__ import annotations

import base64
import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from workbench.runs.previews import Preview

EMBED_LIMIT = 8 * 1024 * 1024  # bytes; a notebook that carries more than this per video gets slow to open
TABLE_COLUMNS = 5
PIXEL_ART = 128  # pixels; smaller videos are enlarged with sharp edges instead of a blur
SMOOTH = "#2f6fd0"

TYPES = {
    ".mp4": "video/mp4", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".png": "image/png", ".webp": "image/webp",
    ".gif": "image/gif", ".html": "text/html",
}  # fmt: skip


def escaped(text: object) -> str:
    """Text that is safe inside HTML and inside an attribute."""
    return html.escape(str(text), quote=True)


def data_url(path: Path) -> str | None:
    """A file's content as a data URL; None when it is gone or too large to embed."""
    try:
        if path.stat().st_size > EMBED_LIMIT:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    return f"data:{TYPES[path.suffix.lower()]};base64,{base64.b64encode(content).decode()}"


def video(path: Path, width: int = 192, source_width: int | None = None) -> str:
    """A looping, silent, playing video; a line of text when it cannot be shown.

    width: how wide it is shown, pixels;  source_width: its own, so that tiny ones are enlarged with sharp edges
    """
    url = data_url(path)
    if url is None:
        where = f"{escaped(path)} is too large to show here" if path.exists() else f"{escaped(path.name)} is gone"
        return f'<div style="width:{width}px;opacity:.7;overflow-wrap:anywhere">{where}</div>'
    sharp = "image-rendering:pixelated;" if source_width is None or source_width <= PIXEL_ART else ""
    return (
        f'<video src="{url}" autoplay loop muted playsinline controls controlslist="nofullscreen nodownload" '
        f'style="width:{width}px;{sharp}border-radius:4px;display:block"></video>'
    )


def download(path: Path) -> str:
    """A link that brings a file to the reader's machine; where it lies when it is too large for that."""
    url = data_url(path)
    if url is None:
        return f"<code>{escaped(path)}</code>"
    return f'<a download="{escaped(path.name)}" href="{url}">{escaped(path.name)}</a>, <code>{escaped(path)}</code>'


def figure(path: Path, caption: str, width: int = 192, source_width: int | None = None) -> str:
    """A video with a line of text below."""
    text = f'<figcaption style="width:{width}px;font-size:90%;line-height:1.3">{escaped(caption)}</figcaption>'
    return f'<figure style="margin:0 12px 12px 0">{video(path, width, source_width)}{text}</figure>'


def row(cells: Sequence[str]) -> str:
    """Pieces of HTML side by side, wrapping where the page ends."""
    return f'<div style="display:flex;flex-wrap:wrap">{"".join(cells)}</div>'


def picture(path: Path, name: str, width: int = 96) -> str:
    """A still picture; its name where it cannot be shown."""
    url = data_url(path)
    if url is None:
        return f'<div style="width:{width}px;opacity:.7">{escaped(name)}</div>'
    return f'<img src="{url}" alt="{escaped(name)}" style="width:{width}px;border-radius:4px;margin:0 4px 4px 0">'


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Texts in rows and columns."""
    head = "".join(f"<th {_CELL}><b>{escaped(name)}</b></th>" for name in heads)
    body = "".join(
        f'<tr style="background:none">{"".join(f"<td {_CELL}>{escaped(cell)}</td>" for cell in cells)}</tr>'
        for cells in rows
    )
    return f'<table style="border-collapse:collapse;line-height:1.3"><tr>{head}</tr>{body}</table>'


def bars(counts: Mapping[str, int]) -> str:
    """A bar and a number a name."""
    top = max(counts.values(), default=1) or 1
    rows = "".join(
        f'<div style="display:flex;align-items:center;line-height:1.6"><span style="width:200px">{escaped(name)}</span>'
        f'<span style="background:{SMOOTH};height:10px;border-radius:2px;width:{300 * count / top:.0f}px"></span>'
        f'<span style="padding-left:8px">{count:,}</span></div>'
        for name, count in counts.items()
    )
    return f"<div>{rows}</div>"


def preview_table(previews: Sequence[Preview], width: int = 144, source_width: int | None = None) -> str:
    """Prompts down, steps across: the base model first, then the newest steps and some on the way there."""
    if not previews:
        return note("No previews yet.")
    steps = chosen_steps(sorted({preview.step for preview in previews}))
    cells = {(preview.prompt, preview.step): preview.video for preview in previews}
    prompts = list(dict.fromkeys(preview.prompt for preview in previews))
    head = "".join(f"<th {_CELL}>{'base model' if step == 0 else f'step {step}'}</th>" for step in steps)
    rows = []
    for prompt in prompts:
        shown = [cells.get((prompt, step)) for step in steps]
        videos = "".join(f"<td {_CELL}>{video(path, width, source_width) if path else ''}</td>" for path in shown)
        name = f'<td {_CELL}><div style="width:120px;line-height:1.3">{escaped(prompt)}</div></td>'
        rows.append(f'<tr style="background:none">{name}{videos}</tr>')  # Jupyter stripes its tables
    return f'<table style="border-collapse:collapse"><tr><th></th>{head}</tr>{"".join(rows)}</table>'


_CELL = 'style="padding:4px 6px;text-align:left;vertical-align:top;font-weight:normal;border:0;background:none"'


def chosen_steps(steps: Sequence[int], columns: int = TABLE_COLUMNS) -> list[int]:
    """The first, the last, and evenly spaced ones between them."""
    if len(steps) <= columns:
        return list(steps)
    return [steps[round(place * (len(steps) - 1) / (columns - 1))] for place in range(columns)]


def note(text: str, kind: str = "plain") -> str:
    """A sentence: plain, error or good."""
    colours = {"plain": "inherit", "error": "#c62828", "good": "#2e7d32"}
    faint = ";opacity:.75" if kind == "plain" else ""
    return f'<div style="color:{colours[kind]}{faint};line-height:1.4;overflow-wrap:anywhere">{escaped(text)}</div>'


def log_box(text: str) -> str:
    """The end of a log."""
    style = "max-height:220px;overflow:auto;font-size:85%;line-height:1.35;white-space:pre-wrap;margin:0"
    return f'<pre style="{style}">{escaped(text) or "nothing yet"}</pre>'

"""HTML as text, for objects that are shown as the last line of a notebook cell.

A notebook's page often cannot reach the kernel's files (Colab, VS Code), so pictures and videos are embedded as data
URLs. These functions escape the text they are given.
"""

from __future__ import annotations

import base64
import html
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from workbench.display.quantities import Tone

EMBED_LIMIT = 8 * 1024 * 1024  # bytes; larger videos make a notebook slow to open
PIXEL_ART = 128  # pixels; narrower videos are enlarged with sharp edges
TYPES = {
    ".mp4": "video/mp4",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".gif": "image/gif",
    ".html": "text/html",
}
BLUE, AMBER, GREEN, RED, GRAY = "#2f6fd0", "#b26a00", "#2e7d32", "#c62828", "#6b7688"
TONE_COLORS: dict[Tone, str] = {"plain": GRAY, "going": BLUE, "idle": GRAY, "good": GREEN, "warn": AMBER, "bad": RED}
NOTE_COLORS = {"plain": "inherit", "error": RED, "good": GREEN}
CELL = 'style="padding:4px 6px;text-align:left;vertical-align:top;font-weight:normal;border:0;background:none"'


def escaped(text: object) -> str:
    """Escape text for HTML and its attributes."""
    return html.escape(str(text), quote=True)


# ---- files


def data_url(path: Path) -> str | None:
    """Return a file's content as a data URL, or None if it is gone or too large to embed."""
    try:
        if path.stat().st_size > EMBED_LIMIT:
            return None
        content = path.read_bytes()
    except OSError:
        return None
    return f"data:{TYPES[path.suffix.lower()]};base64,{base64.b64encode(content).decode()}"


def video(path: Path, width: int = 192, source_width: int | None = None, label: str = "", stills: bytes = b"") -> str:
    """Return a silent video that loops, or a line of text if it cannot be embedded.

    Args:
        width: Width on the page in pixels.
        source_width: The video's own width. Tiny videos keep sharp edges.
        label: Label for screen readers.
        stills: A JPEG of its frames, for pages that show no videos.
    """
    url = data_url(path)
    if url is None:
        reason = f"{escaped(path)} is too large to show here" if path.exists() else f"{escaped(path.name)} is gone"
        return f'<div style="width:{width}px;opacity:.7;overflow-wrap:anywhere">{reason}</div>'
    inside = frames(stills, label or path.stem)
    sharp = "image-rendering:pixelated;" if source_width is None or source_width <= PIXEL_ART else ""
    return (
        f'<video src="{url}" aria-label="{escaped(label or path.stem)}" '
        f'autoplay loop muted playsinline controls controlslist="nofullscreen nodownload" '
        f'style="width:{width}px;{sharp}border-radius:4px;display:block">{inside}</video>'
    )


def frames(jpeg: bytes, name: str) -> str:
    """Return frames of a video as a picture, which every page shows, or "" if there are none."""
    url = f"data:image/jpeg;base64,{base64.b64encode(jpeg).decode()}"
    return f'<img src="{url}" alt="{escaped(name)}" style="border-radius:4px;max-width:100%">' if jpeg else ""


def picture(path: Path, name: str, width: int = 96) -> str:
    """Return a picture of the given width, or its name if it cannot be embedded."""
    url = data_url(path)
    if url is None:
        return f'<div style="width:{width}px;opacity:.7">{escaped(name)}</div>'
    return f'<img src="{url}" alt="{escaped(name)}" style="width:{width}px;border-radius:4px;margin:0 4px 4px 0">'


def figure(path: Path, caption: str, width: int = 192, source_width: int | None = None, stills: bytes = b"") -> str:
    text = f'<figcaption style="width:{width}px;font-size:90%;line-height:1.3">{escaped(caption)}</figcaption>'
    return f'<figure style="margin:0 12px 12px 0">{video(path, width, source_width, "", stills)}{text}</figure>'


def download(path: Path) -> str:
    """Return a download link, or the file's path if it is too large to embed."""
    url = data_url(path)
    if url is None:
        return f"<code>{escaped(path)}</code>"
    return f'<a download="{escaped(path.name)}" href="{url}">{escaped(path.name)}</a>, <code>{escaped(path)}</code>'


def captioned(content: str, caption: str) -> str:
    text = f'<figcaption style="font-size:90%;line-height:1.3">{escaped(caption)}</figcaption>'
    return f'<figure style="margin:0 12px 12px 0">{content}{text}</figure>'


# ---- text


def note(text: str, kind: str = "plain") -> str:
    """Return a sentence. kind: plain, error or good."""
    faint = ";opacity:.75" if kind == "plain" else ""
    return f'<div style="color:{NOTE_COLORS[kind]}{faint};line-height:1.4;overflow-wrap:anywhere">{escaped(text)}</div>'


def heading(text: str) -> str:
    return f'<div style="margin:8px 0 4px"><b>{escaped(text)}</b></div>'


def badge(text: str, tone: Tone) -> str:
    """Return a word in a pill with the color of its tone."""
    style = f"background:{TONE_COLORS[tone]};color:#fff;border-radius:9px;padding:1px 9px"
    return f'<span style="{style}">{escaped(text)}</span>'


# ---- layout


def row(cells: Sequence[str]) -> str:
    """Return pieces of HTML side by side, wrapped at the edge of the page."""
    return f'<div style="display:flex;flex-wrap:wrap">{"".join(cells)}</div>'


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table of texts."""
    head = "".join(f"<th {CELL}><b>{escaped(name)}</b></th>" for name in heads)
    lines = ("".join(f"<td {CELL}>{escaped(cell)}</td>" for cell in cells) for cells in rows)
    # Jupyter shades every second row.
    body = "".join(f'<tr style="background:none">{cells}</tr>' for cells in lines)
    return f'<table style="border-collapse:collapse;line-height:1.3"><tr>{head}</tr>{body}</table>'


def folded(title: str, content: str) -> str:
    """Return HTML that opens with a click on its title."""
    return f"<details><summary>{escaped(title)}</summary>{content}</details>"


def framed(document: Iterable[str], title: str, height: int) -> str:
    """Return a document in an iframe of the given height in pixels, which a person can resize."""
    return (
        f'<iframe srcdoc="{escaped("".join(document))}" title="{escaped(title)}" '
        f'style="width:100%;height:{height}px;border:0;resize:vertical" allowfullscreen></iframe>'
    )


def curves(title: str, lines: Mapping[str, Sequence[tuple[float, float]]], width: int = 460, height: int = 170) -> str:
    """Return curves of (step, value) points by name, as a picture that every page shows; "" without points."""
    points = [point for line in lines.values() for point in line]
    if not points:
        return ""
    (left, right), (low, high) = ((min(values), max(values)) for values in zip(*points, strict=True))
    across, up = (width - 60) / ((right - left) or 1), (height - 50) / ((high - low) or 1)
    parts = [
        f'<text x="50" y="14" font-weight="bold">{escaped(title)}</text>',
        f'<text x="44" y="30" text-anchor="end">{high:.3g}</text>',
        f'<text x="44" y="{height - 22}" text-anchor="end">{low:.3g}</text>',
        f'<text x="50" y="{height - 4}">{left:,g}</text>',
        f'<text x="{width - 10}" y="{height - 4}" text-anchor="end">step {right:,g}</text>',
    ]
    for number, (name, line) in enumerate(lines.items()):
        color = (GRAY, BLUE, AMBER, GREEN)[number % 4]
        path = " ".join(f"{50 + (x - left) * across:.1f},{height - 22 - (y - low) * up:.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        parts.append(
            f'<text x="{width - 10}" y="{14 + 13 * number}" fill="{color}" text-anchor="end">{escaped(name)}</text>'
        )
    drawn = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
    drawn += f'font-size="11" fill="{GRAY}">{"".join(parts)}</svg>'
    url = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
    return f'<img src="{url}" alt="{escaped(title)}" width="{width}" height="{height}">'


# ---- counts


def histogram(title: str, unit: str, edges: Sequence[float], counts: Sequence[int]) -> str:
    """Return a histogram. counts[i] values lie between edges[i] and edges[i + 1]."""
    top = max(counts, default=1) or 1
    bins = "".join(
        f'<span title="{low:g} to {high:g} {escaped(unit)}: {count:,}" '
        f'style="flex:1;background:{BLUE};margin-right:1px;height:{100 * count / top:.0f}%"></span>'
        for (low, high), count in zip(pairwise(edges), counts, strict=True)
    )
    style = "display:flex;align-items:flex-end;height:90px;border-bottom:1px solid rgba(127,127,127,.6)"
    ends = f"<span>{edges[0]:g}</span><span>{edges[-1]:g} {escaped(unit)}</span>"
    return _counted(
        title, f'<div style="{style}">{bins}</div><div style="display:flex;justify-content:space-between">{ends}</div>'
    )


def bars(title: str, counts: Mapping[str, int], most: int = 12) -> str:
    """Return a horizontal bar and a count for each of the first `most` names."""
    top = max(counts.values(), default=1) or 1
    lines = "".join(
        '<div style="display:flex;align-items:center;gap:6px;line-height:1.5">'
        f'<span style="flex:0 0 40%;overflow:hidden;text-overflow:ellipsis;white-space:nowrap">{escaped(name)}</span>'
        f'<span style="background:{BLUE};height:9px;border-radius:2px;min-width:2px;width:{45 * count / top:.1f}%">'
        f"</span><span>{count:,}</span></div>"
        for name, count in list(counts.items())[:most]
    )
    more = f"<div>and {len(counts) - most:,} more</div>" if len(counts) > most else ""
    return _counted(title, lines + more)


def _counted(title: str, content: str) -> str:
    caption = f'<figcaption style="margin:8px 0 4px"><b>{escaped(title)}</b></figcaption>'
    return (
        f'<figure style="width:100%;max-width:340px;margin:0 18px 14px 0;font-size:.9rem">{caption}{content}</figure>'
    )

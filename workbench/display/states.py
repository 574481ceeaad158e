"""How a state looks, wherever one is shown: its tone, which has a color, and its icon. Its word stands beside it.

Runs, jobs, the queue, samples and findings use the same. Icons are lines on a square of 16, drawn in the text's color
and left out for screen readers, which read the word.
"""

from __future__ import annotations

from typing import Literal

Tone = Literal["plain", "going", "idle", "good", "warn", "bad"]

TONES: dict[str, Tone] = {
    "starting": "going",
    "loading": "going",
    "running": "going",
    "generating": "going",
    "finished": "good",
    "done": "good",
    "failed": "bad",
    "died": "bad",
}  # of every other state: idle
CIRCLE = "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11"
DOTS = "M3 8h.01M8 8h.01M13 8h.01"
CROSS, CHECK, PLAY, SQUARE = "M4 4l8 8M12 4l-8 8", "M3 8.5l3.5 3.5L13 4.5", "M5 3v10l8-5z", "M4 4h8v8H4z"
ICONS = {
    "new": CIRCLE,
    "waiting": f"{CIRCLE}M8 5v3.2l2 1.3",
    "starting": DOTS,
    "loading": DOTS,
    "paused": "M5.5 3.5v9M10.5 3.5v9",
    "stopping": SQUARE,
    "stopped": SQUARE,
    "cancelled": SQUARE,
    "starred": "M8 2.2l1.8 3.7 4 .6-2.9 2.8.7 4L8 11.4l-3.6 1.9.7-4L2.2 6.5l4-.6z",
    "died": f"{CIRCLE}M4.2 4.2l7.6 7.6",
}  # of every other state: by its tone
TONE_ICONS: dict[Tone, str] = {
    "plain": CIRCLE,
    "going": PLAY,
    "idle": "M3 8h10",
    "good": CHECK,
    "warn": "M8 2.5L14 13H2zM8 6.5v3M8 11.3h.01",
    "bad": CROSS,
}


def tone_of(state: str) -> Tone:
    """The tone of a state, such as "running"."""
    return TONES.get(state, "idle")


def icon_path(word: str, tone: Tone | None = None) -> str:
    """The lines of the icon beside a word, as the path of an SVG. tone: of a word that is no state"""
    return ICONS.get(word) or TONE_ICONS[tone or tone_of(word)]


def icon(word: str, tone: Tone | None = None) -> str:
    """The icon beside a word as HTML that needs no style sheet."""
    return (
        '<svg class="icon" aria-hidden="true" viewBox="0 0 16 16" width="11" height="11" fill="none" '
        'stroke="currentColor" stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round" '
        f'style="display:inline-block;vertical-align:-1px;margin-right:4px"><path d="{icon_path(word, tone)}"/></svg>'
    )

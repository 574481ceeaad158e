"""Quantities in words, as page, notebook, shell and messages write them, and the tone of a state, which has a color."""

from __future__ import annotations

import time
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


def tone_of(state: str) -> Tone:
    """The tone of the state of a run, a job or a sample, such as "running"."""
    return TONES.get(state, "idle")


def byte_size(count: float) -> str:
    """ "12.3 kB", "4.5 MB", "1.2 GB": powers of ten, as disks and the Hub have them."""
    if count >= 1e9:
        return f"{count / 1e9:,.1f} GB"
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def duration(seconds: float) -> str:
    """45 s, 3 min 20 s, 2 h 05 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def time_range(start: float, end: float) -> str:
    """ "0:12-0:15": a part of a video, in minutes and seconds; tenths where they count."""
    whole = all(abs(second - round(second)) < 0.05 for second in (start, end))

    def clock(seconds: float) -> str:
        rounded = round(seconds, 0 if whole else 1)
        minutes, rest = divmod(rounded, 60)
        return f"{int(minutes)}:{rest:02.0f}" if whole else f"{int(minutes)}:{rest:04.1f}"

    return f"{clock(start)}-{clock(end)}"


def moment(seconds: float) -> str:
    """ "2026-11-22 22:38", here, of a Unix time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def counted(number: int, noun: str) -> str:
    """ "1 clip", "1,200 clips"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """0.0123 -> "1.2 %"; shares below rounding error print as "nothing"."""
    return "nothing" if share < 1e-6 else f"{share * 100:.2g} %"


def loss_text(value: float) -> str:
    """ "0.5771"; three digits where four decimals would show nothing or too much: "4.20e-05", "1.3e+06"."""
    return f"{value:.4f}" if value == 0 or 0.001 <= abs(value) < 1000 else f"{value:.3g}"

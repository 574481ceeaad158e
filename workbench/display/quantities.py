"""Format quantities for page, notebook, shell and messages, and map states to tones (colors)."""

from __future__ import annotations

import time
from collections.abc import Sequence
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
}  # every other state is idle


def tone_of(state: str) -> Tone:
    """Return the tone of a state of a run, job or sample, such as "running"."""
    return TONES.get(state, "idle")


def byte_size(count: float) -> str:
    """Return "12.3 kB", "4.5 MB" or "1.2 GB", in powers of ten like disks and the Hub."""
    if count >= 1e9:
        return f"{count / 1e9:,.1f} GB"
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def duration(seconds: float) -> str:
    """Return "45 s", "3 min 20 s" or "2 h 05 min"."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def time_range(start: float, end: float) -> str:
    """Return a part of a video as "0:12-0:15", or with tenths as "0:12.5-0:15.0"."""
    whole = all(abs(second - round(second)) < 0.05 for second in (start, end))

    def clock(seconds: float) -> str:
        rounded = round(seconds, 0 if whole else 1)
        minutes, rest = divmod(rounded, 60)
        return f"{int(minutes)}:{rest:02.0f}" if whole else f"{int(minutes)}:{rest:04.1f}"

    return f"{clock(start)}-{clock(end)}"


def moment(seconds: float) -> str:
    """Return a Unix time as "2026-11-22 22:38" in local time."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def counted(number: int, noun: str) -> str:
    """Return "1 clip" or "1,200 clips"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def listed(texts: Sequence[str], most: int = 3) -> str:
    """Return "a.mp4, b.mp4 and 3 more"."""
    return ", ".join(texts[:most]) + (f" and {len(texts) - most:,} more" if len(texts) > most else "")


def shortened(texts: Sequence[str], most: int) -> str:
    """Return "a, b, c ..."."""
    return ", ".join(texts[:most]) + (" ..." if len(texts) > most else "")


def percent(share: float) -> str:
    """Return 0.0123 as "1.2%". Shares below rounding error print as "nothing"."""
    return "nothing" if share < 1e-6 else f"{share * 100:.2g}%"


def loss_text(value: float) -> str:
    """Return a loss with four decimals, "0.5771", or if too small or large for that with three digits, "4.2e-05"."""
    return f"{value:.4f}" if value == 0 or 0.001 <= abs(value) < 1000 else f"{value:.3g}"

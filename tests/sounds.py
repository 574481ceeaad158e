"""Sounds that tests give to their clips, and how they judge them."""

from __future__ import annotations

import numpy as np


def tone(hertz: float, seconds: float, rate: int = 16000, loudness: float = 0.5) -> np.ndarray:
    """float32 [1, samples]: a sine of this frequency."""
    return np.float32(loudness * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate))[None]


def pitch(samples: np.ndarray, rate: int) -> float:
    """The frequency with the most energy, in Hz."""
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum)) * rate / len(samples)


def onset(samples: np.ndarray) -> int:
    """The first sample that is heard."""
    return int(np.flatnonzero(np.abs(samples) > 0.05)[0])

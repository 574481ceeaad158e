"""Tell speech from other sounds, without a model.

Speech has syllables, voiced parts with a pitch that glides, and a timbre that changes from vowels to consonants. Music
holds its notes or its timbre, noises have no pitch. The limits were chosen on synthesized speech, music and noises, and
tried on others (benchmarks/tells_speech.py, docs/guide.md): singing may count as speech, and speech far below other
sound is not found.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.clips.sound import read_sound

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
else:
    Floats = Any

RATE = 16000  # samples per second
WINDOW, HOP = 1024, 160  # samples
PART, SHORTEST = 4.0, 1.0  # seconds that are judged at once
PITCH = (70, 400)  # Hz
LOUD = 25.0  # dB below the loudest frames in which a frame counts
CLEAR = 0.6  # height of the peak of autocorrelation that makes a pitch
JUMP, STEADY = 1.5, 0.03  # semitones in 10 ms: another note from here on; a pitch that is held up to here
SYLLABLE = 0.04  # seconds that one lasts at least


class Voice(NamedTuple):
    """Measures of a few seconds of sound.

    voiced: share of the loud frames that have a pitch.
    steady: share of their pitches that are held from one frame to the next; 1 if there are too few to tell.
    timbre: standard deviation of the spectrum's center in loud frames, in octaves.
    syllables: voiced stretches a second.
    """

    voiced: float
    steady: float
    timbre: float
    syllables: float

    @property
    def is_speech(self) -> bool:
        held = self.steady <= 0.4 and self.timbre >= 0.5
        return 0.25 <= self.voiced <= 0.97 and held and 1.5 <= self.syllables <= 8


def speech_share(path: Path, tick: Callable[[], None] = lambda: None) -> float:
    """Return the share of a video's sound, in parts of 4 s, that sounds like speech. Raises DataError."""
    samples = read_sound(path, rate=RATE, channels=1)[0]
    length = round(PART * RATE)
    found = []
    for start in range(0, len(samples), length):
        part = samples[start : start + length]
        if len(part) >= SHORTEST * RATE:
            found.append(measure(part).is_speech)
            tick()
    return sum(found) / len(found) if found else 0.0


def measure(samples: Any) -> Voice:
    """Measure a mono sound of a second or more, [samples] at RATE."""
    import numpy as np

    values = np.asarray(samples, np.float64)
    padded = np.pad(values - values.mean(), WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP] * np.hanning(WINDOW)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    hertz = np.fft.rfftfreq(WINDOW, 1 / RATE)
    level = 10 * np.log10(power[:, (hertz >= 200) & (hertz <= 4000)].sum(1) + 1e-12)
    loud = level > np.percentile(level, 95) - LOUD
    pitch, clear = _pitches(frames)
    voiced = loud & (clear > CLEAR)
    steps = np.abs(np.diff(12 * np.log2(pitch)))[voiced[1:] & voiced[:-1]]
    steps = steps[steps < JUMP]
    center = np.log2((power * hertz).sum(1) / (power.sum(1) + 1e-12) + 1)[loud]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], voiced.astype(int), [0]])))
    stretches = np.diff(edges)[::2] * HOP / RATE
    return Voice(
        float(voiced.sum() / max(1, loud.sum())),
        float((steps < STEADY).mean()) if len(steps) > 10 else 1.0,
        float(center.std()) if len(center) else 0.0,
        float((stretches > SYLLABLE).sum() / (len(values) / RATE)),
    )


def _pitches(frames: Floats) -> tuple[Floats, Floats]:
    """Return the pitch of each windowed frame in Hz, and how clear it is, by normalized autocorrelation."""
    import numpy as np

    def correlated(one: Floats) -> Floats:
        return np.fft.irfft(np.abs(np.fft.rfft(one, 2 * WINDOW)) ** 2)[..., : WINDOW - 1]

    window = correlated(np.hanning(WINDOW))
    found = correlated(frames)
    found = found / np.maximum(found[:, :1], 1e-12) / (window / window[0])
    shortest, longest = RATE // PITCH[1], RATE // PITCH[0]
    rows, near = np.arange(len(found)), found[:, shortest:longest]
    clear = near.max(1)
    # The first peak that is nearly as high as the highest: later ones are its multiples.
    rises = np.diff(near, axis=1, prepend=near[:, :1], append=near[:, -1:])
    peaks = (near > 0.9 * clear[:, None]) & (rises[:, 1:] <= 0)
    at = peaks.argmax(1) + shortest
    before, here, after = (found[rows, at + step] for step in (-1, 0, 1))
    bend = before - 2 * here + after
    shift = np.where(np.abs(bend) > 1e-9, 0.5 * (before - after) / np.where(np.abs(bend) > 1e-9, bend, 1), 0.0)
    return RATE / (at + np.clip(shift, -1, 1)), clear

"""Speech is told from music and noises by its syllables, gliding pitch and changing timbre."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.clips import media
from workbench.clips.sound import write_sound
from workbench.clips.speech import RATE, measure, speech_share

SECONDS = 4.0


def spoken(seed: int, syllables: float = 4.0) -> Any:
    """Syllables: a vowel with three formants on a falling pitch, and a fricative before every other one."""
    chance, found = np.random.default_rng(seed), []
    while sum(map(len, found)) < SECONDS * RATE:
        count = round(RATE / syllables * chance.uniform(0.5, 0.9))
        times = np.arange(count) / RATE
        pitch = chance.uniform(110, 150) * 2 ** np.linspace(0.15, -0.2, count)
        phase = 2 * np.pi * np.cumsum(pitch) / RATE
        vowel = np.zeros(count)
        formants = (chance.uniform(300, 800), chance.uniform(900, 2200), 2600)
        for harmonic in range(1, 25):
            height = sum(np.exp(-(((harmonic * pitch - one) / 120) ** 2)) for one in formants)
            vowel += height * np.sin(harmonic * phase)
        found.append(vowel * np.hanning(count) * np.exp(-times))
        if chance.uniform() < 0.6:
            hiss = np.diff(chance.normal(size=round(RATE * 0.08) + 1)) * 0.25
            found.append(hiss * np.hanning(len(hiss)))
        found.append(np.zeros(round(RATE * chance.uniform(0.02, 0.1))))
    return np.concatenate(found)[: round(SECONDS * RATE)]


def melody(seed: int) -> Any:
    chance, found = np.random.default_rng(seed), []
    while sum(map(len, found)) < SECONDS * RATE:
        times = np.arange(round(RATE * chance.choice([0.125, 0.25, 0.5]))) / RATE
        hertz = 220 * 2 ** (chance.choice([0, 2, 4, 7, 9, 12]) / 12)
        found.append(sum(np.sin(2 * np.pi * hertz * k * times) / k for k in range(1, 9)) * np.exp(-4 * times))
    return np.concatenate(found)[: round(SECONDS * RATE)]


def noise(seed: int) -> Any:
    """Gusts of wind, four a second."""
    chance, times = np.random.default_rng(seed), np.arange(round(SECONDS * RATE)) / RATE
    rumble = np.convolve(chance.normal(size=len(times)), np.ones(20) / 20, "same")
    return rumble * (1.1 + np.sin(2 * np.pi * 4 * times))


@pytest.mark.parametrize("seed", range(5))
def test_syllables_are_speech_and_notes_and_gusts_are_not(seed: int) -> None:
    assert measure(spoken(seed)).is_speech
    assert not measure(melody(seed)).is_speech
    assert not measure(noise(seed)).is_speech
    assert not measure(np.zeros(RATE)).is_speech


def test_a_note_that_is_held_and_one_that_glides_are_not_speech() -> None:
    times = np.arange(round(SECONDS * RATE)) / RATE
    for hertz in (np.full(len(times), 200.0), 200 * 2 ** np.sin(2 * np.pi * times)):
        phase = 2 * np.pi * np.cumsum(hertz) / RATE
        assert not measure(sum(np.sin(k * phase) / k for k in range(1, 9))).is_speech


def test_the_share_of_a_video(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    media.encode(np.zeros((64, 32, 32, 3), np.uint8), path, 8)
    samples = np.float32(np.concatenate([spoken(0), melody(0)]))
    write_sound(path, 0.5 * samples[None] / np.abs(samples).max(), RATE)
    assert speech_share(path) == 0.5

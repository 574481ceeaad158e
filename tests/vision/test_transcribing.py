"""What is said in a sound: real transformers classes on a Whisper so small that a test can train it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import tiny_vision
from tests.sounds import tone
from workbench.errors import ConfigError
from workbench.vision.transcribing import RATE, Listener


def test_each_part_of_a_sound_is_written_down_in_order(tmp_path: Path) -> None:
    low, high = (np.float32(tone(hertz, 2.0, RATE)[0]) for hertz in (200, 3000))
    folder = tiny_vision.make_listener(tmp_path / "tiny", {"go": low, "stop now": high})
    with Listener(str(folder), "cpu") as listener:
        assert listener.words(low) == "go"
        assert listener.words(np.concatenate([high, low])) == "stop now go"
        assert listener.words(low[:0]) == ""


def test_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    folder = tiny_vision.make_detector(tmp_path / "detector")
    with pytest.raises(ConfigError, match="must be a whisper: choose openai/whisper-small"):
        Listener(str(folder), "cpu")

"""Videos are read alike with the lowest PyAV that we declare, with the installed one and with the newest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dataset_builder import media_core
from tests.dataset_builder.foreign import write_video
from workbench import media


def test_every_kind_of_file_with_the_installed_version(tmp_path: Path) -> None:
    media_core.check(tmp_path)


def test_an_open_without_the_option_that_version_19_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import av

    path, real = write_video(tmp_path / "clip.mp4"), av.open

    def newest(file: str, mode: str = "r", options: Any = None) -> Any:
        return real(file, mode, options=options)

    monkeypatch.setattr(av, "open", newest)
    monkeypatch.setattr(av, "__version__", "19.0.2")
    assert media.probe(path).frames == 24

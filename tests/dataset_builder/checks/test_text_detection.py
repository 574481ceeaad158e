"""Text in the picture are found where they are, a picture without is clean, and a missing reader is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from tests.dataset_builder.scenery import scenery
from workbench.clips import media
from workbench.clips.records import Clip
from workbench.dataset_builder.checks import text_detection
from workbench.dataset_builder.checks.measures import measure_all
from workbench.dataset_builder.checks.picture_checks import check_pictures
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.dataset_builder.parallel import ClipProgress

SIZE = (320, 192)


def written_on(video: np.ndarray, text: str, place: tuple[int, int], size: int) -> np.ndarray:
    pictures = []
    for picture in video:
        image = Image.fromarray(picture)
        font = ImageFont.load_default(size)
        ImageDraw.Draw(image).text(place, text, fill="white", font=font, stroke_width=2, stroke_fill="black")
        pictures.append(np.asarray(image))
    return np.stack(pictures)


@pytest.mark.skipif(not text_detection.can_read(), reason="needs the extra text: pip install -e '.[text]'")
def test_subtitles_and_watermarks_are_found_and_a_clean_clip_is_clean(tmp_path: Path) -> None:
    clean = scenery(1, 16, SIZE)
    marked = written_on(clean, "SAMPLE", (250, 6), 14)
    marked[8:] = written_on(marked[8:], "Where are we going?", (80, 165), 16)
    clips = []
    for name, video in (("clean", clean), ("marked", marked)):
        media.encode(video, tmp_path / f"{name}.mp4", 8)
        clips.append(Clip(file_name=f"{name}.mp4", sha256=name, fps=8, frames=16, width=320, height=192))
    measured = measure_all(tmp_path, clips)
    assert measured["clean"].text == ()
    assert set(measured["marked"].text or ()) == {("top right", 4, "SAMPLE"), ("bottom", 2, "Where are we going?")}
    checked = check_pictures(clips, {f"{name}.mp4": found for name, found in measured.items()}, CheckSettings())
    (finding,) = [finding for finding in checked if finding.kind == "text"]
    assert finding.clips == ("marked.mp4",)
    assert "bottom, in 2 of 4 sampled frames ('Where are we going?')" in finding.sentence


def test_without_a_reader_the_check_says_so_and_looks_once_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    media.encode(scenery(1, 8), tmp_path / "it.mp4", 8)
    clip = Clip(file_name="it.mp4", sha256="it", fps=8, frames=8)
    seen = list[ClipProgress]()
    monkeypatch.setattr(text_detection, "can_read", lambda: False)
    for _ in range(2):
        measured = {"it.mp4": measure_all(tmp_path, [clip], seen.append)["it"]}
    assert [now.items for now in seen if now.items.startswith("1")] == ["1 of 1"]
    (finding,) = [one for one in check_pictures([clip], measured, CheckSettings()) if one.kind == "text_unknown"]
    assert finding.sentence.startswith("Subtitles and watermarks were not looked for: pip install")
    monkeypatch.setattr(text_detection, "can_read", lambda: True)
    measure_all(tmp_path, [clip], seen.append)
    assert [now.items for now in seen if now.items.startswith("1")] == ["1 of 1", "1 of 1"]
    assert not [one for one in check_pictures([clip], measured, CheckSettings()) if one.kind == "text_unknown"]

"""A dataset of tiny clips, written directly: for tests of what is done with datasets, not of how they are made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.drawing import COLORS, draw
from workbench.clips import media
from workbench.clips.records import Clip, DatasetInfo, file_sha256, write_clips, write_info

CAPTIONS = (
    "a red square, moving", "=cmd|'/c calc'!A0", 'une télé à Zürich 🐱, „quoted“ "twice"', "",
    "'=a quote, then a formula", "two lines\nand a tab\there", "-i option, -- dashes; $(touch pwned)",
)  # fmt: skip


def write_dataset(folder: Path, captions: Sequence[str] = CAPTIONS, trigger_word: str = "") -> Path:
    """A clip a caption, in an order that is not that of their names."""
    clips = []
    for number, text in enumerate(captions):
        path = folder / "clips" / f"{(number * 7 + 3) % 16:016x}.mp4"
        media.encode(draw(2 + number, (32, 32), list(COLORS)[number % 4]), path, 8)
        clips.append(
            Clip(
                file_name=f"clips/{path.name}",
                text=text,
                fps=8,
                frames=2 + number,
                width=32,
                height=32,
                sha256=file_sha256(path),
                source=f"private name {number}.mov",
            )
        )
    write_clips(folder, clips)
    write_info(folder, DatasetInfo(title="Small things", trigger_word=trigger_word))
    return folder

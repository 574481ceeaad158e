"""Text in the picture (subtitles, watermarks, logos), read by RapidOCR where the extra `text` is installed.

Its small models come with the package; nothing is fetched. Not covered: whether the text was laid over the picture or
is part of the scene, handwriting, letters of a few pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clips.frame_metrics import small
from workbench.dataset_builder.cuts.seeking import stills
from workbench.paths import extra_command

if TYPE_CHECKING:
    from workbench.clips.frame_metrics import Pixels

PACKAGES = ("rapidocr", "onnxruntime")
MISSING = f"{extra_command('text')}, then check again"
LOOKS = 4  # frames
LONGEST, FOUND_AT = 960, 480  # pixels of the longer side: where letters are read, and where they are looked for
SURE = 0.8  # of a reading; textures and plain shapes are seldom read with more
FEWEST = 2  # letters or digits: one alone may be a circle or a frame
Text = tuple[str, int, str]
"""(position in words, in how many of the sampled frames, what is written there)"""


def can_read() -> bool:
    """Whether the extra is installed; looks, loads nothing."""
    return all(find_spec(name) for name in PACKAGES)


def find_text(path: Path) -> tuple[Text, ...]:
    """What is written where in a clip of ours, a line a place; needs `can_read`. Raises DataError."""
    found: dict[str, list[str]] = {}
    for _, frame in stills(path, LOOKS):
        picture = small(frame, LONGEST)
        here: dict[str, str] = {}
        for text, box in _read(picture):
            position = _position(box, picture.shape[1], picture.shape[0])
            here[position] = f"{here[position]} {text}" if position in here else text
        for position, text in here.items():
            found.setdefault(position, []).append(text)
    return tuple((position, len(texts), max(texts, key=len)) for position, texts in found.items())


def _read(picture: Pixels) -> list[tuple[str, Any]]:
    """(text, corners [4, 2]) of what can be read for sure."""
    made = _reader()(picture)
    lines = zip(made.txts or (), made.boxes if made.txts else (), made.scores or (), strict=True)
    return [(text, box) for text, box, sure in lines if sure >= SURE and sum(map(str.isalnum, text)) >= FEWEST]


@lru_cache(maxsize=1)
def _reader() -> Any:
    from rapidocr import RapidOCR

    return RapidOCR(
        params={
            "Global.use_cls": False,  # which tells letters that stand on their head
            "Global.log_level": "critical",
            "Det.limit_type": "max",
            "Det.limit_side_len": FOUND_AT,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,  # a child a core is at work already
        }
    )


def _position(corners: Sequence[Sequence[float]], width: int, height: int) -> str:
    """ "top left", "bottom", "middle" ...: by the thirds of the picture that its centre lies in."""
    across = sum(float(x) for x, _ in corners) / 4 / width
    down = sum(float(y) for _, y in corners) / 4 / height
    words = ["top", "", "bottom"][min(2, int(3 * down))], ["left", "", "right"][min(2, int(3 * across))]
    return " ".join(word for word in words if word) or "middle"

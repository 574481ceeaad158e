"""Before and after: videos of the same prompts without and with a LoRA, side by side as one video and one picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

TILE = 200  # pixels of height that every video is brought to
GAP, LABEL, HEAD = 8, 22, 26
PAPER, INK, SOFT = (255, 255, 255), (20, 20, 20), (110, 110, 110)
TITLES = ("without the LoRA", "with the LoRA")
LOOPS = 4  # the clips are a second long: shown several times over
SHEET_FRAMES = 3


@dataclass(frozen=True)
class VideoPair:
    """One prompt's two videos."""

    prompt: str
    before: Path
    after: Path


def side_by_side(pairs: Sequence[VideoPair], target: Path) -> None:
    """One video: a row a prompt, without the LoRA on the left, with it on the right. Raises CannotWrite."""
    import numpy as np

    from workbench.clips import media

    rows = [tuple(_tiles(path) for path in (pair.before, pair.after)) for pair in pairs]
    length = min(len(video) for row in rows for video in row)
    frames = []
    for number in range(length):
        pictures = [[before[number], after[number]] for before, after in rows]
        frames.append(_page(pictures, [pair.prompt for pair in pairs], TITLES))
    media.encode(np.stack(frames * LOOPS), target, media.probe(pairs[0].before).fps)


def contact_sheet(pairs: Sequence[VideoPair], target: Path) -> None:
    """One picture: first, middle and last frame of each video. Raises CannotWrite."""
    import io

    from PIL import Image

    from workbench.workspace import write_bytes

    rows = []
    for pair in pairs:
        row = []
        for video in (_tiles(pair.before), _tiles(pair.after)):
            row += [video[round(i * (len(video) - 1) / (SHEET_FRAMES - 1))] for i in range(SHEET_FRAMES)]
        rows.append(row)
    titles = [TITLES[0], *[""] * (SHEET_FRAMES - 1), TITLES[1]]
    buffer = io.BytesIO()
    Image.fromarray(_page(rows, [pair.prompt for pair in pairs], titles)).save(buffer, "PNG")
    write_bytes(target, buffer.getvalue())


def _tiles(path: Path) -> list[Pixels]:
    """A video's frames, scaled to the tile's height; pixels of small pictures stay sharp."""
    import numpy as np
    from PIL import Image

    from workbench.clips import media

    tiles = []
    for _, picture in media.decode(path):
        height, width = picture.shape[:2]
        size = (round(width * TILE / height), TILE)
        how = Image.Resampling.NEAREST if height < TILE else Image.Resampling.BICUBIC
        tiles.append(np.asarray(Image.fromarray(picture).resize(size, how)))
    return tiles


def _page(rows: Sequence[Sequence[Pixels]], prompts: Sequence[str], titles: Sequence[str]) -> Pixels:
    """Pictures in rows, titles above the columns, each row's prompt above it."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    width = rows[0][0].shape[1]
    columns = len(rows[0])
    page = Image.new("RGB", (columns * (width + GAP) + GAP, HEAD + len(rows) * (LABEL + TILE + GAP)), PAPER)
    canvas: Any = ImageDraw.Draw(page)
    large, small = ImageFont.load_default(15), ImageFont.load_default(13)
    for column, title in enumerate(titles):
        canvas.text((GAP + column * (width + GAP), 6), title, INK, font=large)
    for number, (row, prompt) in enumerate(zip(rows, prompts, strict=True)):
        top = HEAD + number * (LABEL + TILE + GAP)
        canvas.text((GAP, top + 3), prompt, SOFT, font=small)
        for column, picture in enumerate(row):
            page.paste(Image.fromarray(picture), (GAP + column * (width + GAP), top + LABEL))
    return np.asarray(page)

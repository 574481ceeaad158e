"""Measure tracked masks: how well they cover the subject, and whether the confidence shows where they do not.

    python benchmarks/mask_tracking.py [--clips FOLDER --painted FOLDER]

Drawn clips have a ground truth: a shape that moves, grows, turns, passes a twin or a post, leaves the picture, or ends
with a cut. Real clips are NAME.mp4 in --clips, with the truth of some frames as NAME/0005.png (white: inside) in
--painted. Masks are painted on the first frame of each clip, then on the first and the middle one. "IoU" is the mean
intersection over union of the other frames, "good" the share of them above 0.5, "confidence" the mean. The last rows
cover all clips: the area under the curve of confidence against IoU > 0.5 and IoU > 0.75 (1: every worse frame has a
lower confidence than every better one), and the mean difference between confidence and IoU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from common import arguments, report
from numpy.typing import NDArray
from PIL import Image

from workbench.clips.mask_tracking import overlap, track

WIDTH, HEIGHT, FRAMES = 240, 160, 25
Pictures = NDArray[np.uint8]
Case = tuple[str, Pictures, dict[int, Pictures]]


def _texture(seed: int, low: int, high: int, color: tuple[float, float, float]) -> Any:
    """Return blurred noise of a color, larger than a frame, so that it can move."""
    noise = np.random.default_rng(seed).random((3 * HEIGHT, 3 * WIDTH)).astype(np.float32)
    noise = cv2.GaussianBlur(noise, (0, 0), 2.5)
    noise = (noise - noise.min()) / (noise.max() - noise.min())
    return (low + (high - low) * noise)[..., None] * np.array(color)


def _shape(x: float, y: float, size: float, turn: float) -> Any:
    """Return an egg with a leg, white on black."""
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    center = (round(16 * x), round(16 * y))
    cv2.ellipse(mask, center, (round(16 * size), round(11 * size)), turn, 0, 360, 255, -1, shift=4)
    end = (
        round(16 * (x + 1.5 * size * np.cos(np.radians(turn + 90)))),
        round(16 * (y + 1.5 * size * np.sin(np.radians(turn + 90)))),
    )
    cv2.line(mask, center, end, 255, max(3, round(size / 4)), shift=4)
    return mask


def drawn() -> Iterator[Case]:
    """Return the drawn clips with the truth of every frame."""
    # name: (x, y, size, turn) of frame t in 0 to 1, color of the shape, what else is drawn over it
    ways: Mapping[str, tuple[Callable[[float], tuple[float, float, float, float]], tuple[float, float, float], str]] = {
        "moves": (lambda t: (60 + 110 * t, 70 + 15 * np.sin(6 * t), 26, 0), (1.0, 0.35, 0.2), ""),
        "turns": (lambda t: (120 + 20 * t, 80, 30, 150 * t), (0.95, 0.8, 0.2), ""),
        "grows": (lambda t: (90 + 50 * t, 80, 18 + 26 * t, 20 * t), (0.3, 0.9, 1.0), ""),
        "fast": (lambda t: (120 + 80 * np.sin(9 * t), 80, 22, 0), (1.0, 0.3, 0.8), ""),
        "faint": (lambda t: (60 + 110 * t, 80, 26, 0), (0.62, 0.85, 0.5), ""),
        "twin": (lambda t: (50 + 130 * t, 70, 22, 0), (1.0, 0.35, 0.2), "twin"),
        "post": (lambda t: (50 + 140 * t, 80, 20, 0), (1.0, 0.35, 0.2), "post"),
        "leaves": (lambda t: (120 + 170 * t, 80, 24, 0), (0.95, 0.8, 0.2), ""),
        "cut": (lambda t: (80 + 60 * t, 80, 26, 0), (1.0, 0.35, 0.2), "cut"),
    }
    for number, (name, (way, color, over)) in enumerate(ways.items()):
        ground, skin = _texture(number, 60, 190, (0.55, 0.8, 0.45)), _texture(50 + number, 90, 230, color)
        other = _texture(90 + number, 40, 220, (0.6, 0.6, 0.9))
        frames, masks = [], {}
        for frame in range(FRAMES):
            t = frame / (FRAMES - 1)
            x, y, size, turn = way(t)
            mask = _shape(x, y, size, turn)
            left, top = round(1.0 * frame), round(0.3 * frame)
            picture = ground[top : top + HEIGHT, left : left + WIDTH].copy()
            if over == "cut" and t > 0.5:
                picture, mask = other[:HEIGHT, :WIDTH].copy(), np.zeros_like(mask)
            skin_left, skin_top = round(1.3 * WIDTH - x), round(HEIGHT - y)
            skin_here = skin[skin_top : skin_top + HEIGHT, skin_left : skin_left + WIDTH]
            if over == "twin":
                second = _shape(WIDTH - x, 90, 22, 0)
                picture[second > 0] = skin[:HEIGHT, :WIDTH][second > 0]
            picture[mask > 0] = skin_here[mask > 0]
            if over == "post":
                picture[:, 110:150] = other[:HEIGHT, 110:150]
                mask[:, 110:150] = 0
            noise = np.random.default_rng(frame).normal(0, 2, picture.shape)
            frames.append((picture + noise).clip(0, 255).astype(np.uint8))
            masks[frame] = mask
        yield name, np.stack(frames), masks


def painted(clips: Path, folder: Path) -> Iterator[Case]:
    """Return real clips with their painted frames."""
    import av

    for path in sorted(clips.glob("*.mp4")):
        if files := sorted((folder / path.stem).glob("*.png")):
            with av.open(str(path)) as video:
                frames = np.stack([frame.to_ndarray(format="rgb24") for frame in video.decode(video=0)])
            yield path.stem, frames, {int(file.stem): np.asarray(Image.open(file).convert("L")) for file in files}


def under_the_curve(confidence: Any, good: Any) -> float:
    """Return the share of pairs of a good and a bad frame in which the good one has more confidence, or 1."""
    above, below = confidence[good], confidence[~good]
    if not len(above) or not len(below):
        return 1.0
    return float(np.mean([(one > below).mean() + 0.5 * (one == below).mean() for one in above]))


def main() -> None:
    parser = arguments(__doc__ or "", most=2)
    parser.add_argument("--clips", type=Path, help="folder of clips")
    parser.add_argument("--painted", type=Path, help="folder of painted masks")
    parser.add_argument("--most", type=int, default=99, help="most drawn clips")
    options = parser.parse_args()
    cases = list(drawn())[: options.most]
    if options.clips and options.painted:
        cases += painted(options.clips, options.painted)
    rows: list[dict[str, Any]] = []
    found: dict[str, list[tuple[float, float]]] = {"drawn": [], "real": []}
    for name, frames, truth in cases:
        numbers = sorted(truth)
        for keys in ([numbers[0]], [numbers[0], numbers[len(numbers) // 2]]):
            began = time.perf_counter()
            tracked = track(frames, {key: truth[key] for key in keys})
            seconds = time.perf_counter() - began
            pairs = [
                (overlap(tracked.masks[number] > 127, truth[number] > 127), float(tracked.confidence[number]))
                for number in numbers
                if number not in keys
            ]
            found["drawn" if len(numbers) == FRAMES else "real"] += pairs
            overlaps, trust = np.array(pairs).T
            rows.append(
                {
                    "clip": name,
                    "painted": " ".join(map(str, keys)),
                    "IoU": float(overlaps.mean()),
                    "good": float((overlaps > 0.5).mean()),
                    "confidence": float(trust.mean()),
                    "ms a frame": 1000 * seconds / len(frames),
                    "frames": [[round(one, 3), round(other, 3)] for one, other in pairs],
                }
            )
    summary = {}
    for kind, pairs in found.items():
        if pairs:
            overlaps, trust = np.array(pairs).T
            summary[kind] = {
                "frames": len(pairs),
                "IoU": float(overlaps.mean()),
                "curve 0.5": under_the_curve(trust, overlaps > 0.5),
                "curve 0.75": under_the_curve(trust, overlaps > 0.75),
                "distance": float(np.abs(overlaps - trust).mean()),
            }
    report([{key: value for key, value in row.items() if key != "frames"} for row in rows], None)
    print()
    report([{"clips": kind, **numbers} for kind, numbers in summary.items()], None)
    if options.json:
        from common import write

        write(rows, options.json, summary=summary)


if __name__ == "__main__":
    main()

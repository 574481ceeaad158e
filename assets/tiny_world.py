"""The world of the tiny models: captioned clips of colored shapes that move over plain backgrounds.

A clip is a float tensor [3, F, H, W] with values in [-1, 1]. Lengths are fractions of the picture's side, so a
specification and seed can be drawn at any size: the model is trained at 40x40x9, the demo clips are stored at 160x160.
Shapes are drawn from signed distances and therefore anti-aliased.

There are three sets of clips:
- the known combinations without `held_out()`, which the transformer is trained on, including small shapes;
- `held_out()`: 64 combinations that the transformer never sees, to measure its accuracy;
- new concepts for LoRAs to teach: shapes and stripes that only the VAE sees (`vae_clip`), and shapes, colors and
  motions that no model sees.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import torch
from torch import Tensor

SIZE = 40
FRAMES = 9
FPS = 8

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (225, 40, 45),
    "green": (40, 175, 65),
    "blue": (40, 80, 225),
    "yellow": (245, 220, 55),
    "purple": (145, 55, 185),
    "orange": (250, 140, 35),
    "white": (244, 244, 244),
    "black": (22, 22, 22),
}
MOTIONS: dict[str, tuple[int, int]] = {"left": (-1, 0), "right": (1, 0), "up": (0, -1), "down": (0, 1)}
SHAPES = ("circle", "square", "triangle", "frame")
NEW_SHAPES = ("ring", "cross")
UNSEEN_SHAPES = ("rectangle",)  # unknown to the VAE, too
NEW_COLOURS: dict[str, tuple[int, int, int]] = {"pink": (255, 140, 200), "cyan": (40, 205, 215)}  # of shapes
NEW_MOTIONS: dict[str, tuple[int, int]] = {"diagonally": (1, 1), "across": (1, -1)}  # right and down, right and up
# Concept -> texture of the background in captions; the known texture is "plain".
TEXTURES = {"stripes": "striped", "dots": "dotted", "gradient": "gradient"}
# What happens in the second half of a clip, and its words in the caption. The first half looks like a known clip, so
# the first frame does not reveal the manner.
MANNERS = {
    "straight": "",
    "shrinks": " and shrinks",
    "fades": " and fades",
    "turns": " and turns back",
    "grows": " and grows",
}
SIZES_IN_THE_END = {"shrinks": -0.6, "grows": 0.45}  # relative change of a shape's size
# The VAE is also trained on a star, but its points are too fine at this size to be taught reliably.
VAE_SHAPES = (*SHAPES, *NEW_SHAPES, "star")
HELD_OUT_COUNT = 64
# Radius of a shape, radius of a small one, and how far a small one's path may be off center; fractions of the side.
USUAL, SMALL, OFF_CENTRE = (0.2, 0.245), (0.1, 0.15), 0.28

# Equal shapes in a row across their path: number, size relative to a single one, distance as a fraction of the side.
COUNTS = {"two": (2, 0.62, 0.38), "three": (3, 0.46, 0.28)}
# Everything that the transformers were not trained on.
CONCEPTS = (*TEXTURES, *NEW_SHAPES, *UNSEEN_SHAPES, *NEW_COLOURS, *NEW_MOTIONS, *list(MANNERS)[1:], *COUNTS)
CONCEPT = "stripes"  # what the demo's LoRA teaches
STRIPE = 0.25  # period of stripes, as a fraction of the side
DEMO_SIZE = 160
DEMO_CLIPS = 24
DEMO_KNOWN = 64
CONCEPT_TEST_COUNT = 32

# Most captions have the first form. The others keep the text encoder from relying on word positions alone.
CAPTION_FORMS = (
    "a {size}{colour} {shape} moves {motion} on a {background} background",
    "a {size}{colour} {shape} moving {motion} on a {background} background",
    "{size}{colour} {shape} moves {motion} on {background}",
)


@dataclass(frozen=True, order=True)
class Spec:
    """What a clip shows: `count` shapes in a color that move over a background.

    small: about half the usual size, and anywhere off center.
    """

    shape: str
    colour: str
    motion: str
    background: str
    texture: str = "plain"
    manner: str = "straight"
    count: int = 1
    small: bool = False

    def caption(self, form: int = 0) -> str:
        """Return the caption in one of `CAPTION_FORMS`."""
        background = self.background if self.texture == "plain" else f"{self.texture} {self.background}"
        words = vars(self) | {"background": background, "motion": self.motion + MANNERS[self.manner]}
        words["size"] = "small " if self.small else ""
        if self.count == 1:
            caption = CAPTION_FORMS[form].format(**words)
        else:
            word = next(name for name, (count, *_) in COUNTS.items() if count == self.count)
            caption = f"{word} {{colour}} {{shape}}s move {{motion}} on a {{background}} background".format(**words)
        return caption.replace("a orange", "an orange")


def combinations(shapes: tuple[str, ...], texture: str = "plain", manner: str = "straight") -> list[Spec]:
    """Return all specifications with these shapes. Color and background always differ."""
    pairs = itertools.permutations(COLOURS, 2)
    return [Spec(s, c, m, b, texture, manner) for s, (c, b), m in itertools.product(shapes, list(pairs), MOTIONS)]


def balanced_choice(specs: list[Spec], count: int, seed: int) -> list[Spec]:
    """Choose `count` of `specs`, spread evenly over shapes, colors, motions and backgrounds, reproducibly.

    It greedily takes the specification whose parts were chosen least so far, with ties broken by a seeded shuffle.
    """
    left = list(specs)
    random.Random(seed).shuffle(left)
    used: dict[tuple[str, str], int] = {}
    chosen: list[Spec] = []
    for _ in range(count):
        best = min(left, key=lambda spec: sum(used.get(part, 0) ** 2 for part in vars(spec).items()))
        left.remove(best)
        chosen.append(best)
        for part in vars(best).items():
            used[part] = used.get(part, 0) + 1
    return chosen


def held_out() -> list[Spec]:
    """Return the combinations that are never trained on, to measure accuracy."""
    return balanced_choice(combinations(SHAPES), HELD_OUT_COUNT, seed=2026)


def training_specs() -> list[Spec]:
    """Return the combinations that the transformer is trained on, also with small shapes."""
    kept_back = set(held_out())
    return [spec for spec in combinations(SHAPES) if spec not in kept_back]


def concept_specs(concept: str = CONCEPT) -> tuple[list[Spec], list[Spec]]:
    """Return combinations of a concept (one of CONCEPTS) for training and for testing, balanced and disjoint."""
    chosen = balanced_choice(concept_combinations(concept), DEMO_CLIPS + CONCEPT_TEST_COUNT, seed=7)
    return chosen[:DEMO_CLIPS], chosen[DEMO_CLIPS:]


def concept_combinations(concept: str) -> list[Spec]:
    """Return all specifications that show a concept."""
    if concept in MANNERS:
        return combinations(SHAPES, manner=concept)
    if concept in TEXTURES:
        return combinations(SHAPES, TEXTURES[concept])
    if concept in (*NEW_SHAPES, *UNSEEN_SHAPES):
        return combinations((concept,))
    known = combinations(SHAPES)
    if concept in NEW_COLOURS:
        return sorted({replace(spec, colour=concept) for spec in known})
    if concept in NEW_MOTIONS:
        return sorted({replace(spec, motion=concept) for spec in known})
    return [replace(spec, count=COUNTS[concept][0]) for spec in known]


def known_demo_specs() -> list[Spec]:
    """Return known combinations for regularization, so that a LoRA does not forget them."""
    return balanced_choice(training_specs(), DEMO_KNOWN, seed=8)


def colour_value(name: str, rng: random.Random, jitter: float = 6.0) -> Tensor:
    """Return a color [3] in [-1, 1], with each channel changed by up to `jitter` of 255."""
    levels = [min(255.0, max(0.0, level + rng.uniform(-jitter, jitter))) for level in (COLOURS | NEW_COLOURS)[name]]
    return torch.tensor(levels) / 127.5 - 1


def regular_polygon(corners: int, radius: float = 1.0, inner: float | None = None) -> list[tuple[float, float]]:
    """Return the corners, starting at the top; with `inner`, a star with notches at that radius."""
    count = corners if inner is None else 2 * corners
    points = []
    for i in range(count):
        r = radius if inner is None or i % 2 == 0 else inner
        angle = 2 * math.pi * i / count - math.pi / 2
        points.append((r * math.cos(angle), r * math.sin(angle)))
    return points


def polygon_distance(x: Tensor, y: Tensor, points: list[tuple[float, float]]) -> Tensor:
    """Return the signed distance to a simple polygon, positive inside, in the shape of x and y."""
    nearest = torch.full_like(x, torch.inf)
    inside = torch.zeros_like(x, dtype=torch.bool)
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True):
        ex, ey = bx - ax, by - ay
        along = (((x - ax) * ex + (y - ay) * ey) / (ex * ex + ey * ey)).clamp(0, 1)
        nearest = torch.minimum(nearest, (x - ax - ex * along).square() + (y - ay - ey * along).square())
        if ay != by:
            crosses = (ay > y) != (by > y)
            inside ^= crosses & (x < ax + (y - ay) * ex / ey)
    return torch.where(inside, nearest.sqrt(), -nearest.sqrt())


def shape_distance(shape: str, x: Tensor, y: Tensor) -> Tensor:
    """Return the signed distance, positive inside, to a shape of about unit radius around the origin."""
    box = torch.maximum(x.abs(), y.abs())
    radius = (x.square() + y.square()).sqrt()
    if shape == "circle":
        return 1 - radius
    if shape == "square":
        return 0.88 - box
    if shape == "triangle":
        return polygon_distance(x, y + 0.12, regular_polygon(3, 1.25))
    if shape == "frame":
        return 0.24 - (box - 0.74).abs()
    if shape == "ring":
        return 0.25 - (radius - 0.8).abs()
    if shape == "cross":
        arm, width = 1.0, 0.34
        bar = torch.minimum(arm - x.abs(), width - y.abs())
        return torch.maximum(bar, torch.minimum(width - x.abs(), arm - y.abs()))
    if shape == "rectangle":
        return torch.minimum(1 - x.abs(), 0.42 - y.abs())
    if shape == "star":
        return polygon_distance(x, y, regular_polygon(5, 1.2, 0.48))
    raise ValueError(f"unknown shape {shape!r}: one of {', '.join((*VAE_SHAPES, *UNSEEN_SHAPES))}")


def pixel_grid(size: int) -> tuple[Tensor, Tensor]:
    """Return pixel centers as fractions of the side: x [1, 1, W] and y [1, H, 1]."""
    centres = (torch.arange(size) + 0.5) / size
    return centres.view(1, 1, -1), centres.view(1, -1, 1)


def shape_mask(
    shape: str,
    centre_x: Tensor,
    centre_y: Tensor,
    radius: Tensor | float,
    size: int,
    angle: Tensor | float = 0.0,
) -> Tensor:
    """Return the coverage [F, H, W] in [0, 1] of a shape with centers `centre_x`, `centre_y` [F]."""
    grid_x, grid_y = pixel_grid(size)
    frames = len(centre_x)
    r = torch.as_tensor(radius, dtype=torch.float32).expand(frames).view(-1, 1, 1)
    turn = torch.as_tensor(angle, dtype=torch.float32).expand(frames).view(-1, 1, 1)
    x = ((grid_x - centre_x.view(-1, 1, 1)) / r).expand(frames, size, size)
    y = ((grid_y - centre_y.view(-1, 1, 1)) / r).expand(frames, size, size)
    x, y = x * turn.cos() + y * turn.sin(), y * turn.cos() - x * turn.sin()
    return (shape_distance(shape, x, y) * r * size + 0.5).clamp(0, 1)


def path(motion: str, rng: random.Random, frames: int = FRAMES, speed: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return the center of a shape over time, x and y [F] as fractions of the side. It passes near the middle."""
    step_x, step_y = (MOTIONS | NEW_MOTIONS)[motion]
    along = torch.linspace(-0.5, 0.5, frames) * rng.uniform(0.38, 0.44) * speed
    offset_x, offset_y = rng.uniform(-0.05, 0.05), rng.uniform(-0.05, 0.05)
    return 0.5 + offset_x + step_x * along, 0.5 + offset_y + step_y * along


def draw(spec: Spec, rng: random.Random, size: int = SIZE, frames: int = FRAMES, speed: float = 1.0) -> Tensor:
    """Draw a clip [3, F, H, W] in [-1, 1]. Position, size and tint vary a little with `rng`.

    speed: factor of the usual speed.
    """
    centre_x, centre_y = path(spec.motion, rng, frames, speed)
    late = torch.linspace(-1, 1, frames).clamp(min=0)  # 0 in the first half, then up to 1
    if spec.small:
        aside = rng.uniform(-OFF_CENTRE, OFF_CENTRE)
        step_x, step_y = MOTIONS[spec.motion]
        centre_x, centre_y = centre_x + aside * abs(step_y), centre_y + aside * abs(step_x)
    radius = rng.uniform(*(SMALL if spec.small else USUAL)) * (1 + SIZES_IN_THE_END.get(spec.manner, 0.0) * late)
    if spec.manner == "turns":
        back = (torch.arange(frames) - frames // 2).abs() * -1 + frames // 2
        centre_x, centre_y = centre_x[back], centre_y[back]
    _, size_of_one, apart = next((one for one in COUNTS.values() if one[0] == spec.count), (1, 1.0, 0.0))
    aside_x, aside_y = (0.0, apart) if spec.motion in ("left", "right") else (apart, 0.0)
    places = [index - (spec.count - 1) / 2 for index in range(spec.count)]
    masks = [
        shape_mask(spec.shape, centre_x + place * aside_x, centre_y + place * aside_y, radius * size_of_one, size)
        for place in places
    ]
    mask = torch.stack(masks).amax(0)
    if spec.manner == "fades":
        mask = mask * (1 - late).view(-1, 1, 1)
    colour = colour_value(spec.colour, rng).view(3, 1, 1, 1)
    background = colour_value(spec.background, rng).view(3, 1, 1, 1)
    if spec.texture != "plain":
        background = textured(spec.texture, background, size, rng.random())
    return colour * mask + background * (1 - mask)


def textured(texture: str, colour: Tensor, size: int, phase: float) -> Tensor:
    """Return a background [3, 1, H, W] in paler and darker tones of a color [3, 1, 1, 1]: stripes, dots, gradient."""
    across, down = (torch.sin((grid / STRIPE + phase) * 2 * math.pi) for grid in pixel_grid(size))
    waves = {"striped": across * 4, "dotted": (across + down - 0.3) * 2, "gradient": 1 - 2 * pixel_grid(size)[1]}
    wave = waves[texture].clamp(-1, 1)
    paler, darker = colour + (1 - colour) * 0.45, colour + (-1 - colour) * 0.45
    mix = (wave * 0.5 + 0.5).expand(1, 1, size, size)
    return paler * mix + darker * (1 - mix)


def random_background(rng: random.Random, size: int, frames: int) -> Tensor:
    """Return a background [3, F, H, W] for the VAE: plain, striped (perhaps drifting) or a gradient."""
    first, second = (colour_value(rng.choice(list(COLOURS)), rng, 25.0).view(3, 1, 1, 1) for _ in range(2))
    kind = rng.random()
    if kind < 0.55:
        return first.expand(3, frames, size, size)
    grid_x, grid_y = pixel_grid(size)
    angle = rng.choice((0.0, math.pi / 2, rng.uniform(0, math.pi)))
    ramp = grid_x * math.cos(angle) + grid_y * math.sin(angle)
    if kind < 0.85:
        drift = torch.linspace(-0.5, 0.5, frames).view(-1, 1, 1) * rng.choice((0.0, rng.uniform(-0.4, 0.4)))
        wave = torch.sin((ramp + drift) * 2 * math.pi / rng.uniform(0.22, 0.5)) * rng.uniform(1, 6)
        mix = wave.clamp(-1, 1) * 0.5 + 0.5
    else:
        mix = ramp.clamp(0, 1).expand(frames, size, size)
    return first * mix + second * (1 - mix)


def vae_clip(rng: random.Random, size: int = SIZE, frames: int = FRAMES, small: float = 0.0) -> Tensor:
    """Return a clip [3, F, H, W] of the wider world that the VAE is trained on, which includes new shapes and stripes.

    small: share of small shapes among clips of a single shape that moves straight.
    """
    if rng.random() < 0.5:
        colour, background = rng.sample(list(COLOURS), 2)
        spec = Spec(rng.choice(VAE_SHAPES), colour, rng.choice(list(MOTIONS)), background)
        return draw(replace(spec, small=bool(small) and rng.random() < small), rng, size, frames)
    clip = random_background(rng, size, frames)
    for _ in range(rng.choice((1, 1, 2, 3))):
        time = torch.linspace(-0.5, 0.5, frames)
        centre_x = rng.uniform(0.1, 0.9) + time * rng.uniform(-0.6, 0.6)
        centre_y = rng.uniform(0.1, 0.9) + time * rng.uniform(-0.6, 0.6)
        radius = rng.uniform(0.1, 0.28) * (1 + time * rng.choice((0.0, rng.uniform(-0.5, 0.5))))
        angle = rng.choice((0.0, rng.uniform(0, 2 * math.pi))) + time * rng.choice((0.0, 0.0, rng.uniform(-3, 3)))
        mask = shape_mask(rng.choice(VAE_SHAPES), centre_x, centre_y, radius, size, angle)
        clip = colour_value(rng.choice(list(COLOURS)), rng, 25.0).view(3, 1, 1, 1) * mask + clip * (1 - mask)
    return clip


def write_clip(clip: Tensor, file: Path) -> None:
    """Encode a clip [3, F, H, W] in [-1, 1] as H.264 in yuv420p, which every browser plays."""
    import av  # the generator itself needs only torch

    pictures = ((clip.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 3, 0).contiguous().numpy()
    with av.open(str(file), "w", options={"movflags": "+faststart"}) as container:
        stream = container.add_stream("libx264", rate=FPS, options={"crf": "12", "preset": "slow", "profile": "high"})
        stream.height, stream.width, stream.pix_fmt = pictures.shape[1], pictures.shape[2], "yuv420p"
        stream.time_base = Fraction(1, FPS)
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode())


def write_demo_clips(folder: Path, concept: str = CONCEPT) -> None:
    """Write numbered clips with captions to `folder`/<concept> and `folder`/known."""
    for name, specs in ((concept, concept_specs(concept)[0]), ("known", known_demo_specs())):
        rng = random.Random(f"demo {name}")
        (folder / name).mkdir(parents=True, exist_ok=True)
        for i, spec in enumerate(specs, 1):
            texture = "" if spec.texture == "plain" else f"{spec.texture}_"
            stem = f"{i:02d}_{spec.colour}_{spec.shape}_{spec.motion}_on_{texture}{spec.background}"
            write_clip(draw(spec, rng, DEMO_SIZE), folder / name / f"{stem}.mp4")
            (folder / name / f"{stem}.txt").write_text(spec.caption() + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write the demo clips.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "demo_clips")
    parser.add_argument("--concept", choices=CONCEPTS, default=CONCEPT)
    arguments = parser.parse_args()
    write_demo_clips(arguments.out, arguments.concept)

"""The theme and the page's own style sheets use one set of values."""

from __future__ import annotations

import re

import pytest

from workbench.paths import ASSETS
from workbench.ui.theme import COLOURS, theme

SHEETS = tuple(sorted(path.stem for path in ASSETS.glob("*.css") if path.stem != "tokens"))
TOKENS = (ASSETS / "tokens.css").read_text(encoding="utf-8")
VALUES = dict(re.findall(r"(--wb-(?:text|space|radius)[\w-]*): ([^;]+);", TOKENS))
IN_PX = {name: f"{float(value.removesuffix('rem')) * 16:g}px" for name, value in VALUES.items() if "rem" in value}
DEFINED = set(re.findall(r"(--wb-[\w-]+):", TOKENS))
SCALE = {float(value) for value in re.findall(r"--wb-space-\d: (\d+)px", TOKENS)}
HAIRLINE = 2  # px
DISTANCE = re.compile(r"(?<![\w-])((?:margin|padding)(?:-[\w-]+)?|(?:row-|column-)?gap|inset): ([^;}]+)")
# Distances that another thing decides: the rail's below the header, a line's beside the buttons that lie over its end,
# a field's for the help that opens below it, a handle's by half its own width or all of it.
GEOMETRY = {
    ("rail", "88px"),
    ("rail", "72px"),
    ("grid", "90px"),
    ("grid", "76px"),
    ("sample", "68px"),
    ("components", "-6.5px"),
    ("components", "-11px"),
}
PAIRS = {name: tuple(values) for name, *values in re.findall(r"(--wb-[\w-]+): light-dark\((#\w+), (#\w+)\)", TOKENS)}


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_gradio_gets_the_colours_of_the_tokens() -> None:
    assert COLOURS["body_background_fill"] == PAIRS["--wb-page"]
    assert COLOURS["body_text_color"] == PAIRS["--wb-text"]
    assert COLOURS["block_info_text_color"] == PAIRS["--wb-faint"]
    assert COLOURS["button_primary_background_fill"] == PAIRS["--wb-accent"]
    assert COLOURS["button_primary_text_color"] == PAIRS["--wb-on-accent"]
    assert COLOURS["block_border_color"] == PAIRS["--wb-line"]
    assert COLOURS["error_text_color"] == PAIRS["--wb-bad"]
    built = theme()
    for name, (light, dark) in COLOURS.items():
        assert (getattr(built, name), getattr(built, f"{name}_dark")) == (light, dark)


@pytest.mark.parametrize("sheet", SHEETS)
def test_a_style_sheet_uses_only_tokens_that_exist(sheet: str) -> None:
    text = (ASSETS / f"{sheet}.css").read_text(encoding="utf-8")
    assert set(re.findall(r"var\((--wb-[\w-]+)", text)) <= DEFINED | set(re.findall(r"(--wb-[\w-]+):", text))
    # A value beside a token is for a notebook, which has no tokens: it is the token's own.
    beside = dict(re.findall(r"var\((--wb-(?:text|space|radius)[\w-]*), ([^()]+)\)", text))
    assert {name: value for name, value in beside.items() if value not in (VALUES[name], IN_PX.get(name))} == {}
    plain = re.sub(r"var\([^()]*\)", "", text)
    assert not re.findall(r"font(?:-size)?: [^;}]*?[\d.]+(?:rem|px)", plain), "one type scale: var(--wb-text-1) to -5"
    found = {value for _, values in DISTANCE.findall(plain) for value in re.findall(r"-?[\d.]+(?:px|rem)", values)}
    off = {value for value in found if value.endswith("rem") or not on_scale(float(value.removesuffix("px")))}
    assert {(sheet, value) for value in off} <= GEOMETRY, "one scale of distances: var(--wb-space-1) to -6"


def on_scale(pixels: float) -> bool:
    return abs(pixels) <= HAIRLINE or abs(pixels) in SCALE


@pytest.mark.parametrize("ink", ["text", "faint", "accent", "good", "warn", "bad"])
@pytest.mark.parametrize("dark", [False, True])
def test_words_can_be_read_on_every_ground(ink: str, dark: bool) -> None:
    for ground in ("page", "panel", *([f"{ink}-soft"] if f"--wb-{ink}-soft" in PAIRS else [])):
        found = contrast(PAIRS[f"--wb-{ink}"][dark], PAIRS[f"--wb-{ground}"][dark])
        assert found >= 4.5, (ink, ground, found)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("ground", ["accent", "good", "bad", "idle"])
def test_words_on_a_badge_or_button_can_be_read(ground: str, dark: bool) -> None:
    assert contrast(PAIRS["--wb-on-accent"][dark], PAIRS[f"--wb-{ground}"][dark]) >= 4.5

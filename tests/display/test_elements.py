"""The elements as one text: nothing is left out, every token exists, and every text can be read on its ground."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from workbench.display import elements

TOKENS = (elements.FOLDER / "tokens.css").read_text(encoding="utf-8")
COLORS = dict(re.findall(r"--wb-([\w-]+): (light-dark\([^)]*\)|#\w+)", TOKENS))
HOSTS = {"notebook", "notebook_host"}  # of a notebook's frame, which put the text inside of theirs
TEXTS = ("text", "faint", "accent", "good", "warn", "bad")
GROUNDS = ("page", "rail-ground", "panel", "soft")


def test_every_file_is_in_the_text_and_has_its_style(tmp_path: Path) -> None:
    scripts = {path.stem for path in elements.FOLDER.glob("*.js")}
    assert scripts == {*elements.order(), *HOSTS}
    styles = {path.stem for path in elements.FOLDER.glob("*.css")} - {"tokens", "base"}
    assert styles <= {*elements.order()}
    assert elements.style().count("{") == elements.style().count("}")


def test_a_style_sheet_uses_only_tokens_that_exist() -> None:
    known = set(re.findall(r"(--wb-[\w-]+):", TOKENS))
    for path in (*elements.FOLDER.glob("*.css"), *elements.FOLDER.glob("*.js")):
        used = set(re.findall(r"var\((--wb-[\w-]+)", path.read_text(encoding="utf-8")))
        assert used <= known, path.name


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("ground", GROUNDS)
def test_every_text_can_be_read_on_every_ground(ground: str, theme: int) -> None:
    for text in TEXTS:
        assert contrast(color(text, theme), color(ground, theme)) >= 4.5, text
    for tone in ("good", "warn", "bad", "accent"):
        assert contrast(color(tone, theme), color(f"{tone}-soft", theme)) >= 4.5, tone
    assert contrast(color("edge", theme), color("panel", theme)) >= 3


def color(name: str, theme: int) -> tuple[float, ...]:
    """Red, green and blue of a token, 0 to 1."""
    found = re.findall(r"#(\w+)", COLORS[name])
    digits = found[min(theme, len(found) - 1)]
    digits = "".join(2 * one for one in digits) if len(digits) == 3 else digits
    return tuple(int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """The ratio of WCAG 2."""

    def luminance(color: tuple[float, ...]) -> float:
        parts = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in color]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_what_the_page_loads_later_is_not_used_before() -> None:
    """Elements that are loaded with a place may use what the first script defines, and never the other way round."""
    first, later, shared = elements._page_parts()
    for name in (*elements.LATER, *elements.EXPORTED):
        source = (elements.FOLDER / f"{name}.js").read_text(encoding="utf-8")
        for defined in elements.DEFINED.findall(source):
            assert not re.search(rf"(?<![\w.'-]){defined}\(", first), (name, defined)
        for tag in re.findall(r"define\('([\w-]+)'", source):
            assert not re.search(rf"<{tag}(?![\w-])", first), (name, tag)
    assert "WorkbenchElement" in shared
    assert len(later) > len(first) / 5

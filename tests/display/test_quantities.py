"""Bytes, seconds and counts in words."""

from __future__ import annotations

import pytest

from workbench.display.quantities import byte_size, counted, duration


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0.0 kB"), (12_345, "12.3 kB"), (700_000, "0.7 MB"), (4_500_000, "4.5 MB"), (1_234e9, "1,234.0 GB")],
)
def test_a_size_has_the_unit_that_suits_it(count: float, text: str) -> None:
    assert byte_size(count) == text


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (7500, "2 h 05 min")])
def test_a_duration_has_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_count_agrees_with_its_noun() -> None:
    assert [counted(number, "clip") for number in (0, 1, 1200)] == ["0 clips", "1 clip", "1,200 clips"]

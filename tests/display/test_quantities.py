"""Bytes, seconds and counts in words."""

from __future__ import annotations

from workbench.display.quantities import byte_size, counted, duration


def test_quantities_have_the_unit_that_suits_them() -> None:
    assert [byte_size(count) for count in (12_345, 700_000, 1_234e9)] == ["12.3 kB", "0.7 MB", "1,234.0 GB"]
    assert [duration(seconds) for seconds in (59.4, 200, 7500)] == ["59 s", "3 min 20 s", "2 h 05 min"]
    assert [counted(number, "clip") for number in (1, 1200)] == ["1 clip", "1,200 clips"]

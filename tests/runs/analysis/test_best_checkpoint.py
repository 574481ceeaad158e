"""The best checkpoint: by the held-out loss, among those whose previews are as they should be."""

from __future__ import annotations

from workbench.runs.analysis.visible_effect import VisibleEffect, best_step

SHOWS, HIDDEN, SPOILED = VisibleEffect((20.0,), (5.0,)), VisibleEffect((6.5,), (5.0,)), VisibleEffect((40.0,), (35.0,))


def test_the_best_checkpoint_has_the_lowest_held_out_loss() -> None:
    measured = {0: 0.5, 50: 0.3, 100: 0.2, 150: 0.25, 200: 0.4}
    assert best_step(measured, [50, 100, 200], {}) == 100
    assert best_step(measured, [50, 150, 200], {}) == 150
    assert best_step(measured, [125, 50], {}) == 125  # between two measurements: the value on the line
    assert best_step(measured, [250], {}) is None  # not measured yet
    assert best_step({}, [50], {}) is None
    assert best_step({0: 0.1, 50: 0.1}, [50, 0], {}) == 0


def test_one_whose_previews_show_nothing_or_that_spoiled_the_rest_is_not_the_best_beside_another() -> None:
    measured = {100: 0.1, 200: 0.2, 300: 0.15}
    assert best_step(measured, [100, 200, 300], {100: HIDDEN, 200: SHOWS, 300: SPOILED}) == 200
    assert best_step(measured, [100, 200, 300], {100: HIDDEN, 200: SHOWS, 300: SHOWS}) == 300
    assert best_step(measured, [100, 300], {100: HIDDEN, 200: SHOWS, 300: SPOILED}) == 100, "there is no other"


def test_a_checkpoint_between_two_previews_counts_with_the_nearer_ones() -> None:
    measured = {100: 0.1, 150: 0.12, 260: 0.14, 300: 0.2}
    assert best_step(measured, [150, 260], {100: HIDDEN, 300: SHOWS}) == 260

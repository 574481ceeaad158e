"""Which checkpoint of a run is the best one, by what was measured. No torch.

The lowest held-out loss decides among the checkpoints whose previews show something and leave the controls alone; where
none is known to be such a one, among all: a loss may fall for what no sample shows, and while everything else is
spoiled. Not covered: which checkpoints are kept (retention), the one that a person chose by looking.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from workbench.runs.analysis.visible_effect import VisibleEffect


def best_step(
    held_out: Mapping[int, float], checkpoints: Iterable[int], effects: Mapping[int, VisibleEffect]
) -> int | None:
    """The best checkpoint's step, the earlier one of two equal ones; None where none was measured.

    held_out, effects: by step. A checkpoint between two measurements of the loss counts with the value on the line
    between them; one after the last measurement, or without any, does not count.
    """
    values = {step: value for step in checkpoints if (value := _at(held_out, step)) is not None}
    good = [step for step in values if is_good(effects, step)]
    return min(good or values, key=lambda step: (values[step], step), default=None)


def is_good(effects: Mapping[int, VisibleEffect], step: int) -> bool:
    """Whether the previews nearest to a step, the earlier ones of two, are as they should be; true without any."""
    nearest = min(effects, key=lambda measured: (abs(measured - step), measured), default=None)
    return nearest is None or (effects[nearest].visible and not effects[nearest].spoiled)


def _at(held_out: Mapping[int, float], step: int) -> float | None:
    if step in held_out:
        return held_out[step]
    before = max((each for each in held_out if each < step), default=None)
    after = min((each for each in held_out if each > step), default=None)
    if before is None or after is None:
        return None
    share = (step - before) / (after - before)
    return (1 - share) * held_out[before] + share * held_out[after]

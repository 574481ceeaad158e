"""How much a run's previews show, and which checkpoint is best by that and by the held-out loss.

Two videos from the same noise are compared pixel by pixel, in levels of 255 (clips.media.difference). A LoRA changes
every video a little, even for prompts that it should not affect; the controls, previews of preservation prompts,
measure by how much. On the built-in model with 24 clips and 450 steps (benchmarks/concepts.py), means of 12 prompts:

    previews   controls   effect   samples that show the concept
    7.6        5.5        1.4      0%       a shape, "cross"
    13.6       5.3        2.6      42%      a shape, "ring"
    34         8          4.3      67%      "stripes", at step 150
    61         35         1.7                "stripes" without a regularization dataset: 3 of 3 controls are striped

So the change alone is not enough: previews must differ from the base model's, and by more than the controls do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from workbench.clips.media import ANOTHER, SEEN, in_words
from workbench.runs.previews import changes, previews_of

VISIBLE = 2.0  # times the controls' change: between 1.4 (no sample shows the concept) and 2.6 (some samples do)
KEYS = ("preview_changes", "control_changes", "visible_effects", "visible_effect")  # in a line of metrics.jsonl
LEAST = 1.0  # level: videos that differ by less are the same, and no effect is measured against a smaller change


@dataclass(frozen=True)
class VisibleEffect:
    """How much the previews of one step differ from those of step 0.

    own: each preview's difference in levels of 255, None if unknown; at least one is known.
    control: the same for the controls; empty without controls.
    """

    own: tuple[float | None, ...]
    control: tuple[float | None, ...] = ()

    @property
    def change(self) -> float:
        """Median over previews."""
        return median(_known(self.own))

    @property
    def control_change(self) -> float | None:
        """Median over controls; None without controls."""
        known = _known(self.control)
        return median(known) if known else None

    @property
    def effects(self) -> tuple[float | None, ...]:
        """Each preview's change divided by the controls'; empty without controls."""
        control = self.control_change
        if control is None:
            return ()
        return tuple(None if one is None else round(one / max(control, LEAST), 3) for one in self.own)

    @property
    def effect(self) -> float | None:
        """Median over previews; None without controls."""
        known = _known(self.effects)
        return median(known) if known else None

    @property
    def visible(self) -> bool:
        """Whether the previews change visibly, and by more than a LoRA changes anyway.

        They must differ by SEEN levels, and by VISIBLE times the controls' change. Previews that have become entirely
        different videos show something, whatever the controls do.
        """
        if self.change < SEEN:
            return False
        return self.effect is None or self.effect >= VISIBLE or self.change >= ANOTHER

    @property
    def spoiled(self) -> bool:
        """Whether the controls have become different videos, too, and changed by more than half as much."""
        return self.control_change is not None and self.control_change >= ANOTHER and (self.effect or 0.0) < VISIBLE

    @property
    def words(self) -> str:
        """A short form, such as "7.6 levels of 255, 1.4 times the controls' 5.5"."""
        control = self.control_change
        if control is None or self.effect is None:
            return f"{self.change:.1f} levels of 255, {in_words(self.change)}"
        if control < LEAST:
            return f"{self.change:.1f} levels of 255, {in_words(self.change)}, the controls by {control:.1f}"
        return f"{self.change:.1f} levels of 255, {self.effect:.1f} times the controls' {control:.1f}"

    def to_json(self) -> dict[str, Any]:
        names = ("change", "control_change", "effect", "effects", "visible", "spoiled")
        return {name: getattr(self, name) for name in names}

    def line(self) -> dict[str, Any]:
        """Return the values stored in metrics.jsonl."""
        found: dict[str, Any] = {"preview_changes": list(self.own)}
        if self.effect is not None:
            found |= {"control_changes": list(self.control), "visible_effects": list(self.effects)}
            found |= {"visible_effect": self.effect}
        return found


def from_line(line: Mapping[str, Any]) -> VisibleEffect | None:
    """Read the effect from a line of metrics.jsonl; None if it has none."""
    own = tuple(line.get("preview_changes", ()))
    return VisibleEffect(own, tuple(line.get("control_changes", ()))) if _known(own) else None


def values_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that `VisibleEffect.line` wrote into a line of metrics.jsonl; {} for other lines."""
    return {name: value for name, value in line.items() if name in KEYS}


def measure(run: Path, step: int) -> dict[str, Any] | None:
    """Measure the previews of a step, in the form of `VisibleEffect.line`; None if there is nothing to compare."""
    own = changes(previews_of(run, 0), previews_of(run, step))
    if not _known(own):
        return None
    control = changes(previews_of(run, 0, "control"), previews_of(run, step, "control"))
    return VisibleEffect(tuple(own), tuple(control)).line()


def _known(values: Sequence[float | None]) -> list[float]:
    return [one for one in values if one is not None]


# ---- the best checkpoint
#
# It has the lowest held-out loss among the checkpoints whose previews show something without spoiling the controls, or
# among all checkpoints if there are none. The loss alone can fall for something that no sample shows, or while
# everything else is spoiled.


def best_step(
    held_out: Mapping[int, float], checkpoints: Iterable[int], effects: Mapping[int, VisibleEffect]
) -> int | None:
    """Find the step of the best checkpoint, the earlier one on a tie; None if none was measured.

    Args:
        held_out: Loss by step, interpolated between measurements. Checkpoints outside them do not count.
        checkpoints: Steps of the checkpoints.
        effects: Visible effect by step.
    """
    values = {step: value for step in checkpoints if (value := _between(held_out, step)) is not None}
    good = [step for step in values if is_good(effects, step)]
    return min(good or values, key=lambda step: (values[step], step), default=None)


def is_good(effects: Mapping[int, VisibleEffect], step: int) -> bool:
    """Whether the previews nearest to a step (the earlier ones on a tie) are good; True without previews."""
    nearest = min(effects, key=lambda measured: (abs(measured - step), measured), default=None)
    return nearest is None or (effects[nearest].visible and not effects[nearest].spoiled)


def _between(held_out: Mapping[int, float], step: int) -> float | None:
    if step in held_out:
        return held_out[step]
    before = max((each for each in held_out if each < step), default=None)
    after = min((each for each in held_out if each > step), default=None)
    if before is None or after is None:
        return None
    share = (step - before) / (after - before)
    return (1 - share) * held_out[before] + share * held_out[after]

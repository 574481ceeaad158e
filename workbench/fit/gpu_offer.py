"""Where a machine has more GPUs than a run would take: what to set so that all of them share its steps. No torch.

Not covered: whether the model fits them (fit), how they share a step (ranks).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from workbench.jobs.devices import gpus
from workbench.runs.settings import TrainSettings


@dataclass(frozen=True)
class Offer:
    """All GPUs of this machine for one run. `changed`: the settings that bring it about; `sentence`: what they do."""

    count: int
    changed: dict[str, Any]
    sentence: str

    @property
    def flags(self) -> str:
        """The same for a shell."""
        return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in self.changed.items())


def offer(settings: TrainSettings) -> Offer | None:
    """The offer for these settings; None where there is nothing to gain."""
    count = 0 if settings.device == "cpu" else len(gpus())
    if count < 2 or settings.gpus == 0 or settings.gpus >= count:
        return None
    before = settings.gradient_accumulation
    batches = -(-before // count) * count
    changed: dict[str, Any] = {"gpus": count}
    sentence = f"All {count} GPUs share each step, and what is learned stays the same."
    if batches != before:
        changed["gradient_accumulation"] = batches
        sentence = f"All {count} GPUs share each step, which looks at {batches} batches now instead of {before}."
    return Offer(count, changed, sentence)

"""The ladder of memory settings: which are cheaper, and what is the least that one gives up to fit a card. No torch.

Not covered: what each level needs (estimate, timing), how it is carried out (trainer.ladder).
"""

from __future__ import annotations

from workbench.errors import WorkbenchError
from workbench.families import find_model
from workbench.trainer.settings import TrainSettings

RECOMPUTING = ("none", "keep attention", "full", "offloaded")  # fastest first


def step_down(settings: TrainSettings) -> TrainSettings | None:
    """The next cheaper settings that leave what is learned as it is, bit for bit on a processor; None at the end.

    First more is computed twice, then frozen blocks are streamed: half of them, then all.
    """
    place = RECOMPUTING.index(settings.gradient_checkpointing)
    if place + 1 < len(RECOMPUTING):
        return settings.changed(gradient_checkpointing=RECOMPUTING[place + 1])
    if settings.method != "lora":
        return None
    try:
        family, model = find_model(settings.model)
        blocks = family.facts(model).blocks
    except WorkbenchError:
        return None
    more = next((count for count in (blocks // 2, blocks) if count > settings.streamed_blocks), None)
    return None if more is None else settings.changed(streamed_blocks=more)

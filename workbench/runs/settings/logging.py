"""What a run measures and where it is logged. None of it changes what is learned."""

from __future__ import annotations

from typing import Literal

from workbench.settings import Settings, field

LOGGING = "Logging"


class LoggingSettings(Settings):
    """The part of TrainSettings about measurements, trackers and the stall timeout."""

    evaluate_every: int = field(
        50, title="Measure every", section=LOGGING, low=0, high=1_000_000, unit="steps", advanced=True
    )
    """Steps between measurements of the held-out loss and of the prior drift. 0 measures none."""

    preservation_prompts: tuple[str, ...] = field(
        (), title="Preservation prompts", section=LOGGING, lines=3, advanced=True
    )
    """One a line, unrelated to the dataset: prior drift is how much the model's prediction changes for these, measured
    beside how much it changes for its own captions. Empty: general prompts of the model's family."""

    tracker: Literal["none", "tensorboard", "trackio", "wandb"] = field(
        "none", title="Tracker", section=LOGGING, advanced=True
    )
    """Also send the measurements to another program. The page needs none."""

    tracker_project: str = field("video-lora-workbench", title="Tracker project", section=LOGGING, advanced=True)
    """The name under which the tracker files the run."""

    stall_timeout: float = field(
        15.0, title="Stall timeout", section=LOGGING, low=0.0, high=10_000.0, unit="minutes", advanced=True
    )
    """End the run when it has made no progress for this long, with the stack of every thread in its log. 0: never.
    Downloads are not counted."""

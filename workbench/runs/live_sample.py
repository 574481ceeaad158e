"""A live sample: one video of a running run, generated with its weights as they are now.

Not covered: making the video (trainer.monitoring.live_sample), samples of finished LoRAs (sampler).
"""

from __future__ import annotations

from typing import Any

from workbench.settings import Settings, field, parse

WHAT = "Live sample"


class LiveSample(Settings):
    """What to generate; what is left empty is as in the run's own previews."""

    prompt: str = field("", title="Prompt", section=WHAT, lines=2)
    """Empty: the run's first preview prompt."""

    seed: int = field(0, title="Seed", section=WHAT, low=0, high=2**31 - 1)
    """The same seed shows the same noise being removed."""

    guidance_scale: float | None = field(None, title="Guidance scale", section=WHAT, low=0.0, high=50.0)
    """How closely the video follows the prompt. Empty: as in the run's previews."""

    steps: int | None = field(None, title="Denoising steps", section=WHAT, low=1, high=1000, unit="steps")
    """More is finer and slower. Empty: as in the run's previews."""

    scale: float = field(1.0, title="LoRA scale", section=WHAT, low=-4.0, high=4.0)
    """0 is the base model, 1 the LoRA as it is."""

    @classmethod
    def read(cls, values: Any) -> LiveSample:
        """From a command's JSON. Raises ConfigError."""
        return parse(cls, values if isinstance(values, dict) else {"live_sample": values})

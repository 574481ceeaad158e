"""The videos that a run generates while it trains. They do not change what is learned."""

from __future__ import annotations

from pydantic import field_validator

from workbench.families.guidance import Curve, curve_of
from workbench.settings import Settings, field

PREVIEWS = "Previews"


class PreviewSettings(Settings):
    """The part of TrainSettings about previews."""

    preview_prompts: tuple[str, ...] = field((), title="Preview prompts", section=PREVIEWS, lines=3)
    """One prompt a line: a video of each is generated before the first step and then regularly. Empty: the first two
    captions."""

    preview_images: tuple[str, ...] = field(
        (), title="Preview images", section=PREVIEWS, lines=2, advanced=True, path=True
    )
    """For image-to-video: a picture file a line, one for each prompt. Empty: first frames of clips."""

    preview_every: int = field(100, title="Preview every", section=PREVIEWS, low=0, high=1_000_000, unit="steps")
    """Steps between previews. 0 generates none."""

    preview_count: int = field(1, title="Previews a prompt", section=PREVIEWS, low=1, high=16, advanced=True)
    """Videos generated for each prompt, each with a seed of its own."""

    preview_steps: int | None = field(
        None, title="Preview denoising steps", section=PREVIEWS, low=1, high=1000, unit="steps", advanced=True
    )
    """Denoising steps of a preview. Empty: the model's own number."""

    preview_guidance: float | None = field(
        None, title="Preview guidance scale", section=PREVIEWS, low=0.0, high=50.0, advanced=True
    )
    """How closely previews follow their prompt. Empty: the model's own value."""

    preview_dynamic_guidance: Curve = field("off", title="Preview dynamic guidance", section=PREVIEWS, advanced=True)
    """stock: the guidance scale of a preview jumps from step to step, as in the authors' sampler and with diffusers'
    use_dynamic_cfg. cosine: it rises evenly over the denoising steps."""

    preview_seed: int = field(7, title="Preview seed", section=PREVIEWS, low=0, high=2**31 - 1, advanced=True)
    """Every preview of a prompt starts from this seed, so that they can be compared."""

    preview_inputs: bool = field(True, title="Save training inputs", section=PREVIEWS, advanced=True)
    """Once, before the first step: two clips as the model reads them, and what its video encoder keeps of them."""

    preview_latents_only: bool = field(False, title="Keep previews as latents", section=PREVIEWS, advanced=True)
    """Do not decode previews: saves time and memory; they can be decoded later."""

    _read_curve = field_validator("preview_dynamic_guidance", mode="before")(curve_of)

"""What is shown, measured and kept while a run goes on. None of it changes what is computed."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from workbench.families.guidance import Curve, curve_of
from workbench.settings import Settings, field

WATCH = "Watching"


class WatchSettings(Settings):
    """The part of TrainSettings about previews, measurements and checkpoints."""

    preview_prompts: tuple[str, ...] = field((), title="Preview prompts", section=WATCH, lines=3)
    """One prompt a line: drawn before the first step and then regularly. Empty: the first two captions."""

    preview_images: tuple[str, ...] = field(
        (), title="Preview images", section=WATCH, lines=2, advanced=True, path=True
    )
    """For image-to-video: a picture file a line, one for each prompt. Empty: first frames of clips."""

    preview_every: int = field(100, title="Preview every", section=WATCH, low=0, high=1_000_000, unit="steps")
    """Steps between previews. 0 draws none."""

    preview_count: int = field(1, title="Previews a prompt", section=WATCH, low=1, high=16, advanced=True)
    """Videos drawn of each prompt, each with a seed of its own."""

    preview_steps: int | None = field(
        None, title="Preview denoising steps", section=WATCH, low=1, high=1000, unit="steps", advanced=True
    )
    """Denoising steps of a preview. Empty: the model's own number."""

    preview_guidance: float | None = field(
        None, title="Preview guidance scale", section=WATCH, low=0.0, high=50.0, advanced=True
    )
    """How closely previews follow their prompt. Empty: the model's own value."""

    preview_dynamic_guidance: Curve = field("off", title="Preview dynamic guidance", section=WATCH, advanced=True)
    """stock: the guidance scale of a preview jumps from step to step, as in the authors' sampler and with diffusers'
    use_dynamic_cfg. cosine: it rises evenly over the denoising steps."""

    preview_seed: int = field(7, title="Preview seed", section=WATCH, low=0, high=2**31 - 1, advanced=True)
    """Every preview of a prompt starts from this seed, so that they can be compared."""

    preview_inputs: bool = field(True, title="Show what goes in", section=WATCH, advanced=True)
    """Once, before the first step: two clips as the model is shown them, and what its video encoder keeps."""

    preview_latents_only: bool = field(False, title="Keep previews as latents", section=WATCH, advanced=True)
    """Do not decode previews: saves time and memory; they can be decoded later."""

    evaluate_every: int = field(
        50, title="Measure every", section=WATCH, low=0, high=1_000_000, unit="steps", advanced=True
    )
    """Steps between measurements of the held-out loss and of the leak. 0 measures none."""

    preservation_prompts: tuple[str, ...] = field(
        (), title="Prompts to leave alone", section=WATCH, lines=3, advanced=True
    )
    """One a line: how much the model's answer to these changes is measured beside how much it changes for its own
    captions. Empty: some everyday prompts."""

    save_every: int = field(100, title="Checkpoint every", section=WATCH, low=1, high=1_000_000, unit="steps")
    """Steps between checkpoints: the most that a crash can cost."""

    keep_checkpoints: int = field(3, title="Checkpoints kept", section=WATCH, low=1, high=10_000, advanced=True)
    """Older checkpoints are removed once a newer one is safely on disk; the best and the starred ones stay."""

    keep_every: int = field(
        0, title="Checkpoints kept for good", section=WATCH, low=0, high=1_000_000, unit="steps", advanced=True
    )
    """A checkpoint at every multiple of this many steps is never removed. 0: none beside those above."""

    tracker: Literal["none", "tensorboard", "trackio", "wandb"] = field(
        "none", title="Tracker", section=WATCH, advanced=True
    )
    """Also send the measurements to another program. The page needs none."""

    tracker_project: str = field("video-lora-workbench", title="Tracker's project", section=WATCH, advanced=True)
    """The name under which the tracker files the run."""

    push_to_hub: bool = field(False, title="Push at the end", section=WATCH, advanced=True)
    """When the run has finished, send its LoRA to the Hugging Face Hub, into a private repository, with the login of
    this machine (hf auth login). A push that fails is no failure of the run."""

    repository: str = field("", title="Repository", section=WATCH, advanced=True)
    """Where it goes, as OWNER/NAME. Empty: your account and the run's name."""

    stall_timeout: float = field(
        15.0, title="Watchdog", section=WATCH, low=0.0, high=10_000.0, unit="minutes", advanced=True
    )
    """End the run, with what every thread was doing in its log, when nothing has happened for so long. 0 is off.
    Downloads are not counted."""

    _read_curve = field_validator("preview_dynamic_guidance", mode="before")(curve_of)

"""What a run leaves while it trains: previews, checkpoints, measurements. None of it changes what is learned."""

from __future__ import annotations

from typing import Literal

from workbench.families.guidance import Curve
from workbench.settings import Settings, field


class PreviewSettings(Settings):
    SECTION = "Previews"

    preview_prompts: tuple[str, ...] = field((), title="Preview prompts", lines=3)
    """One prompt a line: a video of each is generated before the first step and then regularly. Empty: the first two
    captions."""

    preview_images: tuple[str, ...] = field((), title="Preview images", lines=2, advanced=True, path=True)
    """For image-to-video: a picture file a line, one for each prompt. Empty: first frames of clips."""

    preview_every: int = field(100, title="Preview every", low=0, high=1_000_000, unit="steps", advanced=True)
    """Steps between previews. 0 generates none."""

    preview_count: int = field(1, title="Previews a prompt", low=1, high=16, advanced=True)
    """Videos generated for each prompt, each with a seed of its own."""

    preview_controls: int = field(1, title="Control previews", low=0, high=3, advanced=True)
    """Preservation prompts of which a video is generated beside the previews, with the same seed: only what previews
    change more than these is the concept. No more than there are preview prompts. 0: none, and previews take less
    time."""

    preview_frames: int | None = field(None, title="Preview frames", low=1, high=1000, unit="frames", advanced=True)
    """Length of a preview. Empty: as long as the run's clips. 1: a picture."""

    preview_steps: int | None = field(
        None, title="Preview denoising steps", low=1, high=1000, unit="steps", advanced=True
    )
    """Denoising steps of a preview. Empty: the model's own number."""

    preview_guidance: float | None = field(None, title="Preview guidance scale", low=0.0, high=50.0, advanced=True)
    """How closely previews follow their prompt. Empty: the model's own value."""

    preview_dynamic_guidance: Curve = field("off", title="Preview dynamic guidance", advanced=True)
    """stock: the guidance scale of a preview jumps from step to step, as with CogVideoX's authors and with diffusers'
    use_dynamic_cfg. cosine: it rises evenly over the denoising steps."""

    preview_flow_shift: float | None = field(
        None, title="Preview flow shift", low=0.1, high=100.0, advanced=True, own=True
    )
    """Moves the noise levels of a preview's steps, as the flow shift of a sample does; training has a shift of its own.
    Empty: the model's own value for the size of the previews."""

    preview_seed: int = field(7, title="Preview seed", low=0, high=2**31 - 1, advanced=True)
    """Every preview of a prompt starts from this seed, so that they can be compared."""

    preview_inputs: bool = field(True, title="Save training inputs", advanced=True)
    """Once, before the first step: two clips as the model reads them, and what its video encoder keeps of them."""

    preview_latents_only: bool = field(False, title="Keep previews as latents", advanced=True)
    """Do not decode previews: saves time and memory; they can be decoded later."""

    @property
    def previews_at_once(self) -> int:
        """Videos generated each time, controls included."""
        prompts = len(self.preview_prompts) or 2
        controls = 0 if self.preview_latents_only else min(self.preview_controls, prompts)
        return prompts * self.preview_count + controls


class CheckpointSettings(Settings):
    SECTION = "Checkpoints"

    save_every: int = field(100, title="Checkpoint every", low=1, high=1_000_000, unit="steps", advanced=True)
    """Steps between checkpoints: the most that a crash can cost."""

    keep_checkpoints: int = field(3, title="Checkpoints kept", low=1, high=10_000, advanced=True)
    """Older checkpoints are removed once a newer one is safely on disk; the best and the starred ones stay."""

    keep_every: int = field(0, title="Checkpoints kept for good", low=0, high=1_000_000, unit="steps", advanced=True)
    """A checkpoint at every multiple of this many steps is never removed. 0: none beside those above."""

    push_to_hub: bool = field(False, title="Push at the end", advanced=True)
    """When the run has finished, send its LoRA to the Hugging Face Hub, into a private repository, with the login of
    this machine (hf auth login). A push that fails is no failure of the run."""

    repository: str = field("", title="Repository", advanced=True)
    """Where it goes, as OWNER/NAME. Empty: your account and the run's name."""


class LoggingSettings(Settings):
    SECTION = "Logging"

    evaluate_every: int = field(50, title="Measure every", low=0, high=1_000_000, unit="steps", advanced=True)
    """Steps between measurements of the held-out loss and of the prior drift. 0 measures none."""

    tracker: Literal["none", "tensorboard", "trackio", "wandb", "comet_ml", "all"] = field(
        "none", title="Tracker", advanced=True
    )
    """Also send the measurements to another program. all: to each of these that is installed. The page needs none."""

    tracker_project: str = field("video-lora-workbench", title="Tracker project", advanced=True)
    """The name under which the tracker files the run."""

    stall_timeout: float = field(15.0, title="Stall timeout", low=0.0, high=10_000.0, unit="minutes", advanced=True)
    """End the run when it has made no progress for this long, with the stack of every thread in its log. 0: never.
    Downloads are not counted."""

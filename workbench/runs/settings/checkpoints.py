"""When a run is saved, which checkpoints are kept, and where its LoRA is pushed."""

from __future__ import annotations

from workbench.settings import Settings, field

CHECKPOINTS = "Checkpoints"


class CheckpointSettings(Settings):
    """The part of TrainSettings about checkpoints and the push to the Hub."""

    save_every: int = field(100, title="Checkpoint every", section=CHECKPOINTS, low=1, high=1_000_000, unit="steps")
    """Steps between checkpoints: the most that a crash can cost."""

    keep_checkpoints: int = field(3, title="Checkpoints kept", section=CHECKPOINTS, low=1, high=10_000, advanced=True)
    """Older checkpoints are removed once a newer one is safely on disk; the best and the starred ones stay."""

    keep_every: int = field(
        0, title="Checkpoints kept for good", section=CHECKPOINTS, low=0, high=1_000_000, unit="steps", advanced=True
    )
    """A checkpoint at every multiple of this many steps is never removed. 0: none beside those above."""

    push_to_hub: bool = field(False, title="Push at the end", section=CHECKPOINTS, advanced=True)
    """When the run has finished, send its LoRA to the Hugging Face Hub, into a private repository, with the login of
    this machine (hf auth login). A push that fails is no failure of the run."""

    repository: str = field("", title="Repository", section=CHECKPOINTS, advanced=True)
    """Where it goes, as OWNER/NAME. Empty: your account and the run's name."""

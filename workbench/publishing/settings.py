"""The settings of a push."""

from __future__ import annotations

from workbench.settings import Settings, field

WHERE, WHAT = "Destination", "Content"


class LoraPush(Settings):
    """Push a LoRA to a model repository."""

    repo_id: str = field("", title="Repository", section=WHERE)
    """Model repository on the Hugging Face Hub, OWNER/NAME, created if it does not exist. An existing repository gets a
    new commit, which deletes nothing. Empty: your account and the LoRA's name."""

    private: bool = field(True, title="Private", section=WHERE)
    """Only you can see the repository. Anyone can load and copy a public one."""

    license: str = field("", title="License", section=WHAT)
    """License in the Hub's short form: apache-2.0, cc-by-4.0, other. Empty: the base model's license, which also covers
    what is made from it."""

    clips: bool = field(False, title="Training clips too", section=WHAT)
    """Also upload the training clips and their captions. Everyone who can see the repository can see them."""

    model_card: bool = field(True, title="Write the model card", section=WHAT, advanced=True)
    """Write README.md. Turn it off to keep the one on the Hub, for example after you edited it there."""


class SpacePush(Settings):
    """Push a demo of a LoRA that is on the Hub to a Space."""

    repo_id: str = field("", title="Space", section=WHERE)
    """Space on the Hugging Face Hub, OWNER/NAME, created if it does not exist. Empty: your account and the LoRA's name
    with -demo appended."""

    private: bool = field(True, title="Private Space", section=WHERE)
    """Only you can see and use the Space."""

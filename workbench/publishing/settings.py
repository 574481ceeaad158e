"""The settings of a push; one declaration each."""

from __future__ import annotations

from workbench.settings import Settings, field

WHERE, WHAT = "Destination", "Content"


class LoraPush(Settings):
    """A LoRA into a model repository."""

    repo_id: str = field("", title="Repository", section=WHERE)
    """The model repository on the Hugging Face Hub, as OWNER/NAME; it is created if it does not exist. To one that
    exists, a commit is added, and nothing is deleted. Empty: your account and the LoRA's name."""

    private: bool = field(True, title="Private", section=WHERE)
    """Only you see the repository. Everybody may load and copy what is public."""

    license: str = field("", title="License", section=WHAT)
    """In the Hub's short form: apache-2.0, cc-by-4.0, other. Empty: the base model's, which also applies to what is
    made from it."""

    clips: bool = field(False, title="Training clips too", section=WHAT)
    """Put the clips that it was trained on, with their captions, beside the LoRA. Whoever sees the repository sees
    them."""

    model_card: bool = field(True, title="Write the model card", section=WHAT, advanced=True)
    """Off leaves the README.md that is there as it is, for instance when you have changed it on the Hub."""


class SpacePush(Settings):
    """A demo of a LoRA that is on the Hub, into a Space."""

    repo_id: str = field("", title="Space", section=WHERE)
    """The Space on the Hugging Face Hub, as OWNER/NAME; it is created if it does not exist. Empty: your account and
    the LoRA's name with -demo appended."""

    private: bool = field(True, title="Private Space", section=WHERE)
    """Only you see the Space and can use it."""

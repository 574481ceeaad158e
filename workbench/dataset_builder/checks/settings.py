"""The settings of a dataset check, one declaration each."""

from __future__ import annotations

from workbench.families import default_model
from workbench.families.settings import NamesModel
from workbench.settings import field

CHECK, LIMITS = "Check", "Limits"


class CheckSettings(NamesModel):
    """What `datasets/<slug>/.check/config.json` holds."""

    model: str = field(default_model(), title="Model", section=CHECK, source="models", path=True)
    """The model you will train: clips are checked against its length and size, captions with its tokenizer."""

    pictures: bool = field(True, title="Look at the pictures", section=CHECK)
    """Near-duplicates, still, blurred and shaky clips, cuts, black bars, flashes, text, length and size."""

    captions: bool = field(True, title="Read the captions", section=CHECK)
    """Missing, very short, repeated and too long captions, and the trigger word."""

    frames: int | None = field(None, title="Frames", section=CHECK, low=1, high=1000, unit="frames", advanced=True)
    """Frames you will train with. Empty: what the model was made for."""

    height: int | None = field(None, title="Height", section=CHECK, low=16, high=4096, unit="pixels", advanced=True)
    """Height you will train at. Empty: what the model was made for."""

    width: int | None = field(None, title="Width", section=CHECK, low=16, high=4096, unit="pixels", advanced=True)
    """Width you will train at. Empty: what the model was made for."""

    fps: float | None = field(
        None, title="Frame rate", section=CHECK, low=0.5, high=120, unit="frames per second", advanced=True
    )
    """Frame rate you will train at. Empty: what the model was made for."""

    near_duplicate: float = field(0.25, title="Nearly the same", section=LIMITS, low=0.0, high=1.0, advanced=True)
    """Clips whose pictures differ by less are called copies of one another. 0: only exact ones."""

    still: float = field(
        0.8, title="Standing still", section=LIMITS, low=0.05, high=1.0, unit="of the clip", advanced=True
    )
    """A clip in which nothing moves for this share of its time is called still."""

    blur: float = field(0.62, title="Blur", section=LIMITS, low=0.0, high=1.0, advanced=True)
    """0 is sharp, 1 has no detail. Footage of a phone has 0.2 to 0.4, soft old film 0.58."""

    shake: float = field(1.0, title="Shake", section=LIMITS, low=0.0, high=100.0, unit="% of the width", advanced=True)
    """How much the camera may jerk within a fifteenth of a second."""

    flash: float = field(25.0, title="Flash", section=LIMITS, low=10.0, high=255.0, unit="levels", advanced=True)
    """A jump of brightness by this much that soon returns is called a flash."""

    cut: float = field(
        2.0, title="Cut", section=LIMITS, low=1.5, high=20.0, unit="times the usual change", advanced=True
    )
    """The score, against its neighbours, from which a frame counts as a cut; splitting uses 2."""

    fewest_words: int = field(3, title="Fewest words", section=LIMITS, low=1, high=100, unit="words", advanced=True)
    """Captions with fewer words are called very short."""

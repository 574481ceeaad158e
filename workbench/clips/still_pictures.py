"""What still pictures among the clips do to motion, in a sentence for the dataset check and for a run that is to start.

The numbers are those of benchmarks/pictures.py on the built-in model; docs/guide.md has the table.
"""

from __future__ import annotations

MUCH = 0.5  # share of pictures from which on a sentence is due


def effect_on_motion(share: float) -> str:
    """What to expect where this share (0 to 1) of what is trained on is pictures; "" where it is small."""
    if share >= 1:
        return (
            "All that is trained on is still pictures: motion is not taught and may be lost. On the built-in model the "
            "grid's motion number was then 5.4, with clips alone 8.7. Add clips."
        )
    if share >= MUCH:
        return (
            f"{share:.0%} of what is trained on is still pictures, which take from motion: on the built-in model the "
            "grid's motion number was 5.8 with 86%, 7.2 with 20%, 8.7 with clips alone, with the same looks. Set "
            "picture_share to 0.2, or add clips."
        )
    return ""

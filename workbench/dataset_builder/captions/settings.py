"""The settings of a caption task: which clips, what is asked about them, and the captioner's own.

Not covered: what each captioner reads (captioners.settings).
"""

from __future__ import annotations

from typing import Literal

from workbench.captioners.settings import CaptionerSettings
from workbench.settings import field

CLIPS, ASKING = "Clips", "Question"
INSTRUCTION = """\
Describe this video for training a text-to-video model, in three to five plain sentences: who or what is seen and how \
it looks, what happens in which order, the place and the light, how the camera moves.
Say only what can be seen. Begin with the subject itself, not with "the video shows". Answer with the description alone.
Call the main subject {trigger}.
What is known about it: {caption}"""


class CaptionSettings(CaptionerSettings):
    """What `datasets/<slug>/.caption/config.json` holds."""

    which: Literal["missing", "all", "chosen"] = field("missing", title="Which clips", section=CLIPS)
    """missing: clips without a caption. all: every clip. chosen: those named below, on the page those that are
    marked. Captions written by hand stay in any case, unless the switch says otherwise."""

    chosen: tuple[str, ...] = field((), title="Chosen clips", section=CLIPS, lines=3)
    """File names or ids of the clips that chosen means."""

    overwrite_hand: bool = field(False, title="Write over hand-written captions", section=CLIPS, advanced=True)
    """Off: what a person wrote is never replaced, not even when it was written while the job runs."""

    instruction: str = field(INSTRUCTION, title="Instruction", section=ASKING, lines=6)
    """What the captioner is asked. {trigger} stands for the dataset's trigger word, {caption} for the caption the clip
    has; a line whose placeholder has nothing to stand for is left out."""

    frames: int = field(8, title="Frames", section=ASKING, unit="frames", low=1, high=64)
    """How many frames of each clip are shown, spread evenly from the first to the last."""

    picture_side: int = field(768, title="Longer side", section=ASKING, unit="pixels", low=64, high=4096, advanced=True)
    """Larger frames are reduced to this before they are shown: more pixels cost memory, time and money."""

    retries: int = field(2, title="Retries", section=ASKING, low=0, high=10, advanced=True)
    """How often the same is asked again when it fails: after 1, 2, 4 ... seconds, or as the server says."""

    processes: int = field(1, title="Processes", section=ASKING, low=1, high=256, advanced=True)
    """How many ask at once. With vision_language each has a GPU of its own, so no more than there are GPUs work; with
    endpoint each asks the server."""

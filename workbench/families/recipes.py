"""What LoRAs of one subject were trained with, as published: figures, each with its reason and its sources. No torch.

A family states its recipes as facts. What is known of a subject on any model fills in where less was published of
one; figures of other models are named as such.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

Subject = Literal["style", "character", "object", "motion", "camera", "effect"]
SUBJECTS: tuple[Subject, ...] = get_args(Subject)


@dataclass(frozen=True)
class Source:
    """A paper, a model card or a document. url: "" for a document of this project"""

    title: str
    url: str = ""


@dataclass(frozen=True)
class Advice:
    """Why, and who says so. No source: common practice, of which no comparison was published."""

    reason: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """How LoRAs of one subject were trained.

    evidence: how well documented it is, one sentence
    clips, captions: advice on the dataset;  enough: with fewer clips than that, a warning
    steps: (clips, steps) by clips: between two, in proportion; outside, the nearest;  why_steps: their reason
    settings: (setting, value, reason)
    """

    subject: Subject
    evidence: str
    clips: Advice
    captions: Advice
    enough: int
    steps: tuple[tuple[int, int], ...]
    why_steps: Advice
    settings: tuple[tuple[str, str | int | float, Advice], ...]

    def steps_for(self, clips: int) -> int:
        """Steps for a number of clips, in tens."""
        if clips <= self.steps[0][0]:
            return self.steps[0][1]
        for (fewer, low), (more, high) in pairwise(self.steps):
            if clips <= more:
                return round((low + (high - low) * (clips - fewer) / (more - fewer)) / 10) * 10
        return self.steps[-1][1]


# ---- what holds for any model

HUB = "https://huggingface.co/"
DIFFUSERS = Source(
    "diffusers, CogVideoX example", "https://github.com/huggingface/diffusers/blob/main/examples/cogvideo/README.md"
)
PERSON = Source("cometa21/tessy-lora-ltx25 (LTX-2.5)", f"{HUB}cometa21/tessy-lora-ltx25")
ZOOMS = Source(
    "Cseti/Basic_camera_motion_LoRAs_sd15-ad2-v1 (AnimateDiff)", f"{HUB}Cseti/Basic_camera_motion_LoRAs_sd15-ad2-v1"
)
ANIMATEDIFF = Source("AnimateDiff, section on MotionLoRA", "https://arxiv.org/abs/2307.04725")
MOTIONDIRECTOR = Source("MotionDirector", "https://arxiv.org/abs/2310.08465")
DREAMBOOTH = Source("DreamBooth", "https://arxiv.org/abs/2208.12242")

NO_FLIP = ("horizontal_flip", 0.0, Advice("A flipped clip moves to the other side: left would become right."))
CLIPS: dict[Subject, Advice] = {
    "style": Advice("25 or more: of 10, 25 and 50 clips, 25 and more worked best on CogVideoX.", (DIFFUSERS,)),
    "character": Advice(
        "25 to 40, in different places, clothes, sizes and angles. On LTX-2.5 one person took 39 clips.",
        (DIFFUSERS, PERSON),
    ),
    "object": Advice("25 or more, from several sides and in different places, light and hands.", (DIFFUSERS,)),
    "motion": Advice(
        "20 to 50, the motion whole in each clip. Vary who moves and where: a LoRA ties a motion to the looks of its "
        "clips.",
        (ANIMATEDIFF, MOTIONDIRECTOR),
    ),
    "camera": Advice(
        "20 to 50 with one move each, over different scenes; zooms made from stills by cropping count. Others took 10.",
        (ANIMATEDIFF, ZOOMS),
    ),
    "effect": Advice("25 or more: the effect from start to end in each clip, on different things.", (DIFFUSERS,)),
}
_NAMED = (
    "A rare trigger word with the kind beside it (sks dog), then what changes: {}. What a caption does not say goes "
    "into the trigger word."
)
CAPTIONS: dict[Subject, Advice] = {
    "style": Advice("A trigger word in front; describe what is seen, and leave the style to it.", (DIFFUSERS,)),
    "character": Advice(_NAMED.format("clothes, place, action"), (DREAMBOOTH,)),
    "object": Advice(_NAMED.format("place, light, action"), (DREAMBOOTH,)),
    "motion": Advice("The same words for the motion in every caption, other words for everything else."),
    "camera": Advice("Name the move in the same words in every caption; describe the scene as usual."),
    "effect": Advice("A trigger word in front, then what happens to what.", (DIFFUSERS,)),
}
ENOUGH: dict[Subject, int] = {"style": 25, "character": 25, "object": 25, "motion": 20, "camera": 20, "effect": 25}
MOVES: tuple[Subject, ...] = ("motion", "camera")
KINDS: dict[Subject, str] = {"object": "an object", "effect": "an effect", "camera": "a camera move"}
Value = tuple[str, str | int | float, Advice]


@dataclass(frozen=True)
class Published:
    """What was published of one subject; None: as of the family's other subjects, or of any model."""

    evidence: str | None = None
    steps: tuple[tuple[int, int], ...] | None = None
    why_steps: Advice | None = None
    settings: tuple[Value, ...] | None = None
    captions: Advice | None = None
    clips: Advice | None = None


def recipes_of(
    model: str,
    steps: tuple[tuple[int, int], ...],
    why_steps: Advice,
    settings: tuple[Value, ...],
    published: Mapping[Subject, Published],
) -> tuple[Recipe, ...]:
    """One recipe for each subject, in the order of the forms, with the clips and captions that hold for any model."""
    found = []
    for subject in SUBJECTS:
        own = published.get(subject, Published())
        kind = KINDS.get(subject, f"a {subject}")
        none = f"No published run of {kind} on {model} with all its figures is known: they are those of other subjects."
        flip = (NO_FLIP,) if subject in MOVES else ()
        found.append(
            Recipe(
                subject=subject,
                evidence=own.evidence or none,
                clips=own.clips or CLIPS[subject],
                captions=own.captions or CAPTIONS[subject],
                enough=ENOUGH[subject],
                steps=own.steps or steps,
                why_steps=own.why_steps or why_steps,
                settings=(*(own.settings or settings), *flip),
            )
        )
    return tuple(found)

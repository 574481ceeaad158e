"""Clips and captions for a LoRA of a subject on any model, and recipes for families of which less was published.

Figures of other models are named as such. Not covered: what was published for one family (its own recipes).
"""

from __future__ import annotations

from workbench.families.recipes import SUBJECTS, Advice, Recipe, Source, Subject

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
Value = tuple[str, str | int | float, Advice]


def recipe(
    subject: Subject,
    evidence: str,
    steps: tuple[tuple[int, int], ...],
    why_steps: Advice,
    settings: tuple[Value, ...],
    captions: Advice | None = None,
    clips: Advice | None = None,
) -> Recipe:
    """A recipe with the clips and captions that hold for any model, where the family has none of its own."""
    flip = (NO_FLIP,) if subject in MOVES else ()
    return Recipe(
        subject=subject,
        evidence=evidence,
        clips=clips or CLIPS[subject],
        captions=captions or CAPTIONS[subject],
        enough=ENOUGH[subject],
        steps=steps,
        why_steps=why_steps,
        settings=(*settings, *flip),
    )


def unpublished(subject: Subject, model: str) -> str:
    """The evidence of a subject of which no run was published."""
    kind = {"object": "an object", "effect": "an effect"}.get(subject, f"a {subject}")
    kind = "a camera move" if subject == "camera" else kind
    return f"No published run of {kind} on {model} with all its figures is known: they are those of other subjects."


def in_order(found: dict[Subject, Recipe]) -> tuple[Recipe, ...]:
    """One recipe for each subject, in the order of the forms."""
    return tuple(found[subject] for subject in SUBJECTS)

"""What LoRAs on CogVideoX were trained with, as far as it was published; for what was not, the nearest that was.

Not covered: the built-in models' accuracy (docs/performance.md).
"""

from __future__ import annotations

from dataclasses import replace

from workbench.families.facts import ALL_LINEAR
from workbench.families.recipes import SUBJECTS, Advice, Recipe, Source, Subject
from workbench.families.subject_advice import (
    ANIMATEDIFF,
    DIFFUSERS,
    HUB,
    PERSON,
    ZOOMS,
    Value,
    in_order,
    recipe,
    unpublished,
)

AUTHORS = Source("CogVideo, SAT training configurations", "https://github.com/zai-org/CogVideo/tree/main/sat/configs")
DISNEY, DISNEY_4000, FILM, CRUSH = (
    Source(name, HUB + name)
    for name in (
        "a-r-r-o-w/cogvideox-disney-adamw-3000-0.0003",
        "a-r-r-o-w/cogvideox-disney-adamw-4000-0.0003-constant",
        "MoonShinkiro/cogvideox-5b-fun-lora-bladerunnerv1",
        "finetrainers/CogVideoX-1.5-crush-smol-v0",
    )
)
ALPHA = Advice("Half the rank: diffusers advises the rank or half of it, and found 1 unsuitable.", (DIFFUSERS,))
RANK = Advice("64 and above where the base model cannot do yet what the captions say; 4 was too low.", (DIFFUSERS,))
RATE = Advice(
    "The lower end of 1e-4 to 1e-3, which diffusers and the authors advise for 25 clips and more with Adam or AdamW.",
    (DIFFUSERS,),
)
STEPS = ((25, 2000), (50, 2000), (100, 4000))
WHY_STEPS = Advice(
    "2,000 steps were sufficient for 25 clips, 1,500 to 2,000 worked well for 50; the authors advise 4,000 for 100.",
    (DIFFUSERS,),
)
TRIGGER = "A trigger word in front of every caption worked better than none."


def _settings(
    rank: int = 64, why_rank: Advice = RANK, rate: float = 1e-4, why_rate: Advice = RATE
) -> tuple[Value, ...]:
    half = Advice("Half the rank: diffusers advises the rank or half of it, and found 1 unsuitable.", (DIFFUSERS,))
    return (
        ("rank", rank, why_rank),
        ("alpha", rank / 2, half),
        ("learning_rate", rate, why_rate),
        ("batch_size", 1, Advice("The steps above are those of batches of one clip.", (DIFFUSERS,))),
        ("targets", "attention", Advice("The layers that the published runs trained.", (DIFFUSERS,))),
        ("caption_dropout", 0.1, Advice("The authors trained the model itself with it.", (AUTHORS,))),
        ("lora_dropout", 0.0, Advice("No published run with LoRA dropout is known for this model.")),
    )


def _usual(subject: Subject) -> Recipe:
    return recipe(subject, unpublished(subject, "CogVideoX"), STEPS, WHY_STEPS, _settings(64))


RECIPES = in_order(
    {
        "style": recipe(
            "style",
            "The best documented subject: several published runs on this model.",
            STEPS,
            Advice(f"{WHY_STEPS.reason} A film's look took 2,000 with 65.", (DIFFUSERS, FILM)),
            _settings(
                rate=3e-4, why_rate=Advice("As in two published runs of 3,000 and 4,000 steps.", (DISNEY, DISNEY_4000))
            ),
            captions=Advice(
                f"{TRIGGER} Describe what is seen, and leave the style to the trigger word.", (DIFFUSERS, DISNEY)
            ),
            clips=Advice(
                "25 or more: of 10, 25 and 50 clips, 25 and more worked best. The authors advise 100; a film's look "
                "was trained from 65.",
                (DIFFUSERS, FILM),
            ),
        ),
        "character": replace(
            _usual("character"),
            why_steps=Advice(
                f"{WHY_STEPS.reason} On another model one person took 500: look at early checkpoints, too.",
                (DIFFUSERS, PERSON),
            ),
        ),
        "object": _usual("object"),
        "motion": recipe(
            "motion",
            "No published run of a motion on this model is known. Clips and steps are those of AnimateDiff.",
            ((1, 2000),),
            Advice("2,000 iterations for 20 to 50 clips.", (ANIMATEDIFF,)),
            _settings(64),
        ),
        "camera": recipe(
            "camera",
            "No published run of a camera move on this model is known. Clips and steps are those of AnimateDiff.",
            ((1, 2000),),
            Advice("2,000 iterations for 20 to 50 clips; 1,600 for 10.", (ANIMATEDIFF, ZOOMS)),
            _settings(32, Advice("16 or 32 where the base model is moderately good already.", (DIFFUSERS,))),
        ),
        "effect": recipe(
            "effect",
            "One published run on this model (objects under a press); its learning rate is not known here.",
            ((1, 3000),),
            Advice("The published run's last samples are of step 3,000.", (CRUSH,)),
            _settings(32, Advice("The published file, 132 MB, holds rank 32 (computed from its size).", (CRUSH,))),
            captions=Advice(
                f"{TRIGGER} Then what happens to what: PIKA_CRUSH A red toy car is being crushed ...",
                (DIFFUSERS, CRUSH),
            ),
        ),
    }
)
MEASURED = (Source("docs/performance.md, the built-in model"),)
AS_MEASURED = Advice("As measured.", MEASURED)
SMALL: tuple[Value, ...] = (
    ("batch_size", 4, AS_MEASURED),
    ("rank", 16, AS_MEASURED),
    ("alpha", 64.0, AS_MEASURED),
    ("targets", ALL_LINEAR, AS_MEASURED),
    ("learning_rate", 2e-3, Advice("As measured; a small model bears a high rate.", MEASURED)),
    ("lr_schedule", "cosine", AS_MEASURED),
    (
        "caption_dropout",
        0.0,
        Advice("An empty caption that learned the concept pushes other prompts away from it.", MEASURED),
    ),
    ("lora_dropout", 0.0, AS_MEASURED),
    (
        "regularization_target",
        "base model",
        Advice(
            "With a regularization dataset: fewer known prompts are forgotten, and a concept shows sooner.", MEASURED
        ),
    ),
)
_BUILT_IN = recipe(
    "style",
    "Measured on the built-in models: a texture, a colour, a shape and two ways of moving show in 86 to 100 %.",
    ((1, 1400),),
    Advice("600 steps of 4 clips, half of them known, for a texture; 1,400 for a shape or a way of moving.", MEASURED),
    SMALL,
    captions=Advice("One short sentence in the model's own words, with a new word for what is new.", MEASURED),
    clips=Advice("24 clips.", MEASURED),
)
BUILT_IN = tuple(replace(_BUILT_IN, subject=subject, enough=20) for subject in SUBJECTS)

"""What LoRAs on CogVideoX were trained with, as far as it was published; for what was not, the nearest that was.

Not covered: the built-in models' accuracy (docs/performance.md).
"""

from __future__ import annotations

from dataclasses import replace

from workbench.families.recipes import SUBJECTS, Advice, Recipe, Source
from workbench.families.subject_advice import (
    ANIMATEDIFF,
    CAPTIONS,
    CLIPS,
    DIFFUSERS,
    HUB,
    NO_FLIP,
    PERSON,
    ZOOMS,
)

AUTHORS = Source("CogVideo, SAT training configurations", "https://github.com/zai-org/CogVideo/tree/main/sat/configs")
DISNEY = Source("a-r-r-o-w/cogvideox-disney-adamw-3000-0.0003", f"{HUB}a-r-r-o-w/cogvideox-disney-adamw-3000-0.0003")
DISNEY_4000 = Source(
    "a-r-r-o-w/cogvideox-disney-adamw-4000-0.0003-constant",
    f"{HUB}a-r-r-o-w/cogvideox-disney-adamw-4000-0.0003-constant",
)
FILM = Source(
    "MoonShinkiro/cogvideox-5b-fun-lora-bladerunnerv1", f"{HUB}MoonShinkiro/cogvideox-5b-fun-lora-bladerunnerv1"
)
CRUSH = Source("finetrainers/CogVideoX-1.5-crush-smol-v0", f"{HUB}finetrainers/CogVideoX-1.5-crush-smol-v0")
MEASURED = Source("docs/performance.md, the built-in model")

ALPHA = Advice("Half the rank: diffusers advises the rank or half of it, and found 1 unsuitable.", (DIFFUSERS,))
RANK = Advice(
    "64 and above where the base model cannot do yet what the captions say; 4 was too low.",
    (DIFFUSERS,),
)
RATE = Advice(
    "The lower end of 1e-4 to 1e-3, which diffusers and the authors advise for 25 clips and more with Adam or AdamW.",
    (DIFFUSERS,),
)
COMMON = (
    ("batch_size", 1, Advice("The steps above are those of batches of one clip.", (DIFFUSERS,))),
    ("targets", "attention", Advice("The layers that the published runs trained.", (DIFFUSERS,))),
    ("caption_dropout", 0.1, Advice("The authors trained the model itself with it.", (AUTHORS,))),
    ("lora_dropout", 0.0, Advice("No published run with LoRA dropout is known for this model.")),
)
STEPS = ((25, 2000), (50, 2000), (100, 4000))
WHY_STEPS = Advice(
    "2,000 steps were sufficient for 25 clips, 1,500 to 2,000 worked well for 50; the authors advise 4,000 for 100.",
    (DIFFUSERS,),
)
TRIGGER = "A trigger word in front of every caption worked better than none."

STYLE = Recipe(
    subject="style",
    evidence="The best documented subject: several published runs on this model.",
    clips=Advice(
        "25 or more: of 10, 25 and 50 clips, 25 and more worked best. The authors advise 100; a film's look was "
        "trained from 65.",
        (DIFFUSERS, FILM),
    ),
    captions=Advice(f"{TRIGGER} Describe what is seen, and leave the style to the trigger word.", (DIFFUSERS, DISNEY)),
    enough=25,
    steps=STEPS,
    why_steps=replace(
        WHY_STEPS,
        reason=f"{WHY_STEPS.reason} A film's look took 2,000 with 65.",
        sources=(DIFFUSERS, FILM),
    ),
    settings=(
        ("rank", 64, RANK),
        ("alpha", 32.0, ALPHA),
        ("learning_rate", 3e-4, Advice("As in two published runs of 3,000 and 4,000 steps.", (DISNEY, DISNEY_4000))),
        *COMMON,
    ),
)
CHARACTER = Recipe(
    subject="character",
    evidence="No published run of a character on this model is known: steps and rank are those of other subjects.",
    clips=Advice(
        "25 to 40, in different places, clothes, sizes and angles. On another model one person took 39 clips.",
        (DIFFUSERS, PERSON),
    ),
    captions=CAPTIONS["character"],
    enough=25,
    steps=STEPS,
    why_steps=replace(
        WHY_STEPS,
        reason=f"{WHY_STEPS.reason} On another model one person took 500: look at early checkpoints, too.",
        sources=(DIFFUSERS, PERSON),
    ),
    settings=(
        ("rank", 64, replace(RANK, sources=(DIFFUSERS, PERSON))),
        ("alpha", 32.0, ALPHA),
        ("learning_rate", 1e-4, replace(RATE, sources=(DIFFUSERS, PERSON))),
        *COMMON,
    ),
)
OBJECT = replace(
    CHARACTER,
    subject="object",
    evidence="No published run of an object on this model is known: steps and rank are those of other subjects.",
    clips=CLIPS["object"],
    captions=CAPTIONS["object"],
    why_steps=WHY_STEPS,
    settings=(("rank", 64, RANK), ("alpha", 32.0, ALPHA), ("learning_rate", 1e-4, RATE), *COMMON),
)
MOTION = Recipe(
    subject="motion",
    evidence="No published run of a motion on this model is known. Clips and steps are those of AnimateDiff.",
    clips=CLIPS["motion"],
    captions=CAPTIONS["motion"],
    enough=20,
    steps=((1, 2000),),
    why_steps=Advice("2,000 iterations for 20 to 50 clips.", (ANIMATEDIFF,)),
    settings=(
        ("rank", 64, RANK),
        ("alpha", 32.0, ALPHA),
        ("learning_rate", 1e-4, RATE),
        *COMMON,
        NO_FLIP,
    ),
)
CAMERA = replace(
    MOTION,
    subject="camera",
    evidence="No published run of a camera move on this model is known. Clips and steps are those of AnimateDiff.",
    clips=CLIPS["camera"],
    captions=CAPTIONS["camera"],
    why_steps=Advice("2,000 iterations for 20 to 50 clips; 1,600 for 10.", (ANIMATEDIFF, ZOOMS)),
    settings=(
        ("rank", 32, Advice("16 or 32 where the base model is moderately good already.", (DIFFUSERS,))),
        ("alpha", 16.0, ALPHA),
        ("learning_rate", 1e-4, RATE),
        *COMMON,
        NO_FLIP,
    ),
)
EFFECT = Recipe(
    subject="effect",
    evidence="One published run on this model (objects under a press); its learning rate is not known here.",
    clips=CLIPS["effect"],
    captions=Advice(
        f"{TRIGGER} Then what happens to what: PIKA_CRUSH A red toy car is being crushed ...", (DIFFUSERS, CRUSH)
    ),
    enough=25,
    steps=((1, 3000),),
    why_steps=Advice("The published run's last samples are of step 3,000.", (CRUSH,)),
    settings=(
        ("rank", 32, Advice("The published file, 132 MB, holds rank 32 (computed from its size).", (CRUSH,))),
        ("alpha", 16.0, ALPHA),
        ("learning_rate", 1e-4, RATE),
        *COMMON,
    ),
)
RECIPES = (STYLE, CHARACTER, OBJECT, MOTION, CAMERA, EFFECT)

_BUILT_IN = Recipe(
    subject="style",
    evidence="Measured on the built-in models: stripes are learned by 97 %, a motion by 56 %, a fading by 78 %.",
    clips=Advice("24 clips.", (MEASURED,)),
    captions=Advice("One short sentence in the model's own words, with a new word for what is new.", (MEASURED,)),
    enough=20,
    steps=((1, 450),),
    why_steps=Advice("450 steps of 8 clips; a ring took 1,200 and was learned by 69 %.", (MEASURED,)),
    settings=(
        ("batch_size", 8, Advice("As measured.", (MEASURED,))),
        ("rank", 16, Advice("As measured.", (MEASURED,))),
        ("alpha", 16.0, Advice("As measured.", (MEASURED,))),
        ("targets", "attention+feed-forward", Advice("As measured.", (MEASURED,))),
        ("learning_rate", 1e-3, Advice("As measured; a small model bears a high rate.", (MEASURED,))),
        ("lr_schedule", "cosine", Advice("As measured.", (MEASURED,))),
        (
            "caption_dropout",
            0.0,
            Advice("An empty caption that learned the concept pushes other prompts away from it.", (MEASURED,)),
        ),
        ("lora_dropout", 0.0, Advice("As measured.", (MEASURED,))),
    ),
)
BUILT_IN = tuple(replace(_BUILT_IN, subject=subject) for subject in SUBJECTS)

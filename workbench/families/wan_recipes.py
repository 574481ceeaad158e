"""What LoRAs on Wan were trained with, as far as it was published; what is another subject's or model's is named so."""

from __future__ import annotations

from workbench.families.recipes import Advice, Recipe, Source, Subject
from workbench.families.subject_advice import CLIPS, Value, in_order, recipe, unpublished

GITHUB = "https://github.com/"
EXAMPLES = f"{GITHUB}a-r-r-o-w/finetrainers/blob/main/examples/training/sft/"
TOOLKIT = Source(
    "ai-toolkit, Wan 2.1 14B example",
    f"{GITHUB}ostris/ai-toolkit/blob/main/config/examples/train_lora_wan21_14b_24gb.yaml",
)
CRUSH = Source("finetrainers, Wan 2.1 1.3B example (crush)", f"{EXAMPLES}wan/crush_smol_lora/train.sh")
DISSOLVE = Source("finetrainers, Wan 2.1 14B image example (dissolve)", f"{EXAMPLES}wan_i2v/3dgs_dissolve/train.sh")
GHIBLI = Source("Studio Ghibli style LoRA on Wan 2.1 14B", "https://civitai.com/models/1404755")

ALPHA = Advice("Equal to the rank, as in all three examples.", (TOOLKIT, CRUSH, DISSOLVE))
RATE = Advice("1e-4 in the examples for the 14B models; 5e-5 in the one for 1.3B.", (TOOLKIT, DISSOLVE, CRUSH))
COMMON: tuple[Value, ...] = (
    ("batch_size", 1, Advice("The steps above are those of batches of one clip.", (TOOLKIT, DISSOLVE))),
    ("targets", "attention", Advice("The layers that two of the examples train.", (CRUSH, DISSOLVE))),
    ("caption_dropout", 0.05, Advice("As in the example for the 14B model.", (TOOLKIT,))),
    ("lora_dropout", 0.0, Advice("No published run with LoRA dropout is known for this model.")),
)
SETTINGS: tuple[Value, ...] = (
    ("rank", 32, Advice("As in two examples; 16 in the third.", (TOOLKIT, CRUSH, DISSOLVE))),
    ("alpha", 32.0, ALPHA),
    ("learning_rate", 1e-4, RATE),
    *COMMON,
)
STEPS = ((1, 2000),)
WHY_STEPS = Advice("2,000 in the example of a person; it calls 500 to 4,000 a good range.", (TOOLKIT,))


def _usual(subject: Subject) -> Recipe:
    return recipe(subject, unpublished(subject, "Wan"), STEPS, WHY_STEPS, SETTINGS)


RECIPES = in_order(
    {
        "style": recipe(
            "style",
            "One published run with clips and steps (Studio Ghibli, 14B); its rank and rate are not known here.",
            ((25, 2000), (360, 22640)),
            Advice(
                "22,638 for 240 clips and 120 images, in 90 hours; with fewer clips in proportion, but no fewer than "
                "the example for a person.",
                (GHIBLI, TOOLKIT),
            ),
            SETTINGS,
            captions=Advice("The trigger phrase (Studio Ghibli style) in front of every caption.", (GHIBLI,)),
            clips=Advice(
                "240 clips and 120 images in the published run; on CogVideoX 25 and more worked.",
                (GHIBLI, *CLIPS["style"].sources),
            ),
        ),
        "character": recipe(
            "character",
            "A trainer's example for a person (14B), with pictures alone; clips are those of other models.",
            STEPS,
            WHY_STEPS,
            SETTINGS,
        ),
        "object": _usual("object"),
        "motion": _usual("motion"),
        "camera": _usual("camera"),
        "effect": recipe(
            "effect",
            "Two examples: things under a press (1.3B), and things that dissolve, from a first frame (14B).",
            STEPS,
            Advice("3,000 steps of two clips for about 50 clips (1.3B); 1,000 of one clip (14B).", (CRUSH, DISSOLVE)),
            SETTINGS,
            clips=Advice("About 50 in the example for 1.3B; the effect from start to end in each.", (CRUSH,)),
        ),
    }
)

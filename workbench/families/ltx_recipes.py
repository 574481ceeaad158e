"""What LoRAs on LTX-Video were trained with, as far as it was published; what is another subject's is named so."""

from __future__ import annotations

from workbench.families.recipes import Advice, Recipe, Source, Subject
from workbench.families.subject_advice import CLIPS, HUB, Value, in_order, recipe, unpublished

AUTHORS = Source(
    "LTX-Video-Trainer, LoRA configuration for 2B",
    "https://github.com/Lightricks/LTX-Video-Trainer/blob/main/configs/ltxv_2b_lora_low_vram.yaml",
)
FINETRAINERS = Source(
    "finetrainers, LTX-Video",
    "https://github.com/a-r-r-o-w/finetrainers/blob/0329f619f0906c75a5a2798623f6999243443ce3/docs/training/ltx_video.md",
)
CARD = Source("peteromallet/testtest_2 (LTX-Video 13B)", f"{HUB}peteromallet/testtest_2")
CAKEIFY = Source("Lightricks/LTX-Video-Cakeify-LoRA", f"{HUB}Lightricks/LTX-Video-Cakeify-LoRA")

SETTINGS: tuple[Value, ...] = (
    ("rank", 32, Advice("As the authors' trainer for 2B with 24 GB; others took 128.", (AUTHORS, FINETRAINERS, CARD))),
    ("alpha", 32.0, Advice("Equal to the rank.", (AUTHORS, FINETRAINERS))),
    ("learning_rate", 2e-4, Advice("As the authors' trainer; finetrainers: 3e-5.", (AUTHORS, CARD, FINETRAINERS))),
    ("lr_schedule", "linear", Advice("As the authors' trainer.", (AUTHORS,))),
    ("batch_size", 1, Advice("The steps above are those of batches of one clip.", (AUTHORS,))),
    ("targets", "attention", Advice("The layers that both trainers train.", (AUTHORS, FINETRAINERS))),
    ("caption_dropout", 0.05, Advice("As finetrainers; the authors' configuration states none.", (FINETRAINERS,))),
    ("lora_dropout", 0.0, Advice("As the authors' trainer.", (AUTHORS,))),
)
STEPS = ((1, 1500),)
WHY_STEPS = Advice(
    "1,500 in the authors' configuration; finetrainers: 3,000 with four batches a step.", (AUTHORS, FINETRAINERS)
)


def _usual(subject: Subject) -> Recipe:
    return recipe(subject, unpublished(subject, "LTX-Video"), STEPS, WHY_STEPS, SETTINGS)


RECIPES = in_order(
    {
        "style": recipe(
            "style",
            "The authors' configuration, which names no subject, and one card (13B, what it learned is not stated).",
            ((50, 1500), (135, 17000)),
            Advice("1,500 in the authors' configuration; 17,000 for 135 videos on a card.", (AUTHORS, CARD)),
            SETTINGS,
            clips=Advice(
                "135 in the one run with a stated number; on CogVideoX 25 and more worked.",
                (CARD, *CLIPS["style"].sources),
            ),
        ),
        "character": _usual("character"),
        "object": _usual("object"),
        "motion": _usual("motion"),
        "camera": _usual("camera"),
        "effect": recipe(
            "effect",
            "The authors published an effect (things cut as cake, 0.9.5); its steps, rank and rate are not stated.",
            STEPS,
            WHY_STEPS,
            SETTINGS,
            captions=Advice("The trigger word in front: CAKEIFY a person using a knife to cut a cake.", (CAKEIFY,)),
        ),
    }
)

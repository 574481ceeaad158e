"""What LoRAs on the built-in Phenaki were trained with: measured here, since nothing was published.

Not covered: what the samples show (docs/phenaki.md).
"""

from __future__ import annotations

from dataclasses import replace

from workbench.families.recipes import SUBJECTS, Advice, Recipe, Source

MEASURED = Source("docs/phenaki.md, the built-in model")
AS_MEASURED = Advice("As measured.", (MEASURED,))
LAYERS = r".*(to_[qkv]|to_out\.0|net\.0\.proj|net\.2|proj_out)"

_STYLE = Recipe(
    subject="style",
    evidence="Measured with striped backgrounds alone, two seeds: 22 and 25 of 32 samples were striped.",
    clips=Advice("22 clips, and 64 known ones as regularization dataset.", (MEASURED,)),
    captions=Advice("One short sentence in the model's own words, with a new word for what is new.", (MEASURED,)),
    enough=20,
    steps=((1, 450),),
    why_steps=AS_MEASURED,
    settings=(
        ("batch_size", 8, AS_MEASURED),
        ("rank", 64, Advice("With rank 16 stripes were seen less often.", (MEASURED,))),
        ("alpha", 64.0, AS_MEASURED),
        (
            "targets",
            LAYERS,
            Advice(
                "With the last layer, which names the codes: a run without it, at rate 1e-3, showed no stripes.",
                (MEASURED,),
            ),
        ),
        ("learning_rate", 3e-3, AS_MEASURED),
        ("lr_schedule", "cosine", AS_MEASURED),
        ("caption_dropout", 0.0, Advice("Empty captions would learn the concept, and guidance subtracts them.")),
        ("lora_dropout", 0.0, AS_MEASURED),
        (
            "regularization_share",
            0.5,
            Advice("Half of each batch from the regularization dataset, if one is named.", (MEASURED,)),
        ),
    ),
)
TINY = tuple(replace(_STYLE, subject=subject) for subject in SUBJECTS)

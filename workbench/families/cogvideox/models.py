"""The CogVideoX models, published and built in; what LoRAs on them were trained with; and trainers' formats of those.

Sources: the models' pages on the Hub and the README of THUDM/CogVideo. The organization is named zai-org today, and
the Hub knows both names. Where no run of a subject was published, the nearest that was is named as such. No torch.

The transformer's layers are called, by programs that read or write LoRAs of CogVideoX:

    diffusers   transformer_blocks.0.attn1.to_q          and every trainer built on it
    ComfyUI     blocks.0.q                               its own CogVideoX nodes, below "diffusion_model."
    flat        transformer_blocks_0_attn1_to_q          kohya's way
    SAT         layers.0.attention.query_key_value, 0    three layers in one
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from workbench.families import lora_writing
from workbench.families.cogvideox import sat
from workbench.families.facts import ALL_LINEAR
from workbench.families.lora_files import LoraFormat
from workbench.families.lora_names import LayerNames
from workbench.families.model import Frames, Model
from workbench.families.recipes import (
    ANIMATEDIFF,
    DIFFUSERS,
    HUB,
    PERSON,
    SUBJECTS,
    ZOOMS,
    Advice,
    Published,
    Recipe,
    Source,
    Value,
    recipes_of,
)
from workbench.paths import ASSETS

# ---- what LoRAs were trained with

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
WHY_STEPS = Advice(
    "2,000 steps were sufficient for 25 clips, 1,500 to 2,000 worked well for 50; the authors advise 4,000 for 100.",
    (DIFFUSERS,),
)
TRIGGER = "A trigger word in front of every caption worked better than none."


def _settings(rank: int, why_rank: Advice, rate: float = 1e-4, why_rate: Advice = RATE) -> tuple[Value, ...]:
    return (
        ("rank", rank, why_rank),
        ("alpha", rank / 2, ALPHA),
        ("learning_rate", rate, why_rate),
        ("batch_size", 1, Advice("The steps above are those of batches of one clip.", (DIFFUSERS,))),
        ("targets", "attention", Advice("The layers that the published runs trained.", (DIFFUSERS,))),
        ("caption_dropout", 0.1, Advice("The authors trained the model itself with it.", (AUTHORS,))),
        ("lora_dropout", 0.0, Advice("No published run with LoRA dropout is known for this model.")),
    )


RECIPES = recipes_of(
    "CogVideoX",
    ((25, 2000), (50, 2000), (100, 4000)),
    WHY_STEPS,
    _settings(64, RANK),
    {
        "style": Published(
            "The best documented subject: several published runs on this model.",
            why_steps=Advice(f"{WHY_STEPS.reason} A film's look took 2,000 with 65.", (DIFFUSERS, FILM)),
            settings=_settings(
                64, RANK, 3e-4, Advice("As in two published runs of 3,000 and 4,000 steps.", (DISNEY, DISNEY_4000))
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
        "character": Published(
            why_steps=Advice(
                f"{WHY_STEPS.reason} On another model one person took 500: look at early checkpoints, too.",
                (DIFFUSERS, PERSON),
            )
        ),
        "motion": Published(
            "No published run of a motion on this model is known. Clips and steps are those of AnimateDiff.",
            steps=((1, 2000),),
            why_steps=Advice("2,000 iterations for 20 to 50 clips.", (ANIMATEDIFF,)),
        ),
        "camera": Published(
            "No published run of a camera move on this model is known. Clips and steps are those of AnimateDiff.",
            steps=((1, 2000),),
            why_steps=Advice("2,000 iterations for 20 to 50 clips; 1,600 for 10.", (ANIMATEDIFF, ZOOMS)),
            settings=_settings(32, Advice("16 or 32 where the base model is moderately good already.", (DIFFUSERS,))),
        ),
        "effect": Published(
            "One published run on this model (objects under a press); its learning rate is not known here.",
            steps=((1, 3000),),
            why_steps=Advice("The published run's last samples are of step 3,000.", (CRUSH,)),
            settings=_settings(
                32, Advice("The published file, 132 MB, holds rank 32 (computed from its size).", (CRUSH,))
            ),
            captions=Advice(
                f"{TRIGGER} Then what happens to what: PIKA_CRUSH A red toy car is being crushed ...",
                (DIFFUSERS, CRUSH),
            ),
        ),
    },
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
_BUILT_IN = Recipe(
    subject="style",
    evidence=(
        "Measured on the built-in models: a texture, a color, a shape and two ways of moving show in 86 to 100 %."
    ),
    clips=Advice("24 clips.", MEASURED),
    captions=Advice("One short sentence in the model's own words, with a new word for what is new.", MEASURED),
    enough=20,
    steps=((1, 1400),),
    why_steps=Advice(
        "600 steps of 4 clips, half of them known, for a texture; 1,400 for a shape or a way of moving.", MEASURED
    ),
    settings=SMALL,
)
BUILT_IN_RECIPES = tuple(replace(_BUILT_IN, subject=subject) for subject in SUBJECTS)


# ---- the models

LARGEST = (768, 1360)  # of 1.5, whatever largest its positions have

TINY_PROMPTS = (
    "a red circle moves left on a blue background",
    "a green square moves right on a white background",
    "a yellow triangle moves up on a black background",
)

# What is not said of a model below is as in this one.
FIRST = Model(
    id="cogvideox-2b",
    title="CogVideoX 2B",
    family="cogvideox",
    source="THUDM/CogVideoX-2b",
    revision="1137dacfc2c9c012bed6a0793f4ecf2ca8e7ba01",
    task="text-to-video",
    frames=49,
    fps=8,
    height=480,
    width=720,
    frame_rule=Frames(8, 49),
    size_multiple=16,
    steps=50,
    guidance_scale=6.0,
    scheduler="DDIM",
    license="Apache-2.0",
    download_gb=13.5,
)
FIVE = replace(
    FIRST,
    id="cogvideox-5b",
    title="CogVideoX 5B",
    source="THUDM/CogVideoX-5b",
    revision="8d6ea3f817438460b25595a120f109b88d5fdfad",
    scheduler="DPM",
    license="CogVideoX license (research; commercial use needs registration)",
    download_gb=21.0,
)
FIVE_I2V = replace(
    FIVE,
    id="cogvideox-5b-i2v",
    title="CogVideoX 5B, image to video",
    source="THUDM/CogVideoX-5b-I2V",
    revision="a6f0f4858a8395e7429d82493864ce92bf73af11",
    task="image-to-video",
    fixed_size=True,
)
NEWER = replace(
    FIVE,
    id="cogvideox1.5-5b",
    title="CogVideoX 1.5 5B",
    source="THUDM/CogVideoX1.5-5B",
    revision="fdc5267c90b5c06492985b966e43aae984e189e0",
    frames=81,
    fps=16,
    height=768,
    width=1360,
    frame_rule=Frames(16, 161),
    largest=LARGEST,
)
NEWER_I2V = replace(
    NEWER,
    id="cogvideox1.5-5b-i2v",
    title="CogVideoX 1.5 5B, image to video",
    source="THUDM/CogVideoX1.5-5B-I2V",
    revision="46c90528707aebbe69066390b4fe7e7d24c9c2a4",
    task="image-to-video",
)
PUBLISHED = tuple(
    replace(model, aliases=(model.source.replace("THUDM/", "zai-org/"),))
    for model in (FIRST, FIVE, FIVE_I2V, NEWER, NEWER_I2V)
)
TINY = replace(
    FIRST,
    id="tiny-cogvideox",
    title="Tiny CogVideoX (built in)",
    source=str(ASSETS / "tiny-cogvideox"),
    revision=None,
    frames=9,
    height=40,
    width=40,
    frame_rule=Frames(8, 17),
    size_multiple=8,
    steps=25,
    guidance_scale=3.0,
    download_gb=0.0,
    local=True,
    embedded=True,
    preservation_prompts=TINY_PROMPTS,
    recipes=BUILT_IN_RECIPES,
)
TINY_I2V = replace(
    TINY,
    id="tiny-cogvideox-i2v",
    title="Tiny CogVideoX, image to video (built in)",
    source=str(ASSETS / "tiny-cogvideox-i2v"),
    task="image-to-video",
)
BUILT_IN = tuple(model for model in (TINY, TINY_I2V) if (Path(model.source) / "model_index.json").is_file())
MODELS = (*BUILT_IN, *PUBLISHED)


# ---- layers' names, and formats of LoRA files

KNOWN = "this workbench, diffusers, cogvideox-factory, finetrainers, ComfyUI, kohya or SAT"
# In a block: diffusers' name -> ComfyUI's
IN_BLOCK = {
    "attn1.to_q": "q",
    "attn1.to_k": "k",
    "attn1.to_v": "v",
    "attn1.to_out.0": "attn_out",
    "attn1.norm_q": "norm_q",
    "attn1.norm_k": "norm_k",
    "norm1.linear": "norm1.linear",
    "norm1.norm": "norm1.norm",
    "norm2.linear": "norm2.linear",
    "norm2.norm": "norm2.norm",
    "ff.net.0.proj": "ff_proj",
    "ff.net.2": "ff_out",
}
SAME = ("patch_embed.proj", "patch_embed.text_proj", "norm_final", "norm_out.linear", "norm_out.norm", "proj_out")
OUTSIDE = {
    **{name: name for name in SAME},
    "time_embedding.linear_1": "time_embedding_linear_1",
    "time_embedding.linear_2": "time_embedding_linear_2",
    "ofs_embedding.linear_1": "ofs_embedding_linear_1",
    "ofs_embedding.linear_2": "ofs_embedding_linear_2",
}
NAMES = LayerNames("CogVideoX", "transformer_blocks", IN_BLOCK, OUTSIDE, KNOWN)
OWN, PORTABLE, FINETRAINERS = lora_writing.FORMATS
FORMATS = (
    *lora_writing.passed_over_by_comfyui(
        (
            OWN,
            replace(PORTABLE, title="portable (cogvideox-factory, ComfyUI-CogVideoXWrapper)"),
            FINETRAINERS,
            LoraFormat(
                "kohya",
                "kohya",
                "Flat names (lora_unet_transformer_blocks_0_attn1_to_q), alpha for each layer.",
                readers=("VideoX-Fun",),
            ),
        ),
        "CogVideoX",
    ),
    LoraFormat(
        "comfyui",
        "ComfyUI",
        "For ComfyUI's own CogVideoX model (diffusion_model.blocks.0.q and so on).",
        readers=("ComfyUI",),
        outside="ComfyUI",
    ),
    LoraFormat(
        "sat",
        "SAT",
        "A torch file for the authors' own code (SwissArmyTransformer), lora_alpha 1.",
        ".pt",
        readers=("SAT",),
    ),
)
WRITERS: dict[str, lora_writing.Writer] = {
    **lora_writing.WRITERS,
    "comfyui": lora_writing.comfyui(NAMES),
    "kohya": lambda lora: lora_writing.kohya(lora, {layer: layer for layer in lora.layers}),
    "sat": lambda lora: (sat.lora_to_sat(lora), {}),
}

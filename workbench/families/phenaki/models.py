"""The Phenaki models: the built-in one, and those that people train. Facts only, no torch.

Not covered: what is computed with them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from workbench.families import model_files
from workbench.families.model import Frames, Model
from workbench.families.model_files import config, index
from workbench.families.phenaki import recipes
from workbench.families.phenaki.files import PIPELINE
from workbench.paths import ASSETS

SCHEDULER = "MaskGit"  # its name where the others have a scheduler
TEXT_TOKENS = 16  # of a caption, in models whose config does not say it
GUIDANCE = 3.0  # as Phenaki samples
TEMPERATURE = 0.9  # of sampling's first step; it falls evenly
ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")
FEED_FORWARD = ("ff.net.0.proj", "ff.net.2")
LORA_TARGETS = {"attention": ATTENTION, "attention+feed-forward": (*ATTENTION, *FEED_FORWARD)}
IN_BLOCK = {f"{attention}.{name}": f"{attention}.{name}" for attention in ("attn1", "attn2") for name in ATTENTION}
IN_BLOCK |= {name: name for name in FEED_FORWARD}
OUTSIDE = {name: name for name in ("proj_out", "critic_out")}
TINY_PROMPTS = (
    "a red circle moves left on a blue background",
    "a green square moves right on a white background",
    "a yellow triangle moves up on a black background",
)

TINY = Model(
    id="tiny-phenaki",
    title="Tiny Phenaki (built in)",
    family="phenaki",
    source=str(ASSETS / "tiny-phenaki"),
    revision=None,
    task="text-to-video",
    frames=9,
    fps=8,
    height=40,
    width=40,
    frame_rule=Frames(2, 17),
    size_multiple=8,
    steps=18,
    guidance_scale=1.5,
    scheduler=SCHEDULER,
    license="Apache-2.0",
    local=True,
    embedded=True,
    preservation_prompts=TINY_PROMPTS,
    recipes=recipes.TINY,
)
MODELS = tuple(model for model in (TINY,) if (Path(model.source) / model_files.INDEX).is_file())


def described(folder: Path) -> Model | None:
    """The model in a folder; None if it is of another family. Any error means that the configs lack something."""
    if index(folder).get("_class_name") != PIPELINE:
        return None
    vae = config(folder, "vae")
    found = replace(
        TINY,
        id=str(folder),
        title=folder.name,
        source=str(folder),
        frame_rule=Frames(int(vae["patch_frames"]), 129),
        size_multiple=int(vae["patch"]),
        guidance_scale=GUIDANCE,
        license="unknown",
        embedded=False,
        recipes=(),
    )
    return model_files.made_for(found, folder)

"""The published LTX-Video models: where they are, what they were made for, and what is generated with.

Sources: Lightricks' LTX-Video (configs) and diffusers (its pipelines' defaults). Not covered: their sizes
(assets/architectures.json).
"""

from __future__ import annotations

from dataclasses import replace

from workbench.families.ltx_condition import CONDITION
from workbench.families.model import Frames, Model

NEGATIVE_PROMPT = "worst quality, inconsistent motion, blurry, jittery, distorted"
LONGEST = 257  # frames
FIRST = Model(
    id="ltx-video-2b-0.9.5",
    title="LTX-Video 2B 0.9.5",
    family="ltx",
    source="Lightricks/LTX-Video-0.9.5",
    revision=None,
    task="text-to-video",
    frames=121,
    fps=25,
    height=512,
    width=704,
    frame_rule=Frames(8, LONGEST),
    size_multiple=32,
    steps=40,
    guidance_scale=3.0,
    scheduler="Euler",
    pipeline=CONDITION,
    license="LTX-Video Open Weights (OpenRAIL-M)",
    license_file="",
    download_gb=26.0,
    negative_prompt=NEGATIVE_PROMPT,
)
OLDER = replace(
    FIRST,
    id="ltx-video-2b-0.9.1",
    title="LTX-Video 2B 0.9.1",
    source="Lightricks/LTX-Video-0.9.1",
    pipeline="",
    license="LTX-Video 2B license",
)
OLDEST = replace(OLDER, id="ltx-video-2b-0.9.0", title="LTX-Video 2B 0.9.0", source="Lightricks/LTX-Video")
LARGE = replace(
    FIRST,
    id="ltx-video-13b-0.9.7",
    title="LTX-Video 13B 0.9.7",
    source="Lightricks/LTX-Video-0.9.7-dev",
    steps=30,  # diffusers' documentation of 0.9.7
    download_gb=48.0,
)
TEXT = (FIRST, LARGE, OLDER, OLDEST)
MODELS = tuple(
    one
    for model in TEXT
    for one in (
        model,
        replace(model, id=f"{model.id}-image", title=f"{model.title}, image to video", task="image-to-video"),
    )
)

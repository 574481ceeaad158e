"""The Wan family's published and built-in models.

Values come from the authors' configs and generate.py, the negative prompt from their shared_config.py.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from workbench.families import wan_vace
from workbench.families.model import TINY_PROMPTS, Frames, Model
from workbench.families.model_files import INDEX
from workbench.paths import ASSETS

NEGATIVE_PROMPT = (
    "色调艳丽，过曝，静态，细节模糊不清，字幕，风格，作品，画作，画面，静止，整体发灰，最差质量，低质量，JPEG压缩残留，"
    "丑陋的，残缺的，多余的手指，画得不好的手部，画得不好的脸部，畸形的，毁容的，形态畸形的肢体，手指融合，静止不动的画面，"
    "杂乱的背景，三条腿，背景人很多，倒着走"
)
FIRST = Model(
    id="wan2.1-t2v-1.3b",
    title="Wan 2.1 1.3B",
    family="wan",
    source="Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
    revision=None,
    task="text-to-video",
    frames=81,
    fps=16,
    height=480,
    width=832,
    frame_rule=Frames(4, 81),
    size_multiple=16,
    steps=50,
    guidance_scale=6.0,
    scheduler="UniPC",
    flow_shift=8.0,  # 8 to 12
    license="Apache-2.0",
    download_gb=29.0,
    negative_prompt=NEGATIVE_PROMPT,
)
LARGE = replace(
    FIRST,
    id="wan2.1-t2v-14b",
    title="Wan 2.1 14B",
    source="Wan-AI/Wan2.1-T2V-14B-Diffusers",
    guidance_scale=5.0,
    flow_shift=5.0,
    download_gb=80.0,
)
LARGE_I2V = replace(
    LARGE,
    id="wan2.1-i2v-14b-480p",
    title="Wan 2.1 14B, image to video, 480p",
    source="Wan-AI/Wan2.1-I2V-14B-480P-Diffusers",
    task="image-to-video",
    small_flow_shift=3.0,  # Wan2.1's generate.py: 3 for image-to-video at 832x480, else 5
    steps=40,
    download_gb=90.0,
)
FIVE = replace(
    FIRST,
    id="wan2.2-ti2v-5b",
    title="Wan 2.2 5B",
    source="Wan-AI/Wan2.2-TI2V-5B-Diffusers",
    frames=121,
    fps=24,
    height=704,
    width=1280,
    frame_rule=Frames(4, 121),
    size_multiple=32,
    guidance_scale=5.0,
    flow_shift=5.0,
    download_gb=34.0,
)
PAIR = replace(
    LARGE,
    id="wan2.2-t2v-a14b",
    title="Wan 2.2 A14B",
    source="Wan-AI/Wan2.2-T2V-A14B-Diffusers",
    steps=40,
    guidance_scale=4.0,
    guidance_scale_2=3.0,
    flow_shift=12.0,
    boundary=0.875,
    download_gb=126.0,
)
PAIR_I2V = replace(
    PAIR,
    id="wan2.2-i2v-a14b",
    title="Wan 2.2 A14B, image to video",
    source="Wan-AI/Wan2.2-I2V-A14B-Diffusers",
    task="image-to-video",
    guidance_scale=3.5,
    guidance_scale_2=3.5,
    flow_shift=5.0,
    boundary=0.9,
)
VACE = replace(
    FIRST,
    id="wan2.1-vace-1.3b",
    title="Wan 2.1 VACE 1.3B",
    source="Wan-AI/Wan2.1-VACE-1.3B-diffusers",
    guidance_scale=5.0,
    flow_shift=wan_vace.FLOW_SHIFT,
    download_gb=32.0,
    pipeline=wan_vace.PIPELINE,
    recipes="wan-vace",
)
# Three models that share weights and differ only in the channels of the first layer (assets/train_tiny_wan.py).
TINY = replace(
    FIRST,
    id="tiny-wan",
    title="Tiny Wan (built in)",
    source=str(ASSETS / "tiny-wan"),
    frames=9,
    fps=8,
    height=64,
    width=64,
    frame_rule=Frames(4, 17),
    steps=25,
    guidance_scale=3.0,
    flow_shift=3.0,
    download_gb=0.0,
    negative_prompt="",
    local=True,
    embedded=True,
    preservation_prompts=TINY_PROMPTS,
    recipes="tiny-wan",
)
TINY_I2V = replace(
    TINY,
    id="tiny-wan-i2v",
    title="Tiny Wan, image to video (built in)",
    source=str(ASSETS / "tiny-wan-i2v"),
    task="image-to-video",
)
TINY_CONTROL = replace(
    TINY_I2V,
    id="tiny-wan-control",
    title="Tiny Wan, control video (built in)",
    source=str(ASSETS / "tiny-wan-control"),
)
BUILT_IN = tuple(model for model in (TINY, TINY_I2V, TINY_CONTROL) if (Path(model.source) / INDEX).is_file())
MODELS = (
    FIRST,
    LARGE,
    LARGE_I2V,
    replace(
        LARGE_I2V,
        id="wan2.1-i2v-14b-720p",
        title="Wan 2.1 14B, image to video, 720p",
        source="Wan-AI/Wan2.1-I2V-14B-720P-Diffusers",
        height=720,
        width=1280,
    ),
    replace(
        LARGE_I2V,
        id="wan2.1-flf2v-14b-720p",
        title="Wan 2.1 14B, first and last frame, 720p",
        source="Wan-AI/Wan2.1-FLF2V-14B-720P-diffusers",
        height=720,
        width=1280,
        steps=50,
        flow_shift=16.0,
        small_flow_shift=None,
    ),
    replace(  # VideoX-Fun's, in the diffusers repository that FastVideo uses; values from VideoX-Fun's predict_i2v.py
        FIRST,
        id="wan2.1-fun-1.3b-inp",
        title="Wan 2.1 Fun 1.3B, image to video",
        source="weizhou03/Wan2.1-Fun-1.3B-InP-Diffusers",
        task="image-to-video",
        flow_shift=3.0,
        download_gb=32.0,
    ),
    FIVE,
    replace(FIVE, id="wan2.2-ti2v-5b-image", title="Wan 2.2 5B, image to video", task="image-to-video"),
    PAIR,
    PAIR_I2V,
    VACE,
    replace(
        VACE,
        id="wan2.1-vace-14b",
        title="Wan 2.1 VACE 14B",
        source="Wan-AI/Wan2.1-VACE-14B-diffusers",
        download_gb=92.0,
    ),
    *BUILT_IN,
)

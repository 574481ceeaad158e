"""Models and LoRAs that cannot be taken here: each is named, and what can be taken instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from workbench.errors import ConfigError
from workbench.families import families, find_model, settle
from workbench.families.other_families import FILES, family_of_layers
from workbench.loras.opened import opened
from workbench.workspace import Workspace

PAIR = ("lora_A.weight", "lora_B.weight")
LORAS = {  # layers -> family; without blocks of one stream the first three may be HunyuanVideo 1.5's
    "diffusion_model.double_blocks.0.img_attn_qkv diffusion_model.single_blocks.0.linear1": "FLUX or HunyuanVideo",
    "lora_unet_double_blocks_0_img_mlp_fc1 lora_unet_single_blocks_0_linear1": "HunyuanVideo",
    "lora_unet_double_blocks_0_img_mlp_0 lora_unet_single_blocks_0_linear1": "FLUX",
    "transformer.single_transformer_blocks.0.attn.to_q": "FLUX or HunyuanVideo",
    "transformer.layers.0.attention.to_q": "Z-Image",
    "diffusion_model.blocks.0.self_attn.q_proj": "Cosmos",
    "down_blocks.0.motion_modules.0.transformer_blocks.0.attn1.to_q": "AnimateDiff",
    "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn1_to_q": "Stable Diffusion",
    "transformer.transformer_blocks.0.img_mod.1": "Qwen-Image",
}


@pytest.mark.parametrize(("layers", "title"), LORAS.items(), ids=LORAS)
def test_a_lora_of_another_family_is_named(layers: str, title: str, workspace: Workspace, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    save_file({f"{layer}.{one}": torch.ones(2, 2) for layer in layers.split() for one in PAIR}, path)
    match = f"this is a LoRA for {title}, which is not supported: use one for CogVideoX, .*Wan"
    with pytest.raises(ConfigError, match=match):
        opened(workspace, [str(path)])


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("HunyuanVideoPipeline", "HunyuanVideo"), ("AllegroPipeline", "Allegro"),
        ("CosmosTextToWorldPipeline", "Cosmos"), ("AnimateDiffPipeline", "AnimateDiff"), ("FluxPipeline", "FLUX"),
        ("StableDiffusionXLPipeline", "SDXL"), ("StableDiffusionPipeline", "Stable Diffusion"),
        ("Kandinsky6Pipeline", "Kandinsky 6"), ("KandinskyV22Pipeline", "Kandinsky"),
        ("Kandinsky5T2IPipeline", "Kandinsky 5 Image"), ("SomethingNewPipeline", "SomethingNewPipeline"),
    ],
)  # fmt: skip
def test_a_model_of_another_family_is_named(name: str, title: str, tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text(json.dumps({"_class_name": name}))
    for take in (find_model, settle):
        with pytest.raises(ConfigError, match=f"a model of {title}, which is not supported: choose .*wan2") as raised:
            take(str(tmp_path))
        assert "model" in raised.value.problems


def header(path: Path, shapes: dict[str, tuple[int, ...]]) -> str:
    """A safetensors file's beginning, without its weights: enough to know what it is."""
    entries: dict[str, Any] = {n: {"dtype": "BF16", "shape": s, "data_offsets": [0, 0]} for n, s in shapes.items()}
    raw = json.dumps(entries).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    return str(path)


WAN = {"model.diffusion_model.blocks.0.self_attn.q.weight": (5120, 5120)}
LARGE = {"model.diffusion_model.rest.weight": (14_260, 1_000_000)}
MOCHI = {"blocks.0.attn.qkv_x.weight": (9216, 3072), "rest": (10_000, 1_000_000)}
KANDINSKY = {"visual_transformer_blocks.0.self_attention.to_query.weight": (1792, 1792), "y": (2_005, 1_000_000)}
HUNYUAN = {"double_blocks.0.img_attn_q.weight": (2048, 2048), "rest": (8_325, 1_000_000)}
LTX_13B = {"model.diffusion_model.patchify_proj.weight": (4096, 128), "y": (13_042, 1_000_000)}
LTX_2 = {
    "model.diffusion_model.audio_patchify_proj.weight": (2048, 128),
    "model.diffusion_model.patchify_proj.weight": (4096, 128),
    "model.diffusion_model.video_embeddings_connector.x": (1_000, 1_000_000),
    "vocoder.x": (100, 1_000_000),
    "y": (18_880, 1_000_000),
}
LTX = {"model.diffusion_model.patchify_proj.weight": (2048, 128), "vae.x": (400_000, 1000), "y": (1_920, 1_000_000)}


@pytest.mark.parametrize(
    ("shapes", "match"),
    [
        (
            WAN | LARGE,
            "one file of Wan in its authors' layout, .*: choose wan2.1-t2v-14b.*, or a folder with a model_i",
        ),
        (WAN, "one file of Wan in its authors' layout, .*: choose a folder with a model_index.json"),
        (LTX, "one file of LTX-Video in its authors' layout, .*: choose ltx-video-2b"),
        (LTX_2, "one file of LTX-2 in its authors' layout, .*: choose ltx-2.3-22b .*or ltx-2-19b-image, or a folder"),
        (MOCHI, "one file of Mochi in its authors' layout, .*: choose mochi-1-preview, or a folder"),
        (
            KANDINSKY,
            "one file of Kandinsky 5 in its authors' layout, .*: choose kandinsky5-lite-t2v-5s or kandinsky5-l",
        ),
        (
            HUNYUAN,
            "one file of HunyuanVideo 1.5 in its authors' layout, .*: choose hunyuanvideo1.5-t2v-480p or hunyuan",
        ),
        (LTX_13B, "one file of LTX-Video in its authors' layout, .*: choose ltx-video-13b-0.9.7 or ltx-video-13b-"),
        (
            WAN
            | {"vace_blocks.0.self_attn.q.weight": (2, 2), "model.diffusion_model.rest.weight": (17_320, 1_000_000)},
            "one file of Wan in its authors' layout, .*: choose wan2.1-vace-14b, or a folder with a model_i",
        ),
        (
            {"double_blocks.0.img_mlp.0.weight": (2, 2), "single_blocks.0.linear1.weight": (2, 2)},
            "of FLUX, which is not supported",
        ),
        ({"transformer.blocks.0.attn1.to_q.lora_A.weight": (2, 2)}, "a LoRA and not a model"),
        ({"x": (2, 2)}, "one file; a model is a folder in diffusers' layout"),
    ],
)
def test_a_model_in_one_file_is_named_with_what_to_take(
    shapes: dict[str, tuple[int, ...]], match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = header(tmp_path / "model.safetensors", shapes)
    monkeypatch.chdir(tmp_path)
    for name in (path, "model.safetensors", "./model.safetensors"):
        for take in (find_model, settle):
            with pytest.raises(ConfigError, match=match):
                take(name)


def test_other_files_are_named_by_their_ends(tmp_path: Path) -> None:
    for end in FILES:
        (tmp_path / f"m{end}").write_bytes(b"\x80")
        with pytest.raises(ConfigError, match="GGUF" if end == ".gguf" else "one file; a model is a folder"):
            find_model(str(tmp_path / f"m{end}"))


TITLES = [family.title for family in families()]
CASES = [(family, variant) for family in families() for variant in family.toys if family.lora_formats]


@pytest.mark.parametrize(("family", "variant"), CASES, ids=[f"{family.name}-{variant}" for family, variant in CASES])
def test_no_file_of_ours_is_taken_for_another_familys(family: Any, variant: str, tmp_path: Path) -> None:
    from workbench.families.lora_files import weights

    model, tensors = family.toy(tmp_path, variant), {}
    for name, linear in family.facts(model).named():
        if "blocks" in name:
            tensors[f"{name}.lora_A.weight"] = torch.ones(2, linear.inputs)
            tensors[f"{name}.lora_B.weight"] = torch.ones(linear.outputs, 2)
    assert tensors
    for format in family.lora_formats:
        if format.id != "sat":  # the attention alone
            assert family_of_layers(family.export_lora(weights(tensors, {}, "x"), format.id)[0], TITLES) == ""


def test_a_family_that_another_package_adds_is_not_refused() -> None:
    names = ["transformer.single_transformer_blocks.0.attn.to_q.lora_A.weight"]
    assert family_of_layers(names, ["CogVideoX", "Wan"]) == "FLUX or HunyuanVideo"
    assert family_of_layers(names, ["CogVideoX", "HunyuanVideo"]) == ""

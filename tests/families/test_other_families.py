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
from workbench.families.other_families import FILES, family_of_layers, unsupported
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
        with pytest.raises(
            ConfigError, match=f"a model of {title}, which is not supported(, because .*)?: choose .*wan2"
        ) as raised:
            take(str(tmp_path))
        assert "model" in raised.value.problems


def header(path: Path, shapes: dict[str, tuple[int, ...]]) -> str:
    """A safetensors file's beginning, without its weights: enough to know what it is."""
    entries: dict[str, Any] = {n: {"dtype": "BF16", "shape": s, "data_offsets": [0, 0]} for n, s in shapes.items()}
    raw = json.dumps(entries).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    return str(path)


WAN = {"model.diffusion_model.blocks.0.self_attn.q.weight": (5120, 5120)}


@pytest.mark.parametrize(
    ("shapes", "match"),
    [
        (WAN, "a model of Wan with 26,214,400 values, and no published one has that size: add the model"),
        (
            {"double_blocks.0.img_mlp.0.weight": (2, 2), "single_blocks.0.linear1.weight": (2, 2)},
            "of FLUX, which is not supported",
        ),
        ({"transformer.blocks.0.attn1.to_q.lora_A.weight": (2, 2)}, "a LoRA and not a model"),
        ({"x": (2, 2)}, "holds no part of a model that is known here: choose a known model, or a folder"),
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
        ends = {".gguf": "GGUF", ".safetensors": "cannot be read", ".sft": "cannot be read"}
        with pytest.raises(ConfigError, match=ends.get(end, "may run code when it is read: use the same weights as")):
            find_model(str(tmp_path / f"m{end}"))


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("MiniMaxAI/MiniMax-H3", "MiniMax H3, which is not supported, because its license grants no rights in the EU"),
        ("minimax-h3", "Supporting it would take a family that packs video and sound"),
        ("tencent/HunyuanVideo", "because HunyuanVideo 1.5, which is, replaced it"),
        ("Wan-AI/Wan2.5-T2V-14B-Diffusers", "because its weights were not published. Wan 2.1 and 2.2 are supported"),
        ("Wan-AI/Wan2.2-Animate-14B-Diffusers", "needs a pose and a face video"),
        ("Skywork/SkyReels-V2-T2V-14B-540P-Diffusers", "docs/add_a_family.md has a module for it"),
        ("nvidia/Cosmos-Predict2.5-2B", "Supporting it would take its text encoder"),
        ("kandinskylab/Kandinsky-6.0-Lite", "Supporting it would take a second stream for its sound"),
    ],
)
def test_a_model_that_is_asked_for_is_refused_with_the_reason_before_a_download(
    name: str, match: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.families.model_files.fetch_configs", lambda *_: pytest.fail("asks the Hub"))
    for take in (find_model, settle):
        with pytest.raises(ConfigError, match=match) as raised:
            take(name)
        assert "model" in raised.value.problems


def test_no_supported_model_is_taken_for_one_that_is_not() -> None:
    for family in families():
        for model in family.models:
            assert not any(unsupported(name) for name in (model.id, model.source, *model.aliases)), model.id
    assert unsupported("someone/helios-style-wan") is None, "a fine-tune may have any name"


def test_a_family_that_another_package_adds_is_not_refused() -> None:
    names = ["transformer.single_transformer_blocks.0.attn.to_q.lora_A.weight"]
    assert family_of_layers(names, ["CogVideoX", "Wan"]) == "FLUX or HunyuanVideo"
    assert family_of_layers(names, ["CogVideoX", "HunyuanVideo"]) == ""

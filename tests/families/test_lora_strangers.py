"""LoRA files of other programs change every weight as their own program does."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.families import lora_changes
from tests.families.lora_changes import changes
from workbench.errors import ConfigError
from workbench.families.cogvideox import FAMILY
from workbench.families.lora_files import LoraWeights, file_in, plain_names, read_lora
from workbench.families.lora_names import lines, match_report

Tensors = dict[str, torch.Tensor]
QUERY, VALUE, PATCHES = "transformer_blocks.0.attn1.to_q", "transformer_blocks.1.attn1.to_v", "patch_embed.proj"
COMFY = {QUERY: "blocks.0.q", VALUE: "blocks.1.v"}
OUTPUTS, INPUTS, RANK = 12, 8, 4


def values(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


A = {layer: values(RANK, INPUTS, seed=seed) for seed, layer in enumerate((QUERY, VALUE))}
B = {layer: values(OUTPUTS, RANK, seed=seed) for seed, layer in enumerate((QUERY, VALUE))}


def matrices(name: Callable[[str], str], down: str = "lora_A.weight", up: str = "lora_B.weight") -> Tensors:
    return {f"{name(layer)}.{end}": one[layer] for layer in A for end, one in ((down, A), (up, B))}


def of_diffusers(layer: str) -> str:
    return f"transformer.{layer}"


def of_kohya(layer: str) -> str:
    return f"lora_unet_{layer.replace('.', '_')}"


KOHYA = matrices(of_kohya, "lora_down.weight", "lora_up.weight")


def dense(scale: float = 1.0) -> Tensors:
    return {layer: scale * (B[layer] @ A[layer]) for layer in A}


def read(path: Path) -> LoraWeights:
    return FAMILY.lora_weights(*read_lora(path))


def read_of(tmp_path: Path, tensors: Tensors, **metadata: str) -> LoraWeights:
    save_file({name: one.clone().contiguous() for name, one in tensors.items()}, tmp_path / "x.safetensors", metadata)
    return read(tmp_path / "x.safetensors")


def same(found: Tensors, wanted: Tensors) -> None:
    lora_changes.same(found, wanted, within=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        lambda layer: f"module._orig_mod.transformer.{layer}",
        lambda layer: f"base_model.model.{layer.replace('.attn1', '._checkpoint_wrapped_module.attn1._orig_mod')}",
        lambda layer: f"pipe.dit.{layer}",
        lambda layer: f"lora_unet__orig_mod_{layer.replace('.', '_')}",
        lambda layer: f"lora_unet_{layer.replace('.', '_').replace('_attn1', '__orig_mod_attn1')}",
    ],
)
def test_wrappers_of_pytorch_are_passed_over_anywhere_in_a_name(name: Callable[[str], str], tmp_path: Path) -> None:
    same(changes(read_of(tmp_path, matrices(name))), dense())


def test_a_layer_with_and_without_a_wrapper_is_refused() -> None:
    with pytest.raises(ConfigError, match="holds some layers twice"):
        plain_names({"transformer.a.lora_A.weight": 1, "transformer._orig_mod.a.lora_A.weight": 2})


@pytest.mark.parametrize(
    ("under", "ending"),
    [((), ".pt"), (("state_dict",), ".pth"), (("lora_state_dict",), ".bin"), (("model", "lora"), ".CKPT")],
)
def test_files_of_torch_are_read(under: tuple[str, ...], ending: str, tmp_path: Path) -> None:
    kept: dict[str, Any] = matrices(of_diffusers)
    for name in reversed(under):
        kept = {"epoch": 3, "optimizer": {"state": {0: {"exp_avg": torch.zeros(2)}}}, name: kept}
    torch.save(kept, tmp_path / f"x{ending}")
    same(changes(read(tmp_path / f"x{ending}")), dense())


# ---- numbers


@pytest.mark.parametrize(
    ("kind", "scale"),
    [(torch.float8_e4m3fn, ""), (torch.float8_e5m2, "scale_weight"), (torch.float8_e4m3fn, "weight.scale")],
)
def test_numbers_of_8_bits_are_read_with_their_scale(kind: torch.dtype, scale: str, tmp_path: Path) -> None:
    small = {name: one.to(kind) for name, one in matrices(of_diffusers).items()}
    wanted = {layer: B[layer].to(kind).float() @ A[layer].to(kind).float() for layer in A}
    given = {**small, "scaled_fp8": torch.zeros(2).to(kind)}
    if scale:
        rows = {name: torch.full((one.shape[0],), 0.5) for name, one in small.items()}
        given |= {
            name.replace("weight", scale) if "." not in scale else f"{name}.scale": one for name, one in rows.items()
        }
    found = read_of(tmp_path, given)
    assert found.left_out == {}
    assert {one.dtype for one in found.tensors.values()} == {torch.float32}
    same(changes(found), {layer: one * (0.25 if scale else 1) for layer, one in wanted.items()})


def test_whole_numbers_are_read_with_a_scale_alone(tmp_path: Path) -> None:
    small = {name: (one * 30).round().clamp(-127, 127).to(torch.int8) for name, one in matrices(of_diffusers).items()}
    with pytest.raises(ConfigError, match="as int8, without a scale.*get it in float16"):
        read_of(tmp_path, small)
    scaled = small | {name.replace("weight", "weight_scale"): torch.tensor(0.5) for name in small}
    wanted = {name: one.float() * 0.5 for name, one in small.items()}
    same(changes(read_of(tmp_path, scaled)), changes(FAMILY.lora_weights(wanted, {})))
    blocks = small | {name.replace("weight", "weight_scale"): torch.ones(3) for name in small}
    with pytest.raises(ConfigError, match="a scale for each block"):
        read_of(tmp_path, blocks)


# ---- alpha


PEFTS = {"transformer.r": 4, "transformer.lora_alpha": 8, "text_encoder.lora_alpha": 1}


@pytest.mark.parametrize(
    ("metadata", "scale", "source"),
    [
        ({"lora_alpha": "8", "rank": "4"}, 2, "lora_alpha in the file's metadata"),
        ({"network_alpha": "8", "alpha": "8"}, 2, "network_alpha in the file's metadata"),
        ({"transformer.lora_alpha": "8", "text_encoder.lora_alpha": "2"}, 2, "lora_alpha in the file's metadata"),
        ({"lora_alpha": "8", "use_rslora": "True"}, 4, "lora_alpha in the file's metadata, rank-stabilized (rsLoRA)"),
        ({"training": json.dumps({"r": 4, "lora_alpha": 2})}, 0.5, "training in the file's metadata"),
        ({"lora_adapter_metadata": json.dumps(PEFTS)}, 2, "lora_adapter_metadata in the file's metadata"),
        (
            {"lora_adapter_metadata": json.dumps(PEFTS | {"transformer.use_rslora": True})},
            4,
            "lora_adapter_metadata in the file's metadata, rank-stabilized (rsLoRA)",
        ),
        ({"ss_network_alpha": "None", "lora_alpha": ""}, 1, ""),
        # What musubi-tuner's conversion to these names leaves: alpha is in the matrices, and in the metadata as well.
        ({"ss_network_alpha": "8"}, 1, "the rank, since ss_network_alpha (8) was multiplied in by a conversion"),
    ],
)
def test_alpha_is_taken_from_the_metadata(metadata: dict[str, str], scale: float, source: str, tmp_path: Path) -> None:
    found = read_of(tmp_path, matrices(of_diffusers), **metadata)
    same(changes(found), dense(scale))
    assert found.alpha_from == source
    said = dict(lines(match_report(found)))
    assert ("not in the file" in said["alpha"]) == (not source)
    assert source in said["alpha"]
    assert ("writes no alpha" in said["written by"]) == (not source)


def test_alpha_of_kohyas_names_is_the_layers_own_or_the_metadatas(tmp_path: Path) -> None:
    same(changes(read_of(tmp_path, KOHYA, ss_network_alpha="1", ss_network_dim="4")), dense(0.25))
    own = {f"{of_kohya(layer)}.alpha": torch.tensor(2) for layer in A}
    found = read_of(tmp_path, KOHYA | own, ss_network_alpha="1")
    assert found.alpha_from == "a tensor of each layer"
    same(changes(found), dense(0.5))


def test_alphas_of_some_layers_are_found_by_the_names_of_the_writer(tmp_path: Path) -> None:
    notes = {"r": 4, "lora_alpha": 8, "alpha_pattern": {r"blocks\.\d+\.v": 4}}
    save_file(matrices(lambda layer: f"base_model.model.{COMFY[layer]}"), tmp_path / "adapter_model.safetensors")
    (tmp_path / "adapter_config.json").write_text(json.dumps(notes))
    wanted = dense()
    same(changes(read(file_in(tmp_path))), {QUERY: 2 * wanted[QUERY], VALUE: wanted[VALUE]})


@pytest.mark.parametrize(
    ("alpha", "said"),
    [
        (torch.tensor(float("nan")), "is nan, must be finite"),
        (torch.ones(4), "has 4 numbers, must be one"),
        (torch.ones(0), "has 0 numbers, must be one"),
    ],
)
def test_an_alpha_that_is_no_number_is_a_sentence(alpha: torch.Tensor, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"the alpha of .*attn1_to_q {said}"):
        read_of(tmp_path, KOHYA | {f"{of_kohya(QUERY)}.alpha": alpha})


# ---- what a LoRA has no place for


@pytest.mark.parametrize(
    ("extra", "why"),
    [
        ({"lora_te_encoder_block_0_q.lora_down.weight": values(2, 2)}, "a layer of a text encoder"),
        ({"text_encoder.encoder.q.lora_A.weight": values(2, 2)}, "a layer of a text encoder"),
        ({"text_encoders.t5xxl.transformer.q.lora_A.weight": values(2, 2)}, "a layer of a text encoder"),
        ({"diffusion_model.blocks.0.diff_m": values(1, 6, 8)}, "a modulation table"),
        ({"diffusion_model.blocks.0.norm_q.w_norm": values(8)}, "a norm or a table"),
        ({"transformer.norm_final.weight": values(8)}, "whole weights"),
        ({f"transformer.{QUERY}.lora_A.bias": values(4)}, "a bias of the first matrix"),
    ],
)
def test_what_a_lora_has_no_place_for_is_listed(extra: Tensors, why: str, tmp_path: Path) -> None:
    found = read_of(tmp_path, matrices(of_diffusers) | extra)
    same(changes(found), dense())
    report = match_report(found)
    assert (report["matched"], report["layers"]) == (2, 2)
    assert [one["why"].startswith(why) for one in report["left_out"]] == [True]


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({f"{QUERY}.weight": values(8, 8), f"{QUERY}.bias": values(8)}, "whole weights.*--model FOLDER.*loras extract"),
        ({f"model.diffusion_model.{COMFY[QUERY]}.weight": values(8, 8)}, "whole weights.*loras extract"),
        ({"decoder.conv_in.weight": values(4, 4, 3, 3)}, "whole weights"),
        ({"diffusion_model.blocks.0.norm_q.diff": values(8)}, "only norms, biases and tables"),
        ({"text_encoder.q.lora_A.weight": values(2, 2)}, "only the text encoder"),
    ],
)
def test_files_without_a_layer_of_a_lora_are_named(tensors: Tensors, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        read_of(tmp_path, tensors)


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        (
            {name: one * 0 if "lora_B" in name else one for name, one in matrices(of_diffusers).items()},
            "the matrix B of every layer is zero",
        ),
        (KOHYA | {f"{of_kohya(layer)}.alpha": torch.tensor(0.0) for layer in A}, "its alpha is 0"),
    ],
)
def test_a_lora_that_changes_nothing_says_so(tensors: Tensors, why: str, tmp_path: Path) -> None:
    found = read_of(tmp_path, tensors)
    assert why in found.nothing
    assert dict(lines(match_report(found)))["changes"] == f"nothing: {found.nothing}"
    assert read_of(tmp_path, matrices(of_diffusers)).nothing == ""


# ---- LyCORIS


def lokr(left: bool, right: bool, alpha: float) -> tuple[Tensors, torch.Tensor]:
    """(factors, the change that LyCORIS makes of them). left, right: whether that side is whole"""
    first, second = values(3, 2), values(4, 4)
    a1, b1, a2, b2 = values(3, 2), values(2, 2), values(4, 2), values(2, 4, seed=5)
    given = {"lokr_w1": first} if left else {"lokr_w1_a": a1, "lokr_w1_b": b1}
    given |= {"lokr_w2": second} if right else {"lokr_w2_a": a2, "lokr_w2_b": b2}
    scale = 1.0 if left and right else alpha / 2
    change = scale * torch.kron(first if left else a1 @ b1, second if right else a2 @ b2)
    return given | {"alpha": torch.tensor(alpha)}, change


def loha() -> tuple[Tensors, torch.Tensor]:
    a1, b1, a2, b2 = values(OUTPUTS, 3), values(3, INPUTS), values(OUTPUTS, 3, seed=1), values(3, INPUTS, seed=1)
    given = {"hada_w1_a": a1, "hada_w1_b": b1, "hada_w2_a": a2, "hada_w2_b": b2, "alpha": torch.tensor(6.0)}
    return given, 2.0 * (a1 @ b1) * (a2 @ b2)


def loha_with_cores() -> tuple[Tensors, torch.Tensor]:
    """Of a convolution, whose kernel lies in the cores."""
    given, whole = {}, torch.ones(())
    for number in (1, 2):
        core, a, b = values(3, 3, 2, 2, seed=number), values(3, OUTPUTS, seed=number), values(3, INPUTS, seed=number)
        given |= {f"hada_t{number}": core, f"hada_w{number}_a": a, f"hada_w{number}_b": b}
        whole = whole * torch.einsum("ijkl,jr,ip->prkl", core, b, a)
    return given | {"alpha": torch.tensor(3.0)}, whole


def locon() -> tuple[Tensors, torch.Tensor]:
    up, core, down = values(OUTPUTS, 3, 1, 1), values(3, 3, 2, 2), values(3, INPUTS, 1, 1)
    given = {"lora_up.weight": up, "lora_mid.weight": core, "lora_down.weight": down, "alpha": torch.tensor(1.5)}
    return given, 0.5 * torch.einsum("ijkl,jr,pi->prkl", core, down.flatten(1), up.flatten(1))


@pytest.mark.parametrize(
    ("layer", "kind", "made"),
    [
        (QUERY, "a LoKr", lokr(True, True, 9999999999.0)),  # what ai-toolkit writes for whole factors
        (QUERY, "a LoKr", lokr(True, False, 1.0)),
        (QUERY, "a LoKr", lokr(False, True, 1.0)),
        (QUERY, "a LoKr", lokr(False, False, 3.0)),
        (QUERY, "a LoHa", loha()),
        (PATCHES, "a LoHa", loha_with_cores()),
        (PATCHES, "", locon()),
        (
            QUERY,
            "a file of whole weights' differences (LyCORIS full)",
            ({"diff": values(OUTPUTS, INPUTS)}, values(OUTPUTS, INPUTS)),
        ),
    ],
)
@pytest.mark.parametrize("prefix", ["lycoris_", "diffusion_model."])
def test_kinds_of_lycoris_change_the_weights_as_there(
    layer: str, kind: str, made: tuple[Tensors, torch.Tensor], prefix: str, tmp_path: Path
) -> None:
    name = layer.replace(".", "_") if prefix == "lycoris_" else COMFY.get(layer, layer)
    found = read_of(tmp_path, {f"{prefix}{name}.{end}": one for end, one in made[0].items()})
    same(changes(found), {layer: made[1]})
    assert found.converted == kind
    assert found.lost < 1e-6
    if kind:
        assert dict(lines(match_report(found)))["converted"] == f"from {kind}, exactly"


def test_a_lokr_of_musubi_tuner_counts_alpha_next_to_the_longer_side_of_a_whole_factor(tmp_path: Path) -> None:
    factors, _ = lokr(True, True, 2.0)
    name = f"lora_unet_{QUERY.replace('.', '_')}"
    given = {f"{name}.{end}": one for end, one in factors.items()} | {"lokr_factor": torch.tensor(-1)}
    found = read_of(tmp_path, given)
    same(changes(found), {QUERY: 2.0 / 4 * torch.kron(factors["lokr_w1"], factors["lokr_w2"])})
    assert (found.origin, found.left_out) == ("musubi-tuner", {})


@pytest.mark.parametrize("kind", ["LOKR", "LOHA"])
def test_a_lokr_or_loha_of_peft_has_pefts_scale(kind: str, tmp_path: Path) -> None:
    """peft divides alpha by its rank even where the factors are whole."""
    from peft import LoHaConfig, LoKrConfig, get_peft_model

    model = torch.nn.ModuleDict({"transformer_blocks": torch.nn.ModuleList([torch.nn.ModuleDict()])})
    model["transformer_blocks"][0]["attn1"] = torch.nn.ModuleDict({"to_q": torch.nn.Linear(8, 12)})
    config = (LoKrConfig if kind == "LOKR" else LoHaConfig)(r=4, alpha=6, target_modules=["to_q"], init_weights=False)
    tuned = get_peft_model(model, config)
    tuned.save_pretrained(tmp_path)
    wanted = next(one for name, one in tuned.named_modules() if name.endswith("to_q")).get_delta_weight("default")
    same(changes(read(file_in(tmp_path))), {QUERY: wanted.detach()})

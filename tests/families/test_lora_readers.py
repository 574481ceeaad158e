"""What other programs make of our files: their rules for names and strength, restated from their documentation.

docs/loras.md has the same measured with their own code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.families.lora_changes import changes
from workbench.families import families
from workbench.families.base import Family
from workbench.families.lora_files import LoraWeights, weights

Tensors = dict[str, torch.Tensor]
FAMILIES = {family.name: family for family in families()}
# What each family's authors, and so most programs, call diffusers' layers.
AUTHORS = {
    "cogvideox": {
        "transformer_blocks.": "blocks.",
        "attn1.to_out.0": "attn_out",
        "attn1.to_": "",
        "ff.net.0.proj": "ff_proj",
        "ff.net.2": "ff_out",
    },
    "wan": {
        "attn1.": "self_attn.",
        "attn2.": "cross_attn.",
        "to_out.0": "o",
        "to_": "",
        "ffn.net.0.proj": "ffn.0",
        "ffn.net.2": "ffn.2",
    },
    "ltx": {},
}


def authors(family: str, layer: str) -> str:
    for ours, theirs in AUTHORS[family].items():
        layer = layer.replace(ours, theirs)
    return layer


def product(tensors: Tensors, up: str, down: str, alpha: torch.Tensor | None) -> torch.Tensor | None:
    if up not in tensors:
        return None
    scale = 1.0 if alpha is None else float(alpha) / tensors[down].shape[0]
    return scale * tensors[up] @ tensors[down]


def comfyui(family: str, layer: str, tensors: Tensors) -> torch.Tensor | None:
    """diffusion_model. and the authors' name, or lora_unet_ and it with underscores; alpha where there is one."""
    name = authors(family, layer)
    for stem in (f"diffusion_model.{name}", f"lora_unet_{name.replace('.', '_')}"):
        for up, down in (("lora_up", "lora_down"), ("lora_B", "lora_A")):
            found = product(tensors, f"{stem}.{up}.weight", f"{stem}.{down}.weight", tensors.get(f"{stem}.alpha"))
            if found is not None:
                return found
    return None


def musubi(family: str, layer: str, tensors: Tensors) -> torch.Tensor | None:
    stem = f"lora_unet_{authors(family, layer).replace('.', '_')}"
    return product(tensors, f"{stem}.lora_up.weight", f"{stem}.lora_down.weight", tensors.get(f"{stem}.alpha"))


def ai_toolkit(family: str, layer: str, tensors: Tensors) -> torch.Tensor | None:
    """diffusers' or the authors' names; alpha is skipped, and taken to be the rank."""
    for stem in (f"transformer.{layer}", f"diffusion_model.{authors(family, layer)}"):
        for up, down in (("lora_up", "lora_down"), ("lora_B", "lora_A")):
            if (found := product(tensors, f"{stem}.{up}.weight", f"{stem}.{down}.weight", None)) is not None:
                return found
    return None


def videox_fun(family: str, layer: str, tensors: Tensors) -> torch.Tensor | None:
    """Whatever the prefix and the separators: diffusers' names of CogVideoX, the authors' of Wan."""
    wanted = (layer if family == "cogvideox" else authors(family, layer)).replace(".", "_")
    stems = {re.split(r"\.(?:lora_|alpha)", name)[0] for name in tensors}
    for stem in stems:
        if re.sub(r"^(diffusion_model\.|lora_unet_+)", "", stem).replace(".", "_") == wanted:
            up, down = ("lora_up", "lora_down") if f"{stem}.lora_up.weight" in tensors else ("lora_B", "lora_A")
            return product(tensors, f"{stem}.{up}.weight", f"{stem}.{down}.weight", tensors.get(f"{stem}.alpha"))
    return None


def diffsynth(family: str, layer: str, tensors: Tensors) -> torch.Tensor | None:
    """The authors' names with or without diffusion_model.; alpha counts only next to lora_up."""
    for stem in (authors(family, layer), f"diffusion_model.{authors(family, layer)}"):
        for end in (".default.weight", ".weight"):
            found = product(tensors, f"{stem}.lora_B{end}", f"{stem}.lora_A{end}", None)
            if found is not None:
                return found
        if (alpha := tensors.get(f"{stem}.alpha")) is not None:
            return product(tensors, f"{stem}.lora_up.weight", f"{stem}.lora_down.weight", alpha)
    return None


def lycoris(family: str, layer: str, tensors: Tensors) -> torch.Tensor | None:
    """lycoris_ and diffusers' names with underscores."""
    stem = f"lycoris_{layer.replace('.', '_')}"
    return product(tensors, f"{stem}.lora_up.weight", f"{stem}.lora_down.weight", tensors.get(f"{stem}.alpha"))


READERS: Mapping[str, Callable[[str, str, Tensors], torch.Tensor | None]] = {
    "ComfyUI": comfyui,
    "musubi-tuner": musubi,
    "ai-toolkit": ai_toolkit,
    "VideoX-Fun": videox_fun,
    "DiffSynth-Studio": diffsynth,
    "LyCORIS": lycoris,
}
# Programs without a model of the family, whatever a file has in it.
WITHOUT = {"cogvideox": ("musubi-tuner", "ai-toolkit", "DiffSynth-Studio"), "wan": (), "ltx": tuple(READERS)[1:-1]}


class Toy:
    def __init__(self, family: Family, folder: Path) -> None:
        self.family, self.folder = family, folder
        self.model = family.toy(folder, family.toys[0])
        self.layers = {
            name: (one.outputs, one.inputs)
            for name, one in family.facts(self.model).named()
            if "blocks" in name and ("attn" in name or "ff" in name) and "norm" not in name
        }

    def lora(self, part: str, mixed: bool) -> LoraWeights:
        """On the layers whose names have `part`; alpha is a quarter of the rank, or ranks and alphas differ."""
        random, found, alphas = torch.Generator().manual_seed(3), Tensors(), {}
        for number, (layer, (outputs, inputs)) in enumerate(self.layers.items()):
            if part in layer:
                rank = (2, 3, 4)[number % 3] if mixed else 4
                alphas[layer] = (1.0, 6.0, 4.0, 3.0)[number % 4] if mixed else 1.0
                found[f"{layer}.lora_A.weight"] = torch.randn(rank, inputs, generator=random)
                found[f"{layer}.lora_B.weight"] = torch.randn(outputs, rank, generator=random)
        return weights(found, alphas, "a test")

    def stock(self, path: Path, layers: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the stock pipeline adds to each of the layers with a file."""
        transformer = self.family.load_transformer(self.folder, torch.device("cpu"), torch.float32)
        before = {layer: transformer.get_submodule(layer).weight.detach().clone() for layer in layers}
        pipeline = self.family.load_pipeline(self.folder, transformer)
        pipeline.load_lora_weights(path.parent, weight_name=path.name, adapter_name="x")
        pipeline.fuse_lora(components=["transformer"])
        pipeline.unload_lora_weights()
        return {layer: transformer.get_submodule(layer).weight.detach() - one for layer, one in before.items()}


@pytest.fixture(scope="module", params=["cogvideox", "wan", "ltx"])
def toy(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Toy:
    return Toy(FAMILIES[request.param], tmp_path_factory.mktemp(request.param) / "toy")


@pytest.mark.parametrize(
    ("part", "mixed"), [("", False), ("", True), ("1.attn", False)], ids=["alpha", "mixed", "few layers"]
)
def test_each_format_is_applied_exactly_by_the_readers_that_it_names_and_by_no_other(
    toy: Toy, part: str, mixed: bool, tmp_path: Path
) -> None:
    lora = toy.lora(part, mixed)
    wanted = changes(lora)
    for format in toy.family.lora_formats:
        if format.id == "sat":  # no reader of a safetensors file; tests/families/test_cogvideox_loras.py
            continue
        tensors, metadata = toy.family.export_lora(lora, format.id)
        if "diffusers" in format.readers:
            save_file(tensors, path := tmp_path / f"{format.id}.safetensors", metadata)
            for layer, delta in toy.stock(path, wanted).items():
                torch.testing.assert_close(delta, wanted[layer], rtol=1e-4, atol=1e-5)
        for reader, read in READERS.items():
            if reader in WITHOUT[toy.family.name]:
                assert reader not in format.readers
                continue
            exact = []
            for layer, delta in wanted.items():
                found = read(toy.family.name, layer, tensors)
                exact.append(found is not None and torch.allclose(found, delta, rtol=1e-5, atol=1e-5))
            assert all(exact) == (reader in format.readers), f"{reader}, {format.id}"


def test_a_lokr_stays_one_where_the_readers_know_it_and_is_their_lora_elsewhere(toy: Toy) -> None:
    """With a whole and with a decomposed second factor, and a strength of 1.5."""
    random, given, wanted = torch.Generator().manual_seed(5), Tensors(), {}
    for number, (layer, (outputs, inputs)) in enumerate(toy.layers.items()):
        one = f"{layer}.lokr_"
        first, rank = torch.randn(4, 2, generator=random), 3
        a = torch.randn(outputs // 4, rank, generator=random)
        b = torch.randn(rank, inputs // 2, generator=random)
        wanted[layer] = 1.5 * torch.kron(first, a @ b)
        given |= {f"{one}w1": first} if number % 2 else {f"{one}w1": 1.5 * first}
        given |= {f"{one}w2_a": a, f"{one}w2_b": b} if number % 2 else {f"{one}w2": a @ b}
        given[f"{layer}.alpha"] = torch.tensor(1.5 * rank)
    lokr = toy.family.lora_weights({f"lycoris_{flat(name)}": one for name, one in given.items()}, {})
    stays = {format.id for format in toy.family.lora_formats if format.lokr}
    assert {"comfyui", "lycoris"} <= stays
    for format in toy.family.lora_formats:
        if format.id == "sat":
            continue
        tensors, metadata = toy.family.export_lora(lokr, format.id)
        assert any("lokr_w1" in name for name in tensors) == (format.id in stays), format.id
        found = toy.family.lora_weights(tensors, metadata)
        stems = {
            "lycoris": lambda layer: f"lycoris_{layer.replace('.', '_')}",
            "comfyui": lambda layer: f"diffusion_model.{authors(toy.family.name, layer)}",
            "kohya": lambda layer: f"lora_unet_{authors(toy.family.name, layer).replace('.', '_')}",
        }
        for layer, change in wanted.items():
            if format.id in stays:
                for musubi in (False, True) if format.id == "kohya" else (False,):
                    made = kronecker(tensors, stems[format.id](layer), musubi)
                    torch.testing.assert_close(made, change, rtol=1e-4, atol=1e-4)
            up, down = (found.tensors[f"{layer}.lora_{side}.weight"] for side in "BA")
            torch.testing.assert_close(found.scale_of(layer) * up @ down, change, rtol=1e-3, atol=1e-3)


def flat(name: str) -> str:
    layer, _, end = name.rpartition(".")
    return f"{layer.replace('.', '_')}.{end}"


def kronecker(tensors: Tensors, stem: str, musubi: bool) -> torch.Tensor:
    """LyCORIS' and ComfyUI's rule: alpha counts where a factor is decomposed. musubi-tuner's: everywhere, next to the
    rank or the longer side of the second factor, and the first factor is whole."""
    first, alpha = tensors[f"{stem}.lokr_w1"], tensors.get(f"{stem}.alpha")
    if (second := tensors.get(f"{stem}.lokr_w2")) is not None:
        dim: int | None = max(second.shape) if musubi else None
    else:
        dim = tensors[f"{stem}.lokr_w2_b"].shape[0]
        second = tensors[f"{stem}.lokr_w2_a"] @ tensors[f"{stem}.lokr_w2_b"]
    return (1.0 if dim is None or alpha is None else float(alpha) / dim) * torch.kron(first, second)

"""LoRA files and workflows in the real ComfyUI, on a CPU. Runs where COMFYUI_DIR names a checkout of it.

Also needs einops, torchsde and scipy. `.github/workflows/comfyui.yml` brings all of it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

CHECKOUT = os.environ.get("COMFYUI_DIR", "")
pytestmark = pytest.mark.skipif(not CHECKOUT, reason="COMFYUI_DIR names no checkout of ComfyUI")


@pytest.fixture(scope="module")
def comfyui() -> Any:
    """Return benchmarks/real_comfyui.py, with ComfyUI loaded."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    module = import_module("real_comfyui")
    module.start(CHECKOUT)
    return module


@pytest.fixture(scope="module")
def wan(comfyui: Any) -> Any:
    return comfyui.Trained("tiny-wan")


def test_the_built_in_wan_computes_the_same_in_comfyui(comfyui: Any, wan: Any) -> None:
    theirs = comfyui.comfy_output(comfyui.comfy_model(wan.family, wan.transformer), wan.latents, 600.0, wan.text)
    ours = wan.output(wan.transformer)
    assert float((theirs - ours).norm() / ours.norm()) < 1e-5


def test_every_format_does_in_comfyui_what_we_say(comfyui: Any, wan: Any, tmp_path: Path) -> None:
    readers = {one.id: "ComfyUI" in one.readers for one in wan.family.lora_formats}
    for row in comfyui.formats_in_comfyui(wan, tmp_path):
        if readers[row["case"].removeprefix("format ")]:
            assert row["difference"] < 1e-3, row
            assert (row["keys not loaded"], row["verdict"]) == (0, "whole"), row
        else:
            assert (row["difference"], row["verdict"]) == (1.0, "not loaded"), row
            assert row["keys not loaded"] > 0, row
    assert sum(readers.values()) >= 5


def test_mistakes_are_named_in_comfyui(comfyui: Any, wan: Any, tmp_path: Path) -> None:
    assert all(row["named"] == 1 for row in comfyui.named_in_comfyui(wan, tmp_path, 2))


def test_a_sample_is_the_same_as_ours_with_the_same_solver(comfyui: Any, wan: Any, tmp_path: Path) -> None:
    pictures = comfyui.Trained("tiny-wan-i2v")
    for model, known in ((wan, ()), (pictures, (0,)), (pictures, (0, 8))):
        unipc, euler = comfyui.samples(model, tmp_path, 4, known)
        assert euler["psnr"] > 60
        assert unipc["psnr"] > 10  # its solver begins and ends in another way


def test_the_node_says_the_verdict(comfyui: Any, wan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import folder_paths

    from workbench.families.lora_check import NODE_CLASS_MAPPINGS

    path = wan.write(comfyui.random_lora(wan.transformer, 5), "comfyui", tmp_path / "ring.safetensors")
    monkeypatch.setattr(folder_paths, "get_full_path", lambda kind, name: str(tmp_path / name))
    monkeypatch.setattr(folder_paths, "get_filename_list", lambda kind: ["ring.safetensors"])
    node = NODE_CLASS_MAPPINGS["CheckLora"]
    assert node.INPUT_TYPES()["required"]["lora_name"] == (["ring.safetensors"],)
    model = comfyui.right_shift(comfyui.comfy_model(wan.family, wan.transformer), wan.model.flow_shift)
    loaded, _ = comfyui.with_lora(model, path)
    found = node().check(loaded, "ring.safetensors")
    assert found["result"][0] is loaded
    assert found["ui"]["text"][0].startswith("Loaded completely, as trained: all 60 layers.")
    weaker, _ = comfyui.with_lora(model, path, 0.5)
    assert "It is loaded at a strength of 0.5." in node().check(weaker, "ring.safetensors")["ui"]["text"][0]


def test_another_trainers_file_is_compared_with_itself(comfyui: Any, wan: Any, tmp_path: Path) -> None:
    """musubi-tuner's layout, without a test: what ComfyUI loads is compared with what the file says."""
    path = wan.write(comfyui.random_lora(wan.transformer, 5), "kohya", tmp_path / "ring.safetensors")
    comfyui.saved(path, comfyui.load_file(path), {"ss_network_module": "networks.lora_wan"})
    loaded, _ = comfyui.with_lora(comfyui.comfy_model(wan.family, wan.transformer), path)
    found = comfyui.lora_check.in_comfyui(loaded, path)
    assert found.code == "no test"
    assert found.details[0] == "ComfyUI loads 60 of its 60 layers by their names in the file, 60 as it says"
    assert "Alpha is in the file: 8" in found.details


# ---- workflows


def node_class(name: str) -> Any:
    """Return a core node of ComfyUI."""
    import nodes

    modules = ("nodes_wan", "nodes_hunyuan", "nodes_model_advanced", "nodes_video")
    places = [import_module(f"comfy_extras.{one}") for one in modules]
    found = next((getattr(place, name) for place in places if hasattr(place, name)), None)
    return found or nodes.NODE_CLASS_MAPPINGS[name]


@pytest.mark.parametrize("id", ["wan2.1-t2v-1.3b", "wan2.1-i2v-14b-480p", "wan2.2-t2v-a14b", "wan2.2-i2v-a14b"])
def test_workflows_have_core_nodes_and_all_that_these_need(comfyui: Any, id: str) -> None:
    from workbench.families import find_model

    family, model = find_model(id)
    made = family.comfyui_workflow(model, "ring.safetensors", "a prompt", (81, 480, 832), 7, picture="first.png")
    assert made is not None
    for node in made.values():
        known = node_class(node["class_type"]).INPUT_TYPES()
        required, optional = known["required"], known.get("optional", {})
        assert set(required) <= set(node["inputs"]) <= {*required, *optional}, node
        for name, value in node["inputs"].items():
            kind = {**required, **optional}[name][0]
            if isinstance(value, list):
                assert value[0] in made, node
            elif isinstance(kind, list) and kind and not name.endswith(("_name", "image")):
                assert value in kind, (name, value)


def run_workflow(made: Mapping[str, Any], ready: Mapping[str, Any]) -> dict[str, Any]:
    """Run a workflow's nodes up to its latents. ready: class of a node that loads or encodes -> its result."""
    found: dict[str, Any] = {}
    for name, node in made.items():
        kind = node["class_type"]
        if kind == "VAEDecode":
            break
        inputs = {one: found[v[0]][v[1]] if isinstance(v, list) else v for one, v in node["inputs"].items()}
        if kind in ready:
            result = ready[kind](inputs)
        else:
            cls = node_class(kind)
            result = getattr(cls(), getattr(cls, "FUNCTION", "execute"))(**inputs)
        found[name] = getattr(result, "args", result)
    return found


def test_the_text_workflow_samples_the_lora(comfyui: Any, wan: Any, tmp_path: Path) -> None:
    """Its nodes are run as they stand; loaders are given the built-in model, prompts its embeddings."""
    path = wan.write(comfyui.random_lora(wan.transformer, 1, alpha=4.0), "comfyui", tmp_path / "ring.safetensors")
    model, shape = wan.model, (wan.model.frames, wan.model.height, wan.model.width)
    made = wan.family.comfyui_workflow(model, path.name, comfyui.PROMPT, shape, seed=0)
    encoder = wan.family.load_text_encoder(wan.folder, torch.device("cpu"), torch.float32)

    def encoded(inputs: Mapping[str, Any]) -> tuple[Any]:
        embeds = wan.family.encode_text(encoder, [inputs["text"]])["prompt_embeds"]
        return ([[torch.nn.functional.pad(embeds, (0, comfyui.TEXT_WIDTH - embeds.shape[-1])), {}]],)

    found = run_workflow(
        made,
        {
            "CLIPLoader": lambda _: (None,),
            "VAELoader": lambda _: (None,),
            "CLIPTextEncode": encoded,
            "UNETLoader": lambda _: (comfyui.comfy_model(wan.family, wan.transformer),),
            "LoraLoaderModelOnly": lambda inputs: comfyui.with_lora(inputs["model"], path)[:1],
        },
    )
    sampler = next(name for name, node in made.items() if node["class_type"] == "KSampler")
    latents = found[sampler][0]["samples"]
    assert latents.shape[1:] == wan.family.latents_shape(wan.folder, *shape)
    assert latents.isfinite().all()

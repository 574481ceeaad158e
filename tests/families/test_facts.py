"""A model's sizes as the fit check takes them, against the model itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import diffusers
import pytest
import torch
from torch import nn

from scripts import write_architectures
from workbench.errors import ModelUnavailable
from workbench.families import facts, find_model, model_files, models
from workbench.families.model import Model

LAYERS = (nn.Linear, nn.Conv2d, nn.Conv3d)


CLASSES = {"cogvideox": "CogVideoXTransformer3DModel", "wan": "WanTransformer3DModel"}
CLASSES |= {"ltx": "LTXVideoTransformer3DModel", "mochi": "MochiTransformer3DModel"}
CLASSES |= {"kandinsky5": "Kandinsky5Transformer3DModel", "ltx2": "LTX2VideoTransformer3DModel"}
CLASSES |= {"hunyuan15": "HunyuanVideo15Transformer3DModel"}
PUBLISHED = [model for model in models() if not model.embedded]
# One of each architecture at every change, all before a release: building the largest takes a second each.
USUAL = {
    "cogvideox-5b-i2v", "cogvideox1.5-5b", "wan2.1-t2v-1.3b", "wan2.1-i2v-14b-480p", "wan2.1-vace-1.3b",
    "wan2.2-ti2v-5b", "ltx-video-2b-0.9.5", "mochi-1-preview",
}  # fmt: skip


@pytest.mark.parametrize(
    "model",
    [pytest.param(model, marks=[] if model.id in USUAL else [pytest.mark.release], id=model.id) for model in PUBLISHED],
)
def test_published_sizes_are_known_without_files(model: Model) -> None:
    family, _ = find_model(model.id)
    found = family.facts_of(model, None)
    parts = facts.published()[model.source].parts
    assert not found.on_disk
    assert found.blocks * found.block_values < found.values < 1.1 * sum(one.values for _, one in found.named())
    assert set(parts) >= {"transformer", "vae", "text_encoder"}
    config = {name: value for name, value in parts["transformer"].config.items() if not name.startswith("_")}
    kind = "WanVACETransformer3DModel" if config.get("vace_layers") else CLASSES[model.family]
    with torch.device("meta"):
        made = getattr(diffusers, kind).from_config(config)
    assert sum(value.numel() for value in made.state_dict().values()) == found.values
    layers = {key: each for key, each in made.named_modules() if isinstance(each, LAYERS)}
    assert {key: linear.values for key, linear in found.named()} == {
        key: each.weight.numel() for key, each in layers.items()
    }


def test_the_file_of_architectures_is_what_the_script_writes() -> None:
    """One entry of it: all take a minute."""
    smallest = next(one for one in write_architectures.PUBLISHED if "THUDM/CogVideoX-2b" in one.sources)
    written = json.loads(json.dumps(write_architectures.entry(smallest)))
    assert written in json.loads(facts.FILE.read_text(encoding="utf-8"))["pipelines"]
    sources = {source for one in write_architectures.PUBLISHED for source in one.sources}
    assert sources == set(facts.published())
    assert sources >= {model.source for model in PUBLISHED}


def test_a_repository_of_which_only_configs_are_here_is_built_by_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, _ = find_model("ltx-video-2b-0.9.5")
    local = family.toy(tmp_path / "toy", "image")
    expected = family.facts(local)
    for weights in (tmp_path / "toy").rglob("*.safetensors"):
        weights.unlink()
    model = replace(local, source="someone/ltx", local=False)
    monkeypatch.setattr(model_files, "find_configs", lambda repo, revision: tmp_path / "toy")
    found = family.facts_of(model, None)
    assert found == replace(expected, on_disk=False, stored="bfloat16")
    (tmp_path / "toy" / "transformer" / "config.json").write_text('{"num_layers": "x"}')
    facts._built_by_a_child.cache_clear()
    model_files.config.cache_clear()
    with pytest.raises(ModelUnavailable, match="cannot be read"):
        family.facts_of(model, None)

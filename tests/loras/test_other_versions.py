"""What leaves the workbench loads with the oldest and the newest peft and diffusers that it is meant for."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from tests.loras.making import put_export
from tests.publishing import conftest as published
from tests.version_environments import environment, python
from workbench.families import families, find_model
from workbench.families.lora_files import NOTED
from workbench.loras.converting import convert
from workbench.loras.making import merge
from workbench.loras.settings import ConvertSettings, MergeSettings
from workbench.publishing import push
from workbench.publishing.settings import LoraPush
from workbench.runs.settings import TrainSettings
from workbench.trainer.trainable import Trainable
from workbench.workspace import Workspace

weights = published.weights  # a file of the kind that earlier versions left, with all that peft knows in its notes
MODEL = "tiny-cogvideox"
BASE = Path(find_model(MODEL)[1].source)
# What others may still have. Before diffusers 0.34 no loader reads a LoRA's alpha: "portable" is for those.
OLDEST = ("peft==0.17.0", "diffusers==0.35.0", "transformers==4.56.2", "tokenizers==0.22.2", "huggingface_hub==0.35.3")
DECLARED = ("peft==0.18.0",)  # the oldest that pyproject.toml allows
KINDS: dict[str, dict[str, Any]] = {
    "plain": {"rank": 4, "alpha": 7.0},
    "rslora": {"rank": 4, "alpha": 3.0, "rslora": True},
    "dora": {"rank": 2, "alpha": 2.0, "dora": True},
    "expression": {"rank": 2, "alpha": 4.0, "targets": r".*\.0\.attn1\.to_[qv]", "lora_init": "orthogonal"},
}
INPUTS = """
import sys, torch
def answer(transformer):
    config = transformer.config
    generator = torch.Generator().manual_seed(5)
    side = config.sample_height
    clip = torch.randn(1, 3, config.in_channels, side, config.sample_width, generator=generator)
    text = torch.randn(1, config.max_text_seq_length, config.text_embed_dim, generator=generator)
    with torch.no_grad():
        return transformer(clip, text, torch.tensor([500]), return_dict=False)[0]
"""
# The public loader alone: the transformer's folder, then LoRA files; what the model answers with each.
STOCK = (
    INPUTS
    + """
from diffusers import CogVideoXPipeline, CogVideoXTransformer3DModel
from safetensors.torch import save_file
folder, target, *files = sys.argv[1:]
transformer = CogVideoXTransformer3DModel.from_pretrained(folder, subfolder="transformer", torch_dtype=torch.float32)
pipe = CogVideoXPipeline(None, None, None, transformer, None)
found = {"base": answer(transformer)}
for file in files:
    path, _, name = file.rpartition("/")
    pipe.load_lora_weights(path, weight_name=name, adapter_name="one")
    found[file] = answer(transformer.eval())
    pipe.unload_lora_weights()
save_file(found, target)
"""
)


# The same of any family: what a LoRA file adds to each weight.
ADDED = """
import json, sys, diffusers, torch
from safetensors.torch import save_file
folder, file, target = sys.argv[1:]
index = json.load(open(f"{folder}/model_index.json"))
kind = getattr(diffusers, index["transformer"][1])
transformer = kind.from_pretrained(folder, subfolder="transformer", torch_dtype=torch.float32)
before = {name: value.clone() for name, value in transformer.state_dict().items()}
parts = {name: None for name, value in index.items() if isinstance(value, list)}
pipe = getattr(diffusers, index["_class_name"])(**{**parts, "transformer": transformer})
path, _, name = file.rpartition("/")
pipe.load_lora_weights(path, weight_name=name, adapter_name="one")
pipe.fuse_lora(components=["transformer"])
pipe.unload_lora_weights()
after = transformer.state_dict()
save_file({name: (after[name] - before[name]).contiguous() for name in before}, target)
"""


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory, weights: Path) -> dict[str, Path]:
    """name -> file: exports of runs, a merge of two ranks, conversions meant for diffusers, a push."""
    workspace = Workspace.open(tmp_path_factory.mktemp("versions") / "workspace")
    found = {}
    for kind, chosen in KINDS.items():
        folder = put_export(workspace, kind, rank=2, alpha=1.0, step=1)
        found[kind] = trained(chosen).export(folder, {"base_model": MODEL})
    merged = merge(workspace, MergeSettings(loras=("plain", "expression=0.5")), print, lambda *_: None)
    found["merged"] = workspace.root / merged.name / "lora.safetensors"
    for format in ("diffusers", "portable"):
        made = convert(workspace, ConvertSettings(lora=merged.name, format=format), print, lambda *_: None)
        found[format] = Path(made.name)
    old = put_export(workspace, "old", rank=2, alpha=1.0, step=1)
    (old / "lora.safetensors").write_bytes(weights.read_bytes())
    plan = push.plan_upload(workspace, "runs/old", LoraPush(repo_id="me/old", model_card=False))
    found["pushed"] = Path(str(plan.staged(workspace.root)["pytorch_lora_weights.safetensors"]))
    return found


def trained(chosen: dict[str, Any]) -> Trainable:
    """A LoRA that is not zero, as the trainer holds it."""
    family = find_model(MODEL)[0]
    transformer = family.load_transformer(BASE, torch.device("cpu"), torch.float32)
    made = Trainable(family, transformer, TrainSettings(dataset="x", **chosen), seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in made.named:
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.05
    return made


@pytest.fixture(scope="module")
def here(exports: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """What the installed versions answer with each file."""
    return answers(exports, dict(os.environ), tmp_path_factory.mktemp("here"))


def answers(exports: dict[str, Path], variables: dict[str, str], folder: Path) -> dict[str, torch.Tensor]:
    python(STOCK, variables, BASE, folder / "answers.safetensors", *exports.values())
    found = load_file(folder / "answers.safetensors")
    return {"base": found["base"], **{name: found[str(path)] for name, path in exports.items()}}


def test_the_installed_loader_gives_what_was_trained(here: dict[str, torch.Tensor]) -> None:
    scope: dict[str, Any] = {}
    exec(INPUTS, scope)
    for kind, chosen in KINDS.items():
        live = scope["answer"](trained(chosen).transformer.eval())
        torch.testing.assert_close(here[kind], live, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("pins", [OLDEST, DECLARED], ids=["oldest", "oldest allowed here"])
def test_every_export_loads_in_older_versions(
    pins: tuple[str, ...], exports: dict[str, Path], here: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    found = answers(exports, environment(*pins), tmp_path)
    for name, answer in found.items():
        torch.testing.assert_close(answer, here[name], rtol=1e-3, atol=1e-4)
        assert name == "base" or float((answer - found["base"]).abs().max()) > 1e-3, f"{name} changes nothing"


def test_the_notes_hold_nothing_that_an_older_version_does_not_know(exports: dict[str, Path]) -> None:
    for name, path in exports.items():
        with safe_open(path, "pt") as file:
            notes = json.loads(file.metadata().get("lora_adapter_metadata", "{}"))
        assert {key.removeprefix("transformer.") for key in notes} <= set(NOTED), name


@pytest.mark.parametrize("family", ["wan", "ltx"])
def test_exports_of_other_families_load_in_older_versions(family: str, tmp_path: Path) -> None:
    one = next(found for found in families() if found.name == family)
    model = one.toy(tmp_path / "toy", "text")
    transformer = one.load_transformer(Path(model.source), torch.device("cpu"), torch.float32)
    made = Trainable(one, transformer, TrainSettings(dataset="x", rank=4, alpha=7.0), seed=0)
    for name, parameter in made.named:
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) * 0.05
    (tmp_path / "run").mkdir()
    file = made.export(tmp_path / "run", {"base_model": model.id})
    added = []
    for number, variables in enumerate((dict(os.environ), environment(*OLDEST), environment(*DECLARED))):
        target = tmp_path / f"{number}.safetensors"
        python(ADDED, variables, Path(model.source), file, target)
        added.append(load_file(target))
    changed = [name for name, value in added[0].items() if value.abs().max() > 1e-4]
    assert len(changed) == len([name for name, _ in made.named if "lora_B" in name])
    for older in added[1:]:
        for name, value in added[0].items():
            torch.testing.assert_close(older[name], value, rtol=1e-3, atol=1e-5)

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
# The public loader alone: what a CogVideoX model answers with each LoRA file, and of the other families, what a file
# adds to each weight. One process does all of it: to import these packages takes longer than the rest.
STOCK = (
    INPUTS
    + """
import json, diffusers
from safetensors.torch import save_file
target, folder, files, others = json.loads(sys.argv[1])
kind = diffusers.CogVideoXTransformer3DModel
transformer = kind.from_pretrained(folder, subfolder="transformer", torch_dtype=torch.float32)
pipe = diffusers.CogVideoXPipeline(None, None, None, transformer, None)
found = {"base": answer(transformer)}
for file in files:
    path, _, name = file.rpartition("/")
    pipe.load_lora_weights(path, weight_name=name, adapter_name="one")
    found[file] = answer(transformer.eval())
    pipe.unload_lora_weights()
for family, (folder, file) in others.items():
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
    found |= {f"{family}: {name}": (after[name] - before[name]).contiguous() for name in before}
save_file(found, target)
"""
)


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


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path, int]]:
    """family -> a model's folder, an export of a run on it, and how many layers that has."""
    found = {}
    for family in (one for one in families() if one.name in ("wan", "ltx")):
        model = family.toy(tmp_path_factory.mktemp("toy") / family.name, "text")
        transformer = family.load_transformer(Path(model.source), torch.device("cpu"), torch.float32)
        made = moved(Trainable(family, transformer, TrainSettings(dataset="x", rank=4, alpha=7.0), seed=0))
        file = made.export(tmp_path_factory.mktemp(family.name), {"base_model": model.id})
        found[family.name] = (Path(model.source), file, sum("lora_B" in name for name, _ in made.named))
    return found


def trained(chosen: dict[str, Any]) -> Trainable:
    """A LoRA that is not zero, as the trainer holds it."""
    family = find_model(MODEL)[0]
    transformer = family.load_transformer(BASE, torch.device("cpu"), torch.float32)
    return moved(Trainable(family, transformer, TrainSettings(dataset="x", **chosen), seed=0))


def moved(made: Trainable) -> Trainable:
    generator = torch.Generator().manual_seed(1)
    for name, parameter in made.named:
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=generator) * 0.05
    return made


class Loader:
    """The public loader of some versions; what it makes of all files, in one process."""

    def __init__(self, exports: dict[str, Path], others: dict[str, tuple[Path, Path, int]]) -> None:
        self.exports, self.others = exports, others

    def answers(self, variables: dict[str, str], folder: Path) -> dict[str, torch.Tensor]:
        pairs = {name: [str(place), str(file)] for name, (place, file, _) in self.others.items()}
        files = [str(path) for path in self.exports.values()]
        python(STOCK, variables, json.dumps([f"{folder}/answers.safetensors", str(BASE), files, pairs]))
        found = load_file(folder / "answers.safetensors")
        return found | {name: found.pop(str(path)) for name, path in self.exports.items()}


@pytest.fixture(scope="module")
def loader(exports: dict[str, Path], others: dict[str, tuple[Path, Path, int]]) -> Loader:
    return Loader(exports, others)


@pytest.fixture(scope="module")
def here(loader: Loader, tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """What the installed versions answer with each file."""
    return loader.answers(dict(os.environ), tmp_path_factory.mktemp("here"))


def test_the_installed_loader_gives_what_was_trained(here: dict[str, torch.Tensor], loader: Loader) -> None:
    scope: dict[str, Any] = {}
    exec(INPUTS, scope)
    for kind, chosen in KINDS.items():
        live = scope["answer"](trained(chosen).transformer.eval())
        torch.testing.assert_close(here[kind], live, rtol=1e-4, atol=1e-5)
    for family, (_, _, layers) in loader.others.items():
        added = [value for name, value in here.items() if name.startswith(f"{family}: ")]
        assert sum(bool(value.abs().max() > 1e-4) for value in added) == layers


@pytest.mark.parametrize("pins", [OLDEST, DECLARED], ids=["oldest", "oldest allowed here"])
def test_every_export_loads_in_older_versions(
    pins: tuple[str, ...], loader: Loader, here: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    found = loader.answers(environment(*pins), tmp_path)
    assert found.keys() == here.keys()
    for name, answer in found.items():
        torch.testing.assert_close(answer, here[name], rtol=1e-3, atol=1e-5 if ": " in name else 1e-4)
        if name in loader.exports:
            assert float((answer - found["base"]).abs().max()) > 1e-3, f"{name} changes nothing"


def test_the_notes_hold_nothing_that_an_older_version_does_not_know(exports: dict[str, Path]) -> None:
    for name, path in exports.items():
        with safe_open(path, "pt") as file:
            notes = json.loads(file.metadata().get("lora_adapter_metadata", "{}"))
        assert {key.removeprefix("transformer.") for key in notes} <= set(NOTED), name

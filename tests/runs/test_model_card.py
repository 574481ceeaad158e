"""The model card: what the Hub reads of it, and the code it gives."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest
import yaml

from workbench.families import families, find_model
from workbench.families.base import Model
from workbench.runs.model_card import CardFacts, model_card
from workbench.runs.settings import TrainSettings

USAGE = """from diffusers import Pipeline

pipe = Pipeline.from_pretrained("base")
pipe.load_lora_weights(".", weight_name="lora.safetensors", adapter_name="lora")
pipe.set_adapters(["lora"], [1.0])
video = pipe("x").frames[0]"""


@pytest.fixture(scope="module")
def published() -> Model:
    """A model of the Hub that draws from an image."""
    return replace(next(model for model in families()[0].models if not model.local), task="image-to-video")


def card(model: Model, settings: TrainSettings, **more: Any) -> tuple[dict[str, Any], str, str]:
    """(metadata, text, code) of a card."""
    facts: dict[str, Any] = {
        "clips": 8,
        "trigger_word": 'zwx: "it\'s"',
        "prompt": 'a "zwx" cat: yes',
        "usage": USAGE,
        "losses": (0.5, 0.25),
        "packages": {"torch": "2"},
        **more,
    }
    text = model_card("cats", model, settings, CardFacts(**facts))  # type: ignore[typeddict-item]
    _, metadata, body = text.split("---\n", 2)
    return yaml.safe_load(metadata), body, body.split("```python\n")[1].split("```")[0]


def test_the_hub_reads_base_model_task_and_trigger_word(published: Model) -> None:
    metadata, text, _ = card(published, TrainSettings(dataset="cats", more_datasets=("dogs=2",), dora=True))
    assert metadata["base_model"] == published.source
    assert metadata["base_model_relation"] == "adapter"
    assert metadata["pipeline_tag"] == "image-to-video"
    assert {"lora", "diffusers", "image-to-video"} <= set(metadata["tags"])
    assert metadata["instance_prompt"] == 'zwx: "it\'s"'
    assert metadata["widget"] == [{"text": 'a "zwx" cat: yes'}]
    assert "A DoRA of rank 16" in text
    assert '8 clips of the datasets "cats", "dogs"' in text


def test_a_model_that_the_hub_does_not_know_is_not_named_to_it() -> None:
    _, model = find_model(TrainSettings().model)
    metadata, text, _ = card(model, TrainSettings(dataset="cats"))
    assert "base_model" not in metadata
    assert model.title in text


def test_the_leak_and_the_parent_are_told(published: Model) -> None:
    parent = {"run": "cats-1", "step": 250, "changed": {"learning_rate": [1e-4, 2e-4]}}
    _, text, _ = card(published, TrainSettings(dataset="cats"), changes=(0.2, 0.01), parent=parent)
    assert "| 0.5000 | 0.2500 |" in text
    assert "0.05 |" in text
    assert "A fork of the run cats-1 at step 250, changed: learning_rate: 0.0001 → 0.0002." in text
    _, text, _ = card(published, TrainSettings(dataset="cats"), losses=(None, None))
    assert "nothing was measured" in text


def test_full_weights_and_prefixes_are_loaded_by_the_code(published: Model) -> None:
    metadata, text, code = card(published, TrainSettings(dataset="cats", method="full"))
    assert metadata["base_model_relation"] == "finetune"
    assert "lora" not in metadata["tags"]
    ast.parse(code)
    assert 'own = AutoModel.from_pretrained(".", subfolder="transformer", torch_dtype=dtype)' in code
    assert "load_lora_weights" not in code
    assert "set_adapters" not in code
    _, text, code = card(published, TrainSettings(dataset="cats", train_also=("patch_embed",)), also=True)
    ast.parse(code)
    lines = [line for line in code.splitlines() if "load_state_dict" in line or "load_lora_weights" in line]
    assert "also.safetensors" in lines[0]  # before peft renames the layers it wraps
    assert "patch_embed" in text

"""The model card: what the Hub reads of it, and the code it gives."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest
import yaml

from tests.written_run import write_run
from workbench.families import families, find_model
from workbench.families.model import Model
from workbench.runs.analysis.visible_effect import VisibleEffect
from workbench.runs.checkpoints import PARENT
from workbench.runs.model_card import CardFacts, card_facts, measured, model_card
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, write_json

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
    known = {"losses": (0.5, 0.25), "packages": {"torch": "2"}, **more}
    facts = CardFacts(settings, settings.steps, 8, **known)
    text = model_card("cats", model, facts, USAGE, [{"text": 'a "zwx" cat: yes'}], 'zwx: "it\'s"')
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


def test_the_prior_drift_is_written_down(published: Model) -> None:
    _, text, _ = card(published, TrainSettings(dataset="cats"), changes=(0.2, 0.01))
    assert "| 0.5000 | 0.2500 |" in text
    assert "0.05 |" in text
    _, text, _ = card(published, TrainSettings(dataset="cats"), losses=())
    assert "nothing was measured" in text


def test_a_forks_parent_is_named(workspace: Workspace) -> None:
    run = write_run(workspace, "cats-2", 100)
    changed = {"learning_rate": [1e-4, 2e-4]}
    write_json(run.folder / PARENT, {"run": "cats-1", "step": 250, "changed": changed})
    facts = card_facts(run, run.settings, 40)
    assert facts.origin == "A fork of the run cats-1 at step 250, with changes: learning_rate: 0.0001 → 0.0002."
    measured = {line["step"]: line["held_out_loss"] for line in run.metrics if "held_out_loss" in line}
    assert facts.losses == (measured[0], measured[40])
    assert (facts.steps, facts.clips, facts.packages) == (40, 1, {"torch": "2.13"})


def test_full_weights_and_prefixes_are_loaded_by_the_code(published: Model) -> None:
    metadata, text, code = card(published, TrainSettings(dataset="cats", method="full"))
    assert metadata["base_model_relation"] == "finetune"
    assert "lora" not in metadata["tags"]
    ast.parse(code)
    assert 'own = AutoModel.from_pretrained(".", subfolder="transformer", torch_dtype=dtype)' in code
    assert "load_lora_weights" not in code
    assert "set_adapters" not in code
    _, text, code = card(published, TrainSettings(dataset="cats", train_also=("patch_embed",)))
    ast.parse(code)
    lines = [line for line in code.splitlines() if "load_state_dict" in line or "load_lora_weights" in line]
    assert "also.safetensors" in lines[0]  # before peft renames the layers it wraps
    assert "patch_embed" in text


@pytest.mark.parametrize(
    ("effect", "meaning"),
    [
        (VisibleEffect((7.6,), (5.5,)), "by 7.6 levels of 255, 1.4 times the controls' 5.5; controls are prompts"),
        (VisibleEffect((7.6,), (5.5,)), "What it was trained on hardly shows in them."),
        (VisibleEffect((34.0,), (8.0,)), "What it was trained on shows in them."),
        (VisibleEffect((40.0,), (35.0,)), "It also changes prompts that it should not affect."),
        (VisibleEffect((8.0,)), "by 8.0 levels of 255, clearly different. What it was trained on shows in them."),
    ],
)
def test_what_samples_show_stands_beside_the_change_of_the_output(effect: VisibleEffect, meaning: str) -> None:
    settings = TrainSettings(dataset="cats")
    facts = CardFacts(settings, 100, clips=9, losses=(0.5, 0.4), changes=(0.41, 0.05), effect=effect)
    assert "41.0%" in measured(facts)
    assert meaning in measured(facts)
    assert meaning in measured(CardFacts(settings, 100, clips=9, effect=effect)), "without held-out clips"

"""A prompt without the trigger word of a chosen LoRA is noticed, and the word is put in front."""

from __future__ import annotations

import asyncio
from functools import partial

import gradio as gr
from workbench.ui.core.triggers import TriggerPart, prompts
from workbench.ui.train.run_form import RunForm

from tests.loras.making import layer, put_lora, write_lora
from workbench.dataset_builder import Dataset
from workbench.loras.library import inserted, lacking, words_of, words_of_grid
from workbench.workspace import Workspace


def test_the_trigger_words_of_the_chosen_loras_are_missed(workspace: Workspace) -> None:
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx")
    put_lora(workspace, "both", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx, sks")
    put_lora(workspace, "plain", layer("blocks.0.to_q", 4, 8, 8))
    stacked = words_of(workspace, ["loras/cat=0.8", "loras/both=1"])
    assert stacked == lacking("a cat", stacked) == ["ohwx", "sks"]
    assert lacking("An OHWX cat", ["ohwx"]) == []
    assert lacking("ohwxy cat", ["ohwx"]) == ["ohwx"]
    elsewhere = ["loras/cat=0", "loras/plain", "loras/gone", "runs/gone@3", "me/there", "/some/lora.safetensors=1"]
    assert words_of(workspace, elsewhere) == []
    assert inserted(" a cat ", ["ohwx", "sks"]) == "ohwx sks a cat"
    assert inserted("sks cat", ["ohwx", "sks"]) == "ohwx sks cat"


def test_each_line_that_is_a_prompt_gets_the_word(workspace: Workspace) -> None:
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx")
    part = TriggerPart(partial(words_of, workspace))
    warning, button = part.look(True, "ohwx a cat\na dog", ["loras/cat"])
    assert "A prompt lacks ohwx" in warning
    assert (button["value"], button["visible"]) == ("Insert ohwx", True)
    assert part.look(False, "ohwx a cat\na dog", ["loras/cat"])[0] == ""
    assert part.put(True, "ohwx a cat\na dog@@dog.png", ["loras/cat"]) == "ohwx a cat\nohwx a dog@@dog.png"
    assert part.put(False, "", ["loras/cat"]) == "ohwx"
    assert prompts("\n", True) == ["\n"]


def test_a_grid_has_the_words_of_its_run_and_of_its_stacked_loras(workspace: Workspace) -> None:
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx")
    put_lora(workspace, "dog", layer("blocks.0.to_q", 4, 8, 8), trigger="sks")
    assert words_of_grid(workspace, "", ["none", "loras/cat + loras/dog=0.5", "loras/cat"]) == ["ohwx", "sks"]
    checkpoint = workspace.run("new") / "checkpoints" / "step-00000010"
    write_lora(checkpoint / "lora.safetensors", layer("blocks.0.to_q", 4, 8, 8), 8.0, trigger_word="zwx")
    (checkpoint / "MANIFEST.json").write_text("{}")
    assert words_of_grid(workspace, "new", []) == ["zwx"]
    assert words_of_grid(workspace, "../new", []) == []


def test_preview_prompts_are_looked_at_for_the_datasets_word(workspace: Workspace, dataset: Dataset) -> None:
    async def build() -> RunForm:
        with gr.Blocks():
            return RunForm(workspace)

    form = asyncio.run(build())  # outside of a loop Gradio makes one and never closes it
    words = form._words
    assert words(dataset.name) == ["zwx"]
    assert words("") == words("no such") == words("../x") == []
    warning, _ = form._triggers.look(True, "a zwx square\na circle", dataset.name)
    assert "A prompt lacks zwx, the dataset&#x27;s trigger word" in warning

"""A prompt without the trigger word of a chosen LoRA is noticed, and the word is put in front."""

from __future__ import annotations

from tests.loras.making import layer, put_lora, write_lora
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


def test_a_grid_has_the_words_of_its_run_and_of_its_stacked_loras(workspace: Workspace) -> None:
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx")
    put_lora(workspace, "dog", layer("blocks.0.to_q", 4, 8, 8), trigger="sks")
    assert words_of_grid(workspace, "", ["none", "loras/cat + loras/dog=0.5", "loras/cat"]) == ["ohwx", "sks"]
    checkpoint = workspace.run("new") / "checkpoints" / "step-00000010"
    write_lora(checkpoint / "lora.safetensors", layer("blocks.0.to_q", 4, 8, 8), 8.0, trigger_word="zwx")
    (checkpoint / "MANIFEST.json").write_text("{}")
    assert words_of_grid(workspace, "new", []) == ["zwx"]
    assert words_of_grid(workspace, "../new", []) == []

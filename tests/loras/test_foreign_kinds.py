"""LoRAs of peft's folders and of LyCORIS: read with their strength, or refused by name; and files that do nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.loras.making import layer, put_lora
from tests.shell import Shell
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.jobs.devices import pick_device
from workbench.loras import library
from workbench.loras.converting import convert, import_lora
from workbench.loras.making import OperationResult
from workbench.loras.settings import ConvertSettings, LoraImportSettings
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

MODEL = "tiny-cogvideox"
FAMILY, TINY = find_model(MODEL)
FOLDER = Path(TINY.source)
QUERY, VALUE = "transformer_blocks.0.attn1.to_q", "transformer_blocks.1.attn1.to_v"


def imported(workspace: Workspace, source: Path) -> OperationResult:
    return import_lora(workspace, LoraImportSettings(source=str(source), model=MODEL), print, lambda *_: None)


def scales(path: Path) -> dict[str, float]:
    lora = FAMILY.lora_weights(*FAMILY.lora_tensors(path))
    return {one: lora.scale_of(one) for one in lora.layers}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What peft's `save_pretrained` leaves: alpha in adapter_config.json alone, for one layer another one."""
    from peft import LoraConfig, get_peft_model

    transformer = FAMILY.load_transformer(FOLDER, torch.device("cpu"), torch.float32)
    config = LoraConfig(r=4, lora_alpha=6, target_modules=[QUERY, VALUE], alpha_pattern={VALUE: 2}, use_rslora=True)
    model = get_peft_model(transformer, config)
    model.save_pretrained(tmp_path / "cats")
    return tmp_path / "cats"


def test_alpha_comes_from_pefts_folder(workspace: Workspace, folder: Path) -> None:
    for source in (folder, folder / "adapter_model.safetensors"):
        done = imported(workspace, source)
        assert "by peft" in done.message
        lora = library.find(workspace, done.name)
        assert lora.title == "cats"
        assert scales(lora.path) == pytest.approx({QUERY: 6 / 4**0.5, VALUE: 2 / 4**0.5})


DAMAGED = {
    "cut": "{",
    "list": "[]",
    "deep": "[" * 100_000,
    "huge": "{" + " " * (1 << 20) + "}",
    "infinite": '{"lora_alpha": Infinity}',
    "words": '{"lora_alpha": ["six"]}',
}


@pytest.mark.parametrize("notes", DAMAGED.values(), ids=DAMAGED)
def test_damaged_notes_of_pefts_folder_are_a_sentence(notes: str, workspace: Workspace, folder: Path) -> None:
    (folder / "adapter_config.json").write_text(notes)
    with pytest.raises(ConfigError, match="notes on rank and alpha are damaged|it is damaged"):
        imported(workspace, folder)


@pytest.mark.parametrize(
    ("ends", "kind"),
    [
        (("oft_blocks", "rescale", "alpha"), "an OFT"),
        (("boft_R", "boft_s"), "a BOFT"),
        (("a1.weight", "a2.weight", "b1.weight", "b2.weight"), "a GLoRA"),
        (("on_input", "weight"), r"an \(IA\)3"),
        (("lora_A", "lora_B", "lora_E"), "an AdaLoRA"),
        (("vera_lambda_b", "vera_lambda_d"), "a VeRA"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("prefix", ["lycoris_transformer_blocks_0_attn1_to_q", "diffusion_model.blocks.0.q"])
def test_other_kinds_are_refused_by_name(
    ends: tuple[str, ...], kind: str, prefix: str, workspace: Workspace, tmp_path: Path
) -> None:
    path = tmp_path / "x.safetensors"
    save_file({f"{prefix}.{end}": torch.ones(2, 2) for end in ends}, path)
    with pytest.raises(ConfigError, match=f"this is {kind}.*, no LoRA .*: use it in the program that trained it"):
        imported(workspace, path)


def test_sampling_with_one_says_the_same(workspace: Workspace, tmp_path: Path) -> None:
    save_file({"lycoris_transformer_blocks_0_attn1_to_q.oft_blocks": torch.ones(2, 2)}, tmp_path / "k.safetensors")
    settings = SampleSettings(prompt="x", steps=1, loras=(str(tmp_path / "k.safetensors"),), device="cpu")
    with pytest.raises(ConfigError, match="this is an OFT"):
        Sampler(MODEL, pick_device("cpu")).generate(workspace, settings)


def test_files_that_comfyui_passes_over_come_with_a_warning(workspace: Workspace, shell: Shell) -> None:
    put_lora(workspace, "a", layer(QUERY, 2, 8, 8), alpha=1.0)
    for format in FAMILY.lora_formats:
        message = convert(workspace, ConvertSettings(lora="loras/a", format=format.id), print, lambda *_: None).message
        passed_over = format.id in ("kohya", "diffusers", "portable", "finetrainers")
        assert ("ComfyUI, convert it to comfyui" in message) == passed_over, format.id
    assert "changes nothing" in shell("loras", "convert", "loras/a", "kohya", str(workspace.root / "k.safetensors")).out

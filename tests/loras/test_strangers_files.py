"""LoRAs imported as people name them: files beside them, folders, torch's files; what fits in part, or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.fake_hub import FakeHub, login
from tests.shell import run_command
from workbench.errors import ConfigError
from workbench.families import families, find_model
from workbench.loras import library, view
from workbench.loras.converting import import_lora
from workbench.loras.making import OperationResult, extract, merge
from workbench.loras.opened import opened
from workbench.loras.settings import ExtractSettings, LoraImportSettings, MergeSettings
from workbench.workspace import Workspace

MODEL = "tiny-cogvideox"
FAMILY, TINY = find_model(MODEL)
WAN = next(family for family in families() if family.name == "wan")
SIZES = {name: (one.outputs, one.inputs) for name, one in FAMILY.facts(TINY).named()}
Tensors = dict[str, torch.Tensor]


def imported(workspace: Workspace, source: object, model: str = MODEL, **more: object) -> OperationResult:
    settings = LoraImportSettings.model_validate({"source": str(source), "model": model, **more})
    return import_lora(workspace, settings, lambda _: None, lambda *_: None)


def pairs(part: str = "attn1.to_q", rank: int = 2) -> Tensors:
    random, found = torch.Generator().manual_seed(0), Tensors()
    for layer, (outputs, inputs) in SIZES.items():
        if part in layer:
            found[f"transformer.{layer}.lora_A.weight"] = torch.randn(rank, inputs, generator=random)
            found[f"transformer.{layer}.lora_B.weight"] = torch.randn(outputs, rank, generator=random)
    return found


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with x.safetensors in it."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    save_file(pairs(), folder / "x.safetensors")
    return folder


def test_a_bare_name_is_a_file_in_the_current_folder(workspace: Workspace, here: Path) -> None:
    (here / "epoch=0-step=500.ckpt").touch()
    torch.save({"state_dict": pairs()}, here / "epoch=0-step=500.ckpt")
    for name in ("x.safetensors", "./x.safetensors", "../here/x.safetensors", "epoch=0-step=500.ckpt"):
        done = imported(workspace, name)
        assert done.reports[0]["matched"] == 6
        assert library.find(workspace, done.name).title == Path(name).stem
    done = merge(workspace, MergeSettings(loras=("x.safetensors=0.5",)), print, lambda *_: None)
    assert "0.5 x x" in done.message
    with pytest.raises(ConfigError, match=r"y.safetensors is not there"):
        imported(workspace, "y.safetensors")


def test_the_shell_takes_a_bare_name_and_force(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORKBENCH_HOME", str(here / "work"))
    save_file({name.replace("blocks.5", "blocks.9"): one for name, one in pairs().items()}, here / "x.safetensors")
    refused = run_command(capsys, "loras", "import", "x.safetensors", "--model", MODEL)
    assert "5 of its 6 layers match" in refused.err
    done = run_command(capsys, "loras", "import", "x.safetensors", "--model", MODEL, "--force").out
    assert "layers matched  5 of 6" in done
    assert "transformer_blocks.9.attn1.to_q: a layer that the model lacks" in done


@pytest.mark.parametrize(
    "file",
    [
        "pytorch_lora_weights.safetensors",
        "adapter_model.safetensors",
        "adapter_model.bin",
        "cats-000010.safetensors",
        "CATS.SAFETENSORS",
    ],
)
def test_a_folder_stands_for_the_lora_in_it(file: str, workspace: Workspace, here: Path) -> None:
    folder = here / "cats"
    folder.mkdir()
    (torch.save if file.endswith(".bin") else save_file)(pairs(), folder / file)
    (folder / "adapter_config.json").write_text(json.dumps({"r": 2, "lora_alpha": 4}))
    for name in ("cats", "./cats", str(folder)):
        (one,) = opened(workspace, [name])
        peft = file.startswith("adapter")
        assert one.title == (Path(file).stem if file.lower().startswith("cats") else "cats")
        assert one.weights.alpha == (4.0 if peft else None)
        assert one.weights.alpha_from == ("adapter_config.json" if peft else "")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ((), "holds no LoRA .*check the name"),
        (("a.safetensors", "b.safetensors"), r"2 files that can be a LoRA: name one of those in it \(a.saf.*, b.saf"),
        (
            ("step-5/adapter_model.safetensors", "step-6/adapter_model.safetensors"),
            r"2 files that can be a LoRA: name one of those in it \(step-5/, step-6/",
        ),
        (("model_index.json",), r"a whole model, no LoRA: .*--model FOLDER.*loras extract"),
    ],
)
def test_a_folder_that_holds_no_one_lora_is_a_sentence(
    files: tuple[str, ...], said: str, workspace: Workspace, here: Path
) -> None:
    for name in ("cats/x.txt", *(f"cats/{file}" for file in files)):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).touch()
    with pytest.raises(ConfigError, match=said):
        imported(workspace, "cats")


def test_the_only_checkpoint_of_an_output_folder_is_taken(workspace: Workspace, here: Path) -> None:
    (here / "out" / "checkpoint-500").mkdir(parents=True)
    save_file(pairs(), here / "out" / "checkpoint-500" / "pytorch_lora_weights.safetensors")
    assert imported(workspace, "out").reports[0]["matched"] == 6


def test_what_the_refusal_of_whole_weights_advises_works(workspace: Workspace, here: Path) -> None:
    from safetensors.torch import load_file

    whole = load_file(next((Path(TINY.source) / "transformer").glob("*.safetensors")))
    whole["transformer_blocks.0.attn1.to_q.weight"] = whole["transformer_blocks.0.attn1.to_q.weight"] + 0.1
    (here / "tuned").mkdir()
    save_file(whole, here / "tuned" / "model.safetensors")
    with pytest.raises(ConfigError, match="loras extract FOLDER --model BASE"):
        imported(workspace, "tuned/model.safetensors")
    done = extract(workspace, ExtractSettings(source="tuned", model=MODEL, rank=1), print, lambda *_: None)
    assert done.message.startswith("extracted from the fine-tune tuned, rank 1")


def test_a_pasted_address_of_the_hub_is_its_repository(
    workspace: Workspace, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeHub().serving() as hub:
        login(monkeypatch, hub, here / "login")
        hub.repos["you/cats"] = {"sub/a b.safetensors": (here / "x.safetensors").read_bytes(), "y.safetensors": b"?"}
        done = imported(workspace, "https://huggingface.co/you/cats/blob/main/sub/a%20b.safetensors")
        save_file(pairs(), here / "adapter.safetensors")
        torch.save(pairs(), here / "adapter_model.bin")
        hub.repos["you/bins"] = {
            "adapter_model.bin": (here / "adapter_model.bin").read_bytes(),
            "adapter_config.json": b'{"r": 2, "lora_alpha": 4}',
        }
        other = imported(workspace, "https://huggingface.co/you/bins")
    assert library.find(workspace, done.name).title == "a b"
    assert library.find(workspace, other.name).title == "bins"
    assert other.reports[0]["alpha_from"] == "adapter_config.json"


def test_a_lora_that_changes_nothing_is_said_at_import_and_when_shown(workspace: Workspace, here: Path) -> None:
    save_file({name: one * 0 if "lora_B" in name else one for name, one in pairs().items()}, here / "x.safetensors")
    done = imported(workspace, "x.safetensors")
    assert "it changes nothing: in every layer the matrix B is zero" in done.message
    assert dict(view.match(library.find(workspace, done.name)))["changes"].startswith("nothing: in every layer")


def test_what_a_lokr_loses_is_kept_with_it(workspace: Workspace, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.families.low_rank.LARGEST", 8)
    layer = "lycoris_transformer_blocks_0_attn1_to_q"
    save_file({f"{layer}.lokr_w1": torch.eye(4), f"{layer}.lokr_w2": torch.eye(32)}, here / "x.safetensors")
    done = imported(workspace, "x.safetensors")
    share = (120 / 128) ** 0.5
    assert done.error == pytest.approx(share)
    assert "made from a LoKr, 97 % of the change is lost" in done.message
    lora = library.find(workspace, done.name)
    assert library.notes(lora)["error"] == pytest.approx(share)
    assert dict(view.match(lora))["converted"] == "from a LoKr, 97 % of the change is lost"


@pytest.mark.parametrize("kind", ["pair", "weight", "reshape_weight", "diff"])
def test_a_control_lora_is_not_taken_without_its_input_layer(kind: str, workspace: Workspace, tmp_path: Path) -> None:
    model = WAN.toy(tmp_path / "wan", "text")
    sizes = {name: (one.outputs, one.inputs) for name, one in WAN.facts(model).named()}
    given = Tensors()
    for layer, (outputs, inputs) in sizes.items():
        if "blocks" in layer:
            given[f"diffusion_model.{layer}.lora_A.weight"] = torch.ones(1, inputs)
            given[f"diffusion_model.{layer}.lora_B.weight"] = torch.ones(outputs, 1)
    outputs, inputs = sizes["patch_embedding"]
    wide, name = (outputs, inputs // 2, 1, 2, 2), "diffusion_model.patch_embedding"
    given |= {
        "pair": {
            f"{name}.lora_A.weight": torch.ones(1, *wide[1:]),
            f"{name}.lora_B.weight": torch.ones(outputs, 1, 1, 1, 1),
        },
        "weight": {f"{name}.weight": torch.ones(wide)},
        "reshape_weight": {f"{name}.reshape_weight": torch.tensor(wide)},
        "diff": {f"{name}.diff": torch.ones(wide)},
    }[kind]
    save_file(given, tmp_path / "x.safetensors")
    with pytest.raises(ConfigError, match="control or image-to-video LoRA, and without its input layer"):
        imported(workspace, tmp_path / "x.safetensors", model.id)
    done = imported(workspace, tmp_path / "x.safetensors", model.id, force=True)
    assert done.reports[0]["matched"] == sum("blocks" in layer for layer in sizes)

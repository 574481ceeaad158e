"""Importing LoRAs of every kind under the names people type, and the messages about partial or no fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.fake_hub import FakeHub, login
from tests.loras.making import layer, put_lora
from tests.shell import Shell, run_command
from workbench.errors import ConfigError
from workbench.families import families, find_model
from workbench.families.base import Family
from workbench.families.lora_files import weights
from workbench.families.model import Model
from workbench.loras import library, view
from workbench.loras.converting import convert, import_lora
from workbench.loras.making import OperationResult, extract, merge
from workbench.loras.opened import opened
from workbench.loras.settings import ConvertSettings, ExtractSettings, LoraImportSettings, MergeSettings
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
    for name, (outputs, inputs) in SIZES.items():
        if part in name:
            found[f"transformer.{name}.lora_A.weight"] = torch.randn(rank, inputs, generator=random)
            found[f"transformer.{name}.lora_B.weight"] = torch.randn(outputs, rank, generator=random)
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
    with pytest.raises(ConfigError, match=r"y.safetensors does not exist"):
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
        (("a.safetensors", "b.safetensors"), r"2 files that can be a LoRA: name one of them \(a.saf.*, b.saf"),
        (
            ("step-5/adapter_model.safetensors", "step-6/adapter_model.safetensors"),
            r"2 files that can be a LoRA: name one of them \(step-5/, step-6/",
        ),
        (("model_index.json",), r"a whole model, not a LoRA: .*--model FOLDER.*loras extract"),
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
    assert "it changes nothing: the matrix B of every layer is zero" in done.message
    assert dict(view.match(library.find(workspace, done.name)))["changes"].startswith("nothing: the matrix B")


def test_what_a_lokr_loses_is_kept_with_it(workspace: Workspace, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workbench.families.low_rank.LARGEST", 8)
    layer = "lycoris_transformer_blocks_0_attn1_to_q"
    save_file({f"{layer}.lokr_w1": torch.eye(4), f"{layer}.lokr_w2": torch.eye(32)}, here / "x.safetensors")
    done = imported(workspace, "x.safetensors")
    share = (120 / 128) ** 0.5
    assert done.error == pytest.approx(share)
    assert "made from a LoKr, 97% of the change is lost" in done.message
    lora = library.find(workspace, done.name)
    assert library.notes(lora)["error"] == pytest.approx(share)
    assert dict(view.match(lora))["converted"] == "from a LoKr, 97% of the change is lost"


@pytest.mark.parametrize("kind", ["pair", "weight", "reshape_weight", "diff"])
def test_a_control_lora_is_not_taken_without_its_input_layer(kind: str, workspace: Workspace, tmp_path: Path) -> None:
    model = WAN.toy(tmp_path / "wan", "text")
    sizes = {name: (one.outputs, one.inputs) for name, one in WAN.facts(model).named()}
    given = Tensors()
    for place, (outputs, inputs) in sizes.items():
        if "blocks" in place:
            given[f"diffusion_model.{place}.lora_A.weight"] = torch.ones(1, inputs)
            given[f"diffusion_model.{place}.lora_B.weight"] = torch.ones(outputs, 1)
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
    with pytest.raises(ConfigError, match="control or image-to-video LoRA, which does not work without its"):
        imported(workspace, tmp_path / "x.safetensors", model.id)
    done = imported(workspace, tmp_path / "x.safetensors", model.id, force=True)
    assert done.reports[0]["matched"] == sum("blocks" in place for place in sizes)


# ---- other kinds


FOLDER = Path(TINY.source)
QUERY, VALUE = "transformer_blocks.0.attn1.to_q", "transformer_blocks.1.attn1.to_v"


def imported_file(workspace: Workspace, source: Path) -> OperationResult:
    return import_lora(workspace, LoraImportSettings(source=str(source), model=MODEL), print, lambda *_: None)


def scales(path: Path) -> dict[str, float]:
    lora = FAMILY.lora_weights(*FAMILY.lora_tensors(path))
    return {one: lora.scale_of(one) for one in lora.layers}


@pytest.fixture(scope="module")
def saved_by_peft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of peft's `save_pretrained`: alpha only in adapter_config.json, and another one for one layer."""
    from peft import LoraConfig, get_peft_model

    transformer = FAMILY.load_transformer(FOLDER, torch.device("cpu"), torch.float32)
    config = LoraConfig(r=4, lora_alpha=6, target_modules=[QUERY, VALUE], alpha_pattern={VALUE: 2}, use_rslora=True)
    model = get_peft_model(transformer, config)
    folder = tmp_path_factory.mktemp("peft")
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved_by_peft: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved_by_peft, tmp_path / "cats"))


def test_alpha_comes_from_pefts_folder(workspace: Workspace, folder: Path) -> None:
    for source in (folder, folder / "adapter_model.safetensors"):
        done = imported_file(workspace, source)
        assert "by peft" in done.message
        lora = library.find(workspace, done.name)
        assert lora.title == "cats"
        assert scales(lora.path) == pytest.approx({QUERY: 6 / 4**0.5, VALUE: 2 / 4**0.5})


DAMAGED = {
    "cut": "{", "list": "[]", "deep": "[" * 100_000, "huge": "{" + " " * (1 << 20) + "}",
    "infinite": '{"lora_alpha": Infinity}', "words": '{"lora_alpha": ["six"]}',
}  # fmt: skip


@pytest.mark.parametrize("notes", DAMAGED.values(), ids=DAMAGED)
def test_damaged_notes_of_pefts_folder_are_a_sentence(notes: str, workspace: Workspace, folder: Path) -> None:
    (folder / "adapter_config.json").write_text(notes)
    with pytest.raises(ConfigError, match="notes on rank and alpha are damaged|it is damaged"):
        imported_file(workspace, folder)


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
    with pytest.raises(ConfigError, match=f"this is {kind}.*, not a LoRA .*: use it in the program that trained it"):
        imported_file(workspace, path)


def test_files_that_comfyui_passes_over_come_with_a_warning(workspace: Workspace, shell: Shell) -> None:
    put_lora(workspace, "a", layer(QUERY, 2, 8, 8), alpha=1.0)
    for format in FAMILY.lora_formats:
        message = convert(workspace, ConvertSettings(lora="loras/a", format=format.id), print, lambda *_: None).message
        passed_over = format.id in ("kohya", "lycoris", "diffusers", "portable", "finetrainers")
        assert ("ComfyUI, convert it to comfyui" in message) == passed_over, format.id
    assert "has no effect" in shell("loras", "convert", "loras/a", "kohya", str(workspace.root / "k.safetensors")).out


# ---- what matched


LTX = next(family for family in families() if family.name == "ltx")


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return WAN.toy(tmp_path_factory.mktemp("wan"), "text")


def pairs_of(family: Family, model: Model, part: str) -> Tensors:
    """A LoRA on the layers of the model's blocks whose names have `part`, by our names."""
    found, random = Tensors(), torch.Generator().manual_seed(0)
    for name, linear in family.facts(model).named():
        if "blocks" in name and part in name:
            found[f"{name}.lora_A.weight"] = torch.randn(2, linear.inputs, generator=random)
            found[f"{name}.lora_B.weight"] = torch.randn(linear.outputs, 2, generator=random)
    return found


def file_of(path: Path, family: Family, tensors: Tensors, format: str, alpha: float = 1.0) -> Path:
    layers = {name.rpartition(".lora_")[0] for name in tensors}
    written, metadata = family.export_lora(weights(tensors, dict.fromkeys(layers, alpha), "x"), format)
    save_file(written, path, metadata)
    return path


@pytest.fixture
def foreign(wan: Model, tmp_path: Path) -> Path:
    """Of lightx2v: a layer that the model lacks, and a norm's weights, beside 20 that fit."""
    tensors = pairs_of(WAN, wan, "")
    tensors |= {name.replace("blocks.0", "blocks.7"): one for name, one in pairs_of(WAN, wan, "0.attn1.to_q").items()}
    path = file_of(tmp_path / "fast.safetensors", WAN, tensors, "comfyui")
    from safetensors.torch import load_file

    save_file({**load_file(path), "diffusion_model.blocks.0.norm3.diff": torch.ones(24)}, path)
    return path


def test_an_import_says_what_matched_everywhere(workspace: Workspace, wan: Model, foreign: Path, shell: Shell) -> None:
    shown = shell("loras", "import", str(foreign), "--model", wan.id).out
    for part in (
        "20 of 21",
        "blocks.7.attn1.to_q: a layer that the model lacks",
        "diffusion_model.blocks.0.norm3: a norm or a table, which a LoRA cannot change",
        "lightx2v",
    ):
        assert part in shown
        assert part in shell("loras", "show", "loras/fast").out
    lora = library.find(workspace, "loras/fast")
    assert dict(view.match(lora))["layers matched"] == "20 of 21"
    assert json.loads(shell("loras", "show", "loras/fast", "--json").out)["match"]["matched"] == 20
    again = json.loads(shell("loras", "import", str(foreign), "--model", wan.id, "--json").out)
    assert again["made"] == "loras/fast-2"
    assert again["reports"][0] | {"lora": "fast"} == {"lora": "fast", **library.notes(lora)["match"]}


def test_a_conversion_says_what_was_read(workspace: Workspace, foreign: Path, tmp_path: Path, shell: Shell) -> None:
    done = json.loads(
        shell("loras", "convert", str(foreign), "portable", str(tmp_path / "p.safetensors"), "--json").out
    )
    assert done["made"] == str(tmp_path / "p.safetensors")
    (found,) = done["reports"]
    assert (found["matched"], found["layers"], found["alpha"], found["rank"]) == (21, 21, "1", "2")
    assert found["left_out"][0]["names"] == ["diffusion_model.blocks.0.norm3"]


@pytest.mark.parametrize(("family", "variant"), [(WAN, "text"), (LTX, LTX.toys[0])], ids=["wan", "ltx"])
@pytest.mark.parametrize("part", ["", "attn1"])
def test_the_family_of_a_file_is_found_without_being_named(
    family: Family, variant: str, part: str, workspace: Workspace, tmp_path: Path
) -> None:
    """Layers of CogVideoX are called the same; sizes, and layers that it lacks, decide."""
    model = family.models[0]
    tensors = {name: one for name, one in pairs_of(family, model, f"blocks.0.{part}").items()}
    path = file_of(tmp_path / "a.safetensors", family, tensors, "diffusers")
    (found,) = opened(workspace, [str(path)])
    assert found.family is family
    assert len(found.weights.layers) == len(tensors) / 2

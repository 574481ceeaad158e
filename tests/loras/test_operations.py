"""Operations on LoRAs change every weight correctly: known matrices in, known changes out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.loras.making import layer, put_lora, write_lora
from tests.patience import PATIENCE
from workbench import jobs
from workbench.clips.records import file_sha256
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.loras import library, tasks, view
from workbench.loras.converting import convert, import_lora
from workbench.loras.making import OperationResult, extract, fuse, merge, resize, survives
from workbench.loras.opened import ModelWeights
from workbench.loras.settings import (
    ConvertSettings,
    ExtractSettings,
    FuseSettings,
    LoraImportSettings,
    MergeSettings,
    ResizeSettings,
    SurvivesSettings,
)
from workbench.workspace import Workspace, link_or_copy, write_json

MODEL = "tiny-cogvideox"
FAMILY, TINY = find_model(MODEL)
BASE = Path(TINY.source)
QUERY, VALUE, WIDE = (f"transformer_blocks.{name}" for name in ("0.attn1.to_q", "1.attn1.to_v", "1.ff.net.0.proj"))
Arrays = dict[str, np.ndarray]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace.open(tmp_path / "work")


def size(name: str) -> tuple[int, int]:
    """(inputs, outputs) of a layer of the tiny model."""
    outputs, inputs = ModelWeights(BASE / "transformer")[f"{name}.weight"].shape
    return inputs, outputs


def on(*places: tuple[str, int], seed: int = 0) -> Arrays:
    """A LoRA on layers of the tiny model, with a rank each."""
    found: Arrays = {}
    for name, rank in places:
        found |= layer(name, rank, *size(name), seed=seed)
    return found


def deltas(path: Path) -> dict[str, torch.Tensor]:
    """What a LoRA file adds to each weight."""
    lora = FAMILY.lora_weights(*FAMILY.lora_tensors(path))
    return {
        name: lora.scale_of(name)
        * (lora.tensors[f"{name}.lora_B.weight"].double() @ lora.tensors[f"{name}.lora_A.weight"].double())
        for name in lora.layers
    }


def made(workspace: Workspace, what: OperationResult) -> Path:
    return library.find(workspace, what.name).path


def do(operation: Any, workspace: Workspace, settings: Any) -> OperationResult:
    steps: list[tuple[int, int]] = []
    found: OperationResult = operation(workspace, settings, lambda text: None, lambda *step: steps.append(step))
    assert all(done <= total for done, total in steps)
    return found


def near(found: torch.Tensor, wanted: torch.Tensor, within: float = 1e-5) -> None:
    assert float((found - wanted).norm() / wanted.norm()) < within


# ---- merging and resizing -------------------------------------------------------------------------------------------


def test_a_merge_adds_up_exactly_whatever_ranks_alphas_and_layers(workspace: Workspace) -> None:
    a = put_lora(workspace, "a", on((QUERY, 2), (VALUE, 2)), alpha=6.0)
    b = put_lora(workspace, "b", on((QUERY, 5), (WIDE, 3), seed=1), alpha=None, trigger="ohwx")
    done = do(merge, workspace, MergeSettings(loras=("loras/a=0.5", "loras/b=-2"), name="Both"))
    one, two = deltas(a), deltas(b)
    wanted = {QUERY: 0.5 * one[QUERY] - 2 * two[QUERY], VALUE: 0.5 * one[VALUE], WIDE: -2 * two[WIDE]}
    got = deltas(made(workspace, done))
    assert got.keys() == wanted.keys()
    for name, delta in wanted.items():
        near(got[name], delta)
    lora = library.find(workspace, "loras/both")
    assert (lora.title, lora.rank, lora.mixed, lora.trigger, lora.model) == ("Both", 7, True, "ohwx", MODEL)
    assert lora.origin == "merged from 0.5 x a + -2 x b; rank 7, exact"
    assert library.notes(lora)["made_of"][1] == {
        "name": "loras/b",
        "file": "lora.safetensors",
        "sha256": file_sha256(b),
        "weight": -2.0,
    }


def test_factors_of_blocks_become_part_of_a_merge(workspace: Workspace) -> None:
    a = put_lora(workspace, "a", on((QUERY, 2), (VALUE, 3)), alpha=6.0)
    found = do(merge, workspace, MergeSettings(loras=("loras/a=2[1:-0.25]",), name="mixed"))
    added, mixed = deltas(a), deltas(made(workspace, found))
    near(mixed[QUERY], 2 * added[QUERY])
    near(mixed[VALUE], -0.5 * added[VALUE])
    assert "2 x a[1:-0.25]" in library.notes(library.find(workspace, "loras/mixed"))["summary"]
    shares = {block: (layers, share) for block, layers, share in view.blocks(a)}
    energy = {name: float(one.norm() ** 2) for name, one in added.items()}
    assert shares[1] == (1, pytest.approx(energy[VALUE] / sum(energy.values()), rel=1e-4))
    with pytest.raises(ConfigError, match=r"a factor for 2, but its blocks are 0 to 1"):
        do(merge, workspace, MergeSettings(loras=("loras/a[2:0]",)))
    with pytest.raises(ConfigError, match="a conversion keeps a LoRA's own strength"):
        do(convert, workspace, ConvertSettings(lora="loras/a=0.5", format="comfyui"))


def test_stock_diffusers_loads_a_merge_with_several_ranks_right(workspace: Workspace) -> None:
    put_lora(workspace, "a", on((QUERY, 2), (VALUE, 4)), alpha=1.0)
    put_lora(workspace, "b", on((QUERY, 3), seed=1), alpha=9.0)
    path = made(workspace, do(merge, workspace, MergeSettings(loras=("loras/a", "loras/b=0.3"))))
    transformer = FAMILY.load_transformer(BASE, torch.device("cpu"), torch.float32)
    before = {name: transformer.get_submodule(name).weight.detach().clone() for name in (QUERY, VALUE)}
    pipeline = FAMILY.load_pipeline(BASE, transformer)
    pipeline.load_lora_weights(path.parent, weight_name=path.name)
    pipeline.fuse_lora(components=["transformer"])
    pipeline.unload_lora_weights()
    for name, delta in deltas(path).items():
        near((transformer.get_submodule(name).weight.detach() - before[name]).double(), delta, 1e-4)


def test_a_merge_to_a_rank_is_the_best_there_is_and_says_what_it_loses(workspace: Workspace) -> None:
    a = put_lora(workspace, "a", on((QUERY, 4)), alpha=4.0)
    b = put_lora(workspace, "b", on((QUERY, 4), seed=1), alpha=4.0)
    done = do(merge, workspace, MergeSettings(loras=("loras/a", "loras/b"), rank=3))
    whole = deltas(a)[QUERY] + deltas(b)[QUERY]
    values = torch.linalg.svdvals(whole)
    best = float(values[3:].norm() / values.norm())
    got = deltas(made(workspace, done))[QUERY]
    assert float((got - whole).norm() / whole.norm()) == pytest.approx(best, rel=1e-4)
    assert done.error == pytest.approx(best, rel=1e-9)
    assert f"{best * 100:.2g}% of the change is lost" in done.message


def test_a_loras_share_decides_the_rank_layer_by_layer(workspace: Workspace) -> None:
    given = on((QUERY, 6), (VALUE, 6))
    strength = np.array([100, 1, 1, 1, 1, 1], np.float32)
    given[f"{QUERY}.lora_A.weight"] = np.linalg.qr(given[f"{QUERY}.lora_A.weight"].T)[0].T * strength[:, None]
    given[f"{QUERY}.lora_B.weight"] = np.linalg.qr(given[f"{QUERY}.lora_B.weight"])[0]
    path = put_lora(workspace, "a", given, alpha=3.0)
    done = do(resize, workspace, ResizeSettings(lora="loras/a", share=0.999))
    got = FAMILY.lora_weights(*FAMILY.lora_tensors(made(workspace, done)))
    assert got.rank_of(QUERY) == 1  # one direction holds 10000 of 10005 parts
    assert got.rank_of(VALUE) > 1
    assert "to ranks 1 to" in done.message
    before, after = deltas(path), deltas(made(workspace, done))
    for name, delta in before.items():
        assert float((after[name] - delta).norm() / delta.norm()) < (1 - 0.999) ** 0.5
    with pytest.raises(ConfigError, match="rank is 6, but a has rank 6 already: use less"):
        do(resize, workspace, ResizeSettings(lora="loras/a", rank=6))
    with pytest.raises(ConfigError, match="rank and share are both empty"):
        do(resize, workspace, ResizeSettings(lora="loras/a"))


def test_a_dora_becomes_a_plain_lora_of_full_rank_without_loss(workspace: Workspace) -> None:
    """W' = m * (W + s B A) / |W + s B A|, row by row."""
    inputs, outputs = size(QUERY)
    lengths = {f"{QUERY}.lora_magnitude_vector": np.linspace(0.5, 2, outputs).astype(np.float32)}
    put_lora(workspace, "dora", {**on((QUERY, 2)), **lengths}, alpha=4.0)
    with pytest.raises(ConfigError, match="one of these is a DoRA"):
        do(merge, workspace, MergeSettings(loras=("loras/dora",)))
    done = do(resize, workspace, ResizeSettings(lora="loras/dora", rank=min(inputs, outputs)))
    weight = ModelWeights(BASE / "transformer")[f"{QUERY}.weight"].double()
    pair = {name: torch.from_numpy(array).double() for name, array in on((QUERY, 2)).items()}
    moved = weight + 2.0 * pair[f"{QUERY}.lora_B.weight"] @ pair[f"{QUERY}.lora_A.weight"]
    wanted = moved / moved.norm(dim=1, keepdim=True) * torch.linspace(0.5, 2, outputs).double()[:, None] - weight
    near(deltas(made(workspace, done))[QUERY], wanted, 1e-4)


def test_loras_of_different_models_are_not_merged(workspace: Workspace) -> None:
    put_lora(workspace, "a", on((QUERY, 2)))
    put_lora(workspace, "b", on((QUERY, 2)), model="cogvideox-5b")
    with pytest.raises(ConfigError, match="for different models .a for tiny-cogvideox; b for cogvideox-5b."):
        do(merge, workspace, MergeSettings(loras=("loras/a", "loras/b")))
    assert [one.name for one in library.all_loras(workspace)] == ["loras/a", "loras/b"]
    assert not list((workspace.root / "loras").glob(".new-*"))


# ---- extracting and fusing ------------------------------------------------------------------------------------------


def fine_tune(folder: Path, changed: dict[str, torch.Tensor]) -> Path:
    """The tiny model's folder with some weights moved."""
    import shutil

    shutil.copytree(BASE, folder, copy_function=link_or_copy)
    (path,) = (folder / "transformer").glob("*.safetensors")
    tensors = load_file(path)
    path.unlink()
    for name, change in changed.items():
        tensors[name] = tensors[name] + change.to(tensors[name].dtype)
    save_file(tensors, path, {"format": "pt"})
    return folder


def test_a_lora_is_extracted_from_a_fine_tune(workspace: Workspace, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(2)
    inputs, outputs = size(QUERY)
    change = torch.randn(outputs, 3, generator=generator) @ torch.randn(3, inputs, generator=generator)
    tuned = fine_tune(tmp_path / "tuned", {f"{QUERY}.weight": change})
    exact = do(extract, workspace, ExtractSettings(source=str(tuned), model=MODEL, rank=None, share=0.999999))
    near(deltas(made(workspace, exact))[QUERY], change.double(), 2e-3)
    lora = library.find(workspace, exact.name)
    assert (lora.rank, lora.model, set(deltas(lora.path))) == (3, MODEL, {QUERY})
    less = do(extract, workspace, ExtractSettings(source=str(tuned), model=MODEL, rank=1, name="less"))
    values = torch.linalg.svdvals(change.double())
    assert less.error == pytest.approx(float(values[1:].norm() / values.norm()), rel=1e-3)


def test_a_run_that_trained_all_weights_knows_its_base(workspace: Workspace, tmp_path: Path) -> None:
    tuned = fine_tune(
        tmp_path / "tuned",
        {f"{QUERY}.weight": torch.ones(size(QUERY)[::-1]), f"{QUERY}.bias": torch.ones(size(QUERY)[1])},
    )
    run = workspace.run("whole")
    write_json(run / "config.json", {"model": MODEL, "method": "full"})
    (tuned / "transformer").rename(run / "transformer")
    done = do(extract, workspace, ExtractSettings(source="whole", rank=4))
    assert done.name == "loras/whole-rank4"
    inputs, outputs = size(QUERY)  # ones have one direction; the bias has no place in a LoRA, which is said
    assert done.error == pytest.approx((outputs / (outputs * inputs + outputs)) ** 0.5, rel=1e-2)
    with pytest.raises(ConfigError, match="neither a run nor a folder"):
        do(extract, workspace, ExtractSettings(source="nobody", model=MODEL))


def test_what_survives_fusing_is_what_the_rounded_weights_really_hold(workspace: Workspace) -> None:
    put_lora(workspace, "a", on((QUERY, 3), (WIDE, 3)), alpha=0.03)
    done = do(survives, workspace, SurvivesSettings(loras=("loras/a",)))
    assert 1 > done.survives["bf16"] > done.survives["fp8"] > done.survives["nf4"] > 0
    for how, share in done.survives.items():
        assert f"{share:.0%} in {how}" in done.message
    # By hand: the bf16 weights that a fused model would have, against the change as it was trained.
    changes = deltas(workspace.root / "loras/a/lora.safetensors")
    weights = ModelWeights(BASE / "transformer")
    before = {name: weights[f"{name}.weight"].double() for name in changes}
    rounded = torch.cat(
        [((w + changes[n]).bfloat16().double() - w.bfloat16().double()).flatten() for n, w in before.items()]
    )
    exact = torch.cat([changes[name].flatten() for name in before])
    assert done.survives["bf16"] == pytest.approx(float(torch.cosine_similarity(rounded, exact, dim=0)) ** 2, rel=1e-6)
    # A change far below the rounding is noise, and one far above it is kept; fusing says the same of the stored format.
    put_lora(workspace, "faint", on((QUERY, 3)), alpha=1e-6)
    assert do(survives, workspace, SurvivesSettings(loras=("loras/faint",))).survives["nf4"] < 0.5
    put_lora(workspace, "strong", on((QUERY, 3)), alpha=300.0)
    assert do(survives, workspace, SurvivesSettings(loras=("loras/strong",))).survives["fp8"] > 0.99
    assert (
        "100% of the change survives the rounding" in do(fuse, workspace, FuseSettings(loras=("loras/strong",))).message
    )


# ---- in and out -----------------------------------------------------------------------------------------------------


def test_what_does_not_fit_or_is_unsound_is_refused_in_a_sentence(workspace: Workspace, tmp_path: Path) -> None:
    small = write_lora(tmp_path / "small.safetensors", layer(QUERY, 2, 8, 8))
    with pytest.raises(ConfigError, match="small does not fit Tiny .*0 of its 1 layers match"):
        do(import_lora, workspace, LoraImportSettings(source=str(small), model=MODEL))
    with pytest.raises(ConfigError, match="does not say for which model it was made, and fits none of"):
        do(import_lora, workspace, LoraImportSettings(source=str(small)))
    broken = on((QUERY, 2))
    broken[f"{QUERY}.lora_B.weight"][0, 0] = np.nan
    with pytest.raises(ConfigError, match="holds NaN or infinite numbers"):
        do(import_lora, workspace, LoraImportSettings(source=str(write_lora(tmp_path / "nan.safetensors", broken))))
    (tmp_path / "page.safetensors").write_bytes(b"<html>log in</html>")
    with pytest.raises(ConfigError, match="is a web page, not weights"):
        do(import_lora, workspace, LoraImportSettings(source=str(tmp_path / "page.safetensors"), model=MODEL))
    assert library.all_loras(workspace) == []


def test_a_conversion_says_who_reads_the_file_before_it_writes_it(workspace: Workspace, tmp_path: Path) -> None:
    put_lora(workspace, "a", on((QUERY, 2)), alpha=3.0)
    target, said = tmp_path / "a.safetensors", []

    def report(text: str) -> None:
        assert not target.exists()
        said.append(text)

    settings = ConvertSettings(lora="loras/a", format="kohya", target=str(target))
    assert "Read only by VideoX-Fun" in convert(workspace, settings, report, lambda *_: None).message
    assert said == ["Read only by VideoX-Fun"]
    with pytest.raises(ConfigError, match="has one transformer: leave it empty"):
        do(convert, workspace, ConvertSettings(lora="loras/a", low_noise="loras/a"))


@pytest.mark.from_nothing
def test_an_operation_runs_as_a_job_of_its_own(workspace: Workspace) -> None:
    put_lora(workspace, "a", on((QUERY, 2)), alpha=3.0)
    place = tasks.start(workspace, MergeSettings(loras=("loras/a=2",), name="twice"))
    assert jobs.wait(place, PATIENCE).state is jobs.State.FINISHED, jobs.log_tail(place)
    (task,) = tasks.everything(workspace)
    assert (task.operation, task.made) == ("merge", "loras/twice")
    assert json.loads((place / "config.json").read_text())["task"] == "merge"
    near(
        deltas(library.find(workspace, "loras/twice").path)[QUERY],
        2 * deltas(library.find(workspace, "loras/a").path)[QUERY],
    )
    place = tasks.start(workspace, MergeSettings(loras=("loras/nobody",)))
    assert jobs.wait(place, PATIENCE).state is jobs.State.FAILED
    assert "is not a LoRA of this workspace" in jobs.status(place).message

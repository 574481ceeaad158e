"""A model of two transformers: one run trains one of them on its own noise levels, and the sampler joins the two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from tests.driving import go
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError
from workbench.families.lora_files import read_safetensors
from workbench.families.model import Model
from workbench.families.wan import FAMILY
from workbench.jobs.devices import pick_device
from workbench.loras import library
from workbench.loras.making import OperationResult
from workbench.loras.settings import (
    ConvertSettings,
    FuseSettings,
    LoraImportSettings,
    MergeSettings,
    ResizeSettings,
)
from workbench.loras.tasks import TASKS
from workbench.runs.run import CARD, Run
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import created
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings
from workbench.trainer.loop import export, preview
from workbench.workspace import Workspace, read_json

PROMPT, STEPS = "a red circle moves left", 4
USUAL: dict[str, Any] = {
    "dataset": "squares", "steps": 2, "rank": 2, "learning_rate": 0.05, "held_out": 1, "preview_steps": STEPS,
    "warmup_steps": 0, "preview_prompts": (PROMPT,),
}  # fmt: skip


@pytest.fixture
def toy(tmp_path: Path) -> Model:
    return FAMILY.toy(tmp_path / "toy", "a14b")


def stock(toy: Model, loras: list[Path]) -> np.ndarray:
    """The video of diffusers alone, a LoRA on each transformer."""
    from diffusers import WanPipeline

    pipeline = WanPipeline.from_pretrained(toy.source)
    for path, second in zip(loras, (False, True), strict=True):
        pipeline.load_lora_weights(
            str(path.parent),
            weight_name=path.name,
            adapter_name="low" if second else "high",
            load_into_transformer_2=second,
        )
    pipeline.set_progress_bar_config(disable=True)
    video = pipeline(
        prompt=PROMPT,
        negative_prompt="",
        num_frames=9,
        height=32,
        width=32,
        num_inference_steps=STEPS,
        guidance_scale=3.0,
        guidance_scale_2=2.0,
        generator=torch.Generator().manual_seed(1),
        output_type="np",
    ).frames[0]
    return (video * 255).round().astype(np.uint8)


def sampled(workspace: Workspace, toy: Model, loras: list[str], model: str = "") -> tuple[np.ndarray, dict[str, Any]]:
    settings = SampleSettings(
        model=model or toy.source, prompt=PROMPT, negative_prompt="", steps=STEPS, seed=1, device="cpu"
    )
    settings = settings.changed(guidance_scale=3.0, guidance_scale_2=2.0, loras=loras)
    made = Sampler(settings.model, pick_device("cpu")).generate(workspace, settings)
    return made.frames, made.record


def test_a_pair_is_two_runs_that_the_sampler_joins_as_the_stock_pipeline_does(
    workspace: Workspace, dataset: Dataset, toy: Model, tmp_path: Path
) -> None:
    settings = TrainSettings().changed(**USUAL, model=toy.source)
    runs = created(workspace, settings, {}, "pair")
    assert [run.settings.expert for run in runs] == ["high noise", "low noise"]
    with pytest.raises(ConfigError, match="both, which takes two runs"):
        Run.create(workspace, settings)
    with pytest.raises(DataError):
        created(workspace, settings.changed(held_out=1000), {})
    exported = []
    for run, (lowest, highest) in zip(runs, ((875, 1000), (0, 875)), strict=True):
        made = go(run, USUAL["steps"])
        for step in range(1, 30):
            assert lowest - 0.01 <= made.inputs.batch(step, 0).inputs.timesteps.item() <= highest + 0.01
        made.evaluate()
        preview(made)
        export(made)
        made.close()
        exported.append(run.folder / "lora.safetensors")
        with safe_open(exported[-1], "pt") as file:
            assert file.metadata()["expert"] == run.settings.expert
        card = (run.folder / CARD).read_text(encoding="utf-8")
        assert f"the {run.settings.expert.replace(' ', '-')} expert of" in card
        assert f"num_inference_steps={STEPS}" in card
        assert ("load_into_transformer_2=True" in card) == (run.settings.expert == "low noise")
    # The preview of a run has its LoRA on its own expert, the other as published.
    record = read_json(runs[1].folder / "previews" / "step-00000002" / "0.json")
    assert record["settings"]["guidance_scale_2"] == toy.guidance_scale

    ours, made_of = sampled(workspace, toy, [run.name for run in runs])
    assert [one["experts"] for one in made_of["loras"]] == [["high noise"], ["low noise"]]
    theirs = stock(toy, exported)
    assert np.abs(ours.astype(int) - theirs).max() <= 1
    alone, _ = sampled(workspace, toy, [runs[0].name])
    assert np.abs(alone.astype(int) - ours).max() > 1


def test_a_file_of_both_goes_to_both(workspace: Workspace, dataset: Dataset, toy: Model, tmp_path: Path) -> None:
    """ai-toolkit's joint file gives what the two files give; so do the LoRAs that are made of it."""
    from safetensors.torch import save_file

    def do(settings: Settings) -> OperationResult:
        _, operation, _ = next(one for one in TASKS.values() if isinstance(settings, one[0]))
        return operation(workspace, settings, print, lambda *_: None)

    draw, pair, joint = torch.Generator().manual_seed(0), {}, {}
    for expert, prefix in (("high", "transformer_1"), ("low", "transformer_2")):
        tensors = {}
        for block in range(2):
            name = f"blocks.{block}.self_attn.q"
            tensors[f"diffusion_model.{name}.lora_A.weight"] = torch.randn(2, 24, generator=draw)
            tensors[f"diffusion_model.{name}.lora_B.weight"] = torch.randn(24, 2, generator=draw)
        pair[expert] = tmp_path / f"style_{expert}_noise.safetensors"
        save_file(tensors, pair[expert])
        joint |= {name.replace("diffusion_model.", f"diffusion_model.{prefix}."): one for name, one in tensors.items()}
    joint_file = tmp_path / "joint.safetensors"
    save_file(joint, joint_file)
    two, record = sampled(workspace, toy, [str(path) for path in pair.values()])
    one, joined = sampled(workspace, toy, [str(joint_file)])
    assert np.array_equal(one, two)
    assert [lora["experts"] for lora in record["loras"]] == [["high noise"], ["low noise"]]
    assert joined["loras"][0]["experts"] == ["high noise", "low noise"]

    # Imported, the two files of a pair keep their experts, whether a person says so or their names do.
    do(LoraImportSettings(source=str(joint_file), model=toy.source, name="a"))
    do(LoraImportSettings(source=str(pair["high"]), low_noise=str(pair["low"]), model=toy.source, name="b"))
    do(LoraImportSettings(source=str(pair["low"]), model=toy.source, name="c"))
    found = {one.name: one.experts for one in library.all_loras(workspace)}
    for name in "ab":
        assert found[f"loras/{name}-high-noise"] == ("high noise",)
        assert found[f"loras/{name}-low-noise"] == ("low noise",)
        again, _ = sampled(workspace, toy, [f"loras/{name}-high-noise", f"loras/{name}-low-noise"])
        assert np.array_equal(again, two)
    assert found["loras/c"] == ("low noise",)
    with pytest.raises(ConfigError, match="for the expert low noise, but was given as the one for high noise"):
        do(LoraImportSettings(source=str(pair["low"]), low_noise=str(pair["high"]), model=toy.source))

    # They go out as a file each, named as ai-toolkit pairs them.
    high, low = "loras/a-high-noise", "loras/a-low-noise"
    files = [str(tmp_path / f"both_{one}_noise.safetensors") for one in ("high", "low")]
    both = ConvertSettings(lora=high, low_noise=low, format="ai-toolkit", target=str(tmp_path / "both.safetensors"))
    assert do(both).files == tuple(files)
    for file, expert in zip(files, pair, strict=True):
        assert read_safetensors(Path(file))[0].keys() == read_safetensors(pair[expert])[0].keys()
    again, _ = sampled(workspace, toy, files)
    assert np.array_equal(again, two)
    with pytest.raises(ConfigError, match="both_high_noise.safetensors already exists: give a new name"):
        do(both)
    assert [Path(one).name for one in do(ConvertSettings(lora=high, low_noise=low, format="kohya")).files] == [
        f"a-kohya_{one}_noise.safetensors" for one in ("high", "low")
    ]

    # What is made of one expert's LoRA is for that expert.
    do(ResizeSettings(lora=low, rank=1, name="small"))
    assert library.find(workspace, "loras/small").experts == ("low noise",)
    with pytest.raises(ConfigError, match="different experts"):
        do(MergeSettings(loras=(high, low)))
    fused = do(FuseSettings(loras=(high, low), model=toy.source)).name
    again, _ = sampled(workspace, toy, [], fused)
    assert np.abs(again.astype(int) - two).max() <= 1

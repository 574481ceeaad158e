"""A family written from docs/add_a_family.md alone goes through everything that the workbench does with a model.

Nothing outside `families/` was written with it in mind: a tensor's key, a scheduler's name or an integer timestep that
something else relies on fails here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.driving import create
from tests.families.documented import installed
from tests.families.stock import stock_pipeline
from tests.patience import PATIENCE
from tests.trainer.test_exact import assert_exact
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.families import convert, find_model
from workbench.families.base import Family
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model import Model
from workbench.fit.estimate import estimate
from workbench.jobs import State
from workbench.jobs.devices import pick_device
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Family]:
    with pytest.MonkeyPatch.context() as patch, installed(tmp_path_factory.mktemp("package"), patch) as found:
        yield found


@pytest.fixture(scope="module")
def toy(family: Family, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return family.toy(tmp_path_factory.mktemp("models") / "toy", "text")


def test_it_is_found_and_equals_the_stock_pipeline(family: Family, toy: Model) -> None:
    assert find_model(toy.source) == (family, toy)
    assert find_model("skyreels-v2-t2v-14b-540p")[1].source == "Skywork/SkyReels-V2-T2V-14B-540P-Diffusers"
    folder, shape = Path(toy.source), (toy.frames, toy.height, toy.width)
    transformer, vae = (load(folder, CPU, torch.float32) for load in (family.load_transformer, family.load_vae))
    encoder = family.load_text_encoder(folder, CPU, torch.float32)
    text, negative = (family.encode_text(encoder, [caption]) for caption in ("a red circle", "the video"))
    latents_shape, noise = family.latents_shape(folder, *shape), torch.Generator().manual_seed(1)
    inputs = DenoiseInputs(folder, text, negative, latents_shape, steps=4, guidance=Guidance(3.0), noise=noise)
    latents = family.denoise(transformer, inputs)
    theirs = stock_pipeline(folder, transformer, vae)(
        prompt_embeds=text["prompt_embeds"],
        negative_prompt_embeds=negative["prompt_embeds"],
        num_frames=toy.frames,
        height=toy.height,
        width=toy.width,
        num_inference_steps=4,
        guidance_scale=3.0,
        generator=torch.Generator().manual_seed(1),
        output_type="pt",
    ).frames
    ours = family.decode(vae, latents) / 2 + 0.5
    torch.testing.assert_close(ours, theirs.permute(0, 2, 1, 3, 4), rtol=0, atol=1e-5)


def test_it_goes_from_clips_to_a_sample_with_its_lora(
    family: Family, toy: Model, workspace: Workspace, dataset: Dataset, tmp_path: Path
) -> None:
    """Estimated, trained in a process of its own with previews, bands and checkpoints, exported, converted, sampled."""
    values = {"steps": 4, "preview_every": 2, "preview_prompts": ["a red square"], "preview_steps": 2}
    run = create(workspace, toy.source, **values, evaluate_every=2, save_every=2, caption_dropout=0.5, rank=4)
    fit = estimate(workspace, run.settings)
    assert fit.phases
    assert all(phase.gb > 0 for phase in fit.phases)
    run.start()
    assert run.wait(PATIENCE).state == State.FINISHED, jobs.log_tail(run.folder)
    lines = run.metrics
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4]
    bands = [line["held_out_bands"] for line in lines if "held_out_bands" in line]
    assert len(bands) == 3
    assert all(np.isfinite(one).all() and len(one) > 1 for one in bands)
    assert run.checkpoints == [2, 4]
    assert list((run.folder / "previews").rglob("*.mp4"))
    assert "SkyReelsV2Pipeline.from_pretrained" in (run.folder / "README.md").read_text()

    lora = run.lora
    assert lora is not None
    for file_format in family.lora_formats:
        assert family.export_lora(family.lora_weights(*family.lora_tensors(lora)), file_format.id)[0]
    sampler = Sampler(toy.source, pick_device("cpu"))
    wanted = SampleSettings(model=toy.source, seed=0, device="cpu", prompt="a red square", steps=2, scheduler="UniPC")
    plain, with_lora = (sampler.generate(workspace, wanted.changed(loras=loras)).frames for loras in ((), ("one=40",)))
    assert plain.shape == with_lora.shape == (toy.frames, toy.height, toy.width, 3)
    assert not np.array_equal(plain, with_lora)
    with pytest.raises(Exception, match="has no layout but diffusers'"):
        convert(toy.source, str(tmp_path / "converted"))


@pytest.mark.usefixtures("family", "dataset")
def test_an_interrupted_run_ends_in_the_same_bits(toy: Model, workspace: Workspace) -> None:
    assert_exact(workspace, toy.source, {"batch_size": 2, "caption_dropout": 0.5})

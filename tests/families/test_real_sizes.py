"""A training step and a step of sampling of every published Wan and LTX-Video, on the meta device: shapes, no weights.

The blocks are equal, so two of them stand for all. Not covered: encoding and decoding, numbers (the miniatures' tests).
"""

from __future__ import annotations

from typing import Any

import diffusers
import pytest
import torch

from workbench.families import architectures, find_model
from workbench.families.model import Model
from workbench.families.model_inputs import Given, ModelInputs
from workbench.runs.settings import TrainSettings
from workbench.trainer.model import lora

META, DTYPE, BLOCKS = torch.device("meta"), torch.bfloat16, 2
MODELS = [model for name in ("wan2.1-t2v-1.3b", "ltx-video-2b-0.9.5") for model in find_model(name)[0].models]
CLASSES = {"wan": "WanTransformer3DModel", "ltx": "LTXVideoTransformer3DModel"}


def given(model: Model, config: Any, shape: tuple[int, ...], count: int) -> Given | None:
    """What a model is shown of a first frame, in the shapes of its family."""
    if model.task == "text-to-video":
        return None
    channels, frames, height, width = shape
    if config.in_channels == channels:
        return Given(known=torch.empty(count, channels, 1, height, width))
    beside = torch.empty(count, config.in_channels - channels, frames, height, width)
    picture = getattr(config, "image_dim", None)
    return Given(beside=beside, tokens={"image": torch.empty(count, 257, picture)} if picture else {})


@pytest.mark.parametrize("model", MODELS, ids=[model.id for model in MODELS])
def test_a_published_model_takes_its_own_shape_in_training_and_sampling(model: Model) -> None:
    family, parts = find_model(model.id)[0], architectures.published()[model.source].parts
    assert all(expert.part in parts for expert in model.experts)
    channels, temporal, spatial = family.compression(parts["vae"].config)  # type: ignore[attr-defined]
    shape = (channels, (model.frames - 1) // temporal + 1, model.height // spatial, model.width // spatial)
    with META:
        transformer = getattr(diffusers, CLASSES[model.family]).from_config(
            {**parts["transformer"].config, "num_layers": BLOCKS}
        )
        transformer = transformer.to(DTYPE).requires_grad_(False)
        facts, width = family.facts(model), parts["text_encoder"].config["d_model"]
        text = {"prompt_embeds": torch.empty(2, facts.text_tokens, width, dtype=DTYPE)}
        if model.family == "ltx":
            text["mask"] = torch.ones(2, facts.text_tokens, dtype=DTYPE)
        latents, shown = torch.empty(2, *shape), given(model, transformer.config, shape, 2)
        times = torch.empty(2)
        with torch.no_grad():  # the prompt and the negative one
            cast = shown and shown.to(META, DTYPE)
            predicted = family.call(transformer, latents.to(DTYPE), text, times, cast, model.fps)
        assert predicted.shape == latents.shape
        trained = lora.attach(family, transformer, TrainSettings(dataset="x", rank=4), seed=0)
        schedule = family.noise_schedule(None, META)  # type: ignore[arg-type]
        levels = schedule.timesteps(torch.empty(2), shape)
        loss = family.loss(
            transformer, schedule, ModelInputs(latents, text, torch.empty(2, *shape), levels, shown, model.fps)
        )
        assert loss.shape == (2,)
        loss.mean().backward()
    assert len(trained) >= BLOCKS * 2 * 8  # both attentions' four layers, two matrices each
    assert all(parameter.grad is not None and parameter.grad.shape == parameter.shape for _, parameter in trained)

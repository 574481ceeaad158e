"""A training step, a sampling step with the scheduler, encoding and decoding of every published model, on the meta
device: shapes without weights.

All blocks are alike, so the models have two.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import diffusers
import pytest
import torch

from tests.families.stock import unread
from workbench.families import facts, find_model
from workbench.families.denoising import StepOptions
from workbench.families.model import Model
from workbench.families.model_files import config, empty
from workbench.families.model_inputs import CallInputs, Given, ModelInputs
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora
from workbench.workspace import write_json

CPU, META, DTYPE, BLOCKS = torch.device("cpu"), torch.device("meta"), torch.bfloat16, 2
FAMILIES = [
    find_model(name)[0]
    for name in (
        "cogvideox-2b",
        "wan2.1-t2v-1.3b",
        "ltx-video-2b-0.9.5",
        "ltx-2-19b",
        "mochi-1-preview",
        "kandinsky5-lite-t2v-5s",
        "hunyuanvideo1.5-t2v-480p",
    )
]
MODELS = [model for family in FAMILIES for model in family.models if not model.embedded]
# One of each kind at every change, the others before a release.
USUAL = {
    "cogvideox-2b", "cogvideox1.5-5b-i2v", "wan2.1-t2v-1.3b", "wan2.1-i2v-14b-480p", "wan2.2-ti2v-5b",
    "wan2.1-vace-14b", "ltx-video-2b-0.9.1", "ltx-video-13b-0.9.7-image", "mochi-1-preview",
}  # fmt: skip
CLASSES = {
    "cogvideox": ("CogVideoXTransformer3DModel", "AutoencoderKLCogVideoX"),
    "wan": ("WanTransformer3DModel", "AutoencoderKLWan"),
    "ltx": ("LTXVideoTransformer3DModel", "AutoencoderKLLTXVideo"),
    "ltx2": ("LTX2VideoTransformer3DModel", "AutoencoderKLLTX2Video"),
    "mochi": ("MochiTransformer3DModel", "AutoencoderKLMochi"),
    "kandinsky5": ("Kandinsky5Transformer3DModel", "AutoencoderKLHunyuanVideo"),
    "hunyuan15": ("HunyuanVideo15Transformer3DModel", "AutoencoderKLHunyuanVideo15"),
}
# The miniature that has a model's pipeline and scheduler.
LIKE = {
    "cogvideox-2b": "sincos", "ltx-video-2b-0.9.5": "text-0.9.5", "ltx-video-13b-0.9.7": "text-13b",
    "wan2.1-vace-1.3b": "vace", "wan2.1-vace-14b": "vace",
    "cogvideox": "rotary", "wan": "text", "ltx": "text", "ltx2": "text", "mochi": "text", "kandinsky5": "text",
    "hunyuan15": "text",
}  # fmt: skip


def cases(chosen: Iterable[Model]) -> list[Any]:
    return [
        pytest.param(model, marks=[] if model.id in USUAL else [pytest.mark.release], id=model.id) for model in chosen
    ]


def distinct_autoencoders() -> list[Model]:
    """Return one model for each autoencoder and clip size: many models share theirs."""
    found = {}
    for model in MODELS:
        sizes = facts.published()[model.source].parts["vae"].config
        found.setdefault((str(sorted(sizes.items())), model.frames, model.height, model.width), model)
    return list(found.values())


@pytest.fixture
def real(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Model, Path]:
    """A published model, and a folder with its configs and a scheduler of its kind, but no weights."""
    model = request.param
    family, parts = find_model(model.id)[0], facts.published()[model.source].parts
    assert all(expert.part in parts for expert in model.experts)
    variant = LIKE.get(model.id.removesuffix("-image")) or LIKE[model.family]
    pipeline, _ = family.miniature(variant)  # type: ignore[attr-defined]
    pipeline.scheduler.save_pretrained(tmp_path / "scheduler")
    pipeline.save_config(tmp_path)
    for name in ("transformer", "vae"):
        write_json(tmp_path / name / "config.json", dict(parts[name].config))
    return model, tmp_path


def built(model: Model, folder: Path, part: str, **changed: Any) -> Any:
    """A part of the model on the meta device."""
    kind = getattr(diffusers, CLASSES[model.family][part == "vae"])
    if part == "transformer" and config(folder, part).get("vace_layers"):
        kind, changed = diffusers.WanVACETransformer3DModel, {**changed, "vace_layers": [0]}
    return empty(kind, {**config(folder, part), **changed}).to(DTYPE).requires_grad_(False)


def given(model: Model, config: Any, shape: tuple[int, ...], count: int) -> Given | None:
    """What a model is shown of a first frame, in the shapes of its family; a VACE model, of a clip."""
    if getattr(config, "vace_layers", None):
        return Given(tokens={"vace context": torch.empty(count, config.vace_in_channels, *shape[1:])})
    if model.task == "text-to-video":
        return None
    family = find_model(model.id)[0]
    channels = shape[family.channel_axis - 1]
    if model.family == "kandinsky5" or config.in_channels == channels:
        return Given(known=torch.empty(count, *family.one_frame(shape)))
    beside = [count, *shape]
    beside[family.channel_axis] = config.in_channels - channels
    picture = getattr(config, "image_dim", None) or getattr(config, "image_embed_dim", None)
    tokens = {"image": torch.empty(count, family.facts(model).picture_tokens, picture)} if picture else {}
    return Given(beside=torch.empty(beside), tokens=tokens)


@pytest.mark.parametrize("real", cases(MODELS), indirect=True)
def test_it_takes_its_own_shape_in_training_and_sampling(
    real: tuple[Model, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, folder = real
    # Mochi's positions ask for it, by a name that tensors without numbers do not have.
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: nullcontext())
    family, facts = find_model(model.id)[0], find_model(model.id)[0].facts(model)
    shape = family.latents_shape(folder, model.frames, model.height, model.width)
    steps = family.sampler_steps(StepOptions(folder, 4, shape, CPU, "model", model.flow_shift))
    schedule = family.noise_schedule(folder, META)
    # Where positions end is not among the sizes that are kept: of 1.5 here, as the authors' configs, at its own size.
    ends = (
        {"sample_height": shape[2], "sample_width": shape[3]} if model.family == "cogvideox" and model.largest else {}
    )
    blocks = {"num_visual_blocks": BLOCKS, "num_text_blocks": 1} if model.family == "kandinsky5" else {}
    transformer = built(model, folder, "transformer", **(blocks or {"num_layers": BLOCKS}), **ends)
    family.use_attention(transformer, "auto", CPU)
    with META:
        text = {name: torch.ones(2, *one, dtype=DTYPE) for name, one in family.text_shapes(facts).items()}
        latents, shown = torch.empty(2, *shape), given(model, transformer.config, shape, 2)
        with torch.no_grad():  # the prompt and the negative one
            cast = shown and shown.to(META, DTYPE)
            predicted = family.call(transformer, CallInputs(latents.to(DTYPE), text, torch.empty(2), cast, model.fps))
        assert predicted.shape == latents.shape
        trained = lora.attach(family, transformer, TrainSettings(dataset="x", rank=4), seed=0)
        levels = schedule.timesteps(torch.empty(2), shape)
        inputs = ModelInputs(latents, text, torch.empty(2, *shape), levels, shown, model.fps)
        loss = family.loss(transformer, schedule, inputs)
        assert loss.shape == (2,)
        loss.mean().backward()
    assert len(trained) >= BLOCKS * 4 * 2  # an attention's four layers, two matrices each
    read = [parameter for name, parameter in trained if not unread(family, name)]
    assert all(parameter.grad is not None and parameter.grad.shape == parameter.shape for parameter in read)
    for index in range(2):  # the second looks back at the first, where the scheduler does
        after, clean = steps.step(index, predicted[:1].float(), latents[:1].to(DTYPE), torch.Generator())
        assert after.shape == clean.shape == (1, *shape)


@pytest.mark.parametrize("real", cases(distinct_autoencoders()), indirect=True)
def test_its_autoencoder_takes_its_own_clip_and_gives_it_back(real: tuple[Model, Path]) -> None:
    model, folder = real
    family = find_model(model.id)[0]
    width = config(folder, "vae").get("z_dim")  # the published means are not among the sizes that are kept
    means = {} if width is None else {"latents_mean": [0.0] * width, "latents_std": [1.0] * width}
    vae = built(model, folder, "vae", **means)
    video = torch.empty(1, 3, model.frames, model.height, model.width, device=META)
    moments = family.encode_video(vae, video)
    shape = family.latents_shape(folder, model.frames, model.height, model.width)
    latents = family.sample_latents(moments, torch.empty(1, *shape, device=META))
    assert latents.shape == (1, *shape)
    assert family.decode(vae, latents).shape == video.shape

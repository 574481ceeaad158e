"""Mochi: the published definition of its loss, the stock pipeline's videos, captions without tokens, and its authors'
LoRA files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from tests.families.lora_changes import changes, lora_on, same
from tests.families.stock import whole_pipeline
from workbench.errors import ConfigError
from workbench.families.denoising import DenoiseInputs, Guidance, StepOptions
from workbench.families.mochi import FAMILY, KWARGS, lengths
from workbench.families.model_inputs import ModelInputs

CPU, STEPS = torch.device("cpu"), 4
CAPTIONS = ["a red circle", "a blue square moves left"]


class Case:
    """A miniature, its parts, and two clips with captions of different lengths."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = FAMILY.toy(folder, "text")
        self.transformer = self.loaded("stock")
        self.vae = FAMILY.load_vae(folder, CPU, torch.float32)
        self.encoder = FAMILY.load_text_encoder(folder, CPU, torch.float32)
        draw = torch.Generator().manual_seed(0)
        self.video = torch.rand(2, 3, 13, 32, 32, generator=draw) * 2 - 1
        self.shape = FAMILY.latents_shape(folder, 13, 32, 32)
        self.posterior, self.noise = (torch.randn(2, *self.shape, generator=draw) for _ in range(2))
        self.latents = FAMILY.sample_latents(FAMILY.encode_video(self.vae, self.video), self.posterior)
        self.text = FAMILY.encode_text(self.encoder, CAPTIONS)

    def loaded(self, kernel: str) -> Any:
        transformer = FAMILY.load_transformer(self.folder, CPU, torch.float32)
        FAMILY.use_attention(transformer, kernel, CPU)
        return transformer

    def loss(self, transformer: Any, text: Any, rows: slice = slice(None)) -> torch.Tensor:
        inputs = ModelInputs(self.latents[rows], text, self.noise[rows], torch.tensor([300.0, 900.0])[rows])
        return FAMILY.loss(transformer, FAMILY.noise_schedule(self.folder, CPU), inputs)


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("mochi") / "toy")


def test_the_loss_is_that_of_the_published_trainers(case: Case) -> None:
    """A step of cogvideox-factory's training/mochi-1, restated: normalized latents of the posterior, z noised by a
    uniform sigma, the transformer at 1000 (1 - sigma) against z - eps."""
    config = case.vae.config
    posterior = case.vae.encode(case.video).latent_dist
    mean, std = (torch.tensor(one).view(1, -1, 1, 1, 1) for one in (config.latents_mean, config.latents_std))
    z = (posterior.mean + posterior.std * case.posterior - mean) / std
    torch.testing.assert_close(case.latents, z, rtol=1e-5, atol=1e-5)
    found = case.encoder.tokens(CAPTIONS)
    mask = found.attention_mask.bool()
    with torch.no_grad():
        embeds = case.encoder.model(found.input_ids, attention_mask=mask)[0]
        sigma = torch.tensor([0.3, 0.9])
        by_sigma = sigma[:, None, None, None, None]
        predicted = case.transformer(
            hidden_states=(1 - by_sigma) * case.latents + by_sigma * case.noise,
            encoder_hidden_states=embeds,
            encoder_attention_mask=mask,
            timestep=(1 - sigma) * 1000,
            return_dict=False,
        )[0]
        target = case.latents - case.noise
        theirs = [functional.mse_loss(one, other) for one, other in zip(predicted, target, strict=True)]
        for kernel in ("stock", "auto"):
            ours = case.loss(case.loaded(kernel), case.text)
            torch.testing.assert_close(ours, torch.stack(theirs), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("negative", ["the video", ""])
def test_a_video_equals_the_stock_pipelines(case: Case, negative: str) -> None:
    """Captions, masks, steps, guidance and decoding; an empty negative prompt has no tokens, as the authors zero it."""
    theirs = whole_pipeline(FAMILY, case.model)(
        prompt=CAPTIONS[0],
        negative_prompt=negative,
        num_frames=13,
        height=32,
        width=32,
        num_inference_steps=STEPS,
        guidance_scale=3.0,
        generator=torch.Generator().manual_seed(1),
        output_type="pt",
    ).frames
    inputs = DenoiseInputs(
        case.folder,
        text=FAMILY.encode_text(case.encoder, CAPTIONS[:1]),
        negative_text=FAMILY.encode_text(case.encoder, [negative]),
        latents_shape=case.shape,
        steps=STEPS,
        guidance=Guidance(3.0),
        noise=torch.Generator().manual_seed(1),
    )
    for kernel in ("stock", "auto"):
        latents = FAMILY.denoise(case.loaded(kernel), inputs_again(inputs))
        ours = FAMILY.decode(case.vae, latents) / 2 + 0.5
        torch.testing.assert_close(ours, theirs.permute(0, 2, 1, 3, 4), rtol=0, atol=1e-5)


def inputs_again(inputs: DenoiseInputs) -> DenoiseInputs:
    """Return the inputs with their noise generator reset."""
    inputs.noise.manual_seed(1)
    return inputs


def test_half_of_the_steps_are_small_ones_along_a_line(case: Case) -> None:
    steps = FAMILY.sampler_steps(StepOptions(case.folder, 64, case.shape, CPU))
    assert len(steps.timesteps) == 64
    torch.testing.assert_close(steps.timesteps[:33], 1000 - 25 * torch.arange(33) / 32, rtol=0, atol=1e-3)
    assert steps.timesteps.diff().diff()[33:].max() < 1e-3  # then faster and faster
    with pytest.raises(ConfigError, match="steps is 1, Mochi needs at least two noise levels: use 2 or more"):
        FAMILY.sampler_steps(StepOptions(case.folder, 1, case.shape, CPU))


def test_a_dropped_caption_is_an_empty_one_and_has_no_tokens(case: Case) -> None:
    empty = FAMILY.encode_text(case.encoder, ["", CAPTIONS[1]])
    dropped = FAMILY.no_text(FAMILY.encode_text(case.encoder, CAPTIONS))
    assert empty["mask"].sum(1).tolist() == [0, case.text["mask"][1].sum()]
    assert not dropped["mask"].any()
    transformer = case.loaded("auto")
    of_empty, of_dropped, of_caption = (case.loss(transformer, text) for text in (empty, dropped, case.text))
    torch.testing.assert_close(of_empty[:1], of_dropped[:1], rtol=1e-5, atol=1e-6)
    assert not torch.allclose(of_empty[:1], of_caption[:1], rtol=1e-4)
    first = {name: one[:1] for name, one in dropped.items()}
    torch.testing.assert_close(case.loss(transformer, first, slice(1)), of_dropped[:1], rtol=1e-5, atol=1e-6)


def test_padding_counts_for_nothing_and_is_masked_only_where_captions_differ(case: Case) -> None:
    transformer = case.loaded("auto")
    seen: list[torch.Tensor] = []
    transformer.transformer_blocks[0].register_forward_pre_hook(
        lambda module, arguments, named: seen.append(named["encoder_attention_mask"]), with_kwargs=True
    )
    wild = {**case.text, "prompt_embeds": case.text["prompt_embeds"].clone()}
    wild["prompt_embeds"][~case.text["mask"].bool()] = 50.0
    assert torch.equal(case.loss(transformer, wild), case.loss(transformer, case.text))
    first = {name: one[:1] for name, one in case.text.items()}
    alone = case.loss(transformer, first, slice(1))
    torch.testing.assert_close(alone, case.loss(transformer, case.text)[:1], rtol=1e-5, atol=1e-6)
    assert [one.dtype for one in seen] == [torch.bool, torch.bool, torch.uint8, torch.bool]
    shortest, longest = lengths(case.text["mask"].bool())
    assert 0 < shortest < longest < 256
    assert [one.shape[1] for one in seen] == [longest, longest, shortest, longest]
    assert lengths(torch.ones(2, 7, device="meta")) == (7, 7)


def test_flash_attention_refuses_padding(case: Case) -> None:
    from workbench.families.base import BACKENDS
    from workbench.families.mochi import JointAttention

    transformer = case.loaded("auto")
    for block in transformer.transformer_blocks:
        block.attn1.processor = JointAttention(BACKENDS["flash"])
    with pytest.raises(ConfigError, match="attention is flash, which cannot mask padding: choose auto"):
        case.loss(transformer, case.text)
    with pytest.raises(ConfigError, match="attention is flash, which needs an NVIDIA GPU"):
        FAMILY.use_attention(transformer, "flash", CPU)


# ---- the authors' LoRA files


def test_the_authors_file_changes_their_weights_as_ours_changes_diffusers(case: Case) -> None:
    """Their fused layer is query, key and value below each other; the halves of w1 are gate and value."""
    lora = lora_on(FAMILY, case.model, within="blocks")
    tensors, metadata = FAMILY.export_lora(lora, "comfyui")
    wanted = changes(lora)
    noted = json.loads(metadata[KWARGS])
    assert noted == {
        **{f"qkv_proj_lora_{what}": 6 for what in ("rank", "alpha")},
        **{f"out_proj_lora_{what}": 2 for what in ("rank", "alpha")},
    }

    def theirs(name: str) -> torch.Tensor:
        return tensors[f"blocks.0.{name}.lora_B"] @ tensors[f"blocks.0.{name}.lora_A"]

    def ours(*names: str) -> torch.Tensor:
        return torch.cat([wanted[f"transformer_blocks.0.{name}"] for name in names])

    for found, expected in (
        (theirs("attn.qkv_x"), ours("attn1.to_q", "attn1.to_k", "attn1.to_v")),
        (theirs("attn.qkv_y"), ours("attn1.add_q_proj", "attn1.add_k_proj", "attn1.add_v_proj")),
        (theirs("attn.proj_y"), ours("attn1.to_add_out")),
        (theirs("mlp_x.w1"), torch.cat(ours("ff.net.0.proj").chunk(2)[::-1])),
        (theirs("mlp_y.w2"), ours("ff_context.net.2")),
        (theirs("mod_x"), ours("norm1.linear")),
        (theirs("mod_y"), ours("norm1_context.linear")),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("prefix", ["", "diffusion_model."])
def test_a_file_of_their_fine_tuner_is_read_with_its_strength(prefix: str) -> None:
    """One pair for query, key and value, of which all three use every row; alpha in the metadata's kwargs."""
    down, up = torch.randn(4, 8), torch.randn(24, 4)
    tensors = {f"{prefix}blocks.0.attn.qkv_x.lora_A": down, f"{prefix}blocks.0.attn.qkv_x.lora_B": up}
    found = FAMILY.lora_weights(tensors, {KWARGS: '{"qkv_proj_lora_rank": 4, "qkv_proj_lora_alpha": 8}'})
    expected = (2 * up @ down).chunk(3)
    wanted = {f"transformer_blocks.0.attn1.to_{name}": one for name, one in zip("qkv", expected, strict=True)}
    same(changes(found), wanted)
    assert FAMILY.lora_weights(tensors, {}).origin == "ComfyUI"
    with pytest.raises(ConfigError, match="notes on rank and alpha .* are damaged"):
        FAMILY.lora_weights(tensors, {KWARGS: '{"qkv_proj_lora_rank": 0}'})
    del tensors[f"{prefix}blocks.0.attn.qkv_x.lora_B"]
    with pytest.raises(ConfigError, match="matrices of blocks.0.attn.qkv_x are incomplete"):
        FAMILY.lora_weights(tensors, {})

"""A reference in front of Wan's clips (in-context LoRA), against a transformer written down with places and times."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from workbench.errors import ConfigError
from workbench.families.conditioning import Conditioning, GivenKind, conditioning_of
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model_inputs import Given, ModelInputs
from workbench.families.wan import FAMILY

CPU, FRAMES, TIME = torch.device("cpu"), 9, 700.0


class Case:
    """A miniature, a clip, and another video as its reference."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.model = folder, FAMILY.toy(folder, variant)
        self.transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
        self.vae = FAMILY.load_vae(folder, CPU, torch.float32)
        self.image_encoder = FAMILY.load_image_encoder(folder, CPU, torch.float32)
        draw, size = torch.Generator().manual_seed(0), self.model.height
        self.video = torch.rand(1, 3, FRAMES, size, size, generator=draw) * 2 - 1
        self.reference = torch.rand(1, 3, 5, size, size, generator=draw) * 2 - 1
        self.shape = FAMILY.latents_shape(folder, FRAMES, size, size)
        self.noise = torch.randn(1, *self.shape, generator=draw)
        self.clean = FAMILY.encode_video(self.vae, self.video)["mean"]
        self.text = FAMILY.encode_text(FAMILY.load_text_encoder(folder, CPU, torch.float32), ["a red circle"])

    def told(self, told: Conditioning) -> Given:
        tensors = FAMILY.encode_conditioning(self.vae, self.image_encoder, told)
        return FAMILY.conditioning(tensors, self.shape, torch.Generator(), torch.float32)

    def inputs(self, given: Given | None) -> ModelInputs:
        return ModelInputs(self.clean, self.text, self.noise, torch.tensor([TIME]), given)


def rotated(states: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Heads' states [B, heads, tokens, D] turned by each token's place [tokens, 3] in time, height and width."""
    width = states.shape[-1]
    side = 2 * (width // 6)
    angles = []
    for axis, size in enumerate((width - 2 * side, side, side)):
        rates = 10000.0 ** (-torch.arange(0, size, 2) / size)
        angles.append(places[:, axis, None] * rates)
    turn = torch.cat(angles, dim=1)
    even, odd = states[..., 0::2], states[..., 1::2]
    return torch.stack([even * turn.cos() - odd * turn.sin(), even * turn.sin() + odd * turn.cos()], dim=-1).flatten(-2)


def plain(
    model: Any, latents: torch.Tensor, times: torch.Tensor, text: torch.Tensor, seen: torch.Tensor | None
) -> torch.Tensor:
    """What Wan's transformer predicts of latents [1, C, f, h, w], each token with a time of its own [tokens]."""
    own, (_, tall, wide) = model.config, model.config.patch_size
    heads, dim = own.num_attention_heads, own.num_attention_heads * own.attention_head_dim
    frames, height, width = latents.shape[2], latents.shape[3] // tall, latents.shape[4] // wide
    grid = torch.meshgrid(torch.arange(frames), torch.arange(height), torch.arange(width), indexing="ij")
    places = torch.stack([axis.flatten() for axis in grid], dim=1).float()
    half = own.freq_dim // 2
    angles = times[:, None] * torch.exp(-math.log(10000) * torch.arange(half) / half)
    embedder = model.condition_embedder
    time = embedder.time_embedder(torch.cat([angles.cos(), angles.sin()], dim=1))
    six = embedder.time_proj(torch.nn.functional.silu(time)).view(1, -1, 6, dim)
    context = embedder.text_embedder(text)
    if seen is not None:
        context = torch.cat([embedder.image_embedder(seen), context], dim=1)
    x = model.patch_embedding(latents).flatten(2).transpose(1, 2)

    def norm(states: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.layer_norm(states, (dim,), eps=own.eps)

    for block in model.blocks:
        shift, scale, gate, later_shift, later_scale, later_gate = (block.scale_shift_table[None] + six).unbind(2)
        asked, attention = norm(x) * (1 + scale) + shift, block.attn1
        query, key = (
            rotated(each_norm(layer(asked)).unflatten(2, (heads, -1)).transpose(1, 2), places)
            for layer, each_norm in ((attention.to_q, attention.norm_q), (attention.to_k, attention.norm_k))
        )
        value = attention.to_v(asked).unflatten(2, (heads, -1)).transpose(1, 2)
        weights = (query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])).softmax(-1)
        x = x + attention.to_out[0]((weights @ value).transpose(1, 2).flatten(2)) * gate
        x = x + block.attn2(block.norm2(x), context, None, None)
        x = x + block.ffn(norm(x) * (1 + later_scale) + later_shift) * later_gate
    shift, scale = (model.scale_shift_table[None] + time[None, :, None]).unbind(2)
    x = model.proj_out(norm(x) * (1 + scale) + shift)
    x = x.view(1, frames, height, width, 1, tall, wide, -1)
    return x.permute(0, 7, 1, 4, 2, 5, 3, 6).flatten(6, 7).flatten(4, 5).flatten(2, 3)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    base = tmp_path_factory.mktemp("reference")
    return {variant: Case(base / variant, variant) for variant in ("text", "5b", "image-2.1", "control")}


@pytest.mark.parametrize(
    ("variant", "kind"),
    [("text", ""), ("5b", ""), ("5b", "first"), ("image-2.1", "first"), ("image-2.1", "first+last"), ("control", "")],
)
def test_it_equals_a_transformer_written_down(cases: dict[str, Case], variant: str, kind: str) -> None:
    """Places count on from the reference's, whose tokens have time 0; only what follows it has a loss."""
    case = cases[variant]
    told = conditioning_of(GivenKind(kind), case.video) if kind else Conditioning(FRAMES)
    given = case.told(told.changed(reference=case.reference))
    reference, own = FAMILY.encode_video(case.vae, case.reference)["mean"], case.shape[0]
    torch.testing.assert_close(given.tokens["reference"], reference)
    noisy = torch.lerp(case.clean, case.noise, TIME / 1000)
    frames, height, width = case.shape[1:]
    clip_times = torch.full((frames, height // 2 * (width // 2)), TIME)
    front, seen = reference, None
    if variant == "5b" and kind:
        assert given.known is not None
        noisy[:, :, :1], clip_times[0] = given.known, 0
    if variant == "image-2.1":
        assert given.beside is not None
        noisy = torch.cat([noisy, given.beside], dim=1)
        front, seen = torch.cat([reference, torch.ones_like(reference[:, :4]), reference], dim=1), given.tokens["image"]
    if variant == "control":  # neither a control video nor frames, but the reference's own are known
        noisy = torch.cat([noisy, torch.zeros(1, 36, *case.shape[1:])], dim=1)
        unseen, known = torch.zeros_like(reference), torch.ones_like(reference[:, :4])
        front = torch.cat([reference, unseen, known, reference], dim=1)
    times = torch.cat([torch.zeros(reference.shape[2] * clip_times.shape[1]), clip_times.flatten()])
    with torch.no_grad():
        all_of_it = plain(case.transformer, torch.cat([front, noisy], dim=2), times, case.text["prompt_embeds"], seen)
        theirs = all_of_it[:, :, reference.shape[2] :]
        schedule = FAMILY.noise_schedule(case.folder, CPU)
        ours = FAMILY.predict(case.transformer, schedule, case.inputs(given))
        loss = FAMILY.loss(case.transformer, schedule, case.inputs(given))
    assert ours.shape == (1, *case.shape)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    error = (theirs - (case.noise - case.clean)).square()
    counted = error[:, :, 1:] if variant == "5b" and kind else error
    torch.testing.assert_close(loss, counted.mean()[None], rtol=1e-4, atol=1e-6)
    assert own == theirs.shape[1]


def test_a_reference_changes_what_is_generated(cases: dict[str, Case]) -> None:
    case = cases["text"]
    made = []
    for reference in (None, case.reference, case.reference.flip(-1), case.reference[:, :, :1]):
        inputs = DenoiseInputs(
            case.folder, case.text, case.text, case.shape, 2, Guidance(3.0), torch.Generator().manual_seed(1)
        )
        given = None if reference is None else case.told(Conditioning(FRAMES, reference=reference))
        made.append(FAMILY.denoise(case.transformer, inputs.__class__(**{**vars(inputs), "given": given})))
    assert all(one.shape == (1, *case.shape) for one in made)
    assert len({one.numpy().tobytes() for one in made}) == len(made)


def test_every_model_takes_one_of_the_videos_own_size(cases: dict[str, Case]) -> None:
    for case in cases.values():
        assert not FAMILY.refusal(case.model, "reference")
        assert "reference" in FAMILY.own_settings(case.model)
        assert "reference_downscale" not in FAMILY.own_settings(case.model)
    case = cases["text"]
    small = case.told(Conditioning(FRAMES, reference=case.reference)).tokens["reference"][..., ::2, ::2]
    with pytest.raises(ConfigError, match="a reference smaller than the video, Wan one of the same size"):
        FAMILY.conditioning({"reference": small}, case.shape, torch.Generator(), torch.float32)
    assert (
        FAMILY.facts(cases["text"].model).reference_bytes == FAMILY.facts(cases["image-2.1"].model).reference_bytes == 4
    )

"""Conditioning of LTX-Video, laid out as LTXConditionPipeline and LTX-Video-Trainer do."""

from __future__ import annotations

from typing import Any

import diffusers
import pytest
import torch
from diffusers.pipelines.ltx.pipeline_ltx_condition import LTXVideoCondition

from tests.families.ltx_case import CPU, FPS, FRAMES, SIZE, LtxCase
from tests.families.stock import whole_pipeline
from workbench.errors import ConfigError
from workbench.families.conditioning import NAMES, Conditioning, GivenKind, conditioning_of
from workbench.families.ltx import FAMILY
from workbench.families.ltx_conditioning import conditions
from workbench.families.model_inputs import Given, ModelInputs

STEPS = 4


class Case(LtxCase):
    """A miniature of LTX-Video."""

    family, steps = FAMILY, STEPS

    @property
    def reference(self) -> torch.Tensor:
        return self.video.flip(2)

    def stock(self, pipeline: Any, given: list[LTXVideoCondition]) -> torch.Tensor:
        found = pipeline(
            conditions=given,
            prompt="a red circle",
            negative_prompt="the video",
            num_frames=FRAMES,
            height=SIZE,
            width=SIZE,
            frame_rate=FPS,
            num_inference_steps=STEPS,
            guidance_scale=3.0,
            generator=torch.Generator().manual_seed(1),
            output_type="latent",
        )
        latents: torch.Tensor = found.frames
        return latents

    def loss(self, given: Given, timestep: float = 700.0) -> torch.Tensor:
        inputs = ModelInputs(self.clean, self.text, self.noise, torch.tensor([timestep]), given, FPS)
        return FAMILY.loss(self.transformer, FAMILY.noise_schedule(self.folder, CPU), inputs)


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("ltx") / "text-0.9.5", "text-0.9.5")


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("ltx") / "text", "text")


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (GivenKind("first"), [(0, 1)]),
        (GivenKind("last"), [(32, 1)]),
        (GivenKind("first+last"), [(0, 1), (32, 1)]),
        (GivenKind("prefix", 17), [(0, 17)]),
        (GivenKind("suffix", 9), [(24, 9)]),
        (GivenKind("suffix", 25), [(8, 25)]),
        (GivenKind("keyframes", 3), [(0, 1), (16, 1), (32, 1)]),
    ],
    ids=str,
)
def test_a_video_equals_the_stock_pipelines(newer: Case, kind: GivenKind, parts: list[tuple[int, int]]) -> None:
    """Index 0 in the latents, other pictures as tokens, a later video's first two latent frames as tokens."""
    told = conditioning_of(kind, newer.video)
    assert conditions(told.known) == parts
    given = [
        LTXVideoCondition(image=pictures[0], frame_index=start)
        if count == 1
        else LTXVideoCondition(video=pictures, frame_index=start)
        for start, count in parts
        for pictures in (newer.pictures(start, count),)
    ]
    theirs = newer.stock(whole_pipeline(FAMILY, newer.model), given)
    torch.testing.assert_close(newer.generated(told), theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("known", "parts"),
    [
        ((0, 1, 2), [(0, 1), (1, 1), (2, 1)]),
        (tuple(range(12)), [(0, 9), (9, 1), (10, 1), (11, 1)]),
        (tuple(range(21, 33)), [(21, 1), (22, 1), (23, 1), (24, 9)]),
        (tuple(range(3, 20)), [*[(frame, 1) for frame in range(3, 11)], (11, 9)]),
    ],
)
def test_no_known_frame_is_left_out(known: tuple[int, ...], parts: list[tuple[int, int]]) -> None:
    """What the autoencoder does not take as a video is told as pictures."""
    assert conditions(known) == parts


def test_a_reference_equals_the_trainers_pipeline(newer: Case) -> None:
    """LTX-Video-Trainer's ltxv_pipeline.py (31b1273): [reference, frames, latents], the reference frozen at its own
    positions and sampled last; everything else is diffusers' LTXConditionPipeline."""

    class Trainers(diffusers.LTXConditionPipeline):
        def prepare_latents(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
            latents, mask, places, count = super().prepare_latents(*args, **kwargs)
            sampled = self.vae.encode(newer.reference).latent_dist.sample(kwargs["generator"])
            own = self._normalize_latents(sampled, self.vae.latents_mean, self.vae.latents_std)
            begin = self._scale_video_ids(self._prepare_video_ids(1, *own.shape[2:]), 32, 8, 0)
            own = self._pack_latents(own)
            more = own.shape[1]
            return (
                torch.cat([own, latents], dim=1),
                torch.cat([mask.new_ones(1, more), mask], dim=1),
                torch.cat([begin, places], dim=2),
                count + more,
            )

    pipeline = Trainers(**whole_pipeline(FAMILY, newer.model).components)
    pipeline.set_progress_bar_config(disable=True)
    given = [LTXVideoCondition(image=newer.pictures(at, 1)[0], frame_index=at) for at in (0, 32)]
    theirs = newer.stock(pipeline, given)
    told = conditioning_of(GivenKind("first+last"), newer.video).changed(reference=newer.reference)
    torch.testing.assert_close(newer.generated(told), theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("first", [False, True])
def test_the_loss_of_a_reference_equals_the_trainers(older: Case, first: bool) -> None:
    """ReferenceVideoTrainingStrategy of LTX-Video-Trainer (training_strategies.py, 31b1273), written down."""
    told = conditioning_of(GivenKind("first"), older.video) if first else Conditioning(FRAMES)
    given = older.told(told.changed(reference=older.reference))
    channels, frames, height, width = older.shape
    reference, target = given.tokens["extra"], older.clean.flatten(2).transpose(1, 2)
    noise, sigma, count = older.noise.flatten(2).transpose(1, 2), 0.7, target.shape[1]
    conditioned = torch.zeros(1, count, dtype=torch.bool)
    if first:
        assert given.known is not None
        conditioned[:, : height * width] = True
        target = target.clone()
        target[:, : height * width] = given.known[:, :, 0].flatten(2).transpose(1, 2)
    noisy = torch.where(conditioned[..., None], target, (1 - sigma) * target + sigma * noise)
    whole = torch.cat([torch.ones(1, reference.shape[1], dtype=torch.bool), conditioned], dim=1)
    times = torch.where(whole, 0.0, 1000 * sigma)
    grid = torch.meshgrid(*(torch.arange(size).float() for size in (frames, height, width)), indexing="ij")
    raw = torch.stack([axis.flatten() for axis in grid])[None].repeat(1, 1, 2)  # sequence_multiplier=2
    scaled = raw * torch.tensor([8 / FPS, 32.0, 32.0])[None, :, None]
    with torch.no_grad():
        predicted = older.transformer(
            torch.cat([reference, noisy], dim=1),
            older.text["prompt_embeds"],
            times,
            older.text["mask"],
            video_coords=scaled,
            return_dict=False,
        )[0][:, -count:]
        ours = older.loss(given)
    counted = (~conditioned[..., None]).float()
    error = (predicted - (noise - target)).square() * counted / counted.mean()
    torch.testing.assert_close(ours, error.mean()[None], rtol=1e-5, atol=1e-6)
    assert channels == target.shape[2]


def test_a_smaller_reference_has_its_positions_multiplied(newer: Case) -> None:
    small = torch.nn.functional.interpolate(newer.video, scale_factor=(1, 0.5, 0.5))
    given = newer.told(Conditioning(FRAMES, reference=small))
    places = given.tokens["places"]
    assert given.known is None
    assert given.tokens["extra"].shape == (1, 5, 8)  # one token a latent frame
    assert places.dtype == torch.int64
    assert places[0].T.tolist() == [[0, frame, 0, 0] for frame in range(5)]
    wide = torch.cat([small, small], dim=4)  # two tokens in a row: each stands for two of the clip's
    tensors = FAMILY.encode_conditioning(newer.vae, None, Conditioning(FRAMES, reference=wide))
    shape = (*newer.shape[:3], 2, 4)
    found = FAMILY.conditioning(tensors, shape, torch.Generator(), torch.float32).tokens["places"]
    assert found[0, 3].tolist() == [0, 64] * 5


def test_tokens_in_front_change_the_prediction_and_not_its_shape(newer: Case) -> None:
    """Positions stay whole numbers in bfloat16, which has none between 256 and 258."""
    plain, last = newer.loss(Given()), newer.loss(newer.told(conditioning_of(GivenKind("last"), newer.video)))
    assert plain.shape == last.shape == (1,)
    assert not torch.equal(plain, last)
    given = newer.told(conditioning_of(GivenKind("last"), newer.video)).to(CPU, torch.bfloat16)
    assert given.tokens["places"].dtype == torch.int64
    assert given.tokens["extra"].dtype == torch.bfloat16


@pytest.mark.parametrize("side", ["inside", "outside"])
def test_a_mask_tells_the_latents_whose_pixels_are_all_known(newer: Case, side: str) -> None:
    mask = torch.zeros(1, 1, FRAMES, SIZE, SIZE)
    mask[..., :33] = 1  # the left half and one column more
    given = newer.told(conditioning_of(GivenKind("mask", side=side), newer.video, mask))
    assert given.where is not None
    assert given.where[0, 0, :, 0].tolist() == [[side == "inside", False]] * 5
    moved = mask.clone()
    moved[:, :, 9:] = 0  # from latent frame 2 on
    given = newer.told(conditioning_of(GivenKind("mask", side="inside"), newer.video, moved))
    assert given.where is not None
    assert given.where[0, 0, :, 0, 0].tolist() == [True, True, False, False, False]


def test_known_latents_count_for_nothing_and_stand_clean(newer: Case) -> None:
    """As LTX-2's trainer (flexible.py): x = m clean + (1 - m) noisy, time (1 - m) sigma, loss mean(e^2 w) / mean(w)."""
    mask = torch.zeros(1, 1, FRAMES, SIZE, SIZE)
    mask[..., :32] = 1
    given = newer.told(conditioning_of(GivenKind("mask", side="inside"), newer.video, mask))
    seen: dict[str, torch.Tensor] = {}

    def keep(module: Any, args: Any, kwargs: Any) -> None:
        seen.update({name: kwargs[name] for name in ("hidden_states", "timestep")})

    hook = newer.transformer.register_forward_pre_hook(keep, with_kwargs=True)
    ours = newer.loss(given)
    hook.remove()
    assert given.known is not None
    assert given.where is not None
    known = given.where.expand_as(newer.clean)
    noisy = torch.where(known, given.known, 0.3 * newer.clean + 0.7 * newer.noise)
    torch.testing.assert_close(seen["hidden_states"], noisy.flatten(2).transpose(1, 2))
    torch.testing.assert_close(seen["timestep"], torch.where(given.where.flatten(1), 0.0, 700.0))
    with torch.no_grad():
        inputs = ModelInputs(newer.clean, newer.text, newer.noise, torch.tensor([700.0]), given, FPS)
        predicted = FAMILY.predict(newer.transformer, FAMILY.noise_schedule(newer.folder, CPU), inputs)
    error = (predicted - (newer.noise - newer.clean)).square()[~known]
    torch.testing.assert_close(ours, error.mean()[None], rtol=1e-5, atol=1e-6)


def test_what_a_model_cannot_be_told_is_refused_with_the_reason(newer: Case, older: Case) -> None:
    assert not any(FAMILY.refusal(newer.model, name) for name in (*NAMES, "reference"))
    assert "use it as the reference of an in-context LoRA" in FAMILY.refusal(newer.model, "control")
    assert not any(FAMILY.refusal(older.model, name) for name in ("first", "prefix", "reference"))
    assert "its pipeline takes no others" in FAMILY.refusal(older.model, "last")
    with pytest.raises(ConfigError, match="use it as the reference"):
        FAMILY.encode_conditioning(newer.vae, None, Conditioning(FRAMES, control=newer.video))

"""Conditioning of LTX-2, laid out as LTX2InContextPipeline and the authors' trainer do."""

from __future__ import annotations

import re
from typing import Any

import diffusers
import pytest
import torch
from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2VideoCondition
from diffusers.pipelines.ltx2.pipeline_ltx2_ic_lora import LTX2ReferenceCondition
from PIL import Image

from tests.families.ltx_case import CPU, FPS, FRAMES, SIZE, LtxCase
from tests.families.stock import whole_pipeline
from tests.families.test_ltx2_sound import modality_loss
from workbench.errors import ConfigError
from workbench.families.conditioning import NAMES, Conditioning, GivenKind, conditioning_of
from workbench.families.ltx2 import FAMILY, perturbed_block
from workbench.families.model_inputs import ModelInputs

STEPS = 3


class Case(LtxCase):
    """A miniature of LTX-2."""

    family, steps = FAMILY, STEPS

    def stock(self, scale: float, **told: Any) -> torch.Tensor:
        """The pipeline's latents, normalized, with every guidance or with none."""
        parts = whole_pipeline(FAMILY, self.model).components
        parts.pop("duration_head", None)
        pipeline = diffusers.LTX2InContextPipeline(**parts)
        pipeline.set_progress_bar_config(disable=True)
        off = {f"{of}{name}": 0.0 for of in ("", "audio_") for name in ("stg_scale", "guidance_rescale")}
        off |= {"modality_scale": 1.0, "audio_modality_scale": 1.0, "audio_guidance_scale": 1.0}
        block = perturbed_block(self.transformer.config)
        found = pipeline(
            **({"spatio_temporal_guidance_blocks": [block]} if scale > 1 else off),
            **told,
            prompt="a red circle",
            negative_prompt="the video",
            num_frames=FRAMES,
            height=SIZE,
            width=SIZE,
            frame_rate=FPS,
            num_inference_steps=STEPS,
            guidance_scale=scale,
            generator=torch.Generator().manual_seed(1),
            output_type="latent",
        )
        mean, std = FAMILY.latent_scale(self.vae)
        latents: torch.Tensor = (found.frames - mean) / std
        return latents


@pytest.fixture(scope="module", params=["text", "text-2.3"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("ltx2") / request.param, request.param)


@pytest.mark.parametrize("scale", [3.0, 1.0])
@pytest.mark.parametrize("smaller", [1, 2])
def test_a_video_with_a_reference_equals_the_stock_pipelines(case: Case, scale: float, smaller: int) -> None:
    """Noise, noise levels for the number of all tokens, positions, every guidance, and its rescaling."""
    frames = torch.stack([case.pixels[FRAMES - 1 - number] for number in range(FRAMES)])
    shown = (frames.permute(3, 0, 1, 2).float() / 127.5 - 1)[None]
    if smaller > 1:  # as large as it is given, so that nothing is scaled
        shown = shown[..., : SIZE // smaller, : SIZE // smaller]
    pictures = [
        Image.fromarray(((one.permute(1, 2, 0) + 1) * 127.5).round().to(torch.uint8).numpy())
        for one in shown[0].unbind(1)
    ]
    theirs = case.stock(
        scale, reference_conditions=[LTX2ReferenceCondition(frames=pictures)], reference_downscale_factor=smaller
    )
    ours = case.generated(Conditioning(FRAMES, reference=shown), scale)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("scale", [3.0, 1.0])
@pytest.mark.parametrize(
    ("known", "parts"),
    [
        ((0,), [(0, 1)]),
        (tuple(range(17)), [(0, 17)]),
        ((0, 9, 25), [(0, 1), (9, 1), (25, 1)]),
        (tuple(range(17, 26)), [(17, 9)]),
    ],
    ids=["first", "prefix", "keyframes", "a later video"],
)
def test_given_frames_equal_the_stock_pipelines(
    case: Case, known: tuple[int, ...], parts: list[tuple[int, int]], scale: float
) -> None:
    """The pipeline counts latent frames: its k-th is our frame 8 (k - 1) + 1."""
    given = [
        LTX2VideoCondition(frames=case.pictures(start, count), index=(start + 7) // 8, crf=0) for start, count in parts
    ]
    theirs = case.stock(scale, conditions=given)
    told = Conditioning(FRAMES, known, case.video)
    torch.testing.assert_close(case.generated(told, scale), theirs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("first", [False, True])
def test_the_loss_of_a_reference_equals_the_trainers(case: Case, first: bool) -> None:
    """flexible.py: the reference clean at time 0 with the target's positions, without loss; a first frame likewise."""
    told = conditioning_of(GivenKind("first"), case.video) if first else Conditioning(FRAMES)
    reference = case.video.flip(2)
    given = case.told(told.changed(reference=reference))
    extra = FAMILY.encode_video(case.vae, reference)["mean"].flatten(2).transpose(1, 2)
    _, frames, height, width = case.shape
    target, noise = (one.flatten(2).transpose(1, 2) for one in (case.clean, case.noise))
    sigma, count = 0.7, target.shape[1]
    conditioned = torch.zeros(1, count, dtype=torch.bool)
    conditioned[:, : height * width * first] = True
    noisy = torch.where(conditioned[..., None], target, (1 - sigma) * target + sigma * noise)
    times = torch.cat([torch.zeros(1, extra.shape[1]), torch.where(conditioned, 0.0, 1000 * sigma)], dim=1)
    places = case.transformer.rope.prepare_video_coords(1, frames, height, width, CPU, fps=FPS)
    with torch.no_grad():
        predicted = case.transformer(
            hidden_states=torch.cat([extra, noisy], dim=1),
            audio_hidden_states=torch.zeros(1, 1, 4),
            encoder_hidden_states=case.text["prompt_embeds"],
            audio_encoder_hidden_states=case.text["audio_embeds"][:, :1] * 0,
            timestep=times,
            audio_timestep=torch.tensor([1000 * sigma]),
            sigma=torch.tensor([1000 * sigma]),
            audio_sigma=torch.tensor([1000 * sigma]),
            num_frames=frames,
            height=height,
            width=width,
            fps=FPS,
            audio_num_frames=1,
            isolate_modalities=True,
            video_coords=places.repeat(1, 1, 2, 1),
            return_dict=False,
        )[0][:, -count:]
        inputs = ModelInputs(case.clean, case.text, case.noise, torch.tensor([1000 * sigma]), given, FPS)
        ours = FAMILY.loss(case.transformer, FAMILY.noise_schedule(case.folder, CPU), inputs)
    wanted = modality_loss(predicted, noise - target, ~conditioned)
    torch.testing.assert_close(ours, wanted, rtol=1e-6, atol=1e-6)


def test_the_sound_is_learned_beside_a_reference(case: Case) -> None:
    """Its loss sees the reference, through the picture's tokens, and both streams keep their shapes."""
    from tests.families.test_ltx2_sound import heard

    given = case.told(Conditioning(FRAMES, reference=case.video.flip(2)))
    sound = heard().rows(torch.tensor([0]))
    schedule = FAMILY.noise_schedule(case.folder, CPU)
    inputs = ModelInputs(case.clean, case.text, case.noise, torch.tensor([700.0]), None, FPS, sound)
    with torch.no_grad():
        plain = FAMILY.losses(case.transformer, schedule, inputs)
        told = FAMILY.losses(
            case.transformer,
            schedule,
            ModelInputs(case.clean, case.text, case.noise, torch.tensor([700.0]), given, FPS, sound),
        )
    for one, other in zip(plain, told, strict=True):
        assert one is not None
        assert other is not None
        assert one.shape == other.shape == (1,)
        assert not torch.equal(one, other)


@pytest.mark.parametrize("first", [False, True])
def test_the_cards_code_generates_with_a_reference_in_plain_diffusers(
    case: Case, first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ["reference", "first", "last"] if first else ["reference"]
    code = FAMILY.usage(
        case.model, case.folder, "lora.safetensors", "a red circle", (FRAMES, SIZE, SIZE), seed=1, kinds=told
    )
    assert ("`workbench sample` takes them with --last-image." in code) == first
    lines = [
        line
        for line in code.partition("\nencode_video(")[0].splitlines()
        if not line.startswith(("pipe.load_lora_weights", "pipe.set_adapters"))
    ]
    run = re.sub(r"num_inference_steps=\d+", f"num_inference_steps={STEPS}", "\n".join(lines))
    run = run.replace(f"frame_rate={case.model.fps:g}", f"frame_rate={FPS:g}")
    run = re.sub(r"negative_prompt='.*'", "negative_prompt='the video'", run)
    run = run.replace("    generator=torch", "    output_type='latent',\n    generator=torch")
    monkeypatch.setattr(diffusers.utils, "load_video", lambda name: case.pictures(0, FRAMES)[::-1])
    monkeypatch.setattr(diffusers.utils, "load_image", lambda name: case.pictures(0, 1)[0])
    names: dict[str, Any] = {}
    exec(run, names)
    mean, std = FAMILY.latent_scale(case.vae)
    shown = conditioning_of(GivenKind("first"), case.video) if first else Conditioning(FRAMES)
    ours = case.generated(shown.changed(reference=case.video.flip(2)), case.model.guidance_scale)
    torch.testing.assert_close(ours, (names["video"].frames - mean) / std, rtol=0, atol=1e-5)


def test_positions_stay_whole_numbers_in_low_precision(case: Case) -> None:
    given = case.told(conditioning_of(GivenKind("last"), case.video)).to(CPU, torch.bfloat16)
    assert given.tokens["places"].dtype == torch.int64
    assert given.tokens["places"][0, :2].unique(dim=-1).tolist() == [[32], [33]]  # the last frame alone
    assert given.tokens["extra"].dtype == torch.bfloat16


def test_a_control_video_is_refused_with_the_reason(case: Case) -> None:
    assert not any(FAMILY.refusal(case.model, name) for name in (*NAMES, "reference"))
    assert "use it as the reference of an in-context LoRA" in FAMILY.refusal(case.model, "control")
    with pytest.raises(ConfigError, match="use it as the reference"):
        FAMILY.encode_conditioning(case.vae, None, Conditioning(FRAMES, control=case.video))

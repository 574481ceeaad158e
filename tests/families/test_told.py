"""Given frames, masks and controls: how they are written, Wan's layouts, and the stock pipeline's videos."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.families.stock import whole_pipeline
from workbench.families.conditioning import NAMES, Conditioning, GivenKind, conditioning_of, drawn, largest, parse_given
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model_inputs import Given, ModelInputs
from workbench.families.wan import FAMILY
from workbench.workspace import read_json, write_json

CPU, STEPS, SIZE, FRAMES = torch.device("cpu"), 4, 32, 9

# ---- words


def test_lines_become_kinds_with_their_shares() -> None:
    shares = parse_given(["first 0.3", " first+last   .2", "prefix 5 0.1", "keyframes 3 0.1", "mask 0.1"])
    assert [str(one.kind) for one in shares] == ["first", "first+last", "prefix 5", "keyframes 3", "mask outside"]
    assert [one.share for one in shares] == [0.3, 0.2, 0.1, 0.1, 0.1]
    assert largest(shares) == GivenKind("first")
    assert [str(drawn(shares, chance)) for chance in (0.0, 0.29, 0.31, 0.79, 0.81)] == [
        *("first", "first", "first+last", "mask outside", "None"),
    ]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["frist 0.3"], "write KIND SHARE"),
        (["prefix 0.3"], "write KIND SHARE"),
        (["keyframes 2 0.3"], "write KIND SHARE"),
        (["mask above 0.3"], "write KIND SHARE"),
        (["first 3"], "above 0 and at most 1"),
        (["first 0"], "above 0 and at most 1"),
        (["first 0.3", "first 0.1"], "given has first twice"),
        (["first 0.7", "last 0.4"], "adds up to 1.1"),
    ],
)
def test_a_wrong_line_is_refused_with_a_sentence(lines: list[str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_given(lines)


@pytest.mark.parametrize(
    ("kind", "frames"),
    [
        (GivenKind("first"), (0,)),
        (GivenKind("last"), (8,)),
        (GivenKind("first+last"), (0, 8)),
        (GivenKind("prefix", 5), (0, 1, 2, 3, 4)),
        (GivenKind("suffix", 5), (4, 5, 6, 7, 8)),
        (GivenKind("keyframes", 3), (0, 4, 8)),
    ],
)
def test_a_kind_names_its_frames(kind: GivenKind, frames: tuple[int, ...]) -> None:
    assert kind.frames(9) == frames
    assert kind.leaves_something(9)
    assert not kind.leaves_something(1)


def test_a_mask_tells_whole_pixels_of_its_side() -> None:
    video, mask = torch.ones(1, 3, 2, 2, 2), torch.zeros(1, 1, 2, 2, 2)
    mask[..., 0, 0] = 0.7
    outside, inside = (
        conditioning_of(GivenKind("mask", side=side), video, mask).shown for side in ("outside", "inside")
    )
    assert outside is not None
    assert inside is not None
    assert outside[0, 0, 0].tolist() == [[0, 1], [1, 1]]
    assert torch.equal(inside, 1 - outside)


# ---- Wan


class Case:
    """A miniature, its parts, and a clip."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.model = folder, FAMILY.toy(folder, variant)
        self.transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
        self.vae = FAMILY.load_vae(folder, CPU, torch.float32)
        self.image_encoder = FAMILY.load_image_encoder(folder, CPU, torch.float32)
        self.encoder = FAMILY.load_text_encoder(folder, CPU, torch.float32)
        draw, size = torch.Generator().manual_seed(0), self.model.height
        self.pixels = torch.randint(0, 256, (FRAMES, size, size, 3), generator=draw, dtype=torch.uint8)
        self.video = (self.pixels.permute(3, 0, 1, 2).float() / 127.5 - 1)[None]
        self.shape = FAMILY.latents_shape(folder, FRAMES, size, size)
        self.noise = torch.randn(1, *self.shape, generator=draw)

    def told(self, told: Conditioning) -> Given:
        tensors = FAMILY.encode_conditioning(self.vae, self.image_encoder, told)
        return FAMILY.conditioning(tensors, self.shape, torch.Generator(), torch.float32)

    def picture(self, frame: int) -> Image.Image:
        return Image.fromarray(self.pixels[frame].numpy())

    def first_and_last(self, pipeline: Any, **more: Any) -> torch.Tensor:
        """Generate latents between the clip's first and last frame with the stock pipeline."""
        latents: torch.Tensor = pipeline(
            image=self.picture(0),
            last_image=self.picture(-1),
            prompt="a red circle",
            negative_prompt="the video",
            num_frames=FRAMES,
            height=SIZE,
            width=SIZE,
            num_inference_steps=STEPS,
            guidance_scale=3.0,
            generator=torch.Generator().manual_seed(1),
            output_type="latent",
            **more,
        ).frames
        return latents

    def generated(self, given: Given | None) -> torch.Tensor:
        inputs = DenoiseInputs(
            self.folder,
            FAMILY.encode_text(self.encoder, ["a red circle"]),
            FAMILY.encode_text(self.encoder, ["the video"]),
            self.shape,
            STEPS,
            Guidance(3.0),
            torch.Generator().manual_seed(1),
            given=given,
            sequential_guidance=True,
        )
        return FAMILY.denoise(self.transformer, inputs)


@pytest.mark.parametrize("variant", ["image-2.1", "image-flf", "a14b-image"])
def test_first_and_last_frame_equal_the_stock_pipeline(tmp_path: Path, variant: str) -> None:
    """2.1 as diffusers is once CLIP is shown what the model card's code shows it."""
    case = Case(tmp_path, variant)
    if variant == "image-flf":  # its positions start as zeros
        with torch.no_grad():
            case.transformer.condition_embedder.image_embedder.pos_embed.normal_(generator=torch.Generator())
    stock = whole_pipeline(FAMILY, case.model)
    stock.register_modules(transformer=case.transformer)
    if case.model.boundary:
        stock.register_modules(transformer_2=case.transformer)
    theirs = case.first_and_last(stock)
    ours = case.generated(case.told(conditioning_of(GivenKind("first+last"), case.video)))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_a_mask_is_told_where_all_pixels_of_a_latent_are_known(tmp_path: Path) -> None:
    case = Case(tmp_path, "a14b-image")
    mask = torch.zeros(1, 1, FRAMES, SIZE, SIZE)
    mask[:, :, 0, 3, 12] = mask[:, :, 8, 31, 31] = 1
    beside = case.told(conditioning_of(GivenKind("mask"), case.video, mask)).beside
    assert beside is not None
    unknown = (beside[0, :4] == 0).nonzero().tolist()
    assert unknown == [*([channel, 0, 0, 1] for channel in range(3)), [3, 0, 0, 1], [3, 2, 3, 3]]


def test_what_a_transformer_is_not_told_is_zero_on_its_channels(tmp_path: Path) -> None:
    """52 channels: noise, control, mask, given frames, as assets/train_tiny_wan.py trains them."""
    case, seen = Case(tmp_path, "control"), []
    case.transformer.register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["hidden_states"]), with_kwargs=True
    )
    schedule, text = FAMILY.noise_schedule(tmp_path, CPU), FAMILY.encode_text(case.encoder, ["a red circle"])
    control, first = Conditioning(FRAMES, control=case.video), conditioning_of(GivenKind("first"), case.video)
    both = first.changed(control=case.video)
    for told in (None, control, first, both):
        given = Given() if told is None else case.told(told)
        inputs = ModelInputs(case.noise, text, case.noise, torch.tensor([500.0]), given)
        with torch.no_grad():
            assert FAMILY.loss(case.transformer, schedule, inputs).isfinite().all()
    latents = FAMILY.encode_video(case.vae, case.video)["mean"]
    shown = FAMILY.encode_video(case.vae, conditioning_of(GivenKind("first"), case.video).shown)["mean"]
    for inputs, controlled, told_first in zip(seen, (0, 1, 0, 1), (0, 0, 1, 1), strict=True):
        assert inputs.shape[1] == 52
        torch.testing.assert_close(inputs[:, 16:32], controlled * latents)
        torch.testing.assert_close(inputs[:, 36:], told_first * shown)
        assert inputs[:, 32:36].sum() == told_first * 4 * 16
    assert case.generated(None).isfinite().all()
    assert not torch.equal(case.generated(None), case.generated(case.told(control)))


def test_a_small_model_that_knows_all_of_it_equals_the_stock_pipeline(tmp_path: Path) -> None:
    """As assets/train_tiny_wan.py writes one: 52 channels, Euler's scheduler, captions of 16 tokens; the pipeline is
    changed as the model card says."""
    from diffusers import FlowMatchEulerDiscreteScheduler

    case = Case(tmp_path, "control")
    FlowMatchEulerDiscreteScheduler(shift=3.0).save_pretrained(tmp_path / "scheduler")
    path = tmp_path / "model_index.json"
    write_json(path, {**read_json(path), "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]})
    path = tmp_path / "tokenizer" / "tokenizer_config.json"
    write_json(path, {**read_json(path), "model_max_length": 16})
    case.encoder = FAMILY.load_text_encoder(tmp_path, CPU, torch.float32)
    given = case.told(conditioning_of(GivenKind("first+last"), case.video))
    ours = case.generated(given)
    assert FAMILY.facts(case.model).text_tokens == 16

    stock = whole_pipeline(FAMILY, case.model)
    code = FAMILY.usage(
        case.model, tmp_path, "x.safetensors", "a", (FRAMES, SIZE, SIZE), kinds=["first+last", "control"]
    )
    assert "max_sequence_length=16" in code
    assert "this pipeline does not take: control" in code
    exec(code[code.index("kept = [") : code.index("# The LoRA was also trained")], {"pipe": stock})
    theirs = case.first_and_last(stock, max_sequence_length=16)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)


def test_other_layouts_of_fun_control(tmp_path: Path) -> None:
    """32 channels: control alone; 48: control, then the first frame's latents without a mask."""
    case = Case(tmp_path, "control")
    given = case.told(conditioning_of(GivenKind("first"), case.video).changed(control=case.video))
    assert given.beside is not None
    for channels, parts in ((32, [given.tokens["control"]]), (48, [given.tokens["control"], given.beside[:, 4:]])):
        case.transformer.register_to_config(in_channels=channels)
        joined = FAMILY.joined(case.transformer, case.noise, given)
        assert joined.shape[1] == channels
        if channels == 48:
            assert not joined[:, 32:, 1:].any()
            joined, parts[1] = joined[:, :, :1], parts[1][:, :, :1]
        torch.testing.assert_close(joined[:, 16:], torch.cat([one[:, :, : joined.shape[2]] for one in parts], dim=1))


def can(model: Any) -> set[str]:
    return {name for name in (*NAMES, "control", "nothing") if not FAMILY.refusal(model, name)}


def test_a_model_says_what_it_can_be_told(tmp_path: Path) -> None:
    made = {
        variant: FAMILY.toy(tmp_path / variant, variant)
        for variant in ("text", "image-2.1", "image-flf", "5b", "5b-image", "a14b-image", "control")
    }
    assert can(made["text"]) == {"nothing"}
    assert can(made["image-2.1"]) == can(made["a14b-image"]) == set(NAMES)
    assert can(made["image-flf"]) == {"first+last", "keyframes"}
    assert can(made["5b"]) == {"first", "prefix", "nothing"}
    assert can(made["5b-image"]) == {"first", "prefix"}
    assert can(made["control"]) == {*NAMES, "control", "nothing"}
    assert "diffusers takes a last frame for it and ignores it" in FAMILY.refusal(made["5b-image"], "last")
    assert "choose a Fun-Control model" in FAMILY.refusal(made["a14b-image"], "control")
    assert "given" not in FAMILY.own_settings(made["text"])
    assert {"given", "control"} <= FAMILY.own_settings(made["control"]).keys()
    published = {model.id: can(model) for model in FAMILY.models}
    assert published["wan2.1-t2v-14b"] == {"nothing"}
    assert published["wan2.1-i2v-14b-480p"] == published["wan2.2-i2v-a14b"] == set(NAMES)
    assert published["wan2.1-fun-1.3b-inp"] == set(NAMES)
    assert published["wan2.1-flf2v-14b-720p"] == {"first+last", "keyframes"}
    assert published["wan2.2-ti2v-5b-image"] == {"first", "prefix"}

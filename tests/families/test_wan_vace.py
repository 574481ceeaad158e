"""Wan VACE: the stock pipeline's videos for every condition, the published training objective, layer names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.families.lora_changes import pairs_on
from tests.families.stock import whole_pipeline
from workbench.errors import ConfigError
from workbench.families.conditioning import BESIDE, NAMES, NOTHING, Conditioning, GivenKind, conditioning_of, on_white
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.lora_names import check_fit
from workbench.families.model_inputs import Given, ModelInputs
from workbench.families.wan import FAMILY

CPU, FRAMES, SIZE, STEPS = torch.device("cpu"), 9, 32, 4


class Case:
    """The miniature, its parts, a clip, and what may be told of it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.model = folder, FAMILY.toy(folder, "vace")
        self.transformer = FAMILY.load_transformer(folder, CPU, torch.float32)
        with torch.no_grad():  # random outputs of the side branch are too small to matter
            for block in self.transformer.vace_blocks:
                block.proj_out.weight.mul_(20)
        self.transformer.save_pretrained(folder / "transformer")
        self.vae = FAMILY.load_vae(folder, CPU, torch.float32)
        self.encoder = FAMILY.load_text_encoder(folder, CPU, torch.float32)
        draw = torch.Generator().manual_seed(0)
        size = (2, 3, FRAMES, SIZE, SIZE)
        self.video, self.control = (torch.rand(size, generator=draw) * 2 - 1 for _ in range(2))
        self.mask = torch.zeros(1, 1, FRAMES, SIZE, SIZE)
        self.mask[..., 8:20, 5:17] = 1
        picture = (torch.rand(1, 3, 1, 40, 24, generator=draw) * 255).round() / 127.5 - 1
        self.reference = ((on_white(picture, SIZE, SIZE) + 1) * 127.5).round() / 127.5 - 1  # as a file has it
        self.shape = FAMILY.latents_shape(folder, FRAMES, SIZE, SIZE)
        self.noise = torch.randn(2, *self.shape, generator=draw)

    def ways(self, count: int = 1) -> dict[str, Conditioning]:
        """What `count` clips are told, by name."""
        video, control = self.video[:count], self.control[:count]
        first = conditioning_of(GivenKind("first"), video)
        reference, mask = (one.expand(count, -1, -1, -1, -1) for one in (self.reference, self.mask))
        return {
            "nothing": Conditioning(FRAMES, video=torch.zeros_like(video)),
            "first": first,
            "last": conditioning_of(GivenKind("last"), video),
            "first+last": conditioning_of(GivenKind("first+last"), video),
            "prefix": conditioning_of(GivenKind("prefix", 5), video),
            "suffix": conditioning_of(GivenKind("suffix", 4), video),
            "keyframes": conditioning_of(GivenKind("keyframes", 3), video),
            "mask outside": conditioning_of(GivenKind("mask", side="outside"), video, mask),
            "mask inside": conditioning_of(GivenKind("mask", side="inside"), video, mask),
            "control": Conditioning(FRAMES, control=control),
            "control behind a first frame": first.changed(control=control),
            "reference": Conditioning(FRAMES, video=torch.zeros_like(video), reference=reference),
            "reference, control and a mask": conditioning_of(GivenKind("mask", side="outside"), video, mask).changed(
                control=control, reference=reference
            ),
        }

    def told(self, told: Conditioning, training: bool = False) -> Given:
        tensors = FAMILY.encode_conditioning(self.vae, FAMILY.load_image_encoder(self.folder, CPU, torch.float32), told)
        noise = torch.Generator().manual_seed(5)
        if training:
            return FAMILY.conditioning(tensors, self.shape, noise, torch.float32)
        return FAMILY.conditioning_to_sample(self.folder, tensors, self.shape, noise, torch.float32)

    def generated(self, given: Given | None, scale: float = 1.0, **more: Any) -> torch.Tensor:
        text, negative = (FAMILY.encode_text(self.encoder, [one]) for one in ("a red circle", "the video"))
        inputs = DenoiseInputs(
            self.folder,
            text,
            negative,
            self.shape,
            STEPS,
            Guidance(3.0),
            torch.Generator().manual_seed(1),
            given=given,
            sequential_guidance=True,
            conditioning_scale=scale,
            **more,
        )
        return FAMILY.denoise(self.transformer, inputs)

    def by_the_pipeline(self, told: Conditioning, scale: float, output: str = "latent") -> Any:
        known = torch.zeros(1, 1, FRAMES, SIZE, SIZE) if told.mask is None else told.mask
        known[:, :, list(told.known)] = 1
        shown = torch.zeros(1, 3, FRAMES, SIZE, SIZE) if told.shown is None else told.shown
        if told.control is not None:
            shown = shown + told.control * (1 - known)
        more: dict[str, Any] = {}
        if told.reference is not None:
            pixels = ((told.reference[0, :, 0] + 1) * 127.5).round().byte()
            more["reference_images"] = Image.fromarray(pixels.permute(1, 2, 0).numpy())
        return self.stock(
            video=(shown / 2 + 0.5).permute(0, 2, 3, 4, 1).numpy(),
            mask=(1 - known).expand(-1, 3, -1, -1, -1).permute(0, 2, 3, 4, 1).numpy(),
            conditioning_scale=scale,
            output_type=output,
            **more,
        )

    def stock(self, **told: Any) -> Any:
        """What the stock pipeline generates, latents unless `output_type` says otherwise."""
        pipeline = whole_pipeline(FAMILY, self.model)
        pipeline.register_modules(transformer=self.transformer)
        usual = {"output_type": "latent", "generator": torch.Generator().manual_seed(1)}
        return pipeline(
            prompt="a red circle",
            negative_prompt="the video",
            num_frames=FRAMES,
            height=SIZE,
            width=SIZE,
            num_inference_steps=STEPS,
            guidance_scale=3.0,
            **{**usual, **told},
        ).frames


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("vace"))


WAYS = (
    *("nothing", "first", "last", "first+last", "prefix", "suffix", "keyframes", "mask outside", "mask inside"),
    *("control", "control behind a first frame", "reference", "reference, control and a mask"),
)


@pytest.mark.parametrize("way", WAYS)
def test_what_is_told_equals_the_stock_pipeline(case: Case, way: str) -> None:
    told = case.ways()[way]
    for scale in (1.0, 0.5):
        ours, theirs = case.generated(case.told(told), scale), case.by_the_pipeline(told, scale)
        front = theirs.shape[2] - ours.shape[2]
        assert front == (told.reference is not None)
        torch.testing.assert_close(ours, theirs[:, :, front:], rtol=0, atol=1e-5)


def test_no_video_in_the_pipeline_is_a_gray_one_here(case: Case) -> None:
    ours, theirs = case.generated(case.told(case.ways()["nothing"])), case.stock()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-5)
    with pytest.raises(ConfigError, match="needs conditioning"):
        case.generated(None)


def published_loss(case: Case, told: Conditioning, share: torch.Tensor, noise: torch.Tensor | None) -> torch.Tensor:
    """As VideoX-Fun's trainer computes it: the pictures' latents in front of the clip's, all noised, all counted.

    noise: of the pictures
    """

    def encoded(pixels: torch.Tensor) -> torch.Tensor:
        scale = (case.vae.config.latents_mean, case.vae.config.latents_std)
        center, spread = (torch.tensor(one).view(1, -1, 1, 1, 1) for one in scale)
        with torch.no_grad():
            found: torch.Tensor = (case.vae.encode(pixels).latent_dist.mode() - center) / spread
        return found

    video = case.video
    known = torch.zeros(2, 1, FRAMES, SIZE, SIZE) if told.mask is None else told.mask.expand(2, -1, -1, -1, -1).clone()
    known[:, :, list(told.known)] = 1
    made = 1 - known
    pixels = (torch.zeros_like(video) if told.video is None else told.video) * known
    if told.control is not None:
        pixels = pixels + told.control * made
    context = torch.cat([encoded(pixels * (1 - made)), encoded(pixels * made)], dim=1)
    cells = torch.stack([made[:, 0, :, down::8, right::8] for down in range(8) for right in range(8)], dim=1)
    of_frames = torch.nn.functional.interpolate(torch.arange(9.0)[None, None], 3, mode="nearest-exact")[0, 0].long()
    context = torch.cat([context, cells[:, :, of_frames]], dim=1)
    latents, all_noise = encoded(video), case.noise
    if told.reference is not None:
        assert noise is not None
        picture = encoded(told.reference)
        front = torch.cat([picture, torch.zeros(2, 16 + 64, *picture.shape[2:])], dim=1)
        context, latents = torch.cat([front, context], dim=2), torch.cat([picture, latents], dim=2)
        all_noise = torch.cat([noise, all_noise], dim=2)
    s = share.view(-1, 1, 1, 1, 1)
    text = FAMILY.encode_text(case.encoder, ["a red circle", "a blue square"])["prompt_embeds"]
    with torch.no_grad():
        predicted = case.transformer(
            (1 - s) * latents + s * all_noise, 1000 * share, text, control_hidden_states=context, return_dict=False
        )[0]
    return (predicted - (all_noise - latents)).square().flatten(1).mean(1)


@pytest.mark.parametrize("way", ["nothing", "first", "mask outside", "control", "reference, control and a mask"])
def test_the_loss_equals_its_definition(case: Case, way: str) -> None:
    told, share = case.ways(2)[way], torch.tensor([0.3, 0.9])
    latents = FAMILY.encode_video(case.vae, case.video)["mean"]
    text = FAMILY.encode_text(case.encoder, ["a red circle", "a blue square"])
    given = case.told(told, training=True)
    inputs = ModelInputs(latents, text, case.noise, 1000 * share, given)
    schedule = FAMILY.noise_schedule(case.folder, CPU)
    with torch.no_grad():
        ours = FAMILY.loss(case.transformer, schedule, inputs)
        predicted = FAMILY.predict(case.transformer, schedule, inputs)
    theirs = published_loss(case, told, share, given.tokens.get("vace reference noise"))
    torch.testing.assert_close(ours, theirs, rtol=1e-6, atol=1e-6)
    assert predicted.shape == latents.shape
    weights = torch.ones(2, 1, *case.shape[1:])
    with torch.no_grad():  # the clip's own frames alone
        masked = FAMILY.loss(case.transformer, schedule, inputs, weights=weights)
    torch.testing.assert_close(masked, (predicted - (case.noise - latents)).square().flatten(1).mean(1))


def test_a_clip_goes_on_behind_its_reference(case: Case) -> None:
    """A prefix and a clip to change keep their place, and what steps report has the clip's frames alone."""
    given, shapes = case.told(case.ways()["reference"]), []
    prefix = FAMILY.encode_video(case.vae, case.video[:1, :, :5])["mean"]
    made = case.generated(given, prefix=prefix, on_step=lambda done, steps, clean: shapes.append(clean.shape))
    assert torch.equal(made[:, :, :2], prefix)
    assert set(shapes) == {(1, *case.shape)}
    source = FAMILY.encode_video(case.vae, case.video[:1])["mean"]
    near = case.generated(given, source=source, strength=0.25)
    assert (near - source).abs().mean() < (case.generated(given) - source).abs().mean()


def test_facts_and_what_it_can_be_told(case: Case) -> None:
    for model in (case.model, *(one for one in FAMILY.models if "vace" in one.id)):
        assert not any(FAMILY.refusal(model, kind) for kind in (*NAMES, *BESIDE, NOTHING))
        assert FAMILY.joins_conditioning(model)
        own = FAMILY.own_settings(model)
        assert {"given", "control", "reference", "mask", "conditioning_scale"} <= own.keys()
        assert "reference_downscale" not in own
    small, large = (FAMILY.facts(one) for one in FAMILY.models if "vace" in one.id)
    assert (small.all_blocks, large.all_blocks) == (30 + 15, 40 + 8)
    assert (round(small.values / 1e9, 2), round(large.values / 1e9, 2)) == (2.15, 17.34)
    assert small.reference_frames == 1
    assert not small.given_bytes
    toy = FAMILY.facts(case.model)
    assert [type(block).__name__ for block in FAMILY.all_blocks(case.transformer)] == [
        *["WanVACETransformerBlock"] * 2,
        *["WanTransformerBlock"] * 3,
    ]
    assert (toy.blocks, toy.all_blocks) == (3, 5)


# ---- LoRAs


@pytest.mark.parametrize(
    ("spelling", "layer"),
    [
        ("diffusion_model.vace_blocks.3.self_attn.q", "vace_blocks.3.attn1.to_q"),  # ComfyUI
        ("vace_blocks.3.cross_attn.o", "vace_blocks.3.attn2.to_out.0"),  # DiffSynth
        ("pipe.vace.vace_blocks.3.ffn.2", "vace_blocks.3.ffn.net.2"),  # the same with its prefix
        ("lora_unet__vace_blocks_12_ffn_0", "vace_blocks.12.ffn.net.0.proj"),  # VideoX-Fun
        ("lora_unet_vace_blocks_0_before_proj", "vace_blocks.0.proj_in"),
        ("transformer.vace_blocks.0.proj_out", "vace_blocks.0.proj_out"),
        ("transformer.blocks.3.attn2.to_out.0", "blocks.3.attn2.to_out.0"),
        ("diffusion_model.vace_patch_embedding", "vace_patch_embedding"),
        ("diffusion_model.vace_blocks.0.strange", None),
    ],
)
def test_names_of_the_side_branch_are_known(spelling: str, layer: str | None) -> None:
    assert FAMILY.layer_names.layer_of(spelling) == layer
    if layer is not None:
        assert FAMILY.layer_names.layer_of(FAMILY.layer_names.authors_name(layer) or "") == layer


def test_a_lora_of_plain_wan_fits_its_own_blocks_and_not_the_other_way_round(case: Case, tmp_path: Path) -> None:
    plain = FAMILY.load_transformer(Path(FAMILY.toy(tmp_path, "text").source), CPU, torch.float32)
    sizes = [
        {
            name: tuple(module.weight.shape)
            for name, module in one.named_modules()
            if isinstance(module, torch.nn.Linear)
        }
        for one in (case.transformer, plain)
    ]
    of_plain = FAMILY.lora_weights({f"transformer.{name}": one for name, one in pairs_on(plain, "blocks").items()}, {})
    assert check_fit("it", of_plain, sizes[0], "VACE") == {}
    of_side = pairs_on(case.transformer, "vace_blocks")
    side = FAMILY.lora_weights({f"transformer.{name}": one for name, one in of_side.items()}, {})
    with pytest.raises(ConfigError, match=r"0 of its 23 layers match, .*vace_blocks.*: a layer that the model lacks"):
        check_fit("it", side, sizes[1], "plain Wan")


# ---- the card


@pytest.mark.parametrize(
    "told",
    [[], ["first"], ["first+last", "last"], ["mask", "control"], ["keyframes"], ["prefix"], ["suffix", "reference"]],
)
def test_the_cards_code_tells_the_pipeline_what_samples_are_told(
    case: Case, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs everything but loading the LoRA and writing the video."""
    import diffusers

    frames = [Image.fromarray(np.full((SIZE, SIZE, 3), 20 * number, np.uint8)) for number in range(FRAMES)]
    clips = {"video.mp4": frames, "control.mp4": frames[::-1], "before.mp4": frames[:5], "after.mp4": frames[-4:]}
    half = np.zeros((SIZE, SIZE, 3), np.uint8)
    half[:, 16:] = 255
    clips["mask.mp4"] = [Image.fromarray(half)] * FRAMES
    pictures = {"first_frame.png": frames[0], "last_frame.png": frames[-1], "reference.png": frames[4]}
    monkeypatch.setattr(diffusers.utils, "load_video", lambda path: clips[path])
    monkeypatch.setattr(diffusers.utils, "load_image", lambda path: pictures[path])
    code = FAMILY.usage(case.model, case.folder, "x.safetensors", "a red circle", (FRAMES, SIZE, SIZE), kinds=told)
    assert "pipe = WanVACEPipeline.from_pretrained" in code
    lines = [line for line in code.splitlines() if "lora" not in line and "export_to_video(" not in line]
    names: dict[str, Any] = {}
    code = "\n".join(lines).replace(").frames[0]", 'output_type="latent").frames').replace("steps=50", "steps=2")
    exec(code, names)
    clip = torch.from_numpy(np.stack([np.asarray(one) for one in frames])).permute(3, 0, 1, 2)[None].float() / 127.5 - 1
    kinds = {
        "first": GivenKind("first"),
        "first+last": GivenKind("first+last"),
        "keyframes": GivenKind("first+last"),
        "prefix": GivenKind("prefix", 5),
        "suffix": GivenKind("suffix", 4),
        "mask": GivenKind("mask", side="outside"),
    }
    what = Conditioning(FRAMES, video=torch.zeros_like(clip))
    if told:
        mask = torch.zeros(1, 1, FRAMES, SIZE, SIZE)
        mask[..., 16:] = 1
        what = conditioning_of(kinds[told[0]], clip, mask)
    what = what.changed(control=clip.flip(2)) if "control" in told else what
    what = what.changed(reference=clip[:, :, 4:5]) if "reference" in told else what
    text, negative = (FAMILY.encode_text(case.encoder, [one]) for one in ("a red circle", case.model.negative_prompt))
    inputs = DenoiseInputs(
        case.folder,
        text,
        negative,
        case.shape,
        2,
        Guidance(case.model.guidance_scale),
        torch.Generator().manual_seed(0),
        given=case.told(what),
        sequential_guidance=True,
    )
    ours = FAMILY.denoise(case.transformer, inputs)
    torch.testing.assert_close(ours, names["video"][:, :, -ours.shape[2] :], rtol=0, atol=1e-4)

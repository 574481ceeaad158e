"""HunyuanVideo 1.5: the published definition of its loss, the stock pipelines' videos from text and from a first frame,
quoted text, padding, and LoRA files of its authors, ComfyUI and musubi-tuner."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from tests.families.lora_changes import changes, lora_on, same
from tests.families.stock import picture_of, whole_pipeline
from workbench import hub
from workbench.errors import ConfigError
from workbench.families.denoising import DenoiseInputs, Guidance, StepOptions
from workbench.families.hunyuan15 import ENDS, FAMILY, MODELS
from workbench.families.model_files import config, wanted_files
from workbench.families.model_inputs import Given, ModelInputs
from workbench.form_rules import summary
from workbench.workspace import read_object, write_json

CPU, STEPS = torch.device("cpu"), 4
CAPTIONS = ['a red circle, with the words "go left" and “stop”', "a blue square moves left"]
TIMESTEPS = torch.tensor([300.0, 900.0])


class Case:
    """A miniature, its parts, and two clips with captions of different lengths, of which one quotes text."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder = folder
        self.model = FAMILY.toy(folder, variant)
        self.transformer = self.loaded("stock")
        self.vae = FAMILY.load_vae(folder, CPU, torch.float32)
        self.encoder = FAMILY.load_text_encoder(folder, CPU, torch.float32)
        self.eyes = FAMILY.load_image_encoder(folder, CPU, torch.float32)
        draw = torch.Generator().manual_seed(0)
        self.video = torch.rand(2, 3, 9, 32, 32, generator=draw) * 2 - 1
        self.shape = FAMILY.latents_shape(folder, 9, 32, 32)
        self.posterior, self.noise = (torch.randn(2, *self.shape, generator=draw) for _ in range(2))
        self.latents = FAMILY.sample_latents(FAMILY.encode_video(self.vae, self.video), self.posterior)
        self.text = FAMILY.encode_text(self.encoder, CAPTIONS)
        self.image = None if self.eyes is None else self.seen(self.video[:, :, 0])

    def seen(self, pictures: torch.Tensor) -> Any:
        return FAMILY.encode_image(self.vae, self.eyes, pictures, 9, "pipeline")

    def loaded(self, kernel: str) -> Any:
        transformer = FAMILY.load_transformer(self.folder, CPU, torch.float32)
        FAMILY.use_attention(transformer, kernel, CPU)
        return transformer

    def given(self, kept: torch.Tensor | None = None) -> Given | None:
        return None if self.image is None else FAMILY.given(self.image, torch.empty(0), self.shape, kept)

    def loss(self, transformer: Any, text: Any, given: Given | None = None, row: int | None = None) -> torch.Tensor:
        inputs = ModelInputs(self.latents, text, self.noise, TIMESTEPS, given)
        if row is not None:
            inputs = inputs.rows(torch.tensor([row]))
        return FAMILY.loss(transformer, FAMILY.noise_schedule(self.folder, CPU), inputs)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("hunyuan15") / "text", "text")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("hunyuan15") / "image", "image")


@pytest.mark.parametrize("variant", ["text", "image"])
def test_the_loss_is_that_of_the_authors_trainer(variant: str, request: pytest.FixtureRequest) -> None:
    """train.py restated, in diffusers' classes: scaled latents of the posterior, the condition of get_condition (a
    first frame and a mask, or zeros), vision states or none, against noise - latents."""
    case = request.getfixturevalue(variant)
    posterior = case.vae.encode(case.video).latent_dist
    z = (posterior.mean + posterior.std * case.posterior) * case.vae.config.scaling_factor
    torch.testing.assert_close(case.latents, z, rtol=1e-5, atol=1e-5)
    text, t = case.text, (TIMESTEPS / 1000).view(-1, 1, 1, 1, 1)
    condition = torch.zeros(2, 5, *case.shape[1:])
    states = torch.zeros(2, 729, 32)
    if variant == "image":
        condition[:, :-1, :1] = (
            case.vae.encode(case.video[:, :, :1]).latent_dist.mode() * case.vae.config.scaling_factor
        )
        condition[:, -1, 0] = 1
        states = case.image["image"]
    with torch.no_grad():
        predicted = case.transformer(
            hidden_states=torch.cat([(1 - t) * case.latents + t * case.noise, condition], dim=1),
            timestep=TIMESTEPS,
            encoder_hidden_states=text["prompt_embeds"],
            encoder_attention_mask=text["mask"],
            encoder_hidden_states_2=text["prompt_embeds_2"],
            encoder_attention_mask_2=text["mask_2"],
            image_embeds=states,
            return_dict=False,
        )[0]
        target = case.noise - case.latents
        theirs = torch.stack([functional.mse_loss(*pair) for pair in zip(predicted, target, strict=True)])
        for kernel in ("stock", "auto", "math"):
            ours = case.loss(case.loaded(kernel), text, case.given())
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_noise_levels_are_logit_normal_and_shifted_by_three() -> None:
    quantiles = torch.tensor([0.1, 0.5, 0.9])
    share = torch.special.ndtri(quantiles).sigmoid()
    found = FAMILY.noise_schedule(Path(), CPU).timesteps(quantiles, (32, 3, 4, 4))
    torch.testing.assert_close(found, 1000 * 3 * share / (1 + 2 * share))


@pytest.fixture(scope="module")
def few_steps(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("hunyuan15") / "few-steps", "image-few-steps")


def test_a_model_for_few_steps_is_told_where_a_step_ends_and_trains_at_its_own_level(few_steps: Case) -> None:
    """MeanFlow: the prediction for a step that ends where it begins is the velocity."""
    assert (few_steps.model.steps, few_steps.model.distilled) == (12, "steps")
    assert "Train on hunyuanvideo1.5-i2v-480p" in few_steps.model.distillation
    given, beside = few_steps.given(), few_steps.given()
    assert given is not None
    assert beside is not None
    ends = replace(beside, tokens={**beside.tokens, ENDS: TIMESTEPS})
    with torch.no_grad():
        plain, same = (few_steps.loss(few_steps.transformer, few_steps.text, one) for one in (given, ends))
        sooner = replace(beside, tokens={**beside.tokens, ENDS: TIMESTEPS - 100})
        other = few_steps.loss(few_steps.transformer, few_steps.text, sooner)
    assert torch.equal(plain, same)
    assert not torch.equal(plain, other)


@pytest.mark.parametrize("scale", [1.0, 3.0])
@pytest.mark.parametrize("variant", ["text", "image", "few_steps"])
def test_a_video_equals_the_stock_pipelines(variant: str, scale: float, request: pytest.FixtureRequest) -> None:
    """Template, quoted text, picture, mask, steps, guidance and decoding."""
    case = request.getfixturevalue(variant)
    pipeline, noise = whole_pipeline(FAMILY, case.model), torch.Generator().manual_seed(1)
    pipeline.guider.guidance_scale = scale
    picture = picture_of(case.model)
    theirs = pipeline(
        **({"height": 32, "width": 32} if variant == "text" else {"image": picture}),
        prompt=CAPTIONS[0],
        negative_prompt="the video",
        num_frames=9,
        num_inference_steps=STEPS,
        generator=torch.Generator().manual_seed(1),
        output_type="pt",
    ).frames
    given = None
    if variant != "text":
        pixels = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).view(32, 32, 3).permute(2, 0, 1)
        seen = case.seen(pixels[None].float() / 127.5 - 1)
        given = FAMILY.given_to_sample(case.folder, seen, case.shape, noise, torch.float32)
    inputs = DenoiseInputs(
        case.folder,
        text=FAMILY.encode_text(case.encoder, CAPTIONS[:1]),
        negative_text=FAMILY.encode_text(case.encoder, ["the video"]),
        latents_shape=case.shape,
        steps=STEPS,
        guidance=Guidance(scale),
        noise=noise,
        given=given,
    )
    for kernel in ("stock", "auto"):
        noise.manual_seed(1)
        ours = FAMILY.decode(case.vae, FAMILY.denoise(case.loaded(kernel), inputs)) / 2 + 0.5
        torch.testing.assert_close(ours, theirs.permute(0, 2, 1, 3, 4), rtol=0, atol=1e-5)


def test_the_steps_are_even_before_they_are_shifted(text: Case) -> None:
    steps = FAMILY.sampler_steps(StepOptions(text.folder, 50, text.shape, CPU, "model", 9.0))
    share = 1 - torch.arange(50) / 50
    torch.testing.assert_close(steps.timesteps, 1000 * 9 * share / (1 + 8 * share), rtol=1e-5, atol=1e-3)


def test_an_exported_lora_loads_into_the_stock_pipelines_transformer(text: Case) -> None:
    """Their pipelines have no loader: a card says pipe.transformer.load_lora_adapter."""
    pipeline = whole_pipeline(FAMILY, text.model)
    lora = lora_on(FAMILY, text.model)
    for file_format in ("diffusers", "portable"):
        tensors, metadata = FAMILY.export_lora(lora, file_format)
        path = text.folder.parent / f"{file_format}.safetensors"
        save_file(tensors, path, metadata)
        before = {
            name: one.clone() for name, one in pipeline.transformer.state_dict().items() if name.endswith("weight")
        }
        pipeline.transformer.load_lora_adapter(path.parent, weight_name=path.name, adapter_name="test")
        pipeline.transformer.fuse_lora()
        after = {name.replace(".base_layer", ""): one for name, one in pipeline.transformer.state_dict().items()}
        for layer, change in changes(lora).items():
            torch.testing.assert_close(
                after[f"{layer}.weight"] - before[f"{layer}.weight"], change, rtol=1e-4, atol=1e-5
            )
        pipeline.transformer.unfuse_lora()
        pipeline.transformer.unload_lora()


# ---- captions and pictures


def test_quoted_text_is_read_letter_by_letter(text: Case) -> None:
    first, second = text.text["mask_2"].sum(1).tolist()
    assert first == len('Text "go left". Text "stop". ') + 1  # and the closing token
    assert second == 0
    other = FAMILY.encode_text(text.encoder, [CAPTIONS[0].replace("go left", "go up"), CAPTIONS[1]])
    assert not torch.equal(other["prompt_embeds_2"][0], text.text["prompt_embeds_2"][0])
    changed = {**text.text, "prompt_embeds_2": other["prompt_embeds_2"], "mask_2": other["mask_2"]}
    losses = [text.loss(text.loaded("auto"), one) for one in (text.text, changed)]
    assert torch.equal(losses[0][1], losses[1][1])
    assert not torch.isclose(losses[0][0], losses[1][0], rtol=1e-6)


def test_padding_counts_for_nothing_and_is_masked_only_where_captions_differ(text: Case) -> None:
    transformer, seen = text.loaded("auto"), []
    transformer.transformer_blocks[0].register_forward_pre_hook(lambda module, arguments: seen.append(arguments[3]))
    wild = {name: one.clone() for name, one in text.text.items()}
    for embeds, mask in (("prompt_embeds", "mask"), ("prompt_embeds_2", "mask_2")):
        wild[embeds][~text.text[mask].bool()] = 50.0
    assert torch.equal(text.loss(transformer, wild), text.loss(transformer, text.text))
    for row in range(2):
        alone = text.loss(transformer, text.text, row=row)
        torch.testing.assert_close(alone[0], text.loss(transformer, text.text)[row], rtol=1e-5, atol=1e-6)
    assert [one.dtype for one in seen[:3]] == [torch.bool, torch.bool, torch.uint8]
    counts = text.text["mask"].sum(1) + text.text["mask_2"].sum(1)
    assert seen[2].shape[1] == counts[0]
    assert seen[0].shape[1] == text.text["mask"].sum(1).max() + text.text["mask_2"].sum(1).max()


def test_gradients_of_masked_captions_are_finite(text: Case) -> None:
    transformer = text.loaded("auto").requires_grad_(True)
    text.loss(transformer, text.text).sum().backward()
    assert all(one.grad.isfinite().all() for one in transformer.context_embedder.parameters() if one.grad is not None)


def test_gradient_checkpointing_computes_every_block_again(text: Case) -> None:
    """Its forward pass is ours, and so is what diffusers' does for it."""
    transformer, calls = text.loaded("auto").train(), []
    for block in transformer.transformer_blocks:
        block.register_forward_pre_hook(lambda module, arguments: calls.append(module))
    transformer.requires_grad_(True).enable_gradient_checkpointing()
    text.loss(transformer, text.text).sum().backward()
    assert calls == [*transformer.transformer_blocks, *reversed(transformer.transformer_blocks)]


def test_a_dropped_picture_is_no_picture(image: Case) -> None:
    """For the clips of a batch that lose theirs, and as the transformer computes a clip from text alone."""
    transformer = image.loaded("auto")
    both, one = (image.given(torch.tensor(kept)) for kept in ([True, True], [True, False]))
    losses = [image.loss(transformer, image.text, given) for given in (image.given(), both, one, None)]
    torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(losses[2][0], losses[0][0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(losses[2][1], losses[3][1], rtol=1e-5, atol=1e-6)
    assert not torch.isclose(losses[0][1], losses[3][1], rtol=1e-4)


def test_a_model_for_text_takes_no_picture(text: Case) -> None:
    with pytest.raises(ConfigError, match="takes text only: remove the image"):
        text.seen(text.video[:, :, 0])


# ---- LoRA files


def test_comfyuis_file_changes_its_weights_as_ours_changes_diffusers(text: Case) -> None:
    """Query, key and value below each other; scale and shift of the last layer exchanged."""
    lora = lora_on(FAMILY, text.model)
    wanted = changes(lora)
    tensors, _ = FAMILY.export_lora(lora, "comfyui")

    def theirs(name: str) -> torch.Tensor:
        return tensors[f"diffusion_model.{name}.lora_B.weight"] @ tensors[f"diffusion_model.{name}.lora_A.weight"]

    def ours(*names: str) -> torch.Tensor:
        return torch.cat([wanted[name] for name in names])

    block, refiner = "transformer_blocks.0", "context_embedder.token_refiner.refiner_blocks.0"
    for found, expected in (
        (theirs("double_blocks.0.img_attn.qkv"), ours(*(f"{block}.attn.to_{one}" for one in "qkv"))),
        (theirs("double_blocks.0.txt_attn.qkv"), ours(*(f"{block}.attn.add_{one}_proj" for one in "qkv"))),
        (theirs("double_blocks.0.img_attn.proj"), ours(f"{block}.attn.to_out.0")),
        (theirs("double_blocks.0.txt_mlp.2"), ours(f"{block}.ff_context.net.2")),
        (theirs("double_blocks.0.img_mod.lin"), ours(f"{block}.norm1.linear")),
        (
            theirs("txt_in.individual_token_refiner.blocks.0.self_attn.qkv"),
            ours(*(f"{refiner}.attn.to_{one}" for one in "qkv")),
        ),
        (theirs("time_in.in_layer"), ours("time_embed.timestep_embedder.linear_1")),
        (theirs("final_layer.adaLN_modulation.1"), torch.cat(wanted["norm_out.linear"].chunk(2)[::-1])),
        (theirs("final_layer.linear"), ours("proj_out")),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_a_file_of_the_authors_trainer_is_read() -> None:
    """train.py saves with save_lora_adapter: no prefix, alpha in the metadata."""
    down, up = torch.randn(8, 6), torch.randn(6, 8)
    tensors = {
        "double_blocks.3.img_attn_q.lora_A.weight": down, "double_blocks.3.img_attn_q.lora_B.weight": up,
        "double_blocks.3.txt_mlp.fc1.lora_A.weight": down, "double_blocks.3.txt_mlp.fc1.lora_B.weight": up,
    }  # fmt: skip
    found = FAMILY.lora_weights(tensors, {"lora_adapter_metadata": '{"r": 8, "lora_alpha": 16}'})
    wanted = {f"transformer_blocks.3.{name}": 2 * up @ down for name in ("attn.to_q", "ff_context.net.0.proj")}
    same(changes(found), wanted)


@pytest.mark.parametrize(
    "joined", ["diffusion_model.double_blocks.0.img_attn.qkv", "lora_unet_double_blocks_0_img_attn_qkv"]
)
def test_a_joined_pair_is_read_with_its_strength(joined: str) -> None:
    """All three use every row of A, as a LoRA trained in ComfyUI's layout has them."""
    down, up = torch.randn(4, 8), torch.randn(24, 4)
    tensors = {f"{joined}.lora_down.weight": down, f"{joined}.lora_up.weight": up, f"{joined}.alpha": torch.tensor(8.0)}
    wanted = {
        f"transformer_blocks.0.attn.to_{name}": one for name, one in zip("qkv", (2 * up @ down).chunk(3), strict=True)
    }
    same(changes(FAMILY.lora_weights(tensors, {})), wanted)
    del tensors[f"{joined}.lora_up.weight"]
    with pytest.raises(ConfigError, match="_qkv are incomplete: export it again"):
        FAMILY.lora_weights(tensors, {})


# ---- the published models


def test_the_license_is_said_where_a_model_is_chosen_and_before_it_is_downloaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Ended(Exception):
        pass

    said: list[str] = []

    def ended() -> None:
        raise Ended

    monkeypatch.setattr(hub, "client", ended)
    assert summary(MODELS[0].id).endswith("(grants no rights in the EU, the UK and South Korea)")
    with pytest.raises(Ended):
        FAMILY.fetch(MODELS[0], said.append)
    assert said == [
        "Downloading HunyuanVideo 1.5 480p, about 53 GB, once ... License: Tencent Hunyuan Community (grants no rights "
        "in the EU, the UK and South Korea)."
    ]


def test_a_folder_has_its_own_guidance_and_size(tmp_path: Path) -> None:
    folder = tmp_path / "toy"
    assert FAMILY.toy(folder, "text").guidance_scale == 6.0
    write_json(folder / "guider" / "guider_config.json", {"guidance_scale": 1.0})
    transformer = read_object(folder / "transformer" / "config.json")
    write_json(folder / "transformer" / "config.json", {**transformer, "use_meanflow": True})
    config.cache_clear()
    few = FAMILY.describe_folder(folder)
    assert few is not None
    assert (few.steps, few.guidance_scale, few.distilled_from) == (12, 1.0, "hunyuanvideo1.5-t2v-480p")
    write_json(folder / "transformer" / "config.json", {**transformer, "target_size": 960})
    config.cache_clear()
    model = FAMILY.describe_folder(folder)
    assert model is not None
    assert (model.guidance_scale, model.flow_shift, model.steps) == (1.0, None, 50)


def test_the_chat_template_and_both_encoders_are_downloaded() -> None:
    names = ["tokenizer/chat_template.jinja", "tokenizer/merges.txt", "text_encoder_2/model.safetensors", "README.md"]
    assert set(wanted_files(names, FAMILY.weighted_parts(MODELS[0]), "")) == set(names[:3])

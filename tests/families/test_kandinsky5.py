"""Kandinsky 5: the authors' training step, the stock pipelines' captions and videos, captions of different lengths, and
other programs' LoRA files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from tests.families.lora_changes import changes, lora_on, same
from tests.families.stock import picture_of, whole_pipeline
from workbench.errors import ConfigError, DataError
from workbench.families import find_model, model_files
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.kandinsky5 import FAMILY, lengths, matched, scale_factor
from workbench.families.latents_file import read_facts
from workbench.families.model_inputs import Given, ModelInputs
from workbench.memory import compiling

CPU, STEPS = torch.device("cpu"), 4
CAPTIONS = ["a red circle", "a blue square moves left"]


class Case:
    """A miniature, its parts, and two clips with captions of different lengths."""

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.model = folder, FAMILY.toy(folder, variant)
        self.transformer = self.loaded("stock")
        self.vae = FAMILY.load_vae(folder, CPU, torch.float32)
        self.encoder = FAMILY.load_text_encoder(folder, CPU, torch.float32)
        draw = torch.Generator().manual_seed(0)
        frames, height, width = self.model.frames, self.model.height, self.model.width
        self.video = torch.rand(2, 3, frames, height, width, generator=draw) * 2 - 1
        self.shape = FAMILY.latents_shape(folder, frames, height, width)
        self.posterior, self.noise = (torch.randn(2, *self.shape, generator=draw) for _ in range(2))
        self.latents = FAMILY.sample_latents(FAMILY.encode_video(self.vae, self.video), self.posterior)
        self.text = FAMILY.encode_text(self.encoder, CAPTIONS)

    def loaded(self, kernel: str) -> Any:
        transformer = FAMILY.load_transformer(self.folder, CPU, torch.float32)
        FAMILY.use_attention(transformer, kernel, CPU)
        return transformer

    def loss(self, transformer: Any, rows: slice = slice(None), given: Given | None = None, **text: Any) -> Any:
        texts = {name: one[rows] for name, one in {**self.text, **text}.items()}
        times = torch.tensor([300.0, 900.0])[rows]
        inputs = ModelInputs(self.latents[rows], texts, self.noise[rows], times, given)
        return FAMILY.loss(transformer, FAMILY.noise_schedule(self.folder, CPU), inputs)


@pytest.fixture(scope="module", params=["text", "image"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("kandinsky5") / "toy", request.param)


@pytest.fixture(scope="module")
def of_text(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("kandinsky5") / "toy", "text")


def as_stock(case: Case, row: int, noisy: torch.Tensor, shown: bool, time: float) -> torch.Tensor:
    """The transformer's prediction for one clip, called as the stock pipelines call it."""
    pipeline = whole_pipeline(FAMILY, case.model)
    states, pooled, ends = pipeline.encode_prompt(CAPTIONS[row])
    _, frames, height, width = case.shape
    video = noisy.movedim(1, -1)
    mask = torch.zeros(*video.shape[:-1], 1)
    mask[:, :1] = float(shown)
    with torch.no_grad():
        found = case.transformer(
            hidden_states=torch.cat([video, torch.zeros_like(video), mask], dim=-1),
            encoder_hidden_states=states,
            pooled_projections=pooled,
            timestep=torch.tensor([time]),
            visual_rope_pos=[torch.arange(frames), torch.arange(height // 2), torch.arange(width // 2)],
            text_rope_pos=torch.arange(int(ends.diff().max())),
            scale_factor=pipeline._get_scale_factor(8 * height, 8 * width),
        ).sample
    return found.movedim(-1, 1)


def test_the_loss_is_that_of_the_authors_trainer(case: Case) -> None:
    """Their step, restated: latents of the posterior, scaled; x = (1 - s) z + s noise at 1000 s; against noise - z."""
    posterior = case.vae.encode(case.video).latent_dist
    z = (posterior.mean + posterior.std * case.posterior) * case.vae.config.scaling_factor
    torch.testing.assert_close(case.latents, z, rtol=1e-5, atol=1e-5)
    theirs = []
    for row, sigma in enumerate((0.3, 0.9)):
        clean, noise = case.latents[row : row + 1], case.noise[row : row + 1]
        predicted = as_stock(case, row, (1 - sigma) * clean + sigma * noise, False, 1000 * sigma)
        theirs.append(functional.mse_loss(predicted, noise - clean))
    for kernel in ("stock", "auto"):
        ours = case.loss(case.loaded(kernel))
        torch.testing.assert_close(ours, torch.stack(theirs), rtol=1e-6, atol=1e-6)


def test_a_shown_first_frame_is_clean_marked_and_without_loss(case: Case) -> None:
    """As the stock image-to-video pipeline calls the model; the second clip does not see its own."""
    first = torch.randn(2, *FAMILY.one_frame(case.shape), generator=torch.Generator().manual_seed(5))
    given = FAMILY.given(
        {"mean": first, "std": torch.zeros_like(first)}, first, case.shape, torch.tensor([True, False])
    )
    found, theirs = case.loss(case.transformer, given=given), []
    for row, sigma in enumerate((0.3, 0.9)):
        clean, noise = case.latents[row : row + 1], case.noise[row : row + 1]
        noisy, begin = (1 - sigma) * clean + sigma * noise, int(row == 0)
        noisy[:, :, :begin] = first[row : row + 1, :, :begin]
        predicted = as_stock(case, row, noisy, row == 0, 1000 * sigma)
        theirs.append(functional.mse_loss(predicted[:, :, begin:], (noise - clean)[:, :, begin:]))
    torch.testing.assert_close(found, torch.stack(theirs), rtol=1e-6, atol=1e-6)


def test_noise_levels_are_logit_normal_and_shifted_by_5() -> None:
    quantiles = torch.tensor([0.1, 0.5, 0.9])
    plain = torch.special.ndtri(quantiles.double()).sigmoid()
    found = FAMILY.noise_schedule(Path(), CPU).timesteps(quantiles, (16, 31, 64, 96))
    torch.testing.assert_close(found, (5000 * plain / (1 + 4 * plain)).float())


def test_captions_are_encoded_as_the_stock_pipeline_does(of_text: Case) -> None:
    """One at a time, without padding in Qwen's sight."""
    pipeline = whole_pipeline(FAMILY, of_text.model)
    counts = lengths(of_text.text["mask"])
    assert counts[0] < counts[1] < 512
    for row, caption in enumerate(CAPTIONS):
        states, pooled, ends = pipeline.encode_prompt(caption)
        assert counts[row] == int(ends[1])
        torch.testing.assert_close(of_text.text["prompt_embeds"][row, : counts[row]], states[0], rtol=1e-6, atol=1e-6)
        assert not of_text.text["prompt_embeds"][row, counts[row] :].any()
        torch.testing.assert_close(of_text.text["pooled"][row], pooled[0], rtol=1e-6, atol=1e-6)
    one, same = (FAMILY.encode_text(of_text.encoder, [text]) for text in ("a &amp;amp; b ", "a &  b"))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert [one.count for one in FAMILY.caption_tokens(of_text.folder, CAPTIONS)] == counts


def test_padding_counts_for_nothing_and_captions_of_one_length_go_together(case: Case) -> None:
    transformer = case.loaded("auto")
    seen: list[tuple[int, int]] = []
    transformer.visual_transformer_blocks[0].register_forward_pre_hook(
        lambda module, arguments: seen.append((len(arguments[1]), arguments[1].shape[1]))
    )
    both, (short, long) = case.loss(transformer), lengths(case.text["mask"])
    wild = case.text["prompt_embeds"].clone()
    wild[~case.text["mask"].bool()] = 50.0
    assert torch.equal(case.loss(transformer, prompt_embeds=wild), both)
    assert torch.equal(case.loss(transformer, rows=slice(1)), both[:1])
    same = {name: one[:1].expand(2, *one.shape[1:]) for name, one in case.text.items()}
    torch.testing.assert_close(case.loss(transformer, **same)[0], both[0], rtol=1e-5, atol=1e-6)
    assert seen == [(1, short), (1, long), (1, short), (1, long), (1, short), (2, short)]
    assert lengths(torch.ones(2, 7, device="meta")) == [7, 7]


def test_compiled_blocks_take_captions_of_any_length(case: Case) -> None:
    transformer, plain = case.loaded("auto"), case.loss(case.loaded("auto"))
    compiling.compile_blocks(FAMILY.blocks(transformer), backend="eager", shapes_differ=FAMILY.caption_lengths_differ)
    torch.testing.assert_close(case.loss(transformer), plain, rtol=1e-5, atol=1e-6)
    compiling.interpret_blocks(FAMILY.blocks(transformer))


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_a_video_equals_the_stock_pipelines(case: Case, scale: float) -> None:
    """Captions, noise, picture, steps, guidance, what is done to the first frames, and decoding.

    The picture's latents are scaled before noise is added, not after. Since diffusers rounds queries and keys to bf16,
    a difference in their last bit would grow to 7e-5, so the samples start from the pipeline's own.
    """
    of_image = case.model.task == "image-to-video"
    theirs = whole_pipeline(FAMILY, case.model)(
        **({"image": picture_of(case.model)} if of_image else {}),
        prompt=CAPTIONS[0],
        negative_prompt="the video",
        num_frames=case.model.frames,
        height=case.model.height,
        width=case.model.width,
        num_inference_steps=STEPS,
        guidance_scale=scale,
        generator=torch.Generator().manual_seed(1),
        output_type="pt",
    ).frames
    for kernel in ("stock", "auto"):
        noise, given = torch.Generator().manual_seed(1), None
        if of_image:
            pixels = torch.frombuffer(bytearray(picture_of(case.model).tobytes()), dtype=torch.uint8)
            pixels = pixels.view(case.model.height, case.model.width, 3).permute(2, 0, 1)[None].float() / 127.5 - 1
            image = FAMILY.encode_image(case.vae, None, pixels, case.model.frames, "pipeline")
            given = FAMILY.given_to_sample(case.folder, image, case.shape, noise, torch.float32)
            draw = torch.Generator().manual_seed(1)
            FAMILY.first_noise(case.shape, draw, torch.float32)
            with torch.no_grad():
                known = case.vae.encode(pixels.unsqueeze(2)).latent_dist.sample(draw) * case.vae.config.scaling_factor
            torch.testing.assert_close(given.known, known, rtol=1e-5, atol=1e-5)
            given = replace(given, known=known)
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
        ours = FAMILY.decode(case.vae, FAMILY.denoise(case.loaded(kernel), inputs)) / 2 + 0.5
        torch.testing.assert_close(ours, theirs.permute(0, 2, 1, 3, 4), rtol=0, atol=1e-5)


def test_first_frames_are_matched_to_the_next_and_few_frames_are_left_alone(case: Case) -> None:
    latents = torch.randn(1, 4, 8, 4, 4, generator=torch.Generator().manual_seed(2))
    latents[:, :, :4] = latents[:, :, :4] * 1.2 + 0.07
    if case.model.task == "image-to-video":
        theirs = whole_pipeline(FAMILY, case.model).normalize_first_frame(latents.movedim(1, -1)).movedim(-1, 1)
        torch.testing.assert_close(matched(latents), theirs, rtol=1e-5, atol=1e-6)
    assert torch.equal(matched(latents)[:, :, 4:], latents[:, :, 4:])
    assert torch.equal(matched(latents[:, :, :4]), latents[:, :, :4])


@pytest.mark.parametrize(("height", "width"), [(512, 768), (480, 854), (480, 864), (32, 32)])
def test_positions_are_divided_as_in_the_stock_pipeline(of_text: Case, height: int, width: int) -> None:
    assert scale_factor(height, width) == whole_pipeline(FAMILY, of_text.model)._get_scale_factor(height, width)


def test_a_model_with_sparse_attention_is_refused(of_text: Case, tmp_path: Path) -> None:
    FAMILY.toy(tmp_path / "toy", "text")
    file = tmp_path / "toy" / "transformer" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "attention_type": "nabla"}))
    model_files.config.cache_clear()
    with pytest.raises(ConfigError, match=r"attends to a part of the tokens \(nabla\).*choose a model for 5 s"):
        find_model(str(tmp_path / "toy"))


def test_latents_from_elsewhere_bring_both_encoders_embeddings(of_text: Case, tmp_path: Path) -> None:
    tensors = {"latents": of_text.latents[0], "embeddings": of_text.text["prompt_embeds"][0]}
    tensors |= {"mask": of_text.text["mask"][0], "pooled": of_text.text["pooled"][0]}
    notes = {"model": str(of_text.folder), "fps": "8"}
    save_file(tensors, tmp_path / "whole.safetensors", notes)
    found = read_facts(tmp_path / "whole.safetensors")
    assert found.embeddings
    assert not found.notes
    back = FAMILY.text_from_file(tensors, torch.float32)
    assert all(torch.equal(back[name], one[:1]) for name, one in of_text.text.items())
    del tensors["pooled"]
    save_file(tensors, tmp_path / "half.safetensors", notes)
    with pytest.raises(DataError, match=r"it holds embeddings and no pooled, toy needs pooled \[32\]: add them"):
        read_facts(tmp_path / "half.safetensors")


# ---- LoRA files


def test_comfyui_and_musubi_tuner_know_the_names(of_text: Case) -> None:
    """ComfyUI: diffusion_model. and the model's own name; both: lora_unet_ and it with underscores. alpha / rank."""
    lora = lora_on(FAMILY, of_text.model, "attention")
    for file_format, stem in (("comfyui", "diffusion_model.{}"), ("kohya", "lora_unet_{}")):
        tensors, _ = FAMILY.export_lora(lora, file_format)
        assert len(tensors) == 3 * len(lora.layers)
        for layer, wanted in changes(lora).items():
            name = stem.format(layer if file_format == "comfyui" else layer.replace(".", "_"))
            scale = tensors[f"{name}.alpha"] / tensors[f"{name}.lora_down.weight"].shape[0]
            found = scale * tensors[f"{name}.lora_up.weight"] @ tensors[f"{name}.lora_down.weight"]
            torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("prefix", ["base_model.model.", "transformer.", "diffusion_model."])
@pytest.mark.parametrize("adapter", ["", ".default"])
def test_a_file_of_the_authors_trainer_is_read(prefix: str, adapter: str) -> None:
    """peft's names, with or without the adapter's; their pipeline strips the first two prefixes."""
    layer = "visual_transformer_blocks.3.cross_attention.out_layer"
    down, up = torch.randn(4, 8), torch.randn(6, 4)
    tensors = {f"{prefix}{layer}.lora_A{adapter}.weight": down, f"{prefix}{layer}.lora_B{adapter}.weight": up}
    same(changes(FAMILY.lora_weights(tensors, {})), {layer: up @ down})


@pytest.mark.parametrize(("notes", "alpha"), [({"r": 4, "lora_alpha": 16}, 16), ({"r": 4}, 8), (None, 4)])
def test_alpha_of_the_authors_files_is_in_their_config(
    notes: dict[str, int] | None, alpha: int, tmp_path: Path
) -> None:
    """config_lora.json holds what they pass to peft's LoraConfig, whose own alpha is 8."""
    layer = "visual_transformer_blocks.0.self_attention.to_query"
    down, up = torch.randn(4, 8), torch.randn(6, 4)
    save_file({f"{layer}.lora_A.weight": down, f"{layer}.lora_B.weight": up}, tmp_path / "lora.safetensors")
    if notes is not None:
        (tmp_path / "config_lora.json").write_text(json.dumps(notes))
    found = FAMILY.lora_weights(*FAMILY.lora_tensors(tmp_path / "lora.safetensors"))
    same(changes(found), {layer: alpha / 4 * up @ down})


def test_the_authors_pipeline_reads_our_files(of_text: Case) -> None:
    """As their load_adapter does: peft's adapter by a config, and the file's names without "transformer."."""
    from peft import LoraConfig, inject_adapter_in_model, set_peft_model_state_dict

    lora = lora_on(FAMILY, of_text.model, "self_attention")
    tensors, _ = FAMILY.export_lora(lora, "diffusers")
    theirs = of_text.loaded("stock")
    targets = [name for name in lora.layers]
    inject_adapter_in_model(LoraConfig(r=2, lora_alpha=8, target_modules=targets), theirs, "default")
    outcome = set_peft_model_state_dict(
        theirs, {name.removeprefix("transformer."): one for name, one in tensors.items()}
    )
    assert not outcome.unexpected_keys
    found = {name: theirs.get_submodule(name).get_delta_weight("default").detach() for name in targets}
    same(found, changes(lora))

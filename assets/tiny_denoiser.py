"""The two stages of the transformer: text-to-video from scratch, then image-to-video from its weights.

The VAE is frozen in both stages, the text encoder in the second.
"""

from __future__ import annotations

import argparse
import copy
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import tiny_models
import tiny_world
import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXPipeline
from tiny_accuracy import describe, image_accuracy, prompt_accuracy
from tiny_training import Budget, Progress, Trainee, learning_rate_factor, make_optimisers, say, step_generator
from torch import Tensor, nn

TRANSFORMER_STAGE, IMAGE_STAGE = 2, 4
CAPTION_DROPOUT = 0.1
CAPTION_FORM_WEIGHTS = (0.7, 0.2, 0.1)
IMAGE_DROPOUT = 0.05
IMAGE_NOISE = (-3.0, 0.5)  # mean and standard deviation of log sigma, as in CogVideoX's training


class Denoiser(nn.Module):
    """Text encoder and transformer, trained together."""

    def __init__(self, text_encoder: nn.Module, transformer: nn.Module) -> None:
        super().__init__()
        self.text_encoder, self.transformer = text_encoder, transformer

    def loss(
        self,
        latents: Tensor,
        ids: Tensor,
        alphas: Tensor,
        generator: torch.Generator,
        condition: Tensor | None = None,
    ) -> Tensor:
        """Return the v-prediction loss for latents [N, f, C, h, w], token ids [N, T] and an optional condition.

        The condition is concatenated to the latents' channels. Timesteps are stratified over the batch, which lowers
        the variance of the gradient.
        """
        count = len(latents)
        draw = (torch.rand(1, generator=generator) + torch.arange(count) / count) % 1
        t = (draw * len(alphas)).long()
        noise = torch.randn(latents.shape, generator=generator)
        a = alphas[t].view(-1, 1, 1, 1, 1)
        noisy, target = (
            a.sqrt() * latents + (1 - a).sqrt() * noise,
            a.sqrt() * noise - (1 - a).sqrt() * latents,
        )
        if condition is not None:
            noisy = torch.cat([noisy, condition], dim=2)
        device = self.transformer.device
        text = self.text_encoder(ids.to(device))[0]
        prediction = self.transformer(noisy.to(device), text, t.to(device), return_dict=False)[0]
        return (prediction - target.to(device)).square().mean()


def is_transformer_matrix(name: str, p: nn.Parameter) -> bool:
    """Return whether Muon trains the parameter: attention and feed-forward weights of the transformer."""
    return "transformer_blocks" in name and p.ndim == 2 and "norm" not in name


class Captions:
    """Token ids of every clip's caption in all forms, with dropout."""

    def __init__(self, pipeline: tiny_models.Pipeline, specs: list[tiny_world.Spec]) -> None:
        planes = [
            tiny_models.tokenise(pipeline.tokenizer, [spec.caption(form) for spec in specs])
            for form in range(len(tiny_world.CAPTION_FORMS))
        ]
        empty = tiny_models.tokenise(pipeline.tokenizer, [""]).expand(len(specs), -1)
        self.ids = torch.stack([*planes, empty])
        shares = [share * (1 - CAPTION_DROPOUT) for share in CAPTION_FORM_WEIGHTS]
        self.weights = torch.tensor([*shares, CAPTION_DROPOUT])

    def draw(self, chosen: Tensor, generator: torch.Generator) -> Tensor:
        """Draw token ids [N, T] for the clips with these indices [N]."""
        form = torch.multinomial(self.weights, len(chosen), replacement=True, generator=generator)
        return self.ids[form, chosen]


def latent_pool(
    vae: AutoencoderKLCogVideoX, options: argparse.Namespace, file: Path, seed: int
) -> tuple[Tensor, Tensor, list[tiny_world.Spec]]:
    """Encode every training combination `renditions` times, and with a small shape `small_renditions` times.

    Returns unscaled latents [N, C, f, h, w], first frames as bytes [N, 3, H, W], and the specifications.
    """
    usual = tiny_world.training_specs()[: options.combinations]
    specs = usual * options.renditions + [replace(spec, small=True) for spec in usual] * options.small_renditions
    if not file.exists():
        say(f"encoding {len(specs)} clips")
        rng = random.Random(seed)
        latents, frames = [], []
        for first in range(0, len(specs), 64):
            clips = torch.stack([tiny_world.draw(spec, rng) for spec in specs[first : first + 64]])
            latents.append(tiny_models.encode(vae, clips))
            frames.append(((clips[:, :, 0] + 1) * 127.5).round().byte())
        temporary = file.with_suffix(".tmp")
        torch.save({"latents": torch.cat(latents), "frames": torch.cat(frames)}, temporary)
        temporary.replace(file)
    pool = torch.load(file, weights_only=True)
    return pool["latents"], pool["frames"], specs


def scaled(latents: Tensor, vae: AutoencoderKLCogVideoX) -> Tensor:
    """Scale latents [N, C, f, h, w] and permute them to the transformer's [N, f, C, h, w]."""
    return (latents * vae.config.scaling_factor).permute(0, 2, 1, 3, 4).contiguous()


def fit(
    trainee: Trainee,
    stage: tuple[str, int, int],
    loss: Callable[[torch.Generator], Tensor],
    refresh: Callable[[], None],
    options: argparse.Namespace,
    budget: Budget,
) -> bool:
    """Train from the trainee's saved state to the last step. Returns False if the budget ends first.

    Args:
        trainee: Model, moving average and optimizers.
        stage: Name, number and steps.
        loss: Returns the loss of a step, given its generator.
        refresh: Called every `evaluate_every` steps.
        options: The command line.
        budget: Steps that this call may take.
    """
    name, number, steps = stage
    trainee.load()
    progress = Progress(name, trainee.step, steps, every=100)
    while trainee.step < steps:
        if not budget.take():
            trainee.save()
            return False
        value = loss(step_generator(options.seed, number, trainee.step))
        trainee.update(value, learning_rate_factor(trainee.step, steps, warmup=100))
        progress.add(trainee.step, value.item())
        if trainee.step % options.save_every == 0:
            trainee.save()
        if options.check_clips and trainee.step % options.evaluate_every == 0:
            refresh()
    trainee.save()
    return True


def train_text_to_video(
    vae: AutoencoderKLCogVideoX, options: argparse.Namespace, device: torch.device, budget: Budget
) -> CogVideoXPipeline | None:
    """Train the transformer and text encoder on latents of the frozen VAE, and return the pipeline when done."""
    torch.manual_seed(options.seed)
    tokenizer = tiny_models.build_tokenizer()
    model = Denoiser(tiny_models.build_text_encoder(tokenizer), tiny_models.build_transformer()).to(device)
    average = copy.deepcopy(model).eval().requires_grad_(False)
    pipeline = tiny_models.assemble(tokenizer, average.text_encoder, vae, average.transformer)
    pool, _, specs = latent_pool(vae, options, options.work / "latents.pt", options.seed + 1)
    vae.register_to_config(scaling_factor=round(1 / float(pool.std()), 5))
    latents, captions = scaled(pool, vae), Captions(pipeline, specs)
    alphas = pipeline.scheduler.alphas_cumprod.float()

    def loss(generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(latents), (options.transformer_batch,), generator=generator)
        return model.loss(latents[chosen], captions.draw(chosen, generator), alphas, generator)

    def refresh() -> None:
        say(f"step {trainee.step}: {describe(prompt_accuracy(pipeline, options.check_clips // 2))}")
        tiny_models.save(pipeline, options.out)

    optimisers = make_optimisers(model, is_transformer_matrix, muon_lr=0.02, adam_lr=1.5e-3)
    trainee = Trainee(model, average, optimisers, options.work / "transformer.pt")
    stage = ("transformer", TRANSFORMER_STAGE, options.transformer_steps)
    return pipeline if fit(trainee, stage, loss, refresh, options, budget) else None


@torch.no_grad()
def image_condition(
    vae: AutoencoderKLCogVideoX, frames: Tensor, latent_frames: int, generator: torch.Generator
) -> Tensor:
    """Return the condition [N, f, C, h, w] of first frames [N, 3, H, W] in [-1, 1]: noised, encoded, padded with zeros.

    The noise is new at every call. Some conditions are all zero, so that the model also works without an image.
    """
    mean, deviation = IMAGE_NOISE
    sigma = (mean + deviation * torch.randn(len(frames), 1, 1, 1, generator=generator)).exp()
    noised = frames + sigma * torch.randn(frames.shape, generator=generator)
    posterior = vae.encode(noised.unsqueeze(2).to(vae.device)).latent_dist
    drawn = posterior.mean.cpu() + posterior.std.cpu() * torch.randn(posterior.mean.shape, generator=generator)
    first = scaled(drawn, vae)
    kept = (torch.rand(len(frames), generator=generator) >= IMAGE_DROPOUT).view(-1, 1, 1, 1, 1)
    return torch.cat([first * kept, first.new_zeros(len(first), latent_frames - 1, *first.shape[2:])], dim=1)


def train_image_to_video(
    sibling: CogVideoXPipeline, options: argparse.Namespace, device: torch.device, budget: Budget
) -> tiny_models.Pipeline | None:
    """Continue training the text-to-video transformer, widened for an image, and return the pipeline when done."""
    vae = sibling.vae.to(device).eval().requires_grad_(False)
    model = Denoiser(
        sibling.text_encoder.to(device).requires_grad_(False),
        tiny_models.widen(sibling.transformer).to(device),
    )
    average = copy.deepcopy(model).eval().requires_grad_(False)
    pipeline = tiny_models.image_to_video(sibling, average.transformer)
    pool, frames, specs = latent_pool(vae, options, options.work / "image_latents.pt", options.seed + 3)
    latents, captions = scaled(pool, vae), Captions(sibling, specs)
    alphas = sibling.scheduler.alphas_cumprod.float()

    def loss(generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(latents), (options.transformer_batch,), generator=generator)
        condition = image_condition(vae, frames[chosen].float() / 127.5 - 1, latents.shape[1], generator)
        return model.loss(latents[chosen], captions.draw(chosen, generator), alphas, generator, condition)

    def refresh() -> None:
        say(f"step {trainee.step}: {describe(image_accuracy(pipeline, options.check_clips // 2))}")
        tiny_models.save(pipeline, options.image_out, options.out)

    optimisers = make_optimisers(model, is_transformer_matrix, muon_lr=0.01, adam_lr=1.5e-3)
    trainee = Trainee(model, average, optimisers, options.work / "image_transformer.pt")
    stage = ("image-to-video", IMAGE_STAGE, options.image_steps)
    return pipeline if fit(trainee, stage, loss, refresh, options, budget) else None

"""The reference: LoRA training of CogVideoX as in the diffusers examples, in its plainest form.

It reads the clips, encodes them with the VAE, encodes the captions, then per step: accumulate, noise, timesteps,
transformer, x0 from velocity, weighted loss, backward, clip, optimizer, scheduler, log; at the end it saves the LoRA.
For image-to-video, the first frame is noised and encoded alone and concatenated to the first latent frame, with zeros
for the others, and sometimes dropped. There are no previews, checkpoints or held-out loss. `python
benchmarks/plain_loop.py MODEL CLIPS STEPS OUT` is the whole text-to-video command; CLIPS holds .mp4 and .txt.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXPipeline, CogVideoXTransformer3DModel
from diffusers.optimization import get_scheduler
from peft import LoraConfig
from peft.utils import get_peft_model_state_dict
from torch.utils.data import DataLoader
from tqdm.auto import tqdm

RANK, BATCH, LEARNING_RATE, MAX_GRAD_NORM = 8, 8, 1e-3, 1.0
TARGETS = ["to_k", "to_q", "to_v", "to_out.0"]
IMAGE_NOISE, IMAGE_DROPOUT = (-3.0, 0.5), 0.05
Moments = tuple[torch.Tensor, torch.Tensor]  # mean and deviation of latents [1, F, C, H, W]
Batch = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]  # latents, condition, embeddings


@dataclass(frozen=True)
class Example:
    """An encoded clip.

    It holds the moments of its latents, the embedding [1, tokens, D] of its caption, its first frame [1, 3, H, W] and
    the moments of that frame, noised once.
    """

    video: Moments
    text: torch.Tensor
    frame: torch.Tensor
    image: Moments


@dataclass(frozen=True)
class Variant:
    """What is trained. `images`: how often a first frame's noise is sampled, None for text-to-video."""

    batch: int = BATCH
    accumulation: int = 1
    images: str | None = None  # "once", as the example does it, or "each step"


class Batches:
    """Batches of one bucket each, in a new order every epoch, without incomplete ones."""

    def __init__(self, sizes: Sequence[int], batch: int) -> None:
        ends = [sum(sizes[: place + 1]) for place in range(len(sizes))]
        self.buckets = [list(range(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
        self.batch = batch

    def __len__(self) -> int:
        return sum(len(bucket) // self.batch for bucket in self.buckets)

    def __iter__(self) -> Iterator[list[int]]:
        found = []
        for bucket in self.buckets:
            random.shuffle(bucket)
            found += [bucket[i : i + self.batch] for i in range(0, len(bucket) - self.batch + 1, self.batch)]
        random.shuffle(found)
        return iter(found)


def make_step(
    transformer: Any, scheduler: Any, vae: Any, buckets: Sequence[Sequence[Example]], variant: Variant
) -> Callable[[], None]:
    """Add the LoRA and return a function that takes one optimizer step of the example's loop."""
    accelerator = Accelerator(gradient_accumulation_steps=variant.accumulation, cpu=True)
    transformer.requires_grad_(False)
    transformer.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=TARGETS))
    parameters = [parameter for parameter in transformer.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=1e-4)
    loader: Any = DataLoader(
        [example for bucket in buckets for example in bucket],  # type: ignore[arg-type]
        batch_sampler=Batches([len(bucket) for bucket in buckets], variant.batch),
        collate_fn=partial(collate, vae=vae, images=variant.images),
    )
    assert len(loader) % variant.accumulation == 0, "accelerate adjusts at the end of an epoch, too"
    lr_scheduler = get_scheduler("constant_with_warmup", optimizer, 20, 1_000_000)
    transformer, optimizer, loader, lr_scheduler = accelerator.prepare(transformer, optimizer, loader, lr_scheduler)
    bar = tqdm(disable=True)
    batches = _endless(loader)

    def one_batch() -> None:
        latents, condition, text = next(batches)
        with accelerator.accumulate(transformer):
            noise = torch.randn_like(latents)
            timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (len(latents),))
            noisy = scheduler.add_noise(latents, noise, timesteps)
            shown = noisy if condition is None else torch.cat([noisy, condition], dim=2)
            output = transformer(shown, text, timesteps, image_rotary_emb=None, return_dict=False)[0]
            predicted = scheduler.get_velocity(output, noisy, timesteps)
            weights = (1 / (1 - scheduler.alphas_cumprod[timesteps])).view(-1, 1, 1, 1, 1)
            loss = torch.mean((weights * (predicted - latents) ** 2).reshape(len(latents), -1), dim=1).mean()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(transformer.parameters(), MAX_GRAD_NORM)
            optimizer.step()
            optimizer.zero_grad()
            lr_scheduler.step()
        if accelerator.sync_gradients:
            bar.update(1)
        logs = {"loss": loss.detach().item(), "lr": lr_scheduler.get_last_lr()[0]}
        bar.set_postfix(**logs)
        accelerator.log(logs)

    def step() -> None:
        transformer.train()
        for _ in range(variant.accumulation):
            one_batch()
        assert accelerator.sync_gradients

    return step


def collate(examples: list[Example], vae: Any, images: str | None) -> Batch:
    """Return latents sampled from the posterior, the condition, and embeddings."""
    latents = sample([example.video for example in examples])
    text = torch.cat([example.text for example in examples])
    if images is None:
        return latents, None, text
    moments = [example.image for example in examples]
    if images == "each step":
        moments = [encode_image(vae, torch.cat([example.frame for example in examples]))]
    first = sample(moments)
    kept = torch.rand(len(first), 1, 1, 1, 1) >= IMAGE_DROPOUT
    condition = torch.cat([first * kept, torch.zeros_like(latents[:, 1:])], dim=1)
    return latents, condition, text


def sample(moments: list[Moments]) -> torch.Tensor:
    mean, std = (torch.cat(column) for column in zip(*moments, strict=True))
    return mean + std * torch.randn_like(mean)


def _endless(loader: Any) -> Iterator[Batch]:
    while True:
        yield from loader


# ---- encoding -------------------------------------------------------------------------------------------------------


def read_clip(path: Path, height: int, width: int) -> torch.Tensor:
    """Return a clip [1, 3, F, height, width] in [-1, 1]."""
    import decord

    frames = torch.from_numpy(decord.VideoReader(str(path), width=width, height=height)[:].asnumpy())
    return (frames.permute(3, 0, 1, 2).float() / 127.5 - 1).unsqueeze(0)


@torch.no_grad()
def encode_video(vae: Any, video: torch.Tensor) -> Moments:
    posterior = vae.encode(video).latent_dist
    mean, std = (part.permute(0, 2, 1, 3, 4) * vae.config.scaling_factor for part in (posterior.mean, posterior.std))
    return mean, std


def encode_image(vae: Any, frames: torch.Tensor) -> Moments:
    """Encode first frames [B, 3, H, W], each noised with its own strength."""
    mean, deviation = IMAGE_NOISE
    sigma = torch.normal(mean, deviation, (len(frames), 1, 1, 1)).exp()
    return encode_video(vae, (frames + torch.randn_like(frames) * sigma).unsqueeze(2))


def encode(model: Path, vae: Any, clips: Sequence[Path], height: int, width: int) -> list[Example]:
    """Encode all clips and their captions."""
    from transformers import AutoTokenizer, T5EncoderModel

    tokenizer = AutoTokenizer.from_pretrained(model / "tokenizer")
    encoder = T5EncoderModel.from_pretrained(model / "text_encoder", dtype=torch.float32)
    length = CogVideoXTransformer3DModel.load_config(model / "transformer")["max_text_seq_length"]
    examples = []
    for path in clips:
        video = read_clip(path, height, width)
        caption = path.with_suffix(".txt").read_text().strip()
        tokens = tokenizer(caption, padding="max_length", max_length=length, truncation=True, return_tensors="pt")
        with torch.no_grad():
            text = encoder(tokens.input_ids)[0]
        frame = video[:, :, 0]
        examples.append(Example(encode_video(vae, video), text, frame, encode_image(vae, frame)))
    return examples


def main() -> None:
    model, clips, steps, out = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    vae = AutoencoderKLCogVideoX.from_pretrained(model / "vae").requires_grad_(False)
    transformer = CogVideoXTransformer3DModel.from_pretrained(model / "transformer", dtype=torch.float32)
    scheduler = CogVideoXDDIMScheduler.from_pretrained(model / "scheduler")
    size = vae.config.sample_height
    examples = encode(model, vae, sorted(clips.glob("*.mp4")), size, size)
    step = make_step(transformer, scheduler, vae, [examples], Variant())
    for _ in range(steps):
        step()
    CogVideoXPipeline.save_lora_weights(out, transformer_lora_layers=get_peft_model_state_dict(transformer))


if __name__ == "__main__":
    main()

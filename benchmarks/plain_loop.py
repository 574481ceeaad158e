"""The reference: LoRA training of CogVideoX as the diffusers example does it, in its plainest form.

Read the clips, encode them with the VAE, encode the captions, then accumulate, noise, timesteps, transformer, x0 from
velocity, weighted loss, backward, clip, optimizer, scheduler, log; save the LoRA. No previews, no checkpoints, no
held-out loss. `python benchmarks/plain_loop.py MODEL CLIPS STEPS OUT` is the whole command; CLIPS holds .mp4 and .txt.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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
Example = tuple[
    torch.Tensor, torch.Tensor, torch.Tensor
]  # latents' mean, std [1, F, C, H, W], embedding [1, tokens, D]


def make_step(transformer: Any, scheduler: Any, examples: list[Example]) -> Callable[[], None]:
    """One training step of the example's loop; the LoRA is added here."""
    accelerator = Accelerator(gradient_accumulation_steps=1, cpu=True)
    transformer.requires_grad_(False)
    transformer.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=TARGETS))
    parameters = [parameter for parameter in transformer.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=1e-4)
    loader = DataLoader(examples, BATCH, shuffle=True, drop_last=True, collate_fn=collate)  # type: ignore[arg-type]
    lr_scheduler = get_scheduler("constant_with_warmup", optimizer, 20, 1_000_000)
    transformer, optimizer, loader, lr_scheduler = accelerator.prepare(transformer, optimizer, loader, lr_scheduler)
    bar = tqdm(disable=True)
    batches = _endless(loader)

    def step() -> None:
        transformer.train()
        latents, text = next(batches)
        with accelerator.accumulate(transformer):
            noise = torch.randn_like(latents)
            timesteps = torch.randint(0, scheduler.config.num_train_timesteps, (len(latents),))
            noisy = scheduler.add_noise(latents, noise, timesteps)
            output = transformer(noisy, text, timesteps, image_rotary_emb=None, return_dict=False)[0]
            predicted = scheduler.get_velocity(output, noisy, timesteps)
            weights = (1 / (1 - scheduler.alphas_cumprod[timesteps])).view(-1, 1, 1, 1, 1)
            loss = torch.mean((weights * (predicted - latents) ** 2).reshape(len(latents), -1), dim=1).mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(transformer.parameters(), MAX_GRAD_NORM)
            optimizer.step()
            optimizer.zero_grad()
            lr_scheduler.step()
        bar.update(1)
        logs = {"loss": loss.detach().item(), "lr": lr_scheduler.get_last_lr()[0]}
        bar.set_postfix(**logs)
        accelerator.log(logs)

    return step


def collate(examples: list[Example]) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents drawn from the posterior, and embeddings."""
    mean, std, text = (torch.cat(column) for column in zip(*examples, strict=True))
    return mean + std * torch.randn_like(mean), text


def _endless(loader: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    while True:
        yield from loader


def read_clip(path: Path, size: int) -> torch.Tensor:
    """[1, 3, F, size, size] in [-1, 1]."""
    import decord

    frames = torch.from_numpy(decord.VideoReader(str(path), width=size, height=size)[:].asnumpy())
    return (frames.permute(3, 0, 1, 2).float() / 127.5 - 1).unsqueeze(0)


def main() -> None:
    model, clips, steps, out = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    from transformers import AutoTokenizer, T5EncoderModel

    tokenizer = AutoTokenizer.from_pretrained(model / "tokenizer")
    encoder = T5EncoderModel.from_pretrained(model / "text_encoder", dtype=torch.float32)
    vae = AutoencoderKLCogVideoX.from_pretrained(model / "vae")
    transformer = CogVideoXTransformer3DModel.from_pretrained(model / "transformer", dtype=torch.float32)
    scheduler = CogVideoXDDIMScheduler.from_pretrained(model / "scheduler")
    length, size = transformer.config.max_text_seq_length, vae.config.sample_height
    examples: list[Example] = []
    with torch.no_grad():
        for path in sorted(clips.glob("*.mp4")):
            posterior = vae.encode(read_clip(path, size)).latent_dist
            mean, std = (
                tensor.permute(0, 2, 1, 3, 4) * vae.config.scaling_factor for tensor in (posterior.mean, posterior.std)
            )
            caption = path.with_suffix(".txt").read_text().strip()
            tokens = tokenizer(caption, padding="max_length", max_length=length, truncation=True, return_tensors="pt")
            examples.append((mean, std, encoder(tokens.input_ids)[0]))
    step = make_step(transformer, scheduler, examples)
    for _ in range(steps):
        step()
    CogVideoXPipeline.save_lora_weights(out, transformer_lora_layers=get_peft_model_state_dict(transformer))


if __name__ == "__main__":
    main()

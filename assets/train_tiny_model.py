"""Train the tiny CogVideoX that ships with the workbench.

    python assets/train_tiny_model.py --out assets/tiny-cogvideox --work DIR

First the VAE learns to compress clips of shapes (40x40x9), its decoder a little longer. Once its reconstructions pass
the automatic check, it is frozen, and the transformer and the text encoder learn together to draw the clips from their
captions. The folder --out is an ordinary pipeline that `CogVideoXPipeline.from_pretrained` loads; it is refreshed
while training.

Kill it at any time: the same command goes on where it was and ends with the same weights.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import time
from pathlib import Path

import tiny_card
import tiny_check
import tiny_models
import tiny_world
import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXPipeline
from tiny_training import Progress, Trainee, learning_rate_factor, make_optimisers, step_generator
from torch import Tensor, nn

VAE_STAGE, TRANSFORMER_STAGE, DECODER_STAGE = 1, 2, 3
KL_WEIGHT = 1e-5  # ten times more blurs the shapes
CROP = 32  # pixels; crops are cheaper than whole frames and teach the same edges
CAPTION_DROPOUT = 0.1
CAPTION_FORM_WEIGHTS = (0.7, 0.2, 0.1)
GATE = 0.95


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "tiny-cogvideox", help="pipeline folder")
    parser.add_argument("--work", type=Path, default=Path("tiny_work"), help="training state, kept between calls")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vae-steps", type=int, default=2000)
    parser.add_argument("--decoder-steps", type=int, default=600, help="steps of the decoder alone, encoder frozen")
    parser.add_argument("--vae-clips", type=int, default=4000, help="size of the pool the VAE is trained on")
    parser.add_argument("--vae-batch", type=int, default=8)
    parser.add_argument("--transformer-steps", type=int, default=4000)
    parser.add_argument("--renditions", type=int, default=5, help="clips drawn of each known combination")
    parser.add_argument("--transformer-batch", type=int, default=32)
    parser.add_argument("--save-every", type=int, default=100, help="steps between saved states")
    parser.add_argument("--evaluate-every", type=int, default=1000, help="transformer steps between accuracies")
    parser.add_argument("--combinations", type=int, help="train the transformer on the first N combinations only")
    parser.add_argument("--check-clips", type=int, default=64, help="clips per accuracy; 0: no check and no gate")
    parser.add_argument("--stop-after", type=int, help="end after N steps of this call; the same command goes on")
    parser.add_argument("--gate", type=float, default=GATE, help="least share of reconstructions that must pass")
    parser.add_argument("--note", default="", help="a sentence for the model card")
    return parser.parse_args(arguments)


class Budget:
    """How many steps this call may still take."""

    def __init__(self, steps: int | None) -> None:
        self.left = steps

    def take(self) -> bool:
        """Whether one more step may be taken; counts it."""
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0


def say(text: str) -> None:
    """A log line with the time of day."""
    print(time.strftime("%H:%M:%S"), text, flush=True)


def render_pool(count: int, seed: int) -> Tensor:
    """`count` clips of the VAE's world as bytes [N, 3, F, H, W]."""
    rng = random.Random(seed)
    return torch.stack([((tiny_world.vae_clip(rng) + 1) * 127.5).round().byte() for _ in range(count)])


def vae_batch(pool: Tensor, size: int, count: int, generator: torch.Generator) -> Tensor:
    """Random crops [N, 3, F, size, size] in [-1, 1], mirrored, turned, reversed in time and with channels swapped."""

    def below(limit: int) -> int:
        return int(torch.randint(limit, (1,), generator=generator))

    clips = pool[torch.randint(len(pool), (count,), generator=generator)].float() / 127.5 - 1
    top, left = below(clips.shape[-2] - size + 1), below(clips.shape[-1] - size + 1)
    out = []
    for clip in clips[..., top : top + size, left : left + size]:
        axes = [axis for axis in (1, 2, 3) if below(2)]
        clip = clip.flip(axes) if axes else clip
        clip = clip.transpose(2, 3) if below(2) else clip
        out.append(clip[torch.randperm(3, generator=generator)] if below(10) < 3 else clip)
    return torch.stack(out)


def vae_loss(vae: nn.Module, clips: Tensor, generator: torch.Generator) -> Tensor:
    """Squared and absolute error of the reconstruction, and a very small KL term."""
    posterior = vae.encode(clips).latent_dist
    noise = torch.randn(posterior.mean.shape, generator=generator).to(clips.device)
    error = vae.decode(posterior.mean + posterior.std * noise).sample - clips
    kl = 0.5 * (posterior.mean.square() + posterior.var - 1 - posterior.logvar).mean()
    return error.square().mean() + 0.5 * error.abs().mean() + KL_WEIGHT * kl


def is_vae_matrix(name: str, p: nn.Parameter) -> bool:
    """Kernels go to Muon, except those at the pixels' ends, which are better off with AdamW."""
    return p.ndim > 2 and "encoder.conv_in" not in name and "decoder.conv_out" not in name


def check_vae(vae: AutoencoderKLCogVideoX, count: int = 64) -> dict[str, float]:
    """PSNR (dB) and the check's accuracy on reconstructions of held-out and of new clips."""
    report: dict[str, float] = {}
    rng = random.Random(4711)
    new = tiny_world.balanced_choice(tiny_world.combinations(tiny_world.NEW_SHAPES), count, seed=1)
    for name, specs in (("known", tiny_world.held_out()[:count]), ("new", new)):
        clips = torch.stack([tiny_world.draw(spec, rng) for spec in specs])
        again = tiny_models.reconstruct(vae, clips)
        error = (again - clips).square().mean((1, 2, 3, 4))
        report[f"{name} PSNR"] = float((10 * torch.log10(4 / error)).mean())
        report |= {f"{name} {part}": share for part, share in tiny_check.accuracy(again, specs).items()}
    return report


def describe(report: dict[str, float]) -> str:
    """One line of a report."""
    return ", ".join(f"{key} {value:.3g}" for key, value in report.items())


def train_vae(options: argparse.Namespace, device: torch.device, budget: Budget) -> AutoencoderKLCogVideoX | None:
    """Train the VAE on crops, and at the end on whole frames; return its moving average when done."""
    torch.manual_seed(options.seed)
    vae = tiny_models.build_vae().to(device)
    average = copy.deepcopy(vae).eval().requires_grad_(False)
    optimisers = make_optimisers(vae, is_vae_matrix, muon_lr=0.02, adam_lr=2e-3)
    trainee = Trainee(vae, average, optimisers, options.work / "vae.pt")
    trainee.load()
    if trainee.step < options.vae_steps:
        say(f"VAE: rendering {options.vae_clips} clips")
        pool = render_pool(options.vae_clips, options.seed)
        progress = Progress("vae", trainee.step, options.vae_steps, every=50)
    while trainee.step < options.vae_steps:
        if not budget.take():
            trainee.save()
            return None
        generator = step_generator(options.seed, VAE_STAGE, trainee.step)
        size = CROP if trainee.step < 0.85 * options.vae_steps else tiny_world.SIZE
        clips = vae_batch(pool, size, options.vae_batch, generator).to(device)
        loss = vae_loss(vae, clips, generator)
        trainee.update(loss, learning_rate_factor(trainee.step, options.vae_steps, warmup=60))
        progress.add(trainee.step, loss.item())
        if trainee.step % options.save_every == 0 or trainee.step == options.vae_steps:
            trainee.save()
        if options.check_clips and trainee.step % 300 == 0:
            say("VAE: " + describe(check_vae(average, options.check_clips // 2)))
    return average


def train_decoder(
    vae: AutoencoderKLCogVideoX, options: argparse.Namespace, device: torch.device, budget: Budget
) -> AutoencoderKLCogVideoX | None:
    """Sharpen the decoder on whole frames; the encoder, and so every latent, stays as it is."""
    vae = copy.deepcopy(vae).requires_grad_(True)
    vae.encoder.requires_grad_(False)
    average = copy.deepcopy(vae).eval().requires_grad_(False)
    optimisers = make_optimisers(vae, is_vae_matrix, muon_lr=0.01, adam_lr=1e-3)
    trainee = Trainee(vae, average, optimisers, options.work / "decoder.pt")
    trainee.load()
    if trainee.step < options.decoder_steps:
        pool = render_pool(options.vae_clips, options.seed + 2)
        progress = Progress("decoder", trainee.step, options.decoder_steps, every=50)
    while trainee.step < options.decoder_steps:
        if not budget.take():
            trainee.save()
            return None
        generator = step_generator(options.seed, DECODER_STAGE, trainee.step)
        clips = vae_batch(pool, tiny_world.SIZE, options.vae_batch, generator).to(device)
        loss = vae_loss(vae, clips, generator)
        trainee.update(loss, learning_rate_factor(trainee.step, options.decoder_steps, warmup=40), decay=0.995)
        progress.add(trainee.step, loss.item())
        if trainee.step % options.save_every == 0 or trainee.step == options.decoder_steps:
            trainee.save()
    return average


def latent_pool(vae: AutoencoderKLCogVideoX, options: argparse.Namespace) -> tuple[Tensor, list[tiny_world.Spec]]:
    """Unscaled latents [N, C, f, h, w] of every training combination, `renditions` times, and what they show."""
    specs = tiny_world.training_specs()[: options.combinations] * options.renditions
    file = options.work / "latents.pt"
    if not file.exists():
        say(f"encoding {len(specs)} clips")
        rng = random.Random(options.seed + 1)
        parts = []
        for first in range(0, len(specs), 64):
            clips = torch.stack([tiny_world.draw(spec, rng) for spec in specs[first : first + 64]])
            parts.append(tiny_models.encode(vae, clips))
        torch.save(torch.cat(parts), file.with_suffix(".tmp"))
        file.with_suffix(".tmp").replace(file)
    return torch.load(file, weights_only=True), specs


class Denoiser(nn.Module):
    """Text encoder and transformer, trained as one."""

    def __init__(self, text_encoder: nn.Module, transformer: nn.Module) -> None:
        super().__init__()
        self.text_encoder, self.transformer = text_encoder, transformer

    def loss(self, latents: Tensor, ids: Tensor, alphas: Tensor, generator: torch.Generator) -> Tensor:
        """v-prediction loss for latents [N, f, C, h, w] and token ids [N, T].

        Timesteps are stratified over the batch, which lowers the variance of the gradient.
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
        device = self.transformer.device
        text = self.text_encoder(ids.to(device))[0]
        prediction = self.transformer(noisy.to(device), text, t.to(device), return_dict=False)[0]
        return (prediction - target.to(device)).square().mean()


def is_transformer_matrix(name: str, p: nn.Parameter) -> bool:
    """Attention and feed-forward weights of the transformer go to Muon."""
    return "transformer_blocks" in name and p.ndim == 2 and "norm" not in name


def caption_ids(pipeline: CogVideoXPipeline, specs: list[tiny_world.Spec]) -> Tensor:
    """Token ids [forms + 1, N, T] of every clip in every form of its caption; the last plane is the empty caption."""
    planes = [
        tiny_models.tokenise(pipeline.tokenizer, [spec.caption(form) for spec in specs])
        for form in range(len(tiny_world.CAPTION_FORMS))
    ]
    empty = tiny_models.tokenise(pipeline.tokenizer, [""]).expand(len(specs), -1)
    return torch.stack([*planes, empty])


def train_transformer(
    vae: AutoencoderKLCogVideoX, options: argparse.Namespace, device: torch.device, budget: Budget
) -> CogVideoXPipeline | None:
    """Train the transformer and the text encoder on the frozen VAE's latents; return the pipeline when done."""
    torch.manual_seed(options.seed)
    tokenizer = tiny_models.build_tokenizer()
    model = Denoiser(tiny_models.build_text_encoder(tokenizer), tiny_models.build_transformer()).to(device)
    average = copy.deepcopy(model).eval().requires_grad_(False)
    pipeline = tiny_models.assemble(tokenizer, average.text_encoder, vae, average.transformer)
    latents, specs = latent_pool(vae, options)
    vae.register_to_config(scaling_factor=round(1 / float(latents.std()), 5))
    latents = (latents * vae.config.scaling_factor).permute(0, 2, 1, 3, 4).contiguous()
    ids = caption_ids(pipeline, specs)
    alphas = CogVideoXDDIMScheduler(**tiny_models.SCHEDULE).alphas_cumprod.float()
    weights = torch.tensor([share * (1 - CAPTION_DROPOUT) for share in CAPTION_FORM_WEIGHTS] + [CAPTION_DROPOUT])

    optimisers = make_optimisers(model, is_transformer_matrix, muon_lr=0.02, adam_lr=1.5e-3)
    trainee = Trainee(model, average, optimisers, options.work / "transformer.pt")
    trainee.load()
    progress = Progress("transformer", trainee.step, options.transformer_steps, every=100)
    while trainee.step < options.transformer_steps:
        if not budget.take():
            trainee.save()
            return None
        generator = step_generator(options.seed, TRANSFORMER_STAGE, trainee.step)
        chosen = torch.randint(len(latents), (options.transformer_batch,), generator=generator)
        form = torch.multinomial(weights, options.transformer_batch, replacement=True, generator=generator)
        loss = model.loss(latents[chosen], ids[form, chosen], alphas, generator)
        trainee.update(loss, learning_rate_factor(trainee.step, options.transformer_steps, warmup=100))
        progress.add(trainee.step, loss.item())
        if trainee.step % options.save_every == 0:
            trainee.save()
        if options.check_clips and trainee.step % options.evaluate_every == 0:
            say(f"step {trainee.step}: {describe(prompt_accuracy(pipeline, options.check_clips // 2))}")
            tiny_models.save(pipeline, options.out)
    trainee.save()
    return pipeline


def prompt_accuracy(pipeline: CogVideoXPipeline, count: int) -> dict[str, float]:
    """The check's accuracy on clips sampled for held-out captions."""
    specs = tiny_world.held_out()[:count]
    return tiny_check.accuracy(tiny_models.sample(pipeline, [spec.caption() for spec in specs]), specs)


def card_facts(options: argparse.Namespace, pipeline: CogVideoXPipeline) -> dict[str, object]:
    """What the model card states apart from the measurements."""
    parts = (pipeline.vae, pipeline.transformer, pipeline.text_encoder)
    return vars(options) | {
        "command": "python assets/train_tiny_model.py --out assets/tiny-cogvideox --work DIR"
        f" --vae-steps {options.vae_steps} --decoder-steps {options.decoder_steps}"
        f" --transformer-steps {options.transformer_steps} --seed {options.seed}",
        "parameters": sum(p.numel() for part in parts for p in part.parameters()) / 1e6,
        "combinations": len(tiny_world.training_specs()),
        "prompts": options.check_clips,
        "sampling_steps": tiny_models.SAMPLING_STEPS,
        "guidance": tiny_models.GUIDANCE,
        "text_length": tiny_models.TEXT_LENGTH,
        "note": f"\n{options.note}\n" if options.note else "",
    }


def main(arguments: list[str] | None = None) -> int:
    """Run or continue all stages."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    device, budget = torch.device(name), Budget(options.stop_after)
    options.work.mkdir(parents=True, exist_ok=True)
    vae = train_vae(options, device, budget)
    if vae is not None:
        vae = train_decoder(vae, options, device, budget)
    if vae is None:
        return 0
    report = check_vae(vae, options.check_clips) if options.check_clips else {}
    if report:
        say("VAE: " + describe(report))
        if min(report["known all"], report["new all"]) < options.gate:
            say(f"fewer than {options.gate:.0%} of the reconstructions pass: raise --vae-steps")
            return 1
    pipeline = train_transformer(vae, options, device, budget)
    if pipeline is None:
        return 0
    if report:
        prompts = prompt_accuracy(pipeline, options.check_clips)
        say(f"held-out prompts: {describe(prompts)}")
        tiny_card.write_card(options.out, card_facts(options, pipeline), report, prompts)
    tiny_models.save(pipeline, options.out)
    say(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

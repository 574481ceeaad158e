"""Train the two tiny CogVideoX that ship with the workbench.

    python assets/train_tiny_model.py --out assets/tiny-cogvideox --image-out assets/tiny-cogvideox-i2v --work DIR

First the VAE learns to compress clips of shapes (40x40x9), and its decoder trains a little longer. Once its
reconstructions pass the automatic check, it is frozen, and the transformer and the text encoder learn together to draw
clips from captions. Last, a copy of that transformer learns to continue from a first frame. Both folders are ordinary
pipelines for `from_pretrained`, and are updated during training.

You can kill it at any time. The same command resumes and ends with the same weights.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import textwrap
from pathlib import Path

import tiny_card
import tiny_models
import tiny_world
import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXPipeline
from tiny_accuracy import describe, image_accuracy, prompt_accuracy, vae_accuracy
from tiny_denoiser import train_image_to_video, train_text_to_video
from tiny_training import Budget, Progress, Trainee, learning_rate_factor, make_optimisers, say, step_generator
from torch import Tensor, nn

VAE_STAGE, DECODER_STAGE = 1, 3
KL_WEIGHT = 1e-5  # ten times as much blurs the shapes
CROP = 32  # pixels; crops are cheaper than whole frames and have the same edges
GATE = 0.95
IMAGE_GATE = 2.0  # dB


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "tiny-cogvideox", help="pipeline folder")
    parser.add_argument(
        "--image-out", type=Path, default=Path(__file__).parent / "tiny-cogvideox-i2v", help="image-to-video folder"
    )
    parser.add_argument("--only-image-to-video", action="store_true", help="keep --out, train only the last stage")
    parser.add_argument("--keep-vae", action="store_true", help="keep the VAE of --out, train the later stages")
    parser.add_argument("--work", type=Path, default=Path("tiny_work"), help="training state, kept between calls")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vae-steps", type=int, default=2000)
    parser.add_argument("--decoder-steps", type=int, default=600, help="steps of the decoder with a frozen encoder")
    parser.add_argument("--vae-clips", type=int, default=4000, help="clips in the VAE's training pool")
    parser.add_argument("--vae-batch", type=int, default=8)
    parser.add_argument("--transformer-steps", type=int, default=7000)
    parser.add_argument("--renditions", type=int, default=5, help="clips per known combination")
    parser.add_argument("--small-renditions", type=int, default=3, help="clips per combination with a small shape")
    parser.add_argument("--transformer-batch", type=int, default=32)
    parser.add_argument("--image-steps", type=int, default=2500, help="steps of the image-to-video transformer")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saved states")
    parser.add_argument("--evaluate-every", type=int, default=1000, help="transformer steps between checks")
    parser.add_argument("--combinations", type=int, help="train the transformer on the first N combinations only")
    parser.add_argument("--check-clips", type=int, default=64, help="clips per check; 0: no checks and no gate")
    parser.add_argument("--stop-after", type=int, help="stop after N steps; the same command resumes")
    parser.add_argument("--gate", type=float, default=GATE, help="least share of reconstructions that pass")
    parser.add_argument(
        "--image-gate", type=float, default=IMAGE_GATE, help="most dB that first frames may lose against the VAE"
    )
    parser.add_argument("--note", default="", help="a sentence for the model card")
    return parser.parse_args(arguments)


def render_pool(count: int, seed: int) -> Tensor:
    """Draw clips for the VAE as bytes [N, 3, F, H, W]."""
    rng = random.Random(seed)
    return torch.stack([((tiny_world.vae_clip(rng) + 1) * 127.5).round().byte() for _ in range(count)])


def vae_batch(pool: Tensor, size: int, count: int, generator: torch.Generator) -> Tensor:
    """Draw random crops [N, 3, F, size, size] in [-1, 1], randomly mirrored, turned, reversed and recolored."""

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
    """Return the squared and absolute error of the reconstruction plus a very small KL term."""
    posterior = vae.encode(clips).latent_dist
    noise = torch.randn(posterior.mean.shape, generator=generator).to(clips.device)
    error = vae.decode(posterior.mean + posterior.std * noise).sample - clips
    kl = 0.5 * (posterior.mean.square() + posterior.var - 1 - posterior.logvar).mean()
    return error.square().mean() + 0.5 * error.abs().mean() + KL_WEIGHT * kl


def is_vae_matrix(name: str, p: nn.Parameter) -> bool:
    """Return whether Muon trains the parameter: all kernels except the first and last, which do better with AdamW."""
    return p.ndim > 2 and "encoder.conv_in" not in name and "decoder.conv_out" not in name


def train_vae(options: argparse.Namespace, device: torch.device, budget: Budget) -> AutoencoderKLCogVideoX | None:
    """Train the VAE on crops, at the end on whole frames, and return its moving average when done."""
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
            say("VAE: " + describe(vae_accuracy(average, options.check_clips // 2)))
    return average


def train_decoder(
    vae: AutoencoderKLCogVideoX, options: argparse.Namespace, device: torch.device, budget: Budget
) -> AutoencoderKLCogVideoX | None:
    """Train only the decoder on whole frames. The encoder, and so all latents, do not change."""
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


def trained_vae(options: argparse.Namespace, device: torch.device, budget: Budget) -> AutoencoderKLCogVideoX | None:
    """Return the VAE after both stages, or the stored one with --keep-vae; None if the budget ends first."""
    if options.keep_vae:
        vae = tiny_models.build_vae()  # the config of a loaded one would name its folder
        vae.load_state_dict(tiny_models.load(options.out).vae.state_dict())
        return vae.to(device).eval().requires_grad_(False)
    vae = train_vae(options, device, budget)
    return vae and train_decoder(vae, options, device, budget)


def card_facts(options: argparse.Namespace, pipeline: tiny_models.Pipeline) -> dict[str, object]:
    """Return the facts of a model card, without the measurements."""
    parts = (pipeline.vae, pipeline.transformer, pipeline.text_encoder)
    command = "python assets/train_tiny_model.py --out assets/tiny-cogvideox --work DIR"
    if isinstance(pipeline, CogVideoXPipeline):
        guidance = tiny_models.GUIDANCE
        command += f" --vae-steps {options.vae_steps} --decoder-steps {options.decoder_steps}"
        command += f" --transformer-steps {options.transformer_steps} --seed {options.seed}"
    else:
        guidance = tiny_models.IMAGE_GUIDANCE
        command += f" --only-image-to-video --image-steps {options.image_steps} --seed {options.seed}"
    return vars(options) | {
        "command": command,
        "parameters": sum(p.numel() for part in parts for p in part.parameters()) / 1e6,
        "training_combinations": len(tiny_world.training_specs()),
        "prompts": options.check_clips,
        "sampling_steps": tiny_models.SAMPLING_STEPS,
        "guidance": guidance,
        "text_length": tiny_models.TEXT_LENGTH,
        "note": f"\n{textwrap.fill(options.note, 120)}\n" if options.note else "",
    }


def make_text_to_video(options: argparse.Namespace, device: torch.device, budget: Budget) -> bool:
    """Train VAE and text-to-video model and write them to --out. Returns False if the budget ends first."""
    vae = trained_vae(options, device, budget)
    if vae is None:
        return False
    report = vae_accuracy(vae, options.check_clips) if options.check_clips else {}
    if report:
        say("VAE: " + describe(report))
        if min(report["known all"], report["new all"]) < options.gate:
            sys.exit(f"fewer than {options.gate:.0%} of the reconstructions pass: raise --vae-steps")
    pipeline = train_text_to_video(vae, options, device, budget)
    if pipeline is None:
        return False
    tiny_models.save(pipeline, options.out)
    if report:
        prompts = prompt_accuracy(pipeline, options.check_clips)
        small = prompt_accuracy(pipeline, options.check_clips, small=True)
        say(f"held-out prompts: {describe(prompts)}; with a small shape: {describe(small)}")
        tiny_card.write_card(options.out, card_facts(options, pipeline), report, prompts, small)
    say(f"written: {options.out}")
    return True


def make_image_to_video(options: argparse.Namespace, device: torch.device, budget: Budget) -> None:
    """Train the image-to-video model from the stored text-to-video model and write it to --image-out."""
    pipeline = train_image_to_video(tiny_models.load(options.out), options, device, budget)
    if pipeline is None:
        return
    if options.check_clips:
        report = image_accuracy(pipeline, options.check_clips)
        alone = image_accuracy(pipeline, options.check_clips, captioned=False)
        say(f"held-out first frames: {describe(report)}; without captions: {describe(alone)}")
        if report["first frame PSNR, VAE"] - report["first frame PSNR"] > options.image_gate:
            sys.exit(f"first frames are more than {options.image_gate:g} dB below the VAE's: raise --image-steps")
        tiny_models.save(pipeline, options.image_out, options.out)
        tiny_card.write_image_card(options.image_out, card_facts(options, pipeline), report, alone)
    else:
        tiny_models.save(pipeline, options.image_out, options.out)
    say(f"written: {options.image_out}")


def main(arguments: list[str] | None = None) -> int:
    """Run or resume all stages."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    name = ("cuda" if torch.cuda.is_available() else "cpu") if options.device == "auto" else options.device
    device, budget = torch.device(name), Budget(options.stop_after)
    options.work.mkdir(parents=True, exist_ok=True)
    if options.only_image_to_video or make_text_to_video(options, device, budget):
        make_image_to_video(options, device, budget)
    return 0


if __name__ == "__main__":
    sys.exit(main())

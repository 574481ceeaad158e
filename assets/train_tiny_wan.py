"""Train the tiny Wan: Wan's architecture at a small size, for text, first and last frames, and control.

    python assets/train_tiny_wan.py --out assets/tiny-wan --work DIR

First the VAE learns to compress clips of shapes (64x64x9) eight times in space and four times in time, on crops and at
the end on whole clips. Then its decoder trains a little longer. Data and automatic check are those of the tiny
CogVideoX (train_tiny_model.py). Next, its latents are shifted and scaled, within its first and last layers, to the
means and deviations of Wan's latents, which some programs rely on.

Last, a transformer with 52 input channels and a text encoder learn together to draw clips: from captions alone, from a
first frame, a last one, both, or from the edges of every frame. The channels are those of Wan 2.2 Fun-Control: noise
(16), control (16), mask (4), given frames (16). Inputs that are not given are zero in training, so dropping columns
of the first layer yields a text-to-video model (16 channels) and an image-to-video model (36) in Wan's layout. This
writes three folders: --out is an ordinary WanPipeline, and next to it --out-i2v and --out-control hold only their own
first layer and share the rest (shared_parts.json).

--start FOLDER continues from a finished model: its decoder and transformer learn more about small shapes. The encoder
does not change, so latents stay the same.

You can kill it at any time. The same command resumes and ends with the same weights. The transformer's learning rate is
constant until the last 30% of its steps, so it can end early: repeat the command with fewer steps.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import sys
import textwrap
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import tiny_card
import tiny_check
import tiny_world
import torch
from diffusers import (
    AutoencoderKLWan,
    UniPCMultistepScheduler,
    WanImageToVideoPipeline,
    WanPipeline,
    WanTransformer3DModel,
)
from safetensors.torch import save_file
from tiny_accuracy import describe, held_out, psnr
from tiny_denoiser import Captions
from tiny_models import TEXT_LENGTH, build_tokenizer, make_readable
from tiny_training import Budget, Progress, Trainee, make_optimisers, say, stable_factor, step_generator
from torch import Tensor, nn
from torch.nn import functional
from train_tiny_model import KL_WEIGHT, vae_batch
from transformers import UMT5Config, UMT5EncoderModel

from workbench.families import find_model, model_files

SIZE = 64
VAE_STAGE, DECODER_STAGE, TRANSFORMER_STAGE = 21, 22, 23
CROP, CUT = 32, 5  # pixels and frames; parts are cheaper than whole clips and have the same edges and motion
WHOLE_PART = 0.02  # last share of the VAE's steps, on whole clips
SMALL_SHARE = 0.75  # share of small shapes among the VAE's clips with a single shape
# With --start:
SMALL_SHARE_LATER = 0.9  # the same share
EDGE_WEIGHT = 8.0  # added weight of the decoder's error at an edge; a plain background has 1
SHAPE_WEIGHT = 6.0  # added weight of the transformer's error on the shape, at little noise
FLAT = 0.8  # latents closer than this to their frame's median are background, in standard deviations
START_RATE = 0.5  # factor of the transformer's learning rates
LATENT_CHANNELS = 16
AT_ONCE = 16  # clips per batch when encoding
GATE_PSNR, GATE_SHAPES = 32.0, 0.9
SHIFT = 3.0  # of the noise levels, in training and sampling
STEPS, GUIDANCE = 25, 3.0
SCHEDULER = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=SHIFT)
# Inputs besides the caption, and their shares.
GIVEN = {"nothing": 0.4, "first": 0.2, "last": 0.1, "first+last": 0.15, "control": 0.15}
# The channels of each model: noise; noise, mask and given frames; all, with a control video.
CHANNELS = {"": [*range(16)], "-i2v": [*range(16), *range(32, 52)], "-control": [*range(52)]}
FIRST_LAYER = "patch_embedding.weight"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "tiny-wan", help="pipeline folder")
    parser.add_argument("--start", type=Path, help="folder of a finished model to continue from")
    parser.add_argument("--work", type=Path, default=Path("tiny_wan_work"), help="training state, kept between calls")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vae-steps", type=int, default=10050)
    parser.add_argument("--decoder-steps", type=int, default=900, help="steps of the decoder with a frozen encoder")
    parser.add_argument("--vae-clips", type=int, default=3000, help="clips in the VAE's training pool")
    parser.add_argument("--vae-batch", type=int, default=8)
    parser.add_argument("--transformer-steps", type=int, default=18000)
    parser.add_argument("--transformer-batch", type=int, default=32)
    parser.add_argument("--renditions", type=int, default=2, help="clips per known combination")
    parser.add_argument("--small-renditions", type=int, default=2, help="clips per combination with a small shape")
    parser.add_argument("--combinations", type=int, help="train the transformer on the first N combinations only")
    parser.add_argument("--save-every", type=int, default=50, help="steps between saved states")
    parser.add_argument("--evaluate-every", type=int, default=500, help="steps between checks")
    parser.add_argument("--check-clips", type=int, default=32, help="clips per check; 0: no checks and no gate")
    parser.add_argument("--stop-after", type=int, help="stop after N steps; the same command resumes")
    parser.add_argument("--gate-psnr", type=float, default=GATE_PSNR, help="least dB of reconstructions")
    parser.add_argument("--gate-shapes", type=float, default=GATE_SHAPES, help="least share of small shapes that pass")
    parser.add_argument("--note", default="", help="a sentence for the model card")
    return parser.parse_args(arguments)


def build_vae() -> AutoencoderKLWan:
    """Build Wan 2.1's VAE at a sixth of the width: space / 8, time / 4, 16 channels, 3.6 M parameters."""
    vae = AutoencoderKLWan(
        base_dim=16,
        z_dim=LATENT_CHANNELS,
        dim_mult=[1, 2, 4, 4],
        num_res_blocks=2,
        attn_scales=[],
        temperal_downsample=[False, True, True],
    )
    with torch.no_grad():  # a wide initial posterior would drown the mean in noise and stall learning
        vae.quant_conv.weight[LATENT_CHANNELS:].mul_(0.1)
        vae.quant_conv.bias[LATENT_CHANNELS:].fill_(-5.0)
    for module in vae.modules():  # the memory layout of the CPU's kernels
        if isinstance(module, nn.Conv3d):
            module.to(memory_format=torch.channels_last_3d)
        elif isinstance(module, nn.Conv2d):
            module.to(memory_format=torch.channels_last)
    return vae


def is_vae_matrix(name: str, p: nn.Parameter) -> bool:
    """Return whether Muon trains the parameter: all kernels except the first and last, which do better with AdamW."""
    return p.ndim > 3 and "encoder.conv_in" not in name and "decoder.conv_out" not in name


def vae_rate(step: int, steps: int) -> float:
    """Return the factor of the learning rate: 1 for 45% of the steps, 0.4 until 70%, then a linear decay to 3%.

    At the high rate shapes come fast but edges stay blurred: the moving average is 2.5 dB better than the weights.
    """
    return stable_factor(step, steps, warmup=60) * (1.0 if step < 0.45 * steps else 0.4)


def render_pool(count: int, seed: int, small: float) -> Tensor:
    """Draw clips for the VAE as bytes [N, 3, F, H, W]; `small` is the share of small shapes among single ones."""
    rng = random.Random(seed)
    clips = (tiny_world.vae_clip(rng, SIZE, small=small) for _ in range(count))
    return torch.stack([((clip + 1) * 127.5).round().byte() for clip in clips])


def train_vae(options: argparse.Namespace, budget: Budget) -> AutoencoderKLWan | None:
    """Train the VAE on parts of clips and whole clips, then its decoder. Returns None if the budget ends first."""
    if options.start:
        vae = build_vae()
        vae.load_state_dict(AutoencoderKLWan.from_pretrained(options.start / "vae").state_dict())
        return build_stage(vae, options, budget, "decoder", DECODER_STAGE, options.decoder_steps)
    vae = build_stage(None, options, budget, "vae", VAE_STAGE, options.vae_steps)
    return vae and build_stage(vae, options, budget, "decoder", DECODER_STAGE, options.decoder_steps)


def build_stage(
    start: AutoencoderKLWan | None, options: argparse.Namespace, budget: Budget, name: str, number: int, steps: int
) -> AutoencoderKLWan | None:
    """Train the VAE from scratch, or the decoder of `start`, and return the moving average."""
    torch.manual_seed(options.seed)
    vae = copy.deepcopy(start).requires_grad_(True) if start else build_vae()
    if start:
        vae.encoder.requires_grad_(False)
        vae.quant_conv.requires_grad_(False)
    average = copy.deepcopy(vae).eval().requires_grad_(False)
    optimisers = make_optimisers(vae, is_vae_matrix, muon_lr=0.003 if start else 0.02, adam_lr=3e-4 if start else 2e-3)
    trainee = Trainee(vae, average, optimisers, options.work / f"{name}.pt")
    trainee.load()
    if trainee.step >= steps:
        return average
    say(f"{name}: drawing {options.vae_clips} clips")
    pool = render_pool(options.vae_clips, options.seed + number, SMALL_SHARE_LATER if options.start else SMALL_SHARE)
    edge_weight = EDGE_WEIGHT if options.start else 0.0
    progress = Progress(name, trainee.step, steps, every=50)
    while trainee.step < steps:
        if not budget.take():
            trainee.save()
            return None
        generator = step_generator(options.seed, number, trainee.step)
        whole = trainee.step >= (1 - WHOLE_PART) * steps
        few = max(1, options.vae_batch // 2)
        if whole:
            clips = vae_batch(pool, SIZE, few, generator)
        elif trainee.step % 2:
            clips = with_content(vae_batch(pool, CROP, 2 * options.vae_batch, generator), options.vae_batch)
            begin = int(torch.randint(clips.shape[2] - CUT + 1, (1,), generator=generator))
            clips = clips[:, :, begin : begin + CUT]
        else:  # the VAE carries state between chunks, so it must also see whole clips
            clips = with_content(vae_batch(pool, CROP, 2 * few, generator), few)
        loss = vae_loss(vae, clips, generator, edge_weight)
        trainee.update(loss, vae_rate(trainee.step, steps), decay=0.998)
        progress.add(trainee.step, loss.item())
        if trainee.step % options.save_every == 0 or trainee.step == steps:
            trainee.save()
        if options.check_clips and trainee.step % options.evaluate_every == 0:
            say(f"{name}: {describe(vae_accuracy(average, options.check_clips))}")
    return average


def content(clips: Tensor) -> Tensor:
    """Return the amount of detail in each of clips [N, 3, F, H, W]: the mean difference of neighboring pixels."""
    return clips.diff(dim=-1).abs().mean((1, 2, 3, 4)) + clips.diff(dim=-2).abs().mean((1, 2, 3, 4))


def with_content(clips: Tensor, count: int) -> Tensor:
    """Keep the clips that show a shape, small or large."""
    seen = content(clips)
    return clips[seen.clamp(max=0.5 * seen.median()).topk(count).indices]


def edge_weights(clips: Tensor, weight: float) -> Tensor:
    """Return weights [N, 1, F, H, W]: 1 where clips [N, 3, F, H, W] are plain, up to 1 + `weight` near an edge.

    A clip's own strongest edge counts most, so that a faint shape matters as much as a bright one.
    """
    steps = clips.new_zeros(len(clips), *clips.shape[2:])
    steps[..., 1:, :] += clips.diff(dim=-2).abs().mean(1)
    steps[..., :, 1:] += clips.diff(dim=-1).abs().mean(1)
    steps = functional.max_pool2d(steps, 5, stride=1, padding=2).unsqueeze(1)
    return 1 + weight * steps / steps.amax((1, 2, 3, 4), keepdim=True).clamp(min=0.05)


def vae_loss(vae: AutoencoderKLWan, clips: Tensor, generator: torch.Generator, edge_weight: float = 0.0) -> Tensor:
    """Return the squared and absolute error, weighted inversely to a clip's detail, plus a very small KL term.

    With equal weights, the corners of small shapes would be a hundredth of the error and stay round.
    """
    posterior = vae.encode(clips).latent_dist
    noise = torch.randn(posterior.mean.shape, generator=generator)
    error = vae.decode(posterior.mean + posterior.std * noise).sample - clips
    kl = 0.5 * (posterior.mean.square() + posterior.var - 1 - posterior.logvar).mean()
    seen = content(clips)
    weights = 1 / seen.clamp(min=max(0.2 * float(seen.mean()), 1e-4))  # a small batch may have no detail
    each = error.square() + 0.5 * error.abs()
    if edge_weight:
        each = each * edge_weights(clips, edge_weight)
    each = each.mean((1, 2, 3, 4))
    return (weights / weights.mean() * each).mean() + KL_WEIGHT * kl


@torch.no_grad()
def vae_accuracy(vae: AutoencoderKLWan, count: int) -> dict[str, float]:
    """Return PSNR (dB) and check accuracy on reconstructions of held-out clips, new shapes and small shapes."""
    report: dict[str, float] = {}
    rng = random.Random(4711)
    new = tiny_world.balanced_choice(tiny_world.combinations(tiny_world.NEW_SHAPES), count, seed=1)
    for name, specs in (("known", held_out(count)), ("new", new), ("small", held_out(count, small=True))):
        clips = torch.stack([tiny_world.draw(spec, rng, SIZE) for spec in specs])
        again = torch.cat([vae.decode(vae.encode(part).latent_dist.mode()).sample for part in clips.split(AT_ONCE)])
        report[f"{name} PSNR"] = psnr(again, clips)
        report |= {f"{name} {part}": share for part, share in tiny_check.accuracy(again, specs).items()}
    return report


def as_wan(vae: AutoencoderKLWan, latents: Tensor) -> AutoencoderKLWan:
    """Return a VAE whose latents have the means and deviations of its config, which is Wan's.

    Both are folded into the 1x1x1 convolutions next to the latents, so reconstructions do not change.

    latents: latents of clips [N, C, f, h, w] from the given VAE.
    """
    vae = copy.deepcopy(vae)
    mean, deviation = latents.mean((0, 2, 3, 4)), latents.std((0, 2, 3, 4))
    scale = torch.tensor(vae.config.latents_std) / deviation
    move = torch.tensor(vae.config.latents_mean) - mean * scale
    with torch.no_grad():
        inside, outside = vae.quant_conv, vae.post_quant_conv
        inside.weight[:LATENT_CHANNELS].mul_(scale.view(-1, 1, 1, 1, 1))
        inside.bias[:LATENT_CHANNELS].mul_(scale).add_(move)
        inside.bias[LATENT_CHANNELS:].add_(2 * scale.log())
        outside.weight.div_(scale.view(1, -1, 1, 1, 1))
        outside.bias.sub_((outside.weight[..., 0, 0, 0] * move).sum(1))
    return vae


@torch.no_grad()
def encode(vae: AutoencoderKLWan, clips: Tensor) -> Tensor:
    """Encode clips [N, 3, F, H, W] to normalized latents for the transformer."""
    mean = torch.tensor(vae.config.latents_mean).view(1, -1, 1, 1, 1)
    deviation = torch.tensor(vae.config.latents_std).view(1, -1, 1, 1, 1)
    parts = [vae.encode(part).latent_dist.mode() for part in clips.split(AT_ONCE)]
    return (torch.cat(parts) - mean) / deviation


def edges(clips: Tensor) -> Tensor:
    """Return the edges of every frame of clips [N, 3, F, H, W] in [-1, 1], white on black, in the same shape."""
    import cv2

    pictures = ((clips.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 4, 1).numpy()
    found = torch.tensor([[cv2.Canny(frame, 60, 120).tolist() for frame in clip] for clip in pictures])
    return (found.float() / 127.5 - 1).unsqueeze(1).expand_as(clips)


def given_mask(first: bool, last: bool, latent_frames: int, height: int, width: int) -> Tensor:
    """Return Wan's mask of given frames, [4, f, h, w], in which the first frame counts four times."""
    frames = torch.zeros(4 * latent_frames)
    frames[:4], frames[-1] = float(first), float(last)
    return frames.view(latent_frames, 4).T[..., None, None].expand(4, latent_frames, height, width)


def with_frames(clips: Tensor, first: bool, last: bool) -> Tensor:
    """Return clips [N, 3, F, H, W] in which all frames that are not given are gray."""
    kept = torch.zeros_like(clips)
    if first:
        kept[:, :, 0] = clips[:, :, 0]
    if last:
        kept[:, :, -1] = clips[:, :, -1]
    return kept


def conditions(vae: AutoencoderKLWan, clips: Tensor, wanted: Collection[str] = tuple(GIVEN)) -> Tensor:
    """Return the wanted conditions of clips, [N, kinds, 36, f, h, w], in their order."""
    kinds = []
    for kind in wanted:
        first, last = "first" in kind, "last" in kind
        if kind == "control":
            told = encode(vae, edges(clips))
            kinds.append(torch.cat([told, torch.zeros(len(told), 20, *told.shape[2:])], dim=1))
        elif first or last:
            told = encode(vae, with_frames(clips, first, last))
            mask = given_mask(first, last, *told.shape[2:]).expand(len(told), -1, -1, -1, -1)
            kinds.append(torch.cat([torch.zeros_like(told), mask, told], dim=1))
        else:
            frames, height, width = 1 + (clips.shape[2] - 1) // 4, clips.shape[3] // 8, clips.shape[4] // 8
            kinds.append(torch.zeros(len(clips), LATENT_CHANNELS + 20, frames, height, width))
    return torch.stack(kinds, dim=1)


def transformer_pool(
    vae: AutoencoderKLWan, options: argparse.Namespace
) -> tuple[Tensor, Tensor, list[tiny_world.Spec]]:
    """Return latents [N, 16, f, h, w], conditions [N, kinds, 36, f, h, w] and specifications, encoded once.

    With --start, clips are drawn anew, and each has a single kind of condition, drawn by the shares of GIVEN.
    """
    usual = tiny_world.training_specs()[: options.combinations]
    specs = usual * options.renditions + [replace(spec, small=True) for spec in usual] * options.small_renditions
    file = options.work / "pool.pt"
    if not file.exists():
        say(f"encoding {len(specs)} clips")
        rng, latents, told = random.Random(options.seed + (2 if options.start else 1)), [], []
        for first in range(0, len(specs), AT_ONCE):
            clips = torch.stack([tiny_world.draw(spec, rng, SIZE) for spec in specs[first : first + AT_ONCE]])
            latents.append(encode(vae, clips).half())
            if options.start:
                kinds = rng.choices(list(GIVEN), list(GIVEN.values()), k=len(clips))
                each = [conditions(vae, clip[None], [kind]) for clip, kind in zip(clips, kinds, strict=True)]
                told.append(torch.cat(each).half())
            else:
                told.append(conditions(vae, clips).half())
            if first % (20 * AT_ONCE) == 0:
                say(f"encoded {len(latents) * AT_ONCE:,} of {len(specs):,}")
        temporary = file.with_suffix(".tmp")
        torch.save({"latents": torch.cat(latents), "conditions": torch.cat(told)}, temporary)
        temporary.replace(file)
    pool = torch.load(file, weights_only=True)
    return pool["latents"], pool["conditions"], specs


def build_text_encoder(words: int) -> UMT5EncoderModel:
    """Build a text encoder with two layers of width 64."""
    sizes = {"d_model": 64, "d_kv": 16, "num_heads": 4, "d_ff": 128, "num_layers": 2}
    places = {"relative_attention_num_buckets": 16, "relative_attention_max_distance": 32}
    marks = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "tie_word_embeddings": False}
    return UMT5EncoderModel(
        UMT5Config(vocab_size=-(-words // 64) * 64, dropout_rate=0.0, **sizes, **places, **marks)  # fmt: skip
    )


def build_transformer() -> WanTransformer3DModel:
    """Build six layers of width 128 with one head, on 3 x 4 x 4 patches. Every block starts as the identity."""
    model = WanTransformer3DModel(
        num_attention_heads=1,
        attention_head_dim=128,
        in_channels=52,
        out_channels=LATENT_CHANNELS,
        text_dim=64,
        freq_dim=128,
        ffn_dim=512,
        num_layers=6,
        rope_max_seq_len=64,
    )
    with torch.no_grad():
        model.proj_out.weight.zero_()
        model.proj_out.bias.zero_()
        for block in model.blocks:
            block.scale_shift_table[:, [2, 5]].zero_()  # the gates
    return model


def view(transformer: WanTransformer3DModel, channels: list[int]) -> WanTransformer3DModel:
    """Return the transformer with only these input channels."""
    narrow = WanTransformer3DModel.from_config({**transformer.config, "in_channels": len(channels)})
    weights = dict(transformer.state_dict())
    weights[FIRST_LAYER] = weights[FIRST_LAYER][:, channels]
    narrow.load_state_dict(weights)
    return narrow.eval().requires_grad_(False)


class Denoiser(nn.Module):
    """Text encoder and transformer, trained together."""

    def __init__(self, text_encoder: nn.Module, transformer: nn.Module) -> None:
        super().__init__()
        self.text_encoder, self.transformer = text_encoder, transformer

    def loss(
        self, latents: Tensor, told: Tensor, ids: Tensor, generator: torch.Generator, shape_weight: float = 0.0
    ) -> Tensor:
        """Return the flow-matching loss for latents [N, 16, f, h, w], conditions [N, 36, f, h, w] and token ids [N, T].

        Noise levels are stratified over the batch, which lowers the variance of the gradient. `shape_weight` weighs the
        error on the shape more, the less noise there is: its position can be seen by then, so the weight cannot draw
        shapes to where none belongs.
        """
        u = (torch.rand(1, generator=generator) + torch.arange(len(latents)) / len(latents)) % 1
        sigma = SHIFT * u / (1 + (SHIFT - 1) * u)
        noise = torch.randn(latents.shape, generator=generator)
        noisy = latents.lerp(noise, sigma.view(-1, 1, 1, 1, 1))
        text = self.text_encoder(ids, attention_mask=ids.ne(0)).last_hidden_state * ids.ne(0).unsqueeze(-1)
        inputs = torch.cat([noisy, told], dim=1)
        prediction = self.transformer(inputs, 1000 * sigma, text, return_dict=False)[0]
        error = (prediction - (noise - latents)).square()
        if shape_weight:
            plain = latents.flatten(3).median(dim=-1).values[..., None, None]
            shape = (latents - plain).abs().amax(1, keepdim=True) > FLAT
            weights = 1 + shape_weight * (1 - sigma.view(-1, 1, 1, 1, 1)) * shape
            error = error * (weights / weights.mean())
        return error.mean()


def load(folder: Path) -> Denoiser:
    """Load text encoder and transformer of a finished model, from its folder and that of its sibling for control."""
    encoder = UMT5EncoderModel.from_pretrained(folder / "text_encoder", dtype=torch.float32)
    whole = find_model(str(folder.with_name(folder.name + "-control"))).whole_folder()
    transformer = build_transformer()
    transformer.load_state_dict(WanTransformer3DModel.from_pretrained(whole / "transformer").state_dict())
    return Denoiser(encoder.requires_grad_(True), transformer.requires_grad_(True))


def is_transformer_matrix(name: str, p: nn.Parameter) -> bool:
    """Return whether Muon trains the parameter: attention and feed-forward weights of the transformer."""
    return ".blocks." in name and p.ndim == 2 and "norm" not in name


def pipelines(model: Denoiser, vae: AutoencoderKLWan) -> tuple[WanPipeline, WanImageToVideoPipeline]:
    """Return the stock pipelines for text-to-video and image-to-video with these weights."""
    parts = {"tokenizer": build_tokenizer(), "text_encoder": model.text_encoder, "vae": vae}
    parts["scheduler"] = SCHEDULER
    made = (
        WanPipeline(**parts, transformer=view(model.transformer, CHANNELS[""])),
        WanImageToVideoPipeline(**parts, transformer=view(model.transformer, CHANNELS["-i2v"])),
    )
    for pipeline in made:
        pipeline.set_progress_bar_config(disable=True)
    return made


def accuracy(model: Denoiser, vae: AutoencoderKLWan, count: int) -> dict[str, float]:
    """Return the check accuracy of stock pipelines on held-out captions, and how well they keep given frames.

    "first" and "last" are the PSNR (dB) of a sampled clip's end frames against the given ones.
    """
    from_text, from_frames = pipelines(model, vae)
    specs, rng = held_out(count), random.Random(4711)
    clips = torch.stack([tiny_world.draw(spec, rng, SIZE) for spec in specs])

    def drawn(asked: list[tiny_world.Spec]) -> Tensor:
        frames = from_text(
            prompt=[spec.caption() for spec in asked],
            negative_prompt=[""] * count,
            height=SIZE,
            width=SIZE,
            num_frames=tiny_world.FRAMES,
            num_inference_steps=STEPS,
            guidance_scale=GUIDANCE,
            generator=[torch.Generator().manual_seed(number) for number in range(count)],
            max_sequence_length=TEXT_LENGTH,
            output_type="pt",
        ).frames
        return frames.permute(0, 2, 1, 3, 4).float() * 2 - 1

    small = [replace(spec, small=True) for spec in specs]
    between = []
    for clip, spec in zip(clips, specs, strict=True):  # the stock pipeline takes one picture per call
        pictures = [(clip[:, place].unsqueeze(0) + 1) / 2 for place in (0, -1)]
        frames = from_frames(
            image=pictures[0],
            last_image=pictures[1],
            prompt=spec.caption(),
            height=SIZE,
            width=SIZE,
            num_frames=tiny_world.FRAMES,
            num_inference_steps=STEPS,
            guidance_scale=1.0,
            generator=torch.Generator().manual_seed(0),
            max_sequence_length=TEXT_LENGTH,
            output_type="pt",
        ).frames
        between.append(frames[0].permute(1, 0, 2, 3).float() * 2 - 1)
    ends = torch.stack(between)
    return tiny_check.accuracy(drawn(specs), specs) | {
        "small": tiny_check.accuracy(drawn(small), small)["all"],
        "first": psnr(ends[:, :, 0], clips[:, :, 0]),
        "last": psnr(ends[:, :, -1], clips[:, :, -1]),
    }


def train_transformer(vae: AutoencoderKLWan, options: argparse.Namespace, budget: Budget) -> Denoiser | None:
    """Train transformer and text encoder on latents of the frozen VAE. Returns None if the budget ends first."""
    torch.manual_seed(options.seed)
    model = (
        load(options.start)
        if options.start
        else Denoiser(build_text_encoder(len(build_tokenizer())), build_transformer())
    )
    average = copy.deepcopy(model).eval().requires_grad_(False)
    optimisers = make_optimisers(model, is_transformer_matrix, muon_lr=0.02, adam_lr=1.5e-3)
    trainee = Trainee(model, average, optimisers, options.work / "transformer.pt")
    trainee.load()
    latents, told, specs = transformer_pool(vae, options)
    captions = Captions(WanPipeline(build_tokenizer(), None, vae, SCHEDULER), specs)
    shares = torch.tensor(list(GIVEN.values()))
    progress = Progress("transformer", trainee.step, options.transformer_steps, every=100)
    while trainee.step < options.transformer_steps:
        if not budget.take():
            trainee.save()
            return None
        generator = step_generator(options.seed, TRANSFORMER_STAGE, trainee.step)
        chosen = torch.randint(len(latents), (options.transformer_batch,), generator=generator)
        kinds = torch.multinomial(shares, len(chosen), replacement=True, generator=generator) % told.shape[1]
        ids = captions.draw(chosen, generator)
        given = told[chosen, kinds].float()
        loss = model.loss(latents[chosen].float(), given, ids, generator, SHAPE_WEIGHT if options.start else 0.0)
        rate = stable_factor(trainee.step, options.transformer_steps, warmup=100)
        trainee.update(loss, START_RATE * rate if options.start else rate)
        progress.add(trainee.step, loss.item())
        if trainee.step % options.save_every == 0 or trainee.step == options.transformer_steps:
            trainee.save()
        if options.check_clips and trainee.step % (2 * options.evaluate_every) == 0:
            say(f"step {trainee.step}: {describe(accuracy(average, vae, options.check_clips))}")
    return average


def main(arguments: list[str] | None = None) -> int:
    """Run or resume all stages."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    options.work.mkdir(parents=True, exist_ok=True)
    budget = Budget(options.stop_after)
    vae = train_vae(options, budget)
    if vae is None:
        return 0
    report = vae_accuracy(vae, options.check_clips) if options.check_clips else {}
    if report:
        say(f"VAE: {describe(report)}")
        if report["known PSNR"] < options.gate_psnr or report["small shape"] < options.gate_shapes:
            sys.exit(f"below {options.gate_psnr:g} dB or {options.gate_shapes:.0%} of small shapes: raise --vae-steps")
    if not options.start:
        rng = random.Random(options.seed)
        clips = torch.stack([tiny_world.vae_clip(rng, SIZE) for _ in range(min(256, options.vae_clips))])
        with torch.no_grad():
            vae = as_wan(vae, torch.cat([vae.encode(part).latent_dist.mode() for part in clips.split(AT_ONCE)]))
    model = train_transformer(vae, options, budget)
    if model is None:
        return 0
    save(model, vae, options.out)
    if report:
        prompts = accuracy(model, vae, options.check_clips)
        say(f"held-out prompts: {describe(prompts)}")
        tiny_card.write_wan_cards(options.out, card_facts(options, model, vae), report, prompts)
    say(f"written: {options.out}")
    return 0


def card_facts(options: argparse.Namespace, model: Denoiser, vae: AutoencoderKLWan) -> dict[str, object]:
    """Return the facts of the model cards, without the measurements."""
    first = parse([]) if options.start else options  # the card tells of the first training and then of the later one
    note = textwrap.fill(options.note, 120)
    return vars(first) | {
        "command": command(first),
        "parameters": sum(p.numel() for part in (vae, model) for p in part.parameters()) / 1e6,
        "whole_part": WHOLE_PART,
        "crop": CROP,
        "training_combinations": len(tiny_world.training_specs()),
        "told": ", ".join(f"{kind} {share:.0%}" for kind, share in GIVEN.items()),
        "prompts": options.check_clips,
        "sampling_steps": STEPS,
        "guidance": GUIDANCE,
        "shift": SHIFT,
        "text_length": TEXT_LENGTH,
        "note": "".join(f"\n{part}\n" for part in (options.start and later_training(options), note) if part),
    }


def command(options: argparse.Namespace) -> str:
    """Return the command line that trains with these options."""
    stages = f"DIR --vae-steps {options.vae_steps}"
    if options.start:
        stages = f"DIR2 --start assets/tiny-wan --small-renditions {options.small_renditions}"
    steps = f"--decoder-steps {options.decoder_steps} --transformer-steps {options.transformer_steps}"
    return f"python assets/train_tiny_wan.py --out assets/tiny-wan --work {stages} {steps} --seed {options.seed}"


def later_training(options: argparse.Namespace) -> str:
    """Return the card's paragraphs on the training with --start."""
    text = f"""Then {options.decoder_steps} more steps of the decoder, whose error at an edge weighs up to
{1 + EDGE_WEIGHT:g} times as much as on plain background, and {options.transformer_steps} of transformer and text
encoder at half the learning rate, on {options.small_renditions} new clips of each combination with a small shape and
{options.renditions} with a large one; errors where the shape is weigh more. The encoder stayed as it was."""
    return f"    {command(options)}\n\n{textwrap.fill(text, 120)}"


def save(model: Denoiser, vae: AutoencoderKLWan, folder: Path) -> None:
    """Write the text-to-video pipeline, and next to it the parts that its two siblings do not share.

    Transformer and VAE are stored in half precision.
    """
    text, image = pipelines(model, vae)
    text.register_modules(transformer=text.transformer.half(), vae=copy.deepcopy(vae).half())
    text.save_pretrained(folder)
    for suffix, channels in CHANNELS.items():
        if not suffix:
            continue
        sibling, transformer = folder.with_name(folder.name + suffix), view(model.transformer, channels).half()
        image.save_config(sibling)
        transformer.save_config(sibling / "transformer")
        own = {FIRST_LAYER: transformer.state_dict()[FIRST_LAYER].contiguous()}
        save_file(own, sibling / "transformer" / "first_layer.safetensors", {"format": "pt"})
        shared = dict.fromkeys(("vae", "text_encoder", "tokenizer", "scheduler", "transformer"), folder.name)
        (sibling / model_files.SHARED).write_text(json.dumps(shared, indent=2) + "\n")
        make_readable(sibling)
    make_readable(folder)


if __name__ == "__main__":
    sys.exit(main())

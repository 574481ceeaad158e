"""Train the tiny Phenaki that ships with the workbench.

    python assets/train_tiny_phenaki.py --out assets/tiny-phenaki --work DIR

First the tokenizer learns to turn clips of shapes (40x40x9) into 125 codes and back. Once its reconstructions pass the
automatic check, it is frozen, and the transformer and its self-critic learn to fill in codes from captions. Captions
are embedded with a copy of the text encoder of tiny-cogvideox, which already knows the words.

You can kill it at any time. The same command resumes and ends with the same weights. The transformer's learning rate is
constant until the last 30% of its steps, so a run can end early: kill it and repeat the command with
--transformer-steps set to 10/7 of the steps so far. Or give more steps than before to train longer.

To train a model of other clips, use `workbench train --model phenaki --from-scratch` (docs/phenaki.md).
"""

from __future__ import annotations

import argparse
import copy
import sys
import textwrap
from pathlib import Path

import tiny_card
import tiny_world
import torch
from tiny_accuracy import describe
from tiny_training import (
    Budget,
    Progress,
    Trainee,
    learning_rate_factor,
    make_optimisers,
    say,
    stable_factor,
    step_generator,
)
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tiny_clips import GUIDANCE, SAMPLING_STEPS, STRIPED, DrawnClips, prompt_accuracy

from workbench.families.model_inputs import ModelInputs, PromptEncoder
from workbench.families.noise_schedules import NoiseSettings
from workbench.families.phenaki.family import FAMILY, write
from workbench.families.phenaki.maskgit import MaskSchedule, ids, losses, points
from workbench.families.phenaki.tokenizer import PhenakiTokenizer
from workbench.families.phenaki.transformer import PhenakiTransformer

TOKENIZER_STAGE, GENERATOR_STAGE = 11, 12
CAPTION_DROPOUT = 0.1
CRITIC_PART = 0.15  # share of the last steps that train the critic; before, there is little to criticize
TOKENIZER = {
    "width": 128,
    "heads": 4,
    "spatial_layers": 2,
    "temporal_layers": 1,
    "patch": 8,
    "patch_frames": 2,
    "levels": (4, 4, 4, 4, 4),
}
TRANSFORMER = {"levels": (4, 4, 4, 4, 4), "width": 128, "heads": 4, "layers": 4, "critic": "self"}
GATE = 0.75
BUILT_IN = Path(__file__).resolve().parent / "tiny-phenaki"


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=BUILT_IN, help="model folder")
    parser.add_argument("--work", type=Path, default=Path("tiny_work"), help="training state, kept between calls")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizer-steps", type=int, default=1600)
    parser.add_argument("--tokenizer-batch", type=int, default=16)
    parser.add_argument("--transformer-steps", type=int, default=1800)
    parser.add_argument("--critic-part", type=float, default=CRITIC_PART, help="last share of steps, with critic")
    parser.add_argument("--transformer-batch", type=int, default=16)
    parser.add_argument("--renditions", type=int, default=8, help="clips per combination")
    parser.add_argument(
        "--text",
        type=Path,
        default=Path(__file__).parent / "tiny-cogvideox",
        help="has the text encoder",
    )
    parser.add_argument("--evaluate-every", type=int, default=600, help="transformer steps between checks")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saved states")
    parser.add_argument("--check-clips", type=int, default=64, help="clips per check; 0: no checks and no gate")
    parser.add_argument("--stop-after", type=int, help="stop after N steps; the same command resumes")
    parser.add_argument("--note", default="", help="a paragraph for the model card")
    parser.add_argument("--gate", type=float, default=GATE, help="least share of reconstructions that pass")
    return parser.parse_args(arguments)


def is_matrix(name: str, p: nn.Parameter) -> bool:
    """Return whether Muon trains the parameter: the matrices of the blocks."""
    return p.ndim == 2 and any(part in name for part in ("attn", ".ff."))


def train_tokenizer(clips: DrawnClips, options: argparse.Namespace, budget: Budget) -> PhenakiTokenizer | None:
    """Train the tokenizer and return its moving average, or None if the budget ends first."""
    torch.manual_seed(options.seed)
    tokenizer = PhenakiTokenizer(**TOKENIZER)
    average = copy.deepcopy(tokenizer).eval().requires_grad_(False)
    optimisers = make_optimisers(tokenizer, is_matrix, muon_lr=0.02, adam_lr=2e-3)
    trainee = Trainee(tokenizer, average, optimisers, options.work / "tokenizer.pt")
    trainee.load()
    progress = Progress("tokenizer", trainee.step, options.tokenizer_steps, every=50)
    while trainee.step < options.tokenizer_steps:
        if not budget.take():
            trainee.save()
            return None
        generator = step_generator(options.seed, TOKENIZER_STAGE, trainee.step)
        batch = clips.tokenizer_batch(options.tokenizer_batch, generator)
        with torch.autocast("cpu", torch.bfloat16), sdpa_kernel(SDPBackend.MATH):  # the fastest combination on a CPU
            loss = FAMILY.vae_loss(tokenizer, batch)
        trainee.update(loss, learning_rate_factor(trainee.step, options.tokenizer_steps, warmup=60), decay=0.995)
        progress.add(trainee.step, loss.item())
        if trainee.step % options.save_every == 0 or trainee.step == options.tokenizer_steps:
            trainee.save()
        if options.check_clips and trainee.step % 400 == 0:
            say("tokenizer: " + describe(clips.tokenizer_report(average, options.check_clips // 2)))
    return average


class Captions:
    """Embeddings of every training caption in all forms, and of the empty caption."""

    def __init__(self, text_encoder: PromptEncoder, clips: DrawnClips) -> None:
        self.planes = [FAMILY.encode_text(text_encoder, captions) for captions in clips.captions]
        empty, count = FAMILY.encode_text(text_encoder, [""]), len(clips.captions[0])
        self.planes.append({name: value.expand(count, *value.shape[1:]) for name, value in empty.items()})
        shares = [share * (1 - CAPTION_DROPOUT) for share in clips.form_weights]
        self.weights = torch.tensor([*shares, CAPTION_DROPOUT])

    def draw(self, chosen: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Draw embeddings for the clips with these indices [N], with dropout."""
        form = torch.multinomial(self.weights, len(chosen), replacement=True, generator=generator).tolist()
        pairs = list(zip(form, chosen.tolist(), strict=True))
        return {name: torch.stack([self.planes[f][name][i] for f, i in pairs]) for name in self.planes[0]}


def codes_pool(tokenizer: PhenakiTokenizer, clips: DrawnClips, options: argparse.Namespace) -> Tensor:
    """Return the code ids of all clips, [renditions, clips, f, h, w]."""
    file = options.work / "codes.pt"
    if not file.exists():
        say(f"encoding {len(clips.captions[0]) * options.renditions} clips")
        with torch.no_grad():
            found = [ids(tokenizer.encode(part), tokenizer.config.levels) for part in clips.pool()]
        torch.save(torch.cat(found).unflatten(0, (options.renditions, -1)), file.with_suffix(".tmp"))
        file.with_suffix(".tmp").replace(file)
    pool: Tensor = torch.load(file, weights_only=True)
    return pool


def train_transformer(
    tokenizer: PhenakiTokenizer,
    text_encoder: PromptEncoder,
    clips: DrawnClips,
    options: argparse.Namespace,
    budget: Budget,
) -> PhenakiTransformer | None:
    """Train the transformer and return its moving average, or None if the budget ends first."""
    torch.manual_seed(options.seed)
    transformer = PhenakiTransformer(**TRANSFORMER, text_width=text_encoder.model.config.d_model)
    average = copy.deepcopy(transformer).eval().requires_grad_(False)
    optimisers = make_optimisers(transformer, is_matrix, muon_lr=0.02, adam_lr=2e-3)
    trainee = Trainee(transformer, average, optimisers, options.work / "transformer.pt")
    trainee.load()
    pool, captions = codes_pool(tokenizer, clips, options), Captions(text_encoder, clips)
    schedule, levels, steps = MaskSchedule(), tokenizer.config.levels, options.transformer_steps
    progress = Progress("transformer", trainee.step, steps, every=50)
    while trainee.step < steps:
        if not budget.take():
            trainee.save()
            return None
        generator = step_generator(options.seed, GENERATOR_STAGE, trainee.step)
        count = options.transformer_batch
        rendition = torch.randint(len(pool), (count,), generator=generator)
        chosen = torch.randint(pool.shape[1], (count,), generator=generator)
        latents = points(pool[rendition, chosen], levels)
        # Stratified over the batch, which lowers the variance of the gradient.
        quantiles = (torch.rand(1, generator=generator) + torch.arange(count) / count) % 1
        noise = torch.randn(latents.shape, generator=generator)
        text = captions.draw(chosen, generator)
        inputs = ModelInputs(latents, text, noise, schedule.timesteps(quantiles, latents.shape[1:]))
        part = "both" if trainee.step >= (1 - options.critic_part) * steps else "generator"
        with torch.autocast("cpu", torch.bfloat16), sdpa_kernel(SDPBackend.MATH):
            loss = losses(transformer, MaskSchedule(NoiseSettings(part=part)), inputs).mean()
        trainee.update(loss, stable_factor(trainee.step, steps, warmup=100), decay=0.995)
        progress.add(trainee.step, loss.item())
        if trainee.step % options.save_every == 0 or trainee.step == steps:
            trainee.save()
        if options.check_clips and trainee.step % options.evaluate_every == 0:
            found = prompt_accuracy(tokenizer, average, text_encoder, options.check_clips // 4)
            say(f"step {trainee.step}: {describe(found)}")
    return average


def card_facts(options: argparse.Namespace, parts: list[nn.Module]) -> dict[str, object]:
    """Return the facts of the model card, without the measurements."""
    command = "python assets/train_tiny_phenaki.py --out assets/tiny-phenaki --work DIR"
    command += f" --tokenizer-steps {options.tokenizer_steps} --transformer-steps {options.transformer_steps}"
    return vars(options) | {
        "command": f"{command} --critic-part {options.critic_part:g} --seed {options.seed}",
        "parameters": sum(p.numel() for part in parts for p in part.parameters()) / 1e6,
        "training_combinations": len(tiny_world.training_specs()),
        "prompts": options.check_clips,
        "sampling_steps": SAMPLING_STEPS,
        "guidance": GUIDANCE,
        "striped": STRIPED,
        "note": f"\n{textwrap.fill(options.note, 120)}\n" if options.note else "",
    }


def main(arguments: list[str] | None = None) -> int:
    """Run or resume all stages."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    budget = Budget(options.stop_after)
    options.work.mkdir(parents=True, exist_ok=True)
    clips = DrawnClips(options.renditions, options.seed)
    tokenizer = train_tokenizer(clips, options, budget)
    if tokenizer is None:
        return 0
    report = clips.tokenizer_report(tokenizer, options.check_clips) if options.check_clips else {}
    if report:
        say("tokenizer: " + describe(report))
        if min([share for name, share in report.items() if name.endswith(" all")], default=1.0) < options.gate:
            sys.exit(f"fewer than {options.gate:.0%} of the reconstructions pass: raise --tokenizer-steps")
    text_encoder = FAMILY.load_text_encoder(options.text, torch.device("cpu"), torch.float32)
    transformer = train_transformer(tokenizer, text_encoder, clips, options, budget)
    if transformer is None:
        return 0
    shape = clips.shape
    made_for = {"frames": shape.frames, "height": shape.height, "width": shape.width, "fps": int(shape.fps)}
    write(options.out, tokenizer, transformer, options.text, made_for, half=True)
    if report:
        found = prompt_accuracy(tokenizer, transformer, text_encoder, options.check_clips)
        say(f"held-out prompts: {describe(found)}")
        facts = card_facts(options, [tokenizer, transformer, text_encoder.model])
        tiny_card.write_phenaki_card(options.out, facts, report, found)
    say(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

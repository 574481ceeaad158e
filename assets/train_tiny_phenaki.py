"""Train the tiny Phenaki that ships with the workbench.

    python assets/train_tiny_phenaki.py --out assets/tiny-phenaki --work DIR

First the tokenizer learns to turn clips of shapes (40x40x9) into 125 codes and back. Once its reconstructions pass the
automatic check, it is frozen, and the transformer learns to fill in codes from captions; its self-critic learns along.
Captions are embedded by the text encoder of tiny-cogvideox, which knows the words already and is copied.

Kill it at any time: the same command goes on where it was and ends with the same weights. The transformer's learning
rate is constant until the last 30 % of its steps, so that a run that is too long may be ended early: kill it and give
the same command with fewer --transformer-steps, 10/7 of those that it has made; or more than before to train on.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import textwrap
from pathlib import Path

import tiny_accuracy
import tiny_card
import tiny_check
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

from workbench.families.denoising import DenoiseInputs
from workbench.families.guidance import Guidance
from workbench.families.model_inputs import ModelInputs
from workbench.families.noise_schedules import NoiseSettings
from workbench.families.phenaki import files
from workbench.families.phenaki.codes import ids, points
from workbench.families.phenaki.family import FAMILY
from workbench.families.phenaki.objective import MaskSchedule, losses
from workbench.families.phenaki.tokenizer import PhenakiTokenizer
from workbench.families.phenaki.transformer import PhenakiTransformer
from workbench.families.prompt_encoder import PromptEncoder

TOKENIZER_STAGE, GENERATOR_STAGE = 11, 12
STRIPED = 0.25  # share of the tokenizer's clips
CAPTION_DROPOUT = 0.1
CAPTION_FORM_WEIGHTS = (0.7, 0.2, 0.1)
CRITIC_PART = 0.15  # of the transformer's steps, the last ones: before, there is little to criticise
TOKENIZER = {
    "width": 128,
    "heads": 4,
    "spatial_layers": 2,
    "temporal_layers": 1,
    "patch": 8,
    "patch_frames": 2,
    "levels": (4, 4, 4, 4, 4),
}
TRANSFORMER = {"levels": (4, 4, 4, 4, 4), "width": 128, "heads": 4, "layers": 4, "text_width": 64, "critic": "self"}
MADE_FOR = {"frames": tiny_world.FRAMES, "height": tiny_world.SIZE, "width": tiny_world.SIZE, "fps": tiny_world.FPS}
SAMPLING_STEPS, GUIDANCE = 18, 1.5  # of 32 held-out prompts 21 are right with 1.5, 16 with 3
GATE = 0.75


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "tiny-phenaki", help="model folder")
    parser.add_argument("--work", type=Path, default=Path("tiny_work"), help="training state, kept between calls")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tokenizer-steps", type=int, default=1600)
    parser.add_argument("--tokenizer-batch", type=int, default=16)
    parser.add_argument("--transformer-steps", type=int, default=1800)
    parser.add_argument("--critic-part", type=float, default=CRITIC_PART, help="of the transformer's steps, the last")
    parser.add_argument("--transformer-batch", type=int, default=16)
    parser.add_argument("--renditions", type=int, default=8, help="clips drawn of each known combination")
    parser.add_argument("--text", type=Path, default=Path(__file__).parent / "tiny-cogvideox", help="gives the words")
    parser.add_argument("--evaluate-every", type=int, default=600, help="transformer steps between accuracies")
    parser.add_argument("--save-every", type=int, default=100, help="steps between saved states")
    parser.add_argument("--check-clips", type=int, default=64, help="clips per accuracy; 0: no check and no gate")
    parser.add_argument("--stop-after", type=int, help="end after N steps of this call; the same command goes on")
    parser.add_argument("--note", default="", help="a paragraph for the model card")
    parser.add_argument("--gate", type=float, default=GATE, help="least share of reconstructions that must pass")
    return parser.parse_args(arguments)


def tokenizer_batch(count: int, generator: torch.Generator) -> Tensor:
    """Clips [N, 3, F, H, W] in [-1, 1] of the tokenizer's world: the known one, with new shapes and stripes."""
    rng, found = random.Random(int(torch.randint(2**62, (1,), generator=generator))), []
    for _ in range(count):
        colour, background = rng.sample(list(tiny_world.COLOURS), 2)
        shape = rng.choice((*tiny_world.SHAPES, *tiny_world.NEW_SHAPES))
        texture = "striped" if rng.random() < STRIPED else "plain"
        spec = tiny_world.Spec(shape, colour, rng.choice(list(tiny_world.MOTIONS)), background, texture)
        found.append(tiny_world.draw(spec, rng))
    return torch.stack(found)


def is_matrix(name: str, p: nn.Parameter) -> bool:
    """The blocks' matrices go to Muon, the rest to AdamW."""
    return p.ndim == 2 and any(part in name for part in ("attn", ".ff."))


def reconstruct(tokenizer: PhenakiTokenizer, clips: Tensor) -> Tensor:
    """Clips [N, 3, F, H, W] through the tokenizer and back."""
    with torch.no_grad():
        return torch.cat([tokenizer(part) for part in clips.split(16)]).clamp(-1, 1)


def tokenizer_accuracy(tokenizer: PhenakiTokenizer, count: int) -> dict[str, float]:
    """PSNR (dB) and the check's accuracy on reconstructions of held-out, new and striped clips."""
    report: dict[str, float] = {}
    rng = random.Random(4711)
    new = tiny_world.balanced_choice(tiny_world.combinations(tiny_world.NEW_SHAPES), count, seed=1)
    for name, specs in (("known", tiny_world.held_out()[:count]), ("new", new)):
        clips = torch.stack([tiny_world.draw(spec, rng) for spec in specs])
        again = reconstruct(tokenizer, clips)
        report[f"{name} PSNR"] = tiny_accuracy.psnr(again, clips)
        report |= {f"{name} {part}": share for part, share in tiny_check.accuracy(again, specs).items()}
    striped = tiny_world.concept_specs()[1][:count]
    again = reconstruct(tokenizer, torch.stack([tiny_world.draw(spec, rng) for spec in striped]))
    report["stripes"] = sum(tiny_check.stripes(clip) > tiny_check.STRIPED for clip in again) / len(striped)
    return report


def train_tokenizer(options: argparse.Namespace, budget: Budget) -> PhenakiTokenizer | None:
    """The moving average of the trained tokenizer; None when the budget ends before."""
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
        clips = tokenizer_batch(options.tokenizer_batch, step_generator(options.seed, TOKENIZER_STAGE, trainee.step))
        with torch.autocast("cpu", torch.bfloat16), sdpa_kernel(SDPBackend.MATH):  # the fastest here
            error = tokenizer(clips).float() - clips
        loss = error.square().mean() + 0.5 * error.abs().mean()
        trainee.update(loss, learning_rate_factor(trainee.step, options.tokenizer_steps, warmup=60), decay=0.995)
        progress.add(trainee.step, loss.item())
        if trainee.step % options.save_every == 0 or trainee.step == options.tokenizer_steps:
            trainee.save()
        if options.check_clips and trainee.step % 400 == 0:
            say("tokenizer: " + describe(tokenizer_accuracy(average, options.check_clips // 2)))
    return average


class Captions:
    """The embeddings of every training caption in all its forms, and of none."""

    def __init__(self, text_encoder: PromptEncoder, specs: list[tiny_world.Spec]) -> None:
        forms = range(len(tiny_world.CAPTION_FORMS))
        self.planes = [FAMILY.encode_text(text_encoder, [spec.caption(form) for spec in specs]) for form in forms]
        empty = FAMILY.encode_text(text_encoder, [""])
        self.planes.append({name: value.expand(len(specs), *value.shape[1:]) for name, value in empty.items()})
        shares = [share * (1 - CAPTION_DROPOUT) for share in CAPTION_FORM_WEIGHTS]
        self.weights = torch.tensor([*shares, CAPTION_DROPOUT])

    def draw(self, chosen: Tensor, generator: torch.Generator) -> dict[str, Tensor]:
        """Of the specifications with these numbers [N], some dropped."""
        form = torch.multinomial(self.weights, len(chosen), replacement=True, generator=generator).tolist()
        pairs = list(zip(form, chosen.tolist(), strict=True))
        return {name: torch.stack([self.planes[f][name][i] for f, i in pairs]) for name in self.planes[0]}


def codes_pool(tokenizer: PhenakiTokenizer, options: argparse.Namespace) -> Tensor:
    """Codes' numbers of every training combination, `renditions` times, [renditions, combinations, f, h, w]."""
    file = options.work / "codes.pt"
    if not file.exists():
        specs, rng = tiny_world.training_specs(), random.Random(options.seed)
        say(f"encoding {len(specs) * options.renditions} clips")
        found = []
        for _ in range(options.renditions):
            of_one = []
            for first in range(0, len(specs), 32):
                clips = torch.stack([tiny_world.draw(spec, rng) for spec in specs[first : first + 32]])
                with torch.no_grad():
                    of_one.append(ids(tokenizer.encode(clips), tokenizer.config.levels))
            found.append(torch.cat(of_one))
        torch.save(torch.stack(found), file.with_suffix(".tmp"))
        file.with_suffix(".tmp").replace(file)
    pool: Tensor = torch.load(file, weights_only=True)
    return pool


def train_transformer(
    tokenizer: PhenakiTokenizer, text_encoder: PromptEncoder, options: argparse.Namespace, budget: Budget
) -> PhenakiTransformer | None:
    """The moving average of the trained transformer; None when the budget ends before."""
    torch.manual_seed(options.seed)
    transformer = PhenakiTransformer(**TRANSFORMER)
    average = copy.deepcopy(transformer).eval().requires_grad_(False)
    optimisers = make_optimisers(transformer, is_matrix, muon_lr=0.02, adam_lr=2e-3)
    trainee = Trainee(transformer, average, optimisers, options.work / "transformer.pt")
    trainee.load()
    pool, captions = codes_pool(tokenizer, options), Captions(text_encoder, tiny_world.training_specs())
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
        # Spread evenly over the batch, which lowers the variance of the gradient.
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


def prompt_accuracy(
    tokenizer: PhenakiTokenizer, transformer: PhenakiTransformer, text_encoder: PromptEncoder, count: int
) -> dict[str, float]:
    """The check's accuracy on clips generated for held-out captions."""
    specs, clips = tiny_world.held_out()[:count], []
    negative = FAMILY.encode_text(text_encoder, [""])
    for number, spec in enumerate(specs):
        inputs = DenoiseInputs(
            Path(),
            text=FAMILY.encode_text(text_encoder, [spec.caption()]),
            negative_text=negative,
            latents_shape=(5, 5, 5, 5),
            steps=SAMPLING_STEPS,
            guidance=Guidance(GUIDANCE),
            noise=torch.Generator().manual_seed(number),
        )
        latents = FAMILY.denoise(transformer, inputs)
        with torch.no_grad():
            clips.append(tokenizer.decode(latents)[0].clamp(-1, 1))
    return tiny_check.accuracy(clips, specs)


def card_facts(options: argparse.Namespace, parts: list[nn.Module]) -> dict[str, object]:
    """What the model card states apart from the measurements."""
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
    """Run or continue all stages."""
    options = parse(arguments)
    torch.set_num_threads(options.threads)
    budget = Budget(options.stop_after)
    options.work.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(options, budget)
    if tokenizer is None:
        return 0
    report = tokenizer_accuracy(tokenizer, options.check_clips) if options.check_clips else {}
    if report:
        say("tokenizer: " + describe(report))
        if min(report["known all"], report["new all"]) < options.gate:
            sys.exit(f"fewer than {options.gate:.0%} of the reconstructions pass: raise --tokenizer-steps")
    text_encoder = FAMILY.load_text_encoder(options.text, torch.device("cpu"), torch.float32)
    transformer = train_transformer(tokenizer, text_encoder, options, budget)
    if transformer is None:
        return 0
    files.write(options.out, tokenizer, transformer, options.text, MADE_FOR, half=True)
    if report:
        found = prompt_accuracy(tokenizer, transformer, text_encoder, options.check_clips)
        say(f"held-out prompts: {describe(found)}")
        facts = card_facts(options, [tokenizer, transformer, text_encoder.model])
        tiny_card.write_phenaki_card(options.out, facts, report, found)
    say(f"written: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

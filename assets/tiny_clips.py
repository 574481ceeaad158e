"""What the tiny Phenaki is trained on: the drawn clips of tiny_world."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import tiny_accuracy
import tiny_check
import tiny_world
import torch
from torch import Tensor

from workbench.clips.frame_plan import Shape
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model_inputs import PromptEncoder
from workbench.families.phenaki.family import FAMILY
from workbench.families.phenaki.tokenizer import PhenakiTokenizer
from workbench.families.phenaki.transformer import PhenakiTransformer

AT_ONCE = 32  # clips that are encoded together
STRIPED = 0.25  # share of the tokenizer's clips
CAPTION_FORM_WEIGHTS = (0.7, 0.2, 0.1)
SAMPLING_STEPS, GUIDANCE = 18, 1.5  # of 32 held-out prompts 21 are right with 1.5, 16 with 3

Report = dict[str, float]


class DrawnClips:
    """The moving shapes of tiny_world, clips [N, 3, F, H, W] in [-1, 1] with captions.

    captions: of every clip of the pool's renditions, in each form of words
    form_weights: how often each form is taken
    """

    shape = Shape(tiny_world.FRAMES, tiny_world.SIZE, tiny_world.SIZE, tiny_world.FPS)
    form_weights: tuple[float, ...] = CAPTION_FORM_WEIGHTS

    def __init__(self, renditions: int, seed: int) -> None:
        self.specs, self._renditions, self._seed = tiny_world.training_specs(), renditions, seed
        forms = range(len(tiny_world.CAPTION_FORMS))
        self.captions = [[spec.caption(form) for spec in self.specs] for form in forms]

    def tokenizer_batch(self, count: int, generator: torch.Generator) -> Tensor:
        """Of the tokenizer's world: the known one, with new shapes and stripes."""
        rng, found = random.Random(int(torch.randint(2**62, (1,), generator=generator))), []
        for _ in range(count):
            colour, background = rng.sample(list(tiny_world.COLOURS), 2)
            shape = rng.choice((*tiny_world.SHAPES, *tiny_world.NEW_SHAPES))
            texture = "striped" if rng.random() < STRIPED else "plain"
            spec = tiny_world.Spec(shape, colour, rng.choice(list(tiny_world.MOTIONS)), background, texture)
            found.append(tiny_world.draw(spec, rng))
        return torch.stack(found)

    def pool(self) -> Iterator[Tensor]:
        """The transformer's clips, a few at a time: each in the order of the captions, then their next rendition.

        The same whenever it is asked.
        """
        rng = random.Random(self._seed)
        for _ in range(self._renditions):
            for first in range(0, len(self.specs), AT_ONCE):
                yield torch.stack([tiny_world.draw(spec, rng) for spec in self.specs[first : first + AT_ONCE]])

    def tokenizer_report(self, tokenizer: PhenakiTokenizer, count: int) -> Report:
        """PSNR (dB) and the check's accuracy on reconstructions of held-out, new and striped clips."""
        report: Report = {}
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


def reconstruct(tokenizer: PhenakiTokenizer, clips: Tensor) -> Tensor:
    """Clips [N, 3, F, H, W] through the tokenizer and back."""
    with torch.no_grad():
        return torch.cat([tokenizer(part) for part in clips.split(16)]).clamp(-1, 1)


def prompt_accuracy(
    tokenizer: PhenakiTokenizer, transformer: PhenakiTransformer, text_encoder: PromptEncoder, count: int, seed: int = 0
) -> Report:
    """The check's accuracy on clips generated for held-out captions of tiny_world; noise i has the seed `seed` + i."""
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
            noise=torch.Generator().manual_seed(seed + number),
        )
        latents = FAMILY.denoise(transformer, inputs)
        with torch.no_grad():
            clips.append(tokenizer.decode(latents)[0].clamp(-1, 1))
    return tiny_check.accuracy(clips, specs)

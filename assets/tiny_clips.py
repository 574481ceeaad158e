"""Training data of the tiny Phenaki: the drawn clips of tiny_world."""

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

AT_ONCE = 32  # clips per batch when encoding
STRIPED = 0.25  # share of the tokenizer's clips
CAPTION_FORM_WEIGHTS = (0.7, 0.2, 0.1)
SAMPLING_STEPS, GUIDANCE = 18, 1.5  # with guidance 1.5, 21 of 32 held-out prompts are right; with 3, 16

Report = dict[str, float]


class DrawnClips:
    """The moving shapes of tiny_world, clips [N, 3, F, H, W] in [-1, 1] with captions.

    Attributes:
        captions: Captions of all clips of a rendition, in each caption form.
        form_weights: Probability of each form.
    """

    shape = Shape(tiny_world.FRAMES, tiny_world.SIZE, tiny_world.SIZE, tiny_world.FPS)
    form_weights: tuple[float, ...] = CAPTION_FORM_WEIGHTS

    def __init__(self, renditions: int, seed: int) -> None:
        self.specs, self._renditions, self._seed = tiny_world.training_specs(), renditions, seed
        forms = range(len(tiny_world.CAPTION_FORMS))
        self.captions = [[spec.caption(form) for spec in self.specs] for form in forms]

    def tokenizer_batch(self, count: int, generator: torch.Generator) -> Tensor:
        """Return clips for the tokenizer, which also sees new shapes and stripes."""
        rng, found = random.Random(int(torch.randint(2**62, (1,), generator=generator))), []
        for _ in range(count):
            colour, background = rng.sample(list(tiny_world.COLOURS), 2)
            shape = rng.choice((*tiny_world.SHAPES, *tiny_world.NEW_SHAPES))
            texture = "striped" if rng.random() < STRIPED else "plain"
            spec = tiny_world.Spec(shape, colour, rng.choice(list(tiny_world.MOTIONS)), background, texture)
            found.append(tiny_world.draw(spec, rng))
        return torch.stack(found)

    def pool(self) -> Iterator[Tensor]:
        """Yield the transformer's clips in batches, in the order of the captions, one rendition after another.

        Every call yields the same clips.
        """
        rng = random.Random(self._seed)
        for _ in range(self._renditions):
            for first in range(0, len(self.specs), AT_ONCE):
                yield torch.stack([tiny_world.draw(spec, rng) for spec in self.specs[first : first + AT_ONCE]])

    def tokenizer_report(self, tokenizer: PhenakiTokenizer, count: int) -> Report:
        """Return PSNR (dB) and check accuracy on reconstructions of held-out, new and striped clips."""
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
    """Encode and decode clips [N, 3, F, H, W]."""
    with torch.no_grad():
        return torch.cat([tokenizer(part) for part in clips.split(16)]).clamp(-1, 1)


def prompt_accuracy(
    tokenizer: PhenakiTokenizer, transformer: PhenakiTransformer, text_encoder: PromptEncoder, count: int, seed: int = 0
) -> Report:
    """Return the check accuracy on clips generated from held-out captions. Noise i has the seed `seed` + i."""
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

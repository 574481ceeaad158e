"""From nothing to codes: fill in masked codes, mask the least likely again, and so on with fewer each time.

Sources: MaskGIT (arXiv 2202.04200), Phenaki (arXiv 2210.02399), Token-Critic (arXiv 2209.04439). After step i of n the
share cos(pi/2 * i/n) of the codes is masked again: those that the critic doubts most, its scores moved by noise that
fades. Without a critic, those of the codes just filled in that are least probable; what an earlier step kept stays, as
in MaskGIT: nothing trains the probability of a code that the transformer is shown. Codes of a clip to continue are
never masked. Temperature and noise reach 0 in the last step.

Not covered: texts, and what codes stand for (the family's other methods).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from workbench.families.denoising import DenoiseInputs
from workbench.families.model_inputs import Tensors
from workbench.families.phenaki.codes import ids, points
from workbench.families.phenaki.models import TEMPERATURE
from workbench.families.phenaki.objective import sample_codes

if TYPE_CHECKING:
    import torch

CRITIC_NOISE = 1.0  # how far scores are moved at most, both ways together; it falls evenly to 0 in the last step


class Filling:
    """One call of `family.denoise`; shapes of latents are [dimensions, f, h, w]."""

    def __init__(self, transformer: Any, inputs: DenoiseInputs) -> None:
        self.transformer, self.inputs = transformer, inputs
        self.levels: tuple[int, ...] = transformer.config.levels
        self.temperature = TEMPERATURE if inputs.temperature is None else inputs.temperature

    def run(self) -> torch.Tensor:
        """Points [1, *latents_shape] after all steps."""
        import torch

        inputs, steps, device = self.inputs, self.inputs.steps, self.inputs.device
        codes = torch.full((1, *inputs.latents_shape[1:]), math.prod(self.levels), dtype=torch.long, device=device)
        free, start = torch.ones_like(codes, dtype=torch.bool), inputs.first_of(steps)
        if inputs.source is not None:
            codes = ids(inputs.source.to(device), self.levels)
        if inputs.prefix is not None:
            known = ids(inputs.prefix.to(device), self.levels)
            codes[:, : known.shape[1]], free[:, : known.shape[1]] = known, False
        if inputs.source is not None:
            codes = self._masked(codes, self._uniform(codes), free, start, steps)
        with torch.no_grad():
            for step in range(start, steps):
                filled, logits = self._filled(codes, step, steps)
                inputs.on_step(step + 1 - start, steps - start, points(filled, self.levels))
                if step < steps - 1:
                    doubt = self._doubt(codes, filled, logits, step, steps)
                    filled = self._masked(filled, doubt, free, step + 1, steps)
                codes = filled
        return points(codes, self.levels)

    def _filled(self, codes: torch.Tensor, step: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes with the masked ones filled in, and the logits that they were sampled from."""
        import torch

        logits = self._guided(self.transformer, codes, step, steps)
        temperature = self.temperature * _left(step, steps)
        sampled = sample_codes(logits / max(temperature, 1e-6), self._uniform(codes))
        return torch.where(codes == math.prod(self.levels), sampled, codes), logits

    def _doubt(
        self, codes: torch.Tensor, filled: torch.Tensor, logits: torch.Tensor, step: int, steps: int
    ) -> torch.Tensor:
        """How doubtful each filled-in code is, [1, f, h, w]; those with the most doubt are masked again."""
        if self.transformer.config.critic == "none":
            chosen = logits.softmax(1).gather(1, filled.unsqueeze(1)).squeeze(1)
            return (1 - chosen).masked_fill(codes != math.prod(self.levels), -math.inf)
        scores = self._guided(self.transformer.criticise, filled, step, steps)
        return scores + (self._uniform(codes) - 0.5) * CRITIC_NOISE * _left(step, steps)

    def _masked(
        self, codes: torch.Tensor, doubt: torch.Tensor, free: torch.Tensor, step: int, steps: int
    ) -> torch.Tensor:
        """Codes with as many masked as a step begins with: the most doubtful of those that are free."""
        count = max(round(math.cos(math.pi / 2 * step / steps) * int(free.sum())), 1)
        worst = doubt.float().masked_fill(~free, -math.inf).flatten().topk(count).indices
        found = codes.flatten().clone()
        found[worst] = math.prod(self.levels)
        return found.view(codes.shape)

    def _guided(self, call: Any, codes: torch.Tensor, step: int, steps: int) -> torch.Tensor:
        """The transformer's or the critic's answer, guided if this step is, float32."""
        import torch

        def answer(codes: torch.Tensor, text: Tensors) -> torch.Tensor:
            found: torch.Tensor = call(codes, text["prompt_embeds"].to(self.transformer.dtype), text["mask"])
            return found.float()

        inputs = self.inputs
        if not inputs.guidance.guides(step, steps):
            return answer(codes, inputs.text)
        assert inputs.negative_text is not None
        if inputs.sequential_guidance:
            negative, prompt = answer(codes, inputs.negative_text), answer(codes, inputs.text)
        else:
            both = {name: torch.cat([inputs.negative_text[name], value]) for name, value in inputs.text.items()}
            negative, prompt = answer(codes.expand(2, -1, -1, -1), both).chunk(2)
        ratio = math.cos(math.pi / 2 * step / steps)
        return inputs.guidance.combine(prompt, negative, inputs.guidance.scale_at(step, steps, 1000 * ratio))

    def _uniform(self, like: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.rand(like.shape, generator=self.inputs.noise, dtype=torch.float32).to(like.device)


def _left(step: int, steps: int) -> float:
    """The share of the steps that come after this one: what temperature and noise are multiplied by."""
    return (steps - 1 - step) / steps

"""From nothing to codes: fill in masked codes, mask the least likely again, and so on with fewer each time.

Sources: MaskGIT (arXiv 2202.04200), Phenaki (arXiv 2210.02399), Token-Critic (arXiv 2209.04439). After step i of n the
share cos(pi/2 * i/n) of the codes is masked again: those that the critic doubts most, its scores moved by noise that
fades, or without a critic those whose own probability is least. Codes of a clip to continue are never masked.

Not covered: texts, and what codes stand for (the family's other methods).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.families.guidance import Guidance
from workbench.families.model_inputs import Tensors
from workbench.families.phenaki.codes import ids, points
from workbench.families.phenaki.objective import sample_codes

if TYPE_CHECKING:
    import torch

    from workbench.families.base import OnStep

TEMPERATURE = 0.9  # of the first step; it falls evenly
CRITIC_NOISE = 1.0  # how far the first step's scores are moved at most, both ways together; it falls evenly


@dataclass
class Filling:
    """One call of `family.denoise`. shape: [dimensions, f, h, w]"""

    transformer: Any
    shape: tuple[int, ...]
    text: Tensors
    negative: Tensors | None
    guidance: Guidance
    noise: torch.Generator
    sequential: bool = False
    temperature: float = TEMPERATURE

    @property
    def levels(self) -> tuple[int, ...]:
        found: tuple[int, ...] = self.transformer.config.levels
        return found

    def run(
        self, steps: int, on_step: OnStep, prefix: torch.Tensor | None, source: torch.Tensor | None, strength: float
    ) -> torch.Tensor:
        """Points [1, *shape] after all steps."""
        import torch

        device = next(iter(self.text.values())).device
        masked_id = math.prod(self.levels)
        codes = torch.full((1, *self.shape[1:]), masked_id, dtype=torch.long, device=device)
        free, start = torch.ones_like(codes, dtype=torch.bool), 0
        if source is not None:
            start = steps - min(int(steps * strength), steps)
            codes = ids(source.to(device), self.levels)
        if prefix is not None:
            known = ids(prefix.to(device), self.levels)
            codes[:, : known.shape[1]], free[:, : known.shape[1]] = known, False
        if source is not None:
            codes = self._masked(codes, self._uniform(codes), free, start, steps)
        with torch.no_grad():
            for step in range(start, steps):
                filled, doubt = self._filled(codes, masked_id, step, steps)
                codes = filled if step == steps - 1 else self._masked(filled, doubt, free, step + 1, steps)
                on_step(step + 1 - start, steps - start, points(filled, self.levels))
        return points(codes, self.levels)

    def _filled(self, codes: torch.Tensor, masked_id: int, step: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        """(all codes, how doubtful each is) after one answer of the transformer."""
        import torch

        left = (steps - step) / steps
        logits = self._guided(self.transformer, codes, step, steps)
        uniform = self._uniform(codes)
        sampled = sample_codes(logits / max(self.temperature * left, 1e-6), uniform)
        filled = torch.where(codes == masked_id, sampled, codes)
        if self.transformer.config.critic == "none":
            chosen = logits.softmax(1).gather(1, filled.unsqueeze(1)).squeeze(1)
            return filled, 1 - chosen
        scores = self._guided(self.transformer.criticise, filled, step, steps)
        return filled, scores + (self._uniform(codes) - 0.5) * CRITIC_NOISE * left

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

        if not self.guidance.guides(step, steps):
            return answer(codes, self.text)
        assert self.negative is not None
        if self.sequential:
            negative, prompt = answer(codes, self.negative), answer(codes, self.text)
        else:
            both = {name: torch.cat([self.negative[name], value]) for name, value in self.text.items()}
            negative, prompt = answer(codes.expand(2, -1, -1, -1), both).chunk(2)
        ratio = math.cos(math.pi / 2 * step / steps)
        return self.guidance.combine(prompt, negative, self.guidance.scale_at(step, steps, 1000 * ratio))

    def _uniform(self, like: torch.Tensor) -> torch.Tensor:
        import torch

        return torch.rand(like.shape, generator=self.noise, dtype=torch.float32).to(like.device)

"""CogVideoX's denoising: noise in, latents out, step by step.

It equals the three stock pipelines (text, image and video to video) within rounding where they can do the same, and
does what they lack: guidance in a part of the steps, conditions of one's own, continued clips, a callback after every
step. Not covered: everything before and after, which needs no transformer (text, VAE: the family's other methods).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.families.base import OnStep
from workbench.families.cogvideox import tensors
from workbench.families.guidance import Guidance

if TYPE_CHECKING:
    import torch

# Which steps `skip_steps` skips: none of the first (at least FIRST_STEPS, and FIRST_PART of all) and of the last.
# EXTRAPOLATION is between keeping the last clean latents (0) and continuing linearly (1): benchmarks/step_skipping.py
# compares values.
FIRST_STEPS, FIRST_PART, LAST_STEPS = 3, 0.2, 2
EXTRAPOLATION = 0.75


@dataclass
class Denoising:
    """One call of `family.denoise`, which describes each argument. `scheduler` belongs to this call alone."""

    transformer: Any
    scheduler: Any
    text: torch.Tensor  # [1, tokens, width]
    negative: torch.Tensor | None
    shape: tuple[int, ...]
    guidance: Guidance
    noise: torch.Generator
    condition: torch.Tensor | None = None
    prefix: torch.Tensor | None = None
    source: torch.Tensor | None = None
    sequential_guidance: bool = False
    skip_steps: bool = False
    _known: list[tuple[int, torch.Tensor]] = field(default_factory=list)  # (step, clean latents it predicted)

    def check(self) -> None:
        """Refuse what the model cannot generate, before anything is computed. Raises ConfigError."""
        config, (frames, _, height, width) = self.transformer.config, self.shape
        tensors.check_positions(config, frames, height, width)
        takes_image = config.in_channels != config.out_channels
        if takes_image and self.condition is None:
            raise ConfigError("this model starts from a first frame: give an image")
        if not takes_image and self.condition is not None:
            raise ConfigError("this model takes text alone: leave out the image, or choose one for images")
        if self.guidance.wanted and self.negative is None:
            raise ConfigError(
                f"guidance scale is {self.guidance.scale:g}, which needs a negative prompt: encode an empty one"
            )
        if self.prefix is not None:
            kept, generated = tensors.without_padding(self.prefix).shape[1], self.shape[0] - self._front
            if kept >= generated:
                raise ConfigError(
                    f"the clip to continue has {kept} latent frames and the new one {generated}: generate more "
                    f"frames, or continue fewer"
                )

    def run(self, steps: int, strength: float, on_step: OnStep) -> torch.Tensor:
        """The latents [1, *shape] after all steps."""
        import torch

        scheduler, device, dtype = self.scheduler, self.text.device, self.text.dtype
        scheduler.set_timesteps(steps, device=device)
        timesteps = scheduler.timesteps
        if self.source is not None:
            timesteps = timesteps[max(steps - min(int(steps * strength), steps), 0) :]
        first = torch.randn(1, *self.shape, generator=self.noise, dtype=dtype).to(device)
        latents = first
        if self.source is not None:
            latents = scheduler.add_noise(self.source.to(device, dtype), first, timesteps[:1])
        latents = self._with_prefix(latents, first, timesteps, 0)
        earlier = None
        with torch.no_grad():
            for step, timestep in enumerate(timesteps):
                if self.skip_steps and self._may_skip(step, len(timesteps)):
                    velocity = self._extrapolated(latents, timestep, step)
                else:
                    velocity = self._velocity(latents, timestep, step, len(timesteps))
                    self._remember(latents, velocity, timestep, step)
                if hasattr(scheduler, "get_variables"):  # DPM, of second order
                    back = timesteps[step - 1] if step else None
                    latents, earlier = scheduler.step(
                        velocity, earlier, timestep, back, latents, generator=self.noise, return_dict=False
                    )
                    clean = earlier
                else:
                    latents, clean = scheduler.step(velocity, timestep, latents, return_dict=False)
                latents = self._with_prefix(latents.to(dtype), first, timesteps, step + 1)
                on_step(step + 1, len(timesteps), clean)
        return latents

    def _velocity(self, latents: torch.Tensor, timestep: torch.Tensor, step: int, steps: int) -> torch.Tensor:
        """The prediction of one step, guided if this step is, float32."""
        import torch

        if not self.guidance.guides(step, steps):
            return self._predict(latents, self.text, timestep)
        assert self.negative is not None
        if self.sequential_guidance:
            negative = self._predict(latents, self.negative, timestep)
            prompt = self._predict(latents, self.text, timestep)
        else:
            both = self._predict(torch.cat([latents] * 2), torch.cat([self.negative, self.text]), timestep)
            negative, prompt = both.chunk(2)
        scale = self.guidance.scale_at(step, steps, int(timestep))
        return self.guidance.combine(prompt, negative, scale)

    # ---- skipped steps

    def _may_skip(self, step: int, steps: int) -> bool:
        """Whether the clean latents of this step can be extrapolated: in the middle, where they change evenly. Where
        the scheduler adds fresh noise they change more, and fewer steps are skipped."""
        head, every = max(FIRST_STEPS, int(steps * FIRST_PART)), 2 if hasattr(self.scheduler, "get_variables") else 3
        return head <= step < steps - LAST_STEPS and (step - head) % every != every - 1

    def _remember(self, latents: torch.Tensor, velocity: torch.Tensor, timestep: torch.Tensor, step: int) -> None:
        if self.skip_steps:
            signal, sigma = self._levels(timestep)
            self._known = [*self._known[-1:], (step, signal * latents.float() - sigma * velocity)]

    def _extrapolated(self, latents: torch.Tensor, timestep: torch.Tensor, step: int) -> torch.Tensor:
        """The velocity that leads to the clean latents extrapolated from the two computed last."""
        (before, old), (last, new) = self._known
        clean = new + EXTRAPOLATION * (step - last) / (last - before) * (new - old)
        signal, sigma = self._levels(timestep)
        return (signal * latents.float() - clean) / sigma

    def _levels(self, timestep: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return tensors.signal_and_sigma(self.scheduler.alphas_cumprod.to(timestep.device), timestep[None])

    def _predict(self, latents: torch.Tensor, text: torch.Tensor, timestep: torch.Tensor) -> torch.Tensor:
        import torch

        count = len(latents)
        if self.condition is not None:
            beside = self.condition.to(latents.device, latents.dtype).expand(count, -1, -1, -1, -1)
            latents = torch.cat([latents, beside], dim=2)
        return call(self.transformer, latents, text, timestep.expand(count)).float()

    @property
    def _front(self) -> int:
        """How many latent frames stand in front of the clip's own: see tensors.without_padding."""
        return 1 - self.shape[0] % 2

    def _with_prefix(
        self, latents: torch.Tensor, first: torch.Tensor, timesteps: torch.Tensor, step: int
    ) -> torch.Tensor:
        """Latents before the given step with the prefix in its place, noised as they are; clean after the last step."""
        import torch

        if self.prefix is None:
            return latents
        prefix = tensors.without_padding(self.prefix).to(latents.device, torch.float32)
        prefix = tensors.pad_front(prefix, prefix.shape[1] + self._front)
        kept = prefix.shape[1]
        if step < len(timesteps):
            alpha = self.scheduler.alphas_cumprod.to(latents.device)[timesteps[step]]
            prefix = alpha.sqrt() * prefix + (1 - alpha).sqrt() * first[:, :kept].float()
        return torch.cat([prefix.to(latents.dtype), latents[:, kept:]], dim=1)


def call(transformer: Any, latents: torch.Tensor, text: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
    """The transformer's prediction for noisy latents [B, f, C, h, w], with a condition's channels where it takes
    them."""
    config, (frames, _, height, width) = transformer.config, latents.shape[1:]
    predicted: torch.Tensor = transformer(
        hidden_states=latents,
        encoder_hidden_states=text,
        timestep=timesteps,
        ofs=None if config.ofs_embed_dim is None else latents.new_full((1,), tensors.OFS),
        image_rotary_emb=tensors.rotary_embeddings(config, frames, height, width, latents.device),
        return_dict=False,
    )[0]
    return predicted

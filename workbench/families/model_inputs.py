"""What a transformer is given in training and sampling, as records. How a family makes them: see `base.Family`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True)
class CaptionTokens:
    """How much of one caption the text encoder reads.

    count, limit: tokens it has and tokens that are read, the closing one included
    cut:          the end of the caption that is never read, as it is written; "" when all is read
    """

    count: int
    limit: int
    cut: str


@dataclass(frozen=True)
class Given:
    """What a model is shown beside the caption; each may be missing.

    beside: [B, ...], shaped as the latents but for its channels, which are joined to theirs
    known:  clean latents of the first frames, [B, ...], shaped as the latents but for the number of frames: they stand
            in the noisy latents' place at timestep 0, and the loss does not count them
    kept:   [B] bool: the clips that keep their known frames; None: all
    tokens: more for the transformer to attend to, batch first; only the family knows the keys
    first:  when sampling, the noise [1, ...] that the clip begins as, where the stock pipeline draws it before what the
            picture needs
    """

    beside: torch.Tensor | None = None
    known: torch.Tensor | None = None
    kept: torch.Tensor | None = None
    tokens: Tensors = field(default_factory=dict)
    first: torch.Tensor | None = None

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Given:
        def moved(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.to(device, dtype)

        tokens = {name: tensor.to(device, dtype) for name, tensor in self.tokens.items()}
        kept = None if self.kept is None else self.kept.to(device)
        return Given(moved(self.beside), moved(self.known), kept, tokens, moved(self.first))

    def rows(self, indices: torch.Tensor) -> Given:
        """Of some clips of the batch."""

        def some(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor[indices]

        tokens = {name: tensor[indices] for name, tensor in self.tokens.items()}
        return Given(some(self.beside), some(self.known), some(self.kept), tokens)

    def repeated(self, count: int) -> Given:
        """Of one clip, for a batch of so many."""

        def many(tensor: torch.Tensor | None) -> torch.Tensor | None:
            return None if tensor is None else tensor.expand(count, *tensor.shape[1:])

        tokens = {name: tensor.expand(count, *tensor.shape[1:]) for name, tensor in self.tokens.items()}
        return Given(many(self.beside), many(self.known), many(self.kept), tokens)


@dataclass(frozen=True)
class ModelInputs:
    """A batch as `Family.loss` takes it, all of it on the device.

    latents, noise: [B, ...];  timesteps: [B], of the model's noise schedule;  fps: of the clips
    """

    latents: torch.Tensor
    text: Tensors
    noise: torch.Tensor
    timesteps: torch.Tensor
    given: Given | None = None
    fps: float = 8.0

    def rows(self, indices: torch.Tensor) -> ModelInputs:
        """Of some clips of the batch, by their indices [N]."""
        return ModelInputs(
            latents=self.latents[indices],
            text={name: tensor[indices] for name, tensor in self.text.items()},
            noise=self.noise[indices],
            timesteps=self.timesteps[indices],
            given=None if self.given is None else self.given.rows(indices),
            fps=self.fps,
        )

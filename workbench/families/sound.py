"""Sounds as numbers, and the spectrogram that an autoencoder of sound reads.

Source: Lightricks' LTX-2 at 400fd31, AudioProcessor of ltx-core (audio_vae/ops.py). The autoencoder's configuration
gives the rate, the bins and the hop. A spectrogram has magnitudes of windows of 1,024 samples, padded by reflection, on
Slaney's mel scale with filters of equal area, as natural logarithms from 1e-5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import torch

WINDOW = 1024  # samples
SILENCE = 1e-5  # the least magnitude


class Sound(NamedTuple):
    """A sound: float32 [channels, samples] in [-1, 1], and its samples per second."""

    samples: np.ndarray
    rate: int


def spectrogram(samples: torch.Tensor, rate: int, bins: int, hop: int) -> torch.Tensor:
    """Return the logarithms of magnitudes, float32 [channels, 1 + samples // hop, bins].

    Args:
        samples: [channels, samples], more than half a window.
        bins: Number of mel filters, from 0 to half the rate.
        hop: Samples from one window to the next.
    """
    import torch
    from transformers.audio_utils import mel_filter_bank

    window = torch.hann_window(WINDOW, device=samples.device)
    waves = torch.stft(
        samples.float(), WINDOW, hop, window=window, center=True, pad_mode="reflect", return_complex=True
    ).abs()
    filters = mel_filter_bank(WINDOW // 2 + 1, bins, 0.0, rate / 2, rate, norm="slaney", mel_scale="slaney")
    weights = torch.from_numpy(filters).to(waves)
    return (waves.transpose(1, 2) @ weights).clamp(min=SILENCE).log()

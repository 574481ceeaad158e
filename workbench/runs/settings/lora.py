"""The LoRA: its size, its form, where it sits, and what is trained beside it."""

from __future__ import annotations

from typing import Literal

from workbench.settings import Settings, field

LORA = "LoRA"


class LoraSettings(Settings):
    """The part of TrainSettings about the LoRA."""

    rank: int = field(16, title="Rank", section=LORA, low=1, high=1024)
    """Size of the LoRA. Larger can hold more and makes a larger file: 16 to 128 are usual."""

    alpha: float = field(16.0, title="Alpha", section=LORA, low=0.01, high=4096.0, advanced=True)
    """Strength of the LoRA while training: it is scaled by alpha / rank."""

    targets: str = field("attention", title="Trained layers", section=LORA, advanced=True)
    """attention, attention+feed-forward, or a regular expression over layer names."""

    lora_dropout: float = field(0.0, title="LoRA dropout", section=LORA, low=0.0, high=0.95, advanced=True)
    """Share of the LoRA's inputs dropped at random in training."""

    dora: bool = field(False, title="DoRA", section=LORA, advanced=True)
    """Also train the length of each weight row: often better at low rank, slower."""

    rslora: bool = field(False, title="Rank-stabilised scale", section=LORA, advanced=True)
    """Scale by alpha / square root of the rank, so that high ranks learn as fast as low ones."""

    lora_init: Literal["default", "gaussian", "orthogonal", "pissa", "olora", "eva", "corda", "loftq"] = field(
        "default", title="Start of the LoRA", section=LORA, advanced=True
    )
    """How its matrices begin: default, gaussian and orthogonal change nothing at first. The others change the base
    model, so their files would not fit it elsewhere, and are refused."""

    train_also: tuple[str, ...] = field((), title="Also trained", section=LORA, lines=2, advanced=True)
    """Weights of the transformer trained in full beside the LoRA: beginnings of their names, one a line, as in
    patch_embed. They are written to a file of their own."""

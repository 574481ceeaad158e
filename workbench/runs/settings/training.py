"""How long, how fast and by which rule the weights are adjusted."""

from __future__ import annotations

from typing import Literal

from workbench.settings import Settings, field

TRAIN = "Training"
LearningRateSchedule = Literal[
    "constant",
    "constant_with_warmup",
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
]
Optimizer = Literal["adamw", "adam", "adamw-8bit", "prodigy", "came", "schedule-free", "muon"]


class TrainingSettings(Settings):
    """The part of TrainSettings about the steps."""

    steps: int = field(300, title="Steps", section=TRAIN, low=1, high=1_000_000, unit="steps")
    """How many times the weights are adjusted. More learns more, and at some point forgets the rest."""

    epochs: float | None = field(None, title="Epochs", section=TRAIN, low=0.01, high=100_000, advanced=True)
    """How often every clip comes, instead of a number of steps: the steps are then counted from it."""

    batch_size: int = field(1, title="Batch size", section=TRAIN, low=1, high=256, unit="clips")
    """Clips in one batch. Larger is steadier and needs more memory."""

    gradient_accumulation: int = field(
        1, title="Gradient accumulation", section=TRAIN, low=1, high=1024, unit="batches", advanced=True
    )
    """Batches summed up before each adjustment: the effect of a larger batch without its memory."""

    learning_rate: float = field(1e-4, title="Learning rate", section=TRAIN, low=1e-8, high=10.0)
    """How far each step goes. Too high and the pictures break, too low and nothing happens. Prodigy wants 1."""

    scale_learning_rate: bool = field(False, title="Scale the learning rate", section=TRAIN, advanced=True)
    """Multiply the learning rate by batch size and accumulation."""

    lr_schedule: LearningRateSchedule = field(
        "constant_with_warmup", title="Learning-rate schedule", section=TRAIN, advanced=True
    )
    """How the learning rate moves over the run."""

    warmup_steps: int = field(20, title="Warm-up", section=TRAIN, low=0, high=100_000, unit="steps", advanced=True)
    """Steps over which the learning rate rises to its value."""

    lr_cycles: float = field(1.0, title="Cycles of the schedule", section=TRAIN, low=0.1, high=1000.0, advanced=True)
    """Of cosine_with_restarts: how often it starts again."""

    lr_power: float = field(1.0, title="Power of the schedule", section=TRAIN, low=0.1, high=10.0, advanced=True)
    """Of polynomial: 1 falls in a straight line, 2 faster at first."""

    optimizer: Optimizer = field("adamw", title="Optimizer", section=TRAIN, advanced=True)
    """The rule by which gradients adjust weights. adamw suits most; adam adds weight decay to the gradient; prodigy
    finds its own learning rate; schedule-free needs no schedule; adamw-8bit and came need less memory."""

    adam_beta1: float = field(0.9, title="Beta 1", section=TRAIN, low=0.0, high=0.9999, advanced=True)
    """How long the optimizer remembers the direction of earlier gradients."""

    adam_beta2: float = field(0.95, title="Beta 2", section=TRAIN, low=0.0, high=0.99999, advanced=True)
    """How long the optimizer remembers the size of earlier gradients."""

    adam_epsilon: float = field(1e-8, title="Epsilon", section=TRAIN, low=0.0, high=0.1, advanced=True)
    """A small number that keeps the optimizer from dividing by zero."""

    weight_decay: float = field(1e-4, title="Weight decay", section=TRAIN, low=0.0, high=1.0, advanced=True)
    """The optimizer pulls the trained weights towards zero by this much."""

    optimizer_options: tuple[str, ...] = field((), title="Optimizer options", section=TRAIN, lines=2, advanced=True)
    """Further constants of the optimizer, NAME=VALUE, one a line: d_coef=0.8 or momentum=0.9."""

    max_grad_norm: float = field(1.0, title="Gradient clipping", section=TRAIN, low=0.0, high=1000.0, advanced=True)
    """Gradients longer than this are shortened to it. 0 leaves them as they are."""

    caption_dropout: float = field(0.1, title="Caption dropout", section=TRAIN, low=0.0, high=1.0, advanced=True)
    """How often the caption is left empty, so that guidance keeps working: 0.1 made the published models."""

    dropped_caption: Literal["empty prompt", "zeros"] = field(
        "empty prompt", title="A dropped caption becomes", section=TRAIN, advanced=True
    )
    """empty prompt: the text encoder's embedding of it, with which diffusers guides. zeros: no embedding, as SAT trains
    and guides, for a LoRA that goes there. Previews are guided by the same."""

    image_dropout: float = field(0.05, title="Image dropout", section=TRAIN, low=0.0, high=1.0, advanced=True)
    """How often an image-to-video model gets no first frame: 0.05 made the published models."""

    loss_weighting: Literal["none", "min-snr"] = field("none", title="Loss weighting", section=TRAIN, advanced=True)
    """none: every timestep counts the same, as the model was trained. min-snr: easy timesteps count less."""

    snr_gamma: float = field(5.0, title="Min-SNR gamma", section=TRAIN, low=0.01, high=100.0, advanced=True)
    """Of min-snr: where the weight of a timestep stops growing with its signal-to-noise ratio."""

    ema_decay: float = field(0.0, title="Weight averaging (EMA)", section=TRAIN, low=0.0, high=0.99999, advanced=True)
    """Previews, measurements and the export use a moving average of the weights: 0.99 looks back about 100 steps. 0 is
    off."""

    time_limit: float | None = field(
        None, title="Time limit", section=TRAIN, low=0.1, high=100_000, unit="minutes", advanced=True
    )
    """Save and stop after this time, before a rented machine does: 170 for three hours. Empty: no limit."""

    seed: int = field(42, title="Seed", section=TRAIN, low=0, high=2**31 - 1, advanced=True)
    """The same seed, data and settings give the same run."""

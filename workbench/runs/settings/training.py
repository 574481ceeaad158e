"""How the weights are adjusted, and which: the optimizer, the schedule, the LoRA."""

from __future__ import annotations

from typing import Literal

from workbench.families.noise_schedules import Density, TrainPart
from workbench.settings import Settings, field

LearningRateSchedule = Literal[
    "constant",
    "constant_with_warmup",
    "linear",
    "cosine",
    "cosine_with_restarts",
    "polynomial",
]
Optimizer = Literal["adamw", "adam", "adamw-8bit", "adam-8bit", "prodigy", "came", "schedule-free", "muon"]


class TrainingSettings(Settings):
    SECTION = "Training"

    steps: int = field(300, title="Steps", low=1, high=1_000_000, unit="steps")
    """How many times the weights are adjusted. More learns more, and at some point forgets the rest."""

    epochs: float | None = field(None, title="Epochs", low=0.01, high=100_000, advanced=True)
    """How often every clip comes. Where it is set it decides, and the steps are counted from it."""

    batch_size: int = field(1, title="Batch size", low=1, high=256, unit="clips")
    """Clips in one batch. Larger is steadier and needs more memory."""

    gradient_accumulation: int = field(
        1, title="Gradient accumulation", low=1, high=1024, unit="batches", advanced=True
    )
    """Batches summed up before each adjustment: the effect of a larger batch without its memory."""

    learning_rate: float = field(1e-4, title="Learning rate", low=1e-8, high=10.0)
    """How far each step goes. Too high and the pictures break, too low and nothing happens. Prodigy wants 1."""

    scale_learning_rate: bool = field(False, title="Scale the learning rate", advanced=True)
    """Multiply the learning rate by batch size and accumulation."""

    lr_schedule: LearningRateSchedule = field("constant_with_warmup", title="Learning-rate schedule", advanced=True)
    """How the learning rate moves over the run."""

    warmup_steps: int = field(20, title="Warm-up", low=0, high=100_000, unit="steps", advanced=True)
    """Steps over which the learning rate rises to its value. Keep it well below the run's steps."""

    lr_cycles: float = field(1.0, title="Cycles of the schedule", low=0.1, high=1000.0, advanced=True)
    """Of cosine_with_restarts: how often it starts again."""

    lr_power: float = field(1.0, title="Power of the schedule", low=0.1, high=10.0, advanced=True)
    """Of polynomial: 1 falls in a straight line, 2 faster at first."""

    optimizer: Optimizer = field("adamw", title="Optimizer", advanced=True)
    """The rule by which gradients adjust weights. adamw suits most; adam adds weight decay to the gradient; prodigy
    finds its own learning rate; schedule-free needs no schedule; adamw-8bit, adam-8bit and came need less
    memory. bitsandbytes keeps weight decay out of the gradient in both of its own, unlike adam."""

    adam_beta1: float = field(0.9, title="Beta 1", low=0.0, high=0.9999, advanced=True)
    """How long the optimizer remembers the direction of earlier gradients."""

    adam_beta2: float = field(0.95, title="Beta 2", low=0.0, high=0.99999, advanced=True)
    """How long the optimizer remembers the size of earlier gradients."""

    adam_epsilon: float = field(1e-8, title="Epsilon", low=0.0, high=0.1, advanced=True)
    """A small number that keeps the optimizer from dividing by zero."""

    weight_decay: float = field(1e-4, title="Weight decay", low=0.0, high=1.0, advanced=True)
    """The optimizer pulls the trained weights towards zero by this much."""

    optimizer_options: tuple[str, ...] = field((), title="Optimizer options", lines=2, advanced=True)
    """Further constants of the optimizer, NAME=VALUE, one a line: d_coef=0.8 or momentum=0.9."""

    max_grad_norm: float = field(1.0, title="Gradient clipping", low=0.0, high=1000.0, advanced=True)
    """Gradients longer than this are shortened to it. 0 leaves them as they are."""

    caption_dropout: float = field(0.1, title="Caption dropout", low=0.0, high=1.0, advanced=True)
    """How often the caption is left empty, so that guidance keeps working: 0.05 to 0.1 is usual."""

    dropped_caption: Literal["empty prompt", "zeros"] = field(
        "empty prompt", title="A dropped caption becomes", advanced=True
    )
    """empty prompt: the text encoder's embedding of it, with which diffusers guides. zeros: no embedding, as SAT
    (CogVideoX's own trainer) trains and guides, for a LoRA that goes there. Previews are guided by the same."""

    image_dropout: float | None = field(None, title="Image dropout", low=0.0, high=1.0, advanced=True)
    """How often an image-to-video model gets no first frame. Empty: as the model's own trainers do, 0.05 for CogVideoX
    and LTX-Video, 0 for Wan."""

    first_frame_share: float | None = field(None, title="First frame shown", low=0.0, high=1.0, advanced=True, own=True)
    """How often a text-to-video run is shown the clip's own first frame without noise, so that the LoRA also works for
    image to video: 0.1 is usual, 0.5 for effects. Empty: the model's own."""

    loss_weighting: Literal["none", "min-snr"] = field("none", title="Loss weighting", advanced=True)
    """none: every timestep counts the same, as the model was trained. min-snr: easy timesteps count less."""

    snr_gamma: float = field(5.0, title="Min-SNR gamma", low=0.01, high=100.0, advanced=True)
    """Of min-snr: where the weight of a timestep stops growing with its signal-to-noise ratio."""

    timestep_density: Density = field("model", title="Timestep density", advanced=True, own=True)
    """From which density the noise levels of training are drawn. model: the one that the model was trained with.
    logit-normal: mostly medium levels. uniform: all equally often."""

    timestep_shift: float | None = field(None, title="Timestep shift", low=0.1, high=100.0, advanced=True, own=True)
    """Moves the drawn noise levels s to shift * s / (1 + (shift - 1) * s): above 1 to more noise, which decides shapes
    and movement, below 1 to less. Empty: the model's own."""

    train_part: TrainPart = field("both", title="Trained part", advanced=True, own=True)
    """Of a model with a critic: both; the generator, which fills in what is masked; or the critic, which says what
    is filled in again."""

    tokenizer_steps: int = field(
        0, title="Tokenizer steps", low=0, high=1_000_000, unit="steps", advanced=True, own=True
    )
    """First train the model's tokenizer for so many steps, on windows from all over the run's clips; then the
    transformer learns its codes. For a model from scratch, or clips unlike those that the tokenizer knows: a
    transformer that was trained already has to learn the new codes. 0 leaves the tokenizer as it is."""

    tokenizer_batch_size: int = field(
        16, title="Tokenizer batch size", low=1, high=256, unit="clips", advanced=True, own=True
    )
    """Clips in a batch of the tokenizer."""

    tokenizer_learning_rate: float = field(
        2e-3, title="Tokenizer learning rate", low=1e-8, high=10.0, advanced=True, own=True
    )
    """Of the tokenizer; it rises over 60 steps and falls along a cosine. The optimizer is the run's: on a processor
    muon takes several times as long as adamw."""

    ema_decay: float = field(0.0, title="Weight averaging (EMA)", low=0.0, high=0.99999, advanced=True)
    """Previews, measurements and the export use a moving average of the weights: 0.99 looks back about 100 steps. 0 is
    off."""

    time_limit: float | None = field(None, title="Time limit", low=0.1, high=100_000, unit="minutes", advanced=True)
    """Save and stop after this time, before a rented machine does: 170 for three hours. Empty: no limit."""

    seed: int = field(42, title="Seed", low=0, high=2**31 - 1, advanced=True)
    """The same seed, data and settings give the same run."""


class LoraSettings(Settings):
    SECTION = "LoRA"

    rank: int = field(16, title="Rank", low=1, high=1024)
    """Size of the LoRA. Larger can hold more and makes a larger file: 16 to 128 are usual."""

    alpha: float = field(16.0, title="Alpha", low=0.01, high=4096.0, advanced=True)
    """Strength of the LoRA while training: it is scaled by alpha / rank."""

    targets: str = field("attention", title="Trained layers", advanced=True)
    """attention; attention+feed-forward; all-linear, which also reaches the layers around the blocks, learns a new
    concept sooner and makes a larger LoRA; or a regular expression over layer names."""

    lora_dropout: float = field(0.0, title="LoRA dropout", low=0.0, high=0.95, advanced=True)
    """Share of the LoRA's inputs dropped at random in training."""

    dora: bool = field(False, title="DoRA", advanced=True)
    """Also train the length of each weight row: often better at low rank, slower."""

    rslora: bool = field(False, title="Rank-stabilised scale", advanced=True)
    """Scale by alpha / square root of the rank, so that high ranks learn as fast as low ones."""

    lora_init: Literal["default", "gaussian", "orthogonal", "pissa", "olora", "eva", "corda", "loftq"] = field(
        "default", title="Start of the LoRA", advanced=True
    )
    """How its matrices begin: default, gaussian and orthogonal change nothing at first. The others change the base
    model, so their files would not fit it elsewhere, and are refused."""

    train_also: tuple[str, ...] = field((), title="Also trained", lines=2, advanced=True)
    """Weights of the transformer trained in full beside the LoRA: beginnings of their names, one a line, as in
    patch_embed. They are written to a file of their own, also.safetensors, which samples load with the LoRA."""

"""The settings of a training run, one declaration each."""

from __future__ import annotations

from typing import Literal

from workbench.families import default_model
from workbench.settings import Settings, field

MODEL, DATA, TRAIN, LORA, WATCH, MACHINE = "Model", "Data", "Training", "LoRA", "Watching", "Machine"
LearningRateSchedule = Literal[
    "constant", "constant_with_warmup", "linear", "cosine", "cosine_with_restarts", "polynomial"
]  # fmt: skip


class TrainSettings(Settings):
    """What `runs/<slug>/config.json` holds: a run can be repeated from it alone."""

    model: str = field(
        default_model(),
        title="Model",
        section=MODEL,
        source="models",
        help="The video model to fine-tune: a known name, or a folder with its weights in diffusers' layout.",
    )
    dataset: str = field(
        "",
        title="Dataset",
        section=DATA,
        source="datasets",
        help="The clips and captions that show the new concept.",
    )
    regularization_dataset: str | None = field(
        None,
        title="Known clips",
        section=DATA,
        source="datasets",
        help="A second dataset of things the model already knows, mixed in so that it does not forget them.",
    )
    regularization_share: float = field(
        0.25,
        title="Share of known clips",
        section=DATA,
        low=0.0,
        high=0.9,
        advanced=True,
        help="How many of the clips in every batch come from the known clips: 0.25 is one in four.",
    )
    held_out: int = field(
        2,
        title="Held-out clips",
        section=DATA,
        unit="clips",
        low=0,
        high=1000,
        help="Clips kept out of training to measure, on fixed noise, whether the model really learns.",
    )
    frames: int | None = field(
        None,
        title="Frames",
        section=DATA,
        low=1,
        high=1000,
        unit="frames",
        help="Frames the model sees of each clip. Empty: what the model was made for.",
    )
    height: int | None = field(
        None, title="Height", section=DATA, low=16, high=4096, unit="pixels", advanced=True,
        help="Height the clips are scaled and cropped to. Empty: what the model was made for.",
    )  # fmt: skip
    width: int | None = field(
        None, title="Width", section=DATA, low=16, high=4096, unit="pixels", advanced=True,
        help="Width the clips are scaled and cropped to. Empty: what the model was made for.",
    )  # fmt: skip
    fps: float | None = field(
        None, title="Frame rate", section=DATA, low=0.5, high=120, unit="frames per second", advanced=True,
        help="Frames are taken from each clip at this rate. Empty: what the model was made for.",
    )  # fmt: skip
    steps: int = field(
        300,
        title="Steps",
        section=TRAIN,
        low=1,
        high=1_000_000,
        unit="steps",
        help="How many times the LoRA is adjusted. More learns more, and at some point forgets the rest.",
    )
    batch_size: int = field(
        1,
        title="Batch size",
        section=TRAIN,
        low=1,
        high=256,
        unit="clips",
        help="Clips looked at together. Larger is steadier and needs more memory.",
    )
    gradient_accumulation: int = field(
        1, title="Gradient accumulation", section=TRAIN, low=1, high=1024, unit="batches", advanced=True,
        help="Batches summed up before each adjustment: the effect of a larger batch without its memory.",
    )  # fmt: skip
    learning_rate: float = field(
        1e-4,
        title="Learning rate",
        section=TRAIN,
        low=1e-8,
        high=1.0,
        help="How far each step goes. Too high and the pictures break, too low and nothing happens.",
    )
    lr_schedule: LearningRateSchedule = field(
        "constant_with_warmup", title="Learning-rate schedule", section=TRAIN, advanced=True,
        help="How the learning rate moves over the run.",
    )  # fmt: skip
    warmup_steps: int = field(
        20, title="Warm-up", section=TRAIN, low=0, high=100_000, unit="steps", advanced=True,
        help="Steps over which the learning rate rises to its value.",
    )  # fmt: skip
    weight_decay: float = field(
        1e-4, title="Weight decay", section=TRAIN, low=0.0, high=1.0, advanced=True,
        help="AdamW pulls the LoRA's weights towards zero by this much.",
    )  # fmt: skip
    adam_beta1: float = field(
        0.9, title="AdamW beta 1", section=TRAIN, low=0.0, high=0.9999, advanced=True,
        help="How long AdamW remembers the direction of earlier gradients.",
    )  # fmt: skip
    adam_beta2: float = field(
        0.95, title="AdamW beta 2", section=TRAIN, low=0.0, high=0.99999, advanced=True,
        help="How long AdamW remembers the size of earlier gradients.",
    )  # fmt: skip
    max_grad_norm: float = field(
        1.0, title="Gradient clipping", section=TRAIN, low=0.0, high=1000.0, advanced=True,
        help="Gradients longer than this are shortened to it. 0 turns clipping off.",
    )  # fmt: skip
    caption_dropout: float = field(
        0.1, title="Caption dropout", section=TRAIN, low=0.0, high=1.0, advanced=True,
        help="Share of clips trained with an empty caption. Guidance needs some; 0.1 is what the model was made with.",
    )  # fmt: skip
    seed: int = field(
        42, title="Seed", section=TRAIN, low=0, high=2**31 - 1, advanced=True,
        help="The same seed, data and settings give the same LoRA.",
    )  # fmt: skip
    rank: int = field(
        16,
        title="Rank",
        section=LORA,
        low=1,
        high=1024,
        help="Size of the LoRA. Larger can hold more and makes a larger file: 16 to 128 are usual.",
    )
    alpha: float = field(
        16.0,
        title="Alpha",
        section=LORA,
        low=0.01,
        high=4096.0,
        advanced=True,
        help="Strength of the LoRA while training: it is scaled by alpha / rank.",
    )
    targets: str = field(
        "attention",
        title="Trained layers",
        section=LORA,
        advanced=True,
        help="attention, attention+feed-forward, or a regular expression over layer names.",
    )
    lora_dropout: float = field(
        0.0, title="LoRA dropout", section=LORA, low=0.0, high=0.95, advanced=True,
        help="Share of the LoRA's inputs dropped at random in training.",
    )  # fmt: skip
    preview_prompts: tuple[str, ...] = field(
        (),
        title="Preview prompts",
        section=WATCH,
        lines=3,
        help="One prompt a line: drawn before the first step and then regularly. Empty: the first two captions.",
    )
    preview_every: int = field(
        100, title="Preview every", section=WATCH, low=0, high=1_000_000, unit="steps",
        help="Steps between previews. 0 draws none.",
    )  # fmt: skip
    preview_steps: int | None = field(
        None, title="Preview denoising steps", section=WATCH, low=1, high=1000, unit="steps", advanced=True,
        help="Denoising steps of a preview. Empty: the model's own number.",
    )  # fmt: skip
    preview_guidance: float | None = field(
        None, title="Preview guidance scale", section=WATCH, low=0.0, high=50.0, advanced=True,
        help="How closely previews follow their prompt. Empty: the model's own value.",
    )  # fmt: skip
    preview_seed: int = field(
        7, title="Preview seed", section=WATCH, low=0, high=2**31 - 1, advanced=True,
        help="Every preview of a prompt starts from this seed, so that they can be compared.",
    )  # fmt: skip
    evaluate_every: int = field(
        50, title="Measure every", section=WATCH, low=0, high=1_000_000, unit="steps", advanced=True,
        help="Steps between measurements of the held-out loss. 0 measures none.",
    )  # fmt: skip
    save_every: int = field(
        100, title="Checkpoint every", section=WATCH, low=1, high=1_000_000, unit="steps",
        help="Steps between checkpoints: the most that a crash can cost.",
    )  # fmt: skip
    keep_checkpoints: int = field(
        3, title="Checkpoints kept", section=WATCH, low=1, high=10_000, advanced=True,
        help="Older checkpoints are removed once a newer one is safely on disk.",
    )  # fmt: skip
    device: Literal["auto", "cuda", "cpu"] = field(
        "auto", title="Device", section=MACHINE, advanced=True,
        help="auto takes the NVIDIA GPU if there is one, else the processor.",
    )  # fmt: skip
    precision: Literal["auto", "bf16", "fp16", "fp32"] = field(
        "auto", title="Precision", section=MACHINE, advanced=True,
        help="Number format of the computation. auto: the model's own on a GPU, fp32 on a processor.",
    )  # fmt: skip
    gradient_checkpointing: bool = field(
        False, title="Gradient checkpointing", section=MACHINE, advanced=True,
        help="Computes parts twice to need much less memory. Needed for the large models on most cards.",
    )  # fmt: skip

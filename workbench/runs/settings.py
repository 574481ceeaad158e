"""The settings of a training run, in the order of the form, each declared once.

After them come the names other trainers use, and which settings have no effect beside others. Rules that need a model's
facts, a dataset or a package are in `checks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import field_validator

from workbench.errors import ConfigError
from workbench.families import default_model, known_model
from workbench.families.denoising import Curve
from workbench.families.noise_schedules import Density, TrainPart
from workbench.families.settings import NamesModel
from workbench.families.told import BESIDE, GivenShare, parse_given
from workbench.jobs.devices import DeviceChoice
from workbench.settings import Settings, field

HELD_OUT = 2  # clips, by default
BLOCK_RANGE = re.compile(r"(\d{1,5})(?:\s*-\s*(\d{1,5}))?")


class SliderPair(NamedTuple):
    """One line of a slider: prompts for more, for less, and for what is turned up and down."""

    positive: str
    negative: str
    neutral: str


class ModelSettings(NamesModel):
    SECTION = "Model"

    model: str = field(default_model(), title="Model", source="models", path=True)
    """The video model to fine-tune: a known name, a folder with its weights in diffusers' layout, or OWNER/NAME of a
    model on the Hub in that layout."""

    revision: str = field("", title="Revision", advanced=True)
    """Of a model on the Hub: a branch, a tag or a commit. It becomes part of the model's name, as the commit that it
    stands for when the work begins. Empty: the pinned commit of a known model, else the newest."""

    variant: str = field("", title="Variant", advanced=True)
    """Of a model on the Hub: which of its sets of weights is read, such as fp16, where it has several. It becomes part
    of the model's name. Empty: the weights without a variant."""

    method: Literal["lora", "lokr", "full"] = field("lora", title="What is trained", advanced=True)
    """lora: small matrices beside the model's weights, a small file. lokr: a LoRA whose changes are Kronecker products
    (LyCORIS), which reach a higher rank with fewer numbers; fewer programs read it as it is. full: all weights of the
    transformer; needs about five times the memory and gives a model of its own."""

    expert: Literal["both", "high noise", "low noise"] = field("both", title="Expert", own=True)
    """Which of the model's two transformers is trained: high noise decides shapes and movement, low noise the details.
    Each learns from its own part of the noise levels. both: two runs, one after the other, used together."""

    start_from: str | None = field(None, title="Continue from a LoRA", source="exported_runs", advanced=True, path=True)
    """A run's name or a .safetensors file, of this or another trainer: training goes on from its weights instead of
    from nothing."""

    condition: Literal["first frame", "low resolution"] = field(
        "first frame", title="Image condition", advanced=True, own=True
    )
    """What an image-to-video model gets beside the caption: the clip's first frame, or the whole clip scaled down
    and up again (which teaches it to sharpen)."""

    condition_frames: Literal["first", "every"] = field(
        "first", title="Where the first frame stands", advanced=True, own=True
    )
    """first: beside the first latent frame, zeros beside the others, as the published models expect it. every: beside
    every latent frame, as SAT's noised_image_all_concat does."""

    low_resolution_scale: float = field(4.0, title="Low-resolution factor", low=1.0, high=32.0, advanced=True, own=True)
    """How many times smaller the low-resolution condition is than the clip."""

    image_latent_scale: Literal["pipeline", "raw"] = field(
        "pipeline", title="Scale of the first frame", advanced=True, own=True
    )
    """How the first frame's latents are scaled. pipeline: as diffusers' pipeline does, so that the LoRA fits it. raw:
    not at all, as SAT samples. Training and previews always use the same."""


class DataSettings(Settings):
    SECTION = "Data"

    dataset: str = field("", title="Dataset", source="datasets")
    """The clips and captions of the new concept."""

    more_datasets: tuple[str, ...] = field((), title="More datasets", source="datasets", advanced=True)
    """Further datasets of the new concept, each NAME, NAME=REPEATS or NAME=REPEATS@WEIGHT: how often each of its clips
    comes while the first dataset's come once, and what its loss counts."""

    dataset_weights: Literal["loss", "sampling"] = field("loss", title="Weights of datasets act on", advanced=True)
    """loss: a clip of NAME@WEIGHT counts so much. sampling: its dataset is sampled so often, whatever its size: cats@3
    gives three clips of cats for each of the first dataset; an epoch is as many as all clips."""

    regularization_dataset: str | None = field(None, title="Regularization dataset", source="datasets", advanced=True)
    """A second dataset, of things the model already knows, mixed in so that it does not forget them."""

    regularization_share: float = field(0.25, title="Regularization share", low=0.0, high=0.9, advanced=True)
    """How many of the clips in every batch come from the regularization dataset: 0.25 is one in four."""

    regularization_weight: float = field(1.0, title="Regularization weight", low=0.0, high=100.0, advanced=True)
    """What the loss of a clip of the regularization dataset counts beside that of a new one."""

    regularization_target: Literal["clips", "base model"] = field(
        "clips", title="Regularization towards", advanced=True, own=True
    )
    """What the clips of the regularization dataset teach. clips: themselves. base model: what the base model predicts
    of them with the same noise, so that a LoRA keeps what the model knew and learns nothing new from them: on the
    built-in model it forgot less and learned sooner. A step takes up to a third longer, and the training loss is lower,
    as these clips begin at none: the held-out loss tells what is learned."""

    preservation_weight: float = field(0.0, title="Preservation weight", low=0.0, high=100.0, advanced=True)
    """Output preservation: at each step the model with the LoRA is also held to what the base model answers to the
    preservation prompts, and the difference counts so much beside the loss. It needs no second dataset, and a step
    takes about 2.3 times as long. 0 is off."""

    preservation_prompts: tuple[str, ...] = field((), title="Preservation prompts", lines=3, advanced=True)
    """One a line, unrelated to the dataset. Prior drift is how much the model's prediction changes for the first three,
    measured beside how much it changes for its own captions; with a preservation weight all of them are preserved.
    Empty: general prompts of the model's family."""

    held_out: int = field(HELD_OUT, title="Held-out clips", unit="clips", low=0, high=1000, advanced=True)
    """Clips kept out of training to measure, on fixed noise, whether the model really learns. A dataset of one or two
    clips keeps none out, and is told so."""

    validation_dataset: str | None = field(None, title="Validation dataset", source="datasets", advanced=True)
    """Where the held-out clips come from: so many of its clips are measured instead, and all clips of the datasets
    above are trained on. A clip that is also trained on is not measured."""

    frames: int | None = field(None, title="Frames", low=1, high=1000, unit="frames", advanced=True)
    """Frames the model sees of each clip. Empty: what the model was made for."""

    height: int | None = field(None, title="Height", low=16, high=4096, unit="pixels", advanced=True)
    """Height the clips are scaled and cropped to. Empty: what the model was made for."""

    width: int | None = field(None, title="Width", low=16, high=4096, unit="pixels", advanced=True)
    """Width the clips are scaled and cropped to. Empty: what the model was made for."""

    fps: float | None = field(None, title="Frame rate", low=0.5, high=120, unit="frames per second", advanced=True)
    """Frames are taken from each clip at this rate. Empty: what the model was made for."""

    bucket_limit: int = field(1, title="Shapes at most", low=1, high=32, advanced=True)
    """1: every clip is brought to the one shape above. More: so many shapes (frames, height, width) are chosen that the
    clips lose least; images get a shape of one frame."""

    buckets: tuple[str, ...] = field((), title="Shapes by hand", lines=2, advanced=True)
    """FRAMESxHEIGHTxWIDTH, one a line, as in 49x480x720; a shape of 1 frame takes images. Instead of chosen ones: each
    clip goes where it loses least."""

    picture_share: float | None = field(None, title="Share of pictures", low=0.01, high=0.95, advanced=True)
    """How many of the batches hold still pictures, where there are clips, too: 0.2 is one in five. Pictures teach looks
    and take from motion. Empty: as many as the datasets have."""

    frame_sampling: Literal["middle", "start", "windows", "spread", "sat"] = field(
        "middle", title="Frames taken from", advanced=True
    )
    """middle: one window in the middle of a clip. start: one at its start. windows: as many as lie side by side.
    spread: evenly over the whole clip, whatever its rate. sat: the frames that SAT's trainer takes, from the start,
    every n-th (n rounded down, so 30 fps come at 10 for 8); short clips end in a still."""

    skip_start: int = field(0, title="Frames skipped at the start", low=0, high=100_000, unit="frames", advanced=True)
    """Frames of each clip that are never taken, counted from its start."""

    skip_end: int = field(0, title="Frames skipped at the end", low=0, high=100_000, unit="frames", advanced=True)
    """Frames of each clip that are never taken, counted from its end."""

    crop: Literal["center", "random", "stretch"] = field("center", title="Crop", advanced=True)
    """What happens where a clip's sides differ in ratio. center and random: cut, in the middle or at a random position
    for each clip. stretch: nothing is cut, the picture is squeezed."""

    horizontal_flip: float = field(0.0, title="Horizontal flip", low=0.0, high=1.0, advanced=True)
    """How often a clip is flipped, left and right exchanged: 0.5 is every second time. Not for clips with text
    or with a direction in the caption."""


class ToldSettings(Settings):
    SECTION = "What the model is told"

    given: tuple[str, ...] = field((), title="Given frames", lines=3, advanced=True, own=True)
    """What the model is told of a clip beforehand and how often, one a line: first 0.3, last 0.1, first+last 0.2,
    prefix 9 0.1 (the first 9 frames, to extend a clip), suffix 9 0.1, keyframes 3 0.1 (3 frames evenly apart, both
    ends among them), mask outside 0.2 (what lies outside of the clips' masks, to fill them in), mask inside 0.2. For
    what is left of 1 it is told nothing. One way is drawn for each batch; measurements and previews take that of the
    largest share. Empty: as the model was made, a first frame for image to video."""

    control: bool = field(False, title="Follow control videos", advanced=True, own=True)
    """Train with the control videos that lie beside the clips (edges, depth, poses), for models with channels for them:
    what is generated then follows such a video frame by frame. Each clip needs one."""

    reference: bool = field(False, title="Show references", advanced=True, own=True)
    """Train an in-context LoRA: the model is shown the reference that lies beside each clip, a video or a picture, and
    learns how the clip follows from it: a style, an edit, a video from edges or poses. Each clip needs one."""

    reference_downscale: int = field(1, title="Reference downscale", low=1, high=8, advanced=True, own=True)
    """How many times smaller than the clip its reference is shown, in width and height. 2 takes a quarter of the
    tokens, and so less time and memory. The LoRA's file says it (reference_downscale_factor)."""

    @field_validator("given")
    @classmethod
    def _legal_kinds(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        parse_given(value)
        return value

    @property
    def given_shares(self) -> tuple[GivenShare, ...]:
        """How often a clip is told what."""
        return parse_given(self.given)

    @property
    def told_kinds(self) -> tuple[str, ...]:
        """The kinds of `families.told` that clips are told."""
        names = [one.kind.name for one in self.given_shares]
        names += [name for name in BESIDE if getattr(self, name)]
        return tuple(dict.fromkeys(names))

    @property
    def ways_told(self) -> int:
        """Encoded views of a clip beside itself, for all that it may be told."""
        return len(self.given) + self.control + self.reference

    @property
    def tells(self) -> bool:
        """Whether clips are told anything of this section; if not, models are shown what they were made for."""
        return bool(self.given or self.control or self.reference)


class SliderSettings(Settings):
    SECTION = "Slider"

    slider_from: Literal["prompts", "pairs"] = field("prompts", title="Slider from", advanced=True)
    """What a slider learns from. prompts: the lines below. pairs: the dataset, each of whose clips shows more of
    something than the reference beside it, all else equal: fast and slow, day and night. Strength 1 learns the clips,
    -1 the references, both with the clip's caption, which should not name the difference."""

    slider_positive: tuple[str, ...] = field((), title="Slider, more", lines=2, advanced=True)
    """A LoRA whose strength turns something up and down, learned from prompts alone: one prompt a line that names more
    of it, as in a large ball rolls. It needs no dataset: the base model generates clips to learn at. With a dataset its
    clips are taken instead, without their captions. Empty: no slider."""

    slider_negative: tuple[str, ...] = field((), title="Slider, less", lines=2, advanced=True)
    """For each line above, the same prompt with less of it, as in a small ball rolls."""

    slider_neutral: tuple[str, ...] = field((), title="Slider, neutral", lines=2, advanced=True)
    """For each line above, or one for all, the prompt that is to be turned up and down, as in a ball rolls. Empty: the
    empty prompt, which turns every prompt a little."""

    slider_guidance: float = field(2.0, title="Slider guidance", low=0.1, high=100.0, advanced=True)
    """How far strength 1 goes: so many times what the base model predicts of more without what it predicts of less."""

    slider_reach: float = field(1.0, title="Slider reach", low=1.0, high=8.0, advanced=True)
    """The largest strength that is trained. 1: 1 and -1 alone, as published; beyond, the slider continues as it will.
    2: each batch draws a strength between 1 and 2 and learns that much more and less, so that 2 and -2 are learned,
    too. The guidance above is that of strength 1."""

    slider_samples: int = field(6, title="Slider samples", unit="clips", low=1, high=1000, advanced=True)
    """Clips that the base model generates for each line before the first step, in turn of its neutral prompt, of more
    and of less, with the denoising steps and guidance of previews. Kept in the cache. Those of an image-to-video model
    begin with the preview images: each line with its own where there are as many, else in turn."""

    @property
    def is_slider(self) -> bool:
        """Whether the run trains a slider."""
        return self.has_pairs or any(line.strip() for line in self.slider_positive)

    @property
    def has_pairs(self) -> bool:
        """Whether a slider is learned from clips and the references beside them."""
        return self.slider_from == "pairs"

    @property
    def slider_pairs(self) -> tuple[SliderPair, ...]:
        """The prompts, line by line; where their numbers differ (runs.checks) the rest is left out."""
        positive, negative, own = (
            tuple(line.strip() for line in lines if line.strip())
            for lines in (self.slider_positive, self.slider_negative, self.slider_neutral)
        )
        if self.has_pairs:
            return ()
        neutral = own or ("",)
        every = neutral * len(positive) if len(neutral) == 1 else neutral
        return tuple(SliderPair(*lines) for lines in zip(positive, negative, every, strict=False))


class MaskSettings(Settings):
    SECTION = "Masked loss"

    loss_mask: Literal["off", "inside", "outside"] = field("off", title="Learn from", advanced=True, own=True)
    """Learn from a part of each clip, which its mask marks: a gray video beside the clip, white where it counts.
    inside: what is white is learned. outside: what is black. off: all of the clip, whether it has a mask or not. A
    clip's loss is averaged over its part, so that a small face is learned as fast as a large one. Using the LoRA takes
    no mask."""

    unmasked_clips: Literal["refuse", "whole"] = field("refuse", title="Clips without a mask", advanced=True)
    """refuse: the run does not start while a clip to train on has no mask, and names it. whole: such a clip is learned
    as a whole. Clips of the regularization dataset always are."""

    outside_weight: float = field(0.0, title="Weight of the rest", low=0.0, high=100.0, advanced=True)
    """Also hold the part that is not learned to what the base model predicts of it with the same noise, and let the
    distance count so much beside the loss. It keeps the LoRA from changing what it is not shown; a step takes up to
    a third longer. 0 is off: the rest is free to become anything."""

    mask_floor: float = field(0.0, title="Least weight", low=0.0, high=1.0, advanced=True)
    """What the part that is not learned still counts beside the other: 0 nothing, 0.1 a tenth, 1 as much."""

    mask_soften: float = field(0.0, title="Soft edges", low=0.0, high=64.0, unit="pixels", advanced=True)
    """Blur the edges of the masks by so many pixels, at the size that clips are trained at. 0: not at all."""


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

    lokr_factor: int = field(8, title="LoKr factor", low=2, high=1024, advanced=True)
    """Of a LoKr: the size of the first factor of each product. The second is a product of two matrices of the rank
    above, or whole where that is no larger. With factor times rank up to 256 it becomes a plain LoRA without a loss."""

    blocks: str = field("", title="Trained blocks", advanced=True)
    """Which of the transformer's blocks are trained, counted from 0, as in 0-9, 20-29: early ones decide more of the
    layout and movement, late ones more of the details. Layers around the blocks are then left alone. Empty: all."""

    lora_dropout: float = field(0.0, title="LoRA dropout", low=0.0, high=0.95, advanced=True)
    """Share of the LoRA's inputs dropped at random in training."""

    dora: bool = field(False, title="DoRA", advanced=True)
    """Also train the length of each weight row: often better at low rank, slower."""

    rslora: bool = field(False, title="Rank-stabilized scale", advanced=True)
    """Scale by alpha / square root of the rank, so that high ranks learn as fast as low ones."""

    base_lora: str | None = field(None, title="Trained over a LoRA", source="loras", advanced=True, path=True)
    """A frozen LoRA that is on while this one is trained and in its previews, as NAME=STRENGTH: a character over a
    style, or a subject over a LoRA for few steps. The new file holds the new LoRA alone: whoever uses it loads both."""

    training_adapter: str | None = field(None, title="Training adapter", source="loras", advanced=True, path=True)
    """A frozen LoRA that is on in training alone, as NAME=STRENGTH: one that undoes the distillation of a model for few
    steps, which plain training would destroy. Previews, and whoever uses the new LoRA, do without it."""

    lora_init: Literal["default", "gaussian", "orthogonal", "pissa", "olora", "eva", "corda", "loftq"] = field(
        "default", title="Start of the LoRA", advanced=True
    )
    """How its matrices begin: default, gaussian and orthogonal change nothing at first. The others change the base
    model, so their files would not fit it elsewhere, and are refused."""

    train_also: tuple[str, ...] = field((), title="Also trained", lines=2, advanced=True)
    """Weights of the transformer trained in full beside the LoRA: beginnings of their names, one a line, as in
    patch_embed. They are written to a file of their own, also.safetensors, which samples load with the LoRA."""


class PreviewSettings(Settings):
    SECTION = "Previews"

    preview_prompts: tuple[str, ...] = field((), title="Preview prompts", lines=3)
    """One prompt a line: a video of each is generated before the first step and then regularly. Empty: the first two
    captions."""

    preview_images: tuple[str, ...] = field((), title="Preview images", lines=2, advanced=True, path=True)
    """For image-to-video: a picture file a line, one for each prompt. Empty: first frames of clips. A slider without a
    dataset learns at clips that begin with them."""

    preview_every: int = field(100, title="Preview every", low=0, high=1_000_000, unit="steps", advanced=True)
    """Steps between previews. 0 generates none."""

    preview_count: int = field(1, title="Previews a prompt", low=1, high=16, advanced=True)
    """Videos generated for each prompt, each with a seed of its own."""

    preview_controls: int = field(1, title="Control previews", low=0, high=3, advanced=True)
    """Preservation prompts of which a video is generated beside the previews, with the same seed: only what previews
    change more than these is the concept. No more than there are preview prompts. 0: none, and previews take less
    time."""

    preview_frames: int | None = field(None, title="Preview frames", low=1, high=1000, unit="frames", advanced=True)
    """Length of a preview. Empty: as long as the run's clips. 1: a picture."""

    preview_steps: int | None = field(
        None, title="Preview denoising steps", low=1, high=1000, unit="steps", advanced=True
    )
    """Denoising steps of a preview. Empty: the model's own number."""

    preview_guidance: float | None = field(None, title="Preview guidance scale", low=0.0, high=50.0, advanced=True)
    """How closely previews follow their prompt. Empty: the model's own value."""

    preview_dynamic_guidance: Curve = field("off", title="Preview dynamic guidance", advanced=True)
    """stock: the guidance scale of a preview jumps from step to step, as with CogVideoX's authors and with diffusers'
    use_dynamic_cfg. cosine: it rises evenly over the denoising steps."""

    preview_lora: str | None = field(None, title="Preview LoRA", source="loras", advanced=True, path=True)
    """A frozen LoRA that is on in previews alone, as NAME=STRENGTH: one for few steps makes them several times faster.
    Set the denoising steps and the guidance scale above to what it was made for."""

    preview_flow_shift: float | None = field(
        None, title="Preview flow shift", low=0.1, high=100.0, advanced=True, own=True
    )
    """Moves the noise levels of a preview's steps, as the flow shift of a sample does; training has a shift of its own.
    Empty: the model's own value for the size of the previews."""

    preview_seed: int = field(7, title="Preview seed", low=0, high=2**31 - 1, advanced=True)
    """Every preview of a prompt starts from this seed, so that they can be compared."""

    preview_inputs: bool = field(True, title="Save training inputs", advanced=True)
    """Once, before the first step: two clips as the model reads them, and what its video encoder keeps of them."""

    preview_latents_only: bool = field(False, title="Keep previews as latents", advanced=True)
    """Do not decode previews: saves time and memory; they can be decoded later."""

    @property
    def previews_at_once(self) -> int:
        """Videos generated each time, controls included."""
        prompts = len(self.preview_prompts) or 2
        controls = 0 if self.preview_latents_only else min(self.preview_controls, prompts)
        return prompts * self.preview_count + controls


class CheckpointSettings(Settings):
    SECTION = "Checkpoints"

    save_every: int = field(100, title="Checkpoint every", low=1, high=1_000_000, unit="steps", advanced=True)
    """Steps between checkpoints: the most that a crash can cost."""

    keep_checkpoints: int = field(3, title="Checkpoints kept", low=1, high=10_000, advanced=True)
    """Older checkpoints are removed once a newer one is safely on disk; the best and the starred ones stay."""

    keep_every: int = field(0, title="Checkpoints kept for good", low=0, high=1_000_000, unit="steps", advanced=True)
    """A checkpoint at every multiple of this many steps is never removed. 0: none beside those above."""

    push_to_hub: bool = field(False, title="Push at the end", advanced=True)
    """When the run has finished, send its LoRA to the Hugging Face Hub, into a private repository, with the login of
    this machine (hf auth login). A push that fails is no failure of the run."""

    repository: str = field("", title="Repository", advanced=True)
    """Where it goes, as OWNER/NAME. Empty: your account and the run's name."""


class LoggingSettings(Settings):
    SECTION = "Logging"

    evaluate_every: int = field(50, title="Measure every", low=0, high=1_000_000, unit="steps", advanced=True)
    """Steps between measurements of the held-out loss and of the prior drift. 0 measures none."""

    tracker: Literal["none", "tensorboard", "trackio", "wandb", "comet_ml", "all"] = field(
        "none", title="Tracker", advanced=True
    )
    """Also send the measurements to another program. all: to each of these that is installed. The page needs none."""

    tracker_project: str = field("video-lora-workbench", title="Tracker project", advanced=True)
    """The name under which the tracker files the run."""

    stall_timeout: float = field(15.0, title="Stall timeout", low=0.0, high=10_000.0, unit="minutes", advanced=True)
    """End the run when it has made no progress for this long, with the stack of every thread in its log. 0: never.
    Downloads are not counted."""


Checkpointing = Literal["none", "keep attention", "full", "offloaded"]
BasePrecision = Literal["as stored", "int8", "fp8", "nf4"]
AttentionKernel = Literal["auto", "flash", "efficient", "cudnn", "math", "flash-attn", "stock"]
Parallel = Literal["ddp", "fsdp"]


class MemorySettings(Settings):
    SECTION = "Memory and speed"

    gradient_checkpointing: Checkpointing = field("none", title="Gradient checkpointing", advanced=True)
    """What is computed twice so that the run needs less memory. none: nothing, fastest. keep attention: all but the
    attention, which costs most to repeat. full: every block. offloaded: every block, with what is still kept in CPU
    memory. Needed for the large models on most GPUs."""

    base_model_precision: BasePrecision = field("as stored", title="Base model precision", advanced=True)
    """How the base model's weights, which a LoRA leaves unchanged, are stored: int8 and fp8 need half the memory of
    bf16, nf4 a quarter. Each rounds the model a little. Not with full fine-tuning."""

    blocks_to_swap: int = field(0, title="Blocks to swap", low=0, high=1000, unit="blocks", advanced=True)
    """Block swap: so many transformer blocks keep their frozen weights in CPU memory and are copied to the GPU just
    before they are used. Needs full or offloaded gradient checkpointing. 0 keeps all on the GPU."""

    compile: bool = field(False, title="Compile", advanced=True)
    """Translate each block for this GPU before the first step: some minutes once a shape, then faster steps and less
    memory. Needs a C compiler."""

    attention: AttentionKernel = field("auto", title="Attention", advanced=True)
    """Which kernel computes the attention. auto: the fastest that PyTorch has for the GPU. flash-attn: the package of
    that name. stock: diffusers' own code, for comparing."""

    oom_fallback: bool = field(True, title="OOM fallback", advanced=True)
    """When the GPU's memory runs out, go on once from the last checkpoint with the next cheaper setting that does not
    change what is learned, instead of ending."""

    gpus: int = field(1, title="GPUs", low=0, high=1024, advanced=True)
    """GPUs that share the batches of a step; what is learned does not depend on it. Gradient accumulation must be a
    multiple of it. 0 takes all of this machine."""

    parallel: Parallel = field("ddp", title="How GPUs share", advanced=True)
    """ddp: each GPU holds the whole model. fsdp: each holds a part of it (FSDP2), which cuts what DeepSpeed's ZeRO
    stages 2 and 3 cut."""

    nccl_timeout: float = field(60.0, title="NCCL timeout", low=1.0, high=10_000.0, unit="minutes", advanced=True)
    """How long one NVIDIA GPU of several waits for the others before the run ends with an error. Raise it where a
    single transfer takes longer, such as over a slow network."""


class MachineSettings(Settings):
    SECTION = "Machine"

    device: DeviceChoice = field("auto", title="Device", source="devices", advanced=True)
    """auto takes the first GPU that torch can use, else the processor. cuda: NVIDIA, and AMD by ROCm. mps: Apple.
    cuda:1: that GPU of several, counted from 0 as torch does."""

    precision: Literal["auto", "bf16", "fp16", "fp32"] = field("auto", title="Precision", advanced=True)
    """Number format of the computation. auto: on a GPU what the model's authors compute in, which for Wan and LTX-Video
    is bf16 even where the files hold fp32; fp32 on a processor. Wan's VAE always computes in fp32."""

    exact: bool = field(False, title="Exact on the GPU", advanced=True)
    """Use only computations that give the same bits every time, so that a resumed run equals an uninterrupted one on a
    GPU, too. Slower. A processor is always exact."""

    tf32: bool = field(True, title="TF32", advanced=True)
    """On an NVIDIA GPU: multiply fp32 matrices with shortened numbers, much faster."""

    loader_threads: int = field(0, title="Loader threads", low=0, high=16, advanced=True)
    """Threads that read the next batches while a step is computed, for a workspace on a slow disk. 0 reads in between.
    No effect on results."""


# What other trainers call our settings. A form's search finds a setting by these words, and a wrong name among them is
# answered with the right one.
OTHER_NAMES = {
    "model": "base model, checkpoint, pretrained model name or path, backbone",
    "method": "full fine-tuning, training type",
    "start_from": "resume from LoRA, network weights, initial weights",
    "dataset": "train data dir, data root, instance data",
    "regularization_dataset": "class images, reg data dir, prior preservation",
    "regularization_weight": "prior loss weight",
    "regularization_target": "self-distillation, teacher, learning without forgetting, prior preservation",
    "preservation_weight": "differential output preservation, diff output preservation multiplier, DOP, forgetting",
    "preservation_prompts": "prior drift, forgetting, differential output preservation class",
    "held_out": "validation split, eval split, test clips",
    "frames": "num frames, max num frames, clip length, resolution",
    "height": "resolution, size",
    "width": "resolution, size",
    "fps": "frame rate, frames per second",
    "bucket_limit": "aspect ratio, resolution",
    "buckets": "aspect ratio, resolution",
    "picture_share": "image ratio, still images, mixed image and video training, static",
    "horizontal_flip": "augmentation, flip, random flip",
    "given": "image to video, i2v, first last frame, FLF2V, end image, extend video, inpainting, outpainting",
    "control": "Fun-Control, ControlNet, control path, control directory, edges, canny, depth, pose, paired videos",
    "reference": "IC-LoRA, in-context LoRA, reference video, reference latents dir, edit, video to video",
    "reference_downscale": "reference downscale factor, reference downscale",
    "gradient_checkpointing": "vram, GPU memory, activation checkpointing, recompute",
    "base_model_precision": "vram, GPU memory, quantize, quantization, 8-bit, 4-bit, fp8, QLoRA, layerwise upcasting",
    "blocks_to_swap": "vram, GPU memory, offload, block swap, group offload",
    "compile": "torch compile, inductor, speed",
    "attention": "sdpa, flash attention, xformers, speed",
    "oom_fallback": "vram, out of memory, CUDA out of memory",
    "gpus": "num processes, multi GPU, devices, accelerate",
    "nccl_timeout": "ddp timeout, init process group timeout, InitProcessGroupKwargs",
    "parallel": "DeepSpeed, FSDP, DDP, ZeRO, multi GPU",
    "device": "cuda, GPU id, cpu",
    "precision": "mixed precision, bf16, fp16, autocast, weight dtype",
    "exact": "deterministic, reproducible, determinism",
    "loader_threads": "dataloader num workers, num workers",
    "preview_prompts": "validation prompt, sample prompts",
    "preview_every": "validation steps, sample every, validation epochs",
    "preview_flow_shift": "flow shift, sample shift, discrete flow shift",
    "preview_guidance": "cfg, guidance scale, validation guidance scale",
    "preview_frames": "sample num frames, sample images",
    "base_lora": "context LoRA, frozen LoRA, train over another LoRA, network weights merged",
    "training_adapter": "assistant LoRA, de-distill, distilled, turbo, assistant_lora_path",
    "preview_lora": "speed LoRA, turbo, lightning, lightx2v, few steps, inference LoRA",
    "preview_steps": "num inference steps",
    "save_every": "checkpointing steps, save every n steps",
    "keep_checkpoints": "checkpoints total limit, max step saves",
    "push_to_hub": "Hugging Face, upload, hub",
    "repository": "hub model id, repo id, Hugging Face",
    "evaluate_every": "validation loss, eval steps, eval every",
    "tracker": "wandb, Weights & Biases, TensorBoard, trackio, Comet, report to, logging, log with",
    "tracker_project": "wandb project, run name",
    "steps": "max train steps, train iters, iterations",
    "epochs": "num train epochs, repeats, num repeats",
    "batch_size": "train batch size, micro batch size, vram",
    "gradient_accumulation": "gradient accumulation steps, accumulate grad batches, effective batch size",
    "learning_rate": "lr, unet lr",
    "scale_learning_rate": "scale lr",
    "lr_schedule": "scheduler, lr scheduler, cosine, warmup",
    "warmup_steps": "lr warmup steps, warmup ratio",
    "lr_cycles": "lr num cycles, restarts, scheduler",
    "lr_power": "polynomial, scheduler",
    "optimizer": "adamw, 8-bit, adam8bit, prodigy, muon, came, vram",
    "adam_epsilon": "eps",
    "weight_decay": "l2, regularization",
    "optimizer_options": "optimizer args, betas",
    "max_grad_norm": "gradient clipping, clip grad norm",
    "caption_dropout": "text encoder, unconditional, cfg dropout, caption dropout rate, proportion empty prompts",
    "dropped_caption": "text encoder, empty prompt, unconditional",
    "image_dropout": "noised image dropout, unconditional",
    "first_frame_share": "first frame conditioning p, image conditioning",
    "loss_weighting": "min snr, weighting scheme, loss type",
    "loss_mask": "masked training, masked loss, mask path, alpha mask, invert mask",
    "unmasked_clips": "default mask, masked training",
    "outside_weight": "masked prior preservation weight, inverted mask prior, masked training",
    "mask_floor": "unmasked weight, mask min value, masked training",
    "mask_soften": "mask blur, feather, masked training",
    "snr_gamma": "min snr gamma",
    "expert": "dit high, dit low, high noise model, low noise model, min timestep, max timestep, train high noise",
    "timestep_density": "weighting scheme, timestep sampling, timestep type, sigmoid, noise level sampling",
    "timestep_shift": "discrete flow shift, flow shift, sigma shift, noise schedule",
    "tokenizer_steps": "cvivit, vae, autoencoder",
    "train_part": "only train generator, only train critic",
    "ema_decay": "exponential moving average, use ema",
    "time_limit": "max time, hours",
    "slider_from": "concept slider, visual slider, image slider, reference slider, before and after",
    "slider_reach": "slider scales, network multiplier",
    "slider_positive": "concept slider, positive prompt, target class, LECO",
    "slider_negative": "concept slider, negative prompt, unconditional",
    "slider_neutral": "concept slider, target class, anchor",
    "slider_guidance": "guidance scale, guidance strength, eta",
    "seed": "random, reproducible",
    "rank": "network dim, LoRA rank, lora r, dimension",
    "alpha": "network alpha, LoRA alpha, scale",
    "targets": "target modules, layers, only if contains, attention",
    "lokr_factor": "LyCORIS, Kronecker, decompose factor, lokr",
    "blocks": "block range, layers to transform, only if contains, train single blocks, block weights",
    "lora_dropout": "network dropout, rank dropout",
    "dora": "weight decomposed, use dora",
    "rslora": "rank stabilized, use rslora",
    "lora_init": "init lora weights, pissa, gaussian",
    "train_also": "modules to save, patch embedding, text encoder",
}


# The fields of the last base come first, so this is the form's order from bottom to top.
class TrainSettings(
    MachineSettings,
    MemorySettings,
    LoggingSettings,
    CheckpointSettings,
    PreviewSettings,
    LoraSettings,
    TrainingSettings,
    ToldSettings,
    SliderSettings,
    MaskSettings,
    DataSettings,
    ModelSettings,
):
    """The content of `runs/<slug>/config.json`, which is all it takes to repeat a run."""

    ALSO = OTHER_NAMES

    @property
    def is_dora(self) -> bool:
        """Whether the lengths of rows are trained, too, which only a LoRA has."""
        return self.dora and self.method == "lora"


def chosen_blocks(text: str, count: int) -> frozenset[int] | None:
    """Return the numbers of the blocks that the setting `blocks` names; None for all of them.

    Args:
        count: How many blocks the model has.

    Raises:
        ConfigError: If the text names something else, or blocks that the model lacks.
    """
    found = set[int]()
    for part in (part.strip() for part in text.split(",") if part.strip()):
        match = BLOCK_RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ConfigError.of("blocks", f"blocks has {part[:40]!r}: write numbers and ranges, as in 0-9, 20-29")
        if last >= count:
            raise ConfigError.of(
                "blocks", f"blocks has {part}, and the model has the blocks 0 to {count - 1}: use at most {count - 1}"
            )
        found |= set(range(first, last + 1))
    return frozenset(found) or None


Values = Mapping[str, Any]  # of settings, by name


def _image(values: Values) -> bool:
    """Whether the model takes an image; true for an unknown model."""
    found = known_model(str(values["model"]))
    return found is None or found.model.task == "image-to-video"


def _tells(values: Values) -> bool:
    """Whether the run says itself what the model is told of a clip."""
    return bool(values["given"] or values["control"] or values["reference"])


def _first_frame(values: Values) -> bool:
    return _image(values) and values["condition"] == "first frame" and not _tells(values)


def _lora(values: Values) -> bool:
    return bool(values["method"] != "full")


def _prompts(values: Values) -> bool:
    """Whether a slider is learned from prompts."""
    return bool(values["slider_positive"]) and values["slider_from"] == "prompts"


def _plain_lora(values: Values) -> bool:
    return bool(values["method"] == "lora")


# Setting -> whether it has an effect. Forms hide it where it has none, and the trainer does not read it there. Settings
# that are not listed always have an effect.
HAS_EFFECT: dict[str, Callable[[Values], bool]] = {
    **dict.fromkeys(("condition", "image_dropout"), lambda values: _image(values) and not _tells(values)),
    "first_frame_share": lambda values: not _tells(values),
    "reference_downscale": lambda values: bool(values["reference"]),
    **dict.fromkeys(("condition_frames", "image_latent_scale", "preview_images"), _first_frame),
    "low_resolution_scale": lambda values: _image(values) and values["condition"] == "low resolution",
    **dict.fromkeys(
        (
            *("start_from", "rank", "alpha", "targets", "blocks", "train_also"),
            *("base_lora", "training_adapter", "preview_lora"),
        ),
        _lora,
    ),
    "slider_positive": lambda values: values["slider_from"] == "prompts",
    **dict.fromkeys(("slider_negative", "slider_neutral", "slider_guidance", "slider_reach"), _prompts),
    "slider_samples": lambda values: _prompts(values) and not values["dataset"],
    **dict.fromkeys(("lora_dropout", "dora", "rslora", "lora_init"), _plain_lora),
    "lokr_factor": lambda values: bool(values["method"] == "lokr"),
    "preservation_weight": _lora,
    **dict.fromkeys(
        ("regularization_share", "regularization_weight"), lambda values: bool(values["regularization_dataset"])
    ),
    "regularization_target": lambda values: _lora(values) and bool(values["regularization_dataset"]),
    **dict.fromkeys(
        ("tokenizer_batch_size", "tokenizer_learning_rate"), lambda values: bool(values["tokenizer_steps"])
    ),
    "dataset_weights": lambda values: bool(values["more_datasets"]),
    "validation_dataset": lambda values: bool(values["held_out"]),
    "dropped_caption": lambda values: bool(values["caption_dropout"]),
    "lr_cycles": lambda values: values["lr_schedule"] == "cosine_with_restarts",
    "lr_power": lambda values: values["lr_schedule"] == "polynomial",
    "picture_share": lambda values: bool(values["buckets"]) or values["bucket_limit"] != 1,
    "snr_gamma": lambda values: values["loss_weighting"] == "min-snr",
    **dict.fromkeys(("unmasked_clips", "mask_floor", "mask_soften"), lambda values: values["loss_mask"] != "off"),
    "outside_weight": lambda values: _lora(values) and values["loss_mask"] != "off",
    "repository": lambda values: bool(values["push_to_hub"]),
    "tracker_project": lambda values: values["tracker"] != "none",
}

"""The settings of a training run, each declared once, in the order of the form.

Below them: the names that other trainers use, and which settings have no effect next to others. Rules that need a
model's facts, a dataset or a package are in `checks`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import field_validator

from workbench.errors import ConfigError
from workbench.families import default_model, known_model
from workbench.families.conditioning import BESIDE, GivenShare, parse_given
from workbench.families.denoising import FEWEST_COMPUTED, Curve
from workbench.families.model_inputs import PICTURE_FOR_SOUND, SOUND_FOR_PICTURE, SOUND_ONLY
from workbench.families.noise_schedules import Density, TrainPart
from workbench.families.settings import NamesModel
from workbench.jobs.devices import DeviceChoice
from workbench.settings import Settings, field

HELD_OUT = 2  # default number of clips
BLOCK_RANGE = re.compile(r"(\d{1,5})(?:\s*-\s*(\d{1,5}))?")


class SliderPair(NamedTuple):
    """The prompts of one slider line: more of something, less of it, and the prompt to turn up and down."""

    positive: str
    negative: str
    neutral: str


class ModelSettings(NamesModel):
    SECTION = "Model"

    model: str = field(default_model(), title="Model", source="models", path=True)
    """The video model to fine-tune: a known name, a folder of weights in diffusers' layout, OWNER/NAME of such a model
    on the Hub, or single files as ComfyUI has them, joined by " + "."""

    revision: str = field("", title="Revision", advanced=True)
    """Branch, tag or commit of a model on the Hub. When the job starts, it is resolved to a commit, which becomes part
    of the model's name. Empty: the pinned commit of a known model, otherwise the newest."""

    variant: str = field("", title="Variant", advanced=True)
    """Weight variant of a model on the Hub, such as fp16, if there are several. It becomes part of the model's name.
    Empty: the weights without a variant."""

    method: Literal["lora", "lokr", "full"] = field("lora", title="Method", advanced=True)
    """What to train. lora: small matrices added to the model's weights, saved as a small file. lokr: a LoRA whose
    updates are Kronecker products (LyCORIS), which reaches a higher rank with fewer parameters; fewer programs can load
    it directly. full: all weights of the transformer; needs about five times the memory and saves a whole model."""

    expert: Literal["both", "high noise", "low noise"] = field("both", title="Expert", own=True)
    """Which of the model's two transformers to train. The high-noise one decides shapes and movement, the low-noise one
    the details; each learns from its own range of noise levels. both: two runs, one after the other, whose results are
    used together."""

    sound: Literal["picture", "picture+sound", "sound", "sound for picture", "picture for sound"] = field(
        "picture", title="What it learns", own=True
    )
    """What to learn from the clips, for models that make picture and sound. picture+sound: both at once; clips without
    sound teach the picture alone. sound: the sound alone, such as a voice or a kind of noise. sound for picture: the
    sound that belongs to a given picture (video to audio). picture for sound: the picture that belongs to a given sound
    (audio to video). Clips without sound are left out of the last three. Samples always have both."""

    sound_weight: float = field(1.0, title="Sound loss weight", low=0.0, high=100.0, advanced=True, own=True)
    """Weight of the sound's loss beside the picture's. The authors of LTX-2 use 1."""

    start_from: str | None = field(None, title="Continue from a LoRA", source="exported_runs", advanced=True, path=True)
    """Continue from the weights of an existing LoRA: a run's name or a .safetensors file from this or another
    trainer."""

    condition: Literal["first frame", "low resolution"] = field(
        "first frame", title="Image condition", advanced=True, own=True
    )
    """What an image-to-video model gets besides the caption. first frame: the clip's first frame. low resolution: the
    whole clip scaled down and back up, which teaches it to sharpen."""

    condition_frames: Literal["first", "every"] = field("first", title="First-frame placement", advanced=True, own=True)
    """Where the first frame is given. first: with the first latent frame, and zeros with the others, as the published
    models expect. every: with every latent frame, as SAT's noised_image_all_concat does."""

    low_resolution_scale: float = field(4.0, title="Low-resolution factor", low=1.0, high=32.0, advanced=True, own=True)
    """How many times smaller than the clip the low-resolution condition is."""

    image_latent_scale: Literal["pipeline", "raw"] = field(
        "pipeline", title="Scale of the first frame", advanced=True, own=True
    )
    """How to scale the first frame's latents. pipeline: as diffusers' pipeline does, so that the LoRA works there. raw:
    not at all, as in SAT's sampling. Training and previews always use the same scale."""


class DataSettings(Settings):
    SECTION = "Data"

    dataset: str = field("", title="Dataset", source="datasets")
    """The clips and captions of the new concept."""

    more_datasets: tuple[str, ...] = field((), title="More datasets", source="datasets", advanced=True)
    """More datasets of the new concept, each as NAME, NAME=REPEATS or NAME=REPEATS@WEIGHT. Their clips are used REPEATS
    times for every pass over the first dataset, and WEIGHT multiplies their loss."""

    dataset_weights: Literal["loss", "sampling"] = field("loss", title="Dataset weights apply to", advanced=True)
    """What a WEIGHT above does. loss: it multiplies the loss of the dataset's clips. sampling: it sets how often the
    dataset is sampled, whatever its size: cats@3 gives three clips of cats for each clip of the first dataset. An epoch
    still draws as many clips as there are in all."""

    regularization_dataset: str | None = field(None, title="Regularization dataset", source="datasets", advanced=True)
    """A second dataset, of things the model already knows, mixed in so that it does not forget them."""

    regularization_share: float = field(0.25, title="Regularization share", low=0.0, high=0.9, advanced=True)
    """Share of the clips in every batch that come from the regularization dataset: 0.25 is one in four."""

    regularization_weight: float = field(1.0, title="Regularization weight", low=0.0, high=100.0, advanced=True)
    """Weight of the loss of regularization clips, relative to new clips."""

    regularization_target: Literal["clips", "base model"] = field(
        "clips", title="Regularization target", advanced=True, own=True
    )
    """What the regularization clips teach. clips: themselves. base model: what the base model predicts for them with
    the same noise, so that a LoRA keeps what the model knew and learns nothing new from them. On the built-in model, it
    forgot less and learned sooner. A step takes up to a third longer. The training loss is lower because these clips
    start at zero, so judge progress by the held-out loss."""

    preservation_weight: float = field(0.0, title="Preservation weight", low=0.0, high=100.0, advanced=True)
    """Output preservation: at each step, also keep the model's predictions for the preservation prompts close to the
    base model's, with this weight in the loss. It needs no second dataset. A step takes about 2.3 times as long. 0
    turns it off."""

    preservation_prompts: tuple[str, ...] = field((), title="Preservation prompts", lines=3, advanced=True)
    """One prompt per line, unrelated to the dataset. Prior drift compares how much predictions change for the first
    three with how much they change for the dataset's own captions. With a preservation weight, all of them are
    preserved. Empty: general prompts for the model's family."""

    held_out: int = field(HELD_OUT, title="Held-out clips", unit="clips", low=0, high=1000, advanced=True)
    """Clips kept out of training, on which the loss is measured with fixed noise to show whether the model really
    learns. By default, a dataset of one or two clips keeps none out."""

    validation_dataset: str | None = field(None, title="Validation dataset", source="datasets", advanced=True)
    """Take the held-out clips from this dataset, and train on all clips of the datasets above. Clips that are also
    trained on are not measured."""

    frames: int | None = field(None, title="Frames", low=1, high=1000, unit="frames", advanced=True)
    """Frames per clip. Empty: the model's native length."""

    height: int | None = field(None, title="Height", low=16, high=4096, unit="pixels", advanced=True)
    """Height to scale and crop clips to. Empty: the model's native height."""

    width: int | None = field(None, title="Width", low=16, high=4096, unit="pixels", advanced=True)
    """Width to scale and crop clips to. Empty: the model's native width."""

    fps: float | None = field(None, title="Frame rate", low=0.5, high=120, unit="frames per second", advanced=True)
    """Rate at which frames are taken from each clip. Empty: the model's native rate."""

    bucket_limit: int = field(1, title="Bucket limit", low=1, high=32, advanced=True)
    """How many shapes (frames, height, width) clips may have. 1: every clip gets the one shape above. More: up to this
    many shapes are chosen so that the clips lose as little as possible; images get a shape of one frame."""

    buckets: tuple[str, ...] = field((), title="Buckets", lines=2, advanced=True)
    """Shapes to use instead of chosen ones: FRAMESxHEIGHTxWIDTH, one per line, as in 49x480x720. A shape of 1 frame
    takes images. Each clip goes to the shape in which it loses least."""

    picture_share: float | None = field(None, title="Image share", low=0.01, high=0.95, advanced=True)
    """Share of the batches that hold still images, if the datasets also have clips: 0.2 is one in five. Images teach
    appearance at the expense of motion. Empty: the datasets' own share."""

    frame_sampling: Literal["middle", "start", "windows", "spread", "sat"] = field(
        "middle", title="Frame sampling", advanced=True
    )
    """Which frames to take. middle: one window in the middle of a clip. start: one at its start. windows: as many as
    fit side by side. spread: frames spread evenly over the whole clip, whatever its rate. sat: what SAT's trainer
    takes: every n-th frame from the start, with n rounded down (30 fps become 10 instead of 8), and a still at the end
    of short clips."""

    skip_start: int = field(0, title="Frames skipped at the start", low=0, high=100_000, unit="frames", advanced=True)
    """Frames to skip at the start of each clip."""

    skip_end: int = field(0, title="Frames skipped at the end", low=0, high=100_000, unit="frames", advanced=True)
    """Frames to skip at the end of each clip."""

    crop: Literal["center", "random", "stretch"] = field("center", title="Crop", advanced=True)
    """How to fit clips of another aspect ratio. center: crop around the middle. random: crop at a random position for
    each clip. stretch: squeeze the picture without cropping."""

    horizontal_flip: float = field(0.0, title="Horizontal flip", low=0.0, high=1.0, advanced=True)
    """How often to flip a clip left to right: 0.5 is half the time. Do not use it with text in the clips or directions
    in the captions."""


class ToldSettings(Settings):
    SECTION = "Conditioning"

    given: tuple[str, ...] = field((), title="Given frames", lines=3, advanced=True, own=True)
    """Frames to show the model along with the caption, and how often, one per line: first 0.3, last 0.1, first+last
    0.2, prefix 9 0.1 (the first 9 frames, to extend a clip), suffix 9 0.1, keyframes 3 0.1 (3 evenly spaced frames,
    including both ends), mask outside 0.2 (everything outside the clip's mask, to fill it in), mask inside 0.2. The
    rest of the time, it gets none. One kind is drawn per batch; measurements and previews use the one with the largest
    share. Empty: what the model was made for, such as a first frame for image to video."""

    control: bool = field(False, title="Follow control videos", advanced=True, own=True)
    """Train with the control video linked to each clip (edges, depth, poses), for models with control channels or a
    control branch. Generated videos then follow such a video frame by frame. Every clip needs one."""

    reference: bool = field(False, title="Show references", advanced=True, own=True)
    """Train an in-context LoRA: the model sees the reference linked to each clip, a video or an image, and learns how
    the clip follows from it: a style, an edit, a video from edges or poses. For Wan VACE, references are images of what
    the clip shows. Every clip needs one."""

    reference_downscale: int = field(1, title="Reference downscale", low=1, high=8, advanced=True, own=True)
    """How many times smaller than the clip the reference is, in width and height. 2 takes a quarter of the tokens, and
    so less time and memory. The LoRA's file records it (reference_downscale_factor)."""

    @field_validator("given")
    @classmethod
    def _legal_kinds(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        parse_given(value)
        return value

    @property
    def given_shares(self) -> tuple[GivenShare, ...]:
        """The setting `given`, parsed."""
        return parse_given(self.given)

    @property
    def conditioning_kinds(self) -> tuple[str, ...]:
        """The kinds of conditioning in use, by their names in `families.conditioning`."""
        names = [one.kind.name for one in self.given_shares]
        names += [name for name in BESIDE if getattr(self, name)]
        return tuple(dict.fromkeys(names))

    @property
    def conditioning_ways(self) -> int:
        """How many extra views of each clip are encoded for its conditioning."""
        return len(self.given) + self.control + self.reference

    @property
    def tells(self) -> bool:
        """Whether this section sets any conditioning. If not, the model gets what it was made for."""
        return bool(self.given or self.control or self.reference)


class SliderSettings(Settings):
    SECTION = "Slider"

    slider_from: Literal["prompts", "pairs"] = field("prompts", title="Slider source", advanced=True)
    """What a slider learns from. prompts: the lines below. pairs: the dataset, in which each clip shows more of
    something than the reference linked to it, all else equal: fast and slow, day and night. Strength 1 learns the clips
    and -1 the references, both with the clip's caption, which should not name the difference."""

    slider_positive: tuple[str, ...] = field((), title="Slider: more", lines=2, advanced=True)
    """A slider is a LoRA whose strength turns something up or down, learned from prompts alone. Write prompts that name
    more of it, one per line, as in a large ball rolls. No dataset is needed: the base model generates clips to learn
    on. If there is a dataset, its clips are used instead, without their captions. Empty: no slider."""

    slider_negative: tuple[str, ...] = field((), title="Slider: less", lines=2, advanced=True)
    """For each line above, the same prompt with less of it, as in a small ball rolls."""

    slider_neutral: tuple[str, ...] = field((), title="Slider: neutral", lines=2, advanced=True)
    """The prompt to turn up and down, for each line above or one for all, as in a ball rolls. Empty: the empty prompt,
    which affects every prompt a little."""

    slider_guidance: float = field(2.0, title="Slider guidance", low=0.1, high=100.0, advanced=True)
    """How far strength 1 goes: this many times the difference between the base model's predictions for more and for
    less."""

    slider_reach: float = field(1.0, title="Slider reach", low=1.0, high=8.0, advanced=True)
    """The largest strength to train. 1: only 1 and -1, as published; beyond that, the slider extrapolates. 2: each
    batch draws a strength between 1 and 2 and learns that much more and less, so that 2 and -2 are learned, too. The
    guidance above applies to strength 1."""

    slider_samples: int = field(6, title="Slider samples", unit="clips", low=1, high=1000, advanced=True)
    """Clips that the base model generates for each line before the first step, cycling through its neutral, more and
    less prompts, with the denoising steps and guidance of previews. They are kept in the cache. With an image-to-video
    model, they start from the preview images: one per line if the numbers match, otherwise cycling through them."""

    @property
    def is_slider(self) -> bool:
        """Whether the run trains a slider."""
        return self.has_pairs or any(line.strip() for line in self.slider_positive)

    @property
    def has_pairs(self) -> bool:
        """Whether the slider learns from clips and their references."""
        return self.slider_from == "pairs"

    @property
    def slider_pairs(self) -> tuple[SliderPair, ...]:
        """The prompts, line by line. Excess lines are ignored; `runs.checks` refuses them."""
        if self.has_pairs:
            return ()
        positive, negative, neutral = (
            [line.strip() for line in lines if line.strip()]
            for lines in (self.slider_positive, self.slider_negative, self.slider_neutral)
        )
        if len(neutral) < 2:
            neutral = (neutral or [""]) * len(positive)
        return tuple(SliderPair(*lines) for lines in zip(positive, negative, neutral, strict=False))


class MaskSettings(Settings):
    SECTION = "Masked loss"

    loss_mask: Literal["off", "inside", "outside"] = field("off", title="Learn from", advanced=True, own=True)
    """Learn only the part of each clip that its mask marks. A mask is a gray video linked to the clip. inside: learn
    where it is white. outside: learn where it is black. off: learn the whole clip, even if it has a mask. The loss is
    averaged over the part, so a small face is learned as fast as a large one. No mask is needed to use the LoRA."""

    unmasked_clips: Literal["refuse", "whole"] = field("refuse", title="Clips without a mask", advanced=True)
    """refuse: the run does not start if a clip to train on has no mask, and the error names it. whole: learn such a
    clip as a whole. Regularization clips are always learned whole."""

    outside_weight: float = field(0.0, title="Weight of the rest", low=0.0, high=100.0, advanced=True)
    """Also keep the rest of each clip close to what the base model predicts with the same noise, with this weight in
    the loss. This stops the LoRA from changing what it is not shown. A step takes up to a third longer. 0 turns it off:
    nothing constrains the rest."""

    mask_floor: float = field(0.0, title="Minimum weight", low=0.0, high=1.0, advanced=True)
    """How much the rest of the clip still counts in the loss: 0 not at all, 0.1 a tenth, 1 as much as the learned
    part."""

    mask_soften: float = field(0.0, title="Soft edges", low=0.0, high=64.0, unit="pixels", advanced=True)
    """Blur the edges of the masks by this many pixels, at the size that clips are trained at. 0 keeps them sharp."""


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
    """How many times the weights are updated. More steps teach the model more, but eventually it forgets what it
    knew."""

    epochs: float | None = field(None, title="Epochs", low=0.01, high=100_000, advanced=True)
    """Passes over all clips. If set, the number of steps is computed from it."""

    batch_size: int = field(1, title="Batch size", low=1, high=256, unit="clips")
    """Clips per batch. Larger batches give smoother gradients and use more memory."""

    gradient_accumulation: int = field(
        1, title="Gradient accumulation", low=1, high=1024, unit="batches", advanced=True
    )
    """Batches accumulated before each update: the effect of a larger batch without its memory."""

    learning_rate: float = field(1e-4, title="Learning rate", low=1e-8, high=10.0)
    """Size of each update. Too high and the videos fall apart, too low and nothing changes. Prodigy needs 1."""

    scale_learning_rate: bool = field(False, title="Scale the learning rate", advanced=True)
    """Multiply the learning rate by batch size and gradient accumulation."""

    lr_schedule: LearningRateSchedule = field("constant_with_warmup", title="Learning-rate schedule", advanced=True)
    """How the learning rate changes over the run."""

    warmup_steps: int = field(20, title="Warm-up", low=0, high=100_000, unit="steps", advanced=True)
    """Steps over which the learning rate rises to its full value. Keep it well below the run's steps."""

    lr_cycles: float = field(1.0, title="Schedule cycles", low=0.1, high=1000.0, advanced=True)
    """For cosine_with_restarts: the number of cycles."""

    lr_power: float = field(1.0, title="Schedule power", low=0.1, high=10.0, advanced=True)
    """For polynomial: 1 falls in a straight line, 2 falls faster at first."""

    optimizer: Optimizer = field("adamw", title="Optimizer", advanced=True)
    """How gradients become weight updates. adamw suits most runs. adam adds weight decay to the gradient. prodigy finds
    its own learning rate. schedule-free needs no schedule. adamw-8bit, adam-8bit and came use less memory; bitsandbytes
    keeps weight decay out of the gradient in both 8-bit optimizers, unlike adam."""

    adam_beta1: float = field(0.9, title="Beta 1", low=0.0, high=0.9999, advanced=True)
    """How long the optimizer remembers the direction of earlier gradients."""

    adam_beta2: float = field(0.95, title="Beta 2", low=0.0, high=0.99999, advanced=True)
    """How long the optimizer remembers the size of earlier gradients."""

    adam_epsilon: float = field(1e-8, title="Epsilon", low=0.0, high=0.1, advanced=True)
    """A small number that keeps the optimizer from dividing by zero."""

    weight_decay: float = field(1e-4, title="Weight decay", low=0.0, high=1.0, advanced=True)
    """How strongly the optimizer pulls the trained weights toward zero."""

    optimizer_options: tuple[str, ...] = field((), title="Optimizer options", lines=2, advanced=True)
    """More options of the optimizer, NAME=VALUE, one per line: d_coef=0.8 or momentum=0.9."""

    max_grad_norm: float = field(1.0, title="Gradient clipping", low=0.0, high=1000.0, advanced=True)
    """Gradients with a larger norm are scaled down to it. 0 turns clipping off."""

    caption_dropout: float = field(0.1, title="Caption dropout", low=0.0, high=1.0, advanced=True)
    """How often to drop the caption, so that guidance keeps working: 0.05 to 0.1 is usual."""

    dropped_caption: Literal["empty prompt", "zeros"] = field("empty prompt", title="Dropped caption", advanced=True)
    """What replaces a dropped caption. empty prompt: its text embedding, which diffusers uses for guidance. zeros: no
    embedding, as SAT (CogVideoX's own trainer) trains and guides, for a LoRA to use there. Previews use the same for
    guidance."""

    image_dropout: float | None = field(None, title="Image dropout", low=0.0, high=1.0, advanced=True)
    """How often to train an image-to-video model without its first frame. Empty: as the model's own trainers do, 0.05
    for CogVideoX and LTX-Video, 0 for Wan, 0.5 for LTX-2."""

    first_frame_share: float | None = field(None, title="First frame shown", low=0.0, high=1.0, advanced=True, own=True)
    """How often to give a text-to-video run the clip's first frame without noise, so that the LoRA also works for image
    to video: 0.1 is usual, 0.5 for effects. Empty: the model's default."""

    loss_weighting: Literal["none", "min-snr"] = field("none", title="Loss weighting", advanced=True)
    """none: every timestep counts the same, as when the model was trained. min-snr: easy timesteps count less."""

    snr_gamma: float = field(5.0, title="Min-SNR gamma", low=0.01, high=100.0, advanced=True)
    """For min-snr: the signal-to-noise ratio above which a timestep's weight stops growing."""

    timestep_density: Density = field("model", title="Timestep density", advanced=True, own=True)
    """Distribution from which the noise levels of training are drawn. model: the one the model was trained with.
    logit-normal: mostly medium levels. uniform: all levels equally often."""

    timestep_shift: float | None = field(None, title="Timestep shift", low=0.1, high=100.0, advanced=True, own=True)
    """Shifts the drawn noise levels s to shift * s / (1 + (shift - 1) * s). Above 1 means more noise, which decides
    shapes and movement; below 1 means less. Empty: the model's default."""

    train_part: TrainPart = field("both", title="Trained part", advanced=True, own=True)
    """For a model with a critic: train both parts, only the generator, which fills in what is masked, or only the
    critic, which decides what to fill in again."""

    tokenizer_steps: int = field(
        0, title="Tokenizer steps", low=0, high=1_000_000, unit="steps", advanced=True, own=True
    )
    """First train the model's tokenizer for this many steps, on windows from all of the run's clips; then the
    transformer learns its codes. Use it for a model trained from scratch, or for clips unlike those the tokenizer
    knows. A transformer that is already trained has to learn the new codes. 0 leaves the tokenizer as it is."""

    tokenizer_batch_size: int = field(
        16, title="Tokenizer batch size", low=1, high=256, unit="clips", advanced=True, own=True
    )
    """Clips per batch while the tokenizer trains."""

    tokenizer_learning_rate: float = field(
        2e-3, title="Tokenizer learning rate", low=1e-8, high=10.0, advanced=True, own=True
    )
    """Learning rate of the tokenizer. It rises over 60 steps and falls along a cosine. The optimizer is the run's; on a
    CPU, muon takes several times as long as adamw."""

    ema_decay: float = field(0.0, title="Weight averaging (EMA)", low=0.0, high=0.99999, advanced=True)
    """Use a moving average of the weights for previews, measurements and the export: 0.99 looks back about 100 steps. 0
    turns it off."""

    time_limit: float | None = field(None, title="Time limit", low=0.1, high=100_000, unit="minutes", advanced=True)
    """Save and stop after this time, before a rented machine shuts down: 170 for three hours. Empty: no limit."""

    seed: int = field(42, title="Seed", low=0, high=2**31 - 1, advanced=True)
    """The same seed, data and settings give the same run."""


class LoraSettings(Settings):
    SECTION = "LoRA"

    rank: int = field(16, title="Rank", low=1, high=1024)
    """Size of the LoRA. A larger rank can hold more and makes a larger file: 16 to 128 is usual."""

    alpha: float = field(16.0, title="Alpha", low=0.01, high=4096.0, advanced=True)
    """Strength of the LoRA during training, which scales it by alpha / rank."""

    targets: str = field("attention", title="Trained layers", advanced=True)
    """Layers that get the LoRA: attention; attention+feed-forward; all-linear, which also covers the layers around the
    blocks, learns a new concept sooner and makes a larger LoRA; or a regular expression for layer names."""

    lokr_factor: int = field(8, title="LoKr factor", low=2, high=1024, advanced=True)
    """For lokr: size of the first factor of each product. The second is a product of two matrices of the rank above, or
    a whole matrix if that is no larger. If factor times rank is at most 256, it converts to a plain LoRA without
    loss."""

    blocks: str = field("", title="Trained blocks", advanced=True)
    """Transformer blocks to train, counted from 0, as in 0-9, 20-29. Early blocks decide more of the layout and
    movement, late ones more of the details. Layers around the blocks are then not trained. Empty: all blocks."""

    lora_dropout: float = field(0.0, title="LoRA dropout", low=0.0, high=0.95, advanced=True)
    """Share of the LoRA's inputs dropped at random during training."""

    dora: bool = field(False, title="DoRA", advanced=True)
    """Also train the magnitude of each weight row. Often better at a low rank, but slower."""

    rslora: bool = field(False, title="Rank-stabilized scale", advanced=True)
    """Scale the LoRA by alpha / sqrt(rank), so that high ranks learn as fast as low ones."""

    base_lora: str | None = field(None, title="Base LoRA", source="loras", advanced=True, path=True)
    """A frozen LoRA that stays on during training and in previews, as NAME=STRENGTH: for a character on top of a style,
    or a subject on top of a few-step LoRA. The new file holds only the new LoRA; to use it, load both."""

    training_adapter: str | None = field(None, title="Training adapter", source="loras", advanced=True, path=True)
    """A frozen LoRA that is on only during training, as NAME=STRENGTH: one that undoes the distillation of a few-step
    model, which plain training would destroy. Previews run without it, and it is not needed to use the new LoRA."""

    lora_init: Literal["default", "gaussian", "orthogonal", "pissa", "olora", "eva", "corda", "loftq"] = field(
        "default", title="LoRA initialization", advanced=True
    )
    """How the LoRA's matrices are initialized. default, gaussian and orthogonal change nothing at first. The others
    change the base model, so their files would not fit it elsewhere, and are refused."""

    train_also: tuple[str, ...] = field((), title="Also trained", lines=2, advanced=True)
    """Weights of the transformer to train in full along with the LoRA: prefixes of their names, one per line, as in
    patch_embed. They are saved to a separate file, also.safetensors, which samples load with the LoRA."""


class PreviewSettings(Settings):
    SECTION = "Previews"

    preview_prompts: tuple[str, ...] = field((), title="Preview prompts", lines=3)
    """One prompt per line. A video of each is generated before the first step and then regularly. Empty: the first two
    captions."""

    preview_images: tuple[str, ...] = field((), title="Preview images", lines=2, advanced=True, path=True)
    """For image-to-video: one image file per line, for each prompt. Empty: first frames of clips. A slider without a
    dataset learns on clips that start from these images."""

    preview_every: int = field(100, title="Preview every", low=0, high=1_000_000, unit="steps", advanced=True)
    """Steps between previews. 0 turns previews off."""

    preview_count: int = field(1, title="Previews per prompt", low=1, high=16, advanced=True)
    """Videos per prompt, each with its own seed."""

    preview_controls: int = field(1, title="Control previews", low=0, high=3, advanced=True)
    """How many preservation prompts to generate along with the previews, with the same seed: what the previews change
    beyond these is the concept. At most the number of preview prompts. 0: none, and previews take less time."""

    preview_frames: int | None = field(None, title="Preview frames", low=1, high=1000, unit="frames", advanced=True)
    """Frames per preview. Empty: as many as the run's clips have. 1: an image."""

    preview_steps: int | None = field(
        None, title="Preview denoising steps", low=1, high=1000, unit="steps", advanced=True
    )
    """Denoising steps per preview. Empty: the model's default."""

    preview_speed: Literal["auto", "exact", "fast"] = field("auto", title="Preview speed", advanced=True)
    """exact: compute every denoising step. fast: skip half of them, for nearly the same video, as fast samples do.
    auto: fast if the previews would take longer than the training between them."""

    preview_guidance: float | None = field(None, title="Preview guidance scale", low=0.0, high=50.0, advanced=True)
    """How closely previews follow their prompt. Empty: the model's default."""

    preview_dynamic_guidance: Curve = field("off", title="Preview dynamic guidance", advanced=True)
    """Vary the guidance scale of a preview over its denoising steps. stock: it jumps from step to step, as in the
    CogVideoX authors' code and with diffusers' use_dynamic_cfg. cosine: it rises smoothly."""

    preview_lora: str | None = field(None, title="Preview LoRA", source="loras", advanced=True, path=True)
    """A frozen LoRA that is on only in previews, as NAME=STRENGTH: a few-step LoRA makes them several times faster. Set
    the denoising steps and the guidance scale above to what it was made for."""

    preview_flow_shift: float | None = field(
        None, title="Preview flow shift", low=0.1, high=100.0, advanced=True, own=True
    )
    """Shifts the noise levels of previews, like the flow shift of a sample; training has its own shift. Empty: the
    model's default for the size of the previews."""

    preview_seed: int = field(7, title="Preview seed", low=0, high=2**31 - 1, advanced=True)
    """Every preview of a prompt starts from this seed, so that they can be compared."""

    preview_inputs: bool = field(True, title="Save training inputs", advanced=True)
    """Before the first step, save two clips as the model reads them, and the same clips after encoding and decoding."""

    preview_latents_only: bool = field(False, title="Keep previews as latents", advanced=True)
    """Save previews without decoding them, which takes less time and memory. They can be decoded later."""

    @property
    def previews_at_once(self) -> int:
        """Number of videos generated each time, including controls."""
        prompts = len(self.preview_prompts) or 2
        controls = 0 if self.preview_latents_only else min(self.preview_controls, prompts)
        return prompts * self.preview_count + controls


class CheckpointSettings(Settings):
    SECTION = "Checkpoints"

    save_every: int = field(100, title="Checkpoint every", low=1, high=1_000_000, unit="steps", advanced=True)
    """Steps between checkpoints: the most that a crash can cost."""

    keep_checkpoints: int = field(3, title="Checkpoints kept", low=1, high=10_000, advanced=True)
    """How many recent checkpoints to keep. Older ones are deleted once a newer one is safely on disk; the best and the
    starred ones stay."""

    keep_every: int = field(0, title="Keep permanently every", low=0, high=1_000_000, unit="steps", advanced=True)
    """Checkpoints at multiples of this many steps are never deleted. 0: none besides those above."""

    best_point: Literal["off", "ask", "do"] = field("off", title="Best point", advanced=True)
    """Look for the point from which more steps add little. ask: forecast it from the first tenth of the run on, keep
    its checkpoint, and offer to stop there once it is reached. do: stop there and export the LoRA of its checkpoint.
    Starting the run again continues it, and it is not stopped a second time. A run without an effect is never stopped.
    off: train all steps."""

    best_point_every: int = field(0, title="Look for it every", low=0, high=1_000_000, unit="steps", advanced=True)
    """Steps between measurements of visible effect and drift for the best point. 0: as often as takes less than
    5% of the training time."""

    push_to_hub: bool = field(False, title="Push to Hub", advanced=True)
    """When the run finishes, push its LoRA to a private repository on the Hugging Face Hub, with this machine's login
    (hf auth login). If the push fails, the run has still finished."""

    repository: str = field("", title="Repository", advanced=True)
    """Where to push, as OWNER/NAME. Empty: your account and the run's name."""


class LoggingSettings(Settings):
    SECTION = "Logging"

    evaluate_every: int = field(50, title="Measure every", low=0, high=1_000_000, unit="steps", advanced=True)
    """Steps between measurements of the held-out loss and the prior drift. 0 turns them off."""

    tracker: Literal["none", "tensorboard", "trackio", "wandb", "comet_ml", "all"] = field(
        "none", title="Tracker", advanced=True
    )
    """Also send the measurements to another program. all: every one of these that is installed. The page needs none."""

    tracker_project: str = field("video-lora-workbench", title="Tracker project", advanced=True)
    """The tracker's project for the run."""

    stall_timeout: float = field(15.0, title="Stall timeout", low=0.0, high=10_000.0, unit="minutes", advanced=True)
    """End the run if it makes no progress for this long, and log the stack of every thread. 0 turns it off. Downloads
    do not count."""


Checkpointing = Literal["none", "keep attention", "full", "offloaded"]
BasePrecision = Literal["as stored", "int8", "fp8", "nf4"]
AttentionKernel = Literal["auto", "flash", "efficient", "cudnn", "math", "flash-attn", "stock"]
Parallel = Literal["ddp", "fsdp"]


class MemorySettings(Settings):
    SECTION = "Memory and speed"

    gradient_checkpointing: Checkpointing = field("none", title="Gradient checkpointing", advanced=True)
    """What to recompute in the backward pass to save memory. none: nothing, which is fastest. keep attention: all but
    the attention, which costs most to repeat. full: every block. offloaded: every block, keeping their inputs in CPU
    memory. Large models need it on most GPUs."""

    base_model_precision: BasePrecision = field("as stored", title="Base model precision", advanced=True)
    """How to store the base model's weights, which a LoRA leaves unchanged. int8 and fp8 take half the memory of bf16,
    nf4 a quarter; each rounds the model a little. Not available with full fine-tuning."""

    blocks_to_swap: int = field(0, title="Blocks to swap", low=0, high=1000, unit="blocks", advanced=True)
    """Block swap: keep the frozen weights of this many transformer blocks in CPU memory and copy each to the GPU just
    before it is used. Needs full or offloaded gradient checkpointing. 0 keeps all on the GPU."""

    compile: bool = field(False, title="Compile", advanced=True)
    """Compile each block for this GPU before the first step. It takes a few minutes per shape; then steps are faster
    and use less memory. Needs a C compiler."""

    attention: AttentionKernel = field("auto", title="Attention", advanced=True)
    """Kernel that computes attention. auto: the fastest that PyTorch has for the GPU. flash-attn: the package of that
    name. stock: diffusers' own code, for comparison."""

    oom_fallback: bool = field(True, title="OOM fallback", advanced=True)
    """If the GPU runs out of memory, continue once from the last checkpoint with the next cheaper setting that does not
    change what is learned, instead of ending the run."""

    gpus: int = field(1, title="GPUs", low=0, high=1024, advanced=True)
    """How many GPUs share the batches of a step; results do not depend on it. Gradient accumulation must be a multiple
    of it. 0 uses all GPUs of this machine."""

    parallel: Parallel = field("ddp", title="Parallelism", advanced=True)
    """ddp: each GPU holds the whole model. fsdp: each GPU holds a part of it (FSDP2), sharded like DeepSpeed's ZeRO
    stages 2 and 3."""

    nccl_timeout: float = field(60.0, title="NCCL timeout", low=1.0, high=10_000.0, unit="minutes", advanced=True)
    """How long an NVIDIA GPU waits for the others before the run ends with an error. Raise it if a single transfer
    takes longer, as over a slow network."""


class MachineSettings(Settings):
    SECTION = "Machine"

    device: DeviceChoice = field("auto", title="Device", source="devices", advanced=True)
    """auto uses the first GPU that torch supports, otherwise the CPU. cuda: NVIDIA, or AMD with ROCm. mps: Apple.
    cuda:1: one GPU of several, counted from 0 as in torch."""

    precision: Literal["auto", "bf16", "fp16", "fp32"] = field("auto", title="Precision", advanced=True)
    """Number format to compute in. auto: on a GPU, what the model's authors use, which is bf16 for Wan, LTX-Video,
    Mochi and HunyuanVideo 1.5 even if the files hold fp32; on a CPU, fp32. Wan's VAE always computes in fp32."""

    exact: bool = field(False, title="Exact on the GPU", advanced=True)
    """Use only deterministic computations, so that a resumed run equals an uninterrupted one bit for bit on a GPU, too.
    Slower. A CPU is always exact."""

    tf32: bool = field(True, title="TF32", advanced=True)
    """On an NVIDIA GPU, multiply fp32 matrices at reduced precision, which is much faster."""

    loader_threads: int = field(0, title="Loader threads", low=0, high=16, advanced=True)
    """Threads that read the next batches during a step, for a workspace on a slow disk. 0 reads them between steps.
    Results do not depend on it."""


# What other trainers call our settings. The form's search matches these words, and an unknown setting among them is
# answered with our name for it.
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
    "control": "Fun-Control, VACE, ControlNet, control path, control directory, edges, canny, depth, pose, paired",
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
    "preview_speed": "step skipping, slow previews, previews take longer than training",
    "save_every": "checkpointing steps, save every n steps",
    "keep_checkpoints": "checkpoints total limit, max step saves",
    "best_point": "early stopping, stop automatically, auto stop, which epoch, overtraining, patience",
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
    "sound": "audio, with audio, audio to video, video to audio, foley, joint audio video training, voice, train audio",
    "sound_weight": "audio loss weight, audio loss multiplier",
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


# Fields of the last base come first, so the bases are in the form's order from bottom to top.
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
    """The content of `runs/<slug>/config.json`: all it takes to repeat a run."""

    ALSO = OTHER_NAMES

    @property
    def conditioning_kinds(self) -> tuple[str, ...]:
        """The kinds of conditioning in use, as in `ToldSettings`; "picture" or "sound" for a given stream."""
        stream = {SOUND_FOR_PICTURE: ("picture",), PICTURE_FOR_SOUND: ("sound",)}.get(self.sound, ())
        return (*super().conditioning_kinds, *stream)

    @property
    def is_dora(self) -> bool:
        """Whether weight magnitudes are trained, too; `dora` has no effect with other methods."""
        return self.dora and self.method == "lora"

    @property
    def skips_preview_steps(self) -> bool:
        """Whether previews skip denoising steps: on request, or if training between them needs fewer predictions.

        A training step counts as three predictions a clip, one forward and two for the backward pass.
        """
        if self.preview_speed != "auto" or not self.preview_every:
            return self.preview_speed == "fast"
        family, model = self.resolved
        guided = (model.guidance_scale if self.preview_guidance is None else self.preview_guidance) > 1
        passes = family.facts(model).guided_passes if guided else 1
        steps = self.preview_steps or model.steps
        trained = 3 * self.preview_every * self.batch_size * self.gradient_accumulation
        return steps > FEWEST_COMPUTED and self.previews_at_once * steps * passes > trained


def chosen_blocks(text: str, count: int) -> frozenset[int] | None:
    """Parse the setting `blocks`, such as "0-9, 20-29", into block numbers; None means all `count` of them.

    Raises ConfigError if the text is malformed or names blocks that the model does not have.
    """
    found = set[int]()
    for part in (part.strip() for part in text.split(",") if part.strip()):
        match = BLOCK_RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise ConfigError.about(f"blocks has {part[:40]!r}: write numbers and ranges, as in 0-9, 20-29")
        if last >= count:
            raise ConfigError.about(
                f"blocks has {part}, but the model's blocks are 0 to {count - 1}: use at most {count - 1}"
            )
        found |= set(range(first, last + 1))
    return frozenset(found) or None


Values = Mapping[str, Any]  # setting -> value


def _image(values: Values) -> bool:
    """Whether the model takes an image; True for an unknown model."""
    found = known_model(str(values["model"]))
    return found is None or found.model.task == "image-to-video"


def _tells(values: Values) -> bool:
    """Whether the run sets its own conditioning, like `ToldSettings.tells`."""
    return bool(values["given"] or values["control"] or values["reference"])


def _lora(values: Values) -> bool:
    return bool(values["method"] != "full")


def _prompts(values: Values) -> bool:
    """Whether a slider learns from prompts."""
    return bool(values["slider_positive"]) and values["slider_from"] == "prompts"


# Settings -> when they have an effect. Otherwise forms hide them and the trainer does not read them. Settings that are
# not listed always have an effect.
EFFECTS: tuple[tuple[str, Callable[[Values], bool]], ...] = (
    ("condition image_dropout", lambda values: _image(values) and not _tells(values)),
    ("first_frame_share", lambda values: not _tells(values) and values["sound"] not in SOUND_ONLY),
    ("sound_weight", lambda values: values["sound"] == "picture+sound"),
    ("reference_downscale", lambda values: bool(values["reference"])),
    (
        "condition_frames image_latent_scale preview_images",
        lambda values: _image(values) and values["condition"] == "first frame" and not _tells(values),
    ),
    ("low_resolution_scale", lambda values: _image(values) and values["condition"] == "low resolution"),
    ("start_from rank alpha targets blocks train_also base_lora training_adapter preview_lora", _lora),
    ("slider_positive", lambda values: values["slider_from"] == "prompts"),
    ("slider_negative slider_neutral slider_guidance slider_reach", _prompts),
    ("slider_samples", lambda values: _prompts(values) and not values["dataset"]),
    ("lora_dropout dora rslora lora_init", lambda values: values["method"] == "lora"),
    ("lokr_factor", lambda values: values["method"] == "lokr"),
    ("preservation_weight best_point", _lora),
    ("best_point_every", lambda values: _lora(values) and values["best_point"] != "off"),
    ("regularization_share regularization_weight", lambda values: bool(values["regularization_dataset"])),
    ("regularization_target", lambda values: _lora(values) and bool(values["regularization_dataset"])),
    ("tokenizer_batch_size tokenizer_learning_rate", lambda values: bool(values["tokenizer_steps"])),
    ("dataset_weights", lambda values: bool(values["more_datasets"])),
    ("validation_dataset", lambda values: bool(values["held_out"])),
    ("dropped_caption", lambda values: bool(values["caption_dropout"])),
    ("lr_cycles", lambda values: values["lr_schedule"] == "cosine_with_restarts"),
    ("lr_power", lambda values: values["lr_schedule"] == "polynomial"),
    ("picture_share", lambda values: bool(values["buckets"]) or values["bucket_limit"] != 1),
    ("snr_gamma", lambda values: values["loss_weighting"] == "min-snr"),
    ("unmasked_clips mask_floor mask_soften", lambda values: values["loss_mask"] != "off"),
    ("outside_weight", lambda values: _lora(values) and values["loss_mask"] != "off"),
    ("repository", lambda values: bool(values["push_to_hub"])),
    ("tracker_project", lambda values: values["tracker"] != "none"),
)
HAS_EFFECT = {name: has_effect for names, has_effect in EFFECTS for name in names.split()}

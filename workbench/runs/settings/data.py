"""Which model is trained on which clips: their roles, their shapes, and what is taken from each."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from workbench.families import default_model
from workbench.families.names import fold, legal_part
from workbench.settings import Settings, field

HELD_OUT = 2


class ModelSettings(Settings):
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

    method: Literal["lora", "full"] = field("lora", title="What is trained", advanced=True)
    """lora: small matrices beside the model's weights, a small file. full: all weights of the transformer; needs about
    five times the memory and gives a model of its own."""

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

    _legal_part = field_validator("revision", "variant")(legal_part)
    _fold = model_validator(mode="after")(fold)


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

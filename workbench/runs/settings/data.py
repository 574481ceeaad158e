"""Which clips are trained on, in which role, and what is taken from each."""

from __future__ import annotations

from typing import Literal

from workbench.settings import Settings, field

DATA = "Data"


class DataSettings(Settings):
    """The part of TrainSettings about the clips."""

    dataset: str = field("", title="Dataset", section=DATA, source="datasets")
    """The clips and captions of the new concept."""

    more_datasets: tuple[str, ...] = field((), title="More datasets", section=DATA, source="datasets", advanced=True)
    """Further datasets of the new concept, each NAME, NAME=REPEATS or NAME=REPEATS@WEIGHT: how often each of its clips
    comes while the first dataset's come once, and what its loss counts."""

    dataset_weights: Literal["loss", "sampling"] = field(
        "loss", title="Weights of datasets act on", section=DATA, advanced=True
    )
    """loss: a clip of NAME@WEIGHT counts so much. sampling: its dataset is sampled so often, whatever its size: cats@3
    gives three clips of cats for each of the first dataset; an epoch is as many as all clips."""

    regularization_dataset: str | None = field(None, title="Regularization dataset", section=DATA, source="datasets")
    """A second dataset, of things the model already knows, mixed in so that it does not forget them."""

    regularization_share: float = field(
        0.25, title="Regularization share", section=DATA, low=0.0, high=0.9, advanced=True
    )
    """How many of the clips in every batch come from the regularization dataset: 0.25 is one in four."""

    regularization_weight: float = field(
        1.0, title="Regularization weight", section=DATA, low=0.0, high=100.0, advanced=True
    )
    """What the loss of a clip of the regularization dataset counts beside that of a new one."""

    held_out: int = field(2, title="Held-out clips", section=DATA, unit="clips", low=0, high=1000)
    """Clips kept out of training to measure, on fixed noise, whether the model really learns."""

    validation_dataset: str | None = field(
        None, title="Validation dataset", section=DATA, source="datasets", advanced=True
    )
    """Where the held-out clips come from: so many of its clips are measured instead, and all clips of the datasets
    above are trained on. A clip that is also trained on is not measured."""

    frames: int | None = field(None, title="Frames", section=DATA, low=1, high=1000, unit="frames")
    """Frames the model sees of each clip. Empty: what the model was made for."""

    height: int | None = field(None, title="Height", section=DATA, low=16, high=4096, unit="pixels", advanced=True)
    """Height the clips are scaled and cropped to. Empty: what the model was made for."""

    width: int | None = field(None, title="Width", section=DATA, low=16, high=4096, unit="pixels", advanced=True)
    """Width the clips are scaled and cropped to. Empty: what the model was made for."""

    fps: float | None = field(
        None, title="Frame rate", section=DATA, low=0.5, high=120, unit="frames per second", advanced=True
    )
    """Frames are taken from each clip at this rate. Empty: what the model was made for."""

    bucket_limit: int = field(1, title="Shapes at most", section=DATA, low=1, high=32, advanced=True)
    """1: every clip is brought to the one shape above. More: so many shapes (frames, height, width) are chosen that the
    clips lose least; images get a shape of one frame."""

    buckets: tuple[str, ...] = field((), title="Shapes by hand", section=DATA, lines=2, advanced=True)
    """FRAMESxHEIGHTxWIDTH, one a line, as in 49x480x720; a shape of 1 frame takes images. Instead of chosen ones: each
    clip goes where it loses least."""

    frame_sampling: Literal["middle", "start", "windows", "spread", "sat"] = field(
        "middle", title="Frames taken from", section=DATA, advanced=True
    )
    """middle: one window in the middle of a clip. start: one at its start. windows: as many as lie side by side.
    spread: evenly over the whole clip, whatever its rate. sat: the frames that SAT's trainer takes, from the start,
    every n-th (n rounded down, so 30 fps come at 10 for 8); short clips end in a still."""

    skip_start: int = field(
        0, title="Frames skipped at the start", section=DATA, low=0, high=100_000, unit="frames", advanced=True
    )
    """Frames of each clip that are never taken, counted from its start."""

    skip_end: int = field(
        0, title="Frames skipped at the end", section=DATA, low=0, high=100_000, unit="frames", advanced=True
    )
    """Frames of each clip that are never taken, counted from its end."""

    crop: Literal["center", "random", "stretch"] = field("center", title="Crop", section=DATA, advanced=True)
    """What happens where a clip's sides differ in ratio. center and random: cut, in the middle or at a random position
    for each clip. stretch: nothing is cut, the picture is squeezed."""

    horizontal_flip: float = field(0.0, title="Horizontal flip", section=DATA, low=0.0, high=1.0, advanced=True)
    """How often a clip is flipped, left and right exchanged: 0.5 is every second time. Not for clips with text
    or with a direction in the caption."""

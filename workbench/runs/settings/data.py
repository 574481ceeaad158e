"""Which clips are trained on, in which role, and what is taken from each."""

from __future__ import annotations

from typing import Literal

from workbench.settings import Settings, field

DATA = "Data"


class DataSettings(Settings):
    """The part of TrainSettings about the clips."""

    dataset: str = field(
        "", title="Dataset", section=DATA, source="datasets",
        help="The clips and captions that show the new concept.",
    )  # fmt: skip
    more_datasets: tuple[str, ...] = field(
        (), title="More datasets", section=DATA, source="datasets", advanced=True,
        help="Further datasets of the new concept, each NAME, NAME=REPEATS or NAME=REPEATS@WEIGHT: how often each "
        "of its clips comes while the first dataset's come once, and what its loss counts.",
    )  # fmt: skip
    dataset_weights: Literal["loss", "sampling"] = field(
        "loss", title="Weights of datasets act on", section=DATA, advanced=True,
        help="loss: a clip of NAME@WEIGHT counts so much. sampling: its dataset is sampled so often, whatever its "
        "size: cats@3 gives three clips of cats for each of the first dataset; an epoch is as many as all clips.",
    )  # fmt: skip
    regularization_dataset: str | None = field(
        None, title="Known clips", section=DATA, source="datasets",
        help="A second dataset of things the model already knows, mixed in so that it does not forget them.",
    )  # fmt: skip
    regularization_share: float = field(
        0.25, title="Share of known clips", section=DATA, low=0.0, high=0.9, advanced=True,
        help="How many of the clips in every batch come from the known clips: 0.25 is one in four.",
    )  # fmt: skip
    regularization_weight: float = field(
        1.0, title="Weight of known clips", section=DATA, low=0.0, high=100.0, advanced=True,
        help="What the loss of a known clip counts beside that of a new one.",
    )  # fmt: skip
    held_out: int = field(
        2, title="Held-out clips", section=DATA, unit="clips", low=0, high=1000,
        help="Clips kept out of training to measure, on fixed noise, whether the model really learns.",
    )  # fmt: skip
    validation_dataset: str | None = field(
        None, title="Validation dataset", section=DATA, source="datasets", advanced=True,
        help="Where the held-out clips come from: so many of its clips are measured instead, and all clips of the "
        "datasets above are trained on. A clip that is also trained on is not measured.",
    )  # fmt: skip
    frames: int | None = field(
        None, title="Frames", section=DATA, low=1, high=1000, unit="frames",
        help="Frames the model sees of each clip. Empty: what the model was made for.",
    )  # fmt: skip
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
    bucket_limit: int = field(
        1, title="Shapes at most", section=DATA, low=1, high=32, advanced=True,
        help="1: every clip is brought to the one shape above. More: so many shapes (frames, height, width) are "
        "chosen that the clips lose least; images get a shape of one frame.",
    )  # fmt: skip
    buckets: tuple[str, ...] = field(
        (), title="Shapes by hand", section=DATA, lines=2, advanced=True,
        help="FRAMESxHEIGHTxWIDTH, one a line, as in 49x480x720; a shape of 1 frame takes images. Instead of "
        "chosen ones: each clip goes where it loses least.",
    )  # fmt: skip
    frame_sampling: Literal["middle", "start", "windows", "spread", "sat"] = field(
        "middle", title="Frames taken from", section=DATA, advanced=True,
        help="middle: one window in the middle of a clip. start: one at its start. windows: as many as lie side by "
        "side. spread: evenly over the whole clip, whatever its rate. sat: the frames that SAT's trainer takes, from "
        "the start, every n-th (n rounded down, so 30 fps come at 10 for 8); short clips end in a still.",
    )  # fmt: skip
    skip_start: int = field(
        0, title="Frames skipped at the start", section=DATA, low=0, high=100_000, unit="frames", advanced=True,
        help="Frames of each clip that are never taken, counted from its start.",
    )  # fmt: skip
    skip_end: int = field(
        0, title="Frames skipped at the end", section=DATA, low=0, high=100_000, unit="frames", advanced=True,
        help="Frames of each clip that are never taken, counted from its end.",
    )  # fmt: skip
    crop: Literal["center", "random", "stretch"] = field(
        "center", title="Crop", section=DATA, advanced=True,
        help="What happens where a clip's sides differ in ratio. center and random: cut, the middle or a place "
        "drawn for each clip. stretch: nothing is cut, the picture is squeezed.",
    )  # fmt: skip
    flip: float = field(
        0.0, title="Mirrored", section=DATA, low=0.0, high=1.0, advanced=True,
        help="How often a clip is shown mirrored, left and right exchanged: 0.5 is every second time. Not for clips "
        "with text or with a direction in the caption.",
    )  # fmt: skip

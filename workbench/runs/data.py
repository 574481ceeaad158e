"""What a run trains on: its clips with their roles, shapes and frames, and the clips in each batch.

Everything is a pure function of the datasets, the settings and the batch number. So there is no state to save, and a
resumed run sees exactly what an uninterrupted one would. Decoding and encoding are in `trainer.encoder`.
"""

from __future__ import annotations

import bisect
import contextlib
import hashlib
import itertools
import math
import random
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, Field

from workbench import jobs
from workbench.clips.buckets import Bucket, assign, choose, parse_bucket
from workbench.clips.frame_plan import FramePlan, Shape, Taking, shape_of, take
from workbench.clips.records import Clip, clip_file, damage, file_sha256, read_clips, read_info
from workbench.clips.sound import has_sound
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.families.latents_file import Fit
from workbench.families.model import Model
from workbench.families.model_inputs import ALONE
from workbench.runs.settings import HELD_OUT, TrainSettings
from workbench.settings import parse
from workbench.workspace import Workspace, named_paths, read_json
from workbench.workspace.records import read_record

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LOCK = "dataset.lock.json"
NEARLY = 4 / 255  # video compression may move black and white by this much
Role = Literal["train", "known", "held_out"]
SHARE = re.compile(r"(?P<name>[^=@]+?)(=(?P<repeats>\d+))?(@(?P<weight>[\d.]+))?")


@dataclass(frozen=True)
class DatasetShare:
    """A dataset of a run, how often its clips are repeated, and the weight of their loss."""

    name: str
    repeats: int = 1
    weight: float = 1.0


@dataclass(frozen=True)
class RunClip:
    """A clip of a run: its file, caption, frames and shape.

    group, share: a group's clips are sampled in proportion to its share of the sum of all shares. If datasets are not
        weighted by sampling, all clips are in one group.
    generated: its number among the clips that the base model generates for a slider; None for other clips.
    picture: the image that a generated clip starts from, if any.
    told: companion files used for conditioning. Their names change with their content.
    mask: SHA-256 of its mask's file; "" if no mask is used.
    soften: by how many pixels the mask's edges are blurred.
    heard: whether the run learns its sound, or is given it.
    """

    path: Path
    sha256: str
    caption: str
    plan: FramePlan
    role: Role
    bucket: Bucket
    repeats: int = 1
    weight: float = 1.0
    group: str = ""
    share: float = 1.0
    generated: int | None = None
    picture: str = ""
    told: tuple[str, ...] = ()
    mask: str = ""
    soften: float = 0.0
    heard: bool = False

    @property
    def name(self) -> str:
        """The name that users see."""
        return self.plan.clip.name

    @property
    def given_text(self) -> bool:
        """Whether it came with text embeddings, so that its caption is not encoded."""
        return self.plan.clip.given_text

    @property
    def flippable(self) -> bool:
        return not self.plan.clip.is_latents

    def record(self) -> dict[str, Any]:
        """Return its entry for dataset.lock.json."""
        return {
            "file_name": self.plan.clip.file_name,
            "name": self.name,
            "sha256": self.sha256,
            "caption": self.caption,
            "role": self.role,
            "indices": list(self.plan.indices),
            "resize": list(self.plan.resize),
            "crop": list(self.plan.crop),
            "repeats": self.repeats,
            "weight": self.weight,
            **({"group": self.group, "share": self.share} if self.group else {}),
            **({"told": list(self.told)} if self.told else {}),
            **({"mask": self.mask} if self.mask else {}),
            **({"mask_soften": self.soften} if self.mask and self.soften else {}),
            **({"sound": True} if self.heard else {}),
        }


class LockedClip(BaseModel):
    """The keys that every entry of dataset.lock.json has."""

    role: Role
    file_name: str
    name: str
    caption: str
    indices: list[int]
    crop: Annotated[list[float], Field(min_length=4, max_length=4)]
    repeats: int = 1
    weight: float = 1.0


def read_lock(run: Path) -> list[dict[str, Any]]:
    """Read the clips a run trains on, as written by `RunClip.record`; empty before its first start."""
    return read_record(run / LOCK, list[LockedClip]) or []


@dataclass(frozen=True)
class TrainingData:
    """The clips of a run by role, its shapes (buckets; the previews' first), and why other clips were dropped."""

    train: tuple[RunClip, ...]
    regularization: tuple[RunClip, ...]
    held_out: tuple[RunClip, ...]
    buckets: tuple[Bucket, ...]
    dropped: tuple[str, ...]

    @property
    def items(self) -> tuple[RunClip, ...]:
        return (*self.train, *self.regularization, *self.held_out)

    def lock(self) -> list[dict[str, Any]]:
        return [item.record() for item in self.items if item.generated is None]

    def few_of_largest_shape(self, batch_size: int) -> TrainingData:
        """Return a few clips of the largest shape to measure with: at least a batch, and a held-out clip."""
        largest = max(self.buckets, key=lambda bucket: bucket.frames * bucket.height * bucket.width)
        train = [item for item in self.train if item.bucket == largest] or list(self.train)
        train.sort(key=lambda item: not item.heard)  # clips with sound take more memory
        bucket = train[0].bucket
        return replace(
            self,
            train=tuple(train[: max(2, batch_size)]),
            regularization=tuple(item for item in self.regularization if item.bucket == bucket)[:2],
            held_out=tuple(item for item in self.held_out if item.bucket == bucket)[:1],
            buckets=(bucket,),
        )


def sources_of(settings: TrainSettings) -> list[DatasetShare]:
    """List the datasets of the new concept, the main one first. Raises ConfigError."""
    found = [DatasetShare(settings.dataset), *(parse_source(text) for text in settings.more_datasets)]
    if settings.dataset_weights == "sampling":
        for source in found:
            if source.repeats > 1 or not source.weight:
                raise ConfigError.about(
                    f"more_datasets has {source.name}={source.repeats}@{source.weight:g}, but with dataset_weights "
                    f"sampling only a weight above 0 is allowed: write {source.name}@WEIGHT"
                )
    return found


def datasets_of(settings: TrainSettings) -> list[tuple[str, str]]:
    """List (setting, name) of every dataset a run reads. Raises ConfigError."""
    found = [("dataset", settings.dataset), *(("more_datasets", one.name) for one in sources_of(settings)[1:])]
    found += [(name, getattr(settings, name)) for name in ("regularization_dataset", "validation_dataset")]
    return [(setting, name) for setting, name in found if name]


def parse_source(text: str) -> DatasetShare:
    """Parse NAME, NAME=REPEATS or NAME=REPEATS@WEIGHT. Raises ConfigError."""
    match = SHARE.fullmatch(text.strip())
    with contextlib.suppress(ValueError):  # a weight such as 1.2.3
        if match and (repeats := int(match["repeats"] or 1)):
            return DatasetShare(match["name"].strip(), repeats, float(match["weight"] or 1.0))
    raise ConfigError.about(
        f"more_datasets has {text[:80]!r}: write NAME, NAME=REPEATS or NAME=REPEATS@WEIGHT, as in cats=3@0.5"
    )


def load_data(workspace: Workspace, settings: TrainSettings, hashed: bool = True) -> TrainingData:
    """Read the datasets, plan the frames of every clip, and hold some clips out.

    Args:
        hashed: Hash every file. If not, trust the hashes in the records: the same clips are held out, unless a file was
            changed since, or its record has no hash.

    Raises ConfigError for an illegal shape, DataError if no clip can be used.
    """
    family, model = settings.resolved
    shape = shape_of(settings, model)
    if not settings.dataset and settings.is_slider:
        return _without_clips(settings, shape, hashed)
    taking = Taking(settings.frame_sampling, settings.skip_start, settings.skip_end, settings.crop, settings.seed)
    used: list[tuple[Role, DatasetShare]] = [("train", source) for source in sources_of(settings)]
    if name := settings.regularization_dataset:
        used.append(("known", DatasetShare(name, weight=settings.regularization_weight)))
    clips = {name: read_clips(workspace.dataset(name)) for name in dict.fromkeys(source.name for _, source in used)}
    everything = [taking.usable(clip) for of_one in clips.values() for clip in of_one]
    buckets = _buckets(settings, model, shape, everything)
    if (name := settings.validation_dataset) and settings.held_out:  # after the shapes were chosen without it
        used.append(("held_out", DatasetShare(name)))
        clips[name] = read_clips(workspace.dataset(name))

    fit = Fit(family, model)
    roles: dict[Role, list[RunClip]] = {"train": [], "known": [], "held_out": []}
    dropped: list[str] = []
    for role, source in dict.fromkeys(used):
        folder, found = workspace.dataset(source.name), clips[source.name]
        misfits = {clip.file_name: _misfit(folder, clip, settings, model, fit) for clip in found if clip.is_latents}
        misfits |= {clip.file_name: why for clip in found if (why := misses(folder, clip, settings))}
        masked = settings.loss_mask != "off" and role != "known"
        items, left_out = _usable(folder, source, found, buckets, shape, taking, misfits, masked)
        if not items:
            raise _unusable(settings, role, source.name, left_out)
        if masked:
            names = {item.plan.clip.mask for item in items if item.plan.clip.mask}
            masks = {name: file_sha256(clip_file(folder, name)) if hashed else name for name in names}
            soften = settings.mask_soften
            items = [replace(item, mask=masks.get(item.plan.clip.mask, ""), soften=soften) for item in items]
        if settings.tells or settings.has_pairs:
            items = [replace(item, told=_conditioning_files(item.plan.clip, settings)) for item in items]
        items, mute = _with_sound(settings, role, source.name, items)
        left_out += mute
        known = {item.path: item.plan.clip.sha256 or item.plan.clip.id for item in items}
        contents = {path: file_sha256(path) if hashed else recorded for path, recorded in known.items()}
        if role == "train" and settings.dataset_weights == "sampling":
            items = [replace(item, weight=1.0, group=source.name, share=source.weight) for item in items]
        roles[role] += [replace(item, sha256=contents[item.path], role=role) for item in items]
        dropped += left_out
    if settings.reference:
        _check_references(settings, model, [*roles["train"], *roles["known"], *roles["held_out"]])
    shapes = {(item.bucket, item.heard) for item in roles["train"]}
    dropped += [f"{item.name}: {_beside(item, shapes)}" for item in roles["known"] if _beside(item, shapes)]
    held_out = _measured(settings, roles["train"], roles["held_out"])
    if settings.held_out and not held_out:
        few = counted(len({item.sha256 for item in roles["train"]}), "clip")
        dropped.append(f"No clip is held out of {few}: train on 3 or more to measure the held-out loss.")
    aside = {item.sha256 for item in held_out}
    return TrainingData(
        train=tuple(item for item in roles["train"] if item.sha256 not in aside),
        regularization=tuple(item for item in roles["known"] if not _beside(item, shapes)),
        held_out=tuple(held_out),
        buckets=buckets,
        dropped=tuple(dropped),
    )


def _without_clips(settings: TrainSettings, shape: Shape, hashed: bool) -> TrainingData:
    """List the clips of a slider without a dataset; they are generated when the run begins (trainer.slider)."""
    bucket, (tall, wide) = Bucket(shape.frames, shape.height, shape.width, shape.rule), (shape.height, shape.width)
    found, pairs = list[RunClip](), settings.slider_pairs
    pictures = settings.preview_images if settings.resolved.model.task == "image-to-video" else ()
    for (line, pair), number in itertools.product(enumerate(pairs), range(settings.slider_samples)):
        prompt = (pair.neutral, pair.positive, pair.negative)[number % 3]
        turn = line if len(pictures) == len(pairs) else len(found)
        picture = pictures[turn % len(pictures)] if pictures else ""
        of_picture = f":{file_sha256(named_paths.resolve(picture, 'preview_images'))}" if picture and hashed else ""
        clip = Clip(file_name="generated.safetensors", text=prompt, fps=shape.fps, frames=shape.frames)
        plan = FramePlan(clip, tuple(range(shape.frames)), (tall, wide), (0, 0, tall, wide), shape.fps)
        content = hashlib.sha256(f"{pair}:{number}:{settings.seed}{of_picture}".encode()).hexdigest()
        path, at = Path(clip.file_name), len(found)
        found.append(RunClip(path, content, prompt, plan, "train", bucket, generated=at, picture=picture))
    return TrainingData(tuple(found), (), (), (bucket,), ())


def _measured(settings: TrainSettings, train: Sequence[RunClip], validation: Sequence[RunClip]) -> list[RunClip]:
    """Choose the held-out clips, from the validation dataset or else from the training clips. Raises DataError."""
    contents = {item.sha256 for item in train}
    name, held_out = settings.validation_dataset, settings.held_out
    if name and held_out:
        pool = [item for item in validation if item.sha256 not in contents]
        if not pool:
            raise DataError.about(
                f"validation_dataset is {name}, but the run trains on all its clips: choose one with other clips"
            )
    else:
        pool = list(train)
        if held_out == HELD_OUT and len(contents) <= HELD_OUT:
            return []
        if held_out >= len(contents):
            raise DataError.about(
                f"held_out is {held_out}, but dataset {settings.dataset} has {len(contents)} usable clips: "
                f"use at most {len(contents) - 1}, or add clips"
            )
    # Choose by content, not by position in the file, so that adding a clip changes the role of no other clip.
    names = {item.sha256 for item in pool}
    by_chance = sorted(names, key=lambda sha256: hashlib.sha256(f"{settings.seed}:{sha256}".encode()).digest())
    aside = set(by_chance[:held_out])
    return [replace(item, role="held_out") for item in pool if item.sha256 in aside]


def _buckets(settings: TrainSettings, model: Model, shape: Shape, clips: Sequence[Clip]) -> tuple[Bucket, ...]:
    """Choose the run's shapes, the largest (that of the previews) first. Raises ConfigError."""
    if settings.frame_sampling == "sat" and (settings.buckets or settings.bucket_limit > 1):
        raise ConfigError.about(
            "frame_sampling is sat, which gives every clip one length: set bucket_limit to 1 and leave buckets empty"
        )
    if settings.buckets:
        chosen = tuple(dict.fromkeys(parse_bucket(text, model) for text in settings.buckets))
    elif settings.bucket_limit > 1:
        resolutions = [(shape.height, shape.width)]
        chosen = choose(clips, model, settings.bucket_limit, shape.fps, resolutions, shape.frames)
    else:
        chosen = ()
    chosen = chosen or (Bucket(shape.frames, shape.height, shape.width, shape.rule),)
    return tuple(sorted(chosen, key=lambda bucket: (-bucket.frames, -bucket.height * bucket.width, bucket)))


def _usable(
    dataset: Path,
    source: DatasetShare,
    clips: Sequence[Clip],
    buckets: tuple[Bucket, ...],
    shape: Shape,
    taking: Taking,
    misfits: Mapping[str, str],
    masked: bool,
) -> tuple[list[RunClip], list[str]]:
    """Plan the clips of one dataset; return them, and a sentence for each clip that is left out.

    misfits: why a clip cannot be trained on, by file name; "" if it can.
    """
    info, items, dropped = read_info(dataset), list[RunClip](), damage(dataset)
    assigned = assign([taking.usable(clip) for clip in clips], buckets, shape.fps).assignments
    for clip, choice in zip(clips, assigned, strict=True):
        try:
            path = clip_file(dataset, clip.file_name)
            if clip.first_frame:
                clip_file(dataset, clip.first_frame)
            mask_gone = masked and bool(clip.mask) and not clip_file(dataset, clip.mask).is_file()
        except DataError as error:
            dropped.append(f"{clip.name}: {error}")
            continue
        # Plan a clip that fits no bucket for the first one anyway: the plan says why it does not fit, and some ways of
        # sampling frames accept it.
        bucket = choice.bucket or buckets[0]
        plans = take(clip, bucket.shape(shape.fps), taking)
        if not path.is_file():
            dropped.append(f"{clip.name}: the file is missing")
        elif mask_gone:
            dropped.append(f"{clip.name}: its mask's file is missing: add the mask again, or remove it from the clip")
        elif misfit := misfits.get(clip.file_name):
            dropped.append(f"{clip.name}: {misfit}")
        elif plans[0].dropped:
            dropped.append(f"{clip.name}: {choice.dropped or plans[0].dropped}")
        else:
            caption = info.caption(clip)
            items += [RunClip(path, "", caption, one, "train", bucket, source.repeats, source.weight) for one in plans]
    return items, dropped


def read_mask(item: RunClip) -> NDArray[np.float32]:
    """Read a clip's mask with the same frames, size and crop as the clip, and blur its edges if that is set.

    Returns:
        [F, H, W], 0 (black) to 1 (white). Values that compression moved away from black or white are restored.

    Raises DataError if the mask is damaged, or shorter than the clip.
    """
    import numpy as np

    from workbench.clips.media import read_frames

    plan = item.plan
    try:
        frames = read_frames(clip_file(item.path.parent.parent, plan.clip.mask), plan.indices, plan.resize, plan.crop)
    except DataError as error:
        raise DataError(f"the mask of {item.name} cannot be used: {error}") from error
    mask = frames.mean(-1, dtype=np.float32) / 255
    mask[mask <= NEARLY] = 0.0
    mask[mask >= 1 - NEARLY] = 1.0
    return np.stack([_softened(one, item.soften) for one in mask]) if item.soften else mask


def _softened(mask: NDArray[np.float32], deviation: float) -> NDArray[np.float32]:
    """Blur a frame [H, W] with a Gaussian of this standard deviation (pixels), repeating edge pixels outward."""
    import numpy as np

    reach = math.ceil(3 * deviation)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1, dtype=np.float32) / deviation) ** 2)
    for axis in (0, 1):
        padded = np.pad(mask, [(reach, reach) if axis == one else (0, 0) for one in (0, 1)], mode="edge")
        mask = np.apply_along_axis(np.convolve, axis, padded, kernel / kernel.sum(), mode="valid").astype(np.float32)
    return mask


def _misfit(dataset: Path, clip: Clip, settings: TrainSettings, model: Model, fit: Fit) -> str:
    """Say why a run cannot train on a clip of latents, whatever their size; "" if it can."""
    if settings.tokenizer_steps:
        return f"its codes belong to the current tokenizer, which tokenizer_steps ({settings.tokenizer_steps}) changes"
    if model.task == "image-to-video" and settings.condition == "low resolution":
        return "condition is low resolution, which is made from a clip's frames, and latents have none"
    if model.task == "image-to-video" and not clip.first_frame:
        return f"{model.title} needs a first frame, and latents have none: import its image with it"
    try:
        path = clip_file(dataset, clip.file_name)
        return fit.misfit(path) if path.is_file() else ""
    except DataError as error:
        return str(error)


def misses(dataset: Path, clip: Clip, settings: TrainSettings) -> str:
    """Say which companion file that the run needs is missing beside a clip; "" if none. Reads no video."""
    try:
        return _missing_companion(dataset, clip, settings)
    except DataError as error:  # a link that leads out of the dataset
        return str(error)


def _missing_companion(dataset: Path, clip: Clip, settings: TrainSettings) -> str:
    if settings.has_pairs:
        if clip.is_latents:
            return "a slider pair needs the frames of two clips, and latents have none"
        if not clip.reference or clip.reference.endswith(".png"):
            is_what = "is an image" if clip.reference else "is missing"
            return f"its reference {is_what}, but slider_from is pairs: add the clip that shows less as its reference"
        if not clip_file(dataset, clip.reference).is_file():
            return f"its reference's file is missing, {clip.reference}: add it again"
    if not settings.tells:
        return ""
    if clip.is_latents:
        return "given, control and reference need a clip's frames, and latents have none"
    kinds = {one.kind.name for one in settings.given_shares}
    needed = {"control": settings.control, "mask": "mask" in kinds, "reference": settings.reference}
    for kind, setting in (("control", "control"), ("mask", "given"), ("reference", "reference")):
        name, what = clip.companions.get(kind, ""), kind if kind == "reference" else f"{kind} video"
        if needed[kind] and not name:
            return f"it has no {what}, which {setting} needs: add one beside the clip"
        if needed[kind] and not clip_file(dataset, name).is_file():
            return f"its {what}'s file is missing, {name}: add it again"
    if {"last", "first+last"} & kinds and clip.last_frame and not clip_file(dataset, clip.last_frame).is_file():
        return f"its last frame's file is missing, {clip.last_frame}: add it again"
    return ""


def _conditioning_files(clip: Clip, settings: TrainSettings) -> tuple[str, ...]:
    """List the companion files of a clip that the run uses for conditioning, relative to the dataset's folder."""
    kinds = {*settings.conditioning_kinds, *(["reference"] if settings.has_pairs else [])}
    begins, ends = {"first", "first+last", "prefix", "keyframes"}, {"last", "first+last", "suffix", "keyframes"}
    names = [getattr(clip, kind) for kind in ("control", "reference", "mask") if kind in kinds]
    names += [clip.first_frame] if kinds & begins else []
    names += [clip.last_frame] if kinds & ends else []
    return tuple(filter(None, names))


def _check_references(settings: TrainSettings, model: Model, items: Sequence[RunClip]) -> None:
    """Refuse references that cannot share a batch, and sizes that cannot be scaled down. Raises ConfigError."""
    if settings.resolved.family.joins_conditioning(model):
        if video := next((item for item in items if not item.plan.clip.reference.endswith(".png")), None):
            sentence = f"the reference of {video.name} is a video, and {model.title} takes images"
            raise ConfigError.about(f"reference is on, but {sentence}: replace it with a PNG image")
        return
    pictures = {item.plan.clip.reference.endswith(".png"): item.name for item in items}
    if len(pictures) > 1:
        sentence = f"the reference of {pictures[True]} is an image and that of {pictures[False]} a video"
        raise ConfigError.about(f"reference is on, but {sentence}: use only one of the two in a run")
    unit = model.size_multiple * settings.reference_downscale
    for bucket in sorted({item.bucket for item in items}, key=str):
        if bucket.height % unit or bucket.width % unit:
            raise ConfigError.about(
                f"reference_downscale is {settings.reference_downscale}, which does not work with clips of "
                f"{bucket.width}x{bucket.height}: use sizes that are multiples of {unit}, or a smaller value"
            )


def _with_sound(
    settings: TrainSettings, role: Role, dataset: str, items: list[RunClip]
) -> tuple[list[RunClip], list[str]]:
    """Mark the clips whose sound the run learns; return them, and why others are left out.

    Raises DataError if a run is to learn sound from a dataset without any.
    """
    if settings.sound == "picture":
        return items, []
    moving = [item for item in items if not item.plan.clip.is_latents and len(item.plan.indices) > 1]
    audible = {path for path in {item.path for item in moving} if has_sound(path)}
    if role == "train" and not audible:
        use = "import its files again" if settings.sound == ALONE else "import its files again, or set sound to picture"
        raise DataError.about(f"sound is {settings.sound}, but no clip of {dataset} has a sound track: {use}")
    items = [replace(item, heard=item.path in audible) for item in items]
    if settings.sound == "picture+sound":
        return items, []
    mute = dict.fromkeys(item.name for item in items if not item.heard)
    why = f"it has no sound, which a run with sound {settings.sound} needs"
    if settings.sound == ALONE:
        why = "it has no sound, which is all that the run learns (sound)"
    return [item for item in items if item.heard], [f"{name}: {why}" for name in mute]


def _beside(item: RunClip, shapes: Collection[tuple[Bucket, bool]]) -> str:
    """Say why a regularization clip cannot share a batch with new clips; "" if it can.

    shapes: (bucket, whether there is a sound to learn) of the new clips
    """
    if (item.bucket, item.heard) in shapes:
        return ""
    if (item.bucket, not item.heard) in shapes:
        return f"no new clip of its shape is {'with' if item.heard else 'without'} sound, as it is"
    return f"no new clip has its shape, {item.bucket}"


def _unusable(settings: TrainSettings, role: Role, dataset: str, dropped: Sequence[str]) -> DataError:
    """Return the error for a dataset without a usable clip."""
    of_concept = "dataset" if dataset == settings.dataset else "more_datasets"
    setting = {"known": "regularization_dataset", "held_out": "validation_dataset"}.get(role, of_concept)
    sentence = f"dataset {dataset} has no usable clip ({'; '.join(dropped[:3]) or 'it has no clips'})"
    return DataError(sentence, {setting: sentence})


def seed_for(run_seed: int, purpose: str, *indices: int) -> int:
    """Derive the seed for one purpose at one point of a run (step, micro-batch)."""
    text = ":".join(map(str, (run_seed, purpose, *indices)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


# ---- batches


@dataclass(frozen=True)
class Group:
    """Clips that share a sampling order; a pass takes `amount` of them on average."""

    name: str
    items: Sequence[RunClip]
    amount: Fraction


class Stream:
    """The endless sequence of one bucket's clips, reshuffled every pass, with regularization clips mixed in evenly."""

    def __init__(self, groups: Sequence[Group], known: Sequence[RunClip], share: float, seed: int, name: str) -> None:
        self._groups = groups
        self._amount = sum((group.amount for group in groups), Fraction(0))
        self._known = list(known)
        # A bucket without regularization clips is filled with new ones.
        self._share = Fraction(share).limit_denominator(1000) if known else Fraction(0)
        self._seed = seed
        self._name = name

    def per_pass(self, batch_size: int) -> Fraction:
        """Batches per pass: each new clip once, or as many clips as there are new ones."""
        return self._amount / (batch_size * (1 - self._share))

    def item(self, position: int) -> RunClip:
        known_before, taken = _even_share(position, self._share)
        if taken:
            return self._shuffled(self._known, f"known{self._name}", known_before)
        position, left = position - known_before, self._amount
        for group in self._groups:
            before, taken = _even_share(position, group.amount / left)
            if taken:
                break
            position, left = position - before, left - group.amount
        of = f" of {group.name}" if group.name else ""
        return self._shuffled(group.items, f"train{of}{self._name}", before)

    def _shuffled(self, items: Sequence[RunClip], purpose: str, count: int) -> RunClip:
        epoch, index = divmod(count, len(items))
        return items[_order(len(items), seed_for(self._seed, f"order of {purpose}", epoch))[index]]


def _even_share(position: int, share: Fraction) -> tuple[int, bool]:
    """Return how many earlier positions are taken when a share of them is spread evenly, and whether this one is."""
    before = math.floor(position * share)
    return before, math.floor((position + 1) * share) > before


def _groups(train: Sequence[RunClip], bucket: Bucket, heard: bool) -> list[Group]:
    """Return a bucket's groups. A group's share of a pass is split among buckets in proportion to its clips."""
    repeated = [item for item in train for _ in range(item.repeats)]
    shares = {item.group: Fraction(str(item.share)) for item in repeated}
    found = []
    for name, share in shares.items():
        everywhere = [item for item in repeated if item.group == name]
        here = [item for item in everywhere if (item.bucket, item.heard) == (bucket, heard)]
        amount = len(repeated) * share / sum(shares.values()) * len(here) / len(everywhere)
        if here:
            found.append(Group(name, here, amount))
    return found


@lru_cache(maxsize=64)
def _order(count: int, seed: int) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


class Batches:
    """The batches of a run, by number.

    All clips of a batch have the same shape (bucket), and either all or none have a sound to learn: these form separate
    buckets. Within a bucket, every clip is used once, in a new order, before any is used again; clips left over at the
    end of a pass start the next batch, so none is lost and no padding is needed. Over a pass, every bucket gets batches
    in proportion to its clips, in a new order. If datasets are weighted by sampling, each is a group with its own
    order, and groups take turns according to their shares.
    """

    def __init__(self, data: TrainingData, settings: TrainSettings) -> None:
        self._size, self._seed = settings.batch_size, settings.seed
        present = {(item.bucket, item.heard) for item in data.train}
        used = [one for bucket in data.buckets for one in ((bucket, False), (bucket, True)) if one in present]
        self._streams, self._images = list[Stream](), list[bool]()
        for bucket, heard in used:
            known = [item for item in data.regularization if (item.bucket, item.heard) == (bucket, heard)]
            name = "" if len(used) == 1 else f" in {bucket}{' with sound' if heard else ''}"
            share, groups = settings.regularization_share, _groups(data.train, bucket, heard)
            self._images.append(bucket.for_images)
            self._streams.append(Stream(groups, known, share, settings.seed, name))
        self._per_pass = [stream.per_pass(self._size) for stream in self._streams]
        if settings.picture_share is not None and len(set(self._images)) > 1:
            wanted, now = Fraction(str(settings.picture_share)), self._pictures
            factor = wanted / (1 - wanted) * (1 - now) / now
            self._per_pass = [
                count * factor if image else count for count, image in zip(self._per_pass, self._images, strict=True)
            ]

    @property
    def _pictures(self) -> Fraction:
        return sum(itertools.compress(self._per_pass, self._images), Fraction(0)) / sum(self._per_pass)

    @property
    def pictures(self) -> float:
        """Share of batches that hold still pictures, 0 to 1."""
        return float(self._pictures)

    @property
    def per_pass(self) -> float:
        """Batches per pass over all buckets, which uses each new clip once."""
        return float(sum(self._per_pass))

    def batch(self, number: int) -> list[RunClip]:
        """Return the clips of a batch, counted from 0 over the whole run."""
        if len(self._streams) == 1:
            return [self._streams[0].item(number * self._size + index) for index in range(self._size)]
        # The pass of a batch is the last one that begins at or before it.
        most = math.ceil((number + len(self._streams) + 1) / self.per_pass) + 1
        begins = range(most + 1)
        epoch = bisect.bisect_right(begins, number, key=lambda one: sum(_before(one, self._per_pass))) - 1
        slots, before = _slots(self._seed, epoch, tuple(self._per_pass)), _before(epoch, self._per_pass)
        position = number - sum(before)
        bucket = slots[position]
        number_in_bucket = before[bucket] + slots[:position].count(bucket)
        return [self._streams[bucket].item(number_in_bucket * self._size + index) for index in range(self._size)]


def _before(epoch: int, per_pass: Sequence[Fraction]) -> list[int]:
    """Count each bucket's batches before a pass, rounded down, so that every bucket gets its share over the passes."""
    return [math.floor(epoch * count) for count in per_pass]


@lru_cache(maxsize=4)
def _slots(seed: int, epoch: int, per_pass: tuple[Fraction, ...]) -> list[int]:
    """Return the bucket of each batch of a pass, shuffled."""
    counts = zip(_before(epoch, per_pass), _before(epoch + 1, per_pass), strict=True)
    slots = [bucket for bucket, (before, after) in enumerate(counts) for _ in range(after - before)]
    random.Random(seed_for(seed, "order of buckets", epoch)).shuffle(slots)
    return slots


# ---- encoding ahead of training: datasets must not change while these jobs run

ENCODINGS, WORK = "encoding", "work.json"  # cache/encoding/KEY/work.json


def encoding_jobs(workspace: Workspace) -> Iterator[tuple[Path, TrainSettings]]:
    """Yield the folder of each running encoding job (one per machine) and the settings of the run it encodes for."""
    for config in (workspace.cache / ENCODINGS).glob(f"*/*/{jobs.CONFIG}"):
        if jobs.status(config.parent).state.alive:
            with contextlib.suppress(ConfigError):  # still being written
                yield config.parent, parse(TrainSettings, read_json(config.parent.parent / WORK)["settings"])

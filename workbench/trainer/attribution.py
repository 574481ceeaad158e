"""How much each clip of a run contributed to what a sample shows, by comparing gradients of the clips and the sample.

A training step on a clip moves the LoRA against the clip's gradient, so to first order it lowers the loss of any other
video by the product of both gradients. TracIn (Pruthi et al. 2020) adds these products up over a run's checkpoints.
Here the other video is the sample, or its marked part, as if the run trained on it: a clip whose gradient points the
same way made the sample more likely, one whose gradient points the other way less likely.

A clip's gradient is that of its mean loss at `LEVELS`, always with the same noise, divided by its length; otherwise
clips with a large loss would seem to cause everything (measurements in docs/which_clip.md). It is kept as a sketch
(Charikar et al. 2002): a seeded hash adds each value to one of `SIZE` numbers, or subtracts it. Products of sketches
are unbiased estimates of products of gradients, so memory does not depend on the size of the LoRA.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch

from workbench.clips.buckets import Bucket
from workbench.clips.frame_plan import Shape, plan
from workbench.clips.records import Clip, file_sha256
from workbench.errors import ConfigError, DataError
from workbench.families import settle
from workbench.families.base import Family
from workbench.families.model import Model
from workbench.jobs.devices import Device
from workbench.runs import checkpoints
from workbench.runs.data import RunClip, load_data, read_lock, seed_for
from workbench.runs.frozen_loras import frozen_loras, identities
from workbench.runs.settings import TrainSettings
from workbench.sampler.samples import Sample
from workbench.trainer.batch_inputs import BatchInputs
from workbench.trainer.encoder import CONDITIONING, NO_CONDITIONING, Damaged, Piece, encoder_of, precision_of, view_of
from workbench.trainer.trainable import LORA, FrozenLoras, Trainable, apply_memory_levels, begins_on_host
from workbench.workspace import Workspace, read_json
from workbench.workspace.records import key_of

SIZE = 4096  # numbers of a sketch
LEVELS = (0.1, 0.5, 0.9)  # noise quantiles; most of what a fault looks like is decided at high noise
DRAWS = 2  # samples of the noise, which also tell how far the answer depends on it
VERSION = 1  # of the gradients in the cache
GRADIENT = "gradient"
Report = Callable[..., None]


class Question(NamedTuple):
    """A sample, and the part of it in question.

    box:    left, top, width and height in pixels; () for the whole picture.
    frames: the first and the last frame, from 0; () for all.
    """

    video: Path
    caption: str
    frames_count: int
    fps: float
    height: int
    width: int
    box: Sequence[int] = ()
    frames: Sequence[int] = ()


def question_of(sample: Sample, box: Sequence[int] = (), frames: Sequence[int] = ()) -> Question:
    """Return the question about a sample, or its marked part."""
    record = sample.record
    sizes = (int(record["frames"]), float(record["fps"]), int(record["height"]), int(record["width"]))
    return Question(sample.video, sample.settings.prompt, *sizes, box, frames)


def sample_clip(model: Model, asked: Question) -> RunClip:
    """Return a sample's video as if it were a clip of a run, in its own size and with its prompt as caption."""
    video, rule = asked.video, model.frame_rule
    clip = Clip(
        file_name=f"samples/{video.name}",
        text=asked.caption,
        fps=asked.fps,
        frames=asked.frames_count,
        height=asked.height,
        width=asked.width,
    )
    frames = max(count for count in (1, *rule.legal()) if count <= asked.frames_count)
    planned = plan(clip, Shape(frames, asked.height, asked.width, asked.fps, rule))
    if planned.dropped:
        raise DataError(f"{video.name} cannot be used: {planned.dropped}")
    bucket = Bucket(frames, asked.height, asked.width)
    return RunClip(video, file_sha256(video), asked.caption, planned, "train", bucket)


def marked_cells(family: Family, folder: Path, item: RunClip, asked: Question) -> torch.Tensor | None:
    """Return the loss weight of each latent cell for the marked part of a sample; None without a mark."""
    if not asked.box and not asked.frames:
        return None
    mask = torch.zeros(1, 1, len(item.plan.indices), item.bucket.height, item.bucket.width)
    left, top, width, height = asked.box or (0, 0, item.bucket.width, item.bucket.height)
    first, last = asked.frames or (0, asked.frames_count - 1)
    for number, index in enumerate(item.plan.indices):
        if first <= index <= last:
            mask[:, :, number, top : top + height, left : left + width] = 1
    cells = family.mask_cells(folder, mask)
    if not cells.any():
        raise ConfigError.of("frames", "the marked frames are not among those that the model sees: mark more")
    return cells


class Compared(NamedTuple):
    """How clips compare with a sample. scores: [draws, clips]; missing: names of clips that no longer exist"""

    clips: list[RunClip]
    scores: torch.Tensor
    missing: list[str]


class Sketch:
    """Sketches the gradients of a LoRA, always in the same way for the same layers."""

    def __init__(self, named: Sequence[tuple[str, torch.nn.Parameter]]) -> None:
        self._parts = []
        for name, parameter in named:
            generator = torch.Generator().manual_seed(seed_for(0, f"sketch {name}"))
            drawn = torch.randint(2 * SIZE, (parameter.numel(),), generator=generator, dtype=torch.int16)
            self._parts.append((parameter, drawn.to(parameter.device)))  # the number in the sketch, doubled, and a sign

    def take(self) -> torch.Tensor:
        """Return the sketch of the gradients, [SIZE] on the CPU, and clear them."""
        found = torch.zeros(SIZE, device=self._parts[0][0].device)
        for parameter, drawn in self._parts:
            if parameter.grad is not None:
                signs = (drawn & 1) * 2 - 1
                found.index_add_(0, (drawn >> 1).int(), parameter.grad.detach().flatten().float() * signs)
                parameter.grad = None
        return found.cpu()


class Gradients:
    """A run's model with its LoRA, which computes gradients of clips and of samples at the run's checkpoints."""

    def __init__(
        self, workspace: Workspace, run: Path, settings: TrainSettings, device: Device, report: Report
    ) -> None:
        """Read the run's clips. Raises ConfigError, DataError, ModelUnavailable."""
        self.workspace, self.run, self.settings = workspace, run, settings.changed(compile=False, loader_threads=0)
        self.device, self._report = torch.device(device.torch_name), report
        report("reading the dataset")
        settle(settings.model)
        self.family, self.model = settings.resolved
        self.folder = self.family.fetch(self.model, lambda text: report(text))
        self.precision = precision_of(self.family, self.folder, settings, device.kind)
        self.encoder = encoder_of(workspace, settings, self.folder, self.device, self.precision)
        self.data = load_data(workspace, settings)
        # By content: a clip that was removed since may have changed which ones are held out.
        items = (*self.data.train, *self.data.held_out)
        present = {(item.sha256, item.caption, item.plan.indices): item for item in items}
        trained = {
            (one["sha256"], one["caption"], tuple(one["indices"])): one["name"]
            for one in read_lock(run)
            if one["role"] == "train"
        }
        self.clips = [present[key] for key in trained if key in present]
        self.missing = [name for key, name in trained.items() if key not in present]
        if not self.clips:
            raise DataError(f"no clip that {run.name} trained on is still in its datasets: restore them from the bin")

    def load(self, items: Sequence[RunClip]) -> None:
        """Encode those of these clips and captions that are not in the cache, then load the model."""
        settings, view = self.settings, view_of(self.model, self.settings)

        def progress(phase: str, done: int, total: int, seconds: float) -> None:
            self._report(phase, done, total, seconds)

        captions = [item.caption for item in items if not item.given_text]
        self.encoder.encode_captions([*captions, self.model.negative_prompt, ""], progress)
        views = ["clip", NO_CONDITIONING if view == CONDITIONING else view]
        pieces = [Piece(item, one) for item in items for one in dict.fromkeys(views)]
        self.encoder.encode_clips([*pieces, *(Piece(item, "mask") for item in items if item.mask)], progress)
        self.inputs = BatchInputs(self.encoder, self.model, self.data, settings)
        self._report("loading the model")
        expert, family = self.model.expert(settings.expert), self.family
        load_on = torch.device("cpu") if begins_on_host(settings) else self.device
        self.transformer = family.load_transformer(self.folder, load_on, self.encoder.dtype, expert.part)
        family.use_attention(self.transformer, settings.attention, self.device)
        seed = seed_for(settings.seed, "lora")
        self.trainable = Trainable(family, self.transformer, settings, seed, expert.part)
        apply_memory_levels(family, self.transformer, settings, self.device)
        self.frozen = FrozenLoras(frozen_loras(self.workspace, settings))
        self.frozen.attach(family, self.transformer, self.model.title, expert.name)
        self.transformer.eval()  # without dropout: equal questions get equal answers
        self.sketch = Sketch(self.trainable.named)

    def at(self, step: int) -> None:
        """Load the LoRA of a checkpoint. Raises ConfigError if it is damaged."""
        folder = checkpoints.folder_of(self.run, step)
        if why := checkpoints.damage(folder):
            raise ConfigError(f"the checkpoint of step {step} cannot be used, because {why}: choose another sample")
        self._lora = read_json(folder / checkpoints.MANIFEST)["files"][LORA]["sha256"]
        self.trainable.load(folder)

    def of(self, item: RunClip, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return the sketched gradients of a clip's loss at the current weights, [DRAWS, SIZE].

        mask: replaces the clip's own
        """
        family, settings, schedule = self.family, self.settings, self.inputs.schedule
        (probe,) = self.inputs.clips([item])
        if mask is None and probe.mask is not None:
            mask = settings.mask_floor + (1 - settings.mask_floor) * probe.mask
        weights = None if mask is None else mask.to(self.device)
        mixed: Any = nullcontext()
        if self.precision != "fp32":
            mixed = torch.autocast(self.device.type, self.encoder.dtype)
        found = []
        for draw in range(DRAWS):
            # Every clip gets the same noise, so that only the clips make a difference.
            generator = torch.Generator().manual_seed(seed_for(settings.seed, "causes", draw))
            for level in LEVELS:
                with mixed:
                    inputs = probe.sampled(family, schedule, level, generator, self.device)
                    family.loss(self.transformer, schedule, inputs, None, weights).mean().backward()
            found.append(self.sketch.take())
        return torch.stack(found)

    def kept(self, item: RunClip) -> torch.Tensor:
        """Return `of` a clip from the cache, or compute it and keep it there."""
        key, cache = self.key(item), self.encoder.cache
        if key in cache:
            try:
                return cache.get(key)[GRADIENT]
            except Damaged:
                pass
        found = self.of(item)
        cache.put(key, {GRADIENT: found})
        return found

    def key(self, item: RunClip) -> str:
        """Return the cache key of a clip's gradients at the current weights."""
        settings, encoder = self.settings, self.encoder
        what = {name: getattr(settings, name) for name in ("seed", "alpha", "rslora", "mask_floor", "loss_mask")}
        what |= {"clip": encoder.clip_key(item), "caption": item.caption, "lora": self._lora, "mask": item.mask}
        view = view_of(self.model, settings)
        what |= {"shown": encoder.clip_key(item, "clip" if view == CONDITIONING else view), "model": self.model.id}
        return key_of(what | {"frozen": identities(self.frozen.loras), GRADIENT: [VERSION, SIZE, LEVELS, DRAWS]})


def compare(gradients: Gradients, steps: Sequence[int], asked: Question, report: Report) -> Compared:
    """Compare the gradients of a run's clips with that of a sample at these checkpoints."""
    sample, clips = sample_clip(gradients.model, asked), gradients.clips
    gradients.load([*clips, sample])
    mask, total = marked_cells(gradients.family, gradients.folder, sample, asked), len(steps) * (1 + len(clips))
    done, spent = 0, 0.0
    scores = torch.zeros(DRAWS, len(clips))

    def counted(compute: Callable[[], torch.Tensor]) -> torch.Tensor:
        nonlocal done, spent
        began = time.monotonic()
        found = compute()
        done, spent = done + 1, spent + time.monotonic() - began
        report("comparing gradients", done, total, spent / done)
        return found

    for step in steps:
        gradients.at(step)
        own = _unit(counted(lambda: gradients.of(sample, mask)))
        for number, clip in enumerate(clips):
            other = _unit(counted(lambda clip=clip: gradients.kept(clip)))  # type: ignore[misc]
            scores[:, number] += (own * other).sum(-1) / len(steps)
    return Compared(clips, scores, gradients.missing)


def _unit(gradients: torch.Tensor) -> torch.Tensor:
    return gradients / gradients.norm(dim=-1, keepdim=True).clamp_min(1e-12)

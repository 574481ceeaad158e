"""Preview videos of a run, from prompt to file: the same prompts and seeds each time. Step 0 shows the base model.

Previews need no more memory than training. The VAE encodes the pictures and leaves the device; all latents are
generated without it; then it returns to decode, tiled for large frames, and the transformer may leave the device.

previews/step-00000250/
  I.mp4 I.json                            one video per prompt and seed, which keep the number I for the whole run
  I-scale-0.5.mp4 .json                   the same at another LoRA scale, on request
  control-I.mp4 .json                     a preservation prompt with the first seed: what the LoRA should leave alone
  I.safetensors I.json                    latents only, to be decoded later (`decode_latents`)
  input-I.mp4 reconstruction-I.mp4 .json  step 0: training inputs before and after the VAE
  prompts.txt                             one prompt per line
  live-N.mp4 .json                        a live sample; also written to samples/<day>/ if a LoRA file could hold the
                                          weights
previews/picture-I.png                    the first frame for an image-to-video model
previews/told-CLIP-SETTING.mp4 or .png    conditioning from a clip (given frames, control, reference), for samples

A record's "kind" is sample, latents, control, input, reconstruction or live. Its "settings" let the Sample tab generate
the same video from the checkpoint of that step. They are missing for controls, for single frames of an image-to-video
model, and if only the run holds the weights (full fine-tuning, weights trained beside the LoRA, averages before the
export) or the conditioning.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save

from workbench import jobs
from workbench.clips import media
from workbench.clips.frame_plan import Shape
from workbench.clips.sound import write_sound
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.base import Family, device_and_dtype
from workbench.families.conditioning import BESIDE, Conditioning, GivenKind
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model import Model
from workbench.families.model_inputs import GIVEN_STREAM, PICTURE_FOR_SOUND, Given, Tensors
from workbench.families.sound import Sound
from workbench.jobs.devices import Device, pick_device
from workbench.jobs.torch_devices import free_memory
from workbench.memory.block_swap import parked
from workbench.runs.checkpoints import LORA, folder_of
from workbench.runs.data import RunClip, TrainingData
from workbench.runs.from_scratch import base_model
from workbench.runs.frozen_loras import IN_PREVIEWS, FrozenLora
from workbench.runs.settings import TrainSettings
from workbench.sampler.inputs import GIVEN_RATE, given_back
from workbench.sampler.samples import SOUND, new_id, video_path, write_sample
from workbench.trainer.batch_inputs import BatchInputs
from workbench.trainer.encoder import (
    CONDITIONING,
    CONTROL,
    NO_CONDITIONING,
    REFERENCE,
    WHOLE,
    View,
    conditioning_view,
    read_clip_sound,
    read_conditioning,
    read_picture,
    read_video,
    read_whole_picture,
    views_of,
)
from workbench.trainer.evaluation import frames_of
from workbench.trainer.lora import scaled
from workbench.trainer.trainable import FrozenLoras, apply_memory_levels
from workbench.workspace import (
    Workspace,
    read_object,
    replacing,
    step_folders,
    write_bytes,
    write_json,
    write_text,
)

CLIPS = 2  # clips shown as training inputs; their captions are the default prompts
TILED_FROM = 256  # pixels of height from which the VAE decodes in tiles
UNWRITTEN = 64  # previews kept in memory while the disk is full; the oldest are dropped first
PROMPTS = "prompts.txt"
LATENTS = "latents"
PICTURES = ("image", "last_image", "keyframes")  # sample settings that take a picture
OnStep = Callable[[int, int], None]


# ---- what to generate


class PreviewPrompt(NamedTuple):
    """One prompt to generate, with its conditioning.

    text:    the prompt's embedding, batch of 1, on the device.
    image:   the first frame, [1, 3, H, W] in [-1, 1], for image-to-video models.
    given:   ready conditioning, in place of what the pipeline would make of the image.
    control: the number among the control previews; None for the run's own prompts.
    told:    the conditioning in words, with the clip it comes from; "" if the run sets none.
    item:    that clip.
    kind:    which of its frames are given.
    sound, picture: latents of its sound that a picture is made for, or of its picture that gets a sound.
    """

    prompt: str
    text: Tensors
    image: torch.Tensor | None = None
    given: Given | None = None
    control: int | None = None
    told: str = ""
    item: RunClip | None = None
    kind: GivenKind | None = None
    sound: torch.Tensor | None = None
    picture: torch.Tensor | None = None


class PreviewClip(NamedTuple):
    """A clip as training sees it: video [1, 3, F, H, W] in [-1, 1]; moments, batch of 1, on the device."""

    name: str
    caption: str
    video: torch.Tensor
    moments: Tensors
    latents_shape: tuple[int, ...]


class PreviewInputs:
    """The preview prompts and clips of one run."""

    def __init__(self, data: TrainingData, settings: TrainSettings, preservation_prompts: Sequence[str] = ()) -> None:
        self._settings, self._preservation_prompts = settings, preservation_prompts
        self._known = [item for item in data.regularization if item.bucket == data.buckets[0]]
        # Previews use the run's first shape, so their pictures must have it too.
        fitting = [item for item in (*data.held_out, *data.train) if item.bucket == data.buckets[0]]
        self._items = fitting or [*data.held_out, *data.train]
        self.prompts = list(settings.preview_prompts) or [item.caption for item in self._items[:CLIPS]]

    def with_embeddings(self, prompts: Sequence[str], inputs: BatchInputs) -> list[PreviewPrompt]:
        """Add to each prompt its embedding and, for an image-to-video model, its picture or other conditioning."""
        return [
            self._preview_of(one, self._items[self._index(one) % len(self._items)], self.picture(one, inputs), inputs)
            for one in prompts
        ]

    def controls(self, inputs: BatchInputs) -> list[PreviewPrompt]:
        """Return control previews, which show what the LoRA should leave alone; at most as many as the run has prompts.

        They use preservation prompts or, for a model that takes a picture, clips of the regularization dataset, because
        a picture of the new concept would be no control. There are none if previews stay latents, which are not
        compared.
        """
        count = 0 if self._settings.preview_latents_only else min(self._settings.preview_controls, len(self.prompts))
        if inputs.view == "clip" or inputs.unconditioned:
            found = [self._preview_of(one, self._items[0], None, inputs) for one in self._preservation_prompts[:count]]
        else:
            pictures = [None if self._conditioned(inputs) else inputs.picture(item) for item in self._known[:count]]
            known = zip(self._known, pictures, strict=False)
            found = [self._preview_of(item.caption, item, picture, inputs) for item, picture in known]
        return [one._replace(control=number) for number, one in enumerate(found)]

    def _preview_of(self, prompt: str, item: RunClip, image: torch.Tensor | None, inputs: BatchInputs) -> PreviewPrompt:
        given = next(inputs.clips([item])).given if self._conditioned(inputs) else None
        one = PreviewPrompt(prompt, inputs.embeddings([prompt]), image, given)
        if (learned := self._settings.sound) in GIVEN_STREAM:
            clip = next(inputs.clips([item]))
            if learned == PICTURE_FOR_SOUND:
                one = one._replace(sound=clip.sound, told=f"the sound of {item.name}", item=item)
            else:
                one = one._replace(picture=inputs.clean(clip), told=f"the picture of {item.name}", item=item)
        if inputs.view != CONDITIONING or inputs.unconditioned:
            return one
        kind = inputs.fixed_kind(item)
        given_by = (kind, *(name for name in BESIDE if getattr(self._settings, name)))  # "first+last, control"
        told = f"{', '.join(str(part) for part in given_by if part)} of {item.name}"
        return one._replace(told=told, item=item, kind=kind)

    def conditioning_pictures(self, prompt: str, inputs: BatchInputs) -> dict[str, torch.Tensor]:
        """Return the end frames that the model card's code loads, if the run sets its conditioning.

        "first" and, if the run gives both ends, "last"; each [1, 3, H, W] in [-1, 1].
        """
        ends = {"first", "last", "first+last", "keyframes"} & set(self._settings.conditioning_kinds)
        begins_with_picture = self._settings.resolved.model.task == "image-to-video"
        if inputs.view != CONDITIONING or not (begins_with_picture or (inputs.joins_conditioning and ends)):
            return {}
        item = self._items[self._index(prompt) % len(self._items)]
        video = read_conditioning(item, conditioning_view(GivenKind("first+last"))).video
        assert video is not None
        last = (
            {"last": video[:, :, -1]}
            if ends - {"first"} and (inputs.joins_conditioning or "first+last" in ends)
            else {}
        )
        return {"first": video[:, :, 0], **last}

    def picture(self, prompt: str, inputs: BatchInputs) -> torch.Tensor | None:
        """Return the first frame for a prompt's video, float32 [1, 3, H, W] in [-1, 1], or None if it needs none."""
        if inputs.view == "clip" or self._conditioned(inputs):
            return None
        given, index = self._settings.preview_images, self._index(prompt)
        item = self._items[index % len(self._items)]
        return read_picture(given[index % len(given)], item) if given else inputs.picture(item)

    def _conditioned(self, inputs: BatchInputs) -> bool:
        """Return whether clips condition the model with more than a first frame, or in a way that the run sets."""
        whole = inputs.view in ("low resolution", CONDITIONING) or self._settings.condition_frames == "every"
        return inputs.view != "clip" and whole

    def _index(self, prompt: str) -> int:
        return self.prompts.index(prompt) if prompt in self.prompts else 0

    def clips(self, inputs: BatchInputs) -> list[PreviewClip]:
        """Return a few clips as the model sees them, skipping clips that are latents and have no frames to show."""
        found = []
        for item in [item for item in self._items if not item.plan.clip.is_latents][:CLIPS]:
            probe = next(inputs.clips([item]))
            assert probe.moments is not None
            found.append(PreviewClip(item.name, item.caption, read_video(item), probe.moments, probe.shape))
        return found


# ---- generating


class MissingPreview(NamedTuple):
    """A preview to generate. `name` is its files' stem, which its prompt and seed keep for the whole run."""

    prompt: PreviewPrompt
    seed: int
    name: str


class Latents(NamedTuple):
    """Latents of a video [1, ...] and of its sound [1, tokens, channels]; None without one."""

    picture: torch.Tensor
    sound: torch.Tensor | None = None


class _Generated(NamedTuple):
    """A preview whose file is not written yet: its latents on the host, and the files that its record refers to.

    picture: the first frame.
    told:    the rest of its conditioning.
    """

    record: Path
    latents: Latents
    described: dict[str, Any]
    picture: torch.Tensor | None
    told: Sequence[ConditioningFile] = ()


class ConditioningFile(NamedTuple):
    """A file that gives a sample the same conditioning as a preview.

    setting: the sample's setting that takes the file.
    path:    the file.
    read:    returns the pixels to write, [1, C, F, H, W].
    more:    further settings that go with it.
    heard:   reads the sound of the pixels, if it is given.
    """

    setting: str
    path: Path
    read: Callable[[], torch.Tensor]
    more: dict[str, Any]
    heard: Callable[[], torch.Tensor] | None = None


def conditioning_files(folder: Path, prompt: PreviewPrompt, settings: TrainSettings) -> list[ConditioningFile]:
    """Return the files that give a sample the conditioning of a preview; [] if its clip has no pixels.

    folder: where the files go; they are named for the clip, so previews of one clip share them
    """
    item, kind = prompt.item, prompt.kind
    if item is None or item.plan.clip.is_latents:
        return []
    found = []

    def add(
        setting: str, view: View, pick: Callable[[Conditioning], torch.Tensor | None], ending: str, **more: Any
    ) -> None:
        def read() -> torch.Tensor:
            pixels = pick(read_conditioning(item, view))
            assert pixels is not None, f"{view} has no {setting}"
            return pixels

        found.append(ConditioningFile(setting, folder / f"told-{item.sha256[:8]}-{setting}{ending}", read, more))

    def frames(start: int, count: int) -> Callable[[Conditioning], torch.Tensor | None]:
        return lambda told: None if told.video is None else told.video[:, :, start : start + count]

    if kind is not None:
        view = conditioning_view(kind)
        for setting, start, count, more in _frame_settings(kind, len(item.plan.indices)):
            ending = f"-{start}.png" if setting == "keyframes" else ".png" if setting in PICTURES else ".mp4"
            add(setting, view, frames(start, count), ending, **more)
        if kind.name == "mask":
            add("video", view, lambda told: told.video, ".mp4")
            add("mask", view, lambda told: _clip_mask(told, kind.side), ".mp4", mask_keeps=kind.side)
    reference = item.plan.clip.reference
    family, model = settings.resolved
    for view in views_of(settings, None, family.joins_conditioning(model)):
        if view == CONTROL:
            add("control", view, lambda told: told.control, ".mp4")
        elif view == f"{REFERENCE} {WHOLE}":  # the sampler puts it on white itself
            add("reference", view, lambda _: read_whole_picture(item, reference), ".png")
        elif view != NO_CONDITIONING:
            add("reference", view, lambda told: told.reference, ".png" if reference.endswith(".png") else ".mp4")
    return found


def _frame_settings(kind: GivenKind, frames: int) -> list[tuple[str, int, int, dict[str, Any]]]:
    """Return (sample setting, first frame, number of frames, further settings) for given frames of a clip."""
    count = kind.count
    if kind.name == "prefix":
        return [("continue_from", 0, count, {"kept_frames": count, "tell_frames": True})]
    if kind.name == "suffix":
        return [("continue_to", frames - count, count, {"following_frames": count})]
    if kind.name == "keyframes":
        return [("keyframes", frame, 1, {"keyframes": frame}) for frame in kind.frames(frames)]
    ends = {"first": ("image", 0), "last": ("last_image", frames - 1)}
    return [(*ends[name], 1, {}) for name in kind.name.split("+") if name in ends]


def _clip_mask(told: Conditioning, side: str) -> torch.Tensor | None:
    """Turn the mask of known pixels back into a clip's mask, which is white inside."""
    if told.mask is None:
        return None
    return (2 * told.mask - 1 if side == "inside" else 1 - 2 * told.mask).repeat(1, 3, 1, 1, 1)


@dataclass
class Previewer:
    """Generates previews with the transformer in training. The VAE is on the device only to encode and decode.

    writes:              False for a rank that only contributes its shards.
    offload_transformer: frees the transformer's device memory while the VAE decodes.
    before_decoding:     called before each video is decoded; may raise.
    frozen:              the run's frozen LoRAs; the caller switches them on.
    """

    run: Path
    family: Family
    model: Model
    folder: Path
    shape: Shape
    settings: TrainSettings
    device: torch.device
    dtype: torch.dtype
    writes: bool = True
    offload_transformer: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    before_decoding: Callable[[], None] = lambda: None
    frozen: FrozenLoras = field(default_factory=FrozenLoras)
    vae: Any = None
    unwritten: list[_Generated] = field(default_factory=list)
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict, init=False)  # by prompt and seed

    def generate(
        self,
        step: int,
        transformer: Any,
        prompts: Sequence[PreviewPrompt],
        negative: Tensors,
        on_step: OnStep,
        scale: float = 1.0,
    ) -> bool:
        """Generate every prompt with every seed, and controls with the first seed, and return whether any was missing.

        What a full disk refuses is kept and written with the next previews. Raises CannotWrite, and ConfigError if the
        run has no LoRA to scale.

        Args:
            on_step: Called with (done, total) after each denoising step; may raise.
            scale: The LoRA's scale; 0 is the base model.
        """
        folder = step_folder(self.run, step)
        seeds = range(self.settings.preview_seed, self.settings.preview_seed + self.settings.preview_count)
        every = [self.missing(one, seed) for one in prompts for seed in (seeds if one.control is None else seeds[:1])]
        missing = [each for each in every if not record_path(folder, each.name, scale).exists()]
        if not missing:
            return False
        generated = list(self.generate_latents(transformer, missing, negative, on_step, scale))
        if self.writes:
            for each, latents in zip(missing, generated, strict=True):
                record = record_path(folder, each.name, scale)
                described, told = self.describe(step, each, scale), self._conditioning_files(each)
                self.unwritten.append(_Generated(record, latents, described, each.prompt.image, told))
            del self.unwritten[:-UNWRITTEN]
            self.write()
        return True

    def write(self) -> None:
        """Write the unwritten previews, oldest first. Raises CannotWrite; the rest is written the next time."""
        with contextlib.nullcontext() if self.settings.preview_latents_only else self.decoding():
            while self.unwritten:
                record, latents, described, picture, told = self.unwritten[0]
                self.before_decoding()
                if described["kind"] != "control":
                    path, line = record.parent / PROMPTS, " ".join(described["prompt"].split())
                    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
                    if line not in lines:
                        write_text(path, "".join(f"{each}\n" for each in (*lines, line)))
                write_named(described, picture, told, self.shape.fps)
                if self.settings.preview_latents_only:
                    heard = {} if latents.sound is None else {SOUND: latents.sound.contiguous()}
                    tensors = {LATENTS: latents.picture.contiguous(), **heard}
                    write_bytes(record.with_suffix(".safetensors"), save(tensors))
                    write_json(record, described)
                else:
                    frames, sound = decoded(self.family, self.folder, self.vae, latents, described)
                    video, root = record.with_suffix(".mp4"), record.parents[4]
                    write_sample(video, frames, self.shape.fps, described, root, sound)
                self.unwritten.pop(0)

    def generate_live(
        self,
        step: int,
        transformer: Any,
        prompt: PreviewPrompt,
        seed: int,
        negative: Tensors,
        on_step: OnStep,
        scale: float,
        began: float,
    ) -> None:
        """Generate a live sample for the run's folder and, if it has a sample's settings, for the samples.

        Raises CannotWrite. began: when the work for it began, as a time.monotonic() value
        """
        missing = MissingPreview(prompt, seed, "0")
        (latents,) = self.generate_latents(transformer, [missing], negative, on_step, scale)
        if not self.writes:
            return
        record = self.describe(step, missing, scale)
        write_named(record, prompt.image, self._conditioning_files(missing), self.shape.fps)
        with self.decoding():
            frames, sound = decoded(self.family, self.folder, self.vae, latents, record)
        record |= {"kind": "live", "seconds": round(time.monotonic() - began, 3)}
        folder, fps, workspace = step_folder(self.run, step), float(record["fps"]), Workspace.of(self.run)
        number = len(list(folder.glob("live-*.json")))
        write_sample(folder / f"live-{number}.mp4", frames, fps, record, workspace.root, sound)
        if "settings" not in record:
            return
        settings = self.settings
        lora = {
            "name": f"runs/{self.run.name}@{step}",
            "scale": scale,
            "rank": settings.rank,
            "alpha": settings.alpha or settings.rank,
            "base_model": self.model.title,
            "origin": "the weights of a run while it trained",
        }
        beside = [{"name": one.name, "scale": one.scale} for one in self._beside]
        live = {**record, "loras": beside + [lora] if settings.method != "full" and scale else []}
        write_sample(video_path(workspace, new_id()), frames, fps, live, workspace.root, sound)

    def save_inputs(self, clips: Sequence[PreviewClip]) -> None:
        """Write, for step 0, each clip as the model sees it and as the VAE reconstructs it."""
        folder = step_folder(self.run, 0)
        missing = [
            (index, clip) for index, clip in enumerate(clips) if not (folder / f"reconstruction-{index}.json").exists()
        ]
        if not missing:
            return
        with self.decoding():
            for index, clip in missing:
                self.before_decoding()
                no_noise = torch.zeros(1, *clip.latents_shape, device=self.device)  # the posterior's mean
                decoded = self.family.decode(self.vae, self.family.sample_latents(clip.moments, no_noise))
                count = clip.video.shape[2]
                for kind, video in (("input", clip.video), ("reconstruction", decoded)):
                    frames = frames_of(video, count)
                    _, height, width, _ = frames.shape
                    record = {
                        "kind": kind,
                        "prompt": clip.caption,
                        "clip": clip.name,
                        "run": self.run.name,
                        "step": 0,
                        "model": self.model.id,
                        "frames": count,
                        "height": height,
                        "width": width,
                        "fps": self.shape.fps,
                    }
                    write_sample(folder / f"{kind}-{index}.mp4", frames.numpy(), self.shape.fps, record)

    # ---- records

    @property
    def generated_with(self) -> Model:
        """The model with the sampling values of previews in place of its own."""
        model, settings, guidance = self.model, self.settings, self.settings.preview_guidance
        return replace(
            model,
            steps=settings.preview_steps or model.steps,
            guidance_scale=model.guidance_scale if guidance is None else guidance,
            guidance_scale_2=model.guidance_scale_2 if guidance is None else None,  # the run's own is for both experts
            flow_shift=settings.preview_flow_shift or model.flow_shift_at(self.shape.height, self.shape.width),
            small_flow_shift=None,
            dynamic_guidance=settings.preview_dynamic_guidance,
        )

    def describe(self, step: int, preview: MissingPreview, scale: float) -> dict[str, Any]:
        """Return the record of a preview at a LoRA scale."""
        shape, settings, model, (prompt, seed, name) = self.shape, self.settings, self.generated_with, preview
        second = model.guidance_scale if model.guidance_scale_2 is None else model.guidance_scale_2
        optional = {"guidance_scale_2": second if model.boundary else None, "flow_shift": model.flow_shift}
        inputs = {
            "prompt": prompt.prompt,
            "seed": seed,
            "steps": model.steps,
            "guidance_scale": model.guidance_scale,
            "dynamic_guidance": settings.preview_dynamic_guidance,
            **{name: value for name, value in optional.items() if value is not None},
            **({"speed": "fast"} if settings.skips_preview_steps else {}),
            "frames": shape.frames,
            "height": shape.height,
            "width": shape.width,
        }
        kind = "latents" if settings.preview_latents_only else "sample"
        record = {
            **inputs,
            "kind": kind if prompt.control is None else "control",
            "run": self.run.name,
            "step": step,
            "scale": scale,
            "model": self.model.id,
            "fps": shape.fps,
            **({"told": prompt.told} if prompt.told else {}),
        }
        loras = self._loras(step, scale)
        told = self._conditioning_files(preview)
        unconditioned = not settings.tells and self.family.joins_conditioning(self.model)
        repeatable = (prompt.given is None or bool(told) or unconditioned) and prompt.control is None
        if loras is not None and repeatable and shape.frames in self.model.frame_counts:
            sample: dict[str, Any] = {**inputs, "model": settings.model, "loras": loras}
            if prompt.image is not None:
                path = self.run / "previews" / f"picture-{name}.png"
                sample |= {"image": str(path), "image_scale": settings.image_latent_scale}
            for file in told:
                value: Any = str(file.path)
                if file.setting == "keyframes":
                    value = [*sample.get("keyframes", ()), f"{value}={file.more['keyframes']}"]
                sample |= {**file.more, file.setting: value}
            record["settings"] = sample
        return record

    def _conditioning_files(self, preview: MissingPreview) -> list[ConditioningFile]:
        folder, item, learned = self.run / "previews", preview.prompt.item, self.settings.sound
        if item is None or learned not in GIVEN_STREAM:
            return conditioning_files(folder, preview.prompt, self.settings)
        name = "given_sound" if learned == PICTURE_FOR_SOUND else "given_video"
        path = folder / f"told-{item.sha256[:8]}-{name}.mp4"
        return [ConditioningFile(name, path, partial(read_video, item), {}, partial(read_clip_sound, item, GIVEN_RATE))]

    def _loras(self, step: int, scale: float) -> list[str] | None:
        """Return the LoRAs that give a sample the weights of that step; None if no file holds them."""
        settings, beside = self.settings, [f"{one.name}={one.scale:g}" for one in self._beside]
        if step == 0 and not settings.start_from:
            return beside
        if settings.method == "full" or settings.train_also:
            return None
        if scale == 0:
            return beside
        if step == 0:
            return [*beside, f"{settings.start_from}={scale:g}"]
        if step == settings.steps:
            return [*beside, f"{self.run.name}={scale:g}"]
        averaged = settings.ema_decay > 0 or settings.optimizer == "schedule-free"
        return None if averaged else [*beside, f"{folder_of(self.run, step) / LORA}={scale:g}"]

    @property
    def _beside(self) -> list[FrozenLora]:
        """The frozen LoRAs that are on in previews."""
        return [one for one in self.frozen.loras if one.setting in IN_PREVIEWS]

    def missing(self, prompt: PreviewPrompt, seed: int) -> MissingPreview:
        """Return the preview to generate for a prompt and seed, whose number stays the same after a resume."""
        if prompt.control is not None:
            return MissingPreview(prompt, seed, f"control-{prompt.control}")
        if not self._numbers:
            folders = step_folders(self.run / "previews").values()
            for path in (path for folder in folders for path in folder.glob("*.json")):
                known = read_object(path)
                if path.stem.isdecimal() and {"prompt", "seed"} <= set(known):
                    self._numbers.setdefault((str(known["prompt"]), known["seed"]), int(path.stem))
        following = max(self._numbers.values(), default=-1) + 1
        return MissingPreview(prompt, seed, str(self._numbers.setdefault((prompt.prompt, seed), following)))

    # ---- latents

    @contextlib.contextmanager
    def decoding(self) -> Iterator[None]:
        """Exchange the transformer for the VAE on the device."""
        with self.offload_transformer(), self._vae_on_device():
            yield

    @contextlib.contextmanager
    def _vae_on_device(self) -> Iterator[None]:
        """Put the VAE on the device; take it off a GPU afterwards."""
        if self.vae is None:
            self.vae = load_vae(self.family, self.folder, self.dtype, self.shape.height)
        try:
            self.vae.to(self.device)
            yield
        finally:
            if self.device.type == "cuda":
                self.vae.to(torch.device("cpu"))
                free_memory()

    def generate_latents(
        self,
        transformer: Any,
        missing: Sequence[MissingPreview],
        negative: Tensors,
        on_step: OnStep,
        scale: float = 1.0,
    ) -> Iterator[Latents]:
        """Yield the latents of every preview, on the host. The VAE is off the device while the transformer runs."""
        transformer.eval()
        noises = [torch.Generator().manual_seed(each.seed) for each in missing]
        model = self.generated_with
        guidance = Guidance(
            model.guidance_scale,
            model.dynamic_guidance,
            second=model.guidance_scale_2,
            below=1000 * model.boundary,
        )
        latents_shape = self._latents_shape
        with at_scale(transformer, scale), self._experts(transformer) as at_timestep:
            givens = self._givens(missing, noises)
            for done, (each, noise, given) in enumerate(zip(missing, noises, givens, strict=True)):

                def report(at: int, total: int, _: torch.Tensor, done: int = done) -> None:
                    on_step(done * total + at, len(missing) * total)

                inputs = DenoiseInputs(
                    self.folder,
                    self._on_device(each.prompt.text),
                    self._on_device(negative),
                    latents_shape,
                    model.steps,
                    guidance,
                    noise,
                    flow_shift=model.flow_shift,
                    on_step=report,
                    given=given,
                    skip_steps=self.settings.skips_preview_steps,
                    fps=self.shape.fps,
                    at_timestep=at_timestep,
                    sound=each.prompt.sound,
                    picture=each.prompt.picture,
                )
                latents, sound = self.family.denoise_with_sound(transformer, inputs)
                yield Latents(latents.float().cpu(), None if sound is None else sound.float().cpu())

    @contextlib.contextmanager
    def _experts(self, trained: Any) -> Iterator[Callable[[float], Any] | None]:
        """Yield a function that returns the transformer for a timestep; None if the model has only one.

        Of two, the one that is not in training has its published weights. Only one is on the device at a time; at the
        end it is the one in training.
        """
        if not self.model.boundary:
            yield None
            return
        settings = self.settings.changed(compile=False, gradient_checkpointing="none")
        own = self.model.expert(settings.expert)
        (other,) = (one for one in self.model.experts if one != own)
        published = self.family.load_transformer(self.folder, torch.device("cpu"), self.dtype, other.part)
        self.family.use_attention(published, settings.attention, self.device)
        prepared = published_computes = False  # prepared: it has its memory levels and frozen LoRAs
        trained_aside, published_aside = contextlib.ExitStack(), contextlib.ExitStack()

        def at(timestep: float) -> Any:
            nonlocal prepared, published_computes
            needed = not own.covers(timestep)
            if needed and not published_computes:
                trained_aside.enter_context(self.offload_transformer())
                if not prepared:
                    apply_memory_levels(self.family, published, settings, self.device)
                    self.frozen.attach(self.family, published, self.model.title, other.name, trained=False)
                    prepared = True
                published_aside.close()
            elif published_computes and not needed:
                published_aside.enter_context(parked(published))
                trained_aside.close()
            published_computes = needed
            return published if needed else trained

        try:
            with trained_aside:
                yield at
        finally:
            free_memory()

    def _on_device(self, text: Tensors) -> dict[str, torch.Tensor]:
        return {name: value.to(self.device, self.dtype) for name, value in text.items()}

    @property
    def _latents_shape(self) -> tuple[int, ...]:
        shape = self.shape
        return self.family.latents_shape(self.folder, shape.frames, shape.height, shape.width)

    def _givens(self, missing: Sequence[MissingPreview], noises: Sequence[torch.Generator]) -> list[Given | None]:
        """Return the conditioning of each preview; None for models without any."""
        known = [each.prompt.given for each in missing]
        if self.model.task != "image-to-video" or all(given is not None for given in known):
            return known
        family, dtype = self.family, self.family.vae_dtype(self.dtype)
        with self._vae_on_device():
            image_encoder = family.load_image_encoder(self.folder, self.device, dtype)
            for index, (each, noise) in enumerate(zip(missing, noises, strict=True)):
                if known[index] is None:  # encode the picture as the stock pipeline does
                    assert each.prompt.image is not None, "an image-to-video model needs a picture"
                    scale = self.settings.image_latent_scale
                    image = family.encode_image(self.vae, image_encoder, each.prompt.image, self.shape.frames, scale)
                    known[index] = family.given_to_sample(self.folder, image, self._latents_shape, noise, dtype)
        return known


@contextlib.contextmanager
def at_scale(transformer: Any, scale: float) -> Iterator[None]:
    """Set the LoRA's scale. Raises ConfigError if there is no LoRA."""
    if scale == 1.0:
        yield
        return
    if not getattr(transformer, "peft_config", None):
        raise ConfigError(f"the LoRA scale of a preview is {scale:g}, but this run trains no LoRA: use 1")
    if scale == 0.0:
        # At a scale of 0, DoRA would still change the weights' magnitudes.
        transformer.disable_adapters()
        try:
            yield
        finally:
            transformer.enable_adapters()
        return
    with scaled(transformer, scale):
        yield


def load_vae(family: Family, folder: Path, dtype: torch.dtype, height: int) -> Any:
    """Load the VAE on the CPU, with tiling for large frames. dtype: the transformer's"""
    vae = family.load_vae(folder, torch.device("cpu"), family.vae_dtype(dtype))
    if height >= TILED_FROM:
        vae.enable_tiling()
        vae.enable_slicing()
    return vae


def decoded(
    family: Family, folder: Path, vae: Any, latents: Latents, record: Mapping[str, Any]
) -> tuple[np.ndarray, Sound | None]:
    """Return a preview's frames, floats [F, H, W, 3] in [0, 1], and its sound, which a decoder is loaded for.

    What its record says was given to it is read from the file instead, frames as uint8.
    """
    given = given_back(record)
    frames = given.frames
    if frames is None:
        frames = frames_of(family.decode(vae, latents.picture), record["frames"]).numpy()
    if given.sound is not None or latents.sound is None:
        return frames, given.sound
    return frames, family.decode_sound(family.load_sound_decoder(folder, *device_and_dtype(vae)), latents.sound)


# ---- files


def step_folder(run: Path, step: int) -> Path:
    return run / "previews" / f"step-{step:08d}"


def record_path(folder: Path, name: str, scale: float) -> Path:
    return folder / (f"{name}.json" if scale == 1.0 else f"{name}-scale-{scale:g}.json")


def write_named(
    described: dict[str, Any], image: torch.Tensor | None, told: Sequence[ConditioningFile], fps: float
) -> None:
    """Write the files that a record's settings refer to, unless they exist. Raises CannotWrite."""
    if "settings" not in described:
        return
    named = described["settings"].get("image")
    if image is not None and named is not None and not Path(named).exists():
        write_png(Path(named), image)
    for one in told:
        if one.path.exists():
            continue
        pixels = one.read()
        if one.path.suffix == ".png":
            write_png(one.path, pixels[:, :, 0])
        else:
            frames = (frames_of(pixels, pixels.shape[2]) * 255).round().clamp(0, 255).byte().numpy()
            with replacing(one.path) as temporary:
                media.encode(frames, temporary, fps, crf=None)
                if one.heard is not None:
                    write_sound(temporary, one.heard().numpy(), GIVEN_RATE)


def write_png(path: Path, image: torch.Tensor) -> None:
    """Write a picture [1, 3, H, W] in [-1, 1] as PNG."""
    pixels = ((image[0].float().cpu().permute(1, 2, 0) + 1) * 127.5).round().clamp(0, 255).byte().numpy()
    write_bytes(path, media.png(pixels))


# ---- a job that decodes previews kept as latents: python -m workbench.trainer.previewer runs/NAME/.decode


def decode_latents(run: Path, device: Device, report: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Decode the previews that a run kept as latents and return their number. The latents stay.

    Raises ConfigError, ModelUnavailable.
    """
    records = [path for folder in step_folders(run / "previews").values() for path in sorted(folder.glob("*.json"))]
    waiting = [(path, record) for path in records if (record := read_object(path)).get("kind") == "latents"]
    if not waiting:
        return 0
    family, model = find_model(base_model(run, waiting[0][1]["model"]))
    folder = family.fetch(model)
    dtype = torch.float32 if device.kind == "cpu" else getattr(torch, family.auto_dtype(family.stored_dtype(folder)))
    vae = load_vae(family, folder, dtype, waiting[0][1]["height"]).to(torch.device(device.torch_name))
    for done, (path, record) in enumerate(waiting):
        report(done, len(waiting))
        tensors = load_file(path.with_suffix(".safetensors"), device=str(vae.device))
        frames, sound = decoded(family, folder, vae, Latents(tensors[LATENTS], tensors.get(SOUND)), record)
        made = {**record, "kind": "sample"}
        write_sample(path.with_suffix(".mp4"), frames, record["fps"], made, run.parent.parent, sound)
    report(len(waiting), len(waiting))
    return len(waiting)


def decode(job: jobs.Job) -> None:
    """Decode the previews of the run that contains the job's folder."""
    run = job.folder.parent
    device = pick_device(TrainSettings.load(run / jobs.CONFIG).device)
    count = decode_latents(run, device, lambda done, total: job.beat("decoding previews", done, total))
    job.outcome = {"decoded": count}


if __name__ == "__main__":
    sys.exit(jobs.Job.main(decode))

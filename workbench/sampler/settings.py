"""The settings of one sample, of a batch of samples, and of the sampling worker."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import field_validator

from workbench.errors import ConfigError
from workbench.families import default_model, known_model
from workbench.families.denoising import Curve
from workbench.families.settings import NamesModel
from workbench.families.told import BESIDE
from workbench.jobs.devices import DeviceChoice
from workbench.settings import Settings, field

WHAT, HOW, SHAPE, SPEED = "What", "Guidance", "Shape", "Speed"
SEEDS = 2**31
MOST_AT_ONCE = 1000  # videos of one request
MARK = "@@"  # before what a line has of its own: PROMPT@@PICTURE as in SAT's lists
# Frames, and how many of them are taken over. Up to nine digits: Python refuses to read thousands of them.
LENGTHS = re.compile(r"(?P<frames>[0-9]{1,9})?\s*(keep\s+(?P<kept_frames>[0-9]{1,9}))?")
PICTURES = re.compile(r"(?:^|\s+)(last|key)=")  # before a picture of the line's own: last=FILE, key=FILE=FRAME

Speed = Literal["exact", "fast", "low-memory"]
Kind = Literal["picture", "video"]
# Which settings name a file that goes into a video; each line of `keyframes` names a picture, too.
INPUT_FILES: dict[str, Kind] = {
    "image": "picture",
    "last_image": "picture",
    "video": "video",
    "continue_from": "video",
    "continue_to": "video",
    "mask": "video",
    "control": "video",
    "reference": "video",  # or a picture
}


class SampleSettings(NamesModel):
    """Everything that makes a sample; stored as JSON beside the mp4 and inside it."""

    model: str = field(default_model(), title="Model", section=WHAT, source="models", path=True)
    """The video model: a known name, a folder with its weights in diffusers' layout, or OWNER/NAME of a model on the
    Hub in that layout."""

    revision: str = field("", title="Revision", section=WHAT, advanced=True)
    """Of a model on the Hub: a branch, a tag or a commit. It becomes part of the model's name, as the commit that it
    stands for when the work begins. Empty: the pinned commit of a known model, else the newest."""

    variant: str = field("", title="Variant", section=WHAT, advanced=True)
    """Of a model on the Hub: which of its sets of weights is read, such as fp16, where it has several. It becomes part
    of the model's name. Empty: the weights without a variant."""

    prompt: str = field("", title="Prompt", section=WHAT, lines=2)
    """What the video shows."""

    negative_prompt: str | None = field(None, title="Negative prompt", section=WHAT)
    """What the video should not show; the guidance pushes away from it. Not set: the model's own, which a form shows;
    it may be empty."""

    unconditional: Literal["auto", "empty prompt", "zeros"] = field(
        "auto", title="Without a negative prompt", section=HOW, advanced=True
    )
    """What guidance pushes away from when there is no negative prompt. empty prompt: the embedding of an empty prompt,
    as in diffusers. zeros: no embedding, as in SAT. auto: whichever the LoRA or the model was trained with (the
    training setting dropped_caption)."""

    image: str = field("", title="First frame", section=WHAT, path=True)
    """A picture's file (PNG, JPEG, WebP or BMP) that the video begins with, for models that can be told a first frame.
    It is scaled and cropped to the video's size."""

    video: str = field("", title="Video to change", section=WHAT, advanced=True, path=True)
    """A video's file: the new video keeps its shapes and movements and follows the prompt in the rest. For
    text-to-video models."""

    strength: float = field(0.8, title="Strength of the change", section=WHAT, low=0.05, high=1.0, advanced=True)
    """How far the video may move away from the one it changes: 1 keeps nothing of it."""

    continue_from: str = field("", title="Continue a video", section=WHAT, advanced=True, path=True)
    """A video's file: the new video begins with its last frames and goes on from there."""

    kept_frames: int | None = field(
        None, title="Frames taken over", section=WHAT, low=1, high=1000, unit="frames", advanced=True
    )
    """How many of the last frames of the video that is continued, or of the scene before, the new one begins with.
    More keeps more of its movement. Empty: as many as the model's shortest clip has."""

    tell_frames: bool = field(False, title="Tell the frames taken over", section=WHAT, advanced=True, own=True)
    """Also give the frames taken over to the model as frames it knows, for LoRAs trained with given prefix. Off: they
    are only put back at each step."""

    continue_to: str = field("", title="Video that follows", section=WHAT, advanced=True, path=True, own=True)
    """A video's file that the new one leads up to: it ends with that video's first frames. For LoRAs trained with given
    suffix."""

    following_frames: int | None = field(
        None, title="Frames of what follows", section=WHAT, low=1, high=1000, unit="frames", advanced=True, own=True
    )
    """How many of the first frames of the video that follows the new one ends with: as many as its LoRA was trained
    with. Empty: as many as the model's shortest clip has."""

    last_image: str = field("", title="Last frame", section=WHAT, path=True, own=True)
    """A picture's file that the video ends with."""

    keyframes: tuple[str, ...] = field((), title="Keyframes", section=WHAT, lines=2, advanced=True, path=True, own=True)
    """Pictures that the video passes through, FILE=FRAME, one a line: door.png=16, counted from 0."""

    mask: str = field("", title="Mask", section=WHAT, advanced=True, path=True, own=True)
    """A video's file, white and black: where it is white, the video to change is made anew, all else is given to the
    model as it is."""

    mask_keeps: Literal["outside", "inside"] = field(
        "outside", title="What the mask keeps", section=WHAT, advanced=True, own=True
    )
    """outside: what is white is made anew (inpainting). inside: what is white is kept (outpainting)."""

    control: str = field("", title="Control video", section=WHAT, advanced=True, path=True, own=True)
    """A video's file that the new video follows frame by frame: edges, depth, poses, as the model or its LoRA was
    trained with."""

    reference: str = field("", title="Reference", section=WHAT, advanced=True, path=True, own=True)
    """A video's or picture's file that an in-context LoRA makes the new video of. It is shown as much smaller as the
    LoRA's file says. Of Wan VACE a picture: what the video shows."""

    loras: tuple[str, ...] = field((), title="LoRAs", section=WHAT, source="loras", lines=2, path=True)
    """Any number of LoRAs, each a run's name, a .safetensors file or OWNER/NAME on the Hub, with =SCALE behind it if
    not 1: ring=0.8"""

    force_loras: bool = field(False, title="Use LoRAs that do not fit", section=WHAT, advanced=True)
    """Load a LoRA although most of it belongs to another model; what does not fit is left out."""

    guidance_scale: float | None = field(None, title="Guidance", section=HOW, low=0.0, high=50.0)
    """Guidance scale: how closely the video follows the prompt. Empty: the model's own value. 1 turns guidance off."""

    guidance_scale_2: float | None = field(
        None, title="Guidance scale, low noise", section=HOW, low=0.0, high=50.0, advanced=True, own=True
    )
    """Of the steps that the transformer for low noise computes. Empty: the model's own value."""

    conditioning_scale: float = field(
        1.0, title="Conditioning scale", section=HOW, low=0.0, high=10.0, advanced=True, own=True
    )
    """How strongly a model with a side branch (VACE) follows what it is told: frames, masks, control videos and
    references. Below 1 more freely, at 0 not at all."""

    dynamic_guidance: Curve = field("off", title="Dynamic guidance", section=HOW, advanced=True)
    """stock: as CogVideoX's authors (SAT's DynamicCFG) and diffusers' use_dynamic_cfg compute it: the scale jumps
    between 1 and 1 more than the one above from step to step. cosine: it rises evenly between the two, which neither of
    them does."""

    guidance_from: float = field(0.0, title="Guidance from", section=HOW, low=0.0, high=1.0, advanced=True)
    """Part of the denoising steps after which guidance begins; before, the prompt alone decides."""

    guidance_until: float = field(1.0, title="Guidance until", section=HOW, low=0.0, high=1.0, advanced=True)
    """Part of the denoising steps after which guidance ends. A step without guidance takes half the time."""

    guidance_rescale: float = field(0.0, title="Guidance rescale", section=HOW, low=0.0, high=1.0, advanced=True)
    """Take back what guidance adds to contrast: 0 nothing, 0.7 is usual with a high scale, 1 all of it."""

    zero_star: bool = field(False, title="CFG-Zero*", section=HOW, advanced=True)
    """Fit the negative prompt's prediction to the prompt's before guidance pushes them apart (arXiv 2503.18886). Its
    other half, zeros in the first step of flow models (Wan, LTX-Video, Mochi), is left out."""

    image_scale: Literal["pipeline", "raw"] = field(
        "pipeline", title="Scale of the first frame", section=HOW, advanced=True, own=True
    )
    """pipeline: as diffusers does. raw: unscaled, for LoRAs that were trained so."""

    steps: int | None = field(None, title="Steps", section=HOW, low=1, high=1000, unit="steps")
    """Denoising steps. More is finer and slower. Empty: the model's own number."""

    scheduler: str = field("model", title="Scheduler", section=HOW, source="schedulers", advanced=True)
    """How noise is removed. model: what the model was published with. CogVideoX has DDIM and DPM."""

    flow_shift: float | None = field(
        None, title="Flow shift", section=HOW, low=0.1, high=100.0, advanced=True, own=True
    )
    """Moves the steps' noise levels s to shift * s / (1 + (shift - 1) * s): above 1 more steps at much noise, which
    decide shapes and movement. Empty: the model's own value; of Wan 2.1's image models 3 up to 832x480 and 5 above, as
    in their authors' generate.py."""

    temperature: float | None = field(
        None, title="Temperature", section=HOW, low=0.0, high=10.0, advanced=True, own=True
    )
    """How freely codes are sampled: it falls evenly from this value to 0 in the last step. Higher: more variety and
    more mistakes. Empty: the model's own value."""

    seed: int | None = field(None, title="Seed", section=HOW, low=0, high=SEEDS - 1)
    """The same seed and settings give the same video. Empty: another one each time; the video says which."""

    frames: int | None = field(None, title="Frames", section=SHAPE, low=1, high=1000, unit="frames")
    """Length of the video. Empty: what the model was made for."""

    height: int | None = field(None, title="Height", section=SHAPE, low=16, high=4096, unit="pixels")
    """Empty: what the model was made for."""

    width: int | None = field(None, title="Width", section=SHAPE, low=16, high=4096, unit="pixels")
    """Empty: what the model was made for."""

    fps: float | None = field(None, title="Frames per second", section=SHAPE, low=1.0, high=120.0, advanced=True)
    """How fast the video plays. Models that know the frame rate generate for it, others the same frames. Empty: what
    the model was made for."""

    latents_only: bool = field(False, title="Save latents only", section=SHAPE, advanced=True)
    """Keep the latents (Phenaki: the codes) as a safetensors file and do not decode them. `workbench samples decode ID`
    makes the video later, the same one."""

    device: DeviceChoice = field("auto", title="Device", section=SHAPE, source="devices", advanced=True)
    """auto takes the first GPU that torch can use, else the processor. cuda:1: that GPU of several, counted from 0."""

    speed: Speed = field("exact", title="Speed", section=SPEED, advanced=True)
    """exact: as diffusers. fast: step skipping: 0.63 to 0.72 of the time, much the same video (with CogVideoX 39 dB or
    more, with DPM now and then another one). low-memory: weights in 8 bits (45 dB or more), model offload, for a GPU
    that is too small; slower."""

    attention: Literal["auto", "cudnn", "flash", "efficient", "flash-attn", "math", "stock"] = field(
        "auto", title="Attention", section=SPEED, advanced=True
    )
    """The kernel that computes attention. auto takes the fastest that this GPU has."""

    @field_validator("keyframes")
    @classmethod
    def _legal_keyframes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        parse_keyframes(value)
        return value

    @property
    def told(self) -> dict[str, str]:
        """Kind of `families.told` -> the setting that tells it; not of a first frame alone, which models begin with."""
        found: dict[str, str] = {}
        if self.mask:
            found["mask"] = "mask"
        if self.keyframes:
            found["keyframes"] = "keyframes"
        if self.tell_frames and self.continue_from:
            found["prefix"] = "tell_frames"
        if self.continue_to:
            found["suffix"] = "continue_to"
        if self.last_image:
            begins = self.image or self.continue_from or self.keyframes
            found["first+last" if begins else "last"] = "last_image"
        return found | {name: name for name in BESIDE if getattr(self, name)}

    def settled(self) -> SampleSettings:
        """The same with a random seed where it was left empty."""
        return self if self.seed is not None else self.changed(seed=secrets.randbelow(SEEDS))


def parse_keyframes(lines: Sequence[str]) -> dict[int, str]:
    """Frame -> picture's file of lines such as door.png=16. Raises ValueError with a sentence."""
    found: dict[int, str] = {}
    for line in lines:
        file, _, frame = line.strip().rpartition("=")
        if not file or not re.fullmatch(r"[0-9]{1,6}", frame):
            raise ValueError(f"keyframes has {line[:120]!r}: write FILE=FRAME, counted from 0, as in door.png=16")
        if int(frame) in found:
            raise ValueError(f"keyframes has frame {int(frame)} twice: give each frame one picture")
        found[int(frame)] = file
    return found


class BatchSettings(Settings):
    """How many samples one request makes."""

    each_line: bool = field(False, title="A prompt a line", section=WHAT, advanced=True)
    """Each line of the prompt is a prompt of its own. A line may end with @@ and a first frame of its own, or its own
    number of frames, and with pictures that it ends with or passes through: a ship leaves the harbour@@ship.png, or
    @@33, @@33 last=port.png, @@key=pier.png=16"""

    videos: int = field(1, title="Videos", section=WHAT, low=1, high=100)
    """How many of each prompt: seeds count up from the seed, or are random where it is empty."""

    scenes: bool = field(False, title="Lines are scenes", section=WHAT, advanced=True)
    """Each line of the prompt is a scene that goes on from the last frames of the line before. After them comes one
    video of all, in which no frame is twice. A line may end with @@ and its own number of frames, those that it takes
    over counted, how many it takes over, and pictures of its own, the last frame and keyframes: @@17, @@17 keep 5,
    @@keep 5 last=door.png or @@key=hall.png=8. The form's last frame, and a video that follows, are those of the last
    scene."""

    @property
    def chains(self) -> int:
        """How many requests before it the one is that a scene goes on from, as `queue.submit_all` takes it."""
        return self.videos if self.scenes else 0


class WorkerSettings(Settings):
    """How the sampling worker behaves; samples/.worker/config.json."""

    idle_seconds: float = field(
        120.0, title="Stay warm", section="Worker", unit="seconds", low=0.0, high=86400.0, advanced=True
    )
    """How long the model stays loaded after the last request."""


def expand(settings: SampleSettings, batch: BatchSettings) -> list[SampleSettings]:
    """One sample's settings for every prompt and seed, seeds first; every seed is set.

    Raises ConfigError for more than MOST_AT_ONCE.
    """
    every = settings.prompt.splitlines() if batch.each_line or batch.scenes else []
    prompts, lines = [], [line for line in every if line.strip()]
    if (count := max(1, len(lines)) * batch.videos) > MOST_AT_ONCE:
        sentence = f"{count:,} videos are requested at once, at most {MOST_AT_ONCE:,} are allowed: request fewer"
        raise ConfigError(sentence, {"videos" if batch.videos > 1 else "prompt": sentence})
    for number, line in enumerate(lines):
        prompt, mark, own = (part.strip() for part in line.partition(MARK))
        # How a story ends is a matter of its last scene.
        more: dict[str, Any] = {"continue_to": "", "last_image": ""} if batch.scenes and number < len(lines) - 1 else {}
        if mark:
            own, *pictures = PICTURES.split(own)
            match = LENGTHS.fullmatch(own)
            lengths = match.groupdict() if match else {}
            more |= {name: int(text) for name, text in lengths.items() if text}
            if own and not match:
                more["image"] = own
            named = list(zip(pictures[::2], pictures[1::2], strict=True))
            if last := [file for name, file in named if name == "last"]:
                more["last_image"] = last[-1]
            if keys := [file for name, file in named if name == "key"]:
                more["keyframes"] = keys
        prompts.append(settings.changed(prompt=prompt, **more))
    found = []
    for one in prompts or [settings]:
        for number in range(batch.videos):
            seed = None if settings.seed is None else (settings.seed + number) % SEEDS
            found.append(one.changed(seed=seed).settled())
    return found


def joined_settings(scenes: Sequence[SampleSettings]) -> SampleSettings:
    """The settings that make a story again: those of its first scene, with a line of the prompt a scene.

    What differs from scene to scene is in its line: its number of frames, how many it takes over, its own pictures.
    """
    shared = {
        name: found.pop() if len(found := {getattr(one, name) for one in scenes}) == 1 else empty
        for name, empty in (("frames", None), ("kept_frames", None), ("keyframes", ()))
    }
    lines = []
    for one in scenes:
        own = [] if one.frames == shared["frames"] else [str(one.frames)]
        own += [] if one.kept_frames == shared["kept_frames"] else [f"keep {one.kept_frames}"]
        own += [f"last={one.last_image}"] if one.last_image and one is not scenes[-1] else []
        own += [] if one.keyframes == shared["keyframes"] else [f"key={line}" for line in one.keyframes]
        lines.append(f"{one.prompt}{MARK}{' '.join(own)}" if own else one.prompt)
    shared |= {name: getattr(scenes[-1], name) for name in ("last_image", "continue_to")}
    return scenes[0].changed(prompt="\n".join(lines), **shared)


# ---- which settings have an effect ----------------------------------------------------------------------------------


def chosen_model(values: Mapping[str, Any]) -> Any:
    """The chosen model; None for one that is not known."""
    found = known_model(str(values["model"]))
    return found and found.model


def _guided(values: Mapping[str, Any]) -> bool:
    """Whether the video is pushed away from the negative prompt."""
    scale, model = values["guidance_scale"], chosen_model(values)
    scale = getattr(model, "guidance_scale", None) if scale is None else scale
    return not isinstance(scale, int | float) or scale > 1


def _image(values: Mapping[str, Any]) -> bool:
    """Whether the model begins with a picture; true for one that is not known."""
    found = known_model(str(values["model"]))
    return found is None or found.model.task != "text-to-video" or not found.family.refusal(found.model, "first")


def _told(kind: str) -> Callable[[Mapping[str, Any]], bool]:
    """Whether the model can be told a kind; true for one that is not known."""

    def told(values: Mapping[str, Any]) -> bool:
        found = known_model(str(values["model"]))
        return found is None or not found.family.refusal(found.model, kind)

    return told


def _schedulers(values: Mapping[str, Any]) -> bool:
    """Whether there is a scheduler to choose."""
    found = known_model(str(values["model"]))
    return found is None or len(found.family.schedulers) > 1


# Setting -> whether it has an effect beside raw values, so that forms can hide it; those not named here always have.
HAS_EFFECT: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    **dict.fromkeys(("image", "image_scale"), _image),
    "scheduler": _schedulers,
    **dict.fromkeys(
        ("negative_prompt", "dynamic_guidance", "guidance_from", "guidance_until", "guidance_rescale", "zero_star"),
        _guided,
    ),
    **dict.fromkeys(("height", "width"), lambda values: not getattr(chosen_model(values), "fixed_size", False)),
    "video": lambda values: getattr(chosen_model(values), "task", "") != "image-to-video" or _told("mask")(values),
    "strength": lambda values: bool(values["video"]) and not values["mask"],
    "mask": lambda values: bool(values["video"]),
    "mask_keeps": lambda values: bool(values["mask"]),
    "tell_frames": lambda values: bool(values["continue_from"]),
    "following_frames": lambda values: bool(values["continue_to"]),
    "force_loras": lambda values: bool(values["loras"]),
}

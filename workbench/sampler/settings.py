"""The settings of one sample, of a batch of samples, and of the sampling worker."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import field_validator

from workbench.errors import ConfigError
from workbench.families import default_model, known_model
from workbench.families.conditioning import BESIDE
from workbench.families.denoising import Curve
from workbench.families.settings import NamesModel
from workbench.jobs.devices import DeviceChoice
from workbench.settings import Settings, field

WHAT, HOW, SHAPE, SPEED = "What", "Guidance", "Shape", "Speed"
SEEDS = 2**31
MOST_AT_ONCE = 1000  # videos per request
MARK = "@@"  # separates a line's prompt from its own settings: PROMPT@@PICTURE as in SAT's lists
# Frames, and how many of them are taken over. At most nine digits, because Python refuses to parse huge numbers.
LENGTHS = re.compile(r"(?P<frames>[0-9]{1,9})?\s*(keep\s+(?P<kept_frames>[0-9]{1,9}))?")
PICTURES = re.compile(r"(?:^|\s+)(last|key)=")  # a line's own pictures: last=FILE, key=FILE=FRAME

Speed = Literal["exact", "fast", "low-memory"]
Kind = Literal["picture", "video", "sound"]
# Settings that name an input file. Each line of `keyframes` names a picture as well.
INPUT_FILES: dict[str, Kind] = {
    "image": "picture",
    "last_image": "picture",
    "video": "video",
    "continue_from": "video",
    "continue_to": "video",
    "mask": "video",
    "control": "video",
    "reference": "video",  # or a picture
    "given_sound": "sound",  # or a video
    "given_video": "video",
}


class SampleSettings(NamesModel):
    """Everything that determines a sample; stored as JSON beside the mp4 and inside it."""

    model: str = field(default_model(), title="Model", section=WHAT, source="models", path=True)
    """The video model: a known name, a folder with weights in diffusers' layout, OWNER/NAME on the Hub in that
    layout, or single files as ComfyUI has them, joined by " + "."""

    revision: str = field("", title="Revision", section=WHAT, advanced=True)
    """A branch, tag or commit of a model on the Hub. It becomes part of the model's name, as a commit, when the work
    begins. Empty: the pinned commit of a known model, or the newest commit of any other."""

    variant: str = field("", title="Variant", section=WHAT, advanced=True)
    """The weight variant of a model on the Hub that has several, such as fp16. It becomes part of the model's name.
    Empty: the weights without a variant."""

    prompt: str = field("", title="Prompt", section=WHAT, lines=2)
    """What the video shows."""

    negative_prompt: str | None = field(None, title="Negative prompt", section=WHAT)
    """What the video should not show. Guidance pushes away from it. Not set: the model's own negative prompt, which
    forms show and which may be empty."""

    unconditional: Literal["auto", "empty prompt", "zeros"] = field(
        "auto", title="Without a negative prompt", section=HOW, advanced=True
    )
    """What guidance pushes away from without a negative prompt. empty prompt: the embedding of an empty prompt, as in
    diffusers. zeros: zeros in its place, as in SAT. auto: what the LoRA or the model was trained with (the training
    setting dropped_caption)."""

    image: str = field("", title="First frame", section=WHAT, path=True)
    """A picture file (PNG, JPEG, WebP or BMP) that the video begins with, for models that accept a first frame. It is
    scaled and cropped to the video's size."""

    video: str = field("", title="Video to change", section=WHAT, advanced=True, path=True)
    """A video file to change: the new video keeps its shapes and motion and otherwise follows the prompt. For
    text-to-video models."""

    strength: float = field(0.8, title="Strength of the change", section=WHAT, low=0.05, high=1.0, advanced=True)
    """How much of the video may change. At 1 nothing of it is kept."""

    continue_from: str = field("", title="Continue a video", section=WHAT, advanced=True, path=True)
    """A video file to continue: the new video begins with its last frames."""

    kept_frames: int | None = field(
        None, title="Frames taken over", section=WHAT, low=1, high=1000, unit="frames", advanced=True
    )
    """How many of the last frames of the video to continue, or of the previous scene, the new video begins with. More
    frames preserve more of the motion. Empty: the length of the model's shortest clip."""

    tell_frames: bool = field(False, title="Condition on the frames taken over", section=WHAT, advanced=True, own=True)
    """Also condition the model on the frames taken over, for LoRAs trained with given prefix. Off: they are only put
    back at each step."""

    continue_to: str = field("", title="Video that follows", section=WHAT, advanced=True, path=True, own=True)
    """A video file to lead up to: the new video ends with its first frames. For LoRAs trained with given suffix."""

    following_frames: int | None = field(
        None, title="Frames of that video", section=WHAT, low=1, high=1000, unit="frames", advanced=True, own=True
    )
    """How many of the first frames of the video that follows the new video ends with; use as many as its LoRA was
    trained with. Empty: the length of the model's shortest clip."""

    last_image: str = field("", title="Last frame", section=WHAT, path=True, own=True)
    """A picture file that the video ends with."""

    keyframes: tuple[str, ...] = field((), title="Keyframes", section=WHAT, lines=2, advanced=True, path=True, own=True)
    """Pictures that the video passes through, one FILE=FRAME per line, as in door.png=16. Frames count from 0."""

    mask: str = field("", title="Mask", section=WHAT, advanced=True, path=True, own=True)
    """A black-and-white video file: the white part of the video to change is regenerated, and the rest is given to the
    model."""

    mask_keeps: Literal["outside", "inside"] = field(
        "outside", title="What the mask keeps", section=WHAT, advanced=True, own=True
    )
    """outside: regenerate the white part (inpainting). inside: keep the white part (outpainting)."""

    control: str = field("", title="Control video", section=WHAT, advanced=True, path=True, own=True)
    """A video file that the new video follows frame by frame, such as edges, depth or poses: whatever the model or its
    LoRA was trained with."""

    reference: str = field("", title="Reference", section=WHAT, advanced=True, path=True, own=True)
    """A video or picture file for an in-context LoRA to work from, scaled down as the LoRA was trained. For Wan VACE:
    a picture of what the video should show."""

    given_sound: str = field("", title="Sound to follow", section=WHAT, advanced=True, path=True, own=True)
    """A sound file, or a video whose sound is taken: the picture is made for it, and the video has it as its sound. It
    is cut to the video's length or followed by silence. For LoRAs trained with sound *picture for sound*."""

    given_video: str = field("", title="Video to give a sound", section=WHAT, advanced=True, path=True, own=True)
    """A video file that keeps its picture, scaled and cropped to the video's size, and gets a new sound. For LoRAs
    trained with sound *sound for picture*."""

    loras: tuple[str, ...] = field((), title="LoRAs", section=WHAT, source="loras", lines=2, path=True)
    """Any number of LoRAs: a run's name, a .safetensors file or OWNER/NAME on the Hub, followed by =SCALE if not 1:
    ring=0.8. Factors for single blocks may follow in brackets, as in ring=0.8[0-9:0.5, 12:0]."""

    force_loras: bool = field(False, title="Use LoRAs that do not fit", section=WHAT, advanced=True)
    """Load a LoRA even if most of it belongs to another model. Layers that do not fit are skipped."""

    guidance_scale: float | None = field(None, title="Guidance", section=HOW, low=0.0, high=50.0)
    """Guidance scale: how closely the video follows the prompt. 1 turns guidance off. Empty: the model's own value."""

    guidance_scale_2: float | None = field(
        None, title="Guidance scale, low noise", section=HOW, low=0.0, high=50.0, advanced=True, own=True
    )
    """Guidance scale for the steps of the low-noise transformer. Empty: the model's own value."""

    conditioning_scale: float = field(
        1.0, title="Conditioning scale", section=HOW, low=0.0, high=10.0, advanced=True, own=True
    )
    """How strongly a model with a side branch (VACE) follows its conditioning: frames, masks, control videos and
    references. Lower values follow more loosely; 0 ignores it."""

    dynamic_guidance: Curve = field("off", title="Dynamic guidance", section=HOW, advanced=True)
    """Vary the guidance scale over the steps. stock: as in CogVideoX's SAT (DynamicCFG) and diffusers
    (use_dynamic_cfg), where it jumps from step to step between 1 and 1 more than the guidance scale. cosine: it rises
    smoothly between the two, which neither of them does."""

    guidance_from: float = field(0.0, title="Guidance from", section=HOW, low=0.0, high=1.0, advanced=True)
    """The fraction of denoising steps before guidance starts. Until then, only the prompt counts."""

    guidance_until: float = field(1.0, title="Guidance until", section=HOW, low=0.0, high=1.0, advanced=True)
    """The fraction of denoising steps after which guidance ends. A step without guidance takes half the time."""

    guidance_rescale: float = field(0.0, title="Guidance rescale", section=HOW, low=0.0, high=1.0, advanced=True)
    """How much of the contrast added by guidance to remove: 0 none, 1 all. 0.7 is common with a high guidance scale."""

    zero_star: bool = field(False, title="CFG-Zero*", section=HOW, advanced=True)
    """Scale the negative prompt's prediction to fit the prompt's before guidance is applied (arXiv 2503.18886). The
    paper's other part, zeros in the first step of flow models (all but CogVideoX and Phenaki), is not included."""

    image_scale: Literal["pipeline", "raw"] = field(
        "pipeline", title="Scale of the first frame", section=HOW, advanced=True, own=True
    )
    """How the first frame's latents are scaled. pipeline: as in diffusers. raw: not at all, for LoRAs trained so."""

    steps: int | None = field(None, title="Steps", section=HOW, low=1, high=1000, unit="steps")
    """Denoising steps. More steps give finer results and take longer. Empty: the model's own number."""

    scheduler: str = field("model", title="Scheduler", section=HOW, source="schedulers", advanced=True)
    """The sampling algorithm. model: the one the model was published with. CogVideoX has DDIM and DPM."""

    flow_shift: float | None = field(
        None, title="Flow shift", section=HOW, low=0.1, high=100.0, advanced=True, own=True
    )
    """Changes the steps' noise levels s to shift * s / (1 + (shift - 1) * s). Above 1, more steps are spent at high
    noise, which determines shapes and motion. Empty: the model's own value; for Wan 2.1's image models 3 up to 832x480
    and 5 above, as in their authors' generate.py."""

    temperature: float | None = field(
        None, title="Temperature", section=HOW, low=0.0, high=10.0, advanced=True, own=True
    )
    """How freely codes are sampled. The temperature falls linearly from this value to 0 in the last step. Higher values
    give more variety and more mistakes. Empty: the model's own value."""

    seed: int | None = field(None, title="Seed", section=HOW, low=0, high=SEEDS - 1)
    """The random seed. The same seed and settings give the same video. Empty: a new seed every time, recorded with the
    video."""

    frames: int | None = field(None, title="Frames", section=SHAPE, low=1, high=1000, unit="frames")
    """Length of the video. Empty: the model's own length."""

    height: int | None = field(None, title="Height", section=SHAPE, low=16, high=4096, unit="pixels")
    """Height of the video. Empty: the model's own size."""

    width: int | None = field(None, title="Width", section=SHAPE, low=16, high=4096, unit="pixels")
    """Width of the video. Empty: the model's own size."""

    fps: float | None = field(None, title="Frames per second", section=SHAPE, low=1.0, high=120.0, advanced=True)
    """Playback speed. Models that take the frame rate as an input generate for it; others generate the same frames.
    Empty: the model's own rate."""

    latents_only: bool = field(False, title="Save latents only", section=SHAPE, advanced=True)
    """Save the latents (Phenaki: the codes) as a safetensors file without decoding them. `workbench samples decode ID`
    decodes the same video later."""

    device: DeviceChoice = field("auto", title="Device", section=SHAPE, source="devices", advanced=True)
    """The device to compute on. auto: the first GPU that torch can use, else the CPU. cuda:1: the second GPU; they are
    counted from 0."""

    speed: Speed = field("exact", title="Speed", section=SPEED, advanced=True)
    """exact: the same as diffusers. fast: step skipping, about half of the time before decoding, nearly the same video
    (built-in models: 52 dB on average, 44 at least; with DPM occasionally a different video). low-memory: 8-bit weights
    (45 dB or more) and model offload, slower, for GPUs with too little memory."""

    attention: Literal["auto", "cudnn", "flash", "efficient", "flash-attn", "math", "stock"] = field(
        "auto", title="Attention", section=SPEED, advanced=True
    )
    """The kernel that computes attention. auto: the fastest one this GPU supports."""

    @field_validator("keyframes")
    @classmethod
    def _legal_keyframes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        parse_keyframes(value)
        return value

    @property
    def conditioning(self) -> dict[str, str]:
        """Return kind of `families.conditioning` -> the setting that gives it, except for a first frame alone."""
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
        """Return the settings with a random seed if none is set."""
        return self if self.seed is not None else self.changed(seed=secrets.randbelow(SEEDS))


def parse_keyframes(lines: Sequence[str]) -> dict[int, str]:
    """Parse lines such as door.png=16 into frame -> picture file. Raises ValueError with a sentence for the user."""
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

    each_line: bool = field(False, title="One prompt per line", section=WHAT, advanced=True)
    """Treat each line as a separate prompt. After @@, a line may have its own first frame or number of frames, then its
    own last frame and keyframes: a ship leaves the harbor@@ship.png, or @@33, @@33 last=port.png, @@key=pier.png=16"""

    videos: int = field(1, title="Videos", section=WHAT, low=1, high=100)
    """Videos per prompt. Their seeds count up from the seed, or are random if it is empty."""

    scenes: bool = field(False, title="Lines are scenes", section=WHAT, advanced=True)
    """Treat each line as a scene that continues the last frames of the scene before. A joined video of all scenes
    follows, in which no frame appears twice. After @@, a line may have its own number of frames (including the frames
    taken over), the number of frames to take over, and its own last frame and keyframes: @@17, @@17 keep 5,
    @@keep 5 last=door.png or @@key=hall.png=8. The form's last frame and its video that follows apply to the last
    scene."""

    @property
    def chains(self) -> int:
        """The argument `chains` of `queue.submit_all`."""
        return self.videos if self.scenes else 0


class WorkerSettings(Settings):
    """How the sampling worker behaves; samples/.worker/config.json."""

    idle_seconds: float = field(
        120.0, title="Keep model loaded", section="Worker", unit="seconds", low=0.0, high=86400.0, advanced=True
    )
    """How long the model stays loaded after the last request."""


def expand(settings: SampleSettings, batch: BatchSettings) -> list[SampleSettings]:
    """Return settings for every prompt and seed: all seeds of the first prompt, then of the next. Every seed is set.

    Raises ConfigError for more than MOST_AT_ONCE.
    """
    every = settings.prompt.splitlines() if batch.each_line or batch.scenes else []
    prompts, lines = [], [line for line in every if line.strip()]
    if (count := max(1, len(lines)) * batch.videos) > MOST_AT_ONCE:
        sentence = f"{count:,} videos are requested at once, at most {MOST_AT_ONCE:,} are allowed: request fewer"
        raise ConfigError.of("videos" if batch.videos > 1 else "prompt", sentence)
    for number, line in enumerate(lines):
        prompt, mark, own = (part.strip() for part in line.partition(MARK))
        # Only the last scene decides how the story ends.
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
    """Return settings that repeat a story: those of the first scene, with one line of the prompt per scene.

    Each line has what differs between scenes: frames, frames taken over, own pictures.
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


# ---- which settings have an effect


def chosen_model(values: Mapping[str, Any]) -> Any:
    """Return the chosen model, or None if it is not known."""
    found = known_model(str(values["model"]))
    return found and found.model


def _guided(values: Mapping[str, Any]) -> bool:
    """Return whether guidance is on."""
    scale, model = values["guidance_scale"], chosen_model(values)
    scale = getattr(model, "guidance_scale", None) if scale is None else scale
    return not isinstance(scale, int | float) or scale > 1


def _accepts(kind: str, task: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return a check that fails for known models of a task that refuse a kind of `families.conditioning`."""

    def accepts(values: Mapping[str, Any]) -> bool:
        found = known_model(str(values["model"]))
        return found is None or found.model.task != task or not found.family.refusal(found.model, kind)

    return accepts


def _schedulers(values: Mapping[str, Any]) -> bool:
    """Return whether there is a choice of schedulers, or the model is not known."""
    found = known_model(str(values["model"]))
    return found is None or len(found.family.schedulers) > 1


# Setting -> whether it has an effect, given raw form values, so that forms can hide it. Others always have one.
HAS_EFFECT: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    **dict.fromkeys(("image", "image_scale"), _accepts("first", task="text-to-video")),
    "scheduler": _schedulers,
    **dict.fromkeys(
        ("negative_prompt", "dynamic_guidance", "guidance_from", "guidance_until", "guidance_rescale", "zero_star"),
        _guided,
    ),
    **dict.fromkeys(("height", "width"), lambda values: not getattr(chosen_model(values), "fixed_size", False)),
    "video": _accepts("mask", task="image-to-video"),  # changed in whole or inside a mask
    "strength": lambda values: bool(values["video"]) and not values["mask"],
    "mask": lambda values: bool(values["video"]),
    "mask_keeps": lambda values: bool(values["mask"]),
    "tell_frames": lambda values: bool(values["continue_from"]),
    "following_frames": lambda values: bool(values["continue_to"]),
    "force_loras": lambda values: bool(values["loras"]),
}

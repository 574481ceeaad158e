"""Generating videos: one loaded model, any number of requests.

The weights stay loaded between requests; LoRAs come and go. On a GPU the dtype is the one training uses with
`precision` at `auto`: the stored dtype, or the authors' where the family says so. On a CPU it is float32.

    exact       the same as the stock pipelines, up to rounding
    fast        step skipping; on a GPU, compiled blocks
    low-memory  8-bit blocks, and one part at a time on the device

Running out of memory in the last step must not cost a clip that took minutes to denoise. So latents are decoded in the
memory that is left: whole, in tiles, or on the CPU. Tiles change the picture slightly at their seams, so the record
names the method.
"""

from __future__ import annotations

import contextlib
import functools
import io
import platform
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench import __version__
from workbench.clips import frame_metrics
from workbench.clips.frame_plan import shape_for
from workbench.clips.records import file_sha256
from workbench.families import settled_model
from workbench.families.base import Family
from workbench.families.conditioning import as_clip
from workbench.families.denoising import DenoiseInputs, OnStep, no_step
from workbench.families.lora_files import DROPPED_KEY, REFERENCE_KEY
from workbench.families.model import Expert, Model
from workbench.families.model_inputs import Tensors
from workbench.families.sound import Sound
from workbench.jobs.devices import Device
from workbench.jobs.torch_devices import free_memory, make_current
from workbench.sampler import offload_plan
from workbench.sampler.adapters import Experts
from workbench.sampler.inputs import (
    SampleInputs,
    conditioning_from,
    first_frames,
    given_back,
    given_frames,
    given_sound,
    inputs_of,
    last_frames,
    read_picture,
)
from workbench.sampler.loras import Lora, fetched, read_header
from workbench.sampler.samples import NOISE, SOUND, read_latents, write_latents
from workbench.sampler.settings import SampleSettings, Speed
from workbench.workspace import Workspace, named_paths

if TYPE_CHECKING:
    import numpy as np
    import torch

# Record key -> setting whose file is hashed: HASHED always, None for no file; CONDITIONING only if there is a file.
HASHED = {"image_sha256": "image", "video_sha256": "video", "continued_sha256": "continue_from"}
CONDITIONING = {f"{name}_sha256": name for name in ("continue_to", "last_image", "mask", "control", "reference")}
CONDITIONING |= {f"{name}_sha256": name for name in ("given_sound", "given_video")}
DecodingMethod = Literal["whole", "tiles", "processor"]
METHODS: tuple[DecodingMethod, ...] = ("whole", "tiles", "processor")
# Latent previews: squares per row and column of the calibration picture, a square's side in latents, the regression's
# ridge, and the minimum width in pixels.
SQUARES, LATENTS, RIDGE, SMALLEST = 8, 4, 1e-3, 160
PROMPTS_KEPT = 64  # embeddings kept, so that repeated prompts do not need the text encoder


@dataclass(frozen=True)
class GeneratedVideo:
    """A generated video: frames uint8 [F, H, W, 3], the record of how it was made, and its sound, if there is one."""

    frames: np.ndarray
    fps: float
    record: dict[str, Any]
    sound: Sound | None = None


@dataclass(frozen=True)
class Denoised:
    """A sample that is not decoded yet.

    latents: [1, ...].
    noise:   the state of the noise generator, which some decoders draw from.
    record:  the record so far.
    sound:   the sound's latents [1, tokens, channels]; None without one.
    """

    latents: torch.Tensor
    noise: torch.Tensor
    record: dict[str, Any]
    sound: torch.Tensor | None = None


class Sampler:
    """A model loaded for sampling on one device."""

    def __init__(
        self, model: str, device: Device, report: Callable[[str], None] = print, speed: Speed = "exact"
    ) -> None:
        """Load the model for a speed, downloading it if needed. Raises ConfigError, ModelUnavailable."""
        import torch

        self.name, self.device, self._report = model, device, report
        self.family, self.model = settled_model(model)
        self.folder = self.family.fetch(self.model, report)
        self.facts = self.family.facts(self.model)
        self.low_memory = speed == "low-memory"
        self.offload_plan = offload_plan.choose(speed, device, self.facts, shape_for(self.model))
        stored = self.family.stored_dtype(self.folder)
        self.dtype = self.family.auto_dtype(stored) if device.is_gpu else "float32"
        make_current(device)
        self._torch_device, self._dtype = torch.device(device.torch_name), getattr(torch, self.dtype)
        # Where parts wait while they are not in use.
        self._offload_device = torch.device("cpu") if self.offload_plan.model_offload else self._torch_device
        self._text_encoder = self.family.load_text_encoder(self.folder, self._offload_device, self._dtype)
        self._vae_dtype = self.family.vae_dtype(self._dtype)
        self._vae = self.family.load_vae(self.folder, self._offload_device, self._vae_dtype)
        on_gpu = self._torch_device.type == "cuda"
        self.experts = Experts(self.family, self.model, self.folder, self._load_transformer, on_gpu)
        self._pair = len(self.experts.loaded) > 1
        self.transformer = self.experts.loaded[0].transformer
        self._texts: OrderedDict[str, Tensors] = OrderedDict()
        self._attention, self._compiled = "", False
        self._latent_previewer: LatentPreviewer | None = None
        self._sound_decoder: Any = None

    def serves(self, settings: SampleSettings) -> bool:
        """Return whether the loaded model can generate these settings."""
        return settings.model == self.name and (settings.speed == "low-memory") == self.low_memory

    def generate(self, workspace: Workspace, settings: SampleSettings, on_step: OnStep = no_step) -> GeneratedVideo:
        """Generate one video: `denoise`, then `decode`."""
        return self.decode(self.denoise(workspace, settings, on_step))

    def denoise(self, workspace: Workspace, settings: SampleSettings, on_step: OnStep = no_step) -> Denoised:
        """Generate the latents of one video, for settings that this model `serves`. Raises ConfigError.

        The model stays usable whatever happens. on_step: called after each step; may raise to stop
        """
        import torch

        assert self.serves(settings), f"{self.name} is loaded, not {settings.model}"
        inputs = inputs_of(workspace, settings.settled())
        began = time.monotonic()
        found = fetched(inputs.loras, self._report)
        loras = self.experts.apply(found, workspace.cache / "loras", settings.force_loras)
        self._prepare(settings)
        text = self.text(settings.prompt)
        zeros = _compares_with_zeros(inputs, self.model, found)
        negative = None
        if inputs.guidance.wanted:
            negative = self.family.no_text(self.text("")) if zeros else self.text(inputs.negative_prompt)
        noise = torch.Generator("cpu").manual_seed(inputs.settings.seed or 0)
        recorded = (read_header(lora.file).metadata.get(REFERENCE_KEY, "") for lora in found)
        downscale = next((int(text) for text in recorded if text.isdecimal() and int(text) > 0), 1)
        shape = self.family.latents_shape(self.folder, inputs.shape.frames, inputs.shape.height, inputs.shape.width)
        denoise_inputs = DenoiseInputs(
            self.folder,
            text,
            negative,
            shape,
            inputs.steps,
            inputs.guidance,
            noise,
            scheduler=inputs.scheduler,
            flow_shift=inputs.flow_shift,
            on_step=on_step,
            strength=settings.strength,
            sequential_guidance=self.offload_plan.sequential_guidance,
            skip_steps=settings.speed == "fast",
            fps=inputs.shape.fps,
            at_timestep=self.experts.at if self._pair else None,
            temperature=inputs.temperature,
            conditioning_scale=settings.conditioning_scale,
            **self._start_latents(inputs, shape, noise, downscale),
            **self._given_streams(inputs),
        )
        try:  # two experts move to the device by themselves
            with contextlib.nullcontext() if self._pair else self.on_device(self.transformer):
                latents, sound = self.family.denoise_with_sound(self.transformer, denoise_inputs)
        finally:
            self.experts.rest()
        record = self._record(inputs, loras, time.monotonic() - began, zeros)
        return Denoised(latents, noise.get_state(), record, sound)

    def decode(self, denoised: Denoised) -> GeneratedVideo:
        """Decode latents of this model into a video, with its sound."""
        import torch

        began, record = time.monotonic(), denoised.record
        noise = torch.Generator("cpu").set_state(denoised.noise)
        given = given_back(record)
        how: DecodingMethod | Literal["given"] = "given"
        if (frames := given.frames) is None:
            video, how = self._decode(denoised.latents.to(self._torch_device), noise)
            video = video[0, :, -record["frames"] :]
            frames = ((video.permute(1, 2, 3, 0) / 2 + 0.5) * 255).round().to(torch.uint8).numpy()
        sound = given.sound
        if sound is None and denoised.sound is not None:
            sound = self._decode_sound(denoised.sound)
        seconds = round(record["seconds"] + time.monotonic() - began, 3)
        joint = frame_metrics.joint(frames, record["kept_frames"])
        measured = {} if joint is None else {"joint": round(joint, 2)}
        return GeneratedVideo(frames, record["fps"], {**record, **measured, "decoded": how, "seconds": seconds}, sound)

    def write_latents(self, video: Path, denoised: Denoised, root: Path | None = None) -> None:
        """Write latents and their record as the sample whose video would be `video`. Raises CannotWrite."""
        tensors = self.family.latents_to_file(self.folder, denoised.latents)
        tensors |= {} if denoised.sound is None else {SOUND: denoised.sound[0].contiguous().cpu()}
        write_latents(video, {**tensors, NOISE: denoised.noise}, denoised.record, root)

    def read_latents(self, video: Path) -> Denoised:
        """Read what `write_latents` wrote. Raises ConfigError for a file that is damaged or missing."""
        tensors, record = read_latents(video)
        sound = tensors[SOUND][None] if SOUND in tensors else None
        return Denoised(self.family.latents_from_file(self.folder, tensors), tensors[NOISE], record, sound)

    def _given_streams(self, inputs: SampleInputs) -> dict[str, Any]:
        """Return the `DenoiseInputs` fields `sound` and `picture`, encoded from the request's files."""
        import torch

        settings, shape = inputs.settings, inputs.shape
        found: dict[str, Any] = {}
        if settings.given_sound:
            heard = given_sound(settings, shape.frames / shape.fps, self.family.sound_rate(self.folder))
            encoder = self.family.load_sound_encoder(self.folder, self._torch_device)
            found["sound"] = self.family.encode_sound(encoder, torch.from_numpy(heard))[SOUND]
        if settings.given_video:
            with self.on_device(self._vae):
                moments = self.family.encode_video(self._vae, as_clip(given_frames(settings, shape)))
            no_noise = torch.zeros(1, *self.family.latents_shape(self.folder, shape.frames, shape.height, shape.width))
            found["picture"] = self.family.sample_latents({name: v.cpu() for name, v in moments.items()}, no_noise)
        return found

    def latent_preview(self) -> LatentPreviewer:
        """Return the renderer of latent previews, created on first use."""
        if self._latent_previewer is None:
            with self.on_device(self._vae):
                self._latent_previewer = LatentPreviewer(self.family, self._vae, self.facts.spatial)
        return self._latent_previewer

    def seconds(self, settings: SampleSettings) -> float:
        """Return the length of a video with these settings."""
        return (settings.frames or self.model.frames) / (settings.fps or self.model.fps)

    # ---- loading

    def _load_transformer(self, expert: Expert) -> Any:
        import torch

        plan = self.offload_plan
        on_host = plan.model_offload or plan.weights != "as stored" or plan.blocks_to_swap > 0
        transformer = self.family.load_transformer(
            self.folder, torch.device("cpu") if on_host else self._torch_device, self._dtype, expert.part
        )
        blocks = self.family.all_blocks(transformer)
        if plan.weights == "int8":
            from workbench.memory.low_bit import shrink

            for block in blocks:  # quantized on the device, one at a time, so that at most one is there unquantized
                shrink([block.to(self._torch_device)], "int8")
                if plan.model_offload:
                    block.to("cpu")
        if plan.blocks_to_swap:
            from workbench.memory.block_swap import BlockSwap

            BlockSwap(blocks, plan.blocks_to_swap, self._torch_device)
            transformer.to(self._torch_device)
        elif not plan.model_offload or len(self.model.experts) > 1:
            transformer.to(self._torch_device)
        return transformer

    def _prepare(self, settings: SampleSettings) -> None:
        """Set attention and compilation for a request, after its LoRAs are active. Raises ConfigError."""
        from workbench.memory import compiling

        # LoRAs were added after block swap, or to an expert off the device. They always stay on the device.
        if self.offload_plan.blocks_to_swap or self._pair:
            for one in self.experts.loaded:
                for name, parameter in one.transformer.named_parameters():
                    if "lora_" in name:
                        parameter.data = parameter.data.to(self._torch_device)
        if settings.attention != self._attention:
            for one in self.experts.loaded:
                self.family.use_attention(one.transformer, settings.attention, self._torch_device)
            self._attention = settings.attention
        # Compiling pays off only on a GPU without block swap.
        compiled = settings.speed == "fast" and self.device.kind == "cuda" and not self.offload_plan.blocks_to_swap
        if compiled:
            compiling.check_compiler()
        if compiled != self._compiled:
            self._compiled = compiled
            change = compiling.compile_blocks if compiled else compiling.interpret_blocks
            for one in self.experts.loaded:
                change(self.family.all_blocks(one.transformer))

    # ---- parts

    @contextlib.contextmanager
    def on_device(self, part: Any) -> Iterator[None]:
        """Put a part on the device, and on its offload device afterwards."""
        moves = self.offload_plan.model_offload and not (part is self.transformer and self.offload_plan.blocks_to_swap)
        if moves:
            part.to(self._torch_device)
        try:
            yield
        finally:
            if moves:
                part.to(self._offload_device)
                free_memory()

    def text(self, prompt: str) -> Tensors:
        """Return a prompt's embedding, on the device. The most recent ones are kept."""
        if prompt in self._texts:
            self._texts.move_to_end(prompt)
        else:
            with self.on_device(self._text_encoder):
                found = self.family.encode_text(self._text_encoder, [prompt])
                self._texts[prompt] = {name: value.cpu() for name, value in found.items()}
            while len(self._texts) > PROMPTS_KEPT:
                self._texts.popitem(last=False)
        return {name: value.to(self._torch_device) for name, value in self._texts[prompt].items()}

    def _start_latents(
        self, inputs: SampleInputs, latents_shape: tuple[int, ...], noise: torch.Generator, downscale: int
    ) -> dict[str, Any]:
        """Return the `DenoiseInputs` fields `prefix`, `source` and `given`, encoded from the request's files.

        downscale: how many times smaller than the video the reference is, as recorded by the first LoRA that does
        """
        import torch

        settings, shape = inputs.settings, inputs.shape
        size = (shape.height, shape.width)
        found: dict[str, Any] = {}
        picture = read_picture(named_paths.resolve(settings.image, "image"), *size) if settings.image else None
        tells = bool(settings.conditioning) or self.family.joins_conditioning(self.model)
        if not (settings.continue_from or settings.video or picture is not None or tells):
            return {}
        last = None
        with self.on_device(self._vae):
            if settings.continue_from:
                before = named_paths.resolve(settings.continue_from, "continue_from")
                last = last_frames(before, inputs.kept_frames, shape.fps, *size)
                picture = last[:1] if picture is None else picture
                moments = self.family.encode_video(self._vae, as_clip(last))
                # The posterior's mean, because the frames must decode unchanged.
                no_noise = torch.zeros(1, *self.family.latents_shape(self.folder, len(last), *size))
                found["prefix"] = self.family.sample_latents({name: v.cpu() for name, v in moments.items()}, no_noise)
            if settings.video and not settings.mask:
                first = first_frames(named_paths.resolve(settings.video, "video"), shape.frames, shape.fps, *size)
                moments = self.family.encode_video(self._vae, as_clip(first))
                posterior = self.family.posterior_noise(moments, noise, self._vae_dtype)
                # `sample_latents` pads in front with copies and does not use the noise there, so any values do.
                axis = self.family.frame_axis
                missing = max(latents_shape[axis - 1] - posterior.shape[axis], 0)
                posterior = torch.cat([posterior.narrow(axis, 0, missing), posterior], dim=axis)
                found["source"] = self.family.sample_latents(moments, posterior)
            of_image = self.model.task == "image-to-video"
            if tells or (picture is not None and settings.image and not of_image):
                encoder = self.family.load_image_encoder(self.folder, self._torch_device, self._vae_dtype)
                told = self.family.encode_conditioning(self._vae, encoder, conditioning_from(inputs, last, downscale))
                found["given"] = self.family.conditioning_to_sample(
                    self.folder, told, latents_shape, noise, self._vae_dtype
                )
            elif picture is not None and of_image:
                encoder = self.family.load_image_encoder(self.folder, self._torch_device, self._vae_dtype)
                pixels = as_clip(picture)[:, :, 0]
                image = self.family.encode_image(self._vae, encoder, pixels, shape.frames, settings.image_scale)
                found["given"] = self.family.given_to_sample(self.folder, image, latents_shape, noise, self._vae_dtype)
        return found

    def _decode_sound(self, latents: torch.Tensor) -> Sound:
        if self._sound_decoder is None:
            load = self.family.load_sound_decoder
            self._sound_decoder = load(self.folder, self._offload_device, self._vae_dtype)
        with self.on_device(self._sound_decoder):
            return self.family.decode_sound(self._sound_decoder, latents)

    def _decode(self, latents: torch.Tensor, noise: torch.Generator) -> tuple[torch.Tensor, DecodingMethod]:
        aside = False

        def make_room() -> None:
            nonlocal aside
            self._report("Memory ran out: decoding in smaller pieces.")
            if not self._pair and not self.offload_plan.model_offload and self.device.kind == "cuda":
                self.transformer.to("cpu")
                aside = True
            free_memory()

        try:
            with self.on_device(self._vae):
                begin: DecodingMethod = "tiles" if self.offload_plan.tiled else "whole"
                return decode(self.family, self._vae, latents, make_room, begin, noise)
        finally:
            if aside:
                self.transformer.to(self._torch_device)

    def _record(self, inputs: SampleInputs, loras: list[dict[str, Any]], seconds: float, zeros: bool) -> dict[str, Any]:
        """Return the record: the settings as given, and every value that was used."""
        given = inputs.settings.model_dump(mode="json")
        optional = {"guidance_scale_2": inputs.guidance.second, "flow_shift": inputs.flow_shift}
        optional |= {"temperature": inputs.temperature, "following_frames": inputs.following_frames or None}
        return {
            "settings": given,
            **{name: given[name] for name in ("prompt", "dynamic_guidance", "seed", "speed")},
            "negative_prompt": "" if zeros else inputs.negative_prompt,
            "unconditional": "zeros" if zeros else "empty prompt",
            "model": self.model.id,
            "revision": self.model.revision,
            "folder": str(self.folder),
            **asdict(inputs.shape),
            "steps": inputs.steps,
            "guidance_scale": inputs.guidance.scale,
            **{
                key: file_sha256(named_paths.resolve(given[name])) if given[name] else None
                for key, name in HASHED.items()
            },
            **{key: file_sha256(named_paths.resolve(given[name])) for key, name in CONDITIONING.items() if given[name]},
            "kept_frames": inputs.kept_frames,
            "scheduler": inputs.scheduler,
            **{name: value for name, value in optional.items() if value is not None},
            "loras": loras,
            "device": self.device.name,
            "dtype": self.dtype,
            "memory": self.offload_plan.summary,
            "decoded": None,
            "seconds": round(seconds, 3),
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": versions(),
        }


def _compares_with_zeros(inputs: SampleInputs, model: Model, loras: Sequence[Lora]) -> bool:
    """Return whether guidance uses zeros as the unconditional embedding, as the previews of a LoRA's run did."""
    settings = inputs.settings
    if settings.negative_prompt or settings.unconditional == "empty prompt":
        return False
    trained_so = any(read_header(lora.file).metadata.get(DROPPED_KEY) == "zeros" for lora in loras)
    return settings.unconditional == "zeros" or model.zeros_without_prompt or trained_so


@functools.cache  # looking them up takes 15 ms
def versions() -> dict[str, str]:
    """Return the versions that a record names for reproducing a video."""
    packages = ("torch", "diffusers", "transformers", "peft")
    found = {name: version(name) for name in packages}
    return {"workbench": __version__, "python": platform.python_version(), **found}


# ---- decoding and latent previews


def decode(
    family: Family,
    vae: Any,
    latents: torch.Tensor,
    make_room: Callable[[], None],
    begin: DecodingMethod = "whole",
    noise: torch.Generator | None = None,
) -> tuple[torch.Tensor, DecodingMethod]:
    """Decode latents with the first method from `begin` on that fits in memory.

    Returns the video [1, 3, F, H, W] in [-1, 1] on the CPU, and the method. The VAE ends on the device it is on.

    Args:
        make_room: Called after memory ran out, before the next method.
        noise: A CPU generator for decoders that draw noise. Each method gets it in the same state.
    """
    import torch

    device = next(vae.parameters()).device  # vae.device walks through all modules, which takes 1 ms
    for method in METHODS[METHODS.index(begin) :]:
        target = torch.device("cpu") if method == "processor" else device
        with contextlib.suppress(torch.OutOfMemoryError), contextlib.ExitStack() as afterwards:
            if method != "whole":
                afterwards.callback(vae.disable_slicing)
                afterwards.callback(vae.disable_tiling)
                vae.enable_tiling()
                vae.enable_slicing()
            if target != device:  # `to` takes 6 ms even if nothing moves
                vae.to(target)
                afterwards.callback(vae.to, device)
            fresh = torch.Generator().set_state(noise.get_state()) if noise is not None else None
            return family.decode(vae, latents.to(target), fresh).cpu(), method
        make_room()  # only here is nothing left that holds the failed attempt's memory
    raise torch.OutOfMemoryError("the video's latents cannot be decoded, even on the CPU")


class LatentPreviewer:
    """Renders latents as small pictures without the VAE's decoder.

    Colors are nearly linear in latents. The linear map is fitted once per VAE, by least squares on an encoded picture
    of colored squares, which takes one pass of the encoder over one small frame.
    """

    def __init__(self, family: Family, vae: Any, spatial: int) -> None:
        """Fit the map. spatial: the VAE's spatial compression, in pixels per latent"""
        import torch

        side = SQUARES * LATENTS
        generator = torch.Generator().manual_seed(0)
        colors = torch.rand(3, SQUARES, SQUARES, generator=generator) * 2 - 1
        grid = colors.repeat_interleave(LATENTS, 1).repeat_interleave(LATENTS, 2)
        clip = grid.repeat_interleave(spatial, 1).repeat_interleave(spatial, 2)[None, :, None]
        self._frame_axis = family.frame_axis
        moments = family.encode_video(vae, clip)
        none = torch.zeros_like(family.posterior_noise(moments, generator, torch.float32))
        latents = family.sample_latents(moments, none).select(self._frame_axis, 0)[0].float().cpu()  # [C, side, side]
        inside = torch.zeros(side, side, dtype=torch.bool)
        for offset in range(LATENTS // 4, LATENTS - LATENTS // 4):
            for other in range(LATENTS // 4, LATENTS - LATENTS // 4):
                inside[offset::LATENTS, other::LATENTS] = True  # at their borders the squares' colors mix
        inputs = torch.cat([latents[:, inside], torch.ones(1, int(inside.sum()))]).T.double()
        targets = grid[:, inside].T.double()
        square = inputs.T @ inputs + RIDGE * len(inputs) * torch.eye(inputs.shape[1])
        self._matrix = torch.linalg.solve(square, inputs.T @ targets).float()  # [C + 1, 3]

    def frames(self, latents: torch.Tensor) -> np.ndarray:
        """Render latents [1, ...] as uint8 [f, h, w, 3]."""
        values = latents.movedim(self._frame_axis, 1)[0].float().cpu().permute(0, 2, 3, 1)
        colors = values @ self._matrix[:-1] + self._matrix[-1]
        pixels: np.ndarray = ((colors.clamp(-1, 1) + 1) * 127.5).byte().numpy()
        return pixels

    def webp(self, latents: torch.Tensor, seconds: float) -> bytes:
        """Render latents as a looping WebP animation of `seconds` length."""
        from PIL import Image

        frames = self.frames(latents)
        height, width = frames.shape[1:3]
        times = max(1, -(-SMALLEST // width))
        pictures = [
            Image.fromarray(one).resize((width * times, height * times), Image.Resampling.BICUBIC) for one in frames
        ]
        data = io.BytesIO()
        pictures[0].save(
            data,
            "WEBP",
            save_all=True,
            append_images=pictures[1:],
            loop=0,
            quality=70,
            method=0,
            duration=max(20, round(1000 * seconds / len(pictures))),
        )
        return data.getvalue()

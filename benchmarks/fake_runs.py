"""Run steps and previews of full-size models on fake tensors, without values: memory by cause, and operations.

Every tensor counts from creation to release, by its storage. The model is called by the product's own code: LoRA,
attention, memory levels, loss, optimizer, encoding and decoding of the families. Fake tensors are on the CPU, so that
autograd works without a GPU; tensors that would go to the host are recognized by the code that makes them. CPU autocast
to bf16 computes norms in bf16, so this module computes them in fp32 as a GPU does.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from math import prod
from typing import Any
from unittest import mock

import diffusers
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from workbench.families import facts, wan_vace
from workbench.families.base import Family
from workbench.families.cogvideox import family as cogvideox
from workbench.families.model import Model
from workbench.families.model_inputs import PICTURE_FOR_SOUND, SOUND_FOR_PICTURE, Given, ModelInputs, SoundInputs
from workbench.families.noise_schedules import AS_PUBLISHED, FlowSchedule
from workbench.jobs.devices import GIGABYTE
from workbench.memory import checkpointing
from workbench.runs.settings import TrainSettings
from workbench.trainer.trainable import Trainable, apply_memory_levels

CLASSES = {  # by family: transformer, video encoder
    "cogvideox": (diffusers.CogVideoXTransformer3DModel, diffusers.AutoencoderKLCogVideoX),
    "wan": (diffusers.WanTransformer3DModel, diffusers.AutoencoderKLWan),
    "ltx": (diffusers.LTXVideoTransformer3DModel, diffusers.AutoencoderKLLTXVideo),
    "ltx2": (diffusers.LTX2VideoTransformer3DModel, diffusers.AutoencoderKLLTX2Video),
    "mochi": (diffusers.MochiTransformer3DModel, diffusers.AutoencoderKLMochi),
    "kandinsky5": (diffusers.Kandinsky5Transformer3DModel, diffusers.AutoencoderKLHunyuanVideo),
    "hunyuan15": (diffusers.HunyuanVideo15Transformer3DModel, diffusers.AutoencoderKLHunyuanVideo15),
}
CPU = torch.device("cpu")
WEIGHTS, TRAINED, OPTIMIZER, INPUTS = "weights", "trained", "optimizer", "inputs"
GRADIENTS, KEPT, BACKWARD, WORKING, HOST = "gradients", "kept", "backward", "working", "host"
CAUSES = (WEIGHTS, TRAINED, OPTIMIZER, INPUTS, GRADIENTS, KEPT, BACKWARD, WORKING)
# bitsandbytes' AdamW keeps both moments in a byte each, by blocks of 256, each with a scale in fp32; matrices below
# 4096 values in fp32.
BLOCK_8BIT, SMALLEST_8BIT = 256, 4096


@dataclass(frozen=True)
class Simulated:
    """The result of a simulation.

    gb: peak GB of live tensors, in total and by cause;  operations: of all matrix products, in 1e12
    """

    gb: float
    causes: Mapping[str, float]
    operations: float


@dataclass
class _Known:
    """A storage with its bytes and cause."""

    size: int
    cause: str


class Lifetimes(TorchDispatchMode):
    """Count the bytes of live tensors by storage, and the operations.

    cause: the cause of tensors made now;  peak: bytes by cause at the peak
    """

    def __init__(self) -> None:
        super().__init__()
        self.cause = WEIGHTS
        self.operations = 0
        self.peak: Counter[str] = Counter()
        self._most = self._now = 0
        self._living: Counter[str] = Counter()
        self._known: weakref.WeakKeyDictionary[Any, _Known] = weakref.WeakKeyDictionary()

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage in self._known:
            return
        known = self._known[storage] = _Known(storage.nbytes(), self.cause)
        weakref.finalize(storage, self._count, known, -1)
        self._count(known, 1)

    def _count(self, known: _Known, sign: int) -> None:
        self._living[known.cause] += sign * known.size
        if known.cause == HOST:
            return
        self._now += sign * known.size
        if self._now > self._most:
            self._most, self.peak = self._now, Counter(self._living)

    def blame(self, tensor: torch.Tensor, cause: str) -> None:
        """Change the cause of an existing tensor."""
        known = self._known[tensor.untyped_storage()]
        self._living[known.cause] -= known.size
        known.cause = cause
        self._living[cause] += known.size

    @contextmanager
    def because(self, cause: str) -> Iterator[None]:
        before, self.cause = self.cause, cause
        try:
            yield
        finally:
            self.cause = before

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        made = function(*arguments, **(named or {}))
        self.operations += operations(function, arguments, named or {}, made)
        for tensor in tree_iter(made):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor)
        return made


def operations(function: Any, arguments: Any, named: Any, made: Any) -> int:
    """Return the operations of a matrix product, convolution or attention (multiply-add counts as two), else 0."""
    name = function._schema.name
    if name.startswith("aten::_scaled_dot_product_flash_attention_for_cpu"):
        backward = name.endswith("backward")
        query, key, value = arguments[1:4] if backward else arguments[:3]
        forward = 2 * prod(query.shape) * key.shape[-2] + 2 * prod(query.shape[:-1]) * prod(value.shape[-2:])
        return forward * 5 // 2 if backward else forward  # five products in place of two
    count = flop_registry.get(function._overloadpacket)
    return 0 if count is None else int(count(*arguments, **named, out_val=made))


def simulated(run: Callable[[Lifetimes], None]) -> Simulated:
    """Track live tensors while a block runs on fake tensors."""
    lifetimes = Lifetimes()
    cogvideox._rotary.cache_clear()  # fake tensors of an earlier simulation
    gc.collect()
    gc.disable()  # whatever is freed is freed when its last name is gone, as on a GPU
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            run(lifetimes)
    finally:
        gc.enable()
    causes = {cause: lifetimes.peak[cause] / GIGABYTE for cause in CAUSES}
    return Simulated(sum(causes.values()), causes, lifetimes.operations / 1e12)


# ---- models


def published(model: Model, part: str) -> dict[str, Any]:
    config = dict(facts.published()[model.source].parts[part].config)
    return {name: value for name, value in config.items() if value is not None}


def on_meta(kind: Any, config: Mapping[str, Any], dtype: torch.dtype) -> Any:
    """Make a model without values."""
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            return kind.from_config(config).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(torch.float32)


def as_fake(module: Any) -> None:
    """Replace tensors on the meta device with fake tensors. Call it under FakeTensorMode."""
    single, own = getattr(module, "_keep_in_fp32_modules", None) or [], module.dtype
    for path, part in module.named_modules():
        for name, value in list(part._parameters.items()):
            if value is not None:
                kept = value.requires_grad or {*f"{path}.{name}".split(".")} & {*single}
                fake = torch.empty(value.shape, dtype=torch.float32 if kept else value.dtype)
                part._parameters[name] = torch.nn.Parameter(fake, requires_grad=value.requires_grad)
        for name, value in list(part._buffers.items()):
            if value is not None:
                stored = value.is_floating_point() and name not in part._non_persistent_buffers_set
                part._buffers[name] = torch.empty(value.shape, dtype=own if stored else value.dtype)


def count_weights(module: Any, lifetimes: Lifetimes) -> None:
    for tensor in [*module.parameters(), *module.buffers()]:
        with lifetimes.because(TRAINED if tensor.requires_grad else WEIGHTS):
            lifetimes.add(tensor)


# ---- what differs from a GPU


def single_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> torch.Tensor:
    weight, bias = (None if one is None else one.float() for one in (weight, bias))
    return torch.layer_norm(x.float(), shape, weight, bias, eps)


@contextmanager
def autocast(dtype: torch.dtype) -> Iterator[None]:
    """Autocast to bf16 as on a GPU, which computes norms in fp32. Does nothing for fp32."""
    with torch.autocast("cpu", dtype) if dtype is not torch.float32 else nullcontext():
        yield


@contextmanager
def as_on_a_gpu(lifetimes: Lifetimes, dtype: torch.dtype) -> Iterator[None]:
    """Compute norms in fp32, and do not count the host's tensors."""

    class HostCopy(checkpointing._HostCopy):
        def __init__(self, tensor: torch.Tensor) -> None:
            with lifetimes.because(HOST):
                super().__init__(tensor)

    norm = single_norm if dtype is not torch.float32 else functional.layer_norm
    with mock.patch.object(functional, "layer_norm", norm), mock.patch.object(checkpointing, "_HostCopy", HostCopy):
        yield


# ---- phases


@dataclass
class Trained:
    """A transformer with its trained weights.

    blocks: number of blocks, 0 as published;  dtype: of frozen weights and computation
    """

    family: Family
    model: Model
    settings: TrainSettings
    blocks: int = 0
    dtype: torch.dtype = torch.bfloat16
    transformer: Any = field(init=False)
    trainable: Trainable = field(init=False)
    optimizer: list[torch.Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = published(self.model, "transformer")
        layers = "num_visual_blocks" if self.family.name == "kandinsky5" else "num_layers"
        config |= {layers: self.blocks} if self.blocks else {}
        if self.family.name == "cogvideox" and config.get("patch_size_t"):  # 1.5: how far its positions reach
            config |= {"sample_height": 300, "sample_width": 300}
        kind = CLASSES[self.family.name][0]
        if config.get("vace_layers"):  # of the first blocks, as many as there are for the share of all
            kind, every = diffusers.WanVACETransformer3DModel, config["vace_layers"][1]
            config |= {"vace_layers": config["vace_layers"][: self.blocks // every or None]}
        self.transformer = on_meta(kind, config, self.dtype)
        with torch.device("meta"):
            self.family.use_attention(self.transformer, self.settings.attention, CPU)
            self.trainable = Trainable(self.family, self.transformer, self.settings, 0)

    def place(self, lifetimes: Lifetimes) -> None:
        """Put weights and optimizer states on the device, at the memory levels of the settings."""
        as_fake(self.transformer)
        # Module.to swaps tensors, which fake ones refuse; they are there already.
        with mock.patch.object(torch.nn.Module, "to", lambda module, *_: module):
            apply_memory_levels(self.family, self.transformer, self.settings, CPU)
        self.trainable.follow()
        count_weights(self.transformer, lifetimes)
        with lifetimes.because(OPTIMIZER):
            for parameter in self.trainable.parameters:
                for state in states(self.settings.optimizer, parameter):
                    self.optimizer.append(state)
                    lifetimes.add(state)

    def step(self) -> Simulated:
        """Run one training step."""

        def run(lifetimes: Lifetimes) -> None:
            self.place(lifetimes)
            with lifetimes.because(INPUTS), lifetimes:
                given = inputs(self.family, self.model, self.settings, self.dtype)
            for parameter in self.trainable.parameters:
                parameter.register_post_accumulate_grad_hook(lambda one: lifetimes.blame(one.grad, GRADIENTS))
            with lifetimes, as_on_a_gpu(lifetimes, self.dtype):
                with lifetimes.because(KEPT), autocast(self.dtype):
                    each, heard = self.family.losses(self.transformer.train(), FlowSchedule(AS_PUBLISHED), given)
                    loss = (each if heard is None else each + heard).mean()
                with lifetimes.because(BACKWARD):
                    loss.backward()

        return simulated(run)

    def denoising(self) -> Simulated:
        """Run one denoising step of a preview, with both prompts in one batch."""

        def run(lifetimes: Lifetimes) -> None:
            self.place(lifetimes)
            one = self.settings.changed(batch_size=2)
            with lifetimes.because(INPUTS), lifetimes:
                given = inputs(self.family, self.model, one, self.dtype)
            as_there = as_on_a_gpu(lifetimes, self.dtype)
            with lifetimes, as_there, lifetimes.because(WORKING), torch.no_grad(), autocast(self.dtype):
                self.family.predict(self.transformer.eval(), FlowSchedule(AS_PUBLISHED), given)

        return simulated(run)


def states(optimizer: str, parameter: torch.Tensor) -> list[torch.Tensor]:
    """Return AdamW's state of a parameter: both moments."""
    count = parameter.numel()
    if optimizer == "adamw-8bit" and count >= SMALLEST_8BIT:
        scales = -(-count // BLOCK_8BIT)
        return [torch.empty(count, dtype=torch.uint8) for _ in range(2)] + [torch.empty(scales) for _ in range(2)]
    assert optimizer in ("adamw", "adamw-8bit")
    return [torch.empty(count) for _ in range(2)]


def inputs(family: Family, model: Model, settings: TrainSettings, dtype: torch.dtype) -> ModelInputs:
    """Return a batch of the settings' shape, or of the model's default shape."""
    known, batch = family.facts(model), settings.batch_size
    shape = settings.frames or model.frames, settings.height or model.height, settings.width or model.width
    frames, channels, height, width = known.latents(*shape)

    def axes(channels: int, frames: int) -> tuple[int, ...]:
        return (channels, frames, height, width) if family.frame_axis == 2 else (frames, channels, height, width)

    latents = torch.randn(batch, *axes(channels, frames))
    given = None
    if known.timed_bytes or (family.name == "kandinsky5" and model.task == "image-to-video"):
        given = Given(known=torch.randn(batch, *axes(channels, 1)))
    elif known.in_channels > channels and family.name != "kandinsky5":
        beside = torch.randn(batch, *axes(known.in_channels - channels, frames))
        width = family.part_config(model, "transformer").get("image_embed_dim", 1280)
        tokens = {"image": torch.randn(batch, known.picture_tokens, width)} if known.picture_tokens else {}
        given = Given(beside=beside, tokens=tokens)
    elif known.side:  # VACE
        given = Given(tokens={wan_vace.CONTEXT: torch.randn(batch, 96, frames, height, width)})
    return ModelInputs(
        latents=latents,
        noise=torch.randn_like(latents),
        text={
            name: torch.ones(batch, *shape, dtype=None if name == "mask" else dtype)
            for name, shape in family.text_shapes(known).items()
        },
        timesteps=torch.full((batch,), 0.0 if settings.sound == SOUND_FOR_PICTURE else 500.0),
        given=given,
        fps=float(model.fps),
        sound=None if settings.sound == "picture" else sound(model, settings, shape[0] / model.fps),
    )


def sound(model: Model, settings: TrainSettings, seconds: float) -> SoundInputs:
    """Return a sound of LTX-2: 25 tokens a second."""
    width = published(model, "transformer")["audio_in_channels"]
    latents, noise = (torch.randn(settings.batch_size, round(25 * seconds) + 1, width) for _ in range(2))
    if settings.sound == PICTURE_FOR_SOUND:
        return SoundInputs.given(latents)
    return SoundInputs(latents, noise, torch.full((settings.batch_size,), 500.0), settings.sound)


def clip(
    family: Family,
    model: Model,
    settings: TrainSettings,
    decode: bool,
    tiled: bool,
    dtype: torch.dtype = torch.bfloat16,
) -> Simulated:
    """Run the video encoder on a clip, or its decoder on the latents of a clip."""
    dtype = family.vae_dtype(dtype)
    vae = on_meta(CLASSES[family.name][1], published(model, "vae"), dtype)
    known = family.facts(model)
    shape = settings.frames or model.frames, settings.height or model.height, settings.width or model.width
    _, channels, height, width = known.latents(*shape)
    frames = (shape[0] - 1) // known.temporal + 1
    if family.name == "wan":  # values that assets/architectures.json does not have
        vae.register_to_config(latents_mean=[0.0] * channels, latents_std=[1.0] * channels)

    def run(lifetimes: Lifetimes) -> None:
        as_fake(vae)
        count_weights(vae, lifetimes)
        if tiled:
            vae.enable_tiling()
        with lifetimes:
            with lifetimes.because(INPUTS):
                axes = (channels, frames) if family.frame_axis == 2 else (frames, channels)
                latents = torch.randn(1, *axes, height, width) if decode else None
                video = None if decode else torch.randn(1, 3, *shape, dtype=dtype)
            with lifetimes.because(WORKING):
                family.decode(vae, latents) if decode else family.encode_video(vae, video)

    return simulated(run)

"""The fit check against simulated steps of the real sizes: `python benchmarks/memory_simulation.py [--models NAME]`.

A training step, and the encoding and decoding of a clip, run on fake tensors, which have sizes and no numbers. Every
tensor is counted from its making to its end. ours: GB that the fit check estimates for the phase, reference: the most
that lived at a time. The goal is a ratio between 0.9 and 1.1 for training. The video encoder's estimate is 1.16 times
its simulation, by which CogVideoX's published figure exceeds it. Not simulated: what CUDA's allocator and its libraries
take beside the tensors, block swap, low-bit weights.

Fake tensors are the processor's, so that autograd works without a GPU. Autocast to bf16 there computes norms in bf16; a
GPU's does in fp32, which is done here.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import diffusers
import torch
from common import arguments, report
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from workbench.families import architectures, find_model
from workbench.families.base import Family
from workbench.families.model import Model
from workbench.families.model_inputs import Given, ModelInputs
from workbench.families.noise_schedules import AS_PUBLISHED, FlowSchedule
from workbench.fit import memory
from workbench.fit.estimate import estimate_from_facts
from workbench.fit.gpus import GpuModel
from workbench.jobs.devices import GIGABYTE
from workbench.memory.checkpointing import recomputing
from workbench.runs.settings import TrainSettings
from workbench.trainer.model import lora

CLASSES = {  # by family: transformer, video encoder
    "cogvideox": (diffusers.CogVideoXTransformer3DModel, diffusers.AutoencoderKLCogVideoX),
    "wan": (diffusers.WanTransformer3DModel, diffusers.AutoencoderKLWan),
    "ltx": (diffusers.LTXVideoTransformer3DModel, diffusers.AutoencoderKLLTXVideo),
}
MODELS = ("cogvideox-2b", "wan2.1-t2v-1.3b", "wan2.2-ti2v-5b-image", "wan2.1-i2v-14b-480p", "ltx-video-2b-0.9.5")
LEVELS = ("none", "keep attention", "full")
LARGE = GpuModel("a GPU with room for everything", "cuda", 2000.0, 394.0)
BF16, CPU = torch.bfloat16, torch.device("cpu")


class Lifetimes(TorchDispatchMode):
    """Counts the bytes of all tensors that live, by their storages. peak: the most there were"""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._now = 0
        self._known: weakref.WeakKeyDictionary[Any, None] = weakref.WeakKeyDictionary()

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage not in self._known:
            self._known[storage] = None
            self._now += storage.nbytes()
            weakref.finalize(storage, self._gone, storage.nbytes())
            self.peak = max(self.peak, self._now)

    def _gone(self, size: int) -> None:
        self._now -= size

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        made = function(*arguments, **(named or {}))
        for tensor in tree_iter(made):
            if isinstance(tensor, torch.Tensor):
                self.add(tensor)
        return made


def simulated(run: Callable[[Lifetimes], None]) -> float:
    """GB of the most that lives at a time while something runs on fake tensors."""
    lifetimes = Lifetimes()
    gc.collect()
    gc.disable()  # whatever is freed is freed when its last name is gone, as on a GPU
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            run(lifetimes)
    finally:
        gc.enable()
    return lifetimes.peak / GIGABYTE


def on_meta(kind: Any, model: Model, part: str) -> Any:
    """A published model's part in bf16, without numbers."""
    config = {name: value for name, value in published(model, part).items() if value is not None}
    torch.set_default_dtype(BF16)
    try:
        with torch.device("meta"):
            return kind.from_config(config).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(torch.float32)


def published(model: Model, part: str) -> dict[str, Any]:
    return dict(architectures.published()[model.source].parts[part].config)


def as_fake(module: Any, lifetimes: Lifetimes | None = None) -> None:
    """Fake tensors in place of those of the meta device; call it under FakeTensorMode. lifetimes: where they count"""
    single = getattr(module, "_keep_in_fp32_modules", None) or []
    for path, part in module.named_modules():
        for name, value in list(part._parameters.items()):
            if value is not None:
                kept = value.requires_grad or {*f"{path}.{name}".split(".")} & {*single}
                fake = torch.empty(value.shape, dtype=torch.float32 if kept else value.dtype)
                part._parameters[name] = torch.nn.Parameter(fake, requires_grad=value.requires_grad)
        for name, value in list(part._buffers.items()):
            if value is not None:
                part._buffers[name] = torch.empty(value.shape, dtype=value.dtype)
    if lifetimes is not None:
        for tensor in [*module.parameters(), *module.buffers()]:
            lifetimes.add(tensor)


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Autocast to bf16 whose norms compute in fp32."""
    plain = functional.layer_norm

    def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> torch.Tensor:
        weight, bias = (None if one is None else one.float() for one in (weight, bias))
        return plain(x.float(), shape, weight, bias, eps)

    with mock.patch.object(functional, "layer_norm", layer_norm), torch.autocast("cpu", BF16):
        yield


# ---- phases


def training(family: Family, model: Model, settings: TrainSettings) -> float:
    """Weights, optimizer states and one step."""
    transformer = on_meta(CLASSES[family.name][0], model, "transformer")
    with torch.device("meta"):
        family.use_attention(transformer, "auto", CPU)
        lora.attach(family, transformer, settings, 0)
        family.join_projections(transformer)
    if settings.gradient_checkpointing != "none":
        transformer.enable_gradient_checkpointing(recomputing(settings.gradient_checkpointing, False))

    def step(lifetimes: Lifetimes) -> None:
        as_fake(transformer, lifetimes)
        states = [torch.zeros_like(one) for one in transformer.parameters() if one.requires_grad for _ in range(2)]
        for state in states:
            lifetimes.add(state)
        given = inputs(family, model)
        with lifetimes, as_on_a_gpu():
            family.loss(transformer.train(), FlowSchedule(AS_PUBLISHED), given).mean().backward()

    return simulated(step)


def inputs(family: Family, model: Model) -> ModelInputs:
    """Of one clip as the model was made for."""
    known = family.facts(model)
    frames, channels, height, width = known.latents(model.frames, model.height, model.width)
    axes = (channels, frames, height, width) if family.frame_axis == 2 else (frames, channels, height, width)
    latents, text = torch.randn(1, *axes), torch.randn(1, known.text_tokens, known.text_width, dtype=BF16)
    given = None
    if known.timed_bytes:
        given = Given(known=torch.randn(1, channels, 1, height, width))
    elif known.in_channels > channels:
        beside = torch.randn(1, known.in_channels - channels, frames, height, width)
        given = Given(beside=beside, tokens={"image": torch.randn(1, 257, 1280)} if known.picture_tokens else {})
    return ModelInputs(
        latents=latents,
        noise=torch.randn_like(latents),
        text={"prompt_embeds": text, "mask": torch.ones(1, known.text_tokens)},
        timesteps=torch.full((1,), 500.0),
        given=given,
        fps=float(model.fps),
    )


def clip(family: Family, model: Model, decode: bool) -> float:
    """The video encoder on a whole clip, or its decoder in tiles, as previews are decoded."""
    vae, config = on_meta(CLASSES[family.name][1], model, "vae"), published(model, "vae")
    _, channels, height, width = family.facts(model).latents(model.frames, model.height, model.width)
    frames = (model.frames - 1) // family.facts(model).temporal + 1

    def run(lifetimes: Lifetimes) -> None:
        as_fake(vae, lifetimes)
        with lifetimes, torch.no_grad():
            if decode:
                vae.enable_tiling()
                times = [torch.full((1,), 0.05)] if config.get("timestep_conditioning") else []
                vae.decode(torch.randn(1, channels, frames, height, width, dtype=BF16), *times)
            else:
                vae.encode(torch.randn(1, 3, model.frames, model.height, model.width, dtype=BF16))

    return simulated(run)


def rows(name: str, levels: list[str], targets: str, clips: bool) -> list[dict[str, Any]]:
    family, model = find_model(name)
    found = []
    for level in levels:
        settings = TrainSettings().changed(model=name, rank=64, targets=targets, gradient_checkpointing=level)
        fit = estimate_from_facts(settings, model, family.facts(model), LARGE)
        ours = {phase.name: phase.gb - memory.CONTEXT_GB for phase in fit.phases}
        what = f"{memory.TRAINING}, {level}, {targets}"
        found.append(row(f"{name}: {what}", ours[memory.TRAINING], training(family, model, settings)))
    if clips:
        parts = {phase.name: phase.parts for phase in fit.phases}
        for phase, decode in ((memory.CLIPS, False), (memory.DECODING, True)):
            own = sum(parts[phase].get(part, 0.0) for part in ("VAE", "activations", "the clip", "the video"))
            found.append(row(f"{name}: {phase}", own, clip(family, model, decode)))
    return found


def row(case: str, ours: float, reference: float) -> dict[str, Any]:
    found = {"case": case, "ours": ours, "reference": reference, "ratio": ours / reference}
    print(case, f"{ours:.2f} GB estimated, {reference:.2f} simulated", flush=True)
    return found


def main() -> None:
    smallest = {"models": ["ltx-video-2b-0.9.5"], "levels": ["full"]}
    parser = arguments((__doc__ or "").splitlines()[0], **smallest)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    parser.add_argument("--targets", default="attention")
    options = parser.parse_args()
    done = [
        row
        for name in options.models
        for row in rows(name, options.levels, options.targets, clips=not options.smallest)
    ]
    report(done, options.json, goal="training: ratio between 0.9 and 1.1")


if __name__ == "__main__":
    main()

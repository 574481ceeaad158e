"""LoRA files in the real ComfyUI on a CPU, compared with diffusers; and how often their self-test names what is wrong.

    COMFYUI_DIR=~/ComfyUI python benchmarks/real_comfyui.py

COMFYUI_DIR is a checkout of ComfyUI, whose `comfy/` is imported into this process; it needs einops, torchsde and scipy.
Without it, only the checks of files are measured. Three parts:

1. Every LoRA format, loaded by ComfyUI into the built-in Wan: the relative difference from diffusers of what the LoRA
   changes in the model's output, and the lines that say "lora key not loaded".
2. Good files and six kinds of damage, in a shell and in ComfyUI: the share that is named rightly.
3. A whole sample, ComfyUI's and ours from the same noise: PSNR of the videos.

The built-in Wan has narrower text embeddings and fewer frequencies of time than ComfyUI's Wan, which reads neither from
the weights. Both are padded here so that the function stays the same: text columns with zeros, and time frequencies by
taking every other one of the wider set.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import math
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import arguments, report
from safetensors.torch import load_file, save, save_file

from workbench.families import find_model, lora_check, self_test
from workbench.families.base import Family
from workbench.families.conditioning import Conditioning
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.lora_files import LoraWeights, weights, with_metadata
from workbench.families.model_inputs import CallInputs
from workbench.families.self_test import SelfTestFacts

CPU = torch.device("cpu")
CHECKOUT = os.environ.get("COMFYUI_DIR", "")
TEXT_WIDTH, FREQUENCIES = 4096, 256  # what ComfyUI's Wan has, whatever the weights
Tensors = dict[str, torch.Tensor]

# ---- ComfyUI in this process


def start(checkout: str = CHECKOUT) -> None:
    """Import ComfyUI from a checkout, to run on the CPU."""
    if "comfy" in sys.modules:
        return
    sys.path.append(checkout)
    import diffusers  # noqa: F401  (before the stubs, which are no torchvision to them)
    import transformers  # noqa: F401
    from comfy.cli_args import args

    args.cpu = True
    stubs: dict[str, types.ModuleType] = {}
    if importlib.util.find_spec("torchvision") is None:  # only Cosmos uses it
        stubs = {name: types.ModuleType(name) for name in ("torchvision", "torchvision.transforms")}
        for name, stub in stubs.items():
            stub.__spec__ = importlib.machinery.ModuleSpec(name, None)
        stubs["torchvision"].transforms = stubs["torchvision.transforms"]  # type: ignore[attr-defined]
    sys.modules |= stubs
    try:
        import nodes  # noqa: F401  (it loads all that is used here)
    finally:
        for name in stubs:
            del sys.modules[name]


def comfy_weights(family: Family, transformer: Any) -> Tensors:
    """Return a Wan transformer's weights by the authors' names, as ComfyUI loads them, padded to its sizes."""
    norms = {"attn1.norm": "self_attn.norm", "attn2.norm": "cross_attn.norm"}
    found = Tensors()
    for name, tensor in transformer.state_dict().items():
        layer, _, kind = name.rpartition(".")
        if (own := family.layer_names.authors_name(layer)) is not None:
            found[f"{own}.{kind}"] = tensor
        elif name == "scale_shift_table":
            found["head.modulation"] = tensor
        elif name.endswith("scale_shift_table"):
            found[name.replace("scale_shift_table", "modulation")] = tensor
        else:
            for ours, theirs in norms.items():
                name = name.replace(ours, theirs)
            found[name.replace(".norm2.", ".norm3.")] = tensor
    text, time = found["text_embedding.0.weight"], found["time_embedding.0.weight"]
    found["text_embedding.0.weight"] = torch.nn.functional.pad(text, (0, TEXT_WIDTH - text.shape[1]))
    wide = time.new_zeros(time.shape[0], FREQUENCIES)
    wide[:, :: FREQUENCIES // time.shape[1]] = time
    found["time_embedding.0.weight"] = wide
    return {name: tensor.clone() for name, tensor in found.items()}


def comfy_model(family: Family, transformer: Any) -> Any:
    """Return a Wan transformer as ComfyUI's MODEL."""
    import comfy.sd

    model = comfy.sd.load_diffusion_model_state_dict(comfy_weights(family, transformer))
    assert model is not None, "ComfyUI does not know this model"
    return model


@contextmanager
def logged() -> Iterator[list[str]]:
    """Collect what ComfyUI logs."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    try:
        yield lines
    finally:
        logging.getLogger().removeHandler(handler)


def with_lora(model: Any, path: Path, strength: float = 1.0) -> tuple[Any, list[str]]:
    """Load a LoRA as ComfyUI's loader does. Returns (model, layers that ComfyUI says it did not load)."""
    import comfy.sd
    import comfy.utils

    with logged() as lines:
        loaded, _ = comfy.sd.load_lora_for_models(model, None, comfy.utils.load_torch_file(str(path)), strength, 0)
    return loaded, [line for line in lines if "not loaded" in line.lower()]


def comfy_output(model: Any, latents: torch.Tensor, timestep: float, text: torch.Tensor) -> torch.Tensor:
    """Return the transformer's output for noisy latents, with the model's LoRAs applied."""
    import comfy.model_management

    comfy.model_management.load_models_gpu([model])
    wide = torch.nn.functional.pad(text, (0, TEXT_WIDTH - text.shape[-1]))
    with torch.no_grad():
        found: torch.Tensor = model.model.diffusion_model(latents, torch.tensor([timestep]), wide)
    return found


# ---- LoRAs with known values


def random_lora(transformer: Any, seed: int, rank: int = 4, alpha: float = 8.0, part: str = "") -> LoraWeights:
    """Return a LoRA on the linear layers of the blocks whose names have `part`."""
    random, found = torch.Generator().manual_seed(seed), Tensors()
    for name, module in transformer.named_modules():
        if "blocks" in name and part in name and isinstance(module, torch.nn.Linear):
            found[f"{name}.lora_A.weight"] = torch.randn(rank, module.in_features, generator=random) * 0.1
            found[f"{name}.lora_B.weight"] = torch.randn(module.out_features, rank, generator=random) * 0.1
    layers = {name.rpartition(".lora_")[0] for name in found}
    return weights(found, dict.fromkeys(layers, alpha), "a benchmark")


class Trained:
    """A built-in model, and LoRA files of it as training leaves them."""

    def __init__(self, name: str) -> None:
        self.family, self.model = find_model(name)
        self.folder = self.family.fetch(self.model)
        self.transformer = self.family.load_transformer(self.folder, CPU, torch.float32)
        shape = self.family.latents_shape(self.folder, 5, 32, 32)
        self.latents = torch.from_numpy(lora_check.normals("benchmark", (1, *shape)))
        width = self.family.facts_of(self.model, self.folder).text_width
        self.text = torch.from_numpy(lora_check.normals("benchmark text", (1, 16, width)))

    def output(self, transformer: Any, timestep: float = 600.0) -> torch.Tensor:
        inputs = CallInputs(self.latents, {"prompt_embeds": self.text}, torch.tensor([timestep]))
        with torch.no_grad():
            return self.family.call(transformer, inputs)

    def fused(self, lora: LoraWeights) -> Any:
        """Return the transformer with a LoRA added to its weights, in plain torch."""
        made = self.family.load_transformer(self.folder, CPU, torch.float32)
        modules = dict(made.named_modules())
        for layer in lora.layers:
            up, down = lora.tensors[f"{layer}.lora_B.weight"], lora.tensors[f"{layer}.lora_A.weight"]
            modules[layer].weight.data += lora.scale_of(layer) * up @ down
        return made

    def outputs(self, lora: LoraWeights) -> lora_check.Outputs | None:
        """Return what the test of a trained LoRA says of the model's output: the LoRA is added as peft adds it."""
        from peft import LoraConfig, set_peft_model_state_dict

        made = self.family.load_transformer(self.folder, CPU, torch.float32)
        config = LoraConfig(r=lora.rank, lora_alpha=lora.alpha_of(lora.layers[0]), target_modules=lora.layers)
        made.add_adapter(config)
        set_peft_model_state_dict(made, dict(lora.tensors))
        return self_test.run(self.family, self.model, self.folder, made, CPU)

    def write(self, lora: LoraWeights, format: str, path: Path, about: SelfTestFacts | None = None) -> Path:
        """Write a LoRA in a format, with its test."""
        tensors, metadata = self.family.export_lora(lora, format)
        test = self_test.noted(self.family, tensors, metadata, about or self.about())
        path.write_bytes(with_metadata(save(tensors), {**metadata, **test}))
        return path

    def about(self, outputs: lora_check.Outputs | None = None) -> SelfTestFacts:
        return SelfTestFacts(self.model.id, self.model, self.folder, outputs=outputs)


def right_shift(model: Any, shift: float | None) -> Any:
    """Return ComfyUI's model with this shift of the noise levels, as a workflow sets it."""
    from comfy_extras.nodes_model_advanced import ModelSamplingSD3

    (found,) = ModelSamplingSD3().patch(model, shift)
    return found


# ---- 1. every format


def formats_in_comfyui(wan: Trained, folder: Path) -> list[dict[str, Any]]:
    """Load each of Wan's formats into ComfyUI, and compare the LoRA's effect on the output with plain torch."""
    lora = random_lora(wan.transformer, 1)
    about = wan.about(wan.outputs(lora))
    wanted = wan.output(wan.fused(lora)) - wan.output(wan.transformer)
    model, rows = right_shift(comfy_model(wan.family, wan.transformer), wan.model.flow_shift), []
    bare = comfy_output(model, wan.latents, 600.0, wan.text)
    for format in wan.family.lora_formats:
        path = wan.write(lora, format.id, folder / f"{format.id}.safetensors", about)
        loaded, lines = with_lora(model, path)
        change = comfy_output(loaded, wan.latents, 600.0, wan.text) - bare
        row = {"case": f"format {format.id}", "difference": float((change - wanted).norm() / wanted.norm())}
        verdict = lora_check.in_comfyui(loaded, path).code
        rows.append({**row, "keys not loaded": len(lines), "verdict": verdict, "files": 1, "named": None})
    return rows


# ---- 2. good files and damaged ones

IN_FILES = ("whole", "alpha lost", "layers missing", "changed", "damaged", "wrong expert")
IN_COMFYUI = ("whole", "alpha lost", "layers missing", "changed", "wrong expert", "wrong base", "other shift")


def lora_of(trained: Trained, seed: int) -> LoraWeights:
    """Return a LoRA whose rank, alpha and layers depend on the seed."""
    rank = (1, 2, 4, 8, 16)[seed % 5]
    alpha = rank * (0.5, 2.0, 0.25, 4.0)[seed % 4]
    return random_lora(trained.transformer, seed, rank, alpha, ("", "attn1", "to_")[seed % 3])


def saved(path: Path, tensors: Tensors, metadata: Mapping[str, str]) -> Path:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, dict(metadata))
    return path


def damaged(kind: str, path: Path, seed: int) -> Path:
    """Write a damaged copy of a LoRA file; a whole one in another precision for "whole"."""
    random = np.random.default_rng(seed)
    copy = path.with_name(f"{kind.replace(' ', '-')}.safetensors")
    tensors, metadata = load_file(path), lora_check.read_metadata(path)
    layers = sorted(lora_check.changes(self_test.arrays(tensors), metadata))
    some = tuple(f"{layer}." for layer in random.choice(layers, max(1, len(layers) // 8), replace=False))
    if kind == "whole":
        dtype = (torch.float32, torch.bfloat16, torch.float16)[seed % 3]
        return saved(copy, {name: tensor.to(dtype) for name, tensor in tensors.items()}, metadata)
    if kind == "alpha lost":
        metadata.pop("lora_adapter_metadata", None)
        return saved(copy, {name: one for name, one in tensors.items() if not name.endswith(".alpha")}, metadata)
    if kind == "layers missing":
        return saved(copy, {name: one for name, one in tensors.items() if not name.startswith(some)}, metadata)
    if kind == "changed":  # by noise of a tenth of the matrices
        noise = {name: torch.from_numpy(random.standard_normal(one.shape)).float() for name, one in tensors.items()}
        changed = [name for name, one in tensors.items() if name.startswith(some) and one.ndim > 1]
        return saved(copy, tensors | {n: tensors[n] + 0.1 * tensors[n].std() * noise[n] for n in changed}, metadata)
    whole = path.read_bytes()
    copy.write_bytes(whole[: int(len(whole) * random.uniform(0.3, 0.95))] if kind == "damaged" else whole)
    return copy


def named_in_files(trained: Trained, folder: Path, count: int) -> list[dict[str, Any]]:
    """Check whole files in all formats and precisions, and five kinds of damage that a file alone shows."""
    named = dict.fromkeys(IN_FILES, 0)
    ids = [one.id for one in trained.family.lora_formats if one.suffix == ".safetensors"]
    with_alpha = [one for one in ids if one in ("diffusers", "comfyui", "kohya", "lycoris")]
    about = SelfTestFacts(trained.model.id, trained.model, trained.folder, "high noise")
    for seed in range(count):
        lora = lora_of(trained, seed)
        path = trained.write(lora, ids[seed % len(ids)], folder / "file.safetensors", about)
        for kind in named:
            if kind == "alpha lost" and ids[seed % len(ids)] not in with_alpha:  # multiplied in: it cannot be lost
                chosen = with_alpha[seed % len(with_alpha)]
                path = trained.write(lora, chosen, folder / "file.safetensors", about)
            expert = "low noise" if kind == "wrong expert" else ""
            named[kind] += lora_check.check(damaged(kind, path, seed), expert=expert).code == kind
    return [_named(f"file of {trained.model.id}, {kind}", count, hits) for kind, hits in named.items()]


def named_in_comfyui(wan: Trained, folder: Path, count: int) -> list[dict[str, Any]]:
    """Check LoRAs that are loaded into ComfyUI: whole ones, and six kinds of mistakes."""
    other = wan.family.load_transformer(wan.folder, CPU, torch.float32)
    random = torch.Generator().manual_seed(0)
    for parameter in other.parameters():
        parameter.data += 0.3 * parameter.data.std(correction=0) * torch.randn(parameter.shape, generator=random)
    shift = wan.model.flow_shift
    model, strange = (right_shift(comfy_model(wan.family, one), shift) for one in (wan.transformer, other))
    named = dict.fromkeys(IN_COMFYUI, 0)
    for seed in range(count):
        lora = lora_of(wan, seed)
        path = wan.write(lora, "comfyui", folder / "file.safetensors", wan.about(wan.outputs(lora)))
        for kind in named:
            file = damaged(kind, path, seed)
            if kind == "wrong expert":
                file = _for_high_noise(file, other)
            loaded, _ = with_lora(strange if kind.startswith("wrong") else model, file)
            if kind == "other shift":
                loaded = right_shift(loaded, 8.0)
            named[kind] += lora_check.in_comfyui(loaded, file).code == kind
    return [_named(f"in ComfyUI, {kind}", count, hits) for kind, hits in named.items()]


def _for_high_noise(file: Path, low_noise: Any) -> Path:
    """Rewrite a LoRA's test as that of a model with two experts, this one for high noise."""
    metadata = lora_check.read_metadata(file)
    test = lora_check.SelfTest.loads(metadata[lora_check.KEY])
    second = {
        layer: lora_check.base_numbers(layer, low_noise.get_submodule(layer).weight.detach().numpy())
        for layer in test.base[""]
    }
    test = replace(test, expert="high noise", base={"high noise": test.base[""], "low noise": second})
    return saved(file, load_file(file), {**metadata, lora_check.KEY: test.dumps()})


def _named(case: str, files: int, hits: int) -> dict[str, Any]:
    return {"case": case, "difference": None, "keys not loaded": None, "verdict": None} | {
        "files": files,
        "named": hits / files,
    }


# ---- 3. a whole sample

PROMPT = "a red circle moves left on a blue background"


def psnr(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the PSNR of two clips in [-1, 1], dB."""
    return 10 * math.log10(4 / max(float((one - other).square().mean()), 1e-12))


def samples(wan: Trained, folder: Path, steps: int, known: tuple[int, ...] = ()) -> list[dict[str, Any]]:
    """Sample with a LoRA in ComfyUI and here, from the same noise and embeddings, with each of two solvers.

    known: frames that the model is given, of a clip of noise.
    """
    import comfy.sample
    import diffusers

    family, model = wan.family, wan.model
    lora = random_lora(wan.transformer, 1, alpha=4.0)
    path = wan.write(lora, "comfyui", folder / "sample.safetensors")
    loaded, _ = with_lora(right_shift(comfy_model(family, wan.transformer), model.flow_shift), path)
    encoder = family.load_text_encoder(wan.folder, CPU, torch.float32)
    text, negative = (family.encode_text(encoder, [prompt]) for prompt in (PROMPT, model.negative_prompt))
    shape = family.latents_shape(wan.folder, model.frames, model.height, model.width)
    noise = family.first_noise(shape, torch.Generator().manual_seed(0), torch.float32)
    vae, fused, rows = family.load_vae(wan.folder, CPU, torch.float32), wan.fused(lora), []
    latent_format, given, conditions = loaded.get_model_object("latent_format"), None, dict[str, Any]()
    if known:  # as WanImageToVideo and WanFirstLastFrameToVideo give it
        pixels = lora_check.normals("benchmark video", (1, 3, model.frames, model.height, model.width))
        told = Conditioning(model.frames, known, torch.from_numpy(pixels).mul(0.3).clamp(-1, 1))
        tensors = family.encode_conditioning(vae, None, told)
        given = family.conditioning_to_sample(wan.folder, tensors, shape, torch.Generator(), torch.float32)
        mask, latents = given.beside[:, :4], given.beside[:, 4:]
        conditions = {"concat_latent_image": latent_format.process_out(latents), "concat_mask": 1 - mask}
    wide = [
        [[torch.nn.functional.pad(one["prompt_embeds"], (0, TEXT_WIDTH - one["prompt_embeds"].shape[-1])), conditions]]
        for one in (text, negative)
    ]
    for solver in ("uni_pc", "euler"):
        theirs = comfy.sample.sample(
            loaded, noise, steps, model.guidance_scale, solver, "simple", *wide, torch.zeros_like(noise), seed=0
        )
        theirs = latent_format.process_in(theirs)
        inputs = DenoiseInputs(
            wan.folder,
            text=text,
            negative_text=negative,
            latents_shape=shape,
            steps=steps,
            guidance=Guidance(model.guidance_scale),
            noise=torch.Generator().manual_seed(0),
            flow_shift=model.flow_shift,
            given=given,
        )
        if solver == "uni_pc":
            ours = family.denoise(fused, inputs)
        else:  # with ComfyUI's noise levels, which "simple" takes from its table
            scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=1.0)
            levels = loaded.get_model_object("model_sampling").sigmas
            chosen = [float(levels[-(1 + int(step * len(levels) / steps))]) for step in range(steps)]
            scheduler.set_timesteps(sigmas=chosen)
            ours = noise.clone()
            for time in scheduler.timesteps:
                both = [
                    family.call(fused, CallInputs(ours, one, time[None].float(), given)).detach()
                    for one in (text, negative)
                ]
                guided = both[1] + model.guidance_scale * (both[0] - both[1])
                ours = scheduler.step(guided, time, ours).prev_sample
        ours, theirs = ours.detach(), theirs.detach()
        found = psnr(family.decode(vae, theirs), family.decode(vae, ours))
        shown = f"frames {', '.join(map(str, known))} given" if known else "from text"
        rows.append({**_named(f"sample {shown}, {solver}, {steps} steps, PSNR {found:.1f} dB", 1, 1), "named": None})
        rows[-1] |= {"difference": float((theirs - ours).norm() / ours.norm()), "psnr": found}
    return rows


def main() -> None:
    parser = arguments(__doc__.partition("\n")[0], count=2, in_comfyui=1, steps=2)
    parser.add_argument("--count", type=int, default=100, help="files of each kind that are checked; 0: none")
    parser.add_argument("--in-comfyui", type=int, default=20, help="likewise, of LoRAs that are loaded into ComfyUI")
    parser.add_argument("--steps", type=int, default=25, help="steps of the samples")
    options = parser.parse_args()
    wan, rows = Trained("tiny-wan"), list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for trained in (wan, Trained("tiny-cogvideox")) if options.count else ():
            rows += named_in_files(trained, folder, options.count)
        if CHECKOUT:
            start()
            rows += samples(wan, folder, options.steps)
            pictures = Trained("tiny-wan-i2v")
            for known in ((0,), (0, pictures.model.frames - 1)):
                rows += samples(pictures, folder, options.steps, known)
            rows += formats_in_comfyui(wan, folder)
            rows += named_in_comfyui(wan, folder, options.in_comfyui)
    shown = [{name: one for name, one in row.items() if name != "psnr"} for row in rows]
    version = Path(CHECKOUT, "comfyui_version.py").read_text(encoding="utf-8").split('"')[1] if CHECKOUT else None
    report(shown, options.json, comfyui=version)


if __name__ == "__main__":
    main()

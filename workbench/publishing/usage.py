"""The family's code for generating with a LoRA in plain diffusers, taken apart and put together for the Hub."""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from workbench.errors import ModelUnavailable
from workbench.families.base import Family, ImageScale
from workbench.families.model import Model
from workbench.families.usage import INTO_SECOND

PICTURE = "first_frame.png"
IMAGE = f'load_image("{PICTURE}")'
GENERATOR = "torch.Generator().manual_seed({})"


@dataclass(frozen=True)
class Usage:
    """The parts.

    pipeline: the diffusers class;  changes: statements on `pipe` where plain diffusers differs from training
    call:     the arguments of `pipe(...)`, name -> Python expression
    parts:    those that are loaded by themselves, in 32 bits, name -> diffusers class
    transformers: the parts that the LoRA is loaded into
    """

    pipeline: str
    changes: str
    call: Mapping[str, str]
    parts: Mapping[str, str] = field(default_factory=dict)
    transformers: tuple[str, ...] = ("transformer",)


def read(code: str) -> Usage:
    """Take apart what `Family.usage` returned."""
    lines, tree = code.splitlines(), ast.parse(code)
    pipeline, call, first, last = "DiffusionPipeline", dict[str, str](), 0, len(lines)
    parts, transformers = dict[str, str](), list[str]()
    for statement in tree.body:
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and node.func.id == "pipe":
                call = {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg}
                last = statement.lineno - 1
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained":
                name, pipeline = lines[statement.lineno - 1].split(" = ")[0], ast.unparse(node.func.value)
                parts[name] = pipeline
            elif isinstance(node.func, ast.Attribute) and node.func.attr in ("load_lora_weights", "set_adapters"):
                first = max(first, statement.end_lineno or 0)
                if node.func.attr == "load_lora_weights":
                    second = "load_into_transformer_2" in {word.arg for word in node.keywords}
                    transformers.append("transformer_2" if second else "transformer")
    parts.pop("pipe", None)
    return Usage(pipeline, "\n".join(lines[first:last]).strip("\n"), call, parts, tuple(transformers))


def usage_of(
    family: Family,
    model: Model,
    prompt: str,
    shape: tuple[int, int, int],
    image_scale: ImageScale = "pipeline",
    experts: Sequence[str] = (),
) -> Usage:
    """How to generate (frames, height, width); simpler where the model is not on this disk.

    experts: those that the LoRA is for, where the model has two
    """
    folder = family.on_disk(model) or Path(model.source)  # a family whose code needs configs says that they are missing
    with contextlib.suppress(ModelUnavailable, KeyError):
        return read(family.usage(model, folder, "lora.safetensors", prompt, shape, image_scale, experts))
    frames, height, width = shape
    call = {"image": IMAGE} if model.task == "image-to-video" else {}
    call |= {"prompt": repr(prompt), "num_frames": str(frames), "height": str(height), "width": str(width)}
    call |= {"num_inference_steps": str(model.steps), "guidance_scale": str(model.guidance_scale)}
    call["generator"] = GENERATOR.format(0)
    return Usage("DiffusionPipeline", "", call)


def own_code(family: Family, model: Model, prompt: str, shape: tuple[int, int, int], repo_id: str, seed: int) -> str:
    """The code of a family that diffusers has no pipeline for, with the LoRA from the Hub."""
    file = "lora.safetensors"
    found = family.usage(model, Path(model.source), file, prompt, shape)
    found = found.replace("# Run this in the folder of this file.\n", "")
    found = found.replace(f'".", weight_name={file!r}', _quoted(repr(repo_id)))
    return found.replace(GENERATOR.format(0), GENERATOR.format(seed))


def for_first_preview(used: Usage, repo_id: str, seed: int) -> Usage:
    """The same for the first preview of a repository: its seed and, where the model takes one, its picture."""
    call = {**used.call, "generator": GENERATOR.format(seed)}
    if "image" in call:
        call["image"] = f'load_image(hf_hub_download("{repo_id}", "{PICTURE}"))'
    return replace(used, call=call)


def code(used: Usage, model: Model, base: str, repo_id: str, also: str = "") -> str:
    """Python that loads the LoRA from the Hub and generates; also: a second file of weights in the repository."""
    helpers = ["export_to_video", *(["load_image"] if "load_image" in used.call.get("image", "") else [])]
    revision = f', revision="{model.revision}"' if model.revision else ""
    classes = sorted({used.pipeline, *used.parts.values()})
    head = ["import torch", f"from diffusers import {', '.join(classes)}"]
    head.append(f"from diffusers.utils import {', '.join(helpers)}")
    source, repo = _quoted(repr(base)), _quoted(repr(repo_id))
    if also or "hf_hub_download" in used.call.get("image", ""):
        head.append("from huggingface_hub import hf_hub_download")
    if also:
        head.append("from safetensors.torch import load_file")
    if model.embedded:
        head.append("from workbench.families import find_model  # the built-in model is a part of Video LoRA Workbench")
        source = f"find_model({_quoted(repr(model.id))})[1].source"
    load = ['device = "cuda" if torch.cuda.is_available() else "cpu"']
    load.append('dtype = torch.bfloat16 if device == "cuda" else torch.float32')
    # Newer diffusers call it dtype, but take this name, too; older ones would silently load 32 bits.
    for name, kind in used.parts.items():
        part = f'{source}, subfolder="{name}"{revision}, torch_dtype=torch.float32'
        load.append(f"{name} = {kind}.from_pretrained({part})")
    given = "".join(f", {name}={name}" for name in used.parts)
    load.append(f"pipe = {used.pipeline}.from_pretrained({source}{given}{revision}, torch_dtype=dtype)")
    load.append("pipe.to(device)  # or, with less memory: pipe.enable_model_cpu_offload()")
    for part in used.transformers:
        into = INTO_SECOND if part == "transformer_2" else ""
        load.append(f'pipe.load_lora_weights({repo}, adapter_name="lora"{into})')
    if also:
        load.append(f'also = load_file(hf_hub_download({repo}, "{also}"))')
        load += [f"pipe.{part}.load_state_dict(also, strict=False)" for part in used.transformers]
    if used.changes:
        load += ["", used.changes]
    if not model.local:
        load.append("pipe.vae.enable_tiling()")
    arguments = "".join(f"    {name}={_quoted(value)},\n" for name, value in used.call.items())
    generate = f'video = pipe(\n{arguments}).frames[0]\nexport_to_video(video, "video.mp4", fps={model.fps:g})'
    return "\n".join([*head, "", *load, generate])


def _quoted(expression: str) -> str:
    """A Python expression; a string in double quotes."""
    try:
        value = ast.literal_eval(expression)
    except ValueError:
        return expression
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else expression

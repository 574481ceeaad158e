"""The model card of a LoRA on the Hub: what it is, its previews, how to use it, how it was made, its limits.

The code in a card, or in a Space, is the family's (`Family.usage`), parsed and rewritten for the Hub.
"""

from __future__ import annotations

import ast
import contextlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.errors import ModelUnavailable
from workbench.families.base import Family, ImageScale
from workbench.families.model import Model
from workbench.families.usage import BUILT_IN, BY_PIPELINE, EMBEDDED, ENDS, INTO_SECOND, LOADERS, SAFE, SILENT
from workbench.loras.library import LibraryLora
from workbench.publishing.facts import Facts, anonymous_settings, anonymous_text
from workbench.runs import model_card

TEMPLATE = """---
{metadata}
---

{gallery}# {title}

{what}

{trigger}## Use

```python
{usage}
```

Rank and alpha are in the file, so a scale of 1 gives the LoRA its full strength. To weaken it, set a lower scale:
`pipe.set_adapters(["lora"], [0.7])`.

{comfyui}{made}## Limits

{limits}

Made with Video LoRA Workbench {version}{packages}.
"""
IN_COMFYUI = """## ComfyUI

Put [`{file}`](comfyui/{file}) into `models/loras`, and open [`workflow.json`](comfyui/workflow.json): core nodes only,
with the prompt and settings of the first preview. Choose your files of the base model in its loaders.

"""
CHECKED = """To see whether a program loads the LoRA whole, use [`lora_check.py`](lora_check.py):
`python lora_check.py FILE` checks a copy of the file, and in ComfyUI's folder `custom_nodes` it is the node
*Check LoRA*.

"""
PICTURE, LAST_PICTURE = "first_frame.png", "last_frame.png"
IMAGE = f'load_image("{PICTURE}")'
GENERATOR = "torch.Generator().manual_seed({})"


def readme_text(facts: Facts, repo_id: str, license: str = "", also: str = "", in_comfyui: str = "") -> str:
    """Return the text of README.md.

    also: the second file of weights, if there is one.
    in_comfyui: the LoRA's file for ComfyUI, if there is one.
    """
    lora, model = facts.lora, facts.model
    widget = [
        {"text": preview.prompt or "-", "output": {"url": sample_name(index)}}
        for index, preview in enumerate(facts.previews)
    ]
    first = facts.previews[0].prompt if facts.previews else example(lora)
    scale = facts.settings.image_latent_scale if facts.settings else "pipeline"
    seed = facts.previews[0].seed if facts.previews else 0
    if facts.family.has_pipeline:
        told = facts.settings.conditioning_kinds if facts.settings else ()
        used = usage_of(facts.family, facts.generated_with, first, facts.shape, scale, facts.experts, told)
        if facts.previews:  # reproduce the first one, with its seed and its pictures
            call = {**used.call, "generator": GENERATOR.format(seed)}
            for name, file in (("image", PICTURE), ("last_image", LAST_PICTURE)):
                if name in call:
                    call[name] = f'load_image(hf_hub_download("{repo_id}", "{file}"))'
            used = replace(used, call=call)
        usage = code(used, model, anonymous_text(model.source), repo_id, also)
    else:
        # diffusers has no pipeline for it, so the family's own code is used.
        made_with, source = facts.generated_with, Path(model.source)
        usage = facts.family.usage(made_with, source, "", first, facts.shape, repository=repo_id, seed=seed)
        usage = anonymous_text(usage)
    trigger = f"## Trigger word\n\nInclude **{lora.trigger}** in the prompt.\n\n" if lora.trigger else ""
    packages = ", ".join(f"{name} {version}" for name, version in (facts.card.packages if facts.card else {}).items())
    return TEMPLATE.format(
        metadata=model_card.metadata(model, lora.trigger, widget, license=license),
        gallery="<Gallery />\n\n" if widget else "",
        title=lora.title,
        what=anonymous_text(_what(facts)),
        trigger=trigger,
        usage=usage,
        comfyui=(IN_COMFYUI.format(file=in_comfyui) if in_comfyui else "") + CHECKED,
        made=_made(facts),
        limits=_limits(facts),
        version=__version__,
        packages=f", {packages}" if packages else "",
    )


def sample_name(index: int) -> str:
    return f"samples/{index}.mp4"


def example(lora: LibraryLora) -> str:
    """Return a prompt for code if there is no preview with one."""
    return f"{lora.trigger} ..." if lora.trigger else "..."


def _what(facts: Facts) -> str:
    lora, model = facts.lora, facts.model
    if facts.card is not None:
        return model_card.what(model, facts.card)  # the trigger word has a heading of its own
    strength = f"rank {lora.rank}" + (f", alpha {lora.alpha:g}" if lora.alpha is not None else "")
    trained = f" It was trained for {lora.steps} steps." if lora.steps else ""
    kind = "DoRA" if lora.dora else "LoKr" if lora.lokr else "LoRA"
    whose = model_card.expert_of(facts.experts)
    return f"A {kind} of {strength} for {whose}{model.title} ({model.task}): {lora.origin}.{trained}"


def _made(facts: Facts) -> str:
    """Describe the measurements, data and settings of its run; "" for LoRAs without a run."""
    if facts.card is None:
        return ""
    settings = facts.card.settings
    chosen: dict[str, Any] = settings.model_dump(mode="json", exclude_defaults=True)
    rows = {"model": settings.model, **chosen}
    rows = {name: value for name, value in anonymous_settings(rows).items() if name != "preview_prompts"}
    parts = [
        ("Measured", model_card.measured(facts.card)),
        ("Data", "| | |\n|---|---|\n" + model_card.table(dict(facts.statistics)) if facts.statistics else ""),
        (
            "How it was made",
            f"{anonymous_text(facts.card.origin)}\n\n| setting | value |\n|---|---|\n"
            f"{model_card.table(rows)}\n\n"
            "All other settings were left at their defaults.",
        ),
    ]
    return "".join(f"## {title}\n\n{text}\n\n" for title, text in parts if text)


def _limits(facts: Facts) -> str:
    """List what was not tested."""
    frames, height, width = facts.shape
    size = f"{frames} frames of {width}x{height}"
    lines = [
        f"The previews were generated with {facts.model.title} at {size}; other base models, lengths and sizes "
        "were not tested.",
        "It was not tested together with other LoRAs or outside diffusers.",
        "It shares the base model's weaknesses, and nothing filters what is generated.",
    ]
    if not facts.previews:
        lines[0] = f"No preview was generated with it. It is made for {facts.model.title} only."
    if warning := facts.family.lora_formats[0].warning:
        lines.append(f"{warning} (`workbench loras convert`).")
    if facts.card is None or not facts.card.losses:
        lines.append("No clips were held out of training, so how well it generalizes was not measured.")
    if facts.card is None or facts.card.changes is None:
        lines.append("Its effect on unrelated prompts was not measured.")
    return "\n".join(f"- {line}" for line in lines)


# ---- code that uses the LoRA ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usage:
    """Code that generates a video, in parts."""

    pipeline: str  # the diffusers class
    changes: str  # statements on `pipe` where plain diffusers differs from training
    call: Mapping[str, str]  # the arguments of `pipe(...)`, name -> Python expression
    # Parts that are loaded separately, in fp32, name -> diffusers class
    parts: Mapping[str, str] = field(default_factory=dict)
    transformers: tuple[str, ...] = ("transformer",)  # the parts that the LoRA is loaded into
    loader: str = BY_PIPELINE  # the method that loads it
    written: str = SILENT  # the function that writes the video, of usage.ENDS


def read(code: str) -> Usage:
    """Parse the code that `Family.usage` returned."""
    lines, tree = code.splitlines(), ast.parse(code)
    pipeline, call, first, last = "DiffusionPipeline", dict[str, str](), 0, len(lines)
    parts, transformers, loader, written = dict[str, str](), list[str](), BY_PIPELINE, SILENT
    for statement in tree.body:
        for node in ast.walk(statement):
            if not isinstance(node, ast.Call):
                continue
            if isinstance(node.func, ast.Name) and node.func.id == "pipe":
                call = {word.arg: ast.unparse(word.value) for word in node.keywords if word.arg}
                last = statement.lineno - 1
            elif isinstance(node.func, ast.Name) and node.func.id in ENDS:
                written = node.func.id
            elif isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained":
                name, pipeline = lines[statement.lineno - 1].split(" = ")[0], ast.unparse(node.func.value)
                parts[name] = pipeline
            elif (name := ast.unparse(node.func)) in LOADERS or name.endswith(".set_adapters"):
                first = max(first, statement.end_lineno or 0)
                if name in LOADERS:
                    loader = name
                    second = "load_into_transformer_2" in {word.arg for word in node.keywords}
                    transformers.append("transformer_2" if second else "transformer")
    parts.pop("pipe", None)
    changes = "\n".join(lines[first:last]).strip("\n")
    return Usage(pipeline, changes, call, parts, tuple(transformers), loader, written)


def usage_of(
    family: Family,
    model: Model,
    prompt: str,
    shape: tuple[int, int, int],
    image_scale: ImageScale = "pipeline",
    experts: Sequence[str] = (),
    kinds: Sequence[str] = (),
) -> Usage:
    """Return code that generates a video; a simpler version if it needs model files that are not on this disk.

    Args:
        shape: (frames, height, width).
        experts: the experts that the LoRA is for, if the model has two.
        kinds: the kinds of given frames that it was trained with.
    """
    folder = family.on_disk(model) or Path(model.source)  # a family that needs missing configs raises below
    with contextlib.suppress(ModelUnavailable, KeyError):
        return read(family.usage(model, folder, "lora.safetensors", prompt, shape, image_scale, experts, kinds=kinds))
    frames, height, width = shape
    call = {"image": IMAGE} if model.task == "image-to-video" else {}
    call |= {"prompt": repr(prompt), "num_frames": str(frames), "height": str(height), "width": str(width)}
    call |= {"num_inference_steps": str(model.steps), "guidance_scale": str(model.guidance_scale)}
    call["generator"] = GENERATOR.format(0)
    return Usage("DiffusionPipeline", "", call)


def code(used: Usage, model: Model, base: str, repo_id: str, also: str = "") -> str:
    """Return Python code that loads the LoRA from the Hub and generates a video.

    also: a second file of weights in the repository; "" without one.
    """
    helpers = [used.written, *(["load_image"] if "load_image" in used.call.get("image", "") else [])]
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
        head.append(EMBEDDED.strip())
        source = BUILT_IN.format(id=_quoted(repr(model.id)))
    load = ['device = "cuda" if torch.cuda.is_available() else "cpu"']
    load.append('dtype = torch.bfloat16 if device == "cuda" else torch.float32')
    # Newer diffusers call it dtype but still accept torch_dtype; older ones would ignore dtype and load fp32.
    for name, kind in used.parts.items():
        part = f'{source}, subfolder="{name}"{revision}, torch_dtype=torch.float32'
        load.append(f"{name} = {kind}.from_pretrained({part})")
    given = "".join(f", {name}={name}" for name in used.parts)
    load.append(f"pipe = {used.pipeline}.from_pretrained({source}{given}{revision}, torch_dtype=dtype)")
    load.append("pipe.to(device)  # or, with less memory: pipe.enable_model_cpu_offload()")
    for part in used.transformers:
        into = SAFE if used.loader != BY_PIPELINE else INTO_SECOND if part == "transformer_2" else ""
        load.append(f'{used.loader}({repo}, adapter_name="lora"{into})')
    if also:
        load.append(f'also = load_file(hf_hub_download({repo}, "{also}"))')
        load += [f"pipe.{part}.load_state_dict(also, strict=False)" for part in used.transformers]
    if used.changes:
        load += ["", used.changes]
    if not model.local:
        load.append("pipe.vae.enable_tiling()")
    arguments = "".join(f"    {name}={_quoted(value)},\n" for name, value in used.call.items())
    end = ENDS[used.written].format(fps=model.fps)
    return "\n".join([*head, "", *load, f"video = pipe(\n{arguments}){end}"])


def _quoted(expression: str) -> str:
    """Return a Python expression; if it is a string, with double quotes."""
    try:
        value = ast.literal_eval(expression)
    except ValueError:
        return expression
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else expression

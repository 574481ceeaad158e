"""Python code for model cards that generates with a LoRA in plain diffusers: the part common to all pipelines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.families.model import Model

CODE = """import torch
from diffusers import {classes}
from diffusers.utils import {helpers}{imports}

# {here}Older and newer diffusers both take torch_dtype.
device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = torch.bfloat16 if device == "cuda" else torch.float32
{before}pipe = {pipeline}.from_pretrained({source}{parts}, torch_dtype=dtype)
pipe.to(device)  # or, with less memory: pipe.enable_model_cpu_offload()
{load}
{loader}.set_adapters(["lora"], [1.0]){changes}
video = pipe(
    {image}prompt={prompt!r},{negative}
    {frames}{size}num_inference_steps={steps}{guidance}{arguments},
    generator=torch.Generator().manual_seed({seed}),
){end}"""
# Name of a function in diffusers.utils -> how the code ends, after the call.
SILENT, HEARD = "export_to_video", "encode_video"
ENDS = {
    SILENT: '.frames[0]\nexport_to_video(video, "video.mp4", fps={fps:g})',
    HEARD: """
encode_video(
    video.frames[0],
    fps={fps:g},
    output_path="video.mp4",
    audio=video.audio[0].float().cpu(),
    audio_sample_rate=pipe.vocoder.config.output_sampling_rate,
)""",
}
OTHER_CURVE = """

# The samples used the guidance curve "{curve}", which this pipeline does not have:
# `workbench sample --dynamic-guidance {curve}` does."""
HERE = "Run this in the folder of this file."
LOAD = '{loader}({source}, adapter_name="lora"{into})'
BY_PIPELINE, BY_TRANSFORMER = LOADERS = "pipe.load_lora_weights", "pipe.transformer.load_lora_adapter"
LAST = 'last_image=load_image("last_frame.png")'
ALSO_CONDITIONED = """

# The LoRA was also trained with inputs that this pipeline does not take: {kinds}.
# `workbench sample` takes them with {options}."""
OPTIONS = {  # kind of conditioning -> options of `workbench sample`
    "first": "--image",
    "last": "--last-image",
    "first+last": "--image and --last-image",
    "prefix": "--continue-from and --tell-frames",
    "suffix": "--continue-to",
    "keyframes": "--keyframes",
    "mask": "--video and --mask",
    "control": "--control",
    "reference": "--reference",
    "sound": "--given-sound",
    "picture": "--given-video",
}
DYNAMIC = "use_dynamic_cfg=True"  # argument of CogVideoX's pipelines in diffusers for the curve "stock"
INTO_SECOND = ", load_into_transformer_2=True"
SAFE = ", use_safetensors=True"  # otherwise a transformer's loader looks for a pickle
BUILT_IN = "find_model({id}).whole_folder()"
EMBEDDED = "\nfrom workbench.families import find_model  # the built-in model is part of Video LoRA Workbench"


@dataclass(frozen=True)
class UsageExtras:
    """Code that one pipeline needs in addition."""

    classes: tuple[str, ...] = ()  # more imports from diffusers
    before: str = ""  # lines before loading the pipeline, with SOURCE for the first arguments of `from_pretrained`
    parts: str = ""  # more arguments for loading the pipeline, each after a comma
    changes: str = ""  # lines after loading
    arguments: str = ""  # more arguments of the call, each after a comma
    helpers: tuple[str, ...] = ()  # more imports from diffusers.utils
    # counts, sized, guided: the call takes a number of frames, a height and a width, a guidance scale
    counts: bool = True
    sized: bool = True
    guided: bool = True
    by_transformer: bool = False  # the pipeline loads no LoRA, but its transformer does
    heard: bool = False  # the pipeline also returns a sound
    pipeline: str = ""  # another pipeline class, which takes no `image`; "" for the model's


def lora_source(lora: str, repository: str) -> str:
    """Return the first arguments of `load_lora_weights`: a Hub repository or, if that is "", a file beside the code."""
    return json.dumps(repository) if repository else f'".", weight_name={lora!r}'


def code(
    pipeline: str,
    model: Model,
    lora: str,
    prompt: str,
    shape: tuple[int, int, int],
    extras: UsageExtras,
    experts: Sequence[str] = (),
    repository: str = "",
    seed: int = 0,
) -> str:
    """Return the code for (frames, height, width) with a diffusers pipeline class: see `Family.usage`."""
    frames, height, width = shape
    pipeline, of_image = extras.pipeline or pipeline, model.task == "image-to-video" and not extras.pipeline
    known = model.dynamic_guidance == "off" or DYNAMIC in extras.arguments
    changes = extras.changes + ("" if known else OTHER_CURVE.format(curve=model.dynamic_guidance))
    source = BUILT_IN.format(id=repr(model.id)) if model.embedded else repr(model.source)
    source += f", revision={model.revision!r}" if model.revision else ""
    if model.variant and not model.scheduler_changes:  # otherwise `parts` has the variant's transformer
        source += f", variant={model.variant!r}"
    written = HEARD if extras.heard else SILENT
    load = BY_TRANSFORMER if extras.by_transformer else BY_PIPELINE
    second = "" if model.guidance_scale_2 is None else f", guidance_scale_2={model.guidance_scale_2}"
    loads = []  # a line for each transformer that the LoRA is for
    for expert in model.experts_for(experts):
        into = SAFE if extras.by_transformer else "" if expert.part == "transformer" else INTO_SECOND
        line = LOAD.format(loader=load, source=lora_source(lora, repository), into=into)
        loads.append(f"{line}  # the transformer for {expert.name}" if expert.name else line)
    return CODE.format(
        here="" if repository else f"{HERE} ",
        seed=seed,
        classes=", ".join(sorted({pipeline, *extras.classes})),
        helpers=", ".join(sorted({written, *(["load_image"] if of_image else []), *extras.helpers})),
        imports=EMBEDDED if model.embedded else "",
        before=extras.before.replace("SOURCE", source),
        pipeline=pipeline,
        source=source,
        parts=extras.parts,
        load="\n".join(loads),
        loader=load.rpartition(".")[0],
        changes=f"{changes}\n" if changes else "",
        image='image=load_image("first_frame.png"), ' if of_image else "",
        prompt=prompt,
        negative=f"\n    negative_prompt={model.negative_prompt!r}," if model.negative_prompt else "",
        frames=f"num_frames={frames}, " if extras.counts else "",
        size=f"height={height}, width={width}, " if extras.sized else "",
        steps=model.steps,
        guidance=f",\n    guidance_scale={model.guidance_scale}{second}" if extras.guided else "",
        arguments=extras.arguments,
        end=ENDS[written].format(fps=model.fps),
    )

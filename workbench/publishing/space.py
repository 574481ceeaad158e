"""The files of a demo Space: an app that loads the LoRA from the Hub and generates videos with it.

    app.py              assets/space_app.py with the facts of this LoRA filled in
    README.md           the Space's front matter, which also chooses the version of Gradio
    requirements.txt    the app's other packages
    samples/            previews as examples
    base/               the base model if it is a built-in one, which is not on the Hub

The app uses `spaces.GPU` on ZeroGPU, otherwise the Space's own hardware.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.errors import ConfigError, DataError
from workbench.families.base import ResolvedModel
from workbench.loras.library import LibraryLora
from workbench.paths import ASSETS
from workbench.publishing.card import example, sample_name, usage_of
from workbench.publishing.facts import Facts, gather
from workbench.publishing.settings import SpacePush
from workbench.publishing.upload_plan import README, FileContent, UploadPlan
from workbench.runs.model_card import license_of
from workbench.workspace import Workspace
from workbench.workspace.lora_names import ALSO

TEMPLATE = ASSETS / "space_app.py"
OPEN, CLOSE = "# <facts>\n", "# </facts>\n"
BASE = "base"
OWN = ("generator", "prompt", "image", "num_inference_steps", "guidance_scale")  # what the app's visitors choose
PYTHON = "3.12"
# torch: the versions that both this project and ZeroGPU support. All others as in pyproject.toml.
REQUIREMENTS = """torch>=2.10,<2.12
diffusers=={diffusers}
transformers>=5.10.1,<6
peft>=0.18,<0.22
accelerate>=1.10,<2
safetensors
sentencepiece>=0.2.0,<0.2.2
protobuf>=5,<8
ftfy
numpy
av>=17.1,<20
spaces
"""


def space_upload(workspace: Workspace, lora: LibraryLora, settings: SpacePush) -> UploadPlan:
    """Plan what to upload to the Space. Raises ConfigError if the LoRA is not on the Hub yet, DataError."""
    published = lora.published
    if not published.get("repo_id"):
        raise ConfigError(f"{lora.title} is not on the Hub yet, where its Space would load it from: push it first")
    facts = gather(workspace, lora)
    if not facts.family.has_pipeline:
        raise DataError(
            f"diffusers has no pipeline for {facts.family.title}, and a Space generates with diffusers: push only the "
            "LoRA"
        )
    if facts.model.local and not facts.model.embedded:
        raise DataError(
            f"{facts.model.title} is a folder on this machine, which a Space cannot load: push its base model to the "
            "Hub, or push only the LoRA"
        )
    files: dict[str, FileContent] = {
        "app.py": app(facts, str(published["repo_id"])).encode(),
        README: readme(facts, str(published["repo_id"])).encode(),
        "requirements.txt": REQUIREMENTS.format(diffusers=version("diffusers")).encode(),
    }
    for index, preview in enumerate(facts.previews):
        files[sample_name(index)] = media.without_comment(preview.video)
        if preview.picture is not None:
            files[_picture(index)] = preview.picture
    if facts.model.embedded:
        files |= _base(ResolvedModel(facts.family, facts.model).whole_folder())
    message = f"Demo of {lora.title} from Video LoRA Workbench"
    notes = _notes(facts, settings)
    return UploadPlan("space", settings.repo_id, settings.private, message, files, notes)


def app(facts: Facts, lora_repo: str) -> str:
    examples = list[list[Any]]()
    for index, one in enumerate(facts.previews):
        picture, made = _picture(index) if one.picture else None, one.model
        examples.append([one.prompt, picture, one.seed, made.steps, made.guidance_scale, sample_name(index)])
    model, lora = facts.model, facts.lora
    scale = facts.settings.image_latent_scale if facts.settings else "pipeline"
    used = usage_of(facts.family, facts.generated_with, example(lora), facts.shape, scale, facts.experts)
    about = f"A LoRA for {model.title}: [{lora_repo}](https://huggingface.co/{lora_repo})."
    base = BASE if model.embedded else model.source
    also = ALSO if (lora.folder / ALSO).is_file() else None
    steps, guidance = facts.generated_with.steps, facts.generated_with.guidance_scale
    frames, height, width = facts.shape
    size = {"num_frames": frames, "height": height, "width": width}  # the app estimates its time by it
    values = {**size, **used.call}
    call = ", ".join(f"{name!r}: {value}" for name, value in values.items() if name not in OWN)
    lines = [
        f"TITLE, ABOUT = {lora.title!r}, {about!r}",
        f"PIPELINE, BASE, REVISION = {used.pipeline!r}, {base!r}, {model.revision!r}",
        f"PARTS = {dict(used.parts)!r}",
        f"LORA, ALSO, TRANSFORMERS = {lora_repo!r}, {also!r}, {used.transformers!r}",
        f"TRIGGER, WITH_IMAGE = {lora.trigger!r}, {model.task == 'image-to-video'}",
        f"STEPS, GUIDANCE, FPS = {steps}, {guidance}, {model.fps}",
        f"CALL = {{{call}}}",
        "EXAMPLES = [  # prompt, first frame, seed, steps, guidance scale, video",
        *(f"    {example!r}," for example in examples),
        "]",
        "",
        "",
        "def prepared(pipe):",
        '    """The pipeline, set to what training did where plain diffusers differs."""',
        *(f"    {line}".rstrip() for line in used.changes.splitlines()),
        "    return pipe",
        "",
        "",
    ]
    before, _, rest = TEMPLATE.read_text(encoding="utf-8").partition(OPEN)
    return before + "\n".join(lines) + rest.partition(CLOSE)[2].lstrip("\n")


def _picture(index: int) -> str:
    return sample_name(index).removesuffix(".mp4") + ".png"


def readme(facts: Facts, lora_repo: str) -> str:
    """Return the text of README.md, whose front matter configures the Space."""
    model, lora = facts.model, facts.lora
    values: dict[str, Any] = {
        "title": lora.title[:60],
        "emoji": "🎬",
        "colorFrom": "blue",
        "colorTo": "gray",
        "sdk": "gradio",
        "sdk_version": version("gradio"),
        "python_version": PYTHON,
        "app_file": "app.py",
        "short_description": f"Videos generated with a LoRA for {model.title}"[:60],
        "models": [lora_repo, *([] if model.local else [model.source])],
        "tags": [model.task, "lora", "video-lora-workbench"],
        "suggested_hardware": "cpu-basic" if model.embedded else "zero-a10g",
        "startup_duration_timeout": "1h",
        **({} if model.local else {"preload_from_hub": [model.source]}),
        **license_of(model),
    }
    values = {name: value for name, value in values.items() if name not in ("license_name", "license_link")}
    front = "\n".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())
    return (
        f"---\n{front}\n---\n\n# {lora.title}\n\nWrite a prompt, get a video: a demo of "
        f"[{lora_repo}](https://huggingface.co/{lora_repo}). On a Space with ZeroGPU or a GPU of its own it takes that "
        "GPU; without one it runs on the CPU, which is slow for anything but a tiny model.\n"
    )


def _base(folder: Path) -> dict[str, FileContent]:
    """Return the built-in model's files."""
    return {
        f"{BASE}/{path.relative_to(folder).as_posix()}": path.resolve()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in (".json", ".safetensors", ".model", ".txt")
    }


def _notes(facts: Facts, settings: SpacePush) -> tuple[str, ...]:
    found = [
        f"{sample_name(index)} goes without its first frame: {preview.left_out}."
        for index, preview in enumerate(facts.previews)
        if preview.left_out
    ]
    lora = facts.lora
    if not lora.published.get("private"):
        return tuple(found)
    found += [
        f"{lora.published['repo_id']} is private: in the settings of the Space, give it a secret named HF_TOKEN with a "
        "token that may read it, or make the LoRA public."
    ]
    if not settings.private:
        found.append("The Space is public: everyone can see what it generates, but not the LoRA file.")
    return tuple(found)

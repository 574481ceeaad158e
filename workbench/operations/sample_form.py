"""The form for new samples: reuse settings from samples and files, preview a request, enhance prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from workbench.compare.axes import work
from workbench.compare.suggestions import pace
from workbench.errors import ConfigError
from workbench.families import known_model
from workbench.families.model import Model
from workbench.form_rules import needless, own_values, summary, takes, without_effect
from workbench.jobs import State
from workbench.loras.library import find_file, inserted, lacking, words_of
from workbench.operations.registry import operation
from workbench.operations.shared import FormState, Written, one_of
from workbench.sampler import prompt_enhancer, view
from workbench.sampler.inputs import inputs_of, keep, keep_lora
from workbench.sampler.prompt_enhancer import EnhancedPrompt, PromptSettings
from workbench.sampler.samples import LATENTS, Samples, joins_scenes, settings_of
from workbench.sampler.settings import INPUT_FILES, BatchSettings, SampleSettings, expand
from workbench.settings import parse
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace, named_paths


class Filled(Snapshot):
    """Values to fill into the form."""

    values: dict[str, Any]
    """Sample settings to fill in. All others stay as they are."""

    scenes: bool
    """Whether each line of the prompt is a scene."""

    message: str
    """What was filled in, in one sentence."""


@operation(path="/samples/{id}/reuse", shell=False)
def reuse(
    workspace: Workspace,
    id: Annotated[str, Field(description="Id of the sample.")],
    what: Annotated[
        Literal["settings", "seed", "change", "continue"],
        Field(description="What to reuse: all settings, only the seed, or the video, to change or continue it."),
    ],
) -> Filled:
    """Get the values to reuse from a sample."""
    one = Samples(workspace).get(id)
    joined = what == "settings" and "scenes" in one.record
    return Filled(values=view.reused(what, one), scenes=joined, message=view.REUSED[what])


File = Annotated[str, Field(description="Path of a file.", json_schema_extra={"path": True})]


@operation(path="/samples/read-file", changes=True, shell=False)
def read_file(workspace: Workspace, file: File) -> Filled:
    """Read the settings from a video, latents or JSON file made by the workbench, or get the settings to use a LoRA."""
    path = named_paths.resolve(file)
    try:
        return Filled(
            values=settings_of(path, workspace).model_dump(mode="json"),
            scenes=joins_scenes(path),
            message=view.REUSED["settings"],
        )
    except ConfigError:
        if path.suffix != LATENTS:
            raise
    known = find_file(workspace, path)
    name = known.name if known else str(keep_lora(workspace, path))
    model = known.model if known else ""
    values: dict[str, Any] = {"loras": [name]}
    if known_model(model) is not None:
        values["model"] = model
    return Filled(values=values, scenes=False, message="The form now uses this LoRA.")


FILES = ("keyframes", *INPUT_FILES)
# The model's own values of these apply while the setting is empty.
OWN = ("guidance_scale", "guidance_scale_2", "steps", "frames", "height", "width", "fps", "negative_prompt")


@operation(path="/samples/keep-file", changes=True, shell=False)
def keep_file(
    workspace: Workspace,
    file: File,
    *,
    name: Annotated[
        str,
        one_of(FILES),
        Field(description=f"The sample setting to use it for: {', '.join(FILES)}."),
    ] = "image",
) -> Written:
    """Copy an image or a video into the workspace, as an input for samples."""
    return Written(file=str(keep(workspace, Path(file), INPUT_FILES.get(name, "picture"))))


# ---- previewing a request


class Planned(FormState):
    """A preview of a request for samples."""

    videos: int | None
    """Number of videos that it generates; null while a setting is wrong."""

    seconds: float | None
    """Estimated duration in seconds, based on earlier samples; null if unknown."""

    sizes: tuple[tuple[int, int], ...]
    """Common sizes, the model's own first: width, height."""

    lengths: tuple[int, ...]
    """Frame counts that the model accepts."""

    fps: float
    """Frames per second."""

    lacking: tuple[str, ...]
    """Trigger words of the LoRAs that are missing in the prompt."""

    with_words: str
    """The prompt with these words added."""


@operation(path="/sample-plan", shell=False)
def plan(
    workspace: Workspace,
    *,
    values: Annotated[
        dict[str, Any], Field(description="Settings of samples and batches that differ from their defaults.")
    ] = {},  # noqa: B006 - never changed
) -> Planned:
    """Preview a request: what is wrong with it, the model's defaults, and how long it takes."""
    of_batch = {name: value for name, value in values.items() if name in BatchSettings.model_fields}
    given = {name: value for name, value in values.items() if name not in of_batch}
    model = None
    settings, problems, many = SampleSettings(), {}, list[SampleSettings]()
    try:
        # The model alone first, so that its defaults are known even if another setting is wrong.
        settings = parse(SampleSettings, {"model": given["model"]} if "model" in given else {})
        model = named.model if (named := known_model(settings.model)) else None
        settings, batch = parse(SampleSettings, given), parse(BatchSettings, of_batch)
        many = expand(settings, batch)
        if model:
            inputs_of(workspace, many[0])
    except ConfigError as error:
        problems = error.problems or {"": str(error)}
    prompt = str(given.get("prompt", ""))
    prompts = [one.prompt for one in many] or [prompt]
    words = words_of(workspace, settings.loras)
    by_line = of_batch.get("each_line") or of_batch.get("scenes")
    lines = [line for line in prompt.splitlines() if line.strip()] if by_line else []
    all_values = {**SampleSettings().model_dump(), **given, "model": settings.model}
    own = {name: value for name in OWN if (value := getattr(model, name, None)) is not None}
    seconds = None
    if model and many and not problems:
        each = pace(workspace, many[0].changed(frames=many[0].frames or model.frames))
        seconds = None if each is None else each * sum(work(one, model.steps) for one in many)
    return Planned(
        problems=problems,
        without_effect=tuple(without_effect(SampleSettings, all_values)),
        notes=() if problems else tuple(needless(settings, given)),
        videos=None if problems else len(many),
        seconds=seconds,
        model=summary(settings.model),
        own={**own_values(settings.model), **own},
        sizes=_sizes(model) if model else (),
        lengths=tuple(model.frame_counts) if model else (),
        fps=settings.fps or (model.fps if model else 8),
        lacking=tuple(dict.fromkeys(word for one in prompts for word in lacking(one, words))),
        with_words="\n".join(inserted(line, words) for line in lines or [prompt]),
    )


def _sizes(model: Model) -> tuple[tuple[int, int], ...]:
    """Return the model's own size, its portrait version and a square, as long as the model accepts them."""
    usual = ((model.width, model.height), (model.height, model.width), (model.height, model.height))
    return tuple(dict.fromkeys((width, height) for width, height in usual if takes(model, model.frames, height, width)))


# ---- the prompt enhancer


class Enhanced(Snapshot):
    """The prompt enhancer's state and its latest result."""

    going: bool
    """Whether it is writing."""

    message: str
    """What it is doing, or why it wrote nothing; "" otherwise."""

    prompt: str
    """The prompt that it wrote last; "" if there is none."""

    short: str
    """The short prompt that it was written from."""

    tokens: int | None
    """Length of the written prompt in tokens of the video model; null if unknown."""

    limit: int | None
    """Maximum number of tokens that the video model reads; null if unknown."""

    settings: dict[str, Any]
    """The settings it was last used with."""


@operation(path="/prompt-enhancer", shell=False)
def enhanced(workspace: Workspace) -> Enhanced:
    """Show what the prompt enhancer is doing and what it wrote last."""
    status = prompt_enhancer.status(workspace)
    message = ""
    if status.state.alive:
        message = status.phase or "starting"
    elif status.state in (State.FAILED, State.DIED):
        message = f"No prompt was written. {status.message}"
    return Enhanced.from_objects(
        prompt_enhancer.written(workspace) or EnhancedPrompt("", ""),
        going=status.state.alive,
        message=message,
        settings=prompt_enhancer.settings_of(workspace).model_dump(mode="json"),
    )


@operation(path="/prompt-enhancer", changes=True, status=202, shell=False)
def enhance(
    workspace: Workspace,
    settings: PromptSettings,
    *,
    prompt: Annotated[str, Field(description="The short prompt, a few words.")] = "",
    model: Annotated[
        str, Field(description="The video model, which limits the length of the prompt.")
    ] = SampleSettings().model,
    image: Annotated[str, Field(description="The first frame, if the video has one.")] = "",
) -> Enhanced:
    """Expand a short prompt into a detailed one with a language model, in the background."""
    prompt_enhancer.write(workspace, settings, SampleSettings(model=model, prompt=prompt, image=image))
    return enhanced(workspace)


@operation(path="/prompt-enhancer/stop", changes=True, shell=False)
def stop_enhancing(workspace: Workspace) -> Enhanced:
    """Stop the prompt enhancer."""
    prompt_enhancer.stop(workspace)
    return enhanced(workspace)


@operation(path="/prompt-enhancer/use", changes=True, shell=False)
def use_enhanced(
    workspace: Workspace,
    text: Annotated[str, Field(description="The written prompt, which you may have edited.")],
    *,
    prompt: Annotated[str, Field(description="The prompt that it replaces.")] = "",
) -> Filled:
    """Use a prompt from the prompt enhancer, and record the short prompt that it was written from."""
    taken = prompt_enhancer.take(workspace, text, prompt)
    return Filled(values={"prompt": taken}, scenes=False, message="The form now uses the written prompt.")

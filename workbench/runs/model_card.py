"""The model card of a run's export, and the push to the Hub when a run ends.

A card says what the export is, how to use it, what was measured and how it was made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench import __version__, jobs
from workbench.errors import WorkbenchError
from workbench.families.model import Model
from workbench.families.usage import BY_PIPELINE, LOADERS
from workbench.runs.analysis.curves import curves_of
from workbench.runs.analysis.visible_effect import VisibleEffect
from workbench.runs.data import read_lock
from workbench.runs.failures import fallback_record, fallback_sentence
from workbench.runs.frozen_loras import split_strength
from workbench.runs.metrics import read_sessions
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import slugify, write_json
from workbench.workspace.lora_names import ALSO

LICENSES = ("apache-2.0", "mit", "openrail", "creativeml-openrail-m", "cc-by-4.0", "cc-by-nc-4.0", "cc0-1.0")
TEMPLATE = """---
{metadata}
---

# {name}

{what}

{measured}

## Use

```python
{usage}
```

{remark}

## How it was made

{origin}

| setting | value |
|---|---|
{settings}

All other settings were left at their defaults. Made with Video LoRA Workbench {version}, {packages}.
"""


@dataclass(frozen=True)
class CardFacts:
    """What a card says about a run.

    steps: steps done at the export, or the checkpoint's step.
    clips: how many clips it was trained on.
    losses: first and last held-out loss; () if not measured.
    changes: of the model's output, for its own captions and for preservation prompts.
    effect: what its previews show; None without previews.
    origin: where training started, and what the OOM fallback changed, in sentences.
    """

    settings: TrainSettings
    steps: int
    clips: int
    losses: tuple[float, ...] = ()
    changes: tuple[float, float] | None = None
    effect: VisibleEffect | None = None
    packages: Mapping[str, str] = field(default_factory=dict)
    origin: str = "Training started from the base model."


def card_facts(run: Run, settings: TrainSettings, steps: int) -> CardFacts:
    """Collect a card's facts from the run's files, up to a step."""
    curves, sessions = curves_of(run), read_sessions(run.folder)
    losses = [loss for step, loss in curves.held_out.items() if step <= steps]
    changes = [change for step, change in curves.changes.items() if step <= steps]
    effects = [effect for step, effect in curves.effects.items() if step <= steps]
    return CardFacts(
        settings,
        steps,
        clips=sum(clip["role"] == "train" for clip in read_lock(run.folder)),
        losses=(losses[0], losses[-1]) if losses else (),
        changes=changes[-1] if changes else None,
        effect=effects[-1] if effects else None,
        packages=sessions[-1].versions if sessions else {},
        origin=_origin(run, settings),
    )


def model_card(
    name: str,
    model: Model,
    facts: CardFacts,
    usage: str,
    widget: Sequence[Mapping[str, Any]],
    trigger_word: str = "",
    license: str = "",
    repository: str = "",
) -> str:
    """Return the README.md of a LoRA or a fine-tuned transformer.

    Args:
        usage: The family's code that generates with a LoRA.
        widget, license: As in `metadata`.
        repository: The Hub repository to load a transformer from; "" for the card's folder.
    """
    settings = facts.settings
    made = settings.model_dump(mode="json", exclude_defaults=True, exclude={"preview_prompts"})
    remark = "Rank and alpha are in the file's metadata, so nothing needs to be set by hand."
    if settings.method == "full":
        remark = "All weights of the transformer were trained; the other parts are the base model's."
    if settings.train_also:
        remark += f" `{ALSO}` holds weights trained in full beside it ({', '.join(settings.train_also)}): load both."
    return TEMPLATE.format(
        metadata=metadata(model, trigger_word, widget, settings.method == "full", license),
        name=name,
        what=what(model, facts, trigger_word),
        measured=measured(facts),
        usage=_usage(settings, usage, model.expert(settings.expert).part, repository),
        remark=remark,
        origin=facts.origin,
        settings=table({"model": settings.model, **made}),
        version=__version__,
        packages=", ".join(f"{package} {version}" for package, version in facts.packages.items()),
    )


def metadata(
    model: Model, trigger_word: str, widget: Sequence[Mapping[str, Any]], full: bool = False, license: str = ""
) -> str:
    """Return the card's metadata for the Hub: YAML, with texts quoted as in JSON.

    Args:
        widget: In the Hub's form, {"text": prompt, "output": {"url": video}}.
        license: "" for the base model's license.
    """
    kind = ["full-finetune"] if full else ["lora", "template:sd-lora"]
    values: dict[str, Any] = license_of(model, license)
    if not model.local:  # the Hub rejects a card with an unknown base model
        values |= {"base_model": model.source, "base_model_relation": "finetune" if full else "adapter"}
    values |= {"library_name": "diffusers", "pipeline_tag": model.task}
    family = [model.family, f"{model.family}-diffusers"]
    values["tags"] = [model.task, "diffusers", "diffusers-training", *family, *kind, "video-lora-workbench"]
    if trigger_word:
        values["instance_prompt"] = trigger_word
    if widget:
        values["widget"] = list(widget)
    return "\n".join(f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())


def license_of(model: Model, chosen: str = "") -> dict[str, Any]:
    """Return the license metadata, with the Hub's names: the chosen license or the base model's; {} if unknown."""
    name = (chosen or model.license).strip()
    if name.lower() in LICENSES or (chosen and chosen != "other"):
        return {"license": name.lower()}
    if model.license == "unknown":
        return {"license": "other"} if chosen else {}
    title = model.license.partition("(")[0].strip()
    page = f"https://huggingface.co/{model.source}"
    text = f"{page}/blob/main/{model.license_file}" if model.license_file else page
    link = {} if model.local else {"license_link": text}
    return {"license": "other", "license_name": slugify(title), **link}


def what(model: Model, facts: CardFacts, trigger_word: str = "") -> str:
    """Say what was trained, and on what."""
    settings = facts.settings
    expert = expert_of([one.name for one in model.experts if one.name == settings.expert])
    base = f"{expert}{model.title} ({model.task})"
    trigger = f" Its trigger word is **{trigger_word}**." if trigger_word else ""
    if settings.is_slider:
        kind = f"A slider for {base}, a {lora_words(settings)} trained for {facts.steps} steps on"
        use = "Use it from -2 to 2; 0 changes nothing."
        if settings.has_pairs:
            return (
                f'{kind} pairs of clips of the dataset "{settings.dataset}". Its strength turns a video from what the '
                f"second clip of each pair shows to what the first shows. {use}{trigger}{_over(settings)}"
            )
        turns = "; ".join(f'from "{one.negative}" to "{one.positive}"' for one in settings.slider_pairs)
        clips = f'of the dataset "{settings.dataset}"' if settings.dataset else "that the model generated itself"
        return f"{kind} prompts alone, with clips {clips}. Its strength turns a video {turns}. {use}{_over(settings)}"
    kind = "The transformer, trained in full," if settings.method == "full" else f"A {lora_words(settings)}"
    names = [settings.dataset, *(text.split("=")[0] for text in settings.more_datasets)]
    datasets = ", ".join(f'"{one}"' for one in names)
    clips = f"{facts.clips} clips of the dataset{'s' if len(names) > 1 else ''} {datasets}"
    known = settings.regularization_dataset
    beside = f', with regularization clips of "{known}"' if known else ""
    trained = f"{kind} for {base}, trained for {facts.steps} steps on {clips}{beside}."
    side = "" if settings.loss_mask == "off" else f" It learned only what is {settings.loss_mask} the clips' masks."
    return f"{trained}{side}{trigger}{_over(settings)}{_dropped(settings)}"


def _over(settings: TrainSettings) -> str:
    """Say which other LoRAs were active during training."""
    found = ""
    if settings.base_lora and settings.method != "full":
        name, scale = split_strength("base_lora", settings.base_lora)
        found += f' It was trained on top of the LoRA "{Path(name).name}" at strength {scale:g}: load both.'
    if settings.training_adapter and settings.method != "full":
        name, _ = split_strength("training_adapter", settings.training_adapter)
        found += f' The training adapter "{Path(name).name}" was active only during training: do not load it.'
    return found


def lora_words(settings: TrainSettings) -> str:
    """Describe the kind and size of a LoRA, as in "DoRA of rank 16"."""
    if settings.method == "lokr":
        return f"LoKr of rank {settings.rank}, factor {settings.lokr_factor}"
    return (
        f"{'rank-stabilized ' if settings.rslora else ''}{'DoRA' if settings.dora else 'LoRA'} of rank {settings.rank}"
    )


def expert_of(experts: Sequence[str]) -> str:
    """Return "the high-noise expert of " if a model has two experts and this is for one of them; else ""."""
    return "" if len(experts) != 1 or not experts[0] else f"the {experts[0].replace(' ', '-')} expert of "


def _dropped(settings: TrainSettings) -> str:
    """Say what replaced dropped captions, because guidance must use the same."""
    if not settings.caption_dropout:
        return ""
    share = f" {settings.caption_dropout:.0%} of the captions were dropped in training"
    if settings.dropped_caption == "zeros":
        return (
            f"{share} and their embeddings replaced by zeros, as SAT does for training and guidance. In diffusers, "
            "pass zeros as `negative_prompt_embeds`."
        )
    return f"{share} and replaced by the empty prompt, which diffusers uses for guidance by default."


def measured(facts: CardFacts) -> str:
    """Render the evaluation as a table, or a sentence if there was none."""
    settings = facts.settings
    seen = seen_in_samples(facts.effect) if facts.effect else ""
    if not facts.losses:
        return seen or "Nothing was held out of training, so nothing was measured."
    first, last = facts.losses
    this = "this model" if settings.method == "full" else "with this LoRA"
    rows = ["| | base model | " + this + " |", "|---|---|---|"]
    clips = "a clip that was" if settings.held_out == 1 else f"{settings.held_out} clips that were"
    if settings.validation_dataset:
        clips = f'clips of "{settings.validation_dataset}" that were'
    rows.append(f"| loss on {clips} not trained on | {first:.4f} | {last:.4f} |")
    if facts.changes is not None:
        own, others = facts.changes
        rows.append(f"| change of the model's output on its own captions | | {own:.1%} |")
        rows.append(f"| the same on prompts that it should not affect | | {others:.1%} |")
        if own:
            rows.append(f"| leak: the second divided by the first, 0 is best | | {others / own:.2f} |")
    return "\n".join([*rows, *(["", seen] if seen else [])])


def seen_in_samples(effect: VisibleEffect) -> str:
    """Say in two sentences what the LoRA changes in videos."""
    if effect.spoiled:
        meaning = "It also changes prompts that it should not affect."
    elif not effect.visible:
        meaning = "What it was trained on hardly shows in them."
    else:
        meaning = "What it was trained on shows in them."
    control = "; controls are prompts that it should not affect" if effect.effect is not None else ""
    return f"Videos from the same noise with and without it differ by {effect.words}{control}. {meaning}"


def _usage(settings: TrainSettings, code: str, part: str, repository: str) -> str:
    """Adapt the family's code to load what this run exports; `part` is the trained part of the pipeline."""
    lines = code.splitlines()
    loader = next((one for one in LOADERS if f"{one}(" in code), BY_PIPELINE)
    index = next((number for number, line in enumerate(lines) if loader in line), len(lines))
    if settings.method == "full":
        source = json.dumps(repository or ".")
        load = f'own = AutoModel.from_pretrained({source}, subfolder="transformer", torch_dtype=dtype)\n'
        load += f"pipe.{part} = own.to(device)"
        rest = [line for line in lines[index:] if loader not in line and "set_adapters" not in line]
        return "\n".join(["from diffusers import AutoModel", *lines[:index], load, *rest])
    if settings.method == "lokr":  # pipelines refuse to load it, but the transformer's loader accepts it
        lines = [line.replace("pipe.load_lora_weights(", f"pipe.{part}.load_lora_adapter(") for line in lines]
        lines = [line.replace(", load_into_transformer_2=True", "") for line in lines]
    if settings.train_also:
        load = f'pipe.{part}.load_state_dict(load_file("{ALSO}"), strict=False)'
        lines = ["from safetensors.torch import load_file", *lines[:index], load, *lines[index:]]
    if settings.base_lora:
        name, scale = split_strength("base_lora", settings.base_lora)
        load = f'{loader}(".", weight_name="base_lora.safetensors", adapter_name="base")  # {name}'
        lines = [line.replace('["lora"], [1.0]', f'["lora", "base"], [1.0, {scale:g}]') for line in lines]
        at = next((number for number, line in enumerate(lines) if "set_adapters" in line), len(lines))
        lines = [*lines[:at], load, *lines[at:]]
    return "\n".join(lines)


def _origin(run: Run, settings: TrainSettings) -> str:
    """Say where training started, and what the OOM fallback changed."""
    sentences = []
    if parent := run.parent:
        changed = "; ".join(f"{name}: {cell(old)} → {cell(new)}" for name, (old, new) in parent["changed"].items())
        fork = f"A fork of the run {parent['run']} at step {parent['step']}"
        sentences.append(fork + (f", with changes: {changed}." if changed else "."))
    if settings.start_from:
        sentences.append(f"Training continued from the LoRA {settings.start_from}.")
    sentences = sentences or [CardFacts.origin]
    return " ".join(filter(None, [*sentences, fallback_sentence(fallback_record(run.folder))]))


def table(values: Mapping[str, Any]) -> str:
    """Render the rows of a two-column Markdown table."""
    return "\n".join(f"| {key} | {cell(value)} |" for key, value in values.items())


def cell(value: Any) -> str:
    """Render a value in a Markdown table."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


# ---- the push to the Hub when a run ends (`push_to_hub`)
#
# The same job as `workbench publish lora` (workbench.publishing): to a private repository, with the login stored on
# this machine, never with a token from the environment. The run does not wait for it, and does not fail if it fails.

PUSH_MODULE, PUSHES = "workbench.publishing", "publishing"


def push_job(root: Path, what: str, name: str) -> Path:
    """Return the folder of a push in the workspace `root`: of a "lora" or "space", with the LoRA's name (runs/NAME)."""
    return root / PUSHES / f"{what}--{name.replace('/', '--')}"


def start_push(run: Path, settings: TrainSettings) -> str:
    """Start the push of a finished run and return a sentence for its log; "" if none is set. Never raises."""
    if not settings.push_to_hub:
        return ""
    name = f"runs/{run.name}"
    job_folder = push_job(run.parent.parent, "lora", name)
    request = {"repo_id": settings.repository, "private": True, "lora": name}
    try:
        jobs.start(job_folder, PUSH_MODULE, before=lambda: write_json(job_folder / jobs.CONFIG, request))
    except (WorkbenchError, OSError) as error:
        return f"the push to the Hub could not be started ({error}): workbench publish lora {run.name}"
    return f"pushing the LoRA to a private repository on the Hub; workbench publish lora {run.name} shows the progress"

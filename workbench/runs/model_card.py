"""The model card beside what a run exports: what it is, how to use it, what was measured, how it was made.

Not covered: publishing it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from workbench import __version__
from workbench.families.base import Model
from workbench.runs.settings import TrainSettings
from workbench.workspace import slugify

ALSO = "also.safetensors"
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
REMARKS = {
    "lora": "Rank and alpha are in the file's metadata; nothing has to be set by hand.",
    "full": "All weights of the transformer are trained; the other parts are the base model's own.",
}


class CardFacts(TypedDict):
    """What the settings do not say of a run.

    losses:  held-out loss at first and at last, None when not measured;  steps: done when it was exported
    usage:   the family's code that draws with a LoRA file;  packages: name -> version
    changes: how much the model's output changes on its own captions and on prompts to leave alone
    parent:  of a fork, its parent.json;  also: whether ALSO lies beside the LoRA
    oom_fallback: what was changed when memory ran out, a sentence; "" when it did not
    """

    clips: int
    trigger_word: str
    prompt: str
    usage: str
    losses: tuple[float | None, float | None]
    packages: dict[str, str]
    steps: NotRequired[int]
    changes: NotRequired[tuple[float, float] | None]
    parent: NotRequired[dict[str, Any] | None]
    oom_fallback: NotRequired[str]
    also: NotRequired[bool]


def model_card(name: str, model: Model, settings: TrainSettings, facts: CardFacts) -> str:
    """The README.md of a LoRA or of a fine-tuned transformer."""
    made = settings.model_dump(mode="json", exclude_defaults=True, exclude={"preview_prompts"})
    return TEMPLATE.format(
        metadata=_metadata(model, settings, facts),
        name=name,
        what=what(model, settings, facts),
        measured=measured(settings, facts),
        usage=usage(settings, facts),
        remark=_remark(settings, facts),
        origin=origin(settings, facts),
        settings=table({"model": settings.model, **made}),
        version=__version__,
        packages=", ".join(f"{package} {version}" for package, version in facts["packages"].items()),
    )


def _metadata(model: Model, settings: TrainSettings, facts: CardFacts) -> str:
    widget = [{"text": facts["prompt"]}] if facts["prompt"] else []
    return metadata(model, facts["trigger_word"], widget, settings.method == "full")


def metadata(
    model: Model, trigger_word: str, widget: Sequence[Mapping[str, Any]], full: bool = False, license: str = ""
) -> str:
    """What the Hub reads of a card: YAML, every text quoted as JSON does, which YAML understands.

    widget: as the Hub has it, {"text": prompt, "output": {"url": video}};  license: "" for the base model's
    """
    kind = ["full-finetune"] if full else ["lora", "template:sd-lora"]
    values: dict[str, Any] = license_of(model, license)
    if not model.local:  # the Hub refuses a card whose base model it does not know
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
    """The card's license: the chosen one, else the base model's, by the Hub's names; {} when it is not known."""
    name = (chosen or model.license).strip()
    if name.lower() in LICENSES or (chosen and chosen != "other"):
        return {"license": name.lower()}
    if model.license == "unknown":
        return {"license": "other"} if chosen else {}
    title = model.license.partition("(")[0].strip()
    link = {} if model.local else {"license_link": f"https://huggingface.co/{model.source}/blob/main/LICENSE"}
    return {"license": "other", "license_name": slugify(title).replace("license", "license"), **link}


def what(model: Model, settings: TrainSettings, facts: CardFacts) -> str:
    """What was trained, on what, in a sentence or three."""
    kind = (
        "The transformer, trained in full,"
        if settings.method == "full"
        else f"{_kind(settings)} of rank {settings.rank}"
    )
    names = [settings.dataset, *(text.split("=")[0] for text in settings.more_datasets)]
    clips = f"{facts['clips']} clips of the dataset{'s' if len(names) > 1 else ''} " + ", ".join(
        f'"{one}"' for one in names
    )
    known = settings.regularization_dataset
    beside = f', beside clips of "{known}" that it was to keep' if known else ""
    trigger = f" Its trigger word is **{facts['trigger_word']}**." if facts["trigger_word"] else ""
    steps = facts.get("steps", settings.steps)
    trained = f"{kind} for {model.title} ({model.task}), trained for {steps} steps on {clips}{beside}."
    return f"{trained}{trigger}{_dropped(settings)}"


def _dropped(settings: TrainSettings) -> str:
    """What a dropped caption became, which is what guidance must compare with."""
    if not settings.caption_dropout:
        return ""
    share = f" {settings.caption_dropout:.0%} of the captions were dropped in training"
    if settings.dropped_caption == "zeros":
        return (
            f"{share}, which left zeros in place of their embeddings, as SAT trains and guides: in diffusers pass "
            "zeros as `negative_prompt_embeds`."
        )
    return f"{share} and became the empty prompt, with which diffusers guides by default."


def _kind(settings: TrainSettings) -> str:
    return ("A rank-stabilised " if settings.rslora else "A ") + ("DoRA" if settings.dora else "LoRA")


def measured(settings: TrainSettings, facts: CardFacts) -> str:
    """The evaluation as a table; a sentence when there was none."""
    first, last = facts["losses"]
    if first is None or last is None:
        return "Nothing was held out of training, so nothing was measured."
    this = "this model" if settings.method == "full" else "with this LoRA"
    rows = ["| | base model | " + this + " |", "|---|---|---|"]
    clips = "a clip that was" if settings.held_out == 1 else f"{settings.held_out} clips that were"
    if settings.validation_dataset:
        clips = f'clips of "{settings.validation_dataset}" that were'
    rows.append(f"| loss on {clips} not trained on | {first:.4f} | {last:.4f} |")
    changes = facts.get("changes")
    if not changes:
        return "\n".join(rows)
    own, others = changes
    rows.append(f"| change of the model's output on its own captions | | {own:.1%} |")
    rows.append(f"| the same on prompts that it should leave alone | | {others:.1%} |")
    if own:
        rows.append(f"| leak: the second by the first, 0 is best | | {others / own:.2f} |")
    return "\n".join(rows)


def usage(settings: TrainSettings, facts: CardFacts) -> str:
    """The family's code, made to load what this run exports. It is run in the folder of this card."""
    lines = facts["usage"].splitlines()
    index = next((number for number, line in enumerate(lines) if "load_lora_weights" in line), len(lines))
    if settings.method == "full":
        load = 'own = AutoModel.from_pretrained(".", subfolder="transformer", torch_dtype=dtype)\n'
        load += "pipe.transformer = own.to(device)"
        rest = [line for line in lines[index:] if "load_lora_weights" not in line and "set_adapters" not in line]
        return "\n".join(["from diffusers import AutoModel", *lines[:index], load, *rest])
    if facts.get("also"):
        load = f'pipe.transformer.load_state_dict(load_file("{ALSO}"), strict=False)'
        lines = ["from safetensors.torch import load_file", *lines[:index], load, *lines[index:]]
    return "\n".join(lines)


def _remark(settings: TrainSettings, facts: CardFacts) -> str:
    remark = REMARKS[settings.method]
    if facts.get("also"):
        remark += f" `{ALSO}` holds weights trained in full beside it ({', '.join(settings.train_also)}): load both."
    return remark


def origin(settings: TrainSettings, facts: CardFacts) -> str:
    """Where it went on from, in sentences; "" when it began with the base model."""
    sentences = []
    if parent := facts.get("parent"):
        changed = "; ".join(f"{name}: {cell(old)} → {cell(new)}" for name, (old, new) in parent["changed"].items())
        sentences.append(
            f"A fork of the run {parent['run']} at step {parent['step']}"
            + (f", changed: {changed}." if changed else ".")
        )
    if settings.start_from:
        sentences.append(f"It went on from the LoRA {settings.start_from}.")
    sentences = sentences or ["It began with the base model."]
    return " ".join(filter(None, [*sentences, facts.get("oom_fallback", "")]))


def table(values: Mapping[str, Any]) -> str:
    """The rows of a table of two columns, in Markdown."""
    return "\n".join(f"| {key} | {cell(value)} |" for key, value in values.items())


def cell(value: Any) -> str:
    """A value in a table of Markdown."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")

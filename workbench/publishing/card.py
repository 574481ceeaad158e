"""The model card of a LoRA on the Hub: what it is, its previews, how to use it, how it was made, what is not known."""

from __future__ import annotations

from typing import Any

from workbench import __version__
from workbench.loras.library import LibraryLora
from workbench.publishing import anonymize
from workbench.publishing.facts import Facts
from workbench.publishing.usage import code, for_first_preview, own_code, usage_of
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

Rank and alpha are in the file, so the LoRA has its full strength at a scale of 1; nothing has to be set by hand. Give
`pipe.set_adapters(["lora"], [0.7])` another scale to weaken it.

{made}## Limits

{limits}

Made with Video LoRA Workbench {version}{packages}.
"""


def readme_text(facts: Facts, repo_id: str, license: str = "", also: str = "") -> str:
    """README.md; also: the second file of weights, where there is one."""
    lora, model = facts.lora, facts.model
    widget = [
        {"text": preview.prompt or "-", "output": {"url": sample_name(index)}}
        for index, preview in enumerate(facts.previews)
    ]
    first = facts.previews[0].prompt if facts.previews else example(lora)
    scale = facts.settings.image_latent_scale if facts.settings else "pipeline"
    seed = facts.previews[0].seed if facts.previews else 0
    if facts.family.has_pipeline:
        used = usage_of(facts.family, facts.generated_with, first, facts.shape, scale, facts.experts)
        used = for_first_preview(used, repo_id, seed) if facts.previews else used
        usage = code(used, model, anonymize.text(model.source), repo_id, also)
    else:
        usage = anonymize.text(own_code(facts.family, facts.generated_with, first, facts.shape, repo_id, seed))
    trigger = f"## Trigger word\n\nWrite **{lora.trigger}** in the prompt to call it up.\n\n" if lora.trigger else ""
    packages = ", ".join(f"{name} {version}" for name, version in (facts.card.packages if facts.card else {}).items())
    return TEMPLATE.format(
        metadata=model_card.metadata(model, lora.trigger, widget, license=license),
        gallery="<Gallery />\n\n" if widget else "",
        title=lora.title,
        what=anonymize.text(_what(facts)),
        trigger=trigger,
        usage=usage,
        made=_made(facts),
        limits=_limits(facts),
        version=__version__,
        packages=f", {packages}" if packages else "",
    )


def sample_name(index: int) -> str:
    """What a preview is called in the repository."""
    return f"samples/{index}.mp4"


def example(lora: LibraryLora) -> str:
    """A prompt for code, where no preview gives one."""
    return f"{lora.trigger} ..." if lora.trigger else "..."


def _what(facts: Facts) -> str:
    lora, model = facts.lora, facts.model
    if facts.card is not None:
        return model_card.what(model, facts.card)  # the trigger word has a heading of its own
    strength = f"rank {lora.rank}" + (f", alpha {lora.alpha:g}" if lora.alpha is not None else "")
    trained = f" It was trained for {lora.steps} steps." if lora.steps else ""
    kind = "DoRA" if lora.dora else "LoRA"
    whose = model_card.expert_of(facts.experts)
    return f"A {kind} of {strength} for {whose}{model.title} ({model.task}): {lora.origin}.{trained}"


def _made(facts: Facts) -> str:
    """The measurements, the data and the settings of its run; nothing for others."""
    if facts.card is None:
        return ""
    settings = facts.card.settings
    chosen: dict[str, Any] = settings.model_dump(mode="json", exclude_defaults=True)
    rows = {"model": settings.model, **chosen}
    rows = {name: value for name, value in anonymize.settings(rows).items() if name != "preview_prompts"}
    parts = [
        ("Measured", model_card.measured(facts.card)),
        ("Data", "| | |\n|---|---|\n" + model_card.table(dict(facts.statistics)) if facts.statistics else ""),
        (
            "How it was made",
            f"{anonymize.text(facts.card.origin)}\n\n| setting | value |\n|---|---|\n"
            f"{model_card.table(rows)}\n\n"
            "All other settings were left at their defaults.",
        ),
    ]
    return "".join(f"## {title}\n\n{text}\n\n" for title, text in parts if text)


def _limits(facts: Facts) -> str:
    """What it was not tested for."""
    frames, height, width = facts.shape
    size = f"{frames} frames of {width}x{height}"
    lines = [
        f"The previews were generated with {facts.model.title} at {size}; other base models, lengths and sizes "
        "were not tested.",
        "It was not tested together with other LoRAs, nor outside diffusers.",
        "What the base model gets wrong, this gets wrong; nothing filters what is generated.",
    ]
    if not facts.previews:
        lines[0] = f"No preview was generated with it; it is made for {facts.model.title} alone."
    if warning := facts.family.lora_formats[0].warning:
        lines.append(f"{warning} (`workbench loras convert`).")
    if facts.card is None or not facts.card.losses:
        lines.append("Nothing was held out of its training, so how well it generalises was not measured.")
    if facts.card is None or facts.card.changes is None:
        lines.append("Whether it changes prompts that have nothing to do with it was not measured.")
    return "\n".join(f"- {line}" for line in lines)

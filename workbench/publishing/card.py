"""The model card of a LoRA on the Hub: what it is, its previews, how to use it, how it was made, what is not known.

Not covered: the card beside a run (runs.model_card, whose sentences this one shares), the files around it (lora).
"""

from __future__ import annotations

from typing import Any

from workbench import __version__
from workbench.loras.library import LibraryLora
from workbench.publishing import anonymize
from workbench.publishing.facts import Facts
from workbench.publishing.usage import code, for_first_preview, usage_of
from workbench.runs import model_card, oom_fallback
from workbench.runs.model_card import CardFacts
from workbench.runs.settings import TrainSettings

SAMPLES = "samples"
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
    used = usage_of(facts.family, model, first, facts.shape, scale)
    if facts.previews:
        used = for_first_preview(used, repo_id, facts.previews[0].seed)
    trigger = f"## Trigger word\n\nWrite **{lora.trigger}** in the prompt to call it up.\n\n" if lora.trigger else ""
    packages = ", ".join(f"{name} {version}" for name, version in facts.packages)
    return TEMPLATE.format(
        metadata=model_card.metadata(model, lora.trigger, widget, license=license),
        gallery="<Gallery />\n\n" if widget else "",
        title=lora.title,
        what=anonymize.text(_what(facts)),
        trigger=trigger,
        usage=code(used, model, anonymize.text(model.source), repo_id, also),
        made=_made(facts),
        limits=_limits(facts),
        version=__version__,
        packages=f", {packages}" if packages else "",
    )


def sample_name(index: int) -> str:
    """What a preview is called in the repository."""
    return f"{SAMPLES}/{index}.mp4"


def example(lora: LibraryLora) -> str:
    """A prompt for code, where no preview gives one."""
    return f"{lora.trigger} ..." if lora.trigger else "..."


def _what(facts: Facts) -> str:
    lora, model = facts.lora, facts.model
    if facts.settings is not None:
        return model_card.what(model, facts.settings, _model_card_facts(facts, facts.settings))
    strength = f"rank {lora.rank}" + (f", alpha {lora.alpha:g}" if lora.alpha is not None else "")
    trained = f" It was trained for {lora.steps} steps." if lora.steps else ""
    return (
        f"A {'DoRA' if lora.dora else 'LoRA'} of {strength} for {model.title} ({model.task}): {lora.origin}.{trained}"
    )


def _model_card_facts(facts: Facts, settings: TrainSettings) -> CardFacts:
    run = facts.lora.run
    assert run is not None
    return {
        "clips": len(facts.trained),
        "trigger_word": "",  # it has a heading of its own
        "prompt": "",
        "usage": "",
        "losses": facts.losses,
        "packages": {},
        "steps": facts.lora.steps or settings.steps,
        "changes": facts.changes,
        "parent": run.parent or None,
        "oom_fallback": oom_fallback.sentence(oom_fallback.record(run.folder)),
    }


def _made(facts: Facts) -> str:
    """The measurements, the data and the settings of its run; nothing for others."""
    if (settings := facts.settings) is None:
        return ""
    known = _model_card_facts(facts, settings)
    chosen: dict[str, Any] = settings.model_dump(mode="json", exclude_defaults=True)
    rows = {"model": settings.model, **chosen}
    rows = {name: value for name, value in anonymize.settings(rows).items() if name != "preview_prompts"}
    parts = [
        ("Measured", model_card.measured(settings, known)),
        ("Data", "| | |\n|---|---|\n" + model_card.table(dict(facts.statistics)) if facts.statistics else ""),
        (
            "How it was made",
            f"{anonymize.text(model_card.origin(settings, known))}\n\n| setting | value |\n|---|---|\n"
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
    if facts.losses[0] is None:
        lines.append("Nothing was held out of its training, so how well it generalises was not measured.")
    if facts.changes is None:
        lines.append("Whether it changes prompts that have nothing to do with it was not measured.")
    return "\n".join(f"- {line}" for line in lines)

"""The model card beside an exported LoRA: what it is, how to use it, how it was made. Not covered: publishing it."""

from __future__ import annotations

from typing import Any

from workbench import __version__
from workbench.families.base import Model
from workbench.trainer.settings import TrainSettings

TEMPLATE = """---
base_model: {base_model}
library_name: diffusers
pipeline_tag: text-to-video
tags: [text-to-video, diffusers, lora, video-lora-workbench, template:sd-lora]
{widget}---

# {name}

A LoRA for {title}, trained on {clips} clips of the dataset "{dataset}"{trigger}.

| | base model | with this LoRA |
|---|---|---|
| held-out loss | {loss_before} | {loss_after} |

## Use

```python
{usage}
```

Rank and alpha are in the file's metadata; nothing has to be set by hand.

## How it was made

| setting | value |
|---|---|
{settings}

Made with Video LoRA Workbench {version}, {packages}.
"""


def model_card(
    name: str,
    model: Model,
    settings: TrainSettings,
    facts: dict[str, Any],
) -> str:
    """The README.md of a LoRA. `facts`: clips, trigger_word, prompt, usage, losses (first, last), packages."""
    first, last = facts["losses"]
    prompt = facts["prompt"]
    widget = f"widget:\n- text: {prompt!r}\n" if prompt else ""
    made = settings.model_dump(exclude_none=True, exclude={"preview_prompts"})
    return TEMPLATE.format(
        base_model=model.id if model.local else model.source,
        widget=widget,
        name=name,
        title=model.title,
        clips=facts["clips"],
        dataset=settings.dataset,
        trigger=f"; its trigger word is **{facts['trigger_word']}**" if facts["trigger_word"] else "",
        loss_before="not measured" if first is None else f"{first:.4f}",
        loss_after="not measured" if last is None else f"{last:.4f}",
        usage=facts["usage"],
        settings="\n".join(f"| {key} | {value} |" for key, value in made.items()),
        version=__version__,
        packages=", ".join(f"{package} {version}" for package, version in facts["packages"].items()),
    )

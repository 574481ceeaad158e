"""A sample's record as lines for a shell or a notebook. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from workbench import jobs


def report(record: Mapping[str, Any]) -> list[str]:
    """How well each LoRA fitted, a line each; then seed, steps and duration."""
    lines = []
    for lora in record.get("loras") or []:
        parts = [f"{lora['matched']} of {lora['tensors']} tensors fit"] if lora.get("matched") is not None else []
        parts += [
            f"{key} {lora[key]:g}" for key in ("scale", "rank", "alpha") if isinstance(lora.get(key), int | float)
        ]
        parts += [f"made for {lora['base_model']}"] if lora.get("base_model") else []
        parts += [str(lora["origin"])] if lora.get("origin") else []
        lines.append(f"{lora.get('name', '?')}: {', '.join(parts)}")
    seconds = jobs.duration(float(record.get("seconds") or 0))
    return [*lines, f"seed {record.get('seed')}, {record.get('steps')} steps, {seconds}"]

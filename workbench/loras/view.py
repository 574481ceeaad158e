"""What page and shell show about LoRAs and operations on them, as plain data. No torch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.display.quantities import percent
from workbench.errors import ConfigError
from workbench.families import lora_check, lora_names
from workbench.loras.library import LibraryLora, notes
from workbench.runs.analysis.diagnosis import CLAIMS
from workbench.runs.listing import summary_of


def match(lora: LibraryLora) -> list[tuple[str, str]]:
    """Return (label, value) lines on how an imported LoRA matched its model; [] for others."""
    return lora_names.lines(notes(lora).get("match") or {})


def blocks(path: Path) -> list[tuple[int | None, int, float]]:
    """Return (block, layers, share of the change) of each transformer block that a file's LoRA changes.

    The layers outside the blocks come last, as None. Raises ConfigError if it is not a LoRA file.
    """
    try:
        tensors, metadata = lora_check.read(path)
        changes = lora_check.changes(tensors, metadata)
    except lora_check.Damaged as error:
        raise ConfigError.of("lora", f"lora is {path.name}, but {error}: choose another file") from None
    found = dict[int | None, tuple[int, float]]()
    for name, change in changes.items():
        match = lora_check.PREFIX.match(name)
        block = lora_names.block_number(f"{name[match.end() if match else 0 :]}.")
        layers, norm = found.get(block, (0, 0.0))
        found[block] = layers + 1, norm + change.norm**2
    total = sum(norm for _, norm in found.values()) or 1.0
    order = sorted(found, key=lambda block: math.inf if block is None else block)
    return [(block, found[block][0], found[block][1] / total) for block in order]


def link(lora: LibraryLora) -> str:
    """Return its address on the Hub; "" if it is not published."""
    found = str(lora.published.get("url", ""))
    return found if found.startswith(("https://", "http://")) else ""


def strength(lora: LibraryLora) -> str:
    """Describe rank and, if it differs, alpha: "16", "16, alpha 8", "up to 7"."""
    alpha = "" if lora.alpha is None or lora.alpha == lora.rank or lora.mixed else f", alpha {lora.alpha:g}"
    kind = ", DoRA" if lora.dora else ", LoKr" if lora.lokr else ""
    return f"{'up to ' if lora.mixed else ''}{lora.rank}{alpha}{kind}"


@dataclass(frozen=True)
class Verdict:
    """How good a LoRA is, in a few words.

    tone: "good", "warn", "bad" or "idle".
    evidence: the numbers behind the claim; "" for none.
    """

    tone: str
    claim: str
    evidence: str = ""


def verdict(lora: LibraryLora) -> Verdict | None:
    """Judge a LoRA by its run's metrics, its import or the operation that made it; None if these say nothing."""
    if lora.sound:
        return Verdict("bad", "Damaged", lora.sound)
    if lora.run is None:
        return _verdict_of_notes(notes(lora))
    if lora.step is not None:
        return Verdict("good", "Best of its run") if lora.best else None
    seen = summary_of(lora.run, ended=True)
    claim = next((claim for kind, claim in CLAIMS.items() if kind == seen.diagnosis), None)
    if claim is None:
        return None
    losses = f"Held-out loss {seen.held_out[0]:.4f} → {seen.held_out[-1]:.4f}" if seen.held_out else ""
    return Verdict(claim.lora_tone, claim.lora, losses)


def _verdict_of_notes(known: Mapping[str, Any]) -> Verdict | None:
    match, lost, repair = known.get("match") or {}, known.get("error"), known.get("repair")
    if repair:
        less = 1 - repair["after"]["drift"] / repair["singles"][0]["drift"]
        return Verdict("good", f"Repaired: {less:.0%} less drift", str(repair["sentence"]))
    if match.get("nothing"):
        return Verdict("bad", "Changes nothing", str(match["nothing"]))
    if match:
        matched, layers = int(match["matched"]), int(match["layers"])
        if matched < layers:
            return Verdict("warn", f"{layers - matched} of {layers} layers left out")
        return Verdict("good", f"All {layers} layers fit its model")
    if isinstance(lost, float) and (words := percent(lost)) != "nothing":
        return Verdict("idle", f"{words} of the change lost")
    return None

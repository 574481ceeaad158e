"""Extracting a LoRA from a full fine-tune: the best low-rank matrices of each linear layer's difference to the base.

What is no linear layer (norms, biases) has no place in a LoRA; how much of the change it is counts among what is lost.
Not covered: LoRAs (merging).
"""

from __future__ import annotations

import math
from pathlib import Path

from workbench import jobs, policy
from workbench.clips.records import file_sha256
from workbench.display.quantities import percent
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.low_rank import RankLimit, low_rank_of_matrix
from workbench.loras.changes import ModelWeights, base_weights_of
from workbench.loras.making import OperationResult, Provenance, Step, add_to_library, lora_of_layers, pair_of
from workbench.loras.opened import Report
from workbench.loras.settings import ExtractSettings
from workbench.sampler.loras import read_header
from workbench.workspace import SLUG, Workspace, read_json
from workbench.workspace.lora_names import RUNS

NOTHING = 1e-7  # a layer whose weights differ by less than this share of themselves has not been trained


def extract(workspace: Workspace, settings: ExtractSettings, report: Report, step: Step) -> OperationResult:
    """Make a LoRA of a full fine-tune. Raises ConfigError, ModelUnavailable, CannotWrite."""
    if settings.rank is None and settings.share is None:
        raise ConfigError("rank and share are both empty: give the rank, or the share of the change to keep")
    folder, name, title, trigger = _source(workspace, settings)
    family, known = model = find_model(name)
    base, tuned = base_weights_of(model, report), ModelWeights(folder)
    if differing := sorted(name for name in base if name not in tuned or tuned[name].shape != base[name].shape):
        raise ConfigError(
            f"{folder.parent.name} is no fine-tune of {known.title} ({differing[0]} is missing or has another size): "
            f"choose the model that it was trained from"
        )
    linear = {name for name, _ in family.facts(known).named()}
    found, lost, total, rank = [], 0.0, 0.0, 0
    for done, name in enumerate(sorted(base)):
        step(done, len(list(base)))
        before, after = base[name], tuned[name]
        difference = after.double() - before.double()
        layer = name.removesuffix(".weight")
        size = float(difference.square().sum())
        if layer == name or layer not in linear or size <= NOTHING**2 * float(before.double().square().sum()):
            lost, total = lost + size, total + size
            continue
        pair = low_rank_of_matrix(difference.flatten(1), RankLimit(settings.rank, settings.share))
        lost, total, rank = lost + pair.lost, total + pair.total, max(rank, pair.down.shape[0])
        found.append((layer, *pair_of(pair.up, pair.down, before.shape, after.dtype), None))
    step(1, 1)
    lora = lora_of_layers(found, title)
    error = math.sqrt(lost / total) if total else 0.0
    provenance = Provenance(
        title=settings.name.strip() or f"{title}-rank{rank}",
        how="extracted",
        summary=f"extracted from the fine-tune {title}, rank {rank}; {percent(error)} of the change is lost",
        model=known.id,
        base_model=known.id if known.local else known.source,
        made_of=[
            {"name": title, "file": path.name, "sha256": file_sha256(path), "weight": 1.0}
            for path in sorted(folder.glob("*.safetensors"))
        ],
        trigger=trigger,
        error=error,
    )
    return add_to_library(workspace, family, lora, provenance)


def _source(workspace: Workspace, settings: ExtractSettings) -> tuple[Path, str, str, str]:
    """(folder of the transformer, base model, title, trigger word) of what is asked for. Raises ConfigError."""
    name = settings.source.strip().removeprefix(f"{RUNS}/")
    if SLUG.fullmatch(name) and (run := workspace.run(name)).is_dir():
        if not (run / "transformer").is_dir():
            raise ConfigError(
                f"the run {name} has no fine-tuned transformer: choose one that trains all weights and has finished"
            )
        model = settings.model or str(read_json(run / jobs.CONFIG).get("model", ""))
        files = sorted((run / "transformer").glob("*.safetensors"))
        trigger = read_header(files[0]).metadata.get("trigger_word", "") if files else ""
        return run / "transformer", model, name, trigger
    folder = policy.resolve(settings.source, "source")
    inner = folder / "transformer" if (folder / "transformer").is_dir() else folder
    if not settings.source.strip() or not inner.is_dir():
        raise ConfigError(
            f"source is {settings.source[:120]!r}, no run and no folder: name a run that trained all weights, or a "
            f"folder in diffusers' layout",
            {"source": "name a run or a folder"},
        )
    if not settings.model:
        raise ConfigError(
            f"model is empty: say from which model {folder.name} was fine-tuned", {"model": "choose the base model"}
        )
    return inner, settings.model, folder.name, ""

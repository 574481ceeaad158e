"""Adding a LoRA of another trainer to the library: read, checked against its model, written in diffusers' layout.

Not covered: which trainers' names are known (the families), downloading (sampler.loras).
"""

from __future__ import annotations

from dataclasses import replace

from workbench.errors import ConfigError
from workbench.families import find_model, models
from workbench.families.lora_files import LoraWeights
from workbench.loras.making import OperationResult, Provenance, Step, add_to_library
from workbench.loras.opened import Opened, Report, misfits, opened
from workbench.loras.settings import LoraImportSettings
from workbench.sampler.loras import FIT_LIMIT
from workbench.workspace import Workspace


def import_lora(workspace: Workspace, settings: LoraImportSettings, report: Report, step: Step) -> OperationResult:
    """Add a LoRA to the library. Raises ConfigError, ModelUnavailable, CannotWrite."""
    if not settings.source.strip():
        raise ConfigError("source is empty: name a file or a repository of the Hub", {"source": "name one"})
    (one,) = opened(workspace, [settings.source.strip()], report)
    step(1, 2)
    model = settings.model or one.model or _only_match(one)
    family, known = find_model(model)
    lora, left_out = _fitting(one, model)
    kind = "a DoRA" if lora.dora else "a LoRA"
    without = f", without {left_out} layers that the model has not" if left_out else ""
    ranks = "of several ranks" if lora.mixed else f"of rank {lora.rank}"
    provenance = Provenance(
        title=settings.name.strip() or one.title,
        how="imported",
        summary=f"imported from {settings.source.strip()[:200]}: {kind} {ranks} by {lora.origin}{without}",
        model=known.id,
        base_model=known.id if known.local else known.source,
        made_of=[one.record()],
        trigger=settings.trigger.strip() or one.trigger,
        steps=one.steps,
    )
    return add_to_library(workspace, family, lora, provenance)


def _only_match(one: Opened) -> str:
    """The only known model that a LoRA fits. Raises ConfigError when there are several, or none."""
    fitting = [model for model in models() if not misfits(one.weights, model.id)]
    if len(fitting) == 1:
        return fitting[0].id
    which = ", ".join(model.id for model in fitting or models())
    if fitting:
        sentence = f"{one.title} does not say for which model it was made, and fits several: choose one of {which}"
    else:
        sentence = f"{one.title} does not say for which model it was made, and fits none of {which}: name its folder"
    raise ConfigError(sentence, {"model": sentence})


def _fitting(one: Opened, model: str) -> tuple[LoraWeights, int]:
    """(the layers of a LoRA that the model has, how many it has not). Raises ConfigError when they are too many."""
    wrong, layers = set(misfits(one.weights, model)), one.weights.layers
    if not wrong:
        return one.weights, 0
    if len(wrong) > (1 - FIT_LIMIT) * len(layers):
        raise ConfigError(
            f"{one.title} does not fit {find_model(model)[1].title}: {len(layers) - len(wrong)} of its {len(layers)} "
            f"layers match, {FIT_LIMIT:.0%} are needed (not {min(wrong)[:80]}): choose the model it was made for",
            {"model": "choose the model it was made for"},
        )
    kept = {name: tensor for name, tensor in one.weights.tensors.items() if name.rpartition(".lora_")[0] not in wrong}
    alphas = {layer: alpha for layer, alpha in one.weights.alphas.items() if layer not in wrong}
    return replace(one.weights, tensors=kept, alphas=alphas), len(wrong)

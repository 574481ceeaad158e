"""Make new LoRAs and models from others: merge, resize, extract, fuse. Each result is written atomically.

A new LoRA is a folder of the library with a file in diffusers' layout and lora.json (`add_to_library`). Merged LoRAs
may differ in ranks, alphas and layers. Without a rank, a merge is exact: matrices are concatenated, so ranks add up. A
LoRA extracted from a full fine-tune holds the best low-rank approximation of each linear layer's difference to the base
model. Changes of other weights (norms, biases) do not fit into a LoRA and count as lost.

A model with fused LoRAs is a folder in diffusers' layout that needs no LoRA files:

    models/NAME/transformer/     the base model's files with the changed weights, in the same format
    models/NAME/...              the other parts, hard-linked where the disk allows it
    models/NAME/fused.json       what it was made of; written last

Fused weights are rounded to the model's format, and a LoRA's change is often smaller than that rounding. `survives`
says beforehand how much would be left: the share of the weights' actual change that is the LoRA's own, the rest being
rounding noise (`Survival`).
"""

from __future__ import annotations

import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import jobs
from workbench.clips.records import file_sha256
from workbench.display.quantities import percent
from workbench.errors import ConfigError
from workbench.families import find_model, known_model, self_test
from workbench.families.base import Family, ResolvedModel
from workbench.families.lora_files import DOWN, UP, LoraWeights, weights, with_metadata
from workbench.families.lora_names import misfits
from workbench.families.low_rank import RankLimit, low_rank_of_matrix, low_rank_of_product
from workbench.families.model import Model
from workbench.families.self_test import SelfTestFacts
from workbench.loras.opened import (
    ModelWeights,
    Opened,
    Report,
    base_for,
    base_weights_of,
    bias_change,
    change,
    common_expert,
    common_model,
    matrix,
    opened,
    sizes_of,
)
from workbench.loras.settings import ExtractSettings, FuseSettings, MergeSettings, ResizeSettings, SurvivesSettings
from workbench.sampler.loras import read_header
from workbench.workspace import (
    SLUG,
    Workspace,
    disk,
    fresh_folder,
    link_or_copy,
    named_paths,
    read_json,
    write_bytes,
    write_json,
    writing,
)
from workbench.workspace.lora_names import FILE, LORAS, NOTES, RUNS, folder

if TYPE_CHECKING:
    import torch

    from workbench.loras.opened import WeightChange

NOTHING = 1e-7  # a layer whose weights have a smaller relative change counts as not trained
MODELS, FUSED = "models", "fused.json"
ROUNDINGS = "bf16", "fp8", "nf4"  # fp8 with a scale for each row, nf4 for 64 values: memory.low_bit
WORTH_FUSING = 0.9  # of a change; with less, the noise is a third of it or more
Step = Callable[[int, int], None]
"""Called with (layers done, layers in total); may raise to stop."""


@dataclass(frozen=True)
class OperationResult:
    """The result of an operation.

    name: of a LoRA in the library, or a path.
    message: one sentence for people.
    error: the share of the change that was lost.
    reports: what matched, for each LoRA that was read (families.lora_names).
    files: written by a conversion.
    survives: the share of the change that is left after fusing, by the format of the weights.
    repair: the map of a repair, its strengths and what they measure (loras.repair).
    """

    name: str
    message: str
    error: float | None = None
    reports: Sequence[Mapping[str, Any]] = ()
    files: Sequence[str] = ()
    survives: Mapping[str, float] = field(default_factory=dict)
    repair: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Provenance:
    """How a new LoRA was made, as recorded in lora.json.

    how: the operation in one word.
    summary: the same in a sentence.
    error: the share of the change that was lost.
    match: how an imported file matched the model (families.lora_names).
    training: how it was trained, from its file's metadata (families.lora_files.TRAINING_KEYS).
    test: the test in the file that this is a copy of (families.self_test); "" for a LoRA that is new.
    repair: what a repair measured (loras.repair); {} for others, whose lora.json does not have it.
    """

    title: str
    how: str
    summary: str
    model: str
    base_model: str
    made_of: Sequence[Mapping[str, Any]]
    trigger: str = ""
    steps: int | None = None
    error: float | None = None
    match: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, str] = field(default_factory=dict)
    test: str = ""
    repair: Mapping[str, Any] = field(default_factory=dict)


def add_to_library(workspace: Workspace, family: Family, lora: LoraWeights, provenance: Provenance) -> OperationResult:
    """Write a LoRA into a new folder of the library. Raises CannotWrite."""
    from safetensors.torch import save

    if lora.nothing:
        provenance = replace(provenance, summary=f"{provenance.summary}; it changes nothing: {lora.nothing}")
    tensors, metadata = family.export_lora(lora, family.lora_formats[0].id)
    labels = {"base_model": provenance.base_model, "trigger_word": provenance.trigger, "made": provenance.summary}
    labels |= provenance.training
    metadata |= self_test.kept(tensors, metadata, provenance.test) or self_test.noted(
        family, tensors, metadata, self_test_facts(provenance.model, provenance.base_model, lora.expert)
    )
    metadata |= {name: label for name, label in labels.items() if label}

    def fill(new: Path) -> None:
        write_bytes(new / FILE, with_metadata(save(tensors), metadata))
        facts = {"rank": lora.rank, "sha256": file_sha256(new / FILE), "time": time.time()}
        known = asdict(provenance)
        del known["test"]
        if not provenance.repair:
            del known["repair"]
        write_json(new / NOTES, {**known, **facts})

    target = new_folder(folder(workspace), provenance.title, fill)
    return OperationResult(f"{LORAS}/{target.name}", provenance.summary, provenance.error)


def self_test_facts(model: str, base_model: str, expert: str) -> SelfTestFacts:
    """Return what the test of a LoRA for a model says beside its layers. model: "" if unknown."""
    known = known_model(model) if model else None
    if known is None:
        return SelfTestFacts(base_model, expert=expert)
    return SelfTestFacts(
        base_model, known.model, known.family.on_disk(known.model), expert if known.model.boundary else ""
    )


def new_folder(parent: Path, title: str, fill: Callable[[Path], None]) -> Path:
    """Make a folder named after a title, which appears once `fill` has filled it.

    Raises CannotWrite and what `fill` raises.
    """
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
        scratch.chmod(0o755)
    try:
        fill(scratch)
        target = fresh_folder(parent, title)
        with writing(target):
            disk.replace(scratch, target)  # replaces the empty folder that reserved the name
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def pair_of(up: torch.Tensor, down: torch.Tensor, shape: Sequence[int], dtype: torch.dtype) -> tuple[Any, Any]:
    """Reshape flat matrices (up, down) for a layer whose weight has `shape` [outputs, inputs, ...]."""
    rank, more = down.shape[0], len(shape) - 2
    folded = up.reshape(up.shape[0], rank, *[1] * more), down.reshape(rank, *shape[1:])
    return folded[0].to(dtype).contiguous(), folded[1].to(dtype).contiguous()


def lora_of_layers(layers: Iterable[tuple[str, Any, Any, Any]], origin: str) -> LoraWeights:
    """Build a LoRA with scale 1 from (layer, up, down, bias or None). Raises ConfigError if there are no layers."""
    tensors = {}
    for layer, up, down, bias in layers:
        tensors[f"{layer}.{DOWN}"], tensors[f"{layer}.{UP}"] = down, up
        if bias is not None:
            tensors[f"{layer}.lora_B.bias"] = bias
    if not tensors:
        raise ConfigError(f"{origin} changes no layer: there is nothing to make a LoRA from")
    return weights(tensors, {}, origin)


def title_from(given: str, loras: Sequence[Opened], end: str) -> str:
    """Return the name a person gave, or one made from the LoRAs' titles."""
    if given.strip():
        return given.strip()
    stems = [lora.title for lora in loras[:3]] + (["more"] if len(loras) > 3 else [])
    return f"{'-'.join(stems)}{end}"


# ---- merging and resizing -------------------------------------------------------------------------------------------


def merge(workspace: Workspace, settings: MergeSettings, report: Report, step: Step) -> OperationResult:
    """Add LoRAs with weights. Raises ConfigError, ModelUnavailable, CannotWrite."""
    loras = opened(workspace, settings.loras, report)
    model = common_model(loras)
    lora, error = summed(loras, RankLimit(rank=settings.rank), base_for(loras, model, report), step)
    parts = " + ".join(one.terms for one in loras)
    loss = "exact" if error is None else f"{percent(error)} of the change is lost"
    provenance = Provenance(
        title=title_from(settings.name, loras, "-merged" if len(loras) == 1 else ""),
        how="merged",
        summary=f"merged from {parts}; rank {lora.rank}, {loss}",
        model=loras[0].model,
        base_model=next((one.base_model for one in loras if one.base_model), ""),
        made_of=[one.record() for one in loras],
        trigger=", ".join(dict.fromkeys(one.trigger for one in loras if one.trigger)),
        error=error,
        # Where they disagree the first one counts, as when they are used together.
        training={name: text for one in reversed(loras) for name, text in one.training.items()},
    )
    return add_to_library(workspace, loras[0].family, lora, provenance)


def resize(workspace: Workspace, settings: ResizeSettings, report: Report, step: Step) -> OperationResult:
    """Resize a LoRA to a rank, or to a share of its energy. Raises ConfigError, CannotWrite."""
    if settings.rank is None and settings.share is None:
        raise ConfigError("rank and share are both empty: give the new rank, or the share of the change to keep")
    (one,) = loras = opened(workspace, [settings.lora], report)
    if settings.rank is not None and settings.rank >= one.weights.rank and not one.weights.dora:
        raise ConfigError(
            f"rank is {settings.rank}, but {one.title} has rank {one.weights.rank} already: use less",
            {"rank": f"use less than {one.weights.rank}"},
        )
    limit = RankLimit(settings.rank, settings.share)
    lora, error = summed(loras, limit, base_for(loras, one.model, report), step)
    least = min(lora.rank_of(layer) for layer in lora.layers)
    ranks = f"rank {lora.rank}" if least == lora.rank else f"ranks {least} to {lora.rank}"
    lost = f"{percent(error or 0.0)} of the change is lost"
    provenance = Provenance(
        title=title_from(settings.name, loras, f"-rank{lora.rank}"),
        how="resized",
        summary=f"{one.title} resized from rank {one.weights.rank} to {ranks}; {lost}",
        model=one.model,
        base_model=one.base_model,
        made_of=[one.record()],
        trigger=one.trigger,
        steps=one.steps,
        error=error or 0.0,
        training=one.training,
    )
    return add_to_library(workspace, one.family, lora, provenance)


def summed(
    loras: Sequence[Opened], limit: RankLimit, base: ModelWeights | None, step: Step
) -> tuple[LoraWeights, float | None]:
    """Add LoRAs at their scales within a rank limit; return the sum and the share that was lost, None without a limit.

    Raises ConfigError if LoRAs have a layer in different sizes, or a DoRA is added without a limit.
    """
    import torch

    if limit == RankLimit() and any(lora.weights.dora for lora in loras):
        raise ConfigError(
            "one of these is a DoRA, whose change has full rank, so the sum of the ranks cannot hold it: give a rank",
            {"rank": "give a rank"},
        )
    layers = sorted({layer for lora in loras for layer in lora.weights.layers})
    found, lost, total = [], 0.0, 0.0
    for done, layer in enumerate(layers):
        step(done, len(layers))
        with_layer = [lora for lora in loras if f"{layer}.{DOWN}" in lora.weights.tensors]
        changes = [change(lora.weights, layer, lora.scale_of(layer), base) for lora in with_layer]
        up, down, layer_lost, layer_total = _added(changes, layer, limit)
        lost, total = lost + layer_lost, total + layer_total
        downs = [lora.weights.tensors[f"{layer}.{DOWN}"] for lora in with_layer]
        dtype = reduce(torch.promote_types, (one.dtype for one in downs))  # wide enough for all of them
        up, down = pair_of(up, down, (up.shape[0], *downs[0].shape[1:]), dtype)
        biases = [
            one for lora in with_layer if (one := bias_change(lora.weights, layer, lora.scale_of(layer))) is not None
        ]
        found.append((layer, up, down, sum(biases[1:], biases[0]).to(up.dtype) if biases else None))
    step(len(layers), len(layers))
    merged = replace(lora_of_layers(found, "a merge"), expert=common_expert(loras))
    return merged, None if limit == RankLimit() else math.sqrt(lost / total) if total else 0.0


def _added(changes: Sequence[WeightChange], layer: str, limit: RankLimit) -> tuple[Any, Any, float, float]:
    """Add the changes of one layer: (up, down, lost, total), the last two as squared norms."""
    import torch

    pairs = [one for one in changes if isinstance(one, tuple)]
    if len({(one[0].shape[0], one[1].shape[1]) if isinstance(one, tuple) else one.shape for one in changes}) > 1:
        raise ConfigError(f"these LoRAs have {layer} in different sizes: choose LoRAs for the same model")
    if len(pairs) == len(changes):
        up, down = torch.cat([up for up, _ in pairs], dim=1), torch.cat([down for _, down in pairs])
        if limit == RankLimit():
            return up, down, 0.0, 0.0
        pair = low_rank_of_product(up, down, limit)
    else:
        pair = low_rank_of_matrix(sum(map(matrix, changes[1:]), matrix(changes[0])), limit)
    return pair.up, pair.down, pair.lost, pair.total


# ---- extracting -----------------------------------------------------------------------------------------------------


def extract(workspace: Workspace, settings: ExtractSettings, report: Report, step: Step) -> OperationResult:
    """Extract a LoRA from a full fine-tune. Raises ConfigError, ModelUnavailable, CannotWrite."""
    if settings.rank is None and settings.share is None:
        raise ConfigError("rank and share are both empty: give the rank, or the share of the change to keep")
    folder, name, title, trigger = _source(workspace, settings)
    family, known = model = find_model(name)
    base, tuned = base_weights_of(model, report), ModelWeights(folder)
    if differing := sorted(name for name in base if name not in tuned or tuned[name].shape != base[name].shape):
        raise ConfigError(
            f"{folder.parent.name} is not a fine-tune of {known.title} ({differing[0]} is missing or has another "
            "size): choose the model that it was trained from"
        )
    linear = {name for name, _ in family.facts(known).named()}
    found, lost, total, rank = [], 0.0, 0.0, 0
    for done, name in enumerate(sorted(base)):
        step(done, len(base))
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
    """Return (folder of the transformer, base model, title, trigger word) of the fine-tune. Raises ConfigError."""
    name = settings.source.strip().removeprefix(f"{RUNS}/")
    if SLUG.fullmatch(name) and (run := workspace.run(name)).is_dir():
        if not (run / "transformer").is_dir():
            remedy = "choose a finished run that trained all weights"
            raise ConfigError(f"the run {name} has no fine-tuned transformer: {remedy}")
        model = settings.model or str(read_json(run / jobs.CONFIG).get("model", ""))
        files = sorted((run / "transformer").glob("*.safetensors"))
        trigger = read_header(files[0]).metadata.get("trigger_word", "") if files else ""
        return run / "transformer", model, name, trigger
    folder = named_paths.resolve(settings.source, "source")
    inner = folder / "transformer" if (folder / "transformer").is_dir() else folder
    if not settings.source.strip() or not inner.is_dir():
        raise ConfigError(
            f"source is {settings.source[:120]!r}, which is neither a run nor a folder: name a run that trained all "
            "weights, or a folder in diffusers' layout",
            {"source": "name a run or a folder"},
        )
    if not settings.model:
        sentence = f"model is empty: choose the model that {folder.name} was fine-tuned from"
        raise ConfigError(sentence, {"model": "choose the base model"})
    return inner, settings.model, folder.name, ""


# ---- fusing ---------------------------------------------------------------------------------------------------------


@dataclass
class Survival:
    """How much of a change is left when the changed weights are rounded.

    With D the difference of the rounded weights and C the change, over all layers: <D, C>^2 / (|D|^2 |C|^2), the share
    of D's energy that is C. Rounding to the nearest hardly weakens a change (<D, C> stays near |C|^2), it adds noise.
    """

    both: float = 0.0
    rounded: float = 0.0
    exact: float = 0.0

    def add(self, rounded: torch.Tensor, exact: torch.Tensor) -> None:
        """Count the change of one weight, as it is after rounding and as it should be."""
        self.both += float((rounded * exact).sum())
        self.rounded += float(rounded.square().sum())
        self.exact += float(exact.square().sum())

    @property
    def share(self) -> float:
        """Between 0 and 1; 1 for a change of nothing."""
        return self.both**2 / (self.rounded * self.exact) if self.rounded and self.exact else float(not self.exact)


def fuse(workspace: Workspace, settings: FuseSettings, report: Report, step: Step) -> OperationResult:
    """Write a model with LoRAs fused into it. Raises ConfigError, ModelUnavailable, CannotWrite."""
    loras, model = _to_fuse(workspace, settings, report)
    known, source = model.model, model.whole_folder(report)
    survival = Survival()

    def fill(new: Path) -> None:
        with writing(new):
            _fill(source, new, known, loras, survival, step)
        record = {"model": known.id, "made_of": [lora.record() for lora in loras], "time": time.time()}
        write_json(new / FUSED, record)

    target = new_folder(workspace.root / MODELS, title_from(settings.name, loras, "-fused"), fill)
    parts = " + ".join(lora.terms for lora in loras)
    left = f"{survival.share:.0%} of the change survives the rounding"
    return OperationResult(str(target), f"{known.title} with {parts} fused ({left}): use {target} as the model")


def survives(workspace: Workspace, settings: SurvivesSettings, report: Report, step: Step) -> OperationResult:
    """Measure how much of LoRAs is left after fusing them in each format. Raises ConfigError, ModelUnavailable."""
    loras, model = _to_fuse(workspace, settings, report)
    known, source = model.model, model.whole_folder(report)
    formats = {name: Survival() for name in ROUNDINGS}
    weights = []
    for part, own in _by_part(known, loras).items():
        base = ModelWeights(source / part)
        weights += [(base, own, name) for name in sorted(base)]
    for done, (base, own, name) in enumerate(weights):
        step(done, len(weights))
        if (added := _added_to(name, own, base)) is None:
            continue
        before = base[name].double()
        for how, survival in formats.items():
            survival.add(_rounded(before + added, how) - _rounded(before, how), added)
    step(len(weights), len(weights))
    shares = {how: survival.share for how, survival in formats.items()}
    parts = " + ".join(lora.terms for lora in loras)
    left = ", ".join(f"{share:.0%} in {how}" for how, share in shares.items())
    poor = [how for how, share in shares.items() if share < WORTH_FUSING]
    remedy = f"; with a model in {' or '.join(poor)}, load the LoRA beside it instead" if poor else ""
    message = f"of the change by {parts}, fusing into {known.title} keeps {left}{remedy}"
    return OperationResult("", message, survives=shares)


def _to_fuse(workspace: Workspace, settings: SurvivesSettings, report: Report) -> tuple[list[Opened], ResolvedModel]:
    """Return LoRAs and the model that they are fused into. Raises ConfigError."""
    loras = opened(workspace, settings.loras, report)
    name = settings.model or common_model(loras)
    if not name:
        sentence = "model is empty, and these LoRAs do not name theirs: choose a model"
        raise ConfigError(sentence, {"model": "choose one"})
    model = find_model(name)
    for lora in loras:
        if wrong := misfits(lora.weights, sizes_of(model)):
            first, why = next(iter(wrong.items()))
            remedy = "choose the model it was made for"
            raise ConfigError(f"{lora.title} does not fit {model.model.title} ({first}: {why}): {remedy}")
    return loras, model


def _by_part(model: Model, loras: list[Opened]) -> dict[str, list[Opened]]:
    """Return, for each transformer that is changed, its LoRAs."""
    found = {
        expert.part: [lora for lora in loras if expert in model.experts_for([lora.weights.expert])]
        for expert in model.experts
    }
    return {part: own for part, own in found.items() if own}


def _rounded(weight: torch.Tensor, how: str) -> torch.Tensor:
    """Return a weight after rounding, float64. Weights that a format cannot hold stay as they are."""
    import torch

    from workbench.memory.low_bit import BLOCK, byte_table, pack, unpack

    if how == "bf16":
        return weight.bfloat16().double()
    rows = weight.flatten(1) if weight.dim() > 1 else weight[None]
    if how == "nf4" and rows.numel() % BLOCK:
        return weight
    packed = pack(rows, "nf4" if how == "nf4" else "fp8")
    table = byte_table(weight.device) if how == "nf4" else None
    return unpack(*packed, table, len(rows), torch.float32).double().reshape(weight.shape)


def _fill(source: Path, target: Path, model: Model, loras: list[Opened], survival: Survival, step: Step) -> None:
    """Copy a model's folder, fusing into each transformer the LoRAs for it. Raises OSError."""
    changed = _by_part(model, loras)
    for path in sorted(source.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir() and path.name not in changed:
            shutil.copytree(path, target / path.name, copy_function=link_or_copy)
        elif path.is_file() and path.name != FUSED:
            shutil.copy2(path, target / path.name)
    bases = {part: ModelWeights(source / part) for part in changed}
    total, done = sum(map(len, bases.values())), 0
    for part, own in changed.items():
        (target / part).mkdir()
        for path in sorted((source / part).iterdir()):
            if path.suffix == ".safetensors":
                done = _fuse_file(path, target / part / path.name, own, bases[part], survival, step, done, total)
            else:
                shutil.copy2(path, target / part / path.name)


def _fuse_file(
    path: Path,
    target: Path,
    loras: list[Opened],
    base: ModelWeights,
    survival: Survival,
    step: Step,
    done: int,
    total: int,
) -> int:
    """Write one file of weights with the LoRAs' changes; return how many weights are done so far."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    for name in sorted(tensors):
        step(done, total)
        if (added := _added_to(name, loras, base)) is not None:
            before = tensors[name]
            tensors[name] = (before.double() + added).to(before.dtype)
            survival.add(tensors[name].double() - before.double(), added)
        done += 1
    save_file(tensors, target, {"format": "pt"})
    step(done, total)
    return done


def _added_to(name: str, loras: list[Opened], base: ModelWeights) -> torch.Tensor | None:
    """Return what LoRAs add to a weight or bias, float64; None if nothing."""
    layer, _, kind = name.rpartition(".")
    added = None
    for lora in loras:
        if f"{layer}.{DOWN}" in lora.weights.tensors and kind == "weight":
            one = matrix(change(lora.weights, layer, lora.scale_of(layer), base)).reshape(base[name].shape)
        elif kind == "bias" and (bias := bias_change(lora.weights, layer, lora.scale_of(layer))) is not None:
            one = bias
        else:
            continue
        added = one if added is None else added + one
    return added

"""Repair a LoRA: where it changes what it should not, and strengths of its blocks that keep its effect and drift less.

Two kinds of prompts are compared. On its *own* prompts the LoRA should have its effect; on *other* prompts, without the
trigger word, every change is drift. Clean latents are sampled for each prompt, with the LoRA for its own and without it
for the others, and are noised to several levels, always with the same noise. With b the base model's prediction, p the
prediction with some strengths and f the one with all blocks at strength 1:

    effect = <p - b, f - b> / |f - b|^2     the share of the LoRA's change of its own prompts that is left
    drift  = |p - b| / |b|                  how much other prompts change

The part of a block is the mean of what switching it off takes away and of what the block alone adds. With these parts
taken as additive, drift is quadratic in the strengths and effect is linear, so the best strengths solve a small convex
problem (`solved`). Since the parts are not additive, the solution is then measured, on prompts or noise that it has not
seen, beside single strengths for the whole LoRA. Only what beats these is offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.base import ResolvedModel
from workbench.families.lora_names import block_number
from workbench.jobs.devices import pick_device
from workbench.loras.making import OperationResult, Step
from workbench.loras.opened import Opened, Report, opened
from workbench.loras.settings import RepairSettings
from workbench.runs.data import read_lock, seed_for
from workbench.sampler.block_scales import BlockScales
from workbench.sampler.loras import Lora
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace
from workbench.workspace.lora_names import RUNS

if TYPE_CHECKING:
    import torch

    from workbench.families.model_inputs import ModelInputs
    from workbench.sampler.generate import Sampler

LEVELS = (0.3, 0.6, 0.9)  # noise quantiles
PROMPTS = 4  # of each kind, to solve with and again to check
GROUPS = 12  # most groups of neighboring blocks that are measured
STEPS = 10  # most sampling steps for the clean latents
STRONGEST = 1.5  # of a block
SINGLES = (0.9, 0.8, 0.7, 0.6, 0.5)  # strengths of the whole LoRA to compare with
ROUNDS = 3  # times that the solution is corrected by what it measures
AS_IT_IS = BlockScales()
MARGIN = 0.97  # of the drift of a single strength with the same effect; above it, blocks are not worth it


class Group(NamedTuple):
    """Neighboring blocks that share a strength. last: None with first 0 for the layers outside the blocks"""

    first: int
    last: int | None

    @property
    def title(self) -> str:
        if self.last is None:
            return "other layers"
        return f"block {self.first}" if self.first == self.last else f"blocks {self.first}-{self.last}"


class Measured(NamedTuple):
    """What a LoRA does at some strengths. scale: of the whole LoRA"""

    scale: float
    effect: float
    drift: float


def repair(workspace: Workspace, settings: RepairSettings, report: Report, step: Step) -> OperationResult:
    """Map and solve the strengths of a LoRA's blocks, and check them. Raises ConfigError, ModelUnavailable."""
    (one,) = opened(workspace, [settings.lora], report)
    if one.blocks:
        raise ConfigError.of("lora", f"lora has factors of blocks ({one.blocks}), which are what is solved: omit them")
    name = settings.model or one.model
    if not name:
        raise ConfigError.of("model", f"model is empty, and {one.title} does not name its model: choose one")
    own, others = prompts_of(workspace, one, settings, find_model(name))
    groups = groups_of(one)
    passes = _passes(len(groups), len(own), len(others))
    probe = Probe(workspace, one, name, settings, report, lambda done: step(done, passes))
    found = solve_and_check(probe, groups, own, others, settings.tolerance)
    step(passes, passes)
    text = f"{one.name}={one.scale:g}{found['strengths']}"
    return OperationResult("", found["sentence"], repair={"lora": text, "before": f"{one.name}={one.scale:g}", **found})


# ---- what is measured on


def prompts_of(
    workspace: Workspace, one: Opened, settings: RepairSettings, model: ResolvedModel
) -> tuple[list[str], list[str]]:
    """Return the LoRA's own prompts and others. Raises ConfigError if none are known, or the model needs more."""
    if model.model.task != "text-to-video" or model.family.codes(model.model):
        raise ConfigError.of(
            "lora",
            f"lora is for {model.model.title}, but only models that make videos from a prompt alone, and predict "
            "pictures, can be measured: choose another LoRA",
        )
    run = re.fullmatch(rf"{RUNS}/([^@]+)(@\d+)?", one.name)
    lock = read_lock(workspace.run(run[1])) if run else []
    neutral = list(model.model.preservation_prompts or model.family.preservation_prompts)
    own, others = list(settings.prompts), list(settings.others)
    if not own:
        own = [str(clip["caption"]) for role in ("held_out", "train") for clip in lock if clip["role"] == role]
    if not own and one.trigger:
        own = [f"{one.trigger}, {prompt}" for prompt in neutral]
    if not own:
        remedy = "give prompts that show what it learned"
        raise ConfigError.of("prompts", f"prompts is empty, and {one.title} has neither a run nor a trigger: {remedy}")
    if not others:
        others = [str(clip["caption"]) for clip in lock if clip["role"] == "known"] + neutral
        words = [word.strip() for word in one.trigger.split(",") if word.strip()]
        others = [prompt for prompt in others if not any(_has(prompt, word) for word in words)]
    own, others = (list(dict.fromkeys(filter(str.strip, prompts))) for prompts in (own, others))
    others = [prompt for prompt in others if prompt not in own]
    if not others:
        remedy = "give prompts it should leave alone"
        raise ConfigError.of("others", f"others has no prompt that is not among its own: {remedy}")
    return own[: 2 * PROMPTS], others[: 2 * PROMPTS]


def _has(prompt: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", prompt, re.IGNORECASE) is not None


def groups_of(one: Opened) -> list[Group]:
    """Return the LoRA's blocks in at most GROUPS groups, and the layers outside the blocks."""
    found = {block_number(f"{layer}.") for layer in one.weights.layers}
    blocks = sorted(block for block in found if block is not None)
    size = -(-len(blocks) // GROUPS) or 1
    parts = [blocks[start : start + size] for start in range(0, len(blocks), size)]
    return [Group(part[0], part[-1]) for part in parts] + ([Group(0, None)] if None in found else [])


def scales_of(groups: Sequence[Group], strengths: Sequence[float]) -> BlockScales:
    """Return strengths as factors of blocks, rounded to hundredths; neighbors with the same strength are joined."""
    ranges, rest = list[tuple[int, int, float]](), 1.0
    for group, strength in zip(groups, strengths, strict=True):
        factor = round(strength, 2)
        if group.last is None:
            rest = factor
        elif ranges and ranges[-1][1] + 1 == group.first and ranges[-1][2] == factor:
            ranges[-1] = ranges[-1][0], group.last, factor
        else:
            ranges.append((group.first, group.last, factor))
    return BlockScales(tuple(one for one in ranges if one[2] != 1), rest)


def _passes(groups: int, own: int, others: int) -> int:
    """Return how many predictions and samples there are, for progress."""
    halves = [min(PROMPTS, count) for count in (own, others)]
    to_check = [min(PROMPTS, count - half) or half for count, half in zip((own, others), halves, strict=True)]
    return len(LEVELS) * ((2 + 2 * groups + ROUNDS) * sum(halves) + (3 + len(SINGLES)) * sum(to_check)) + own + others


class Probe:
    """A model with the LoRA, which predicts at any strengths, always on the same inputs."""

    def __init__(
        self,
        workspace: Workspace,
        one: Opened,
        model: str,
        settings: RepairSettings,
        report: Report,
        count: Callable[[int], None],
    ) -> None:
        """Load the model. count: called with the number of predictions and samples so far; may raise to stop"""
        from workbench.sampler.generate import Sampler

        self._workspace, self._one, self._settings, self._count, self._done = workspace, one, settings, count, 0
        self._model = model
        report("loading the model")
        self._sampler: Sampler = Sampler(model, pick_device(settings.device), report)

    def _tick(self) -> None:
        self._done += 1
        self._count(self._done)

    def _apply(self, blocks: BlockScales, scale: float) -> None:
        lora = Lora(self._one.name, self._one.path, scale * self._one.scale, blocks)
        self._sampler.experts.apply([lora], self._workspace.cache / "loras", False)

    def inputs(self, prompts: Sequence[str], with_lora: bool, seed: int) -> list[list[ModelInputs]]:
        """Sample clean latents for prompts and noise them: a list of inputs for each level."""
        import torch

        from workbench.trainer.evaluation import EvaluationInput

        sampler = self._sampler
        schedule = sampler.family.noise_schedule(sampler.folder, torch.device(sampler.device.torch_name))
        self._schedule = schedule
        found: list[list[ModelInputs]] = [[] for _ in LEVELS]
        for number, prompt in enumerate(prompts):
            loras = (f"{self._one.path}={self._one.scale:g}",) if with_lora else ()
            asked = SampleSettings(
                model=self._model,
                prompt=prompt,
                seed=seed_for(seed, "repair sample", number) % 2**31,
                steps=min(STEPS, sampler.model.steps),
                device=self._settings.device,
                loras=loras,
            )
            latents = sampler.denoise(self._workspace, asked).latents.float()
            self._tick()
            text = sampler.text(prompt)
            probe = EvaluationInput(prompt, tuple(latents.shape[1:]), text, fps=sampler.model.fps)
            for at, level in enumerate(LEVELS):
                generator = torch.Generator().manual_seed(seed_for(seed, "repair noise", number, at))
                noise = torch.randn(latents.shape, generator=generator).to(latents.device)
                found[at].append(probe.noised(schedule, latents, noise, level))
        return found

    def predict(
        self, inputs: Sequence[Sequence[ModelInputs]], blocks: BlockScales = AS_IT_IS, scale: float = 1.0
    ) -> list[list[torch.Tensor]]:
        """Return the predictions at strengths of blocks, flat float32 on the CPU, for each level."""
        import torch

        self._apply(blocks, scale)
        found = list[list[torch.Tensor]]()
        sampler = self._sampler
        try:
            with torch.no_grad():
                for of_level in inputs:
                    found.append([])
                    for one in of_level:
                        transformer = sampler.transformer
                        if len(sampler.experts.loaded) > 1:
                            transformer = sampler.experts.at(float(one.timesteps[0]))
                        predicted = sampler.family.predict(transformer, self._schedule, one)
                        found[-1].append(predicted.float().flatten().cpu())
                        self._tick()
        finally:
            sampler.experts.rest()
        return found


# ---- solving and checking


def solved(gram: Sequence[Sequence[float]], effect: Sequence[float], needed: float, strongest: float) -> list[float]:
    """Return the strengths s in [0, strongest] with the least s G s whose effect a s is at least `needed`.

    For a price m of effect, coordinate descent finds the strengths with the least s G s - m a s; the price is bisected.
    """
    count = len(effect)
    ridge = 1e-9 * max(gram[i][i] for i in range(count)) or 1e-12

    def at(price: float) -> list[float]:
        found = [0.0] * count
        for _ in range(500):
            before = list(found)
            for i in range(count):
                pull = price * effect[i] / 2 - sum(gram[i][j] * found[j] for j in range(count) if j != i)
                found[i] = min(strongest, max(0.0, pull / (gram[i][i] + ridge)))
            if max(abs(one - other) for one, other in zip(found, before, strict=True)) < 1e-7:
                break
        return found

    def reached(strengths: Sequence[float]) -> bool:
        return sum(one * a for one, a in zip(strengths, effect, strict=True)) >= needed

    low, high = 0.0, 1e-6
    while not reached(at(high)) and high < 1e12:
        low, high = high, 4 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(at(middle)) else (middle, high)
    return at(high)


def solve_and_check(
    probe: Any, groups: Sequence[Group], own: Sequence[str], others: Sequence[str], tolerance: float
) -> dict[str, Any]:
    """Return the map, the strengths and what they measure, as in result.json. probe: a `Probe`"""
    sides = [own[:PROMPTS], others[:PROMPTS]]
    unseen = [own[PROMPTS:] or own, others[PROMPTS:] or others]
    inputs = [probe.inputs(prompts, side == 0, 0) for side, prompts in enumerate(sides)]
    base, full = ([probe.predict(one, scale=scale) for one in inputs] for scale in (0.0, 1.0))
    parts = [_parts(probe, inputs[side], groups, base[side], full[side]) for side in (0, 1)]
    change = [[after - before for before, after in _pairs(*level)] for level in _pairs(base[0], full[0])]
    rows = list[dict[str, Any]]()
    for number, group in enumerate(groups):
        effects = [_share(part, whole) for part, whole in _pairs(parts[0][number], change)]
        drifts = [
            _mean(float(part.norm() / before.norm().clamp(min=1e-12)) for part, before in _pairs(*level))
            for level in _pairs(parts[1][number], base[1])
        ]
        rows.append({"title": group.title, "effect": effects, "drift": drifts})
    flat = [
        [part / before.norm() for level in _pairs(one, base[1]) for part, before in _pairs(*level)] for one in parts[1]
    ]
    gram = [[float(sum(a @ b for a, b in _pairs(one, other))) for other in flat] for one in flat]
    effect = [_share(*([one for level in levels for one in level] for levels in (part, change))) for part in parts[0]]
    total = sum(effect) or 1.0
    effect = [one / total for one in effect]

    # What solves the additive model is measured and, where it loses too much, solved again with more effect.
    needed, strengths = 1 - tolerance, [1.0] * len(groups)
    for _ in range(ROUNDS):
        strengths = solved(gram, effect, needed, STRONGEST)
        short = 1 - tolerance - _effect(base[0], full[0], probe.predict(inputs[0], scales_of(groups, strengths)))
        if short <= 0.002:
            break
        needed = min(needed + short, 1.2)
    blocks = scales_of(groups, strengths)

    inputs = [probe.inputs(prompts, side == 0, 1) for side, prompts in enumerate(unseen)]
    base, full = ([probe.predict(one, scale=scale) for one in inputs] for scale in (0.0, 1.0))

    def measured(scale: float = 1.0, blocks: BlockScales = AS_IT_IS) -> Measured:
        found = full if scale == 1 and not blocks else [probe.predict(one, blocks, scale) for one in inputs]
        return Measured(scale, round(_effect(base[0], full[0], found[0]), 4), round(_drift(base[1], found[1]), 4))

    singles = [measured(), *map(measured, SINGLES)]
    after = measured(blocks=blocks)
    helps, sentence = verdict(after, singles, tolerance, bool(blocks))
    for row, strength in zip(rows, strengths, strict=True):
        row["strength"] = round(strength, 2)
    return {
        "helps": helps,
        "sentence": sentence,
        "strengths": str(blocks),
        "levels": list(LEVELS),
        "rows": [_rounded(row) for row in rows],
        "after": after._asdict(),
        "singles": [one._asdict() for one in singles],
        "prompts": list(unseen[0]),
        "others": list(unseen[1]),
    }


def verdict(after: Measured, singles: Sequence[Measured], tolerance: float, changes: bool) -> tuple[bool, str]:
    """Return whether the strengths of blocks are worth it, and a sentence. singles: at strength 1 first, falling."""
    before = singles[0]
    single = drift_of_single(singles, after.effect)
    less = 1 - after.drift / max(before.drift, 1e-12)
    kept = f"{after.effect:.0%} of the effect and {abs(less):.0%} {'less' if less >= 0 else 'more'} drift"
    if before.drift < 1e-4:
        return False, "There is nothing to repair: the LoRA hardly changes other prompts"
    if changes and after.effect >= 1 - tolerance - 0.02 and after.drift < MARGIN * min(single, before.drift):
        beside = f"a single strength with that effect has {1 - single / before.drift:.0%} less"
        return True, f"On unseen inputs the solved strengths keep {kept}; {beside}"
    best = min(singles, key=lambda one: (one.effect < 1 - max(tolerance, 0.05), one.drift))
    tail = "keep it as it is"
    if best.scale < 1:
        better = 1 - best.drift / before.drift
        tail = f"strength {best.scale:g} keeps {best.effect:.0%} of the effect and has {better:.0%} less drift"
    why = "no better than one strength" if after.drift >= MARGIN * single else "which gives up too much"
    return False, f"Strengths of blocks do not help: on unseen inputs they have {kept}, {why}; {tail}"


def drift_of_single(singles: Sequence[Measured], effect: float) -> float:
    """Return the drift of the single strength with an effect, between those that were measured."""
    ordered = sorted(singles, key=lambda one: one.effect)
    for one, other in zip(ordered, ordered[1:], strict=False):
        if one.effect <= effect <= other.effect and other.effect > one.effect:
            return one.drift + (other.drift - one.drift) * (effect - one.effect) / (other.effect - one.effect)
    end = ordered[0] if effect < ordered[0].effect else ordered[-1]
    return end.drift * (effect / end.effect if end.effect > 0 else 1.0)


def _parts(probe: Any, inputs: Any, groups: Sequence[Group], base: Any, full: Any) -> list[Any]:
    """Return the change that each group causes, for each level and input."""
    found = []
    for number in range(len(groups)):
        off = probe.predict(inputs, scales_of(groups, [float(at != number) for at in range(len(groups))]))
        alone = probe.predict(inputs, scales_of(groups, [float(at == number) for at in range(len(groups))]))
        found.append(
            [
                [(f - o + a - b) / 2 for f, o, a, b in zip(*level, strict=True)]
                for level in zip(full, off, alone, base, strict=True)
            ]
        )
    return found


def _effect(base: Any, full: Any, found: Any) -> float:
    """Return the share of the LoRA's change that is left, over all levels and inputs."""
    flat = [[one for level in levels for one in level] for levels in (base, full, found)]
    moved, whole = ([after - before for before, after in _pairs(flat[0], flat[at])] for at in (2, 1))
    return _share(moved, whole)


def _drift(base: Any, found: Any) -> float:
    flat = [[one for level in levels for one in level] for levels in (base, found)]
    return _mean(float((after - before).norm() / before.norm().clamp(min=1e-12)) for before, after in _pairs(*flat))


def _share(moved: Sequence[torch.Tensor], whole: Sequence[torch.Tensor]) -> float:
    """Return how far these changes go along the whole ones."""
    along = sum(float(one @ other) for one, other in _pairs(moved, whole))
    return along / max(sum(float(one @ one) for one in whole), 1e-24)


def _pairs(one: Sequence[Any], other: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    return zip(one, other, strict=True)


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return sum(found) / max(len(found), 1)


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return row | {name: [round(one, 4) for one in row[name]] for name in ("effect", "drift")}

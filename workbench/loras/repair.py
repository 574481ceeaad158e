"""Repair a LoRA: see which blocks change what they should not, and train its matrices to leave other prompts alone.

Two kinds of prompts are compared. On its *own* prompts the LoRA should have its effect; on *other* prompts, without the
trigger word, every change is drift. No clips are needed: the LoRA teaches itself. With b the base model's prediction, f
the LoRA's and p that of the matrices in training, on latents sampled for each prompt and noised at random,

    loss = |p - f|^2 / |f - b|^2 on own prompts  +  weight * |p - b|^2 / |f - b|^2 on other prompts

with both denominators measured once. Both teachers have an answer to any input, so prompts are also paired with latents
of others, which leaves the prompt as the one difference. Rank and layers stay: the result is an ordinary LoRA file.

What is said of the result is measured in samples of prompts that were not trained on, from the same noise. With samples
x of the base model, y of the LoRA and z of the repaired one:

    effect = <z - x, y - x> / |y - x|^2     the share of the LoRA's change of its own prompts that is left
    drift  = |z - x| / |x|                  how much other prompts change

A lower strength of the whole LoRA trades one for the other, too, so strengths are measured, too, and the repair is
saved only if it is better.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.display.quantities import counted
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.base import ResolvedModel
from workbench.families.lora_files import LoraWeights
from workbench.families.lora_names import block_number
from workbench.jobs.devices import pick_device
from workbench.loras.library import lacking
from workbench.loras.making import OperationResult, Provenance, Step, add_to_library, lora_of_layers, title_from
from workbench.loras.opened import Opened, Report, opened
from workbench.loras.settings import RepairSettings
from workbench.runs.data import read_lock, seed_for
from workbench.sampler.adapters import file_beside
from workbench.sampler.loras import Lora
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace
from workbench.workspace.lora_names import RUNS

if TYPE_CHECKING:
    import torch

    from workbench.families.model_inputs import ModelInputs
    from workbench.sampler.generate import Sampler

LEVELS = (0.3, 0.6, 0.9)  # noise quantiles of the map
MAPPED = 4  # prompts of each kind for the map
GROUPS = 12  # most groups of neighboring blocks that are measured
SAMPLING_STEPS = 10  # at most
MOST_OWN, MOST_OTHERS, FEWEST = 24, 40, 4  # prompts; the first quarter, but at most CHECKED, checks the result
CHECKED = 8
BATCH, MIXED = 4, 0.6  # inputs of each kind in a step; share of them whose latents are of any prompt
LEARNING_RATE, WARMUP = 0.03, 5  # of Adam, relative to a matrix's values, falling to zero; steps
SINGLES = (0.9, 0.8, 0.7, 0.6)  # strengths of the whole LoRA to compare with
KEPT, LESS = 0.85, 0.9  # a repair is saved with at least this effect and at most this share of one strength's drift


class Measured(NamedTuple):
    """What a LoRA does at a strength. scale: of the whole LoRA"""

    scale: float
    effect: float
    drift: float


def repair(workspace: Workspace, settings: RepairSettings, report: Report, step: Step) -> OperationResult:
    """Map, repair and check a LoRA, and save the result if it is better than any single strength.

    Raises ConfigError, ModelUnavailable, CannotWrite.
    """
    one, lora, found = repaired(workspace, settings, report, step)
    if not found["helps"]:
        return OperationResult("", found["sentence"], repair=found)
    made = add_to_library(workspace, one.family, lora, provenance_of(one, settings, found))
    return OperationResult(made.name, found["sentence"], repair=found | {"lora": made.name})


def provenance_of(one: Opened, settings: RepairSettings, found: dict[str, Any]) -> Provenance:
    """Return how a repaired LoRA was made."""
    after, before = found["after"], found["singles"][0]
    return Provenance(
        title=title_from(settings.name, [one], "-repaired"),
        how="repaired",
        summary=f"{one.title} repaired: {after['effect']:.0%} of its effect, {_less(after, before)} on other prompts",
        model=one.model,
        base_model=one.base_model,
        made_of=[one.record()],
        trigger=one.trigger,
        steps=one.steps,
        training=one.training,
        repair=found,
    )


def repaired(
    workspace: Workspace, settings: RepairSettings, report: Report, step: Step
) -> tuple[Opened, LoraWeights, dict[str, Any]]:
    """Return the LoRA, its repaired weights, and what was measured, as in result.json."""
    (one,) = opened(workspace, [settings.lora], report)
    name = settings.model or one.model
    if not name:
        raise ConfigError.of("model", f"model is empty, and {one.title} does not name its model: choose one")
    own, others = prompts_of(workspace, one, settings, find_model(name))
    checked = [prompts[: min(CHECKED, len(prompts) // 4)] for prompts in (own, others)]
    learned = [prompts[len(part) :] for prompts, part in zip((own, others), checked, strict=True)]
    groups = groups_of(one)
    passes = _passes(len(groups), list(map(len, learned)), list(map(len, checked)), settings.steps)
    probe = Probe(workspace, one, name, settings, report, lambda done: step(min(done, passes), passes))

    report("sampling what it does")
    latents = [probe.samples(prompts, "learn", float(side == 0)) for side, prompts in enumerate(learned)]
    report("mapping blocks")
    rows, scales = mapped(probe, groups, learned, latents)
    report("repairing")
    probe.learn(learned, latents, scales, settings)

    report("checking the repair")
    probe.original(True)
    base = [sample for prompts in checked for sample in probe.samples(prompts, "check", 0.0)]
    before = [probe.samples(prompts, "check", 1.0) for prompts in checked]
    count = len(checked[0])

    def measured(scale: float, found: Sequence[Sequence[torch.Tensor]]) -> Measured:
        effect = effect_of(base[:count], before[0], found[0])
        return Measured(scale, round(effect, 4), round(drift_of(base[count:], found[1]), 4))

    singles = [measured(1.0, before)]
    singles += [measured(at, [probe.samples(prompts, "check", at) for prompts in checked]) for at in SINGLES]
    probe.original(False)
    after = measured(1.0, [probe.samples(prompts, "check", 1.0) for prompts in checked])
    helps, sentence = verdict(after, singles)
    found = {
        "lora": "",
        "source": f"{one.name}={one.scale:g}",
        "helps": helps,
        "sentence": sentence,
        "levels": list(LEVELS),
        "rows": rows,
        "after": after._asdict(),
        "beside": round(min(drift_of_single(singles, after.effect), singles[0].drift), 4),
        "singles": [single._asdict() for single in singles],
        "prompts": list(checked[0]),
        "others": list(checked[1]),
    }
    step(passes, passes)
    return one, probe.weights(), found


# ---- what is measured on


def prompts_of(
    workspace: Workspace, one: Opened, settings: RepairSettings, model: ResolvedModel
) -> tuple[list[str], list[str]]:
    """Return the LoRA's own prompts and others. Raises ConfigError for a LoRA that cannot be repaired."""
    facts = model.model
    if facts.task != "text-to-video" or model.family.codes(facts) or len(facts.experts) > 1:
        raise ConfigError.of(
            "lora",
            f"lora is for {facts.title}, but only models with one transformer that make videos from a prompt alone and "
            "predict pictures can be repaired: choose another LoRA",
        )
    if one.blocks or one.weights.dora or one.weights.biased or file_beside(one.path) is not None:
        raise ConfigError.of(
            "lora",
            f"{one.title} has block factors, DoRA magnitudes, biases or separate weights, which a repair would "
            "leave out: merge it into a plain LoRA first",
        )
    run = re.fullmatch(rf"{RUNS}/([^@]+)(@\d+)?", one.name)
    lock = read_lock(workspace.run(run[1])) if run else []
    neutral = list(facts.preservation_prompts or model.family.preservation_prompts)
    own, others = list(settings.prompts), list(settings.others)
    if not own:
        own = [str(clip["caption"]) for role in ("held_out", "train") for clip in lock if clip["role"] == role]
    if not own and one.trigger:
        own = [f"{one.trigger}, {prompt}" for prompt in neutral]
    if not others:
        others = [str(clip["caption"]) for clip in lock if clip["role"] == "known"] + neutral
        words = [word.strip() for word in one.trigger.split(",") if word.strip()]
        others = [prompt for prompt in others if lacking(prompt, words) == words]
    own, others = (list(dict.fromkeys(filter(str.strip, prompts))) for prompts in (own, others))
    others = [prompt for prompt in others if prompt not in own]
    for name, found, remedy in (("prompts", own, "that show what it learned"), ("others", others, "to leave alone")):
        if len(found) < FEWEST:
            raise ConfigError.of(
                name,
                f"{name} has {counted(len(found), 'prompt')}, at least {FEWEST} are needed: give more prompts {remedy}",
            )
    return own[:MOST_OWN], others[:MOST_OTHERS]


class Group(NamedTuple):
    """Neighboring blocks that are measured together. last: None with first 0 for the layers outside the blocks"""

    first: int
    last: int | None

    @property
    def title(self) -> str:
        if self.last is None:
            return "other layers"
        return f"block {self.first}" if self.first == self.last else f"blocks {self.first}-{self.last}"

    def has(self, block: int | None) -> bool:
        return block is None if self.last is None else block is not None and self.first <= block <= self.last


def groups_of(one: Opened) -> list[Group]:
    """Return the LoRA's blocks in at most GROUPS groups, and the layers outside the blocks."""
    found = {block_number(f"{layer}.") for layer in one.weights.layers}
    blocks = sorted(block for block in found if block is not None)
    size = -(-len(blocks) // GROUPS) or 1
    parts = [blocks[start : start + size] for start in range(0, len(blocks), size)]
    return [Group(part[0], part[-1]) for part in parts] + ([Group(0, None)] if None in found else [])


SAMPLE_COST, LEARN_COST = 2 * SAMPLING_STEPS, 4  # in predictions, for progress


def _passes(groups: int, learned: Sequence[int], checked: Sequence[int], steps: int) -> int:
    samples = sum(learned) + (3 + len(SINGLES)) * sum(checked)
    predictions = len(LEVELS) * (2 + 2 * groups) * sum(min(MAPPED, count) for count in learned)
    return SAMPLE_COST * samples + predictions + LEARN_COST * 2 * BATCH * steps


class Probe:
    """A model with the LoRA: samples, predicts with some of its blocks, and trains its matrices."""

    def __init__(
        self,
        workspace: Workspace,
        one: Opened,
        model: str,
        settings: RepairSettings,
        report: Report,
        count: Callable[[int], None],
    ) -> None:
        """Load the model. count: called with the work done so far; may raise to stop"""
        import torch

        from workbench.sampler.generate import Sampler

        self._workspace, self._one, self._count, self._done = workspace, one, count, 0
        self._choice = settings.device
        report("loading the model")
        self._sampler: Sampler = Sampler(model, pick_device(settings.device), report)
        self._device = torch.device(self._sampler.device.torch_name)
        self._schedule = self._sampler.family.noise_schedule(self._sampler.folder, self._device)
        self._transformer = self._sampler.transformer
        self._transformer.requires_grad_(False)
        self._apply(1.0)
        self._layers = {
            layer: module
            for layer, module in self._transformer.named_modules()
            if any(module.lora_A.keys() if hasattr(module, "lora_A") else ())
        }
        self._adapter = next(iter(next(iter(self._layers.values())).lora_A))
        for one_layer in self._layers.values():  # in half precision, small steps would be lost
            one_layer.lora_A[self._adapter].float()
            one_layer.lora_B[self._adapter].float()
        self._own = [matrix.detach().clone() for matrix in self._matrices]
        self._new = self._own

    @property
    def _matrices(self) -> list[torch.nn.Parameter]:
        parts = (part[self._adapter] for one in self._layers.values() for part in (one.lora_A, one.lora_B))
        return [part.weight for part in parts]

    def original(self, wanted: bool) -> None:
        """Put the LoRA's own matrices in place, or the repaired ones."""
        for matrix, values in zip(self._matrices, self._own if wanted else self._new, strict=True):
            matrix.data.copy_(values)

    def weights(self) -> LoraWeights:
        """Return the repaired LoRA, with the scale at which it was opened multiplied in."""
        self._apply(1.0)
        self.original(False)
        layers = []
        for layer, module in self._layers.items():
            down, up = (part[self._adapter].weight.detach().cpu() for part in (module.lora_A, module.lora_B))
            dtype = self._one.weights.tensors[f"{layer}.lora_A.weight"].dtype
            up = up * module.scaling[self._adapter]
            layers.append((layer, up.to(dtype).contiguous(), down.to(dtype).contiguous(), None))
        return lora_of_layers(layers, self._one.title)

    def _apply(self, scale: float) -> None:
        lora = Lora(self._one.name, self._one.path, scale * self._one.scale)
        self._sampler.experts.apply([lora], self._workspace.cache / "loras", False)

    def _tick(self, cost: int) -> None:
        self._done += cost
        self._count(self._done)

    def samples(self, prompts: Sequence[str], purpose: str, scale: float) -> list[torch.Tensor]:
        """Sample latents for prompts with the LoRA at a scale; for the same purpose always from the same noise."""
        sampler, found = self._sampler, []
        for number, prompt in enumerate(prompts):
            asked = SampleSettings(
                model=sampler.name,
                prompt=prompt,
                seed=seed_for(0, f"repair {purpose}", number) % 2**31,
                steps=min(SAMPLING_STEPS, sampler.model.steps),
                device=self._choice,
                loras=(f"{self._one.path}={scale * self._one.scale:g}",),
            )
            found.append(sampler.denoise(self._workspace, asked).latents.float().cpu())
            self._tick(SAMPLE_COST)
        return found

    def inputs(self, prompt: str, latents: torch.Tensor, level: float, seed: int) -> ModelInputs:
        """Noise latents to a level and return the model's inputs."""
        import torch

        from workbench.trainer.evaluation import EvaluationInput

        noise = torch.randn(latents.shape, generator=torch.Generator().manual_seed(seed)).to(self._device)
        shape, sampler = tuple(latents.shape[1:]), self._sampler
        of_prompt = EvaluationInput(prompt, shape, sampler.text(prompt), fps=sampler.model.fps)
        return of_prompt.noised(self._schedule, latents.to(self._device), noise, level)

    def predict(self, inputs: Sequence[Sequence[ModelInputs]], groups: Iterable[Group]) -> list[list[torch.Tensor]]:
        """Return predictions with these groups of blocks alone, flat float32 on the CPU, for each level."""
        import torch

        self._apply(1.0)
        active = list(groups)
        for layer, module in self._layers.items():
            if not any(group.has(block_number(f"{layer}.")) for group in active):
                module.scaling[self._adapter] = 0.0
        found = list[list[torch.Tensor]]()
        with self._sampler.on_device(self._transformer), torch.no_grad():
            for of_level in inputs:
                found.append([self._predicted(one).flatten().cpu() for one in of_level])
                self._tick(len(of_level))
        return found

    def _predicted(self, inputs: ModelInputs) -> torch.Tensor:
        return self._sampler.family.predict(self._transformer, self._schedule, inputs).float()

    def learn(
        self,
        prompts: Sequence[Sequence[str]],
        latents: Sequence[Sequence[torch.Tensor]],
        scales: Sequence[float],
        settings: RepairSettings,
    ) -> None:
        """Train the matrices on own and other prompts. scales: the mean squares of the LoRA's change of both"""
        import torch

        self._apply(1.0)
        matrices, draw = self._matrices, random.Random(seed_for(0, "repair draw"))
        rates = [LEARNING_RATE * float(matrix.detach().square().mean().sqrt()) for matrix in matrices]
        for matrix in matrices:
            matrix.requires_grad_(True)
        if self._device.type != "cpu":
            from workbench.memory.checkpointing import recomputing

            self._transformer.enable_gradient_checkpointing(recomputing("full", False))
        optimizer = torch.optim.Adam([{"params": [matrix]} for matrix in matrices], betas=(0.9, 0.99))
        every = [clip for side in latents for clip in side]
        weights = 1 / max(scales[0], 1e-12), settings.weight / max(scales[1], 1e-12)
        with self._sampler.on_device(self._transformer):
            for step in range(settings.steps):
                factor = min(1, (step + 1) / WARMUP) * (1 + math.cos(math.pi * step / settings.steps)) / 2
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate * factor
                chosen = [(side, (number + draw.random()) / BATCH) for side in (0, 1) for number in range(BATCH)]
                inputs = []
                for number, (side, level) in enumerate(chosen):
                    at = draw.randrange(len(prompts[side]))
                    seed = seed_for(0, "repair noise", step, number)
                    clip = draw.choice(every) if draw.random() < MIXED else latents[side][at]
                    inputs.append(self.inputs(prompts[side][at], clip, level, seed))
                batches = [(side, one) for side in (0, 1) for one in self._batches(inputs[side * BATCH :][:BATCH])]
                targets = self._targets(
                    [one for side, one in batches if not side], [one for side, one in batches if side]
                )
                for (side, one), target in zip(batches, targets, strict=True):
                    error = (self._predicted(one) - target).square().mean() * len(target) / BATCH
                    (weights[side] * error).backward()
                    self._tick(LEARN_COST * len(target))
                optimizer.step()
                optimizer.zero_grad()
        if self._device.type != "cpu":
            self._transformer.disable_gradient_checkpointing()
        for matrix in matrices:
            matrix.requires_grad_(False)
        self._new = [matrix.detach().clone() for matrix in matrices]

    def _batches(self, inputs: Sequence[ModelInputs]) -> list[ModelInputs]:
        """Join inputs on a CPU, where calls of small models cost most; on a GPU memory is scarcer."""
        import torch

        first = inputs[0]
        shapes = [{name: tensor.shape for name, tensor in one.text.items()} for one in inputs]
        alike = all(shape == shapes[0] for shape in shapes) and len({one.latents.shape for one in inputs}) == 1
        if self._device.type != "cpu" or not alike:
            return list(inputs)
        text = {name: torch.cat([one.text[name] for one in inputs]) for name in first.text}
        latents, noise, times = (
            torch.cat(parts) for parts in zip(*((one.latents, one.noise, one.timesteps) for one in inputs), strict=True)
        )
        return [replace(first, latents=latents, text=text, noise=noise, timesteps=times)]

    def _targets(self, own: Sequence[ModelInputs], others: Sequence[ModelInputs]) -> list[torch.Tensor]:
        """Return what the LoRA as it was predicts for its own inputs, and the base model for others."""
        import torch

        now = [matrix.detach().clone() for matrix in self._matrices]
        strengths = {layer: module.scaling[self._adapter] for layer, module in self._layers.items()}
        with torch.no_grad():
            self.original(True)
            found = [self._predicted(one) for one in own]
            for matrix, values in zip(self._matrices, now, strict=True):
                matrix.data.copy_(values)
            for module in self._layers.values():
                module.scaling[self._adapter] = 0.0
            found += [self._predicted(one) for one in others]
        for layer, module in self._layers.items():
            module.scaling[self._adapter] = strengths[layer]
        return found


# ---- the map, and what is said


def mapped(
    probe: Any, groups: Sequence[Group], prompts: Sequence[Sequence[str]], latents: Sequence[Sequence[Any]]
) -> tuple[list[dict[str, Any]], list[float]]:
    """Return what each group changes, and the mean square of all changes of own and other prompts. probe: a `Probe`

    A group's part is the mean of what switching it off takes away and of what it adds alone.
    """
    parts, changes, norms = [list[list[list[Any]]]() for _ in groups], list[list[list[Any]]](), list[list[float]]()
    for side in (0, 1):
        chosen = list(zip(prompts[side], latents[side], strict=True))[:MAPPED]
        inputs = [
            [
                probe.inputs(prompt, clip, level, seed_for(0, "repair map", side, number))
                for number, (prompt, clip) in enumerate(chosen)
            ]
            for level in LEVELS
        ]
        base, full = probe.predict(inputs, ()), probe.predict(inputs, groups)
        norms = [[float(one.norm()) for one in level] for level in base]  # of the others in the end
        changes.append([[f - b for f, b in zip(*level, strict=True)] for level in zip(full, base, strict=True)])
        for at, group in enumerate(groups):
            off = probe.predict(inputs, [one for one in groups if one != group])
            alone = probe.predict(inputs, [group])
            parts[at].append(
                [
                    [(f - o + a - b) / 2 for f, o, a, b in zip(*level, strict=True)]
                    for level in zip(full, off, alone, base, strict=True)
                ]
            )
    rows = list[dict[str, Any]]()
    for group, (own, other) in zip(groups, parts, strict=True):
        effects = [_share(part, whole) for part, whole in zip(own, changes[0], strict=True)]
        drifts = [
            _mean(float(one.norm()) / max(norm, 1e-12) for one, norm in zip(*level, strict=True))
            for level in zip(other, norms, strict=True)
        ]
        rows.append({"title": group.title, "effect": _rounded(effects), "drift": _rounded(drifts)})
    return rows, [_mean(float(one.square().mean()) for level in side for one in level) for side in changes]


def effect_of(base: Sequence[torch.Tensor], before: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> float:
    """Return the share of the change from base to before that is left in after, over all samples."""
    whole = [one - start for one, start in zip(before, base, strict=True)]
    return _share([one - start for one, start in zip(after, base, strict=True)], whole)


def drift_of(base: Sequence[torch.Tensor], after: Sequence[torch.Tensor]) -> float:
    """Return how much samples change, relative to the base model's."""
    return _mean(float((one - start).norm() / start.norm()) for one, start in zip(after, base, strict=True))


def verdict(after: Measured, singles: Sequence[Measured]) -> tuple[bool, str]:
    """Return whether a repair is worth saving, and a sentence. singles: at strength 1 first, falling."""
    before = singles[0]
    if before.drift < 1e-3:
        return False, "There is nothing to repair: the LoRA hardly changes other prompts"
    single = min(drift_of_single(singles, after.effect), before.drift)
    kept = f"{after.effect:.0%} of its effect and {_less(after._asdict(), before._asdict())}"
    beside = f"one strength with that effect has {max(0.0, 1 - single / before.drift):.0%} less"
    if after.effect >= KEPT and after.drift <= LESS * single:
        return True, f"In unseen samples the repaired LoRA has {kept}; {beside}"
    return False, f"The repair does not help, so nothing was saved: in unseen samples it has {kept}; {beside}"


def _less(after: dict[str, float], before: dict[str, float]) -> str:
    less = 1 - after["drift"] / max(before["drift"], 1e-12)
    return f"{abs(less):.0%} {'less' if less >= 0 else 'more'} drift"


def drift_of_single(singles: Sequence[Measured], effect: float) -> float:
    """Return the drift of the single strength with an effect, between those that were measured."""
    ordered = sorted(singles, key=lambda one: one.effect)
    for one, other in zip(ordered, ordered[1:], strict=False):
        if one.effect <= effect <= other.effect and other.effect > one.effect:
            return one.drift + (other.drift - one.drift) * (effect - one.effect) / (other.effect - one.effect)
    end = ordered[0] if effect < ordered[0].effect else ordered[-1]
    return end.drift * (effect / end.effect if end.effect > 0 else 1.0)


def _share(moved: Sequence[torch.Tensor], whole: Sequence[torch.Tensor]) -> float:
    """Return how far these changes go along the whole ones."""
    along = sum(float((one * other).sum()) for one, other in zip(moved, whole, strict=True))
    return along / max(sum(float(one.square().sum()) for one in whole), 1e-24)


def _mean(values: Iterator[float]) -> float:
    found = list(values)
    return sum(found) / max(len(found), 1)


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(one, 4) for one in values]

"""Bytes that a transformer's blocks keep and work with, for each token and unit of the model's width. No torch.

The numbers are those of tensors alone: fitted to simulated steps of models of real size, which
benchmarks/memory_simulation.py compares them with. Not covered: what is no tensor (memory).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from workbench.families.facts import ModelFacts
from workbench.fit.trained_size import TrainedSize, chosen_in_block
from workbench.runs.settings import TrainSettings

NUMBER = {"fp32": 4, "fp16": 2, "bf16": 2}  # bytes


@dataclass(frozen=True)
class Rates:
    """Bytes for each token and unit of the model's width.

    saved: kept by a block, without inputs of trained layers;  inputs: each of those, for its own width
    boundary: a block's input;  attention: what "keep attention" keeps of a block beside it
    backward, forward: beside what is kept, at the worst moment of a backward pass, and of a pass that keeps nothing
    full: kept in addition where all weights are trained;  shared: whether layers with the same input keep it once
    within: for each unit of the feed-forward's width, in addition to saved, backward and forward
    cast: the widest input of a trained layer, at the worst moment of a backward pass;  outside: kept beside the blocks
    table: of the positions, once however many clips there are
    """

    saved: float
    inputs: float
    boundary: float
    attention: float
    backward: float
    forward: float
    full: float
    shared: bool
    within: float = 0.0
    cast: float = 0.0
    outside: float = 0.0
    table: float = 0.0


SINGLE = Rates(47.0, 4.0, 4.0, 4.1, 36.0, 50.0, 24.0, shared=True)
MIXED = Rates(32.5, 2.0, 2.0, 2.1, 20.0, 30.0, 16.0, shared=True)
MIXED_STOCK = Rates(32.5, 2.0, 2.0, 2.1, 20.0, 34.0, 16.0, shared=False)
# Where the caption is only looked at.
CROSS_SINGLE = Rates(40.0, 4.0, 4.0, 8.1, 8.0, 33.0, 24.0, shared=True, within=4.0, cast=4.0)
CROSS_MIXED = Rates(36.9, 2.0, 2.0, 4.1, 6.0, 21.5, 16.0, shared=False, within=2.0, cast=4.0)


def rates_of(settings: TrainSettings, facts: ModelFacts, precision: str, what: TrainedSize) -> Rates:
    """Of a model's architecture. A token's own timestep becomes six vectors in each block, and six outside."""
    if facts.text_joint:
        joint = SINGLE if precision == "fp32" else MIXED_STOCK if settings.attention == "stock" else MIXED
        return replace(joint, table=facts.position_bytes)
    rates, number = CROSS_SINGLE if precision == "fp32" else CROSS_MIXED, NUMBER[precision]
    shown = 0 if settings.first_frame_share == 0 else facts.shown_bytes
    wide, timed = rates.within * facts.feed_forward / facts.width, 6.0 * (facts.timed_bytes or shown)
    picture = 1.05 * number if facts.picture_tokens else 0.0  # a second cross-attention's output
    return replace(
        rates,
        attention=rates.attention + picture,
        saved=rates.saved + wide + picture + (timed + 3.5 if timed else 0.0),
        backward=rates.backward + wide + rates.cast * what.widest / facts.width,
        forward=rates.forward + wide + timed,
        outside=rates.outside + facts.position_bytes + (7.5 * number if timed else 0.0),
    )


def saved_by_a_block(settings: TrainSettings, facts: ModelFacts, rates: Rates, trained: TrainedSize) -> float:
    """Bytes that a block keeps for its backward pass, for each token and unit of width."""
    width = facts.width
    inputs = trained.inputs
    if rates.shared and inputs:
        inputs -= sum(one.inputs for one in chosen_in_block(settings, facts) if one.shared)
    found = rates.saved + rates.inputs * inputs / width
    if settings.method == "full":
        return found + rates.full
    if settings.lora_dropout:
        found += (rates.inputs + 1.0) * trained.inputs / width
    if settings.dora:
        found += 2.5 * rates.inputs * trained.outputs / width
    return found

"""A repair finds the strengths that are best where these are known, and offers only what measures better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.loras.making import layer, put_lora
from workbench import jobs
from workbench.errors import ConfigError
from workbench.loras import repair as repairing
from workbench.loras import tasks
from workbench.loras.repair import AS_IT_IS, Group, Measured, drift_of_single, repair, solve_and_check, solved, verdict
from workbench.loras.settings import RepairSettings
from workbench.sampler.block_scales import BlockScales
from workbench.workspace import Workspace

GROUPS = [Group(number, number) for number in range(4)]


class Additive:
    """A model of four blocks that add up. own, others: what each block adds to a prediction, by kind of prompt."""

    def __init__(self, own: torch.Tensor, others: torch.Tensor) -> None:
        self.sides = own, others

    def inputs(self, prompts: Any, with_lora: bool, seed: int) -> list[list[tuple[int, int]]]:
        return [[(0 if with_lora else 1, 10 * seed + number) for number in range(len(prompts))]]

    def predict(
        self, inputs: list[list[tuple[int, int]]], blocks: BlockScales = AS_IT_IS, scale: float = 1.0
    ) -> list[list[torch.Tensor]]:
        factors = scale * torch.tensor([blocks.factor(number) for number in range(4)])
        found = []
        for side, seed in inputs[0]:
            base = torch.randn(12, generator=torch.Generator().manual_seed(seed)) + 3
            found.append(base + factors @ self.sides[side])
        return [found]


def blocks_of(*values: float) -> torch.Tensor:
    """Four blocks, each of which adds a direction of its own."""
    found = torch.zeros(4, 12)
    for number, value in enumerate(values):
        found[number, number] = value
    return found


def test_the_best_strengths_of_orthogonal_blocks_are_found() -> None:
    """Minimize the sum of g s^2 with the sum of a s = 1: s is proportional to a / g."""
    gram = [[float(g) if i == j else 0.0 for j in range(3)] for i, g in enumerate((1, 4, 2))]
    found = solved(gram, [0.5, 0.3, 0.2], 1.0, strongest=10)
    price = 1 / (0.25 / 1 + 0.09 / 4 + 0.04 / 2)
    assert found == pytest.approx([price * 0.5 / 1, price * 0.3 / 4, price * 0.2 / 2], rel=1e-4)


def test_the_best_strengths_stay_within_their_bounds() -> None:
    found = solved([[1.0, 0.9], [0.9, 1.0]], [0.9, 0.1], 0.98, strongest=1.5)
    assert found == pytest.approx([0.98 / 0.9, 0.0], abs=1e-4), "the second block costs more than it brings"
    found = solved([[1.0, 0.0], [0.0, 100.0]], [0.5, 0.5], 1.0, strongest=1.5)
    assert found == pytest.approx([1.5, 0.5], abs=1e-4)


def test_a_block_that_only_does_harm_is_switched_off_and_the_gain_measured() -> None:
    probe = Additive(blocks_of(1, 1, 1, 0), blocks_of(0.2, 0.2, 0.2, 2))
    found = solve_and_check(probe, GROUPS, list("abcdefgh"), list("ijklmnop"), 0.02)
    assert [row["strength"] for row in found["rows"]] == pytest.approx([0.98, 0.98, 0.98, 0.0], abs=0.011)
    assert found["helps"], found["sentence"]
    assert found["after"]["effect"] == pytest.approx(0.98, abs=0.01)
    assert found["after"]["drift"] < 0.25 * found["singles"][0]["drift"]
    assert found["rows"][3]["effect"] == [0.0]
    assert found["rows"][3]["drift"][0] == pytest.approx(10 * found["rows"][0]["drift"][0], rel=1e-3)


def test_nothing_is_offered_where_one_strength_is_as_good() -> None:
    probe = Additive(blocks_of(1, 1, 1, 1), blocks_of(1, 1, 1, 1))
    found = solve_and_check(probe, GROUPS, list("abcdefgh"), list("ijklmnop"), 0.02)
    assert not found["helps"]
    assert "no better than one strength" in found["sentence"]
    assert not verdict(Measured(1, 0.90, 0.01), [Measured(1, 1, 0.1), Measured(0.5, 0.5, 0.05)], 0.02, True)[0], (
        "effect"
    )
    assert "nothing to repair" in verdict(Measured(1, 1, 0), [Measured(1, 1, 0)], 0.02, True)[1]


def test_a_single_strength_is_read_between_those_that_were_measured() -> None:
    singles = [Measured(1, 1, 0.2), Measured(0.9, 0.95, 0.18), Measured(0.5, 0.6, 0.1)]
    assert drift_of_single(singles, 0.975) == pytest.approx(0.19)
    assert drift_of_single(singles, 0.3) == pytest.approx(0.05)


def test_a_repair_runs_as_a_job_and_says_how_to_keep_it(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path / "work")
    tensors = layer("transformer_blocks.0.attn1.to_q", 2, 128, 128) | layer(
        "transformer_blocks.3.attn1.to_v", 2, 128, 128
    )
    put_lora(workspace, "ring", tensors, alpha=0.5)
    settings = RepairSettings(lora="loras/ring", prompts=("a ring",), others=("a blue circle",), device="cpu")
    folder = tasks.start(workspace, settings)
    assert jobs.wait(folder).state is jobs.State.FINISHED, jobs.log_tail(folder)
    found = tasks.read_task(folder)
    assert found.repair is not None
    assert [row.title for row in found.repair.rows] == ["block 0", "block 3"]
    assert found.repair.levels == repairing.LEVELS
    assert found.repair.singles[0].effect == pytest.approx(1, abs=1e-4)
    assert found.repair.singles[-1].drift < found.repair.singles[0].drift
    assert found.repair.lora == f"loras/ring=1{found.repair.strengths}"
    lines = list(found.outcome())
    assert lines[0] == found.repair.sentence
    assert any(line.startswith("block 3") for line in lines)
    assert not list((workspace.root / "loras").glob("*/lora.safetensors"))[1:], "it writes no LoRA"
    assert json.loads((folder / jobs.RESULT).read_text())["repair"]["rows"]


def test_what_cannot_be_measured_is_refused_in_a_sentence(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path / "work")
    put_lora(workspace, "ring", layer("transformer_blocks.0.attn1.to_q", 2, 128, 128))

    def refused(**given: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            repair(workspace, RepairSettings(**{"lora": "loras/ring", **given}), lambda _: None, lambda *_: None)
        return str(caught.value)

    assert "neither a run nor a trigger: give prompts" in refused()
    assert "factors of blocks ([0:0.5])" in refused(lora="loras/ring=1[0:0.5]")
    assert "give prompts it should leave alone" in refused(prompts=("a ring",), others=("a ring",))
    assert "from a prompt alone" in refused(model="tiny-cogvideox-i2v")

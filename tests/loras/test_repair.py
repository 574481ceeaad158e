"""A repair maps blocks, lessens what a LoRA does to other prompts, and is saved only if it measures better."""

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
from workbench.loras.repair import Group, Measured, Probe, drift_of, drift_of_single, effect_of, mapped, repair, verdict
from workbench.loras.settings import RepairSettings
from workbench.operations.loras import show
from workbench.workspace import Workspace

GROUPS = [Group(number, number) for number in range(4)]
OWN = ("a ring moves left", "a red ring moves up", "a blue ring moves down", "a ring on a red background")
OTHERS = ("a circle moves left", "a red square moves up", "a blue circle moves down", "a square on a red background")


class Additive:
    """A model of four blocks that add up. sides: what each block adds to a prediction for own and for other prompts."""

    def __init__(self, *sides: torch.Tensor) -> None:
        self.sides = sides

    def inputs(self, prompt: str, latents: int, level: float, seed: int) -> tuple[int, int]:
        return latents, seed

    def predict(self, inputs: list[list[tuple[int, int]]], groups: Any) -> list[list[torch.Tensor]]:
        factors = torch.tensor([float(group in list(groups)) for group in GROUPS])
        noise = [[torch.Generator().manual_seed(seed % 2**31) for _, seed in level] for level in inputs]
        return [
            [
                torch.randn(12, generator=generator) + 3 + factors @ self.sides[side]
                for (side, _), generator in zip(level, generators, strict=True)
            ]
            for level, generators in zip(inputs, noise, strict=True)
        ]


def test_the_map_names_the_block_that_only_does_harm() -> None:
    own, others = (
        torch.diag(torch.tensor(values)) @ torch.eye(4, 12) for values in ([1.0, 1, 1, 0], [0.2, 0.2, 0.2, 2])
    )
    rows, scales = mapped(Additive(own, others), GROUPS, [OWN, OTHERS], [[0] * 4, [1] * 4])
    assert [row["title"] for row in rows] == [f"block {number}" for number in range(4)]
    assert rows[0]["effect"] == pytest.approx([1 / 3] * 3, abs=1e-3)
    assert rows[3]["effect"] == pytest.approx([0] * 3, abs=1e-3)
    assert rows[3]["drift"] == pytest.approx([10 * drift for drift in rows[0]["drift"]], rel=0.01)
    assert scales == pytest.approx([3 / 12, (3 * 0.04 + 4) / 12], rel=1e-3)


def test_effect_and_drift_are_measured_on_samples() -> None:
    base, before = [torch.zeros(4), torch.ones(4)], [torch.ones(4), torch.ones(4) * 3]
    assert effect_of(base, before, before) == pytest.approx(1)
    assert effect_of(base, before, [0.5 * (one + other) for one, other in zip(base, before, strict=True)]) == 0.5
    assert drift_of([torch.ones(4)], [torch.ones(4) * 1.5]) == pytest.approx(0.5)


def test_only_what_beats_every_single_strength_is_saved() -> None:
    singles = [Measured(1, 1, 0.2), Measured(0.9, 0.95, 0.18), Measured(0.5, 0.6, 0.1)]
    assert drift_of_single(singles, 0.975) == pytest.approx(0.19)
    assert drift_of_single(singles, 0.3) == pytest.approx(0.05)
    helps, sentence = verdict(Measured(1, 0.98, 0.08), singles)
    assert helps
    assert "98% of its effect and 60% less drift; one strength with that effect has 4% less" in sentence
    assert not verdict(Measured(1, 0.95, 0.175), singles)[0], "hardly better than strength 0.9"
    assert not verdict(Measured(1, 0.7, 0.01), singles)[0], "the effect is gone"
    assert "nothing to repair" in verdict(Measured(1, 1, 0), [Measured(1, 1, 0)])[1]


def random_lora(workspace: Workspace, name: str = "ring") -> None:
    tensors = layer("transformer_blocks.0.attn1.to_q", 2, 128, 128)
    tensors |= layer("transformer_blocks.3.ff.net.0.proj", 2, 128, 512) | layer("patch_embed.text_proj", 2, 64, 128)
    put_lora(workspace, name, tensors, alpha=0.05)


def test_learning_lessens_what_other_prompts_change_and_the_file_is_what_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "SAMPLING_STEPS", 2)
    workspace = Workspace.open(tmp_path)
    random_lora(workspace)
    (one,) = repairing.opened(workspace, ["loras/ring=0.8"], lambda _: None)
    probe = Probe(workspace, one, "tiny-cogvideox", RepairSettings(device="cpu"), lambda _: None, lambda _: None)
    prompts = [OWN[:2], OTHERS[:2]]
    latents = [probe.samples(some, "learn", float(side == 0)) for side, some in enumerate(prompts)]
    base, before = (probe.samples(OTHERS, "check", scale) for scale in (0.0, 1.0))
    scales = mapped(probe, repairing.groups_of(one), prompts, latents)[1]
    probe.learn(prompts, latents, scales, RepairSettings(steps=25, weight=10.0))
    after = probe.samples(OTHERS, "check", 1.0)
    assert drift_of(base, after) < 0.7 * drift_of(base, before)

    lora = probe.weights()
    assert lora.rank == 2
    assert lora.layers == one.weights.layers
    made = repairing.add_to_library(
        workspace,
        one.family,
        lora,
        repairing.provenance_of(
            one, RepairSettings(), {"after": {"effect": 1, "drift": 0.1}, "singles": [{"drift": 0.2}]}
        ),
    )
    assert made.name == "loras/ring-repaired"
    (saved,) = repairing.opened(workspace, [made.name], lambda _: None)
    again = Probe(workspace, saved, "tiny-cogvideox", RepairSettings(device="cpu"), lambda _: None, lambda _: None)
    for one_sample, other in zip(again.samples(OWN, "check", 1.0), probe.samples(OWN, "check", 1.0), strict=True):
        assert torch.allclose(one_sample, other, atol=1e-3)
    probe.original(True)
    assert all(
        torch.equal(one_sample, other)
        for one_sample, other in zip(before, probe.samples(OTHERS, "check", 1.0), strict=True)
    )


def test_a_repair_runs_as_a_job_and_saves_nothing_that_is_no_better(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path / "work")
    random_lora(workspace)
    settings = RepairSettings(lora="loras/ring", prompts=OWN, others=OTHERS, device="cpu", steps=1)
    folder = tasks.start(workspace, settings)
    assert jobs.wait(folder).state is jobs.State.FINISHED, jobs.log_tail(folder)
    found = tasks.read_task(folder)
    assert found.repair is not None
    assert [row.title for row in found.repair.rows] == ["block 0", "block 3", "other layers"]
    assert found.repair.levels == repairing.LEVELS
    assert found.repair.singles[0].effect == pytest.approx(1, abs=1e-4)
    assert found.repair.singles[-1].drift < found.repair.singles[0].drift
    assert (found.repair.prompts, found.repair.others) == (OWN[:1], OTHERS[:1])
    assert (found.made, found.repair.helps) == ("", False)
    lines = list(found.outcome())
    assert lines[0] == found.repair.sentence
    assert any(line.startswith("block 3") for line in lines)
    assert [path.parent.name for path in (workspace.root / "loras").glob("*/lora.safetensors")] == ["ring"]
    assert json.loads((folder / jobs.RESULT).read_text())["repair"]["rows"]


def test_what_a_repair_measured_stays_with_its_lora(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"SAMPLING_STEPS": 1, "KEPT": -100.0, "LESS": 100.0}.items():  # saved, whatever it measures
        monkeypatch.setattr(repairing, name, value)
    workspace = Workspace.open(tmp_path)
    random_lora(workspace)
    settings = RepairSettings(lora="loras/ring", name="better", prompts=OWN, others=OTHERS, device="cpu", steps=1)
    made = repair(workspace, settings, lambda _: None, lambda *_: None)
    assert made.name == "loras/better"
    shown = show(workspace, made.name)
    assert shown.repair is not None
    assert (shown.repair.lora, shown.repair.source) == (made.name, "loras/ring=1")
    assert shown.repair.sentence == made.message
    assert shown.verdict is not None
    assert shown.verdict.claim.startswith("Repaired: ")
    assert shown.made_of[0].name == "loras/ring"
    assert show(workspace, "loras/ring").repair is None
    assert "repair" not in json.loads((workspace.root / "loras" / "ring" / "lora.json").read_text())


def test_what_cannot_be_repaired_is_refused_in_a_sentence(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path / "work")
    random_lora(workspace)

    def refused(**given: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            repair(workspace, RepairSettings(**{"lora": "loras/ring", **given}), lambda _: None, lambda *_: None)
        return str(caught.value)

    assert "prompts has 0 prompts, at least 4 are needed: give more prompts that show what it learned" in refused()
    assert "merge it into a plain LoRA first" in refused(lora="loras/ring=1[0:0.5]")
    assert "give more prompts to leave alone" in refused(prompts=OWN, others=OWN)
    assert "from a prompt alone" in refused(model="tiny-cogvideox-i2v")

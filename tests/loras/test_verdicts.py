"""What is said of how good a LoRA is, and how an operation on LoRAs is stopped."""

from __future__ import annotations

from typing import Any

import pytest

from tests.loras.making import layer, put_lora, write_lora
from tests.patience import PATIENCE
from tests.written_run import write_run
from workbench import jobs
from workbench.errors import ConfigError
from workbench.loras import library, view
from workbench.loras.settings import MergeSettings, ResizeSettings
from workbench.operations import loras
from workbench.runs.analysis.diagnosis import CLAIMS, RULES
from workbench.workspace import Workspace

LAYER = layer("transformer_blocks.0.attn1.to_q", 4, 8, 8)


def claim(workspace: Workspace, name: str) -> tuple[str, str] | None:
    found = view.verdict(library.find(workspace, name))
    return None if found is None else (found.tone, found.claim)


def test_every_diagnosis_has_its_claim() -> None:
    assert {rule.kind for rule in RULES} | {"too short"} == set(CLAIMS)


def test_an_export_has_the_verdict_of_its_run(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    write_lora(run.folder / "lora.safetensors", LAYER, 8.0, step="200")
    found = loras.show(workspace, "runs/cats")
    assert found.verdict is not None
    assert (found.verdict.tone, found.verdict.claim) == ("idle", "Still learning at its end")
    assert found.verdict.evidence.startswith("Held-out loss 0.8000 → 0.60")
    assert found.metadata["step"] == "200"


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ({}, None),
        ({"match": {"matched": 20, "layers": 24}}, ("warn", "4 of 24 layers left out")),
        ({"match": {"matched": 24, "layers": 24}}, ("good", "All 24 layers fit its model")),
        ({"match": {"matched": 24, "layers": 24, "nothing": "all its B are zero"}}, ("bad", "Changes nothing")),
        ({"error": 0.25}, ("idle", "25% of the change lost")),
        ({"error": 0.0}, None),
    ],
)
def test_another_has_what_its_import_or_its_making_says(
    workspace: Workspace, notes: dict[str, Any], said: tuple[str, str] | None
) -> None:
    put_lora(workspace, "ring", LAYER, 8.0, **notes)
    assert claim(workspace, "loras/ring") == said


def test_a_damaged_file_says_so(workspace: Workspace) -> None:
    put_lora(workspace, "ring", LAYER, 8.0).write_bytes(b"<html>")
    assert claim(workspace, "loras/ring") == ("bad", "Damaged")
    assert loras.show(workspace, "loras/ring").metadata == {}


def test_an_operation_is_stopped(workspace: Workspace) -> None:
    put_lora(workspace, "ring", LAYER, 8.0)
    started = loras.merge(workspace, MergeSettings(loras=("loras/ring=2",), name="twice"))
    assert loras.stop(workspace, started.id).id == started.id
    ended = jobs.wait(loras.folder(workspace) / ".jobs" / started.id, PATIENCE)
    assert ended.state is jobs.State.STOPPED
    assert loras.job(workspace, started.id).tone == "plain"


def test_an_operation_without_what_it_is_done_with_is_refused(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match="lora is empty: choose a LoRA") as refused:
        loras.resize(workspace, ResizeSettings(rank=4))
    assert set(refused.value.problems) == {"lora"}

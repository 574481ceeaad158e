"""A LoRA that a run cannot go on from is refused before anything is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.errors import ConfigError
from workbench.runs.checks import initial_lora
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


def write_lora(path: Path, rank: int) -> None:
    import torch
    from safetensors.torch import save_file

    path.parent.mkdir(parents=True, exist_ok=True)
    name = "transformer.transformer_blocks.0.attn1.to_q.lora_"
    save_file({f"{name}A.weight": torch.zeros(rank, 8), f"{name}B.weight": torch.zeros(8, rank)}, path)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rank": 8}, "has rank 16, rank is 8: set rank to 16"),
        ({"targets": "all-linear"}, "targets is all-linear, base has attention. Set the same"),
        ({"dora": True}, "dora is on, base has off"),
    ],
)
def test_what_does_not_fit_is_refused_at_once(workspace: Workspace, values: dict[str, object], said: str) -> None:
    folder = workspace.run("base")
    write_lora(folder / "lora.safetensors", 16)
    TrainSettings(dataset="cats").save(folder / "config.json")
    fits = TrainSettings(dataset="cats", start_from="base")
    assert initial_lora(workspace, fits) == folder / "lora.safetensors"
    assert initial_lora(workspace, fits.changed(targets=r".*attn1.*")), "it may name the same layers"
    with pytest.raises(ConfigError, match=said) as refused:
        initial_lora(workspace, fits.changed(**values))
    assert list(refused.value.problems) == list(values)


def test_a_file_of_another_rank_is_refused_and_one_of_another_layout_left_to_its_family(
    workspace: Workspace, tmp_path: Path
) -> None:
    write_lora(tmp_path / "mine.safetensors", 4)
    with pytest.raises(ConfigError, match="mine.safetensors has rank 4, rank is 16"):
        initial_lora(workspace, TrainSettings(dataset="cats", start_from=str(tmp_path / "mine.safetensors")))
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"no header")
    assert initial_lora(workspace, TrainSettings(dataset="cats", start_from=str(other))) == other


def test_a_run_that_trains_all_weights_is_named_as_that(workspace: Workspace) -> None:
    TrainSettings(dataset="cats", method="full").save(workspace.run("whole") / "config.json")
    with pytest.raises(ConfigError, match="start_from is 'whole', a run that trains all weights"):
        initial_lora(workspace, TrainSettings(dataset="cats", start_from="whole"))

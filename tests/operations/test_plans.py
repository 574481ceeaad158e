"""A new run before it begins: what its form shows as one types, and what the start makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.stripes import few_clips
from tests.operations.conftest import Call
from workbench.errors import ConfigError
from workbench.workspace import Workspace


@pytest.fixture(autouse=True)
def stripes(workspace: Workspace) -> None:
    few_clips(workspace)


def look(call: Call, more: Any = None, **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = call("plans/look", settings=settings, **(more or {}))
    return found


def test_a_plan_says_whether_it_fits_what_each_choice_costs_and_what_is_wrong(call: Call) -> None:
    found = look(call, dataset="stripes")
    assert found["problems"] == {}
    assert found["fits"]
    assert found["runs"] == 1
    assert found["name"] == "stripes"
    assert found["hints"]["dataset"].endswith("clips, all captioned")
    assert found["hints"]["batch_size"] == "least memory"
    assert sum(one["gb"] for one in found["parts"]) == pytest.approx(found["need_gb"], rel=0.05)
    assert found["shapes"][0] == {"frames": 9, "height": 40, "width": 40}
    assert found["own"]["frames"] == "9"
    assert found["when"] == "Starts at once."
    assert "must be 1 to 1024" in look(call, dataset="stripes", rank=0)["problems"]["rank"]
    assert "choose one of yours" in look(call)["problems"]["dataset"]
    assert look(call, {"gpu_memory": "24 GB"}, dataset="stripes", model="wan2.1-t2v-1.3b")["fits"] is False


def test_several_values_are_a_sweep_whose_runs_stand_in_a_group(call: Call) -> None:
    tried = {"tried": ["rank=8, 16", "steps=100, 200"]}
    assert look(call, tried, dataset="stripes")["runs"] == 4
    assert "rank" in look(call, {"tried": ["rank=8, x"]}, dataset="stripes")["problems"]
    made = call("runs/create", settings={"dataset": "stripes"}, tried=["rank=8, 16"], start=False)
    assert made["created"] == ["stripes-rank-8", "stripes-rank-16"]
    assert {one["group"] for one in call("runs/list")} == {"stripes: rank"}


def test_a_fork_of_a_checkpoint_that_is_not_there_says_which_there_are(call: Call) -> None:
    call("runs/create", settings={"dataset": "stripes"}, name="first", start=False)
    problems = look(call, {"fork": "first@100"}, dataset="stripes")["problems"]
    assert problems == {"": "first has no checkpoint of step 100: choose one of none yet"}
    with pytest.raises(ConfigError, match="fork is one run"):
        call("runs/create", settings={"dataset": "stripes"}, tried=["rank=8, 16"], fork="first@100")


def test_presets_are_saved_without_what_is_of_this_workspace(call: Call) -> None:
    saved = call("plans/save-preset", title="My style", settings={"dataset": "stripes", "rank": 64})
    assert saved["name"] == "my-style"
    assert saved["settings"]["rank"] == 64
    assert "dataset" not in saved["settings"]
    assert [one["name"] for one in call("plans/presets")] == ["my-style"]

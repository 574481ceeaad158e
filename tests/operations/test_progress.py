"""What the page shows about a run before it starts and while it runs, and in lists."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from tests.browser.stripes import few_clips
from tests.operations.conftest import Call
from tests.written_run import add_preview, ended, write_run
from workbench import jobs
from workbench.errors import ExitCode, NotNow
from workbench.jobs import processes
from workbench.operations.registry import REGISTRY
from workbench.runs import metrics
from workbench.runs.listing import SPARK
from workbench.runs.metrics import METRICS, parse_lines
from workbench.workspace import Workspace, write_json


def test_a_list_says_what_differs_within_a_group_else_from_the_defaults(call: Call, workspace: Workspace) -> None:
    for name, rate in (("low", 1e-4), ("high", 1e-3)):
        write_run(workspace, name, 200, learning_rate=rate, rank=32).set_group("rates")
    write_run(workspace, "alone", 300, rank=32)
    found = {one["name"]: one for one in call("runs/list")}
    assert {name: one["differs"] for name, one in found.items()} == dict(low="lr 1e-4", high="lr 1e-3", alone="rank 32")
    assert 2 < len(found["alone"]["spark"]) <= SPARK
    assert [found["alone"][name] for name in ("claim", "tone", "best")] == ["Learning", "good", False]


def test_a_list_read_again_sees_that_a_run_has_failed(call: Call, workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    read = REGISTRY["runs", "list"].reader(workspace, {})
    assert [one.headline for one in read()] == ["finished"]
    ended(run.folder, "failed", int(ExitCode.CANNOT_WRITE), "No space left on device")
    (line,) = read()
    assert (line.headline, line.claim, line.tone) == ("failed", "The disk is full", "bad")


def test_a_list_read_again_reads_only_the_new_lines_of_a_run(workspace: Workspace) -> None:
    run = write_run(workspace, "cats", 400)
    (run.folder / jobs.RESULT).unlink()
    write_json(run.folder / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": time.time() - 60})
    read = REGISTRY["runs", "list"].reader(workspace, {})
    read()
    size = (run.folder / METRICS).stat().st_size
    line = {"step": 401, "time": 0.0, "loss": 0.5, "samples": [[0.5, 0.5]]}
    parsed: list[int] = []
    with (run.folder / METRICS).open("a", encoding="utf-8") as file, pytest.MonkeyPatch.context() as patch:
        file.write(f"{json.dumps(line)}\n")
        file.flush()
        patch.setattr(metrics, "parse_lines", lambda data: (parsed.append(len(data)), *parse_lines(data))[1:])
        assert [one.step for one in read()] == [401]
    assert 0 < sum(parsed) < size / 100


def test_the_verdict_of_a_run_has_one_action_which_is_done_by_its_name(call: Call, workspace: Workspace) -> None:
    run = write_run(workspace, "cats", 200, learning_rate=1e-3)
    said = call("progress/state", name="cats")["verdict"]
    assert said["claim"] == "Learning."
    assert said["tone"] == "good"
    assert said["action"]["kind"] == "fork"
    assert said["action"]["label"].startswith("Continue to step 400")
    ended(run.folder, "failed", int(ExitCode.NON_FINITE_LOSS), "the loss is not finite")
    said = call("runs/show", name="cats")["failure"]["actions"]
    done = call("runs/act", name="cats", kind="new run", label=said[1]["label"])
    assert done["settings"]["learning_rate"] == 5e-4
    with pytest.raises(NotNow, match="no longer offered"):
        call("runs/act", name="cats", kind="pause")


def test_previews_stand_by_prompt_and_step_and_say_what_should_not_change(call: Call, workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    video = run.folder / "any.mp4"
    video.write_bytes(b"a video")
    for step in (0, 100):
        add_preview(run, step, video)
        add_preview(run, step, video, "a dog", "control-0")
    add_preview(run, 200, video)
    found = call("progress/previews", name="cats")
    assert found["steps"] == [0, 100, 200]
    assert found["coming"] == []
    assert [(one["prompt"], one["control"], sum(map(bool, one["videos"]))) for one in found["rows"]] == [
        ("a cat", False, 3),
        ("a dog", True, 2),
    ]


def test_curves_are_ready_to_be_drawn_and_have_few_points(call: Call, workspace: Workspace) -> None:
    write_run(workspace, "long", 3000)
    write_run(workspace, "short", 100)
    titles = [one["title"] for one in call("progress/curves", name="long")["charts"]]
    assert titles == ["Loss", "Held-out loss by noise level", "Change of the output"]
    loss, noise, _ = call("progress/curves", name="long")["charts"]
    assert [one["name"] for one in loss["lines"]] == ["each step", "smoothed", "held-out"]
    assert max(len(one["points"]) for one in loss["lines"]) <= 1000
    assert [one["end"] for one in noise["lines"]] == ["motion", "shapes", "details"]
    more = call("progress/curves", name="long", more=True)["charts"]
    assert sum(one.get("small", False) for one in more) == 5
    both = call("progress/compared", names=["long", "short"])["charts"]
    assert [one["name"] for one in both[0]["lines"]] == ["long", "short"]


# ---- a new run


@pytest.fixture
def stripes(workspace: Workspace) -> None:
    few_clips(workspace)


def look(call: Call, more: Any = None, **settings: Any) -> dict[str, Any]:
    found: dict[str, Any] = call("plans/look", settings=settings, **(more or {}))
    return found


@pytest.mark.usefixtures("stripes")
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
    assert found["when"] == "Starts right away."
    conditions = "License: Tencent Hunyuan Community (grants no rights in the EU, the UK and South Korea)."
    assert not found["notes"], "the demo's own clips"
    notes = look(call, dataset="stripes", model="hunyuanvideo1.5-t2v-480p-cfg-distilled")["notes"]
    assert notes[0] == conditions
    assert "Train on hunyuanvideo1.5-t2v-480p and check the LoRA on both" in notes[1]
    assert "huggingface.co/hunyuanvideo-community/HunyuanVideo-1.5-Diffusers-480p_t2v_distilled, about: tr" in notes[2]
    assert "must be 1 to 1024" in look(call, dataset="stripes", rank=0)["problems"]["rank"]
    assert "choose one of yours" in look(call)["problems"]["dataset"]
    assert look(call, {"gpu_memory": "24 GB"}, dataset="stripes", model="wan2.1-t2v-1.3b")["fits"] is False


def test_help_in_the_captioning_form_names_choices_as_the_form_shows_them(call: Call) -> None:
    found = {one["name"]: one for one in call("settings/show", form="captions")}
    assert found["which"]["labels"] == ["Uncaptioned", "All", "Selected"]
    assert found["which"]["help"].startswith("Uncaptioned: clips without a caption. All: every clip. Selected: ")
    assert found["chosen"]["help"] == 'File names or ids of the clips for "Selected".'
    assert found["captioner"]["help"].startswith("What writes the captions: a model on this machine, or a server ")
    assert found["model"]["help"].startswith("For a vision-language model on this machine: a known model, ")
    assert "vision_language" not in "".join(one["help"] for one in found.values())

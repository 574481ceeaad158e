"""Panels, driven by the messages that a notebook's page sends, and the work they start."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import workbench
from tests.cli.test_cli_runs import save
from tests.loras.making import layer, put_lora
from tests.patience import PATIENCE, until
from tests.written_grid import write_grid
from tests.written_run import add_preview, write_run
from workbench import Dataset, Run, Samples, Workspace
from workbench.clips import media
from workbench.dataset_builder.settings import ExportSettings
from workbench.display import inline_html
from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.notebook import (
    attach,
    clip_cards,
    clone_panel,
    compare_runs,
    fork_panel,
    form,
    sample_panel,
    task_panel,
    train_panel,
)
from workbench.notebook.widget import PART, View
from workbench.paths import ASSETS
from workbench.runs.settings import TrainSettings
from workbench.sampler.samples import new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings

Message = dict[str, Any]

CLIPS = ASSETS / "demo_clips" / "stripes"


class Sent:
    """The messages that a view has sent."""

    def __init__(self, view: View, monkeypatch: pytest.MonkeyPatch) -> None:
        self.view, self.messages = view, list[tuple[Message, list[bytes]]]()
        monkeypatch.setattr(view, "send", lambda message, buffers=(): self.messages.append((message, list(buffers))))

    def ask(self, message: Message, *buffers: bytes) -> Message:
        """Send a message and return its answer."""
        number = len(self.messages) + 1000
        self.view._heard(None, {"view": "a", "number": number, **message}, buffers)
        until(lambda: any(one.get("number") == number and "text" in one for one, _ in self.messages))
        (found,) = [one for one, _ in self.messages if one.get("number") == number and "text" in one]
        answer: Message = json.loads(found["text"])
        return answer

    def pushed(self, key: str) -> list[Any]:
        return [json.loads(one["text"]) for one, _ in self.messages if one.get("key") == key]


@pytest.fixture
def sent(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Sent:
    return Sent(View(workspace, "#/loras"), monkeypatch)


@pytest.fixture
def not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Write runs without starting their processes."""
    monkeypatch.setattr(Run, "start", lambda run: run.status)


def test_public_names_are_sorted_there_and_loaded_only_when_used() -> None:
    assert workbench.__all__ == sorted(workbench.__all__) == ["Dataset", "Run", "Samples", "Workspace"]
    for name in workbench.__all__:
        assert getattr(workbench, name).__name__ == name
        assert name in dir(workbench)
    with pytest.raises(AttributeError, match="Nothing"):
        workbench.Nothing  # noqa: B018
    check = "import sys, workbench; sys.exit(any(m in sys.modules for m in ('pydantic', 'torch', 'gradio', 'numpy')))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


# ---- messages


def test_a_call_is_answered_or_refused_in_a_sentence(workspace: Workspace, sent: Sent) -> None:
    put_lora(workspace, "ring", layer("a", 2, 8, 8))
    assert sent.ask({"call": "loras/show", "values": {"name": "loras/ring"}})["value"]["title"] == "ring"
    refused = sent.ask({"call": "loras/resize", "values": {"lora": "loras/ring", "rank": 0}})
    assert "rank is 0" in refused["problems"]["rank"]
    assert "there is no operation 'loras/shave'" in sent.ask({"call": "loras/shave", "values": {}})["problem"]


def test_what_is_watched_is_pushed_after_each_change(workspace: Workspace, sent: Sent) -> None:
    key = '["loras/list",{}]'
    sent.view._heard(None, {"view": "a", "watch": key}, [])
    until(lambda: sent.pushed(key) == [{"value": []}])
    put_lora(workspace, "ring", layer("a", 2, 8, 8))
    until(lambda: [one["name"] for one in sent.pushed(key)[-1]["value"]] == ["loras/ring"])
    sent.ask({"call": "loras/star", "values": {"name": "loras/ring"}})
    until(lambda: sent.pushed(key)[-1]["value"][0]["marks"] == ["starred"])
    sent.view._heard(None, {"view": "a", "unwatch": key}, [])
    assert not sent.view.watched
    sent.view._heard(None, {"view": "a", "watch": '["loras/star",{}]'}, [])
    assert "changes something" in sent.pushed('["loras/star",{}]')[0]["problem"]


def test_values_are_those_that_every_view_has_typed(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views are heard on another thread, as on a subshell of JupyterLab's, and answer late."""
    panel = train_panel(workspace)
    pool, sent = ThreadPoolExecutor(1), list[Message]()

    def typed(view: str, **values: Any) -> Message:
        return {"view": view, "state": {"drafts": {"train": {"values": {**values}}}}}

    def hear(*messages: Message) -> Future[list[None]]:
        return pool.submit(lambda: [panel._heard(None, one, ()) for one in messages])

    def send(message: Message, buffers: object = ()) -> None:
        sent.append(message)
        if "asked" in message:
            answers = [{"view": view, "asked": message["asked"]} for view in ("a", "b")]
            hear(answers[0], typed("b", steps=77, rank=8), answers[1])

    monkeypatch.setattr(panel, "send", send)
    hear(typed("a", steps=7), {"view": "b", "watch": '["loras/list",{}]'}).result()
    assert {"state": typed("a", steps=7)["state"], "by": "a"} in sent, "the other view is told"
    assert panel.values == {"steps": 77, "rank": 8}
    hear({"view": "a", "gone": True}, {"view": "b", "gone": True}).result()
    sent.clear()
    assert panel.values == {"steps": 77, "rank": 8}
    assert not sent, "nobody is left to ask"


def test_a_file_comes_in_parts_and_once(sent: Sent, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"x" * (PART + 10))
    about = sent.ask({"file": str(path), "version": ""})["value"]
    assert about["type"] == "video/mp4"
    assert sum(len(one) for _, parts in sent.messages for one in parts) == PART + 10
    sent.messages.clear()
    assert sent.ask({"file": str(path), "version": about["version"]})["value"] == about
    assert not any(parts for _, parts in sent.messages)
    assert "No such file" in sent.ask({"file": str(tmp_path / "gone"), "version": ""})["problem"]


def test_an_upload_is_put_together(sent: Sent) -> None:
    first = sent.ask({"upload": "../cat.mp4", "path": ""}, b"one")["value"]
    assert sent.ask({"upload": "../cat.mp4", "path": first}, b"two")["value"] == first
    assert Path(first).name == "cat.mp4"
    assert Path(first).read_bytes() == b"onetwo"


# ---- forms


def test_a_form_holds_what_is_typed(workspace: Workspace) -> None:
    panel = form(TrainSettings, workspace, learning_rate=5e-4, preview_prompts=["a ring"])
    assert panel.settings == TrainSettings(learning_rate=5e-4, preview_prompts=("a ring",))
    # As the page keeps it.
    panel.drafts = {"train": {"values": {**panel.values, "frames": 9}, "beside": {"name": "x"}}}
    assert panel.settings.frames == 9
    panel.set(steps=0)
    with pytest.raises(ConfigError, match="steps is 0"):
        _ = panel.settings
    with pytest.raises(ConfigError, match="did you mean rank"):
        panel.set(rnak=1)
    assert panel.drafts["train"]["beside"] == {"name": "x"}
    assert form(ExportSettings, workspace).settings == ExportSettings()
    with pytest.raises(ConfigError, match="Settings has no form"):
        form(Settings, workspace)


# ---- runs


def test_a_finished_run_is_shown_from_its_files(workspace: Workspace) -> None:
    run = write_run(workspace, "cats")
    panel = attach(workspace)
    assert panel.address == "#/train/cats"
    bundle = panel._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle[0]
    assert bundle[0]["text/html"] == run._repr_html_()
    panel.close()
    assert not panel.watched


def test_attaching_to_nothing_says_so(workspace: Workspace) -> None:
    with pytest.raises(ConfigError, match="this workspace has no runs"):
        attach(workspace)
    with pytest.raises(ConfigError, match="there is no run 'x'"):
        attach(workspace, "x")


@pytest.mark.usefixtures("not_started")
def test_clones_forks_and_sweeps_begin_from_a_form(workspace: Workspace, dataset: Dataset) -> None:
    settings = TrainSettings(dataset=dataset.name, steps=20)
    run = Run.create(workspace, settings, "one")
    save(run, 10, settings)
    with pytest.raises(ConfigError, match="no checkpoint of step 11: choose one of"):
        fork_panel(workspace, "one", 11)
    fork = fork_panel(workspace, "one", 10, learning_rate=1e-5)
    assert fork.address == "#/train/new/from/one/10"
    assert fork.start().parent["changed"] == {"learning_rate": [1e-4, 1e-5]}
    assert fork.address == f"#/train/{fork.run.name}"
    fork.set(rank="1, 2")
    with pytest.raises(ConfigError, match="a fork is a single run"):
        fork.start()
    assert clone_panel(workspace, "one", rank=2).start().settings == settings.changed(rank=2)

    panel = train_panel(workspace, settings)
    panel.set(learning_rate="1e-4, 3e-4", rank=2)
    panel.start()
    assert [each.settings.learning_rate for each in panel.runs] == [1e-4, 3e-4]
    assert panel.settings.rank == 2
    panel.set(learning_rate=1e-4, lr_schedule=["constant", "linear"], dora=[True, False])
    panel.start()
    assert [(each.settings.lr_schedule, each.settings.dora) for each in panel.runs] == [
        ("constant", True),
        ("constant", False),
        ("linear", True),
        ("linear", False),
    ]
    assert panel.live.run.name == panel.runs[0].name


def test_a_run_that_a_click_has_started_is_the_panels(workspace: Workspace) -> None:
    run, panel = write_run(workspace, "cats"), train_panel(workspace)
    panel.address = "#/train/cats/checkpoints"  # as the page sets it
    assert panel.run.folder == run.folder


def test_compared_runs_show_curves_and_a_table(workspace: Workspace) -> None:
    slow, fast = write_run(workspace, "slow"), write_run(workspace, "fast", 100, learning_rate=3e-4)
    shown = html.unescape(compare_runs([slow, fast])._repr_html_())
    data = json.loads(shown.partition('id="wb-data">')[2].partition("</script>")[0])
    assert data["element"] == "wb-run-comparison"
    charts, tables = data["answers"].values()
    assert [len(one["lines"]) for one in charts["charts"]] == [2] * 5
    assert tables["settings"]["Learning rate"] == ["0.0001", "0.0003"]


# ---- samples


def test_a_sample_is_refused_before_anything_is_asked_for(workspace: Workspace) -> None:
    panel = sample_panel(workspace, prompt="a ring", steps=2)
    assert (panel.settings.prompt, panel.address) == ("a ring", "#/sample")
    with pytest.raises(ConfigError, match="name a run to compare its LoRA"):
        panel.generate_with_and_without()
    panel.set(loras=["nobody"])
    with pytest.raises(ConfigError, match="not a LoRA of this workspace"):
        panel.generate()


def test_a_panel_made_after_a_restart_knows_what_is_under_way(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.jobs.control._spawn", lambda *_: None)  # no worker takes it
    panel = sample_panel(workspace, prompt="a ring", device="cpu")
    panel.generate()
    again = sample_panel(workspace)
    assert again.ids == panel.ids
    again.cancel()
    assert panel.wait(PATIENCE) == []


# ---- tasks, as jobs


def test_files_are_imported_and_what_is_no_video_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    dataset = Dataset.create(workspace, "Chosen")
    panel = task_panel(workspace, dataset.name, "import")
    panel.start()
    failed = panel.wait(PATIENCE)
    assert (failed.state, panel.lines) == (State.FAILED, [])
    assert "no videos" in failed.message
    (tmp_path / "<i>bad.mp4").write_bytes(b"no video")
    (tmp_path / "good.mp4").write_bytes(min(CLIPS.glob("*.mp4")).read_bytes())
    panel.set(sources=[str(tmp_path)], longest_side=64)
    panel.start()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert [clip.width for clip in dataset.clips] == [64]
    assert any("1 file refused" in line for line in panel.lines)
    shown = clip_cards(workspace, dataset.name).html()
    assert "1 file was refused" in shown
    assert "<i>" not in shown
    with pytest.raises(ConfigError, match="no panel for the task 'shave'"):
        task_panel(workspace, dataset.name, "shave")  # type: ignore[arg-type]


# ---- what stays in a notebook that is read without a kernel


def test_videos_travel_inside_the_page(tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes(b"video")
    assert 'src="data:video/mp4;base64,dmlkZW8="' in inline_html.video(path, source_width=48)
    assert "pixelated" in inline_html.video(path, source_width=48)
    assert "pixelated" not in inline_html.video(path, source_width=720)
    with path.open("wb") as file:
        file.truncate(inline_html.EMBED_LIMIT + 1)
    assert "too large" in inline_html.video(path)
    path.unlink()
    assert "gone" in inline_html.video(path)


def test_where_no_script_runs_pictures_are_shown(workspace: Workspace) -> None:
    """For example on GitHub, which also removes frames and videos."""
    grid, run = write_grid(workspace), Run.open(workspace, "first")
    pixels = np.zeros((9, 64, 64, 3), np.uint8)
    for cell in grid.state().all:
        record = {"settings": cell.settings.model_dump(mode="json"), "loras": [], "seconds": 2.0}
        write_sample(grid.video(cell.key), pixels, 8, record)
    video = grid.video(grid.state().all[0].key)
    for step in (0, 200):
        add_preview(run, step, video, "a cat")
    sample = video_path(workspace, new_id())
    write_sample(sample, pixels, 8, {"settings": SampleSettings(prompt="a cat").model_dump(mode="json"), "loras": []})
    shown = {"run": run, "grid": grid, "samples": Samples(workspace)}
    static = {
        name: re.sub(r"<(iframe|script).*?</\1>|</?video[^>]*>", "", one._repr_html_()) for name, one in shown.items()
    }
    assert {name: text.count('<img src="data:image/jpeg') for name, text in static.items()} == {
        "run": 2,
        "grid": 6,
        "samples": 1,
    }
    assert '<img src="data:image/svg+xml' in static["run"]
    for words in ("first: finished", "a cat", "base model", "step 200"):
        assert words in static["run"]
    assert media.stills(workspace.root / "gone.mp4") == b""

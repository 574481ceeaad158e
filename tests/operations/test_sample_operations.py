"""Operations behind the Sample page: plans, pages of the history, filling a form, the queue."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.loras.making import layer, put_lora
from tests.operations.conftest import Call
from workbench.errors import ConfigError
from workbench.operations.registry import REGISTRY
from workbench.sampler import queue
from workbench.sampler.samples import Samples, new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, write_json


def put(workspace: Workspace, prompt: str, seed: int = 0) -> str:
    made = new_id()
    settings = SampleSettings(prompt=prompt, seed=seed)
    record = {"settings": settings.model_dump(mode="json"), "seed": seed, "fps": 8.0, "frames": 9, "width": 64}
    write_sample(video_path(workspace, made), np.zeros((9, 48, 64, 3), np.uint8), 8, record)
    return made


def test_a_plan_says_what_is_wrong_and_what_the_model_brings(call: Call, workspace: Workspace) -> None:
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8), trigger="ohwx")
    values = {"prompt": "a cat\n\nan ohwx dog", "loras": ["loras/cat"], "each_line": True, "videos": 3}
    found = call("samples/plan", values=values)
    assert (found["videos"], found["problems"], found["lacking"]) == (6, {}, ["ohwx"])
    assert found["with_words"] == "ohwx a cat\nan ohwx dog"
    assert (found["own"]["frames"], found["sizes"]) == (found["lengths"][1], [[40, 40]])
    wrong = call("samples/plan", values={"steps": 0, "videos": 0, "guidance_scale": "much"})
    assert {"steps", "guidance_scale"} <= set(wrong["problems"])
    assert (wrong["videos"], wrong["own"]) == (None, found["own"])
    picture = call("samples/plan", values={"model": "tiny-cogvideox-i2v"})
    assert "image" in picture["problems"]
    assert "image" not in picture["without_effect"]


def test_the_history_comes_in_pages_and_is_read_again_as_it_changes(call: Call, workspace: Workspace) -> None:
    ids = [put(workspace, f"a cat {number}") for number in range(5)]
    found = call("samples/page", size=2, page=9)
    assert [one["id"] for one in found["samples"]] == [ids[0]]
    assert (found["page"], found["matching"], found["all"]) == (2, 5, 5)
    read = REGISTRY["samples", "page"].reader(workspace, {"search": "cat 3"})
    assert [one.id for one in read().samples] == [ids[3]]
    Samples(workspace).remove(ids[3])
    assert read().matching == 0
    assert call("samples/page", show="removed")["samples"][0]["id"] == ids[3]


def test_what_a_form_takes_over_from_a_sample_and_from_its_file(call: Call, workspace: Workspace) -> None:
    made = put(workspace, "a cat", 7)
    assert call("samples/reuse", id=made, what="seed")["values"] == {"seed": 7}
    assert call("samples/reuse", id=made, what="continue")["values"]["continue_from"].endswith(f"{made}.mp4")
    video = video_path(workspace, made)
    assert call("samples/read-file", file=str(video))["values"]["prompt"] == "a cat"
    assert call("samples/made", id=made)["actions"][0] == ["settings", "Use these settings"]
    kept = Path(call("samples/keep-file", file=str(video), name="video")["file"])
    assert kept.parent == workspace.samples / "inputs"
    with pytest.raises(ConfigError, match="cannot be read as a picture"):
        call("samples/keep-file", file=str(video), name="image")


def test_a_lora_is_used_by_its_name_in_the_library_or_kept(call: Call, workspace: Workspace, tmp_path: Path) -> None:
    put_lora(workspace, "cat", layer("blocks.0.to_q", 4, 8, 8))
    copy = tmp_path / "downloaded.safetensors"
    copy.write_bytes((workspace.root / "loras" / "cat" / "lora.safetensors").read_bytes())
    assert call("samples/read-file", file=str(copy))["values"]["loras"] == ["loras/cat"]
    put_lora(workspace, "dog", layer("blocks.1.to_q", 4, 8, 8))
    other = (workspace.root / "loras" / "dog" / "lora.safetensors").rename(tmp_path / "dog.safetensors")
    (kept,) = call("samples/read-file", file=str(other))["values"]["loras"]
    assert Path(kept).read_bytes() == other.read_bytes()


def test_the_queue_shows_a_failure_that_is_asked_for(call: Call, workspace: Workspace) -> None:
    failed = new_id()
    record = {"settings": SampleSettings(prompt="a cat").model_dump(mode="json"), "message": "No.", "exit_code": 2}
    write_json(queue.worker_folder(workspace) / "failed" / f"{failed}.json", record)
    assert call("samples/queue")["failed"] == []
    (shown,) = call("samples/queue", ids=[failed, new_id()])["failed"]
    assert (shown["title"], shown["message"], shown["can_retry"]) == ("a cat", "No.", True)

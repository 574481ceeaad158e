"""Requests through files and a real worker: progress, cancelling, bad requests, deaths, a busy GPU."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.patience import PATIENCE, until
from tests.sampler.conftest import WriteLora
from workbench import jobs
from workbench.errors import ConfigError, DeviceBusy, ExitCode
from workbench.jobs import gpu_lock
from workbench.jobs.devices import Device
from workbench.jobs.queue import ACTIVE, PROGRESS, REQUESTS
from workbench.sampler import queue
from workbench.sampler.queue import RequestState, cancel, pending, progress, stop_worker, submit, wait
from workbench.sampler.samples import Samples, new_id, settings_of
from workbench.sampler.settings import BatchSettings, SampleSettings, expand, joined_settings
from workbench.sampler.view import actions, scenes_of, title
from workbench.workspace import Workspace, write_json

pytestmark = pytest.mark.long

CLIENT = """
import sys
from workbench.sampler.queue import submit
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, write_json
settings = SampleSettings(model=sys.argv[2], device="cpu", steps=2, seed=int(sys.argv[3]))
print(submit(Workspace.open(sys.argv[1]), settings))
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A workspace whose worker is ended after the last test."""
    workspace = Workspace.open(tmp_path_factory.mktemp("served"))
    yield workspace
    jobs.kill(queue.worker_folder(workspace))


@pytest.fixture
def ask(toy_folder: Path) -> Callable[..., SampleSettings]:
    return lambda **values: SampleSettings(model=str(toy_folder), seed=0, device="cpu").changed(
        **{"steps": 2, **values}
    )


def worker(workspace: Workspace) -> jobs.Status:
    return jobs.status(queue.worker_folder(workspace))


def long_one(workspace: Workspace, settings: SampleSettings) -> str:
    """An active request that takes long."""
    sample_id = submit(workspace, settings.changed(steps=1000))
    until(lambda: progress(workspace, sample_id).step > 2)
    assert progress(workspace, sample_id).state is RequestState.GENERATING
    return sample_id


def test_two_clients_at_once_start_one_worker_that_outlives_them(served: Workspace, toy_folder: Path) -> None:
    command = [sys.executable, "-c", CLIENT, str(served.root), str(toy_folder)]
    clients = [subprocess.Popen([*command, str(seed)], stdout=subprocess.PIPE, text=True) for seed in (1, 2)]
    ids = [client.communicate(timeout=PATIENCE)[0].strip() for client in clients]
    folder = str(queue.worker_folder(served))
    workers = [process for process in psutil.process_iter(["cmdline"]) if folder in (process.info["cmdline"] or [])]
    assert [process.pid for process in workers] == [worker(served).pid]
    assert set(pending(served)) <= set(ids)
    for sample_id in ids:
        done = wait(served, sample_id, PATIENCE)
        assert done.state is RequestState.DONE, done.message
        assert done.video is not None
        assert settings_of(done.video, served) == done.settings
    found = [sample.id for sample in Samples(served).history() if sample.id in ids]
    assert found == sorted(ids, reverse=True)
    until(lambda: pending(served) == [])  # the worker takes a request away once its video is there


def test_the_model_stays_loaded_whatever_the_lora(
    served: Workspace, ask: Callable[..., SampleSettings], write_lora: WriteLora, tmp_path: Path
) -> None:
    lora = write_lora(tmp_path / "x.safetensors", 1)
    videos = []
    wait(served, submit(served, ask()), PATIENCE)
    pid = worker(served).pid
    for loras in ([], [f"{lora}=0.5"], []):
        sample_id = submit(served, ask(loras=loras))
        while not (done := progress(served, sample_id)).state.over:
            assert done.message != "Loading the model."
            time.sleep(0.01)
        assert done.state is RequestState.DONE, done.message
        assert done.video is not None
        videos.append(read(done.video))
    assert worker(served).pid == pid
    assert np.array_equal(videos[0], videos[2])
    assert not np.array_equal(videos[0], videos[1])


def read(video: Path) -> np.ndarray:
    from workbench.clips import media

    return np.stack([frame for _, frame in media.decode(video)])


def test_cancelling_takes_effect_within_a_step(served: Workspace, ask: Callable[..., SampleSettings]) -> None:
    active = long_one(served, ask())
    next_one = submit(served, ask())
    assert progress(served, next_one).state is RequestState.WAITING
    assert progress(served, next_one).message == "1 before this one."
    now = progress(served, active)
    assert 0 < now.step < now.total == 1000
    assert now.seconds_left is not None
    cancel(served, next_one)
    assert progress(served, next_one).state is RequestState.CANCELLED
    cancel(served, active)
    assert wait(served, active, PATIENCE, poll=0.01).state is RequestState.CANCELLED
    assert progress(served, active).exit_code == ExitCode.STOPPED
    assert wait(served, submit(served, ask()), PATIENCE).state is RequestState.DONE


def test_one_bad_request_does_not_end_the_worker(
    served: Workspace, ask: Callable[..., SampleSettings], write_lora: WriteLora, tmp_path: Path
) -> None:
    from safetensors.numpy import load_file, save_file

    lora = write_lora(tmp_path / "x.safetensors", 1)
    save_file({name: np.full_like(tensor, np.inf) for name, tensor in load_file(lora).items()}, lora)
    assert wait(served, submit(served, ask()), PATIENCE).state is RequestState.DONE
    pid = worker(served).pid
    failed = wait(served, submit(served, ask(loras=[str(lora)])), PATIENCE)
    assert (failed.state, failed.exit_code) == (RequestState.FAILED, ExitCode.BAD_CONFIG)
    assert "x.safetensors holds NaN or infinite numbers" in failed.message
    garbage = new_id()
    (queue.worker_folder(served) / "requests" / f"{garbage}.json").write_text('{"settings": {"steps": "many"}}')
    until(lambda: not queue.requests_of(served).waiting)
    unread = progress(served, garbage)
    assert (unread.state, unread.settings) == (RequestState.FAILED, None)
    assert unread.message == "The request's file cannot be read: submit it again."
    assert wait(served, submit(served, ask()), PATIENCE).state is RequestState.DONE
    assert worker(served).pid == pid


def test_a_killed_worker_loses_only_its_active_request(served: Workspace, ask: Callable[..., SampleSettings]) -> None:
    active = long_one(served, ask())
    elsewhere, waiting = submit(served, ask(seed=4), into="grids/one/a", bulk=True), submit(served, ask(seed=3))
    pid = worker(served).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    until(lambda: not worker(served).state.alive)
    assert progress(served, active).state is RequestState.FAILED
    assert "worker ended before this video was done" in progress(served, active).message
    assert pending(served) == [elsewhere, waiting]
    queue.revive(served)
    done, first = wait(served, elsewhere, PATIENCE), wait(served, waiting, PATIENCE)
    assert done.video == served.root / "grids/one/a.mp4"
    assert first.video is not None
    assert first.video.stat().st_mtime_ns < done.video.stat().st_mtime_ns, "one of many goes last"
    assert done.settings == ask(seed=4)
    # It stays failed: nobody is surprised by a video that was given up.
    assert progress(served, active).state is RequestState.FAILED
    assert elsewhere not in [sample.id for sample in Samples(served).history()]


def test_lines_may_be_scenes_each_from_the_last_frames_of_the_one_before(
    served: Workspace, ask: Callable[..., SampleSettings]
) -> None:
    batch = BatchSettings(scenes=True, videos=2)
    many = expand(ask(prompt="a red circle\na blue square"), batch)
    ids = queue.submit_all(served, many, chains=batch.chains)
    every = [wait(served, one, PATIENCE) for one in ids]
    assert [one.state for one in every] == [RequestState.DONE] * 6, [one.message for one in every]
    done = every[:4]
    videos = [str(one.video) for one in done]
    assert [(one.settings.prompt, one.settings.seed, one.settings.continue_from) for one in done if one.settings] == [
        ("a red circle", 0, ""),
        ("a red circle", 1, ""),
        ("a blue square", 0, videos[0]),
        ("a blue square", 1, videos[1]),
    ]
    # Behind them each story as one video, without the frames that its second scene took over.
    assert [one.scenes for one in every] == [(), (), (), (), (ids[0], ids[2]), (ids[1], ids[3])]
    joined = Samples(served).get(ids[5])
    assert (joined.settings.prompt, joined.settings.seed) == ("a red circle\na blue square", 1)
    first, second = (Samples(served).get(ids[number]).record for number in (1, 3))
    assert 0 < second["kept_frames"] < second["frames"]
    assert joined.record["frames"] == first["frames"] + second["frames"] - second["kept_frames"]
    assert [one["prompt"] for one in joined.record["scenes"]] == scenes_of(joined) == ["a red circle", "a blue square"]
    assert title(joined.settings) == "a red circle / a blue square"
    assert not {"change", "grid"} & {name for name, _ in actions(joined)}
    assert settings_of(joined.path, served) == joined.settings


def test_scenes_may_have_their_own_lengths_and_the_story_keeps_them(
    served: Workspace, ask: Callable[..., SampleSettings]
) -> None:
    batch = BatchSettings(scenes=True)
    lines = "a red circle@@17\na blue square\na green circle @@ 25"
    many = expand(ask(prompt=lines, frames=None), batch)
    assert [(one.prompt, one.frames) for one in many] == [
        ("a red circle", 17),
        ("a blue square", None),
        ("a green circle", 25),
    ]
    with pytest.raises(ConfigError, match="frames is 99999999, must be 1 to 1000 frames"):
        expand(ask(prompt="a red circle@@99999999"), batch)
    assert expand(ask(prompt=f"a red circle@@{'9' * 5000}"), batch)[0].image == "9" * 5000, "a file of that name"
    whole = joined_settings(many)
    assert expand(whole, batch) == many
    assert expand(ask(prompt="a picture@@keep 5.png"), batch)[0].image == "keep 5.png"
    own = expand(ask(prompt="a red circle@@17\na blue square@@17 keep 9\na green circle@@keep 1", frames=None), batch)
    assert [(one.frames, one.kept_frames) for one in own] == [(17, None), (17, 9), (None, 1)]
    assert expand(joined_settings(own), batch) == own
    pictured = expand(
        ask(
            prompt="a red circle@@17 keep 9 last=a door.png\na blue square@@key=hall.png=8 key=roof.png=12\na cat",
            continue_to="next.mp4",
            last_image="end.png",
        ),
        batch,
    )
    assert [(one.last_image, one.keyframes, one.continue_to) for one in pictured] == [
        ("a door.png", (), ""),
        ("", ("hall.png=8", "roof.png=12"), ""),
        ("end.png", (), "next.mp4"),
    ]
    assert (pictured[0].frames, pictured[0].kept_frames, pictured[0].prompt) == (17, 9, "a red circle")
    assert expand(joined_settings(pictured), batch) == pictured
    lines = BatchSettings(each_line=True)
    (ends,) = expand(ask(prompt="a ship@@ship.png last=port.png"), lines)
    assert (ends.image, ends.last_image) == ("ship.png", "port.png")
    with pytest.raises(ConfigError, match="kept_frames is 17, must be 1 or .* fewer than the video's 17"):
        queue.submit_all(served, expand(ask(prompt="a red circle\na blue square@@17 keep 17"), batch), chains=1)
    with pytest.raises(ConfigError, match="frames is 1, a picture, which cannot continue a video"):
        queue.submit_all(served, expand(ask(prompt="a red circle\na blue square@@1"), batch), chains=1)
    assert joined_settings([one.changed(frames=9) for one in many]).frames == 9
    *ids, story = queue.submit_all(served, many[:1] + many[2:], chains=1)
    assert wait(served, story, PATIENCE).state is RequestState.DONE
    first, second = (Samples(served).get(one).record for one in ids)
    assert (first["frames"], second["frames"]) == (17, 25)
    assert Samples(served).get(story).record["frames"] == 17 + 25 - second["kept_frames"]


def test_a_scene_without_the_one_before_says_so(served: Workspace, ask: Callable[..., SampleSettings]) -> None:
    first, second, joined = queue.submit_all(served, [ask(steps=1000), ask(seed=1)], chains=1)
    cancel(served, first)
    wait(served, first, PATIENCE)
    assert f"the previous scene, {first}, has no video" in wait(served, second, PATIENCE).message
    assert f"scene 1, {first}, has no video" in wait(served, joined, PATIENCE).message

    # Each again, under its own id: the story becomes whole.
    queue.again(served, first, steps=2)
    for one in (first, second, joined):
        if one != first:
            queue.again(served, one)
        assert wait(served, one, PATIENCE).state is RequestState.DONE
    assert str(progress(served, second).settings.continue_from) == str(progress(served, first).video)
    with pytest.raises(ConfigError, match="submit it again"):
        queue.again(served, first)


def test_requests_that_end_every_worker_are_given_up(
    workspace: Workspace, ask: Callable[..., SampleSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MODULE", "no_such_module")
    ids = queue.submit_all(workspace, [ask(), ask(seed=1)])
    assert {wait(workspace, one, PATIENCE).state for one in ids} == {RequestState.FAILED}
    assert pending(workspace) == []


def test_a_stopped_worker_says_so(served: Workspace, ask: Callable[..., SampleSettings]) -> None:
    active = long_one(served, ask())
    stop_worker(served, grace=10)
    assert worker(served).state is jobs.State.STOPPED
    assert progress(served, active).message == "The sampling worker was stopped before this video was done: try again."


def test_a_busy_gpu_is_said_at_once_and_no_worker_starts(
    workspace: Workspace, ask: Callable[..., SampleSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Device("cuda", "Some GPU", 24.0, 0, "GPU-1")
    monkeypatch.setattr(queue, "pick_device", lambda choice: gpu)
    with (
        gpu_lock.hold(workspace.locks, gpu.uuid, "run cats"),
        pytest.raises(DeviceBusy, match="the GPU is held by run cats: wait until it ends"),
    ):
        submit(workspace, ask(device="auto"))
    assert worker(workspace).state is jobs.State.NEW
    assert pending(workspace) == []


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"frames": 50}, "frames is 50, toy needs"),
        ({"width": 100}, "width is 100, toy needs a multiple of 8"),
        ({"model": "sora"}, "model is 'sora', which is neither known, nor a folder"),
        ({"loras": ["cats"]}, "loras has 'cats', which is not a LoRA of this workspace"),
        ({"loras": ["missing.safetensors"]}, "the LoRA missing.safetensors does not exist"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(
    workspace: Workspace, ask: Callable[..., SampleSettings], values: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        submit(workspace, ask(**values))
    assert worker(workspace).state is jobs.State.NEW


@pytest.mark.parametrize("name", ["../../x", "", "20261121-153255-839081-f214"])
def test_unknown_requests_are_refused(workspace: Workspace, name: str) -> None:
    for look in (progress, cancel):
        with pytest.raises(ConfigError):
            look(workspace, name)


def test_while_another_job_has_the_gpu_only_requests_for_the_processor_are_taken(
    workspace: Workspace, ask: Callable[..., SampleSettings]
) -> None:
    requests = queue.requests_of(workspace)
    for number, device in enumerate(("auto", "cpu")):
        settings = ask(device=device, seed=number).model_dump(mode="json")
        write_json(requests.folder / REQUESTS / f"{new_id()}.json", {"settings": settings})
    taken = queue.take(requests, lambda settings: settings.device != "cpu")
    assert taken is not None
    assert taken.settings.seed == 1
    assert queue.take(requests, lambda settings: settings.device != "cpu") is None
    assert queue.take(requests) is not None


def test_a_picture_that_a_page_is_about_to_load_outlives_its_request(tmp_path: Path) -> None:
    """One that was gone already was answered with 403, and a broken image stood on the page."""
    requests = queue.requests_in(tmp_path)
    first, second, waiting = new_id(), new_id(), new_id()
    for part in (ACTIVE, PROGRESS):
        (tmp_path / part).mkdir()
    for name in (first, second):
        (tmp_path / PROGRESS / f"{name}.webp").touch()
    (tmp_path / ACTIVE / f"{second}.json").touch()

    def pictures() -> set[str]:
        return {path.stem for path in (tmp_path / PROGRESS).glob("*.webp")}

    requests.clear(first)
    assert pictures() == {first, second}
    requests.clear(waiting)  # cancelled before it began
    assert pictures() == {second}
    (tmp_path / ACTIVE / f"{second}.json").unlink()
    requests.clear(second)
    assert pictures() == {second}

"""The demo over HTTP: visitors cannot reach one another, and what is switched off cannot be called by any handler."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest

from scripts.write_docs import CLASSES
from tests.patience import PATIENCE
from tests.visiting import HTML, Demo, Visitor, call_everything
from tests.written_grid import write_grid
from tests.written_run import add_preview
from workbench import jobs, settings
from workbench.compare.export import contents
from workbench.dataset_builder.settings import (
    CaptionSettings,
    CheckSettings,
    ExportSettings,
    ImportSettings,
    MakeSettings,
    TrackSettings,
)
from workbench.demo_space import replays
from workbench.demo_space.limits import EMPTY, MODULES, MOST, ONLY, Limits, check
from workbench.demo_space.proxy import COOKIE
from workbench.demo_space.sessions import DemoSession, DemoSessions, Full
from workbench.errors import ConfigError
from workbench.jobs import quota
from workbench.loras.settings import LoraImportSettings
from workbench.operations.registry import operations
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler import queue, worker
from workbench.sampler.samples import Samples
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, parse
from workbench.workspace import Workspace, read_json, write_json

pytestmark = pytest.mark.long

SECRET = "the-owners-own-words"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A visitor's folder, under whose rules this process stands."""
    folder = tmp_path / "sessions" / "one"
    folder.mkdir(parents=True)
    for name, value in Limits().variables(folder).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(settings, "RULES", [check])
    return folder


SWITCHED_OFF: list[tuple[type[Settings], dict[str, Any]]] = [
    (TrainSettings, {"steps": 601}), (TrainSettings, {"epochs": 1000.0}),
    (TrainSettings, {"model": "/srv/models/large"}), (TrainSettings, {"tracker": "wandb"}),
    (TrainSettings, {"device": "cuda"}), (TrainSettings, {"preview_images": ["/etc/passwd"]}),
    (SampleSettings, {"steps": 1000}), (SampleSettings, {"video": "../../another/workspace/samples/a.mp4"}),
    (SampleSettings, {"image": "http://169.254.169.254/latest"}), (SampleSettings, {"loras": ["owner/name=0.5"]}),
    (SampleSettings, {"loras": ["~/lora.safetensors"]}), (ImportSettings, {"hub_dataset": "owner/name"}),
    (ExportSettings, {"repo_id": "me/mine"}), (CaptionSettings, {"captioner": "vision_language"}),
    (MakeSettings, {"maker": "depth"}), (TrackSettings, {"model": "facebook/sam2.1-hiera-tiny"}),
    (ExportSettings, {"target": "/tmp/out.zip"}), (SampleSettings, {"loras": ["datasets/evil"]}),
    (SampleSettings, {"loras": ["clips/evil=0.5"]}), (SampleSettings, {"loras": ["runs/Evil"]}),
    (SampleSettings, {"loras": ["loras/evil:x.safetensors@main=1"]}), (LoraImportSettings, {"source": "grids/evil"}),
    (CheckSettings, {"model": "samples/evil"}),
]  # fmt: skip


def test_a_setting_that_is_switched_off_is_refused(home: Path) -> None:
    for kind, values in SWITCHED_OFF:
        with pytest.raises(ConfigError) as refused:
            parse(kind, values)
        assert set(refused.value.problems) == set(values), "it says which field"


def test_what_is_never_for_visitors_is_refused_before_anything_is_read(home: Path) -> None:
    workspace = Workspace.open(home / "workspace")
    never = [one for one in operations() if one.visitors == "never"]
    assert {"publishing", "targets", "machine"} <= {one.noun for one in never}
    for one in never:
        with pytest.raises(ConfigError, match="switched off in this demo"):
            one.call(workspace, one.inputs.model_construct())


def test_a_job_that_is_switched_off_does_not_start(home: Path) -> None:
    for module in ("workbench.remote", "workbench.publishing", "os"):
        with pytest.raises(ConfigError, match="switched off"):
            jobs.start(home / "workspace" / "job", module)
    assert not (home / "workspace" / "job" / jobs.PROCESS).exists()


def test_trainings_are_few(home: Path) -> None:
    me = {**jobs.processes.identity(os.getpid()), "module": "workbench.trainer"}

    def start(module: str) -> None:
        with quota.starting(module):
            pass

    write_json(home.parent / "two" / "workspace" / "runs" / "a" / jobs.PROCESS, me)
    start("workbench.trainer")
    write_json(home.parent / "three" / "workspace" / "runs" / "a" / jobs.PROCESS, me)
    with pytest.raises(ConfigError, match="other visitors are training"):
        start("workbench.trainer")
    write_json(home / "workspace" / "runs" / "a" / jobs.PROCESS, me)
    with pytest.raises(ConfigError, match="one at a time"):
        start("workbench.trainer")
    with pytest.raises(ConfigError, match="at most 32"):
        queue.submit_all(Workspace.open(home / "workspace"), [SampleSettings()] * 33)
    (home / "tmp").mkdir()
    with (home / "tmp" / "large").open("wb") as file:
        file.truncate(Limits().size + 1)
    with pytest.raises(ConfigError, match="full"):
        start("workbench.dataset_builder")


def test_expired_sessions_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[DemoSession] = []

    def stand_in(session: DemoSession, environment: dict[str, str]) -> None:
        session.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        assert "HF_TOKEN" not in environment
        started.append(session)

    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setattr("workbench.demo_space.sessions._start", stand_in)
    sessions = DemoSessions(tmp_path / "sessions", Limits(sessions=3, spare=0, size=10_000, total=11_000))
    try:
        one, two, three = (sessions.open(name) for name in ("one", "two", "three"))
        assert one
        assert two
        assert three
        assert sessions.open("four") is None
        assert sessions.open("one") is one
        sleeper = subprocess.Popen(["sleep", "60"], start_new_session=True)
        job = two.folder / "workspace" / "runs" / "a"
        write_json(job / jobs.PROCESS, {**jobs.processes.identity(sleeper.pid), "started_at": time.time()})
        (one.folder / "tmp" / "large").write_bytes(b"x" * 12_000)
        with pytest.raises(Full, match="keeps 0 MB"):
            sessions.reserve(one, 1)
        now = time.monotonic()
        one.seen, two.seen, three.seen = now - 1, now - 2, now - 3
        assert sessions.remove_expired(now) == [one.folder], "all sessions together are too large: the largest goes"
        two.seen = now - Limits().idle - 1
        three.born = now - Limits().longest - 1
        assert sessions.remove_expired(now) == [two.folder, three.folder]
        assert sleeper.wait(PATIENCE) < 0, "what a visitor started ends with the session"
        assert [session.folder.exists() for session in started] == [False] * 3
        assert sessions.get("one") is None
    finally:
        sessions.close()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    running = Demo(tmp_path_factory.mktemp("demo") / "sessions", OMP_NUM_THREADS="1", HF_TOKEN="hf_" + SECRET)
    yield running
    running.close()
    assert not list(running.sessions.glob("*")), "nothing is left behind"


@pytest.fixture(scope="module")
def visitors(demo: Demo) -> Iterator[tuple[Visitor, Visitor]]:
    one, two = Visitor(demo), Visitor(demo)
    yield one, two
    one.client.close()
    two.client.close()


def test_visitors_cannot_reach_one_another(demo: Demo, visitors: tuple[Visitor, Visitor]) -> None:
    one, two = visitors
    assert one.session != two.session
    mine = Path(one.upload("mine.mp4", b"of the first visitor"))
    sample = one.session / "workspace" / "samples" / "a.mp4"
    sample.write_bytes(b"mine")
    for path in (mine, sample):
        assert one.fetch(path) == 200
        assert two.fetch(path) == 403
    for path in (
        "/etc/passwd", one.session / "page.log", demo.log, "/proc/self/environ",
        f"{two.session}/../{mine.relative_to(demo.sessions)}", two.session / "address.json",
    ):  # fmt: skip
        assert two.fetch(path) == 403, path
    stranger = {"cookie": "workbench-visitor=forged." + "0" * 64}
    two.client.cookies, kept = type(two.client.cookies)(), two.client.cookies
    assert two.client.get(f"/gradio_api/file={mine}", headers=stranger).status_code == 401
    two.client.cookies = kept
    # An import that names another's file, as if it had been uploaded here.
    stolen = two.client.post("/api/v1/call/datasets/import", json={"name": "stolen", "sources": [str(mine)]})
    assert (stolen.status_code, "sources is" in stolen.text) == (400, True)
    assert not [path for path in two.session.rglob("*mine*")]
    # Nor is a session reached past the proxy.
    port = (one.session / "address.json").read_text().split(":")[1].strip(" }\n")
    assert two.client.get(f"http://127.0.0.1:{port}/gradio_api/file={mine}").status_code == 421


def test_nobody_gets_a_room_without_keeping_the_cookie(demo: Demo) -> None:
    import httpx

    sessions = len(list(demo.sessions.glob("*")))
    assert httpx.get(demo.url, headers=HTML, timeout=PATIENCE).status_code == 303
    assert "keeps no cookies" in httpx.get(f"{demo.url}/?visit=1", headers=HTML, timeout=PATIENCE).text
    assert httpx.get(demo.url, timeout=PATIENCE).status_code == 200
    assert httpx.post(f"{demo.url}/gradio_api/queue/join", json={}, timeout=PATIENCE).status_code == 401
    assert httpx.get(f"{demo.url}/login/huggingface", timeout=PATIENCE).status_code == 401, (
        "off a Space nobody can sign in as the owner"
    )
    assert len(list(demo.sessions.glob("*"))) == sessions


def test_no_operation_does_what_is_switched_off(demo: Demo, visitors: tuple[Visitor, Visitor], tmp_path: Path) -> None:
    """Every operation is called with paths, addresses and repositories in every text that it takes."""
    one, two = visitors
    private = tmp_path / "private"
    private.mkdir()
    (private / "notes.txt").write_text(SECRET)
    (private / "model_index.json").write_text(f'{{"_class_name": "{SECRET}"}}')
    (private / "lora.safetensors").write_bytes(SECRET.encode())
    hits: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_count, args=(listener, hits), daemon=True).start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/x"
        before = {path: path.stat().st_mtime_ns for path in private.rglob("*")}
        theirs = {path for path in two.session.rglob("*") if path.is_file()}
        words = [str(private), str(private / "lora.safetensors"), address, "owner/name", str(two.session)]
        said = call_everything(one.client, words)
    assert SECRET not in said, "neither a file's content nor the owner's token"
    assert not hits, "nothing was asked for in the visitor's place"
    assert {path: path.stat().st_mtime_ns for path in private.rglob("*")} == before
    assert theirs == {path for path in two.session.rglob("*") if path.is_file()} - {two.session / "page.log"} | theirs
    records = [read_json(path) for path in one.session.rglob(jobs.PROCESS)]
    assert {str(record["module"]) for record in records} <= set(MODULES)
    assert not [path for path in one.session.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def _count(listener: socket.socket, hits: list[bytes]) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        hits.append(b"")
        connection.close()


def test_a_recording_is_of_the_run_alone(tmp_path: Path) -> None:
    recording = replays.shipped()[0]
    text = (recording.folder / replays.REPLAY).read_text()
    assert "/tmp" not in text
    assert "/home" not in text
    points = recording.record["points"]
    assert points == sorted(points, key=lambda point: point[0])
    assert points[-1][1] == recording.record["steps"] == 600
    assert sum(path.stat().st_size for path in recording.folder.rglob("*") if path.is_file()) < 3_000_000
    assert replays.at(recording, 0).startswith("0 s · step 0 of 600")
    page = "".join(replays.page(recording))
    assert page.count('<script type="text/plain"') == len(recording.videos) == 26 + 12
    bad = tmp_path / "bad"
    write_json(bad / replays.REPLAY, {**recording.record, "previews": [[0, 0, 0, "../../secret.mp4"]]})
    with pytest.raises(ConfigError, match="leads outside"):
        replays.Replay.open(bad)


def test_a_run_is_recorded_with_its_verdict_and_a_grid(workspace: Workspace, tmp_path: Path) -> None:
    grid = write_grid(workspace, done=2)
    run, target = Run.open(workspace, "first"), tmp_path / "recorded"
    add_preview(run, 100, grid.video(grid.state().all[0].key), "a cat")
    made = replays.record(run, target, "Two prompts.", contents(grid))
    assert made.record["verdict"]["claim"]
    assert len(made.videos) == 1 + 4
    assert made.record == replays.Replay.open(target).record
    assert "".join(replays.page(made)).count('<script type="text/plain"') == 5
    waiting = made.record["grid"]["cells"][0][2]
    assert waiting["state"] == "missing"
    assert not waiting.get("url")
    cells = [[{**cell, "url": "../../secret.mp4"} for cell in row] for row in made.record["grid"]["cells"]]
    write_json(target / replays.REPLAY, {**made.record, "grid": {**made.record["grid"], "cells": cells}})
    with pytest.raises(ConfigError, match="leads outside"):
        replays.Replay.open(target)


def test_on_zero_gpu_the_page_draws_inside_a_marked_call(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    inside: list[bool] = []

    def mark(duration: float) -> Any:
        asked.append(duration)

        def decorate(function: Any) -> Any:
            def marked() -> None:
                inside.append(True)
                function()

            return marked

        return decorate

    stand_in = types.ModuleType("spaces")
    stand_in.GPU = mark  # type: ignore[attr-defined]
    stand_in.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setitem(sys.modules, "spaces", stand_in)
    assert not worker.on_zero_gpu()
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert worker.on_zero_gpu()
    worker.announce(workspace)
    answer = worker.answering(workspace)
    answer()
    assert (asked, inside) == ([worker.ZERO_GPU_SECONDS], []), "no GPU is taken while nobody asks for a sample"
    request = queue.submit(workspace, SampleSettings(prompt="a red circle", steps=2, device="cpu"))
    assert jobs.status(queue.worker_folder(workspace)).pid == os.getpid(), "no worker was started"
    answer()
    assert inside == [True]
    assert [sample.id for sample in Samples(workspace).history()] == [request]
    assert queue.progress(workspace, request).state is queue.RequestState.DONE


def test_every_limit_names_a_setting_that_there_is() -> None:
    """A setting that is renamed would be without its limit, and nothing would say so."""
    fields = {cls.__name__: set(cls.model_fields) for cls in _settings_classes(Settings)}
    known = set().union(*fields.values()) | {f"{name}.{field}" for name, own in fields.items() for field in own}
    assert {name for name in (*MOST, *ONLY, *EMPTY) if name not in known} == set()


def _settings_classes(parent: type[Settings]) -> set[type[Settings]]:
    """All classes of settings; CLASSES is named so that every module that declares one is loaded."""
    assert CLASSES
    return {one for child in parent.__subclasses__() for one in (child, *_settings_classes(child))}


def test_nobody_without_a_session_has_a_body_read(demo: Demo) -> None:
    """Half a body would be waited for for a minute, and its megabytes kept."""
    head = "POST /gradio_api/queue/join HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1900000\r\n"
    for cookie in ("", f"Cookie: {COOKIE}=a.b\r\n"):
        with socket.create_connection(("127.0.0.1", urlsplit(demo.url).port or 0), timeout=PATIENCE) as raw:
            raw.sendall(f"{head}{cookie}\r\n".encode() + b"x" * 1000)
            assert raw.recv(100).startswith(b"HTTP/1.1 401 ")


def test_a_visitors_page_has_so_much_memory_and_no_larger_files(demo: Demo, visitors: tuple[Visitor, Visitor]) -> None:
    import resource

    folders = {str(one.session.resolve()) for one in visitors}
    every = psutil.Process(demo.pid).children(recursive=True)
    pages = [
        one for one in every if "workbench.ui.server.session_page" in (words := one.cmdline()) and words[-1] in folders
    ]
    assert len(pages) == len(visitors)
    for page in pages:
        assert page.rlimit(resource.RLIMIT_FSIZE)[0] == Limits().size
        assert 0 < page.rlimit(resource.RLIMIT_DATA)[0] < 2**40

"""The HTTP API on a real server: the client's calls reach the library, and nothing works without the token."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.browser.server import Server
from tests.loras.making import put_export
from tests.patience import PATIENCE, until
from tests.shell import Shell
from tests.test_overview import add_sample
from tests.written_run import write_run
from workbench import jobs
from workbench.api.client import ENDED, Client, Refused
from workbench.api.key import api_token_of
from workbench.clips import media
from workbench.clips.records import read_clips
from workbench.dataset_builder import Dataset
from workbench.families.model import Model
from workbench.loras import tasks
from workbench.operations.registry import operations
from workbench.runs.run import Run
from workbench.workspace import Workspace

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(GET|POST) (/\S+)` \| (?:`(.*)`)? ?\|$", re.MULTILINE)  # call and fields


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    workspace = Workspace.open(tmp_path_factory.mktemp("api"))
    running = Server(workspace.root)
    running.start()
    yield running
    running.kill()
    for job in [*workspace.runs.glob("*"), workspace.samples / ".worker"]:
        jobs.kill(job)


@pytest.fixture(scope="module")
def workspace(server: Server) -> Workspace:
    return Workspace.open(server.workspace)


@pytest.fixture
def client(server: Server, workspace: Workspace) -> Iterator[Client]:
    with Client(server.url, api_token_of(workspace.root)) as opened:
        yield opened


def address(server: Server, path: str) -> str:
    return f"{server.url.split('?')[0].rstrip('/')}{path}"


def test_nobody_comes_in_without_the_token_and_the_token_opens_nothing_else(
    server: Server, workspace: Workspace, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(path: str, authorization: str, **more: str) -> int:
        headers = {"authorization": authorization, **more}
        return httpx.get(address(server, path), headers=headers, timeout=PATIENCE).status_code

    monkeypatch.setenv("WORKBENCH_HOME", str(workspace.root))
    token = shell("api-token").out.strip()
    assert token == api_token_of(workspace.root)
    assert (workspace.root / ".page-key").stat().st_mode & 0o077 == 0
    for given in ("", "Bearer", "Bearer wrong", token, f"Bearer {token[:-1]}", f"Basic {token}"):
        assert status("/api/v1/status", given) == 401
    assert status("/api/v1/status", f"Bearer {token}") == 200
    for path in ("/config", "/gradio_api/info", "/api/v2/status", "/api/v1"):
        assert status(path, f"Bearer {token}") == 401
    assert status("/api/v1/status", f"Bearer {token}", origin="https://evil.example") == 403


def test_agents_have_the_operations_as_tools_behind_the_token(server: Server, workspace: Workspace) -> None:
    url = address(server, "/api/v1/mcp")
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    head = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    assert httpx.post(url, json=request, headers=head, timeout=PATIENCE).status_code == 401
    bearer = {"authorization": f"Bearer {api_token_of(workspace.root)}"}
    said = httpx.post(url, json=request, headers={**head, **bearer}, timeout=PATIENCE)
    assert said.status_code == 200, said.text
    assert len(said.json()["result"]["tools"]) == len(operations())


def test_datasets_and_samples_come_as_zips(
    client: Client, workspace: Workspace, imported: Path, tmp_path: Path
) -> None:
    shutil.copytree(imported, workspace.dataset("shapes"))
    clips = read_clips(imported)
    plain = {"layout": "sidecars", "trigger_word": False}
    file = client.download(tmp_path / "shapes.zip", "datasets", "shapes", "export", **plain)
    assert subprocess.run(["unzip", "-tqq", file]).returncode == 0, "another program reads it"
    with zipfile.ZipFile(file) as archive:
        assert archive.testzip() is None
        videos = [archive.read(name) for name in archive.namelist() if name.endswith(".mp4")]
    assert videos == [(imported / clip.file_name).read_bytes() for clip in clips]
    again = Dataset.create(workspace, "again")
    again.import_files([file])
    assert {clip.text for clip in again.clips} == {clip.text for clip in clips}

    names = [add_sample(workspace, f"a {color} ball") for color in ("red", "blue", "green")]
    file = client.download(tmp_path / "samples.zip", "samples", "export", id=names[:2])
    with zipfile.ZipFile(file) as archive:
        stems = sorted({Path(name).stem for name in archive.namelist()})
        assert [json.loads(archive.read(f"{stem}.json"))["settings"]["prompt"] for stem in stems]
        assert len(stems) == 2
    with pytest.raises(Refused, match="nobody") as caught:
        client.download(tmp_path / "none.zip", "samples", "export", id=[names[0], "nobody"])
    assert caught.value.status == 404
    assert not list(tmp_path.glob("none*"))


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "words"),
    [
        ("GET", "/runs/nobody", None, 404, "there is no run"),
        ("POST", "/runs", {"settings": {"rnak": 4}}, 400, "did you mean rank"),
        ("POST", "/samples/batch", {"prompt": "a", "vidoes": 2}, 400, "vidoes"),
        ("POST", "/runs/nobody/explode", None, 404, "see the list of calls at"),
        ("POST", "/runs/ended/pause", None, 409, "only a running run takes commands"),
        ("GET", "/runs/ended/lora", None, 404, "exported no LoRA, which a run does when it finishes"),
        ("GET", "/samples/export", None, 400, "query.id"),
        ("DELETE", "/runs", None, 405, "not allowed"),
        ("POST", "/samples", {"prompt": "a", "image": "/nowhere/a.png"}, 400, "image"),
    ],
)
def test_a_refusal_is_the_librarys_own_sentence(
    client: Client, workspace: Workspace, method: str, path: str, body: object, status: int, words: str
) -> None:
    if not workspace.run("ended").exists():
        write_run(workspace, "ended", 20)
    with pytest.raises(Refused, match=f"(?i){words}") as caught:
        client.call(method, *path.removeprefix("/").split("/"), body=body)
    assert caught.value.status == status


def test_the_examples_of_the_document_are_every_call_and_run_as_they_are_written(
    server: Server, workspace: Workspace, imported: Path
) -> None:
    examples = re.findall(r"^    (curl .*\$URL.*)$", DOCUMENT.replace("\\\n", ""), re.MULTILINE)
    calls = {(_method(one), _route(one)) for one in examples}
    calls |= {(method, _route(f"$URL{path}")) for method, path, _ in ROW.findall(DOCUMENT)}
    token = api_token_of(workspace.root)
    bearer = {"authorization": f"Bearer {token}"}
    document = httpx.get(address(server, "/api/v1/openapi.json"), headers=bearer, timeout=PATIENCE).json()
    known = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    listed = (ROOT / "docs" / "api_calls.md").read_text(encoding="utf-8")
    assert calls <= known
    assert not [f"{method} {path}" for method, path in known - calls if f"`{method} {path}`" not in listed]
    for name in ("cats", "night-cats"):
        shutil.rmtree(workspace.dataset(name), ignore_errors=True)
    environment = {**os.environ, "URL": address(server, "/api/v1"), "TOKEN": token}
    environment["SAMPLE"] = add_sample(workspace, "a cat")
    for example in examples:
        if not workspace.dataset("cats").exists() and "/removed-" not in example and "night-cats" not in example:
            shutil.copytree(imported, workspace.dataset("cats"))  # created, then renamed
        if example.endswith("/lora"):  # the run was stopped above: make it look finished
            run = Run.open(workspace, "cats")
            until(lambda run=run: not run.status.state.alive)
            put_export(workspace, "other", rank=4, alpha=4.0, step=1)
            shutil.copy(workspace.run("other") / "lora.safetensors", run.folder)
        if "$JOB" in example:
            environment["JOB"] = tasks.everything(workspace)[0].id
        quiet = example.replace("curl", "curl -sS --fail-with-body", 1)
        done = subprocess.run(["bash", "-c", quiet], cwd=workspace.root, env=environment, capture_output=True)
        assert done.returncode == 0, (example, done.stdout, done.stderr)
        assert done.stdout or " -o " in example, example
    assert Run.open(workspace, "cats").settings.steps == 500


def _method(example: str) -> str:
    named = re.search(r" -X ([A-Z]+)", example)
    return named[1] if named else "POST" if " -d " in example else "GET"


def _route(example: str) -> str:
    """The path of an example, with parameters as the API's document names them."""
    found = re.search(r"\$URL(/[^\s?\"]*)", example)
    assert found, example
    path = re.sub(r"/removed-datasets/[a-z-]+/", r"/removed-datasets/{id}/", found[1])
    path = re.sub(r"/(datasets|runs)/[a-z-]+", r"/\1/{name}", path).replace("/$SAMPLE", "/{sample}")
    path = path.replace("$RECONSTRUCTION", "{id}")
    path = re.sub(r"\{sample\}/(cancel|decode|star|unstar|remove|restore)$", r"{ids}/\1", path)
    return path


def test_a_run_is_trained_followed_and_sampled(
    client: Client, workspace: Workspace, imported: Path, toy_model: Model, tmp_path: Path
) -> None:
    shutil.copytree(imported, workspace.dataset("squares"))
    small = {"model": toy_model.source, "dataset": "squares", "steps": 3, "rank": 2, "held_out": 0, "preview_every": 0}
    run = client.train("small", **small, save_every=3, device="cpu")
    seen = list(client.follow(run["name"]))
    assert seen[-1]["state"] == "finished", seen[-1]["log"] if "log" in seen[-1] else seen[-1]
    assert len(seen) > 1
    lora = client.download(tmp_path / "small.safetensors", "runs", "small", "lora")
    assert lora.read_bytes()[8:9] == b"{"
    made = client.sample("a red square", model=toy_model.source, loras=["small"], steps=2, device="cpu")
    video = client.download(tmp_path / "small.mp4", "samples", made, "video")
    assert b"ftyp" in video.read_bytes()[:32]
    story = {"prompt": "a red square\na blue square", "scenes": True, "seed": 1, "steps": 2}
    scenes = client.call("POST", "samples", "batch", body={**story, "model": toy_model.source, "device": "cpu"})
    until(lambda: all(client.call("GET", "samples", one["id"], wait=60)["state"] in ENDED for one in scenes))
    first, second, joined = (client.call("GET", "samples", one["id"]) for one in scenes)
    assert [one["state"] for one in (first, second, joined)] == ["done"] * 3, (first, second, joined)
    assert Path(second["settings"]["continue_from"]).stem == first["id"]
    assert [one["scenes"] for one in (first, second, joined)] == [[], [], [first["id"], second["id"]]]
    whole = client.download(tmp_path / "story.mp4", "samples", joined["id"], "video")
    assert media.probe(whole).frames > media.probe(video).frames

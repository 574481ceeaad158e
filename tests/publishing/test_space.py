"""A demo Space: the pushed files, run as a Space runs them against a local Hub, generate videos."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import tomllib
from importlib.metadata import version
from pathlib import Path

import gradio
import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from tests.fake_hub import TOKEN, FakeHub
from tests.patience import PATIENCE
from tests.publishing.conftest import PROMPTS
from tests.serving import ROOT
from tests.shell import Shell
from workbench.clips import media
from workbench.publishing import push, space
from workbench.publishing.settings import SpacePush
from workbench.runs.run import Run
from workbench.workspace import Workspace, read_json, write_json


@pytest.mark.release  # its app imports everything anew; test_families_published.py runs the apps in this process
@pytest.mark.usefixtures("run")
def test_the_space_that_is_pushed_generates_with_the_lora(
    shell: Shell, workspace: Workspace, hub: FakeHub, tmp_path: Path
) -> None:
    assert shell("publish", "lora", "cats", "--to", "me/cats").code == 0
    said = shell("publish", "space", "cats")
    assert said.code == 0, said.err
    assert "spaces/me/cats-demo" in said.out
    files = hub.repos["spaces/me/cats-demo"]
    assert hub.private == {"me/cats", "spaces/me/cats-demo"}
    assert not [name for name, data in files.items() if TOKEN.encode() in data or str(workspace.root).encode() in data]
    front = yaml.safe_load(files["README.md"].decode().split("---\n")[1])
    assert (front["sdk"], front["sdk_version"], front["models"]) == ("gradio", gradio.__version__, ["me/cats"])
    assert len(front["short_description"]) <= 60
    published = read_json(workspace.run("cats") / "published.json")
    assert (published["repo_id"], published["space"]["repo_id"]) == ("me/cats", "me/cats-demo")

    home = tmp_path / "space"
    for name, data in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(data)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "2",
        "GRADIO_SERVER_PORT": str(_port()),
        "GRADIO_ANALYTICS_ENABLED": "0",
    }
    with (tmp_path / "space.log").open("w+") as log:
        app = subprocess.Popen([sys.executable, "-u", "app.py"], cwd=home, env=environment, stdout=log, stderr=log)
        try:
            address = _address(app, tmp_path / "space.log")
            videos = [_generate(address, PROMPTS[0], seed) for seed in (0, 0, 1)]
        finally:
            app.terminate()
            app.wait()
    assert videos[0].shape == (9, 40, 40, 3)
    assert np.array_equal(videos[0], videos[1])
    assert not np.array_equal(videos[0], videos[2])


def _port() -> int:
    """Find a free port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _address(app: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + PATIENCE
    while "Running on local URL:" not in (said := log.read_text()):
        assert app.poll() is None, said
        assert time.monotonic() < end, said
        time.sleep(0.2)
    return said.partition("Running on local URL:")[2].split()[0]


def _generate(address: str, prompt: str, seed: int) -> np.ndarray:
    from gradio_client import Client

    answer = Client(address, verbose=False).predict(prompt, None, seed, 2, 3.0, api_name="/generate")
    path = Path(answer["video"] if isinstance(answer, dict) else answer)
    return np.stack(list(media.read_frames(path, range(9))))


def test_the_app_is_whole_and_a_private_lora_is_named(workspace: Workspace, run: Run) -> None:
    write_json(run.folder / "published.json", {"repo_id": "me/cats", "url": "", "private": True})
    plan = push.plan_upload(workspace, "runs/cats", SpacePush(repo_id="me/demo"))
    assert "me/cats is private" in plan.notes[0]
    app = plan.files["app.py"]
    assert isinstance(app, bytes)
    compile(app, "app.py", "exec")
    assert space.OPEN not in app.decode()
    assert "OWNER/" not in app.decode()


def test_a_space_asks_for_nothing_that_the_project_itself_does_not_take() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    ours = {one.name: one.specifier for one in map(Requirement, declared)}
    asked = map(Requirement, space.REQUIREMENTS.format(diffusers=version("diffusers")).splitlines())
    bounded = [one for one in asked if one.name in ours and one.name not in ("numpy", "safetensors", "ftfy")]
    assert {"torch", "diffusers", "transformers", "peft", "accelerate"} <= {one.name for one in bounded}
    for one in bounded:
        for edge in (Version(bound.version) for bound in one.specifier if bound.operator in (">=", "==")):
            assert edge in ours[one.name], one
        highest = [Version(bound.version) for bound in one.specifier if bound.operator == "<"]
        if highest:
            (most,) = (Version(bound.version) for bound in ours[one.name] if bound.operator == "<")
            assert max(highest) <= most, one
        else:
            assert [bound.operator for bound in one.specifier] == ["=="], one

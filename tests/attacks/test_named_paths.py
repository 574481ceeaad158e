"""Attack: whoever may use a page that is confined to some folders names a file of this machine outside of them.

Every operation and every setting that may name a file is walked; the kernel says whether a file was opened (inotify).
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests import serving
from tests.drawing import MakeClip
from tests.visiting import PATIENCE, call_everything
from workbench import jobs
from workbench.api.app import api
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.runs import checks
from workbench.runs.settings import TrainSettings
from workbench.sampler import prompt_enhancer
from workbench.sampler.prompt_enhancer import PromptSettings
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, Spec, parse, specs
from workbench.workspace import Workspace, named_paths

SECRET = "what-only-the-owner-knows"
ROOT = Path(__file__).resolve().parents[2]
# Texts of settings that speak of files but name none of this machine's.
ELSEWHERE = {
    "ConvertSettings.format", "SshPlace.python", "SshPlace.folder", "HubJobsPlace.python", "HubJobsPlace.image",
}  # fmt: skip


class Opened:
    """Which files below a folder any process has opened since."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK)
        self._folders = {}
        for one in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
            number = self._libc.inotify_add_watch(self._file, os.fsencode(one), 0x1 | 0x20)  # IN_ACCESS | IN_OPEN
            assert number > 0, os.strerror(ctypes.get_errno())
            self._folders[number] = one

    def names(self) -> set[str]:
        try:
            events = os.read(self._file, 1 << 20)
        except BlockingIOError:
            return set()
        found, at = set(), 0
        while at < len(events):
            watch, _, _, size = struct.unpack_from("iIII", events, at)
            name = events[at + 16 : at + 16 + size].rstrip(b"\0").decode()
            found.add(str(self._folders[watch] / name))
            at += 16 + size
        return found

    def close(self) -> None:
        os.close(self._file)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, make_clip: MakeClip) -> Path:
    """root/ may be read; private/ holds what every kind of setting would find."""
    folder = tmp_path_factory.mktemp("machine").resolve()
    private, root = folder / "private", folder / "root"
    for one in (private / "model" / "transformer", root):
        one.mkdir(parents=True)
    make_clip(private / "clip.mp4")
    (private / "notes.txt").write_text(SECRET)
    (private / "config.json").write_text(f'{{"a": "{SECRET}"}}')
    (private / "model" / "model_index.json").write_text(f'{{"_class_name": "{SECRET}"}}')
    for name in ("picture.png", "lora.safetensors", "lora.pt"):
        (private / name).write_bytes(SECRET.encode())
    (root / "link").symlink_to(private)
    (root / "link.png").symlink_to(private / "picture.png")
    return folder


@pytest.fixture
def opened(folder: Path) -> Iterator[Opened]:
    watching = Opened(folder / "private")
    yield watching
    watching.close()


def ways(folder: Path) -> list[str]:
    """Spellings of files outside of the root."""
    private, root = folder / "private", folder / "root"
    return [
        *(str(private / name) for name in ("picture.png", "lora.safetensors", "lora.pt", "model", "clip.mp4", "")),
        str(root / "link.png"), str(root / "link" / "lora.safetensors"), f"{root}/../private/picture.png",
        os.path.relpath(private / "picture.png"), f"{root}/link/model", "/proc/self/environ",
    ]  # fmt: skip


def kinds() -> list[type[Settings]]:
    """Every class of settings that the package declares."""
    for path in (ROOT / "workbench").rglob("*.py"):
        if re.search(r"^class \w+\((\w+\.)?\w*Settings\b", path.read_text(encoding="utf-8"), re.M):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found, left = set(), [Settings]
    while left:
        left += (below := left.pop().__subclasses__())
        found |= {one for one in below if one.__module__.startswith("workbench.")}
    return sorted(found, key=lambda one: (one.__module__, one.__name__))


def test_no_setting_takes_a_path_outside_of_the_roots(
    folder: Path, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_paths, "_roots", [folder / "root"])
    walked, unmarked = 0, set()
    for kind in kinds():
        for spec in specs(kind):
            if spec.path:
                walked += 1
                for path in ways(folder):
                    with pytest.raises(ConfigError, match=f"{spec.name} is .*may not read"):
                        _taken(kind, spec, path)
                for path in ("a\0b", "/" + "a" * 300):
                    with pytest.raises(ConfigError):
                        _taken(kind, spec, path)
            elif spec.kind in ("text", "texts") and re.search(r"\b([Ff]ile|[Ff]older|[Pp]ath)s?\b", spec.help):
                unmarked.add(f"{kind.__name__}.{spec.name}")
    assert walked > 20
    names = {
        one
        for one in unmarked
        if not re.search(
            r"\.(name|title|chosen|dataset|clip|endpoint_model|trigger|train_also|tracker_project|\w+_column)$", one
        )
    }
    assert names <= ELSEWHERE, "settings that may name a file are declared with path=True"
    assert not opened.names()


def _taken(kind: type[Settings], spec: Spec, path: str) -> None:
    text = path + {"loras": "=0.5", "keyframes": "=3"}.get(spec.name, "")
    needed = [one for one in specs(kind) if one.required]
    given = {one.name: next(iter(one.choices), "a" if one.low is None else 1) for one in needed} | {spec.name: text}
    parse(
        kind,
        {
            one.name: [given[one.name]] if one.kind == "texts" else given[one.name]
            for one in specs(kind)
            if one.name in given
        },
    )


def test_what_is_below_the_roots_and_what_is_no_path_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_paths, "_roots", [folder / "root"])
    inside = str(folder / "root" / "a.safetensors")
    parse(SampleSettings, {"image": str(folder / "root" / "a.png"), "loras": [f"{inside}=0.5", "my-run", "a/b:c@d=1"]})
    parse(TrainSettings, {"start_from": "my-run", "model": "cogvideox-2b", "preview_images": [inside]})
    stored = parse(TrainSettings, {"preview_images": ["/elsewhere/a.png"]}, given=())
    assert stored.changed(steps=7).steps == 7, "a run that the shell made can be looked at"


def test_no_reader_of_the_library_takes_one(
    folder: Path, opened: Opened, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As settings that were made without the form's check reach it."""
    monkeypatch.setattr(named_paths, "_roots", [folder / "root", workspace.root.resolve()])
    private = folder / "private"
    (workspace.datasets / "mine").mkdir()
    (workspace.datasets / "mine" / "metadata.jsonl").touch()
    settings = PromptSettings(enhancer="local", local_model="a/b")
    for path in ways(folder)[:1] + ways(folder)[6:9]:
        with pytest.raises(ConfigError, match="may not read"):
            prompt_enhancer.write(workspace, settings, SampleSettings(prompt="a", image=path))
        with pytest.raises(ConfigError, match="may not read"):
            checks.check(workspace, TrainSettings(dataset="mine", preview_images=(path,)))
    with pytest.raises(ConfigError, match="may not read"):
        checks.initial_lora(workspace, TrainSettings(start_from=str(private / "lora.safetensors")))
    with pytest.raises(ConfigError, match="may not read"):
        find_model(str(private / "model"))
    assert not opened.names()


def test_no_operation_opens_a_file_outside_of_the_roots(folder: Path, opened: Opened) -> None:
    server, address = serving.serve("tests.attacks.rooted_page", folder)
    try:
        with httpx.Client(base_url=address, timeout=PATIENCE) as client:
            said = call_everything(client, ways(folder))
            said += "".join(client.get(f"/gradio_api/file={path}").text for path in ways(folder))
        for record in (folder / "workspace").rglob(jobs.PROCESS):
            jobs.kill(record.parent)
        assert SECRET not in said
        assert not opened.names()
        assert not [path for path in (folder / "workspace").rglob("*") if path.is_file() and _holds(path)]
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE)


def test_no_request_of_a_program_names_a_file_outside_of_the_roots(
    folder: Path, opened: Opened, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The HTTP API: settings of runs and samples, and the first frame that a line of a prompt names."""
    monkeypatch.setattr(named_paths, "_roots", [folder / "root", workspace.root.resolve()])
    application = api(workspace)

    async def asked() -> list[tuple[str, int, str]]:
        found = []
        transport = httpx.ASGITransport(application, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            for path in ways(folder):
                for kind, address in ((TrainSettings, "/runs"), (SampleSettings, "/samples")):
                    for spec in (one for one in specs(kind) if one.path):
                        text = path + {"loras": "=0.5", "keyframes": "=3"}.get(spec.name, "")
                        values = {spec.name: [text] if spec.kind == "texts" else text}
                        body = {"settings": values, "name": "x", "start": False} if address == "/runs" else values
                        answer = await client.post(address, json=body)
                        found.append((f"{address} {spec.name} {path}", answer.status_code, answer.text))
                line = {"prompt": f"a ship@@{path}", "each_line": True, "model": "tiny-cogvideox-i2v"}
                answer = await client.post("/samples/batch", json=line)
                found.append((f"a line {path}", answer.status_code, answer.text))
        return found

    for what, status, text in asyncio.run(asked()):
        assert 400 <= status < 500, (what, status, text)
        assert SECRET not in text, what
    assert not opened.names()


def _holds(path: Path) -> bool:
    return SECRET.encode() in path.read_bytes()


def test_nobody_else_makes_a_path_of_what_a_person_wrote() -> None:
    """Of the shell and the notebook, whose user may read what they may; of variables, and of names that are kept."""
    faces = {"cli", "notebook"}
    known = {
        "workspace/named_paths.py",
        "workspace/layout.py",
        "operations/machine.py",  # the workspace that `workbench doctor` is asked about
        "ui/server/serving.py",
        "remote/remote_folder.py",
        "dataset_builder/sources/survey.py",  # whose links keep their names: captions go by them
    }
    package = ROOT / "workbench"
    found = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "expanduser" in path.read_text(encoding="utf-8") and path.relative_to(package).parts[0] not in faces
    }
    assert found <= known, "use named_paths.resolve"

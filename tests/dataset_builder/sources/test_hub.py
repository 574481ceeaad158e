"""Download from and push to a local Hub server with huggingface_hub itself."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dataset_builder import tables
from tests.dataset_builder.small import CAPTIONS, write_dataset
from tests.fake_hub import TOKEN, FakeHub
from workbench.clips.records import read_clips
from workbench.dataset_builder import export
from workbench.dataset_builder.settings import ExportSettings
from workbench.dataset_builder.sources import hub
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.dataset_builder.sources.layouts.base import Problem
from workbench.dataset_builder.sources.survey import survey
from workbench.errors import CannotWrite, ConfigError, DataError, ModelUnavailable


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dataset(tmp_path_factory.mktemp("small") / "small", trigger_word="zwx")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    with FakeHub().serving() as fake:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", fake.url)
        template = fake.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield fake


def test_what_is_pushed_comes_back_whole(small: Path, server: FakeHub, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    settings = ExportSettings(repo_id="me/squares", license="cc0-1.0")
    pushed = export.push(small, settings, lambda done, total: seen.append((done, total)))
    assert pushed.url == f"{server.url}/datasets/me/squares"
    assert (server.private, server.commits, seen[-1]) == (
        {"datasets/me/squares"},
        ["7 clips from Video LoRA Workbench"],
        (9, 9),
    )
    remote = hub.inspect("me/squares")
    assert "7 .mp4, 1 .jsonl" in remote.sentence
    folder = hub.fetch(remote, tmp_path / "hub")
    assert folder == tmp_path / "hub" / "me--squares" / remote.commit[:12]
    (part,) = survey([folder]).found
    assert part.layout == "videofolder"
    files = [(small / clip.file_name).read_bytes() for clip in read_clips(small)]
    assert [source.path.read_bytes() for source in part.sources] == files
    assert not any(source.path.is_symlink() for source in part.sources)
    expected = [f"zwx {clean_caption(text)}".strip() for text in CAPTIONS]
    assert [source.caption for source in part.sources] == expected


def test_the_card_holds_the_facts_and_nothing_private(small: Path, server: FakeHub) -> None:
    export.push(small, ExportSettings(repo_id="me/squares", license="cc0-1.0", trigger_word=False))
    files = server.repos["datasets/me/squares"]
    card = files["README.md"].decode()
    assert "license: cc0-1.0" in card
    assert "pretty_name: Small things" in card
    assert "| Clips | 7 |" in card
    assert "| Sizes | 32x32 (7) |" in card
    assert "| Trigger word | `zwx`, not written into the captions |" in card
    assert json.loads(files["metadata.jsonl"].split(b"\n")[0])["text"] == CAPTIONS[0]
    assert not any(b"private name" in data for name, data in files.items() if not name.endswith(".mp4"))
    assert not any(TOKEN.encode() in data for data in files.values())


def test_an_interrupted_push_resumes_and_publishes_only_when_complete(
    small: Path, server: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workbench.hub.AT_ONCE", 2)
    server.failing_path = "/store/"

    def fail(done: int, total: int) -> None:
        server.failing = 418

    with pytest.raises(ModelUnavailable, match="an upload to me/squares broke off: push again"):
        export.push(small, ExportSettings(repo_id="me/squares"), fail)
    assert (len(server.objects), server.repos["datasets/me/squares"]) == (2, {})
    server.failing, server.requests = 0, []
    assert export.push(small, ExportSettings(repo_id="me/squares")).changed
    assert not export.push(small, ExportSettings(repo_id="me/squares")).changed
    assert len(server.commits) == 1
    assert len([line for line in server.requests if "/store/" in line]) == 5
    assert len(server.repos["datasets/me/squares"]) == 9


def test_private_clips_never_go_into_a_public_repository(small: Path, server: FakeHub) -> None:
    server.repos["datasets/me/open"] = {}
    with pytest.raises(ConfigError, match="me/open is public and `private` is on"):
        export.push(small, ExportSettings(repo_id="me/open"))
    assert server.repos["datasets/me/open"] == {}
    assert not server.objects
    export.push(small, ExportSettings(repo_id="me/open", private=False))
    assert "README.md" in server.repos["datasets/me/open"]


def test_a_stopped_download_resumes(server: FakeHub, tmp_path: Path) -> None:
    server.repos["datasets/you/clips"] = {f"train/{number}.mp4": b"video %d" % number for number in range(20)}
    server.repos["datasets/you/clips"] |= {
        ".gitattributes": b"",
        "weights.bin": b"no",
        "train/metadata.csv": b"file_name,text",
    }
    remote = hub.inspect("you/clips")
    assert len(remote.files) == 21

    class Enough(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done == 5:
            raise Enough

    with pytest.raises(Enough):
        hub.fetch(remote, tmp_path, stop)
    assert len(list(tmp_path.rglob("*.mp4"))) < 20
    seen: list[tuple[int, int]] = []
    folder = hub.fetch(remote, tmp_path, lambda done, total: seen.append((done, total)))
    assert seen[-1] == (21, 21)
    assert len(survey([folder]).sources) == 20


def test_hub_errors_are_explained(
    small: Path, server: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.repos["datasets/you/text"] = {"README.md": b"", "data.csv": b""}
    with pytest.raises(DataError, match="has no videos"):
        hub.inspect("you/text")
    with pytest.raises(ModelUnavailable, match="not on the Hub, or private"):
        hub.inspect("you/none")
    with pytest.raises(ModelUnavailable, match="no such revision"):
        hub.inspect("you/text", "v9")
    with pytest.raises(ConfigError, match="must be OWNER/NAME"):
        hub.inspect("no such name!")
    with pytest.raises(CannotWrite, match="free some space"):
        hub.fetch(hub.Remote("you/text", "0" * 40, {"huge.mp4": 2**60}), tmp_path)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(ModelUnavailable, match=r"refuses it \(401.*\): log in with `hf auth login`") as caught:
        export.push(small, ExportSettings(repo_id="me/squares"))
    assert "hf_" not in str(caught.value)
    server.failing = 418
    with pytest.raises(ModelUnavailable, match="the Hub answers 418"):
        hub.inspect("you/text")
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelUnavailable, match="the Hub does not answer"):
        hub.inspect("you/text")


def test_one_configuration_of_a_dataset_is_downloaded(server: FakeHub, tmp_path: Path) -> None:
    card = b"---\nconfigs:\n- config_name: cats\n  data_files:\n  - split: train\n    path: ['cats/*.mp4']\n---\n"
    server.repos["datasets/you/pets"] = {
        "README.md": card,
        "cats/a.mp4": b"a",
        "dogs/b.mp4": b"b",
        "metadata.csv": b"file_name,text\n",
    }
    cats, everything = hub.inspect("you/pets", config="cats"), hub.inspect("you/pets")
    assert sorted(cats.files) == ["cats/a.mp4", "metadata.csv"]
    assert len(everything.files) == 3
    folders = [hub.fetch(remote, tmp_path) for remote in (everything, cats)]
    assert [len(list(folder.rglob("*.mp4"))) for folder in folders] == [2, 1]
    with pytest.raises(DataError, match="hub_config is 'mice', but the card of you/pets has cats: choose"):
        hub.inspect("you/pets", config="mice")


def test_a_video_column_in_parquet_is_read_without_writing_it_out(server: FakeHub, tmp_path: Path) -> None:
    clips: list[Any] = [{"bytes": b"video %d" % n, "path": f"{n}.webm" if n else None} for n in range(5)] + [None]
    table = tables.parquet({"clip": clips, "caption": ["a", "é\n2", None, "=d", "e", "f"]}, {"clip": "Video"})
    server.repos["datasets/you/table"] = {"data/train-00000.parquet": table}
    folder = hub.fetch(hub.inspect("you/table"), tmp_path)
    (part,) = survey([folder]).found
    assert [(source.name, source.caption) for source in part.sources] == [
        ("000000.mp4", "a"), ("000001.webm", "é 2"), ("000002.webm", ""), ("000003.webm", "=d"), ("000004.webm", "e"),
    ]  # fmt: skip
    assert part.problems[Problem.NO_NAME] == ("metadata.jsonl, line 6",)
    assert [path.name for path in folder.rglob("*") if path.is_file() and ".cache" not in path.parts] == [
        "train-00000.parquet"
    ]

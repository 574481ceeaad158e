"""Links in what a stranger gives: a Hub cache is read, nothing else outside of the folder is, and each is named."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.drawing import draw
from tests.patience import PATIENCE
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.sources.columns import USUAL
from workbench.dataset_builder.sources.files import trees_of
from workbench.dataset_builder.sources.survey import Survey, survey
from workbench.errors import ConfigError, ExitCode
from workbench.operations import datasets
from workbench.workspace import Workspace
from workbench.workspace.named_paths import confine

FORBIDDEN = "it is a link to a file that may not be read here: replace it with the file itself"
OUT = "it is a link that leads out of what was given: replace it with the file itself"


def hub_cache(folder: Path, as_text: bool = False) -> Path:
    """A snapshot of the Hub's cache; as_text: as copied where links are not supported."""
    cache = folder / "datasets--o--n"
    snapshot = cache / "snapshots" / "abc"
    (snapshot / "data").mkdir(parents=True)
    (cache / "blobs").mkdir()
    for number, name in enumerate(("v0.mp4", "data/v1.mp4")):
        media.encode(draw(9 + number), cache / "blobs" / f"b{number}", 8)
        link(snapshot / name, f"{'../' * (2 + name.count('/'))}blobs/b{number}", as_text)
    (cache / "blobs" / "m").write_text(
        '{"file_name": "v0.mp4", "text": "clip zero"}\n{"file_name": "data/v1.mp4", "text": "clip one"}\n'
    )
    link(snapshot / "metadata.jsonl", "../../blobs/m", as_text)
    return snapshot


def link(path: Path, target: str, as_text: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(target) if as_text else os.symlink(target, path)


def captions(found: Survey) -> dict[str, str]:
    return {source.name: source.caption for source in found.sources if not source.refused}


@pytest.mark.parametrize("as_text", [False, True])
def test_a_snapshot_of_the_hub_cache_is_imported(tmp_path: Path, as_text: bool) -> None:
    snapshot = hub_cache(tmp_path, as_text)
    wanted = {"v0.mp4": "clip zero", "v1.mp4": "clip one"}
    for given in (snapshot, snapshot.parent.parent, tmp_path):
        found = survey([given])
        assert captions(found) == wanted
        assert not found.skipped, "blobs are read under the names of the links"
        assert not found.not_read
    assert captions(survey([snapshot / "v0.mp4"])) == {"v0.mp4": "clip zero"}
    dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Hub")
    results = dataset.import_files([snapshot])
    assert {result.name: result.outcome for result in results} == dict.fromkeys(wanted, "taken")
    assert {clip.source: clip.text for clip in dataset.clips} == wanted


def test_every_other_link_is_refused_with_its_reason_texts_and_tables_too(tmp_path: Path) -> None:
    secret, given = tmp_path / "secret.txt", tmp_path / "given"
    secret.write_text("the secret")
    (given / ".hidden").mkdir(parents=True)
    (given / "folder").mkdir()
    (given / ".hidden" / "key.txt").write_text("the secret")
    for name in ("a.mp4", "b.mp4", "folder/c.mp4"):
        media.encode(draw(9), given / name, 8)
    links = {
        "a.txt": str(secret), "metadata.jsonl": str(secret), "table.zip": str(secret), "x.mp4": str(secret),
        "b.txt": ".hidden/key.txt", "gone.mp4": "nowhere.mp4", "gone.txt": "nowhere.txt", "loop.mp4": "loop.mp4",
        "device.mp4": "/dev/zero", "linked": "folder", "inside.mp4": "folder/c.mp4",
    }  # fmt: skip
    for name, target in links.items():
        link(given / name, target)
    os.mkfifo(given / "c.txt")
    found = survey([given])
    refused = found.not_read | {source.name: source.refused for source in found.sources if source.refused}
    assert {name: reason.partition(":")[0] for name, reason in refused.items()} == {
        **dict.fromkeys(("a.txt", "metadata.jsonl", "table.zip", "x.mp4", "b.txt"), OUT.partition(":")[0]),
        **dict.fromkeys(("gone.mp4", "gone.txt"), "it is a link to a file that is not there"),
        "loop.mp4": "it is a link that leads back to itself",
        "device.mp4": "it is a link to something that is no ordinary file",
        "linked/": "a link to a folder",
        "c.txt": "not an ordinary file (a folder, pipe or device)",
    }
    assert captions(found) == dict.fromkeys(("a.mp4", "b.mp4", "inside.mp4", "c.mp4"), "")
    assert all(any(name in line for line in found.sentences) for name in ("'linked/'", "gone.mp4")), found.sentences
    assert "the secret" not in "".join(found.sentences)


def test_a_cache_leads_nowhere_but_into_its_own_blobs(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret")
    snapshot = hub_cache(tmp_path)
    blobs = snapshot.parent.parent / "blobs"
    link(blobs / "evil", str(secret))
    link(snapshot / "v0.txt", "../../blobs/evil")
    (snapshot / "data" / "v1.txt").write_text("../../../blobs/../../secret.txt")
    assert survey([snapshot]).not_read == {"v0.txt": OUT}
    assert captions(survey([snapshot]))["v1.mp4"].startswith("../../../blobs"), "no link, so it is the caption"
    stranger = tmp_path / "stranger"
    link(stranger / "snapshots" / "abc" / "a.txt", "../../blobs/secret.txt")
    media.encode(draw(9), stranger / "snapshots" / "abc" / "a.mp4", 8)
    link(stranger / "blobs", str(tmp_path))
    assert survey([stranger / "snapshots"]).not_read == {"abc/a.txt": OUT}


def test_links_may_be_chained_within_a_cache_and_its_blobs_be_no_link(tmp_path: Path) -> None:
    snapshot = hub_cache(tmp_path)
    later = snapshot.parent / "def"
    link(later / "v0.mp4", "../abc/v0.mp4")
    link(later / "v0.txt", "../abc/v0.txt")
    link(snapshot / "v0.txt", "../../blobs/t")
    (snapshot.parent.parent / "blobs" / "t").write_text("by two links")
    assert captions(survey([later])) == {"v0.mp4": "by two links"}
    blobs = snapshot.parent.parent / "blobs"
    blobs.rename(tmp_path / "elsewhere")
    link(blobs, str(tmp_path / "elsewhere"))
    found = survey([later])
    assert found.not_read == {"v0.txt": OUT}
    assert [source.refused for source in found.sources] == [OUT]


# ---- a page that other machines can reach ---------------------------------------------------------------------------


@pytest.fixture
def confined() -> Iterator[Callable[..., None]]:
    yield lambda *roots: confine(roots)
    confine([])


def imported(workspace: Workspace, *paths: Path) -> Dataset:
    """What the page makes of the paths that a person types."""
    task = datasets.import_(workspace, "New", ImportSettings(sources=tuple(map(str, paths))))
    dataset = Dataset.open(workspace, task.id.partition("/")[0])
    dataset.task("import").wait(PATIENCE)
    return dataset


@pytest.mark.parametrize("named", ["files", "cache"])
def test_a_page_imports_a_hub_cache_below_its_root_as_the_shell_does(
    tmp_path: Path, workspace: Workspace, confined: Callable[..., None], named: str
) -> None:
    snapshot = hub_cache(tmp_path / "root")
    given = {
        "files": [snapshot / "v0.mp4", snapshot / "data" / "v1.mp4", snapshot / "metadata.jsonl"],
        "cache": [tmp_path / "root"],
    }[named]
    confined(tmp_path / "root", workspace.root)
    found = datasets.preview(workspace, tuple(map(str, given)), settings=ImportSettings())
    assert "2 videos, 2 captions" in str(found)
    dataset = imported(workspace, *given)
    assert {clip.source: clip.text for clip in dataset.clips} == {"v0.mp4": "clip zero", "v1.mp4": "clip one"}


def test_neither_a_page_nor_its_import_follows_a_link_out_of_its_roots(
    tmp_path: Path, workspace: Workspace, confined: Callable[..., None]
) -> None:
    snapshot = hub_cache(tmp_path)
    snapshot.with_name("abc.txt").write_text("next to the root")
    confined(snapshot, workspace.root)
    found = survey([snapshot])
    assert [source.refused for source in found.sources] == [FORBIDDEN] * 2
    assert found.not_read == {"metadata.jsonl": FORBIDDEN}
    dataset = imported(workspace, snapshot)
    assert dataset.task("import").status.exit_code == ExitCode.BAD_DATA
    assert {result.notes for result in dataset.import_results} == {(FORBIDDEN,)}
    assert not next(iter(trees_of([snapshot], {}, USUAL))).beside


def test_a_name_that_leads_into_the_roots_from_elsewhere_is_refused(
    tmp_path: Path, workspace: Workspace, confined: Callable[..., None]
) -> None:
    snapshot = hub_cache(tmp_path / "root")
    (tmp_path / "private.mp4").write_bytes(b"secret")
    link(tmp_path / "other" / "v0.mp4", str(snapshot / "v0.mp4"))
    link(tmp_path / "root" / "deep", str(snapshot / "data"))
    confined(tmp_path / "root", workspace.root)
    for way in (tmp_path / "other" / "v0.mp4", tmp_path / "root" / "deep" / ".." / ".." / "private.mp4"):
        with pytest.raises(ConfigError, match="which this page may not read"):
            datasets.preview(workspace, (str(way),), settings=ImportSettings())
        with pytest.raises(ConfigError, match="sources is .* which this page may not read"):
            Dataset.ensure(workspace, "new").start_import([way])

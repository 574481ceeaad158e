"""Archives: refused entries are named, and captions around an archive apply to the videos inside."""

from __future__ import annotations

import gc
import gzip
import io
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil
import pytest

from workbench.dataset_builder.sources import archives
from workbench.dataset_builder.sources.archives import ArchiveTree, extract
from workbench.dataset_builder.sources.layouts.base import Problem
from workbench.dataset_builder.sources.survey import Survey, survey
from workbench.dataset_builder.sources.tree import SourceFile
from workbench.errors import CannotWrite, DataError

OUTSIDE = {
    "../../evil.mp4": "its name contains '..'",
    "/etc/evil.mp4": "its name is an absolute path",
    "C:evil.mp4": "its name starts with a drive letter",
    "C:\\evil.mp4": "its name is an absolute path",
    "a/../../evil.mp4": "its name contains '..'",
    "a\\..\\evil.mp4": "its name contains '..'",
}


def write_zip(path: Path, members: dict[str, bytes], packing: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def write_tar(path: Path, members: dict[str, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def taken(path: Path, member: str, folder: Path) -> bytes:
    extract(SourceFile(path, member=member), folder / "out.bin", 1_000_000)
    return (folder / "out.bin").read_bytes()


def test_entries_that_lead_outside_are_refused_by_name(tmp_path: Path) -> None:
    members = {**dict.fromkeys(OUTSIDE, b"evil"), "good.mp4": b"good", "__MACOSX/._good.mp4": b"shadow", ".hid": b""}
    for path in (write_zip(tmp_path / "a.zip", members), write_tar(tmp_path / "a.tar", members)):
        (part,) = survey([path]).found
        assert [source.key for source in part.sources] == [f"{path}::good.mp4"]
        reasons = {name: reason.partition(":")[0].partition(",")[0] for name, reason in part.refused.items()}
        assert reasons == {name.replace("\\", "/"): reason for name, reason in OUTSIDE.items()}
        assert taken(path, "good.mp4", tmp_path) == b"good"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tar", "a.zip", "out.bin"]


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_an_archive_is_closed_with_the_thread_that_read_it(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, {}, {name: {"a.mp4": b"a", "b.mp4": b"b"}}) / name
    opened: list[list[str]] = []

    def read() -> None:
        taken(path, "a.mp4", tmp_path)
        opened.append([file.path for file in psutil.Process().open_files()])

    gc.disable()  # code that relies on the collector keeps files open for long
    try:
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        assert str(path) in opened[0], "a handle a thread, so that members in their order cost one pass"
        assert str(path) not in [file.path for file in psutil.Process().open_files()]
    finally:
        gc.enable()


def test_links_devices_and_duplicates_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        for name, kind in (
            ("link.mp4", tarfile.SYMTYPE),
            ("hard.mp4", tarfile.LNKTYPE),
            ("pipe.mp4", tarfile.FIFOTYPE),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
        for data in (b"one", b"two"):
            info = tarfile.TarInfo("same.mp4")
            info.size = 3
            archive.addfile(info, io.BytesIO(data))
    tree = ArchiveTree(path)
    assert list(tree.files) == ["same.mp4"]
    assert list(tree.refused) == ["link.mp4", "hard.mp4", "pipe.mp4", "same.mp4"]
    assert taken(path, "same.mp4", tmp_path) == b"one"
    with pytest.raises(DataError, match="a link"):
        taken(path, "link.mp4", tmp_path)
    link = zipfile.ZipInfo("link.mp4")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(link, "/etc/passwd")
        archive.writestr("fine.mp4", "fine")
    assert ArchiveTree(tmp_path / "a.zip").refused == {"link.mp4": "a link: put the file itself into the archive"}


class Named(zipfile.ZipInfo):
    """A member whose name is not UTF-8 and not marked as another encoding."""

    encoding = "utf-8"

    def _encodeFilenameFlags(self) -> tuple[bytes, int]:
        return self.filename.encode(self.encoding), 0


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("cp932", "セット\\映像.mp4"),
        ("cp437", "été/Größe.mp4"),
        ("cp866", "Видео/кошка гуляет.mp4"),
        ("utf-8", "set\\videos\\a.mp4"),
    ],
)
def test_names_in_other_encodings_are_decoded(tmp_path: Path, encoding: str, name: str) -> None:
    path, right = tmp_path / "a.zip", name.replace("\\", "/")
    with zipfile.ZipFile(path, "w") as archive:
        for one in (name, name.replace(".mp4", ".txt")):
            member = Named(one)
            member.encoding = encoding
            archive.writestr(member, b"a caption")
        archive.writestr("other/1:30 walk..mp4", b"harmless")
    (part,) = survey([path]).found
    assert {source.member: source.caption for source in part.sources} == {
        right: "a caption",
        "other/1:30 walk..mp4": "",
    }
    assert taken(path, right, tmp_path) == b"a caption"
    assert not part.refused


UNPACK = "unpack it and import the folder"


def test_unsupported_archives_say_what_to_do(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    names = ("a.7z", "b.RAR", "c.tar.zst", "d.mp4.gz", "e.zip.001", "f.z01", "g.parquet", "h.part1.rar", "i.iso")
    for name in (*names, "fine.mp4"):
        (given / name).write_bytes(b"x")
    (given / "fake.zip").write_bytes(b"Rar!\x1a\x07\0")
    found = survey([given])
    assert list(found.not_read) == list(names)
    assert all(": " in reason for reason in found.not_read.values()), "a remedy follows the reason"
    assert found.refused["fake.zip"] == f"fake.zip is a RAR archive, which is not supported: {UNPACK}"
    assert not found.skipped
    for name in names:
        with pytest.raises(DataError, match=f"{name}: "):
            assert survey([given / name]).sources
    (part,) = survey([write_zip(tmp_path / "a.zip", {"in.zip": b"", "in.rar": b"", "a.mp4": b""})]).found
    assert part.refused == {
        "in.zip": f"an archive inside an archive: {UNPACK}",
        "in.rar": f"a RAR archive, which is not supported: {UNPACK}",
    }


def test_split_zips_and_unknown_methods_are_not_called_damaged(tmp_path: Path) -> None:
    data = bytearray(write_zip(tmp_path / "a.zip", {"a.mp4": b"a", "b.mp4": b"b"}).read_bytes())
    place = data.index(b"PK\1\2")
    packed = data[: place + 10] + b"\x09" + data[place + 11 :]
    (tmp_path / "a.zip").write_bytes(packed)
    assert ArchiveTree(tmp_path / "a.zip").refused == {
        "a.mp4": "compressed with Deflate64, which is not supported: unpack the archive and import the folder"
    }
    data[data.rindex(b"PK\5\6") + 4] = 2  # marks it as the third part
    (tmp_path / "b.zip").write_bytes(data)
    reason = survey([tmp_path / "b.zip"]).refused["b.zip"]
    assert reason == "b.zip is one part of a split archive: unpack all parts together and import the folder"


def test_bombs_cost_no_memory(tmp_path: Path) -> None:
    bomb = write_zip(tmp_path / "b.zip", {"bomb.mp4": bytes(50_000_000), "fine.mp4": b"x"}, zipfile.ZIP_DEFLATED)
    assert list(ArchiveTree(bomb).refused) == ["bomb.mp4"]
    with gzip.open(tmp_path / "b.tar.gz", "wb", 9) as file, tarfile.open(fileobj=file, mode="w") as archive:
        for number in range(3):
            info = tarfile.TarInfo(f"{number}.mp4")
            info.size = 30_000_000
            archive.addfile(info, io.BytesIO(bytes(info.size)))
    (part,) = survey([tmp_path / "b.tar.gz"]).found
    assert len(part.sources) == 2  # 30 MB each, from 90 kB; nothing more is unpacked
    assert "unpacks to more than 200 times its size" in part.refused["b.tar.gz"]
    head = tarfile.TarInfo("x")
    head.type, head.size = tarfile.XHDTYPE, 2**40  # a header that requests a terabyte of memory
    (tmp_path / "h.tar").write_bytes(head.tobuf() + bytes(1024))
    assert "h.tar" in survey([tmp_path / "h.tar"]).refused


def test_numbers_and_sizes_of_entries_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_ENTRIES", 3)
    path = write_tar(tmp_path / "a.tar", {f"{number}.mp4": b"x" for number in range(5)})
    assert list(ArchiveTree(path).refused) == ["after 3.mp4"]
    monkeypatch.setattr(archives, "MOST_BYTES", 2)
    assert list(ArchiveTree(path).refused) == ["2.mp4", "after 3.mp4"]
    with pytest.raises(DataError, match="1 bytes, more than the limit of 0"):
        extract(SourceFile(path, member="0.mp4"), tmp_path / "out", 0)


def test_broken_archives_say_so(tmp_path: Path) -> None:
    whole = write_tar(tmp_path / "a.tar", {"a.mp4": b"a" * 5000, "b.mp4": b"b" * 50_000})
    (tmp_path / "cut.tar").write_bytes(whole.read_bytes()[:20_000])
    (part,) = survey([tmp_path / "cut.tar"]).found
    assert "cut off" in part.refused["cut.tar"]
    assert taken(tmp_path / "cut.tar", "a.mp4", tmp_path) == b"a" * 5000
    with pytest.raises(DataError, match="cut off inside cut.tar"):
        taken(tmp_path / "cut.tar", "b.mp4", tmp_path)
    packed = write_zip(tmp_path / "a.zip", {"a.mp4": b"a" * 5000})
    data = bytearray(packed.read_bytes())
    data[1000] ^= 1
    packed.write_bytes(data)
    with pytest.raises(DataError, match=r"a\.zip cannot be read as an archive \(Bad CRC"):
        taken(packed, "a.mp4", tmp_path)
    for name in ("text.zip", "text.tar"):
        (tmp_path / name).write_text("<html>sign in</html>")
    with pytest.raises(DataError, match=r"text\.zip.*text\.tar"):
        assert survey([tmp_path / "text.zip", tmp_path / "text.tar"]).sources
    with pytest.raises(DataError, match="no longer in the archive"):
        taken(whole, "gone.mp4", tmp_path)
    with pytest.raises(DataError, match="gone.tar cannot be read"):
        taken(tmp_path / "gone.tar", "a.mp4", tmp_path)
    with pytest.raises(CannotWrite):
        extract(SourceFile(whole, member="a.mp4"), tmp_path / "no" / "folder" / "a.mp4", 10_000)
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.zip"])
def test_members_can_be_extracted_by_several_threads_in_any_order(tmp_path: Path, name: str) -> None:
    members = {f"{number:03d}.mp4": os.urandom(3000) + b"%d" % number for number in range(120)}
    path = write(tmp_path, {}, {name: members}) / name
    right: list[str] = []

    def read(some: list[str], folder: Path) -> None:
        folder.mkdir()
        right.extend(member for member in some if taken(path, member, folder) == members[member])

    names = list(members)
    parts = [names[0::2], names[1::2][::-1]]
    threads = [threading.Thread(target=read, args=(part, tmp_path / str(n))) for n, part in enumerate(parts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(right) == names


AB = ("a.mp4", "b.mp4")
TABLE = "file_name,text\na.mp4,A\nb.mp4,B\n"
Members = dict[str, bytes] | Iterable[str]


def write(folder: Path, files: Mapping[str, str], archives: Mapping[str, Members]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    folder.mkdir(exist_ok=True)
    for name, members in archives.items():
        data = members if isinstance(members, dict) else dict.fromkeys(members, b"v")
        if name.endswith(".zip"):
            write_zip(folder / name, data)
        else:
            write_tar(folder / name, data, "w:gz" if name.endswith("gz") else "w")
    return folder


def captions(found: Survey) -> dict[str, str]:
    return {f"{s.path.name}::{s.member}" if s.member else s.name: s.caption for s in found.sources}


def problems(found: Survey) -> dict[Problem, tuple[str, ...]]:
    return {kind: names for part in found.found for kind, names in part.problems.items()}


@pytest.mark.parametrize("archive", ["clips.zip", "clips.tar", "clips.tar.gz"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("captions.csv", TABLE),
        ("captions.csv", "file_name,text\nclips/a.mp4,A\nclips/b.mp4,B\n"),
        ("captions.csv", "file_name,text\n{}/a.mp4,A\n./{}/b.mp4,B\n"),
        ("captions.csv", "file_name,text\n{}::a.mp4,A\nzip://b.mp4::{},B\n"),
        ("metadata.jsonl", '{{"file_name": "a.mp4", "text": "A"}}\n{{"file_name": "b", "text": "B"}}\n'),
        ("prompts.txt", "a.mp4|A\nclips/b.mp4|B\n"),
    ],
)
def test_a_table_beside_an_archive_captions_its_members(tmp_path: Path, archive: str, name: str, text: str) -> None:
    given = write(tmp_path / "given", {name: text.format(archive, archive)}, {archive: AB})
    expected = {f"{archive}::a.mp4": "A", f"{archive}::b.mp4": "B"}
    for paths in ([given], [given / archive, given / name], [given / name, given / archive]):
        found = survey(paths)
        assert captions(found) == expected
        assert not problems(found), "no name is said to be found by its end"
        assert not found.refused


def test_lists_and_texts_around_an_archive_caption_its_members(tmp_path: Path) -> None:
    lists = {"prompts.txt": "A\nB\n", "videos.txt": "a.mp4\nb.mp4\n"}
    assert captions(survey([write(tmp_path / "lists", lists, {"v.zip": AB})])) == {
        "v.zip::a.mp4": "A",
        "v.zip::b.mp4": "B",
    }
    texts = {"captions/a.txt": "A", "b.txt": "B"}
    found = survey([write(tmp_path / "texts", texts, {"v.zip": AB})])
    assert captions(found) == {"v.zip::a.mp4": "A", "v.zip::b.mp4": "B"}
    assert found.sentences[0].startswith("v.zip: Folders videos and labels: 2 videos, 2 captions")


def test_members_of_several_archives_and_loose_files_are_distinguished(tmp_path: Path) -> None:
    table = "file_name,text\na.mp4,A\nb.mp4,B\none/c.mp4,1\ntwo.zip/c.mp4,2\nd.mp4,D\ngone.mp4,G\ne.mp4,E\n"
    given = write(
        tmp_path / "given",
        {"t.csv": table, "d.mp4": "v"},
        {"one.zip": ("a.mp4", "c.mp4", "e.mp4"), "two.zip": ("x/b.mp4", "x/c.mp4", "x/e.mp4")},
    )
    found = survey([given])
    assert captions(found) == {
        "d.mp4": "D",
        **{"one.zip::a.mp4": "A", "one.zip::c.mp4": "1", "one.zip::e.mp4": ""},
        **{"two.zip::x/b.mp4": "B", "two.zip::x/c.mp4": "2", "two.zip::x/e.mp4": ""},
    }
    assert problems(found) == {
        Problem.NO_VIDEO: ("gone.mp4",),
        Problem.AMBIGUOUS: ("e.mp4 (one/e.mp4, two/e.mp4)",),
        Problem.NO_CAPTION: ("e.mp4", "e.mp4"),
    }


def test_captions_inside_an_archive_take_precedence_and_shards_stay_shards(tmp_path: Path) -> None:
    members = {"000.mp4": b"v", "000.txt": b"inside", "001.mp4": b"v"}
    table = {"t.csv": "file_name,text\n000.mp4,around\n001.mp4,one\n", "00_stats.json": '{"count": 2}'}
    found = survey([write(tmp_path / "given", table, {"00.tar": members})])
    assert [source.caption for source in found.sources] == ["inside", "one"]
    assert [part.layout for part in found.found] == ["csv", "webdataset"]
    assert problems(found)[Problem.DIFFERS] == ("000.mp4 (next to the archive)",)
    assert problems(found)[Problem.NOT_READ][0].startswith("00_stats.json (there is no list of records")
    assert found.sentences[0] == "given: Table metadata.csv: 2 captions for videos in archives"

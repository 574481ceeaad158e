"""Zip and tar files as sources: what is in them, and one member at a time, never unpacked whole; also parquet tables
that hold videos (parquet).

Nothing is written under a member's own name, and no link is followed; entries that would lead outside, links, devices,
encrypted and absurdly packed ones are refused by name, and so are archives of kinds that are not read (`not_read`). A
tar is read forwards, a handle a thread, so that members taken in their order cost one pass, compressed or not. Not
covered: archives inside archives, zip directories of millions of entries (they are read whole).
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import lzma
import os
import re
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from workbench import policy
from workbench.dataset_builder.sources import parquet
from workbench.dataset_builder.sources.columns import PARQUET, USUAL, Columns
from workbench.dataset_builder.sources.text import LONG_RUN, MOST_TEXT_BYTES
from workbench.dataset_builder.sources.tree import Entry, SourceFile, Tree
from workbench.errors import DataError
from workbench.workspace import disk, writing

SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz")
UNPACK = "unpack it, then give its folder"
PACKED = "unpack it, then give the file itself"
# What people give as well, by the ends of names, the longest first.
NOT_READ = {
    ".tar.zst": f"a tar packed with Zstandard, which cannot be read: {UNPACK}",
    ".tar.lz4": f"a tar packed with LZ4, which cannot be read: {UNPACK}",
    ".tar.lzma": f"a tar packed with LZMA, which cannot be read: {UNPACK}",
    ".tar.z": f"a tar packed with compress, which cannot be read: {UNPACK}",
    ".tzst": f"a tar packed with Zstandard, which cannot be read: {UNPACK}",
    ".7z": f"a 7-Zip archive, which cannot be read: {UNPACK}",
    ".rar": f"a RAR archive, which cannot be read: {UNPACK}",
    ".zipx": f"a zip of a newer kind, which cannot be read: {UNPACK}",
    ".cab": f"a Windows cabinet, which cannot be read: {UNPACK}",
    ".iso": f"the image of a disc, which cannot be read: {UNPACK}",
    ".gz": f"a file packed with gzip: {PACKED}",
    ".bz2": f"a file packed with bzip2: {PACKED}",
    ".xz": f"a file packed with xz: {PACKED}",
    ".zst": f"a file packed with Zstandard: {PACKED}",
    ".lz4": f"a file packed with LZ4: {PACKED}",
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "a spreadsheet, which cannot be read: save it as CSV"),
    ".arrow": "an Arrow table, which cannot be read: write its videos out as files",
    ".tfrecord": "a TFRecord file, which cannot be read: write its videos out as files",
}
PART = re.compile(r"\.(z\d\d|r\d\d|part\d+\.rar|(zip|7z|rar|tar|gz|tgz)\.?\d{3})$")
JOIN = "one part of a split archive: unpack all parts together, then give the folder"
MAGIC = {b"Rar!\x1a\x07": ".rar", b"7z\xbc\xaf\x27\x1c": ".7z", b"\x28\xb5\x2f\xfd": ".tar.zst", b"MSCF": ".cab"}
MOST_ENTRIES = 200_000
MOST_BYTES = 1024**4  # of all members together
MOST_ALL_TEXT_BYTES = 512 * 1024**2  # captions and tables are held while the layout is found out
RATIO = 200  # unpacked to packed; videos hardly shrink, captions tenfold
SLACK = 16 * 1024**2  # so little does no harm, however it was packed
CHUNK = 1024**2
LONGEST_END = 66_000  # bytes in which the directory of a zip ends
DRIVE = re.compile(r"[A-Za-z]:")
METHODS = {1: "Shrink", 6: "Implode", 9: "Deflate64", 93: "Zstandard", 95: "XZ", 98: "PPMd", 99: "AES encryption"}
NAMES = ("cp932", "gb18030", "big5", "euc_kr", "cp866", "cp1251")  # encodings of names in zips that do not say UTF-8
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    RuntimeError,  # a password is asked for, or the packing is not known (NotImplementedError)
    ValueError,
    struct.error,
)


def is_archive(path: Path) -> bool:
    """Whether a file's name says that it is an archive, or a table that may be one."""
    return path.name.lower().endswith((*SUFFIXES, PARQUET))


def not_read(name: str) -> str:
    """Say why a container of this kind cannot be read, with the remedy; "" for any other file."""
    low = name.lower()
    if PART.search(low):
        return JOIN
    return "" if low.endswith(SUFFIXES) else next((why for end, why in NOT_READ.items() if low.endswith(end)), "")


class ArchiveTree(Tree):
    """What an archive holds. Reads all its names and captions, once. Raises DataError when it cannot be read."""

    def __init__(self, path: Path, beside: str = "", columns: Columns = USUAL) -> None:
        """beside: the text of a file that belongs to the archive and lies beside it."""
        self.columns = columns
        self._texts, self.beside = dict[str, bytes](), beside
        files, refused = dict[str, int](), dict[str, str]()
        with closing(_open(path, columns.video)) as archive:
            try:
                self._list(archive, files, refused)
            except DAMAGE as error:
                if not files:
                    raise _unreadable(path, error) from error
                refused[path.name] = f"it is cut off or damaged behind {list(files)[-1]!r}: {error}"
        super().__init__(path, files, refused)

    def _list(self, archive: _Reader, files: dict[str, int], refused: dict[str, str]) -> None:
        """Read names, sizes, captions, and why entries are refused."""
        entries, size, text_left = policy.unpacked(MOST_ENTRIES, MOST_BYTES, MOST_ALL_TEXT_BYTES)
        bytes_left = size
        for number, entry in enumerate(archive.entries):
            if number == entries:
                refused[f"after {entry.name}"] = f"more than {entries:,} entries: split the archive"
                break
            if _hidden(entry.name):
                continue
            reason = entry.refused or _unsafe(entry.name) or not_read(entry.name)
            if not reason and is_archive(Path(entry.name)):
                reason = f"an archive inside an archive: {UNPACK}"
            if not reason and entry.name in files:
                reason = "a second entry of this name: the first is taken"
            is_text = self.columns.reads(entry.name) or entry.name.lower().endswith(".id")
            if not reason and is_text and entry.size > min(MOST_TEXT_BYTES, text_left):
                reason = "too much text for captions"
            if not reason and entry.size > bytes_left:
                reason = f"the archive unpacks to more than {size:,} bytes: split it"
            if reason:
                refused[entry.name] = reason
                continue
            files[entry.name] = entry.size
            bytes_left -= entry.size
            if is_text:
                self._texts[entry.name] = b"".join(archive.pieces(entry))
                text_left -= entry.size

    def _data(self, name: str) -> bytes:
        return self._texts.get(name, b"")

    def _source(self, name: str, caption: str) -> SourceFile:
        return SourceFile(self.path, caption, name)


def extract(source: SourceFile, target: Path, most_bytes: int) -> None:
    """Write the bytes of an archive's member into a new file, whole or not at all. Raises DataError, CannotWrite."""
    part = target.with_name(f".{target.name}.part")
    try:
        archive = _handle(source.path)
        entry = archive.find(source.member)
        if entry.size > most_bytes:
            raise DataError(f"it is {entry.size:,} bytes, more than the {most_bytes:,} that an import takes: cut it")
        with writing(target):
            file = part.open("wb")
        with file:
            left = entry.size
            for piece in archive.pieces(entry):
                left -= len(piece)
                with writing(target):
                    file.write(piece)
            with writing(target):
                file.flush()
        if left:
            raise DataError(f"it is cut off inside {source.path.name}: copy the archive again")
        with writing(target):
            disk.replace(part, target)
    except DAMAGE as error:
        _handles.held = None
        raise _unreadable(source.path, error) from error
    finally:
        part.unlink(missing_ok=True)


def _unreadable(path: Path, error: BaseException) -> DataError:
    return DataError(f"{path.name} cannot be read as an archive ({error}): copy or download it again")


def _why_unreadable(path: Path) -> str:
    """Why an archive cannot be read although it is whole: it is of another kind than its name says, or one of parts."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
            file.seek(max(0, path.stat().st_size - LONGEST_END))
            end = file.read()
    except OSError:
        return ""  # opening it says what is wrong
    if kind := next((kind for start, kind in MAGIC.items() if head.startswith(start)), ""):
        return f"is {NOT_READ[kind]}"
    at = end.rfind(b"PK\5\6")
    several = at >= 0 and end[at + 4 : at + 6] not in (b"\0\0", b"\xff\xff")
    return f"is {JOIN}" if several or path.with_suffix(".z01").exists() else ""


# ---- zip and tar alike ----------------------------------------------------------------------------------------------


def _hidden(name: str) -> bool:
    """What no layout looks at: hidden files and macOS's shadows."""
    return any(part.startswith(".") and part not in (".", "..") or part == "__MACOSX" for part in name.split("/"))


def _unsafe(name: str) -> str:
    """Why an entry's name is not one below a root, "" when it is."""
    if name.startswith("/") or (DRIVE.match(name) and name[2:3] == "/"):
        return "its name is an absolute path, which leads outside the archive: pack it with relative names"
    if DRIVE.match(name):
        return "its name begins with the letter of a drive: rename it, then pack it again"
    if ".." in PurePosixPath(name).parts:
        return "its name has '..' in it, which may lead outside the archive: pack it without"
    return "its name has a zero byte in it: rename it, then pack it again" if "\0" in name else ""


def _slashes(name: str) -> str:
    """Replace the backslashes that some Windows programs write into archives."""
    return name.replace("\\", "/").removeprefix("./")


class _Zip:
    def __init__(self, path: Path) -> None:
        self._zip = zipfile.ZipFile(path)
        infos = [info for info in self._zip.infolist() if not info.is_dir() and not info.filename.endswith("\\")]
        names = _zip_names(infos)
        self.entries = [
            Entry(name, info.file_size, self._refused(info), info) for name, info in zip(names, infos, strict=True)
        ]
        self._first = {entry.name: entry for entry in reversed(self.entries)}

    def find(self, name: str) -> Entry:
        return _found(self._first.get(name))

    @staticmethod
    def _refused(info: zipfile.ZipInfo) -> str:
        if info.external_attr >> 28 == 0o12:
            return "a link: put the file itself into the archive"
        if info.flag_bits & 1:
            return "it is encrypted: pack it without a password"
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
            method = METHODS.get(info.compress_type, f"method {info.compress_type}")
            return f"packed with {method}, which cannot be read: unpack the archive, then give its folder"
        if info.file_size > SLACK and info.file_size > RATIO * info.compress_size:
            return f"it unpacks to more than {RATIO} times its size"
        return ""

    def pieces(self, entry: Entry) -> Iterator[bytes]:
        with self._zip.open(entry.info) as file:
            while piece := file.read(CHUNK):
                yield piece

    def close(self) -> None:
        self._zip.close()


def _zip_names(infos: list[zipfile.ZipInfo]) -> list[str]:
    """The members' names. Where a zip does not say that they are UTF-8, their encoding is found out from all of them.

    zipfile reads those as cp437, the encoding of DOS; Windows writes that of its language.
    """
    unsure = [number for number, info in enumerate(infos) if not info.flag_bits & 0x800 and not info.filename.isascii()]
    data = b"\n".join(infos[number].filename.encode("cp437") for number in unsure)
    decoded = dict(zip(unsure, _decoded(data).split("\n"), strict=True)) if unsure else {}
    return [_slashes(decoded.get(number, info.filename)) for number, info in enumerate(infos)]


def _decoded(data: bytes) -> str:
    from charset_normalizer import from_bytes

    with contextlib.suppress(UnicodeDecodeError):
        return data.decode("utf-8")
    best = from_bytes(data, cp_isolation=list(NAMES)).best()
    # Few letters that are not ASCII are Western: other languages have them in rows, but for the two bytes of Japanese.
    sure = best is not None and (best.encoding == "cp932" or LONG_RUN.search(data))
    return str(best) if sure and str(best).count("\n") == data.count(b"\n") else data.decode("cp437")


class _Tar:
    """entries: all members, as far as they have not been read already."""

    def __init__(self, path: Path) -> None:
        self._file = _Careful(path)
        try:
            self._tar: Any = tarfile.open(fileobj=cast(Any, self._file), mode="r:")  # noqa: SIM115 - lives as this does
        except BaseException:
            self._file.close()
            raise
        self._seen: dict[str, Entry] = {}
        self.entries = self._forward()

    def _forward(self) -> Iterator[Entry]:
        while (info := self._tar.next()) is not None:
            if info.size < 0:
                raise tarfile.ReadError("an entry of negative size")
            self._tar.members = []  # it would keep every member; ours is the list that counts
            if not info.isdir():
                entry = Entry(_slashes(info.name), info.size, self._refused(info), info)
                self._seen.setdefault(entry.name, entry)
                yield entry

    @staticmethod
    def _refused(info: tarfile.TarInfo) -> str:
        if info.issym() or info.islnk():
            return "a link: put the file itself into the archive"
        return "" if info.isreg() and not info.issparse() else "not an ordinary file"

    def find(self, name: str) -> Entry:
        while name not in self._seen:
            if next(self.entries, None) is None:
                break
        return _found(self._seen.get(name))

    def pieces(self, entry: Entry) -> Iterator[bytes]:
        self._file.seek(entry.info.offset_data)
        left = entry.size
        while left and (piece := self._file.read(min(CHUNK, left))):
            left -= len(piece)
            yield piece

    def close(self) -> None:
        self._tar.close()
        self._file.close()


def _found(entry: Entry | None) -> Entry:
    if entry is None:
        raise DataError("it is not in the archive any more: import the archive again")
    if entry.refused:
        raise DataError(entry.refused)
    return entry


class _Careful:
    """A tar's bytes, unpacked as they are read, for tarfile: no read fills the memory, no bomb unpacks for ever."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            head = file.read(6)
        openers: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
        opener = openers.get(head[:2])
        self._file: Any = opener(path, "rb") if opener else path.open("rb")
        self._limit = RATIO * path.stat().st_size + SLACK if opener else path.stat().st_size

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= 16 * CHUNK:
            raise tarfile.ReadError("a header that is too large")
        return cast(bytes, self._file.read(size))

    def seek(self, position: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_SET and position > self._limit:
            raise tarfile.ReadError(f"it is cut off, or unpacks to more than {RATIO} times its size")
        return cast(int, self._file.seek(position, whence))

    def tell(self) -> int:
        return cast(int, self._file.tell())

    def close(self) -> None:
        self._file.close()


def _open(path: Path, video_column: str = "") -> _Reader:
    """video_column: the column that is meant, of a table. Raises DataError."""
    if not path.is_file():
        raise DataError(f"{path} is not there: check the name")
    if reason := _why_unreadable(path):
        raise DataError(f"{path.name} {reason}")
    if path.name.lower().endswith(PARQUET):
        return parquet.Rows(path, video_column)
    try:
        return _Zip(path) if path.name.lower().endswith(".zip") else _Tar(path)
    except DAMAGE as error:
        raise _unreadable(path, error) from error


_Reader = _Zip | _Tar | parquet.Rows


@dataclass
class _Held:
    """An open archive, closed with the last reference: a tar refers to itself, so the collector would come late.

    key: its path, size and time
    """

    key: tuple[Path, int, int]
    archive: _Reader

    def __del__(self) -> None:
        self.archive.close()


class _Handles(threading.local):
    """The archive that this thread read last, still open; it goes with the thread."""

    held: _Held | None = None


_handles = _Handles()


def _handle(path: Path) -> _Reader:
    try:
        about = path.stat()
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({error.strerror}): check the archive") from error
    key = (path, about.st_size, about.st_mtime_ns)
    if _handles.held is None or _handles.held.key != key:
        _handles.held = None
        _handles.held = _Held(key, _open(path))
    return _handles.held.archive

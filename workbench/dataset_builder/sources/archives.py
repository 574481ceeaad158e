"""Zip files, tar files and parquet tables as sources: list their members and extract one at a time.

Nothing is written under a member's own name, and no link is followed. Refused by name are entries that would lead
outside, links, devices, encrypted entries, extreme compression ratios, unsupported archives (`not_read`), and archives
inside archives. A tar is read forward with one handle per thread, so reading members in order takes a single pass, even
if it is compressed.

Many datasets on the Hub are parquet tables. Those that contain videos are read as archives, and those that name files
as tables of captions. They need pyarrow (the extra `parquet`). Rows are read a few at a time, and nothing is unpacked
or decoded.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import json
import lzma
import os
import re
import struct
import tarfile
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from workbench.clips.records import METADATA
from workbench.clips.video_files import SUFFIXES
from workbench.dataset_builder.sources.columns import (
    IMAGE_SUFFIXES,
    LONG_RUN,
    MOST_TEXT_BYTES,
    NAME_COLUMNS,
    PARQUET,
    USUAL,
    Columns,
    column_names,
    file_name,
    plain,
)
from workbench.dataset_builder.sources.tree import Entry, SourceFile, Tree
from workbench.errors import DataError
from workbench.jobs import quota
from workbench.paths import extra_command
from workbench.workspace import disk, from_json, writing

ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz")
UNPACK = "unpack it and import the folder"
UNCOMPRESS = "uncompress it and import the file"
# Unsupported containers by the ends of names, the longest first.
NOT_READ = {
    ".tar.zst": f"a tar compressed with Zstandard, which is not supported: {UNPACK}",
    ".tar.lz4": f"a tar compressed with LZ4, which is not supported: {UNPACK}",
    ".tar.lzma": f"a tar compressed with LZMA, which is not supported: {UNPACK}",
    ".tar.z": f"a tar compressed with compress, which is not supported: {UNPACK}",
    ".tzst": f"a tar compressed with Zstandard, which is not supported: {UNPACK}",
    ".7z": f"a 7-Zip archive, which is not supported: {UNPACK}",
    ".rar": f"a RAR archive, which is not supported: {UNPACK}",
    ".zipx": f"a zipx archive, which is not supported: {UNPACK}",
    ".cab": f"a Windows cabinet, which is not supported: {UNPACK}",
    ".iso": f"a disc image, which is not supported: {UNPACK}",
    ".gz": f"a file compressed with gzip: {UNCOMPRESS}",
    ".bz2": f"a file compressed with bzip2: {UNCOMPRESS}",
    ".xz": f"a file compressed with xz: {UNCOMPRESS}",
    ".zst": f"a file compressed with Zstandard: {UNCOMPRESS}",
    ".lz4": f"a file compressed with LZ4: {UNCOMPRESS}",
    **dict.fromkeys((".xlsx", ".xls", ".ods"), "a spreadsheet, which is not supported: save it as CSV"),
    ".arrow": "an Arrow table, which is not supported: save its videos as files",
    ".tfrecord": "a TFRecord file, which is not supported: save its videos as files",
}
PART = re.compile(r"\.(z\d\d|r\d\d|part\d+\.rar|(zip|7z|rar|tar|gz|tgz)\.?\d{3})$")
JOIN = "one part of a split archive: unpack all parts together and import the folder"
MAGIC = {b"Rar!\x1a\x07": ".rar", b"7z\xbc\xaf\x27\x1c": ".7z", b"\x28\xb5\x2f\xfd": ".tar.zst", b"MSCF": ".cab"}
MOST_ENTRIES = 200_000
MOST_BYTES = 1024**4  # of all members
MOST_ALL_TEXT_BYTES = 512 * 1024**2  # captions and tables are kept in memory while the layout is detected
RATIO = 200  # uncompressed to compressed; videos hardly shrink, captions tenfold
SLACK = 16 * 1024**2  # members this small are harmless at any compression ratio
CHUNK = 1024**2
LONGEST_END = 66_000  # bytes at the end of a zip that contain the end of its directory
DRIVE = re.compile(r"[A-Za-z]:")
METHODS = {1: "Shrink", 6: "Implode", 9: "Deflate64", 93: "Zstandard", 95: "XZ", 98: "PPMd", 99: "AES encryption"}
NAMES = ("cp932", "gb18030", "big5", "euc_kr", "cp866", "cp1251")  # encodings of names in zips not marked as UTF-8
DAMAGE = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    RuntimeError,  # a password is needed, or (NotImplementedError) the compression method is unknown
    ValueError,
    struct.error,
)


def is_archive(path: Path) -> bool:
    """Whether a file is an archive, or a table that may be one, judging by its name."""
    return path.name.lower().endswith((*ARCHIVE_SUFFIXES, PARQUET))


def not_read(name: str) -> str:
    """Explain why a container is not supported and what to do; "" for other files."""
    low = name.lower()
    if PART.search(low):
        return JOIN
    reasons = (why for end, why in NOT_READ.items() if low.endswith(end))
    return "" if low.endswith(ARCHIVE_SUFFIXES) else next(reasons, "")


class ArchiveTree(Tree):
    """The contents of an archive."""

    def __init__(self, path: Path, beside: str = "", columns: Columns = USUAL) -> None:
        """Read all names and captions. Raises DataError if the archive cannot be read.

        beside: the text of a file that belongs to the archive and lies beside it.
        """
        self.columns = columns
        self._texts, self.beside = dict[str, bytes](), beside
        files, refused = dict[str, int](), dict[str, str]()
        with closing(_open(path, columns.video)) as archive:
            try:
                self._list(archive, files, refused)
            except DAMAGE as error:
                if not files:
                    raise _unreadable(path, error) from error
                refused[path.name] = f"it is cut off or damaged after {list(files)[-1]!r}: {error}"
        super().__init__(path, files, refused)

    def _list(self, archive: _Reader, files: dict[str, int], refused: dict[str, str]) -> None:
        """Read names, sizes and captions, and decide which entries to refuse."""
        entries, size, text_left = MOST_ENTRIES, MOST_BYTES, MOST_ALL_TEXT_BYTES
        if (limits := quota.current()) is not None:
            entries, size, text_left = limits.entries, limits.size, limits.text
        bytes_left = size
        for number, entry in enumerate(archive.entries):
            if number == entries:
                refused[f"after {entry.name}"] = f"more than {entries:,} entries: split the archive"
                break
            parts = entry.name.split("/")
            if any(part.startswith(".") and part not in (".", "..") or part == "__MACOSX" for part in parts):
                continue  # hidden files and macOS metadata, which layouts ignore
            is_text = self.columns.reads(entry.name) or entry.name.lower().endswith(".id")
            if reason := entry.refused or _unsafe(entry.name) or not_read(entry.name):
                refused[entry.name] = reason
            elif is_archive(Path(entry.name)):
                refused[entry.name] = f"an archive inside an archive: {UNPACK}"
            elif entry.name in files:
                refused[entry.name] = "a second entry with this name: the first is used"
            elif is_text and entry.size > min(MOST_TEXT_BYTES, text_left):
                refused[entry.name] = "too much text for captions"
            elif entry.size > bytes_left:
                refused[entry.name] = f"the archive unpacks to more than {size:,} bytes: split it"
            else:
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
    """Write an archive member to a new file, whole or not at all. Raises DataError, CannotWrite."""
    part = target.with_name(f".{target.name}.part")
    try:
        archive = _handle(source.path)
        entry = archive.find(source.member)
        if entry.size > most_bytes:
            raise DataError(f"it is {entry.size:,} bytes, more than the limit of {most_bytes:,}: split it")
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
    """Explain why an intact archive cannot be read: it is not what its name says, or one part of several. Else ""."""
    try:
        with path.open("rb") as file:
            head = file.read(8)
            file.seek(max(0, path.stat().st_size - LONGEST_END))
            end = file.read()
    except OSError:
        return ""  # opening it will report the error
    if kind := next((kind for start, kind in MAGIC.items() if head.startswith(start)), ""):
        return f"is {NOT_READ[kind]}"
    at = end.rfind(b"PK\5\6")
    several = at >= 0 and end[at + 4 : at + 6] not in (b"\0\0", b"\xff\xff")
    return f"is {JOIN}" if several or path.with_suffix(".z01").exists() else ""


# ---- zip and tar -----------------------------------------------------------------------------------------------------


def _unsafe(name: str) -> str:
    """Explain why an entry's name is not a safe relative path; "" if it is."""
    if name.startswith("/") or (DRIVE.match(name) and name[2:3] == "/"):
        return "its name is an absolute path, which leads outside the archive: pack it with relative paths"
    if DRIVE.match(name):
        return "its name starts with a drive letter: rename it and pack it again"
    if ".." in PurePosixPath(name).parts:
        return "its name contains '..', which may lead outside the archive: pack it without"
    return "its name contains a zero byte: rename it and pack it again" if "\0" in name else ""


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
            return f"compressed with {method}, which is not supported: unpack the archive and import the folder"
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
    """Return the members' names, detecting the encoding of those not marked as UTF-8 from all of them together.

    zipfile decodes those as cp437 (DOS), but Windows writes the encoding of its language.
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
    # Isolated non-ASCII bytes are Western European. Other languages have long runs, except Japanese with its two bytes.
    sure = best is not None and (best.encoding == "cp932" or LONG_RUN.search(data))
    return str(best) if sure and str(best).count("\n") == data.count(b"\n") else data.decode("cp437")


class _Tar:
    """entries: iterates over the members not read yet."""

    def __init__(self, path: Path) -> None:
        self._file = _BoundedFile(path)
        try:
            self._tar: Any = tarfile.open(fileobj=cast(Any, self._file), mode="r:")  # noqa: SIM115 - closed in close()
        except BaseException:
            self._file.close()
            raise
        self._seen: dict[str, Entry] = {}
        self.entries = self._forward()

    def _forward(self) -> Iterator[Entry]:
        while (info := self._tar.next()) is not None:
            if info.size < 0:
                raise tarfile.ReadError("an entry of negative size")
            self._tar.members = []  # tarfile would otherwise keep every member
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
        raise DataError("it is no longer in the archive: import the archive again")
    if entry.refused:
        raise DataError(entry.refused)
    return entry


class _BoundedFile:
    """A decompressing file for tarfile that limits the size of reads and the total size, to stop archive bombs."""

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


# ---- parquet tables --------------------------------------------------------------------------------------------------

ROWS, TEXT_ROWS = 8, 64  # rows per batch of videos, and of texts
BUFFER = 1024**2  # bytes; without it, pyarrow reads whole row groups, which may be the entire file
IMAGES = ("image", "images", "img", "picture", "png", "jpg", "jpeg", "webp")
MEDIA = ("video", "videos", "clip", "mp4", "webm", "mov", "mkv", "avi", "gif", *IMAGES)  # columns of bytes
ANOTHER = "another column of videos or pictures: name it with video_column to use it instead"
TOO_MUCH = f"more than {MOST_TEXT_BYTES / 1024**2:.0f} MB of captions: split the table"


def holds_videos(table: Path, video_column: str = "") -> bool:
    """Whether a table contains videos or pictures rather than their names.

    Raises DataError if it has neither, or cannot be read: pyarrow is missing, it is damaged, or has too much text.
    """
    with _opened(table) as file:
        if not file.metadata.num_rows:
            raise DataError("it has no rows")
        columns = _Columns(file.schema_arrow, video_column)
        if columns.holds and _nulls(file, columns.data) < file.metadata.num_rows:
            return True
        if not columns.media:
            called = f" called {video_column!r}" if video_column else ""
            names = column_names(file.schema_arrow.names)
            raise DataError(f"it has no column of videos or file names{called}: name one of {names} with video_column")
        texts = {name.partition(".")[0] for name in columns.texts}
        size = sum(
            chunk.total_uncompressed_size for chunk in _chunks(file) if chunk.path_in_schema.split(".")[0] in texts
        )
        if size > MOST_TEXT_BYTES:
            raise DataError(TOO_MUCH)
        return False


def as_lines(table: Path, video_column: str = "") -> bytes:
    """Convert a table of file names and texts to JSON Lines. Raises DataError."""
    with _opened(table) as file:
        columns = _Columns(file.schema_arrow, video_column)
        lines, size = list[bytes](), 0
        for row in columns.rows(file):
            lines.append(_line(row))
            size += len(lines[-1])
            if size > MOST_TEXT_BYTES:
                raise DataError(f"{table.name} has {TOO_MUCH}")
    return b"".join(lines)


class Rows:
    """One column's videos or pictures as members, numbered by row, and the other columns as a metadata.jsonl."""

    def __init__(self, table: Path, video_column: str = "") -> None:
        """Raises DataError."""
        self._table, self._stack = table, contextlib.ExitStack()
        self._file = self._stack.enter_context(_opened(table))
        self._video_column = video_column
        self._batches: Iterator[Any] = iter(())
        self._batch: Any = ()
        self._first, self._of = 0, ""  # the batch's first row and its column

    @property
    def entries(self) -> Iterator[Entry]:
        """All members. Their folder is the number of the column. Raises DataError."""
        with _explained(self._table):
            columns = _Columns(self._file.schema_arrow, self._video_column)
            folder, size = f"{columns.schema.names.index(columns.media)}/", 0
            lines, members = list[bytes](), list[Entry]()
            for number, (row, length) in enumerate(
                zip(columns.rows(self._file), self._lengths(columns.data), strict=True)
            ):
                path = file_name(row.pop(columns.media, None))
                suffix = PurePosixPath(path).suffix.lower()
                name = f"{number:06d}{suffix if suffix in (*SUFFIXES, *IMAGE_SUFFIXES) else columns.suffix}"
                if length:
                    members.append(Entry(folder + name, length, "", None))
                line = _line({**row, "file_name": name if length else path, columns.media: name if length else path})
                size += len(line)
                if size <= MOST_TEXT_BYTES:
                    lines.append(line)
            yield Entry(folder + METADATA, size, "", b"".join(lines))
            yield from (Entry(name, 0, ANOTHER, None) for name in columns.others)
            yield from members

    def _lengths(self, column: str) -> Iterator[int]:
        """Yield the size of each row's video in bytes: an estimate if all rows have one, else exact from reading it."""
        if _nulls(self._file, column):
            for cells in _batches(self._file, column):
                yield from (len(cell) for cell in map(_bytes_in, cells))
            return
        for group in range(self._file.metadata.num_row_groups):
            about = self._file.metadata.row_group(group)
            size = sum(chunk.total_uncompressed_size for chunk in _chunks(self._file, column, [group]))
            yield from [max(1, size // max(1, about.num_rows))] * about.num_rows

    def find(self, name: str) -> Entry:
        """Return a member with its bytes. Raises DataError."""
        folder, _, file = name.partition("/")
        column = self._file.schema_arrow.field(int(folder))
        with _explained(self._table):
            data = self._cell(_data(column), int(PurePosixPath(file).stem))
        return Entry(name, len(data), "", data)

    def _cell(self, column: str, number: int) -> bytes:
        """Return the bytes in one row. Access in order reads each row once."""
        if column != self._of or number < self._first:
            self._of, self._first, self._batch, group = column, 0, (), 0
            about = self._file.metadata
            while number - self._first >= about.row_group(group).num_rows:
                self._first, group = self._first + about.row_group(group).num_rows, group + 1
            self._batches = _batches(self._file, column, range(group, about.num_row_groups))
        while number >= self._first + len(self._batch):
            self._first += len(self._batch)
            self._batch = next(self._batches)
        return _bytes_in(self._batch[number - self._first])

    def pieces(self, entry: Entry) -> Iterator[bytes]:
        yield entry.info

    def close(self) -> None:
        self._stack.close()


# ---- pyarrow ---------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(table: Path) -> Iterator[Any]:
    """Open a table. Raises DataError, also for errors while reading it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{table.name} is a parquet table, which needs pyarrow: {extra_command('parquet')}") from None
    with _explained(table), pyarrow.parquet.ParquetFile(table, pre_buffer=False, buffer_size=BUFFER) as file:
        yield file


@contextlib.contextmanager
def _explained(table: Path) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, StopIteration) as error:
        raise DataError(f"{table.name} cannot be read ({str(error)[:200]}): copy or download it again") from error


def _batches(file: Any, column: str, groups: Sequence[int] | None = None) -> Iterator[Any]:
    for batch in file.iter_batches(batch_size=ROWS, columns=[column], row_groups=groups):
        yield batch.column(0)


def _bytes_in(cell: Any) -> bytes:
    value = cell.as_py()
    return (value.get("bytes") if isinstance(value, dict) else value) or b""


def _line(row: Mapping[str, Any]) -> bytes:
    kept = {key: value for key, value in row.items() if value is not None}
    return json.dumps(kept, ensure_ascii=False).encode() + b"\n"


def _chunks(file: Any, column: str = "", groups: Sequence[int] | None = None) -> Iterator[Any]:
    """Yield the metadata of a column's chunks, or of all columns."""
    for group in range(file.metadata.num_row_groups) if groups is None else groups:
        about = file.metadata.row_group(group)
        chunks = map(about.column, range(about.num_columns))
        yield from (chunk for chunk in chunks if column in ("", chunk.path_in_schema))


def _nulls(file: Any, column: str) -> int:
    """Count a column's empty rows, counting chunks without statistics as one."""
    known = [chunk.statistics for chunk in _chunks(file, column)]
    return sum(one.null_count if one is not None and one.has_null_count else 1 for one in known)


class _Columns:
    """The roles of a table's columns.

    media: the column of videos or pictures, or "".
    holds: whether it contains them rather than their names.
    data: path of their bytes.
    suffix: extension of members without a name.
    texts: columns that may have captions or file names.
    others: further columns of videos or pictures.
    """

    def __init__(self, schema: Any, wanted: str) -> None:
        kinds = {field.name: _kind(field.type) for field in schema}
        named_media = {name for name in kinds if plain(name).removesuffix("bytes") in MEDIA}
        media = [name for name, kind in kinds.items() if kind == "file" or (kind == "bytes" and name in named_media)]
        declared = _declared(schema)
        named = [name for of in ("Video", "Image") for name in kinds if declared.get(name) == of]
        readable = [name for name, kind in kinds.items() if kind in ("text", "number")]
        if wanted:
            self.media = next((name for name in kinds if plain(name) == plain(wanted)), "")
        elif named or media:
            self.media = [*named, *media][0]
        else:  # a table of file names
            texts = {plain(name): name for name in reversed(readable)}
            self.media = next((texts[plain(name)] for name in NAME_COLUMNS if plain(name) in texts), "")
        self.schema, self.holds = schema, kinds.get(self.media) in ("file", "bytes")
        self.data = _data(schema.field(self.media)) if self.media else ""
        self.suffix = ".png" if declared.get(self.media) == "Image" or plain(self.media) in IMAGES else ".mp4"
        self.others = [name for name in media if name != self.media]
        # Texts nested in a record, as in a column made from WebDataset's json members.
        inside = {name: schema.field(name).type for name, kind in kinds.items() if kind == "record"}
        fields = {name: [kind.field(at) for at in range(kind.num_fields)] for name, kind in inside.items()}
        nested = {name: [one.name for one in of if _kind(one.type) == "text"] for name, of in fields.items()}
        self._nested = {name: of for name, of in nested.items() if of and name != self.media}
        self.texts = [name for name in readable if name != self.media]
        self.texts += [f"{name}.{one}" for name, of in self._nested.items() for one in of]
        if self.media and not self.holds:
            self.texts.append(self.media)
        elif kinds.get(self.media) == "file" and schema.field(self.media).type.get_field_index("path") >= 0:
            self.texts.append(f"{self.media}.path")

    def rows(self, file: Any) -> Iterator[dict[str, Any]]:
        """Yield the texts of each row, with those nested in records moved to the top level."""
        if not self.texts:
            yield from ({} for _ in range(file.metadata.num_rows))
            return
        for batch in file.iter_batches(batch_size=TEXT_ROWS, columns=self.texts):
            for row in batch.to_pylist():
                for name in self._nested:
                    row = {**(row.pop(name) or {}), **row}
                yield row


def _kind(column: Any) -> str:
    """Classify a column's type.

    "file" is the Hub's {"bytes": ..., "path": ...}; "text" includes lists of texts and records of texts by language;
    "record" is any other record. Also "bytes", "number", and "" for the rest.
    """
    import pyarrow.types as types

    if types.is_dictionary(column) or types.is_list(column) or types.is_large_list(column):
        return "text" if _kind(column.value_type) == "text" else ""
    if types.is_struct(column):
        if column.get_field_index("bytes") >= 0:
            return "file"
        return "text" if all(_kind(column.field(at).type) == "text" for at in range(column.num_fields)) else "record"
    if types.is_string(column) or types.is_large_string(column):
        return "text"
    if types.is_binary(column) or types.is_large_binary(column):
        return "bytes"
    return "number" if types.is_integer(column) else ""


def _data(field: Any) -> str:
    return f"{field.name}.bytes" if _kind(field.type) == "file" else str(field.name)


def _declared(schema: Any) -> dict[str, str]:
    """Return column types from the Hub's metadata in a table ("Video"), or {} if it is invalid."""
    found: Any = None
    with contextlib.suppress(ValueError):
        found = from_json((schema.metadata or {}).get(b"huggingface", b"{}"))
    for name in ("info", "features"):
        found = found.get(name) if isinstance(found, dict) else None
    known = found if isinstance(found, dict) else {}
    return {name: str(one.get("_type")) for name, one in known.items() if isinstance(one, dict)}


# ---- open archives ---------------------------------------------------------------------------------------------------


_Reader = _Zip | _Tar | Rows


def _open(path: Path, video_column: str = "") -> _Reader:
    """Open an archive. Raises DataError. video_column: the column to use in a table, or ""."""
    if not path.is_file():
        raise DataError(f"{path} does not exist: check the name")
    if reason := _why_unreadable(path):
        raise DataError(f"{path.name} {reason}")
    if path.name.lower().endswith(PARQUET):
        return Rows(path, video_column)
    try:
        return _Zip(path) if path.name.lower().endswith(".zip") else _Tar(path)
    except DAMAGE as error:
        raise _unreadable(path, error) from error


@dataclass
class _Held:
    """An open archive, closed with its last reference. A tar has reference cycles, so it would be collected late."""

    key: tuple[Path, int, int]  # path, size and modification time
    archive: _Reader

    def __del__(self) -> None:
        self.archive.close()


_handles = threading.local()  # held: the archive that this thread read last, kept open until the thread ends


def _handle(path: Path) -> _Reader:
    try:
        about = path.stat()
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({error.strerror}): check the archive") from error
    key = (path, about.st_size, about.st_mtime_ns)
    held: _Held | None = getattr(_handles, "held", None)
    if held is None or held.key != key:
        held = _handles.held = None  # closes the other archive
        held = _handles.held = _Held(key, _open(path))
    return held.archive

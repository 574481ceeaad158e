"""Files as one zip, stored as they are since videos do not shrink: on a disk, or piece by piece for a connection."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from workbench.workspace.files import writing

PIECE_BYTES = 1024**2
NamedContents = Iterable[tuple[str, Path | bytes]]
"""(name in the zip, the file to copy or its bytes)"""


def write_zip(path: Path, files: NamedContents) -> None:
    """Write them to `path`. The same files give the same bytes. Raises CannotWrite."""
    with writing(path), path.open("wb") as target:
        for _ in _write(target, files):
            pass


def zip_stream(files: NamedContents) -> Iterator[bytes]:
    """The zip in pieces of about a megabyte; nothing is kept on a disk."""
    target = _Unsent()
    for _ in _write(target, files):
        yield target.take()
    yield target.take()


def _write(target: IO[bytes] | _Unsent, files: NamedContents) -> Iterator[None]:
    """Write the zip, with a stop after each piece."""
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files:
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o644 << 16
            if isinstance(content, bytes):
                archive.writestr(info, content)
                yield
                continue
            info.file_size = content.stat().st_size  # so that a large one gets its large fields
            with content.open("rb") as file, archive.open(info, "w") as member:
                while piece := file.read(PIECE_BYTES):
                    member.write(piece)
                    yield


class _Unsent(io.RawIOBase):
    """A file that cannot be read again: holds what was written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._written = bytearray()

    def write(self, data: Any) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        taken, self._written = bytes(self._written), bytearray()
        return taken

"""Write files as a zip archive, to disk or streamed. Without compression, because videos do not shrink."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from workbench.workspace.files import writing

PIECE_BYTES = 1024**2
NamedContents = Iterable[tuple[str, Path | bytes]]
"""(name in the archive, file or content)"""


def write_zip(path: Path, files: NamedContents) -> None:
    """Write an archive. The same files give the same bytes. Raises CannotWrite."""
    with writing(path), path.open("wb") as target:
        for _ in _write(target, files):
            pass


def zip_stream(files: NamedContents) -> Iterator[bytes]:
    """Yield an archive in pieces of about a megabyte, without using the disk."""
    target = _Unsent()
    for _ in _write(target, files):
        yield target.take()
    yield target.take()


def _write(target: IO[bytes] | _Unsent, files: NamedContents) -> Iterator[None]:
    """Write an archive, yielding after each piece."""
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files:
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o644 << 16
            if isinstance(content, bytes):
                archive.writestr(info, content)
                yield
                continue
            info.file_size = content.stat().st_size  # tells zipfile when to use 64-bit fields
            with content.open("rb") as file, archive.open(info, "w") as member:
                while piece := file.read(PIECE_BYTES):
                    member.write(piece)
                    yield


class _Unsent(io.RawIOBase):
    """A write-only file that holds what was written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self._written = bytearray()

    def write(self, data: Any) -> int:
        self._written += data
        return len(data)

    def take(self) -> bytes:
        taken, self._written = bytes(self._written), bytearray()
        return taken

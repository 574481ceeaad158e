"""A zip on a disk and piece by piece has the same files, and a piece is small however large the files are."""

import io
import os
import zipfile
from pathlib import Path

from workbench.workspace.zip_stream import PIECE_BYTES, write_zip, zip_stream


def contents(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def test_a_large_file_comes_in_small_pieces(tmp_path: Path) -> None:
    video = tmp_path / "a.mp4"
    video.write_bytes(os.urandom(5 * PIECE_BYTES + 7))
    files = [("videos/a.mp4", video), ("é.txt", b"a cat"), ("empty.mp4", b"")]
    pieces = list(zip_stream(files))
    assert max(map(len, pieces)) < PIECE_BYTES + 1000
    assert len(pieces) > 5
    expected = {"videos/a.mp4": video.read_bytes(), "é.txt": b"a cat", "empty.mp4": b""}
    assert contents(b"".join(pieces)) == expected
    for target in (tmp_path / "a.zip", tmp_path / "b.zip"):
        write_zip(target, files)
    assert contents((tmp_path / "a.zip").read_bytes()) == expected
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()

"""A parcel: the files of one push, with their sizes, before anything is sent. No torch.

Not covered: what is in it (lora, space), sending it (pushing).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.clips.records import file_sha256
from workbench.errors import DataError
from workbench.hub import Kind
from workbench.publishing import anonymize

CARD = "README.md"


@dataclass(frozen=True)
class WeightsUpload:
    """A LoRA file whose notes are others than those on this disk: `head`, then the tensors from `begin` on."""

    path: Path
    head: bytes
    begin: int

    @property
    def size(self) -> int:
        return len(self.head) + self.path.stat().st_size - self.begin


Piece = Path | bytes | WeightsUpload


@dataclass(frozen=True)
class Parcel:
    """What goes to one repository.

    files: name there -> a file here, or bytes;  notes: what a person should know before it goes, in sentences
    same:  name -> SHA-256 of files that have to be what they were; looked at when they go
    """

    kind: Kind
    repo_id: str
    private: bool
    message: str
    files: Mapping[str, Piece]
    notes: tuple[str, ...] = field(default=())
    same: Mapping[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by name."""
        return {name: _size(piece) for name, piece in self.files.items()}

    @property
    def card(self) -> str:
        """README.md, "" where none goes."""
        piece = self.files.get(CARD, b"")
        return piece.decode() if isinstance(piece, bytes) else ""

    @property
    def sentence(self) -> str:
        """What goes where, for a person to confirm."""
        sizes, kind = self.sizes, {"model": "model repository", "dataset": "dataset", "space": "Space"}[self.kind]
        total = sum(sizes.values())
        shown = "private" if self.private else "public: everybody sees it"
        files = f"{len(sizes):,} file{'' if len(sizes) == 1 else 's'}, {megabytes(total)}"
        return f"{files}, to the {kind} {self.repo_id} ({shown})"

    def staged(self, folder: Path) -> dict[str, Path | bytes]:
        """The files as they can be sent; those that have to be written anew are written into `folder`.

        Raises DataError for one that is not what it was, CannotWrite.
        """
        for name, sha256 in self.same.items():
            piece = self.files[name]
            if not isinstance(piece, Path) or not piece.is_file() or file_sha256(piece) != sha256:
                raise DataError(f"{name} has changed since it was trained on: bring it back, or turn clips off")
        found: dict[str, Path | bytes] = {}
        for name, piece in self.files.items():
            if isinstance(piece, WeightsUpload):
                anonymize.write_weights(piece.path, folder / name, piece.head, piece.begin)
                piece = folder / name
            found[name] = piece
        return found


def megabytes(count: int) -> str:
    """A size for people."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def _size(piece: Piece) -> int:
    if isinstance(piece, bytes):
        return len(piece)
    return piece.stat().st_size if isinstance(piece, Path) else piece.size

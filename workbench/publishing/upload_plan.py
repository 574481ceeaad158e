"""The upload plan: the files of one push, with their sizes, before anything is sent. No torch.

Not covered: what is in it (lora, space), sending it (push).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.clips.records import file_sha256
from workbench.errors import DataError
from workbench.hub import Kind
from workbench.publishing import anonymize

README = "README.md"


@dataclass(frozen=True)
class WeightsUpload:
    """A LoRA file with other metadata than on this disk: `head`, then the tensors from `begin` on."""

    path: Path
    head: bytes
    begin: int

    @property
    def size(self) -> int:
        return len(self.head) + self.path.stat().st_size - self.begin


FileContent = Path | bytes | WeightsUpload


@dataclass(frozen=True)
class UploadPlan:
    """What is uploaded to one repository.

    files: name there -> a file here, or bytes;  notes: what to know before the upload, in sentences
    unchanged:  name -> SHA-256 of files that must not have changed; checked when they are uploaded
    """

    kind: Kind
    repo_id: str
    private: bool
    message: str
    files: Mapping[str, FileContent]
    notes: tuple[str, ...] = field(default=())
    unchanged: Mapping[str, str] = field(default_factory=dict)

    @property
    def sizes(self) -> dict[str, int]:
        """Bytes by name."""
        return {name: _size(content) for name, content in self.files.items()}

    @property
    def readme(self) -> str:
        """README.md, "" where there is none."""
        content = self.files.get(README, b"")
        return content.decode() if isinstance(content, bytes) else ""

    @property
    def sentence(self) -> str:
        """What is uploaded where, for a person to confirm."""
        sizes, kind = self.sizes, {"model": "model repository", "dataset": "dataset", "space": "Space"}[self.kind]
        total = sum(sizes.values())
        visibility = "private" if self.private else "public: everybody sees it"
        files = f"{len(sizes):,} file{'' if len(sizes) == 1 else 's'}, {megabytes(total)}"
        return f"{files}, to the {kind} {self.repo_id} ({visibility})"

    def staged(self, folder: Path) -> dict[str, Path | bytes]:
        """The files as they can be sent; changed ones are written into `folder`.

        Raises DataError for one that is not as it was, CannotWrite.
        """
        for name, sha256 in self.unchanged.items():
            content = self.files[name]
            if not isinstance(content, Path) or not content.is_file() or file_sha256(content) != sha256:
                raise DataError(f"{name} has changed since it was trained on: bring it back, or turn clips off")
        found: dict[str, Path | bytes] = {}
        for name, content in self.files.items():
            if isinstance(content, WeightsUpload):
                anonymize.write_weights(content.path, folder / name, content.head, content.begin)
                content = folder / name
            found[name] = content
        return found


def megabytes(count: int) -> str:
    """A size for people."""
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count / 1e3:,.1f} kB"


def _size(content: FileContent) -> int:
    if isinstance(content, bytes):
        return len(content)
    return content.stat().st_size if isinstance(content, Path) else content.size

"""The upload plan: the files of one push, with their sizes, before anything is sent. No torch.

Not covered: what is in it (lora, space), sending it (push).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.clips.records import file_sha256
from workbench.display.quantities import byte_size, counted
from workbench.errors import DataError
from workbench.families.lora_files import DIFFUSERS_KEY, DROPPED_KEY, EXPERT_KEY, shortened
from workbench.hub import Kind
from workbench.workspace import from_json, writing

README = "README.md"


# Metadata that a LoRA file keeps. Other trainers write folders and captions there.
NOTES = (
    "format",
    DIFFUSERS_KEY,
    EXPERT_KEY,
    DROPPED_KEY,
    "base_model",
    "base_revision",
    "step",
    "trigger_word",
    "seed",
)


@dataclass(frozen=True)
class WeightsUpload:
    """A LoRA file with other metadata than on this disk: `head`, then the tensors from `begin` on."""

    path: Path
    head: bytes
    begin: int

    @classmethod
    def of(cls, path: Path, **more: str) -> WeightsUpload:
        """A safetensors file with no other metadata than NOTES, of which `more` replaces some. Raises DataError."""
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            try:
                entries = from_json(file.read(length))
                metadata = entries.pop("__metadata__", None) or {} if isinstance(entries, dict) else None
                if not isinstance(metadata, dict):
                    raise ValueError("no header")
                notes = {name: str(value) for name, value in metadata.items() if name in NOTES}
                if DIFFUSERS_KEY in notes:
                    notes[DIFFUSERS_KEY] = shortened(notes[DIFFUSERS_KEY])
            except ValueError:
                raise DataError(f"{path.name} is damaged: export it again") from None
        kept = dict(sorted({**notes, **more}.items()))
        data = json.dumps({"__metadata__": {"format": "pt", **kept}, **entries}, separators=(",", ":")).encode()
        data += b" " * (-len(data) % 8)  # tensors begin at a multiple of eight
        return cls(path, len(data).to_bytes(8, "little") + data, 8 + length)

    def write(self, target: Path) -> None:
        """Raises CannotWrite."""
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("rb") as old, target.open("wb") as new:
                new.write(self.head)
                old.seek(self.begin)
                shutil.copyfileobj(old, new, 1 << 20)

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
        files = f"{counted(len(sizes), 'file')}, {byte_size(total)}"
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
                content.write(folder / name)
                content = folder / name
            found[name] = content
        return found


def _size(content: FileContent) -> int:
    if isinstance(content, bytes):
        return len(content)
    return content.stat().st_size if isinstance(content, Path) else content.size

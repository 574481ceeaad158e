"""Where a layout is written to: a new folder, a new .zip or .tar, or memory.

Not covered: what is written under which name (sources.layouts), giving the whole its name at the end (files).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tarfile
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from io import BytesIO
from pathlib import Path

from workbench.dataset_builder.sources.layouts.base import ExportedClip, LayoutWriter
from workbench.errors import ConfigError
from workbench.workspace import writing

OnClip = Callable[[int, int], None]
"""Called with (clips written, all clips) after each; may raise to stop, upon which nothing is left behind."""


def writer_for(target: Path, part: Path, link: bool, total: int, on_clip: OnClip) -> CountingWriter:
    suffix = target.suffix.lower()
    if suffix == ".zip":
        return ZipWriter(part, total, on_clip)
    if suffix == ".tar":
        return TarWriter(part, total, on_clip)
    if target.name.lower().endswith((".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".7z", ".rar")):
        raise ConfigError(f"target is {target.name}, must be a folder, .zip or .tar: videos do not shrink any further")
    return FolderWriter(part, total, on_clip, link)


class CountingWriter(LayoutWriter):
    """Reports each clip that was written."""

    def __init__(self, total: int, on_clip: OnClip) -> None:
        self.total, self.on_clip, self.done = total, on_clip, 0

    def file(self, name: str, source: Path) -> None:
        self.add(name, source)
        self.done += 1
        self.on_clip(self.done, self.total)

    def text(self, name: str, text: str) -> None:
        self.add(name, text.encode())

    def picture(self, name: str, item: ExportedClip) -> None:
        from PIL import Image

        from workbench.clips import media

        if item.first_frame is not None:
            self.add(name, item.first_frame)
            return
        data = BytesIO()
        Image.fromarray(media.read_frames(item.file, [0])[0]).save(data, "PNG")
        self.add(name, data.getvalue())

    @abstractmethod
    def add(self, name: str, content: Path | bytes) -> None:
        """Put a file, or these bytes, under that name. Raises CannotWrite."""

    def shard(self, name: str) -> AbstractContextManager[LayoutWriter]:
        raise ConfigError("layout is webdataset, which is tar files already: choose a folder or a .tar as target")

    def close(self) -> None:
        """Finish the archive. Raises CannotWrite."""


class Collector(CountingWriter):
    """What would be written, by name, for who sends it elsewhere."""

    def __init__(self) -> None:
        super().__init__(0, lambda *_: None)
        self.contents: dict[str, Path | bytes] = {}

    def add(self, name: str, content: Path | bytes) -> None:
        self.contents[name] = content


class FolderWriter(CountingWriter):
    """A new folder; each shard is a tar in it."""

    splits = True

    def __init__(self, root: Path, total: int, on_clip: OnClip, link: bool = False) -> None:
        super().__init__(total, on_clip)
        self._root, self._link = root, link
        with writing(root):
            root.mkdir()

    def add(self, name: str, content: Path | bytes) -> None:
        path = self._root / name
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
                return
            if self._link:
                with contextlib.suppress(OSError):  # another disk, or one without links
                    os.link(content, path)
                    return
            shutil.copyfile(content, path)

    @contextlib.contextmanager
    def shard(self, name: str) -> Iterator[LayoutWriter]:
        with closing(TarWriter(self._root / name, self.total, self._tell)) as tar:
            yield tar

    def _tell(self, *_: int) -> None:
        self.done += 1
        self.on_clip(self.done, self.total)


class TarWriter(CountingWriter):
    """A new tar, without times and owners, so that the same dataset gives the same bytes."""

    def __init__(self, path: Path, total: int, on_clip: OnClip) -> None:
        super().__init__(total, on_clip)
        self._path = path
        with writing(path):
            self._tar = tarfile.open(path, "w")  # noqa: SIM115 - `close` ends it

    def add(self, name: str, content: Path | bytes) -> None:
        info = tarfile.TarInfo(name)
        with writing(self._path):
            if isinstance(content, bytes):
                info.size = len(content)
                self._tar.addfile(info, BytesIO(content))
                return
            info.size = content.stat().st_size
            with content.open("rb") as file:
                self._tar.addfile(info, file)

    @contextlib.contextmanager
    def shard(self, name: str) -> Iterator[LayoutWriter]:
        yield self

    def close(self) -> None:
        with writing(self._path):
            self._tar.close()


class ZipWriter(CountingWriter):
    """A new zip, stored: videos do not shrink."""

    def __init__(self, path: Path, total: int, on_clip: OnClip) -> None:
        super().__init__(total, on_clip)
        self._path = path
        with writing(path):
            self._zip = zipfile.ZipFile(path, "w")

    def add(self, name: str, content: Path | bytes) -> None:
        info = zipfile.ZipInfo(name)
        info.external_attr = 0o644 << 16
        with writing(self._path):
            if isinstance(content, bytes):
                self._zip.writestr(info, content)
                return
            info.file_size = content.stat().st_size  # so that a large one gets its large fields
            with content.open("rb") as file, self._zip.open(info, "w") as member:
                shutil.copyfileobj(file, member, 1024**2)

    def close(self) -> None:
        with writing(self._path):
            self._zip.close()

"""Write a dataset in another tool's layout: into a new folder, a new .zip or .tar, or a dataset repository on the Hub.

Nothing is ever overwritten, and what is written appears whole or not at all. Clips are copied byte for byte. Not
covered: how layouts look (layouts), the Hub's side (hub), the history of a dataset (an export changes nothing).
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tarfile
import time
import zipfile
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import asdict
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Literal

from workbench import jobs, policy
from workbench.clips.records import Clip, read_clips, read_info
from workbench.dataset_builder.sources.layouts import layout_named
from workbench.dataset_builder.sources.layouts.base import ExportedClip, LayoutWriter
from workbench.errors import ConfigError, DataError
from workbench.settings import Settings, field
from workbench.workspace import confined, sync_folder, writing

TARGET, CAPTIONS, HUB = "Where to", "What", "Hugging Face Hub"
LayoutName = Literal["videofolder", "csv", "sidecars", "lists", "labels", "webdataset"]
OnClip = Callable[[int, int], None]
"""Called with (clips written, all clips) after each; may raise to stop, upon which nothing is left behind."""


class ExportSettings(Settings):
    """What `datasets/<slug>/.export/config.json` holds. One of `target` and `repo_id` is set."""

    layout: LayoutName = field("videofolder", title="Layout", section=CAPTIONS)
    """How videos and captions are laid out: videofolder and csv are read by the Hub, sidecars by kohya's scripts,
    diffusion-pipe and finetrainers, lists by the trainers of the diffusers examples, labels by SAT trainers, webdataset
    by readers of tar shards."""

    target: str = field("", title="Folder or archive", section=TARGET, path=True)
    """A new folder, or a new file that ends in .zip or .tar. What is there already is never touched."""

    trigger_word: bool = field(True, title="Trigger word in the captions", section=CAPTIONS)
    """Write each caption as the model is taught it here, with the trigger word in front. Other tools do not add it by
    themselves."""

    first_frames: bool = field(False, title="First frames, too", section=CAPTIONS, advanced=True)
    """In the layout of lists, also write each clip's first frame and images.txt, for image-to-video training. Where
    clips came with first frames of their own, these are written in any case."""

    hard_links: bool = field(False, title="Share the files", section=TARGET, advanced=True)
    """In a folder on the same disk, let both names stand for one file instead of copying it. Then a tool that rewrites
    the file in place rewrites it here, too."""

    repo_id: str = field("", title="Hub dataset", section=HUB)
    """Push to this dataset on the Hugging Face Hub, as OWNER/NAME, instead of writing to a disk. You must be logged in
    on this machine (`hf auth login`): no token is ever typed or stored here."""

    private: bool = field(True, title="Private", section=HUB)
    """Only you see the dataset on the Hub. A public dataset shows its clips to everybody."""

    license: str = field("", title="License", section=HUB, advanced=True)
    """The license on the dataset's card, in the Hub's short form: cc-by-4.0, cc0-1.0. Empty leaves it out."""


def check(dataset: Path, settings: ExportSettings) -> None:
    """Raises ConfigError unless it says to one place where to."""
    if bool(settings.target.strip()) == bool(settings.repo_id.strip()):
        raise ConfigError("name a folder or archive, or a Hub dataset: one of them, not both")


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """The export as a job. Raises ConfigError, DataError, CannotWrite, ModelUnavailable (the Hub), jobs.Stop."""
    settings = ExportSettings.load(config)
    check(dataset, settings)
    began = time.monotonic()

    def on_clip(done: int, total: int) -> None:
        job.beat("export", done, total, step_seconds=(time.monotonic() - began) / max(1, done))
        if job.take("stop") is not None:
            raise jobs.Stop("stopped: nothing was written")

    if settings.repo_id:
        from workbench.dataset_builder.sources import hub

        pushed = hub.push(dataset, settings, on_clip)
        job.outcome = {"repo_id": settings.repo_id, "clips": len(read_clips(dataset)), **asdict(pushed)}
        left = _left_behind(dataset, "videofolder")
    else:
        path = export(dataset, settings, on_clip)
        job.outcome = {"target": str(path), "layout": settings.layout, "clips": len(read_clips(dataset))}
        left = _left_behind(dataset, settings.layout)
    if left:
        job.outcome["left_behind"] = left


def export(dataset: Path, settings: ExportSettings, on_clip: OnClip = lambda *_: None) -> Path:
    """Write the dataset to `settings.target`; returns its absolute path. Raises ConfigError, DataError, CannotWrite."""
    target = policy.resolve(settings.target, "target")
    if target.is_relative_to(dataset.resolve()):
        raise ConfigError(f"target is {target}, which lies inside the dataset itself: choose a place outside it")
    if os.path.lexists(target):
        raise ConfigError(f"target is {target}, which is there already: choose another name")
    found = items(dataset, settings.trigger_word)
    part = target.with_name(f".{target.name}.{dataset.name}.part")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove(part)  # an export that was killed
    try:
        with closing(_writer(target, part, settings.hard_links, len(found), on_clip)) as writer:
            layout_named(settings.layout).write(found, writer, settings.first_frames)
        _publish(part, target)
    finally:
        _remove(part)
    return target


def items(dataset: Path, trigger_word: bool) -> list[ExportedClip]:
    """The dataset's clips as layouts write them, in the dataset's order. Raises DataError when a file is missing."""
    info, found = read_info(dataset), read_clips(dataset)
    if not found:
        raise DataError(f"{dataset.name} has no clips to export: import some")
    taken: set[str] = set()
    result = []
    for clip in found:
        file = confined(dataset, clip.file_name)
        if not file.is_file():
            raise DataError(f"{clip.file_name} is missing in {dataset.name}: bring it back, or remove the clip")
        path = PurePosixPath(clip.file_name)
        stem = re.sub(r"[^A-Za-z0-9_-]+", "_", path.stem)
        name = stem + path.suffix
        while name.lower() in taken:
            stem += "_"
            name = stem + path.suffix
        taken.add(name.lower())
        caption = info.caption(clip) if trigger_word else clip.text
        result.append(ExportedClip(clip, file, name, caption, _first_frame(dataset, clip)))
    return result


def _first_frame(dataset: Path, clip: Clip) -> Path | None:
    """The picture that came with a clip as its first frame. Raises DataError when it is missing."""
    if not (name := clip.first_frame):
        return None
    if not (picture := confined(dataset, name)).is_file():
        raise DataError(f"{name}, the first frame of {clip.file_name}, is missing in {dataset.name}: bring it back")
    return picture


def _left_behind(dataset: Path, layout: str) -> str:
    """What the layout has no place for, in words; "" when it has room for everything."""
    count = sum(bool(clip.first_frame) for clip in read_clips(dataset))
    if not count or layout_named(layout).pictures:
        return ""
    return f"{count} first frames that came with clips have no place in this layout: lists keeps them"


def _publish(part: Path, target: Path) -> None:
    """Give what was written its name. Raises ConfigError when something else took that name meanwhile."""
    with writing(target):
        os.sync()
        try:
            if part.is_dir():
                os.rename(part, target)
            else:
                os.link(part, target)  # unlike a rename, it replaces nothing
        except OSError:
            if os.path.lexists(target):
                raise ConfigError(f"target is {target}, which is there already: choose another name") from None
            os.rename(part, target)  # a disk without links
        sync_folder(target.parent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# ---- writers --------------------------------------------------------------------------------------------------------


def _writer(target: Path, part: Path, link: bool, total: int, on_clip: OnClip) -> _Counting:
    suffix = target.suffix.lower()
    if suffix == ".zip":
        return ZipWriter(part, total, on_clip)
    if suffix == ".tar":
        return TarWriter(part, total, on_clip)
    if target.name.lower().endswith((".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".7z", ".rar")):
        raise ConfigError(f"target is {target.name}, must be a folder, .zip or .tar: videos do not shrink any further")
    return FolderWriter(part, total, on_clip, link)


class _Counting(LayoutWriter):
    """Tells of each clip that was written."""

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


class Collector(_Counting):
    """What would be written, by name, for who sends it elsewhere."""

    def __init__(self) -> None:
        super().__init__(0, lambda *_: None)
        self.contents: dict[str, Path | bytes] = {}

    def add(self, name: str, content: Path | bytes) -> None:
        self.contents[name] = content


class FolderWriter(_Counting):
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


class TarWriter(_Counting):
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


class ZipWriter(_Counting):
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

"""Export a dataset, as a job: in another tool's layout to a new folder, .zip or .tar, or to the Hub.

Exports never overwrite anything and appear atomically. Clips are copied byte for byte. No token passes through here
(workbench.hub). For a download in the page, the task writes an archive to the workspace's cache:

    cache/downloads/DATASET/DATASET-20261123-101500.zip      only the newest of each dataset is kept
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tarfile
import time
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath

from workbench import hub, jobs
from workbench.clips.records import DatasetInfo, read_clips, read_info
from workbench.dataset_builder.companions import companion_path
from workbench.dataset_builder.settings import ExportSettings
from workbench.dataset_builder.sources.layouts import layout_named
from workbench.dataset_builder.sources.layouts.base import ExportedClip, ExportedFiles
from workbench.dataset_builder.sources.layouts.tables import VideoFolder
from workbench.dataset_builder.sources.layouts.text_files import shards_of
from workbench.dataset_builder.tasks import Task
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.hub import Pushed
from workbench.workspace import Workspace, confined, disk, named_paths, sync_folder, writing
from workbench.workspace.zip_stream import write_zip, zip_stream

LONGEST_NAME = 80  # characters of an exported file name, without suffix
RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)\d", re.IGNORECASE)  # device names on Windows
OTHER_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".7z", ".rar")
IN_SHARDS = "layout is webdataset, which already consists of tar files: choose {}"
SIZE_CATEGORIES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))  # the Hub's
# Called with (clips or files written, all of them); may raise to stop, which leaves nothing behind.
OnClip = Callable[[int, int], None]


def check(dataset: Path, settings: ExportSettings) -> None:
    """Raise ConfigError unless the settings name exactly one destination."""
    if bool(settings.target.strip()) == bool(settings.repo_id.strip()):
        raise ConfigError("set either target (a folder or archive) or repo_id (a Hub dataset)")


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Export as a job. Raises ConfigError, DataError, CannotWrite, ModelUnavailable (the Hub), jobs.Stop."""
    settings = ExportSettings.load(config)
    check(dataset, settings)
    began = time.monotonic()

    def on_clip(done: int, total: int) -> None:
        job.beat("export", done, total, step_seconds=(time.monotonic() - began) / max(1, done))
        job.check_stop("stopped: nothing was written")

    if settings.repo_id:
        pushed = push(dataset, settings, on_clip)
        job.outcome = {"repo_id": settings.repo_id, **asdict(pushed)}
    else:
        path = export(dataset, settings, on_clip)
        job.outcome = {"target": str(path), "layout": settings.layout}
    clips = read_clips(dataset)
    job.outcome["clips"] = len(clips)
    count, left = sum(bool(clip.first_frame) for clip in clips), []
    if count and not layout_named("videofolder" if settings.repo_id else settings.layout).pictures:
        left.append(f"{count} first frames that came with clips have no place in this layout: lists keeps them")
    if latents := sum(clip.is_latents for clip in clips):
        left.append(f"{counted(latents, 'clip')} of latents exported unchanged: other tools may not read them")
    if left:
        job.outcome["left_behind"] = "; ".join(left)


# ---- to a disk -------------------------------------------------------------------------------------------------------


def export(dataset: Path, settings: ExportSettings, on_clip: OnClip = lambda *_: None) -> Path:
    """Write the dataset to `settings.target`; return its absolute path. Raises ConfigError, DataError, CannotWrite."""
    target = named_paths.resolve(settings.target, "target")
    if target.is_relative_to(dataset.resolve()):
        raise ConfigError(f"target is {target}, which is inside the dataset itself: choose a place outside it")
    if os.path.lexists(target):
        raise ConfigError(f"target is {target}, which already exists: choose another name")
    clips = exported_clips(dataset, settings.trigger_word)
    part = target.with_name(f".{target.name}.{dataset.name}.part")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove(part)  # left by a killed export
    try:
        _write(clips, settings, target.name, part, on_clip)
        with writing(target):
            disk.sync()
            try:
                if part.is_dir():
                    disk.replace(part, target)
                else:
                    os.link(part, target)  # unlike a rename, never replaces a file
            except OSError:
                if os.path.lexists(target):
                    raise ConfigError(f"target is {target}, which already exists: choose another name") from None
                disk.replace(part, target)  # no hard links on this file system
            sync_folder(target.parent)
    finally:
        _remove(part)
    return target


def export_stream(dataset: Path, settings: ExportSettings) -> Iterator[bytes]:
    """Stream the dataset as a zip in `settings.layout`. Raises ConfigError, DataError before the first piece."""
    layout = layout_named(settings.layout)
    if layout.shards:
        raise ConfigError(IN_SHARDS.format("a layout for a zip"))
    return zip_stream(layout.files(exported_clips(dataset, settings.trigger_word), settings.first_frames))


def exported_clips(dataset: Path, trigger_word: bool, readable: bool = True) -> list[ExportedClip]:
    """List the dataset's clips for export, in order. Raises DataError if a file is missing.

    readable: whether to name files after their sources and times. Off: by content, which reveals neither.
    """
    info, found = read_info(dataset), read_clips(dataset)
    if not found:
        raise DataError(f"{dataset.name} has no clips to export: import some")
    taken: set[str] = set()
    result = []
    for clip in found:
        file = confined(dataset, clip.file_name)
        if not file.is_file():
            raise DataError(f"{clip.file_name} is missing in {dataset.name}: restore it, or remove the clip")
        path = PurePosixPath(clip.file_name)
        title = path.stem
        if readable:  # "walk_0m12-0m15" of "walk.mp4 0:12-0:15"
            title = Path(clip.source).stem or Path(clip.master or clip.file_name).stem
            title += f"_{clip.times}".replace(":", "m").replace(".", "s") if clip.times else ""
        wanted = stem = _portable(title) or f"clip_{_portable(clip.id)}"
        count = 1
        while stem.lower() in taken:
            count += 1
            stem = f"{wanted}_{count}"
        taken.add(stem.lower())
        name = stem + path.suffix
        caption = info.caption(clip) if trigger_word else clip.text
        beside = {kind: here for kind in clip.companions if (here := companion_path(dataset, clip, kind))}
        first = confined(dataset, clip.first_frame) if clip.first_frame else None
        if first and not first.is_file():
            lost = f"{clip.first_frame}, the first frame of {clip.file_name}, is missing"
            raise DataError(f"{lost} in {dataset.name}: restore it")
        result.append(ExportedClip(clip, file, name, caption, first, beside))
    return result


def _portable(text: str) -> str:
    """Make a file name that every file system and trainer accepts; "" if nothing is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    stem = re.sub(r"[^A-Za-z0-9_-]+", "_", plain)
    if len(stem) > LONGEST_NAME:  # keep the end, which has the times
        stem = stem[: LONGEST_NAME // 2] + "_" + stem[1 - LONGEST_NAME // 2 :]
    stem = stem.strip("_-")
    return f"clip_{stem}" if RESERVED.fullmatch(stem) else stem


def _write(clips: Sequence[ExportedClip], settings: ExportSettings, name: str, part: Path, on_clip: OnClip) -> None:
    """Write a folder, zip or tar, by the target's name, to `part`. Raises ConfigError, DataError, CannotWrite."""
    layout, done = layout_named(settings.layout), 0

    def reported(of: Sequence[ExportedClip]) -> ExportedFiles:
        nonlocal done
        paths = {clip.file for clip in of}
        for entry in layout.files(of, settings.first_frames):
            yield entry
            if entry[1] in paths:
                done += 1
                on_clip(done, len(clips))

    low = name.lower()
    if low.endswith(OTHER_ARCHIVES):
        raise ConfigError(f"target is {name}, must be a folder, .zip or .tar: videos do not compress any further")
    if low.endswith(".tar"):
        _write_tar(part, reported(clips))
    elif low.endswith(".zip"):
        if layout.shards:
            raise ConfigError(IN_SHARDS.format("a folder or a .tar as target"))
        write_zip(part, reported(clips))
    else:
        with writing(part):
            part.mkdir()
        if not layout.shards:
            _write_folder(part, reported(clips), settings.hard_links)
            return
        for number, shard in enumerate(shards_of(clips)):
            _write_tar(part / f"shard-{number:06d}.tar", reported(shard))


def _write_folder(folder: Path, files: ExportedFiles, link: bool) -> None:
    for name, content in files:
        path = folder / name
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
                continue
            if link:
                with contextlib.suppress(OSError):  # another file system, or one without hard links
                    os.link(content, path)
                    continue
            shutil.copyfile(content, path)


def _write_tar(path: Path, files: ExportedFiles) -> None:
    """Write a tar without times and owners, so that the same dataset gives the same bytes."""
    with writing(path), tarfile.open(path, "w") as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
                continue
            info.size = content.stat().st_size
            with content.open("rb") as file:
                tar.addfile(info, file)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# ---- to the Hub ------------------------------------------------------------------------------------------------------


def contents(dataset: Path, settings: ExportSettings) -> dict[str, Path | bytes]:
    """Return the files of a push (name -> path or bytes): the VideoFolder layout with a card. Raises DataError."""
    clips = exported_clips(dataset, settings.trigger_word, readable=False)
    files = dict(VideoFolder(texts=False).files(clips, first_frames=False))
    return {**files, "README.md": dataset_card(read_info(dataset), clips, settings).encode()}


def push(dataset: Path, settings: ExportSettings, on_file: OnClip = lambda *_: None) -> Pushed:
    """Upload a dataset to `settings.repo_id` in the VideoFolder layout, as one commit, which can be reverted there.

    A new repository is private unless the settings say otherwise. Raises ConfigError (also for private clips and a
    public repository), DataError, HubRefuses, HubLost.
    """
    files = contents(dataset, settings)
    message = f"{len(read_clips(dataset))} clips from Video LoRA Workbench"
    return hub.push("dataset", settings.repo_id, files, message, settings.private, on_file)


def dataset_card(info: DatasetInfo, found: Sequence[ExportedClip], settings: ExportSettings) -> str:
    """Generate the dataset's README.md."""
    from huggingface_hub import DatasetCardData

    clips = [item.clip for item in found]
    sizes = Counter(f"{clip.width}x{clip.height}" for clip in clips).most_common()
    rates = Counter(f"{clip.fps:g}" for clip in clips).most_common()
    data = DatasetCardData(
        pretty_name=info.title or None,
        license=settings.license or None,
        task_categories=["text-to-video"],
        size_categories=[next((name for limit, name in SIZE_CATEGORIES if len(clips) < limit), "100K<n<1M")],
        tags=["video", "lora"],
    )
    facts = [
        ("Clips", f"{len(clips):,}"),
        ("Length", f"{sum(clip.seconds for clip in clips):,.1f} s"),
        ("Sizes", ", ".join(f"{size} ({count})" for size, count in sizes[:5])),
        ("Frames per second", ", ".join(f"{rate} ({count})" for rate, count in rates[:5])),
        ("With a caption", f"{sum(bool(item.caption) for item in found):,}"),
    ]
    if heard := sum(clip.sound is not None for clip in clips):
        facts.append(("With sound", f"{heard:,}"))
    if info.trigger_word:
        written = "written into the captions" if settings.trigger_word else "not written into the captions"
        facts.append(("Trigger word", f"`{info.trigger_word}`, {written}"))
    table = "".join(f"| {name} | {value} |\n" for name, value in facts)
    return (
        f"---\n{data.to_yaml()}\n---\n\n# {info.title or settings.repo_id.rpartition('/')[2]}\n\n"
        "Captioned video clips for fine-tuning a video model: constant frame rate, upright, square pixels, H.264.\n\n"
        f"| | |\n| --- | --- |\n{table}\n"
        "```python\nfrom datasets import Video, load_dataset\n\n"
        f'clips = load_dataset("{settings.repo_id}", split="train").cast_column("video", Video(decode=False))\n```\n'
    )


# ---- downloads in the page -------------------------------------------------------------------------------------------

FOLDER = "downloads"  # below the workspace's cache


def start_download(dataset: Path, settings: ExportSettings) -> None:
    """Export to an archive for download, in the background; delete the previous one. Ignores the settings' destination.

    Raises ConfigError, CannotWrite.
    """
    ending = ".tar" if layout_named(settings.layout).shards else ".zip"
    target = _folder(dataset) / f"{dataset.name}-{time.strftime('%Y%m%d-%H%M%S')}{ending}"
    Task(dataset, "export").start(settings.changed(target=str(target), repo_id=""))
    for earlier in _folder(dataset).glob(f"{dataset.name}-*"):
        if earlier != target:
            earlier.unlink(missing_ok=True)


def finished_download(dataset: Path) -> Path | None:
    """Return the archive of the last export for download; None if it went elsewhere or is not finished."""
    target = Path(str(Task(dataset, "export").result.get("target", "")))
    return target if target.parent == _folder(dataset) and target.is_file() else None


def _folder(dataset: Path) -> Path:
    return Workspace.of(dataset).cache / FOLDER / dataset.name

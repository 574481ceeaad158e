"""Pictures that came with clips as their first frames (images.txt), for image-to-video training.

    first_frames/ID.png    RGB, as large as its clip, named by its content; the record's column `first_frame` names it

Most such pictures are the clip's own first frame, extracted by another tool: those say nothing new and are dropped,
with a note in the result. One that differs (a cleaned frame, a drawing) is kept. Foreign pictures are opened in a
child process with limits on time and memory (jobs.limited): `python -m workbench.dataset_builder.ingest.first_frames
DATASET`. Each task is {picture, clip}, its answer {name, note}. Not covered: which picture belongs to which clip
(layouts).
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.records import read_clips, write_clips
from workbench.dataset_builder.history import editing
from workbench.dataset_builder.ingest.canonical import MAX_PIXELS
from workbench.dataset_builder.ingest.pictures import read_picture
from workbench.dataset_builder.ingest.results import ImportResult, append_import_result
from workbench.dataset_builder.ingest.worker import MODULES
from workbench.dataset_builder.sources import archives
from workbench.dataset_builder.sources.tree import SourceFile
from workbench.errors import CannotWrite, DataError
from workbench.jobs.limited import ChildLost, LimitedChild, Watch, serve
from workbench.workspace import write_bytes, writing

MODULE = "workbench.dataset_builder.ingest.first_frames"
FOLDER = "first_frames"
SECONDS = 60.0  # of computing for one picture
MOST_BYTES = 512 * 1024**2
ALIKE_DB = 30.0  # what a JPEG of the very frame reaches; pictures this near look the same
NEAR_SHAPE = 0.02  # by which proportions may differ before something is cut off
KEPT = "the first frame that came with it is kept beside it"
OWN = "the first frame that came with it is its own: not kept twice"
LEFT_OUT = "the first frame that came with it is left out: {}"
OTHER = "it has another first frame already, which stays"


def take(
    dataset: Path, sources: Sequence[SourceFile], results: Sequence[ImportResult], on_picture: Callable[[], None]
) -> list[ImportResult]:
    """Take the pictures of imported sources into the dataset; the import results with what became of each picture.

    on_picture: called after each; may raise to stop. Raises CannotWrite.
    """
    there = {clip.file_name for clip in read_clips(dataset)}
    answers: dict[str, tuple[str, str]] = {}
    reported = []
    with contextlib.closing(_Reader(dataset)) as reader:
        for source, result in zip(sources, results, strict=True):
            if source.first_frame is None or not result.usable or result.file_name not in there:
                reported.append(result)
                continue
            name, note = reader.ask(source.first_frame, result.file_name)
            answers[result.file_name] = name, note
            reported.append(result)
            on_picture()
    notes = _put(dataset, answers)
    return [_noted(dataset, result, notes.get(result.file_name, "")) for result in reported]


def _put(dataset: Path, answers: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Name the pictures in the records; file name -> what became of its picture."""
    notes = {name: note for name, (_, note) in answers.items()}
    pictures = {name: picture for name, (picture, _) in answers.items() if picture}
    with editing(dataset):
        before = read_clips(dataset)
        now = []
        for clip in before:
            new = pictures.get(clip.file_name, "")
            if new and clip.first_frame not in ("", new):
                notes[clip.file_name] = OTHER
                new = ""
            now.append(clip.changed(first_frame=new) if new else clip)
        if now != before:
            write_clips(dataset, now)
    return notes


def _noted(dataset: Path, result: ImportResult, note: str) -> ImportResult:
    if not note:
        return result
    new = result.model_copy(update={"notes": (*result.notes, note)})
    if result.outcome != "known":  # what is written of its first import stays
        append_import_result(dataset, new)
    return new


class _Reader:
    """Hands the pictures to the child process that opens them."""

    def __init__(self, dataset: Path) -> None:
        self._dataset = dataset
        self._scratch = dataset / ".import" / f"first-frame-{os.getpid()}"
        self._child = LimitedChild(MODULE, dataset)

    def ask(self, picture: SourceFile, clip: str) -> tuple[str, str]:
        """(name of the picture that was kept or "", what became of it). Raises CannotWrite."""
        try:
            if picture.member:
                with writing(self._scratch):
                    self._scratch.parent.mkdir(parents=True, exist_ok=True)
                archives.extract(picture, self._scratch, MOST_BYTES)
            path = self._scratch if picture.member else picture.path
            media.check_file(path)
            answer = json.loads(self._child.ask({"picture": str(path), "clip": clip}, SECONDS))
            return str(answer["name"]), str(answer["note"])
        except ChildLost as lost:
            if lost.code == CannotWrite.exit_code:
                raise CannotWrite(f"cannot write {self._dataset / FOLDER}: free some space") from None
            return "", LEFT_OUT.format("reading it brought the decoder down: it is damaged, copy it again")
        except DataError as error:
            return "", LEFT_OUT.format(error)
        except OSError as error:
            return "", LEFT_OUT.format(f"it cannot be read ({error.strerror})")
        finally:
            self._scratch.unlink(missing_ok=True)

    def close(self) -> None:
        self._child.close()


# ---- in the child ---------------------------------------------------------------------------------------------------


def main(dataset: Path) -> None:
    """Handle tasks until stdin ends."""

    def handle(task: dict[str, Any], watch: Watch) -> str:
        try:
            name, note = keep(dataset, Path(task["picture"]), task["clip"])
        except DataError as error:
            name, note = "", LEFT_OUT.format(error)
        return json.dumps({"name": name, "note": note})

    serve(handle, MODULES)


def keep(dataset: Path, picture: Path, clip: str) -> tuple[str, str]:
    """(the picture's name in the dataset, "" when it is the clip's own first frame; what became of it in words).

    Raises DataError when it cannot be read, CannotWrite.
    """
    import numpy as np
    from PIL import Image

    own = media.read_frames(dataset / clip, [0])[0]
    given, _, changes = read_picture(picture, MAX_PIXELS)
    fitted, cut = _fitted(given, own.shape[1], own.shape[0])
    error = np.mean((np.asarray(fitted, np.float32) - own) ** 2)
    if 10 * np.log10(255**2 / max(float(error), 1e-9)) >= ALIKE_DB:
        return "", OWN
    data = io.BytesIO()
    Image.fromarray(np.asarray(fitted)).save(data, "PNG")  # the pixels alone, so that the same ones are the same file
    name = f"{FOLDER}/{hashlib.sha256(data.getvalue()).hexdigest()[:16]}.png"
    if not (dataset / name).exists():
        write_bytes(dataset / name, data.getvalue())
    return name, "; ".join([KEPT, *changes, *cut])


def _fitted(picture: Any, width: int, height: int) -> tuple[Any, list[str]]:
    """The picture as large as its clip, and what was done to it that shows."""
    from PIL import Image, ImageOps

    if picture.size == (width, height):
        return picture, []
    if abs(picture.width / picture.height * height / width - 1) <= NEAR_SHAPE:
        return picture.resize((width, height), Image.Resampling.LANCZOS), []
    fitted = ImageOps.fit(picture, (width, height), Image.Resampling.LANCZOS)
    return fitted, [f"cut to the clip's proportions (it was {picture.width}x{picture.height})"]


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except CannotWrite as error:
        sys.exit(int(error.exit_code))

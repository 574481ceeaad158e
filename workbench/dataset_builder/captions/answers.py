"""The answers of a caption job, on disk before anything else: a line each in `.caption/captions.jsonl`.

    {"settings": {...}, "model": NAME, "task": ID}    the first line: the request
    {"file_name": NAME, "text": CAPTION}  an answer
    {"written": [NAME, ...]}              these are in the dataset's records

The records follow in batches that double in size: the first captions are seen at once, and at any moment at least half
of all are in the records. All batches of a job are one entry in the history, which grows, so that one undo takes all
back. Each batch looks at the records again, so that what a person wrote in the meantime stays. Not covered: who
answers, and the loop that asks (captioning).
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench.clips.records import Clip, read_clips
from workbench.dataset_builder import history
from workbench.workspace import append_line, writing
from workbench.workspace.records import read_json_lines


def written_by_hand(clip: Clip) -> bool:
    """Whether a person wrote the caption it has."""
    return clip.caption_by == "hand" and bool(clip.text.strip())


class Answers:
    """The answers of one job, kept through stops and kills.

    texts: file name -> caption, as answered; kept: those whose clip has a person's caption by now, which stays
    failed: file name -> the clip's name, and why it has no caption
    """

    def __init__(self, dataset: Path, path: Path, settings: dict[str, Any], model: str) -> None:
        self._dataset, self._path = dataset, path
        self._request: dict[str, Any] = {"settings": settings, "model": model, "task": secrets.token_hex(8)}
        self._pending: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.kept: set[str] = set()
        self.failed: dict[str, str] = {}
        self._read()
        self.write_down()

    @property
    def count(self) -> int:
        """How many clips are through, with a caption or without."""
        return len(self.texts) + len(self.failed)

    @property
    def outcome(self) -> dict[str, Any]:
        """For the job's result: how many clips became what, and why some got no caption."""
        counts = {"captioned": len(self.texts) - len(self.kept), "kept": len(self.kept), "failed": len(self.failed)}
        return {"counts": counts, "failed": dict(self.failed)}

    def take(self, answer: dict[str, str]) -> None:
        """Keep an answer of an `Asker`. A caption reaches the records now or with the next batch. Raises CannotWrite.

        A later job asks again about a clip that got none.
        """
        name = answer["file_name"]
        if "text" not in answer:
            self.failed[name] = answer["failed"]
            return
        self._append(answer)
        self.texts[name] = self._pending[name] = answer["text"]
        if 2 * len(self._pending) >= len(self.texts):
            self.write_down()

    def write_down(self) -> None:
        """Put the answers into the records that are not there yet. Raises CannotWrite."""
        if self._pending:
            what, task = f"captions by {self._request['model']}", str(self._request.get("task", ""))
            history.edit(self._dataset, what, lambda clips: list(self._filled(clips)), task)
            self._append({"written": list(self._pending)})
            self._pending.clear()

    def forget(self) -> None:
        """The job is over: the next one starts afresh. Raises CannotWrite."""
        with writing(self._path):
            self._path.unlink(missing_ok=True)

    def _filled(self, clips: Sequence[Clip]) -> Iterator[Clip]:
        """The records with their answers, but for captions that somebody has written since we asked."""
        settings = self._request["settings"]
        for clip in clips:
            text = self._pending.get(clip.file_name)
            if text is None or text == clip.text:
                continue
            by_hand = written_by_hand(clip) and not settings["overwrite_hand"]
            if by_hand or (settings["which"] == "missing" and clip.text.strip()):
                self.kept.add(clip.file_name)
            else:
                yield clip.changed(text=text, caption_by=settings["captioner"])

    def _read(self) -> None:
        """Take up an earlier job's answers: all of them when it was asked the same, else only what is not written."""
        lines = read_json_lines(self._path)
        if not lines or "settings" not in lines[0]:
            self.forget()
            self._append(self._request)
            return
        for line in lines[1:]:
            if "text" in line:
                self.texts[line["file_name"]] = self._pending[line["file_name"]] = line["text"]
            for name in line.get("written", ()):
                self._pending.pop(name, None)
        if all(lines[0].get(name) == self._request[name] for name in ("settings", "model")):
            self._request = lines[0]
            # What was undone or edited since is asked for again.
            now = {clip.file_name: clip.text for clip in read_clips(self._dataset)}
            self.texts = {
                name: text for name, text in self.texts.items() if name in self._pending or now.get(name) == text
            }
            return
        request, self._request = self._request, lines[0]
        self.write_down()
        self.forget()
        self._request, self.texts, self.kept = request, {}, set()
        self._append(request)

    def _append(self, line: dict[str, Any]) -> None:
        append_line(self._path, json.dumps(line, ensure_ascii=False))

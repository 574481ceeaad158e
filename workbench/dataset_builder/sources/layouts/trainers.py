"""The tables of four trainers, with their columns for control clips, references and masks.

They are read like any other table (layouts.tables). This module defines their names and how to write them.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.clips import media
from workbench.dataset_builder.sources.columns import IMAGE_SUFFIXES, one_line
from workbench.dataset_builder.sources.layouts.base import ExportedClip, ExportedFiles
from workbench.dataset_builder.sources.layouts.records import FORMULA
from workbench.dataset_builder.sources.layouts.tables import Table, tables_of
from workbench.dataset_builder.sources.tree import Tree


class TrainerTable(Table):
    """A trainer's table.

    name_column: its column of file names.
    text_column: its column of captions.
    kinds: kind -> column of companion files.
    more_columns: other columns that its tables always have.
    """

    name_column: str
    text_column: str
    kinds: Mapping[str, str]
    more_columns: tuple[str, ...] = ()

    def recognize(self, tree: Tree) -> bool:
        signature = {self.name_column, self.text_column, *self.more_columns}
        return bool(tree.named) and any(
            table.file == self.file and table.names and signature <= {*table.columns} for table in tables_of(tree)
        )

    def row(self, clip: ExportedClip) -> dict[str, Any]:
        """Return a clip's row."""
        row = {self.name_column: f"videos/{clip.name}", self.text_column: one_line(clip.caption)}
        return row | {self.column(kind, name): name for kind, name in clip.beside.items()}

    def column(self, kind: str, name: str) -> str:
        """Return the column for a companion file."""
        return self.kinds[kind]

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        for clip in clips:
            yield f"videos/{clip.name}", clip.file
            yield from clip.files_beside
        yield self.file, self.table([self.row(clip) for clip in clips]).encode()

    def table(self, rows: Sequence[Mapping[str, Any]]) -> str:
        """Return the table's text, JSON Lines by default."""
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


class VideoXFun(TrainerTable):
    """A metadata.json for VideoX-Fun's scripts, with the columns file_path, text, type and control_file_path."""

    name = "videox-fun"
    title = "VideoX-Fun (metadata.json)"
    file = "metadata.json"
    endings = (".json",)
    name_column, text_column, more_columns = "file_path", "text", ("type",)
    kinds = {
        "control": "control_file_path",
        "reference": "reference_file_path",
        "mask": "mask_file_path",
        "last_frame": "end_image",
    }

    def row(self, clip: ExportedClip) -> dict[str, Any]:
        return {**super().row(clip), "type": "image" if clip.clip.is_image else "video"}

    def table(self, rows: Sequence[Mapping[str, Any]]) -> str:
        return json.dumps(rows, ensure_ascii=False, indent=1) + "\n"


class Musubi(TrainerTable):
    """A dataset.jsonl for musubi-tuner (video_jsonl_file), with the columns video_path, caption and control_path."""

    name = "musubi"
    title = "musubi-tuner (dataset.jsonl)"
    file = "dataset.jsonl"
    endings = (".jsonl",)
    name_column, text_column = "video_path", "caption"
    kinds = {
        "control": "control_path",
        "reference": "reference_path",
        "mask": "loss_mask_path",
        "last_frame": "end_image_path",
    }


class LtxTrainer(TrainerTable):
    """A dataset.jsonl for the LTX trainers, with the columns media_path, caption, reference_video and video_mask."""

    name = "ltx"
    title = "LTX trainer (dataset.jsonl)"
    file = "dataset.jsonl"
    endings = (".jsonl",)
    name_column, text_column = "media_path", "caption"
    kinds = {
        "control": "control_video",
        "reference": "reference_video",
        "mask": "video_mask",
        "last_frame": "last_image",
    }


class DiffSynth(TrainerTable):
    """A metadata.csv for DiffSynth-Studio, with columns such as video, prompt, control_video and vace_video_mask."""

    name = "diffsynth"
    title = "DiffSynth-Studio (metadata.csv)"
    file = "metadata.csv"
    endings = (".csv",)
    name_column, text_column = "video", "prompt"
    kinds = {
        "control": "control_video",
        "reference": "reference_video",
        "mask": "vace_video_mask",
        "last_frame": "end_image",
    }
    pictures = True

    def column(self, kind: str, name: str) -> str:
        is_picture = kind == "reference" and name.lower().endswith(IMAGE_SUFFIXES)
        return "reference_image" if is_picture else self.kinds[kind]

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        first_frames = first_frames or any(clip.first_frame for clip in clips)
        for clip in clips:
            if first_frames and (clip.first_frame or not clip.clip.is_latents):
                yield f"images/{clip.stem}.png", clip.first_frame or media.first_frame_png(clip.file)
        yield from super().files(clips, first_frames)

    def row(self, clip: ExportedClip) -> dict[str, Any]:
        picture = {"input_image": f"images/{clip.stem}.png"} if clip.first_frame else {}
        return {**super().row(clip), **picture}

    def table(self, rows: Sequence[Mapping[str, Any]]) -> str:
        columns = list(dict.fromkeys(column for row in rows for column in row))
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(columns)
        for row in rows:
            cells = [str(row.get(column, "")) for column in columns]
            writer.writerow([f"'{cell}" if FORMULA.match(cell) else cell for cell in cells])
        return text.getvalue()

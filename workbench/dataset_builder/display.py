"""What a dataset looks like in a notebook, as HTML that carries its files inside: clips, history, frame plans.

Not covered: videos and tables themselves (inline_html), findings and statistics (each shows itself).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from workbench.clips.buckets import BucketTable
from workbench.clips.frame_plan import FramePlan, Shape
from workbench.clips.records import Clip, damage, known_info, read_clips
from workbench.dataset_builder.history import Change, thumbnail_name
from workbench.dataset_builder.ingest.results import ImportResult
from workbench.dataset_builder.snapshot import PLAN_COLUMNS, Summary, plan_rows, plan_sentence
from workbench.display.charts import bars
from workbench.display.html import escaped
from workbench.display.inline_html import figure, folded, heading, note, picture, row, table

MOST_CLIPS, MOST_ROWS = 24, 200
VIDEO_WIDTH = 320  # pixels


class ClipView(NamedTuple):
    """A clip as a model gets it: a video of exactly those frames, and the plan by which they were taken."""

    path: Path
    plan: FramePlan

    def _repr_html_(self) -> str:
        warnings = "".join(f" {warning}." for warning in self.plan.warnings)
        caption = f"What the model gets: {self.plan.sentence}. It is {self.plan.use}.{warnings}"
        return figure(self.path, caption, VIDEO_WIDTH, self.plan.crop[3])


@dataclass(frozen=True)
class PlanTable:
    """The frame plans of all clips at one shape, and the buckets that would lose least."""

    shape: Shape
    plans: list[FramePlan]
    buckets: BucketTable

    def _repr_html_(self) -> str:
        """The plan of every clip in words, those that are left out first, and the chosen buckets as bars."""
        rows = plan_rows(self.plans, MOST_ROWS)
        parts = [note(plan_sentence(self.shape, self.plans)), table(PLAN_COLUMNS, rows)]
        if self.buckets.assignments:
            counts = {str(bucket): count for bucket, count in self.buckets.clips_per_bucket.items()}
            parts += [bars("The buckets that lose least", counts), note(self.buckets.sentence)]
        return "".join(parts)


class ChangeList(list[Change]):
    """The history of a dataset, the oldest change first."""

    def _repr_html_(self) -> str:
        rows = [(one.number, one.kind, one.what) for one in reversed(self)]
        return table(("number", "kind", "change"), rows[:MOST_ROWS]) if rows else note("Nothing was changed yet.")


def dataset_html(folder: Path, summary: Summary, results: Sequence[ImportResult]) -> str:
    """The summary, the first clips with their captions, the files that were refused."""
    info, clips = known_info(folder), read_clips(folder)
    trigger = f" · trigger word {info.trigger_word}" if info.trigger_word else ""
    tiles = [_tile(folder, clip) for clip in clips[:MOST_CLIPS]]
    more = note(f"and {len(clips) - MOST_CLIPS:,} more clips") if len(clips) > MOST_CLIPS else ""
    refused = [note(one.sentence) for one in results if not one.usable]
    count = "1 file was" if len(refused) == 1 else f"{len(refused)} files were"
    files = folded(f"{count} refused", "".join(refused)) if refused else ""
    damaged = "".join(note(one, "error") for one in damage(folder))
    head = f"{heading(info.title or folder.name)}{note(summary.sentence + trigger)}{damaged}"
    return f"{head}{row(tiles)}{more}{files}"


def _tile(folder: Path, clip: Clip) -> str:
    thumbnail = picture(folder / thumbnail_name(clip), clip.name, 128)
    facts = f"{clip.seconds:.2f} s, {clip.width}x{clip.height}"
    style = "width:136px;margin:0 8px 8px 0;font-size:88%;line-height:1.3;overflow-wrap:anywhere"
    return f'<div style="{style}">{thumbnail}{escaped(clip.text or "no caption")}{note(facts)}</div>'

"""What a dataset looks like in a notebook, as HTML that carries its files inside: clips, history, frame plans.

Not covered: videos and tables themselves (inline_html), findings and statistics (each shows itself), finding out what
is shown (views).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.clips.records import Clip, read_clips, read_info
from workbench.dataset_builder.snapshot import PLAN_COLUMNS, plan_rows, plan_sentence
from workbench.html import escaped
from workbench.inline_html import (
    bars,
    figure,
    folded,
    heading,
    note,
    picture,
    row,
    table,
)

if TYPE_CHECKING:
    from workbench.dataset_builder.history import Change
    from workbench.dataset_builder.views import ClipView, PlanTable

MOST_CLIPS, MOST_ROWS = 24, 200
VIDEO_WIDTH = 320  # pixels


def dataset_html(folder: Path, summary: str, refused: Sequence[str]) -> str:
    """The summary, the first clips with their captions, the files that were refused."""
    info, clips = read_info(folder), read_clips(folder)
    trigger = f" · trigger word {info.trigger_word}" if info.trigger_word else ""
    tiles = [_tile(folder, clip) for clip in clips[:MOST_CLIPS]]
    more = note(f"and {len(clips) - MOST_CLIPS:,} more clips") if len(clips) > MOST_CLIPS else ""
    count = "1 file was" if len(refused) == 1 else f"{len(refused)} files were"
    files = folded(f"{count} refused", "".join(map(note, refused))) if refused else ""
    return f"{heading(info.title or folder.name)}{note(summary + trigger)}{row(tiles)}{more}{files}"


def _tile(folder: Path, clip: Clip) -> str:
    thumbnail = picture(folder / "thumbs" / f"{clip.id}.jpg", clip.source or clip.id, 128)
    facts = f"{clip.seconds:.2f} s, {clip.width}x{clip.height}"
    style = "width:136px;margin:0 8px 8px 0;font-size:88%;line-height:1.3;overflow-wrap:anywhere"
    return f'<div style="{style}">{thumbnail}{escaped(clip.text or "no caption")}{note(facts)}</div>'


def history_html(changes: Sequence[Change]) -> str:
    """A row a change, the newest first."""
    rows = [(one.number, one.kind, one.what) for one in reversed(changes)]
    return table(("number", "kind", "change"), rows[:MOST_ROWS]) if rows else note("Nothing was changed yet.")


def clip_view_html(view: ClipView) -> str:
    """The frames of the plan as a video, with the plan in words."""
    warnings = "".join(f" {warning}." for warning in view.plan.warnings)
    caption = f"What the model gets: {view.plan.sentence}. It is {view.plan.use}.{warnings}"
    return figure(view.path, caption, VIDEO_WIDTH, view.plan.crop[3])


def plan_table_html(found: PlanTable) -> str:
    """The plan of every clip in words, those that are left out first, and the chosen buckets as bars."""
    rows = plan_rows(found.plans, MOST_ROWS)
    parts = [note(plan_sentence(found.shape, found.plans)), table(PLAN_COLUMNS, rows)]
    if found.buckets.assignments:
        counts = {str(bucket): count for bucket, count in found.buckets.clips_per_bucket.items()}
        parts += [bars("The buckets that lose least", counts), note(found.buckets.sentence)]
    return "".join(parts)

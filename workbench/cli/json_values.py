"""What commands print with --json, made from what is known. Not covered: what the keys mean (json_documents)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.cli.json_documents import CLIP
from workbench.clips.buckets import BucketTable
from workbench.clips.frame_plan import FramePlan, Shape
from workbench.clips.records import Clip
from workbench.dataset_builder.checks.findings import CheckReport
from workbench.dataset_builder.checks.statistics import Statistics
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import last_change, plan_sentence
from workbench.fit.estimate import Fit
from workbench.runs.settings import TrainSettings

if TYPE_CHECKING:
    from workbench.dataset_builder.sources.hub import Remote
    from workbench.dataset_builder.sources.survey import Survey, SurveyedFiles


def dataset_list(found: Iterable[Dataset]) -> list[dict[str, Any]]:
    return [
        {
            "name": one.name,
            "folder": str(one.folder),
            "title": one.info.title or one.name,
            "trigger_word": one.info.trigger_word,
            "group": one.group,
            "created_at": one.info.created,
            "changed_at": last_change(one.folder),
            "own_notes": one.notes,
            "summary": asdict(one.summary),
            "damage": one.damage,
        }
        for one in found
    ]


def dataset_clips(dataset: Dataset) -> dict[str, Any]:
    """What `dataset show` adds to the snapshot."""
    captions = dataset.captions
    return {
        "folder": str(dataset.folder),
        "clips": [{**one, "caption": captions[one["file_name"]]} for one in clip_list(dataset.clips)],
        "refused": [one.sentence for one in dataset.import_results if not one.usable],
    }


def preview(remote: Remote | None, found: Survey, sentences: list[str]) -> dict[str, Any]:
    """What an import would take of a repository of the Hub, and of files that were named."""
    return {
        "hub_dataset": asdict(remote) if remote else None,
        "sources": [_surveyed(part) for part in found.found],
        "refused": dict(found.refused),
        "sentences": sentences,
    }


def _surveyed(part: SurveyedFiles) -> dict[str, Any]:
    return {
        "name": part.name,
        "path": str(part.path),
        "layout": part.layout,
        "other_layouts": list(part.others),
        "bytes": part.size,
        "files": [{"name": one.name, "caption": one.caption} for one in part.sources if not one.refused],
        "warnings": part.warnings(),
        "refused": {**part.refused, **{one.name: one.refused for one in part.sources if one.refused}},
    }


def clip_list(found: Iterable[Clip]) -> list[dict[str, Any]]:
    return [
        {**{name: getattr(clip, name) for name in CLIP if name != "caption"}, "caption": clip.text} for clip in found
    ]


def statistics(found: Statistics) -> dict[str, Any]:
    histograms = {name: asdict(one) for name, one in found.histograms.items()}
    return {"notes": found.notes, "histograms": histograms, "counts": found.counts}


def findings(name: str, report: CheckReport) -> dict[str, Any]:
    parts = {"kind", "title", "sentence", "severity", "clips", "fixes"}
    found = [one.model_dump(mode="json", include=parts) for one in report.findings]
    for one in found:
        one["fixes"] = [fix.replace("_", "-") for fix in one["fixes"]]
    numbers = {name: getattr(report, name) for name in ("sentence", "checked_at", "model", "clips", "new_clips")}
    return {"dataset": name, **numbers, "findings": found}


def plans(shape: Shape, found: Sequence[FramePlan], written: Sequence[Path]) -> dict[str, Any]:
    """What a model of that shape gets of each clip."""
    plain = ("sentence", "indices", "resize", "crop", "fps", "use", "warnings", "dropped")
    clips = [{**_named(one.clip), **{name: getattr(one, name) for name in plain}} for one in found]
    return _plan(shape, plan_sentence(shape, found), clips, {}, written)


def bucket_table(shape: Shape, table: BucketTable) -> dict[str, Any]:
    clips = [
        {**_named(one.clip), "bucket": str(one.bucket) if one.bucket else None, "dropped": one.dropped}
        for one in table.assignments
    ]
    buckets = {str(bucket): count for bucket, count in table.clips_per_bucket.items()}
    return _plan(shape, table.sentence, clips, buckets, ())


def _plan(
    shape: Shape, sentence: str, clips: list[dict[str, Any]], buckets: dict[str, int], written: Sequence[Path]
) -> dict[str, Any]:
    sizes = {name: getattr(shape, name) for name in ("frames", "height", "width", "fps")}
    return {
        "sentence": sentence,
        **sizes,
        "clips": clips,
        "buckets": buckets,
        "written": [str(path) for path in written],
    }


def _named(clip: Clip) -> dict[str, str]:
    return {"file_name": clip.file_name, "name": clip.name}


def fit(found: Fit, settings: TrainSettings, warnings: list[str]) -> dict[str, Any]:
    phases = [
        {
            "name": one.name,
            "gb": one.gb,
            "fits": found.phase_fits(one),
            "measured": one.measured is not None,
            "parts": dict(one.parts),
        }
        for one in found.phases
    ]
    return {
        "fits": found.fits,
        "sentence": found.sentence,
        "advice": found.advice,
        "warnings": warnings,
        "gpu": asdict(found.gpu),
        "phases": phases,
        "host_gb": found.host_gb,
        "disk": dict(found.disk),
        "step_seconds": found.times.step,
        "seconds": found.times.total,
        "settings": settings.model_dump(mode="json", exclude_defaults=True),
    }

"""Encode a run's dataset in advance, on several processes and machines: `cache/encoding/KEY/`.

    work.json               settings, precision, and the shards: [kind, first, last) of captions or pieces
    shards/                 which worker does which shard (workbench.jobs.shards)
    HOST-ID/                the job of one machine (workbench.jobs): config.json has `processes`; worker-N.log has one
                            line, "encoded KEY", per encoded clip or caption

KEY is the hash of all tensors to encode, so machines that need the same ones share the work. A run with these settings
then finds its tensors in the cache.
"""

from __future__ import annotations

import math
import socket
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench import jobs
from workbench.errors import ConfigError
from workbench.families import settle
from workbench.fit.constants import CAPTIONS_AT_ONCE
from workbench.jobs import platform, queue
from workbench.jobs.devices import gpus_of, pick_device
from workbench.jobs.log import log
from workbench.jobs.shards import Shards, Workers, make_once, take_shards
from workbench.runs.checks import check
from workbench.runs.data import ENCODINGS, WORK, load_data
from workbench.runs.settings import TrainSettings
from workbench.settings import Settings, field, parse
from workbench.trainer.encoder import (
    Encoder,
    EncodingWork,
    encoder_of,
    encoding_work,
    key_of,
    precision_of,
)
from workbench.workspace import Workspace, read_json, slugify

MODULE = "workbench.trainer.encoding_job"
CAPTIONS_A_SHARD = 512  # large, so that few workers have to load the text encoder
Kind = Literal["captions", "clips"]


class EncodeSettings(Settings):
    """How one machine shares the work among processes."""

    processes: int = field(0, title="Processes", section="Work", low=0, high=256)
    """Workers on this machine. 0 means one per GPU, or a single one without a GPU."""

    clips_a_shard: int = field(32, title="Clips per shard", section="Work", low=1, high=10_000, advanced=True)
    """How many clips a worker takes at a time. If a machine goes down, only its current shards are lost."""


@dataclass(frozen=True)
class Plan:
    """The work in shards: (kind, first, last) of captions or pieces."""

    settings: TrainSettings
    precision: str
    work: EncodingWork
    shards: Sequence[tuple[Kind, int, int]]

    @property
    def total(self) -> int:
        """The number of captions and pieces."""
        return len(self.work.captions) + len(self.work.pieces)


def plan_encoding(workspace: Workspace, settings: TrainSettings, how: EncodeSettings) -> Path:
    """Plan the work, or join work that is already planned, and return the folder of this machine's job.

    Raises ConfigError, DataError, ModelUnavailable, CannotWrite.
    """
    settings = settings.changed(model=settle(settings.model))
    check(workspace, settings)
    if settings.tokenizer_steps:
        raise ConfigError.of(
            "tokenizer_steps",
            f"tokenizer_steps is {settings.tokenizer_steps}, but the tokenizer that encodes the clips is not trained "
            f"yet: start the run, which trains it and then encodes them",
        )
    family, model = settings.resolved
    where = family.fetch(model)
    precision = precision_of(family, where, settings, pick_device(settings.device).kind)
    found = encoding_work(settings, load_data(workspace, settings))
    keys = found.keys(encoder_of(workspace, settings, where, "cpu", precision))
    parent = workspace.cache / ENCODINGS / key_of({"keys": sorted(keys)})
    shards = [*_cut("captions", len(found.captions), CAPTIONS_A_SHARD)]
    shards += _cut("clips", len(found.pieces), how.clips_a_shard)
    kept = {"settings": settings.model_dump(mode="json"), "precision": precision, "shards": shards}
    make_once(parent / WORK, kept)
    folder = machine_of(parent)
    how.save(folder / jobs.CONFIG)
    return folder


def machine_of(parent: Path) -> Path:
    """Return the folder of this machine's job."""
    return parent / slugify(f"{socket.gethostname()[:40]}-{platform.boot_id()[:8]}")


def _cut(kind: Kind, count: int, size: int) -> list[tuple[Kind, int, int]]:
    return [(kind, n * size, min(count, (n + 1) * size)) for n in range(math.ceil(count / size))]


def _read_plan(workspace: Workspace, parent: Path) -> Plan:
    kept = read_json(parent / WORK)
    settings = parse(TrainSettings, kept["settings"])
    found = encoding_work(settings, load_data(workspace, settings))
    return Plan(settings, kept["precision"], found, [tuple(one) for one in kept["shards"]])


# ---- the job of one machine


def launch(folder: Path) -> int:
    """Start this machine's workers and wait for them."""
    with jobs.Job(folder) as job:
        workspace, parent = Workspace.open(folder.parents[3]), folder.parent
        how = EncodeSettings.load(folder / jobs.CONFIG)
        job.beat("reading the dataset")
        plan = _read_plan(workspace, parent)
        shards = Shards(parent, len(plan.shards))
        devices = gpus_of(plan.settings.device)[: how.processes or None]
        count = how.processes or max(1, len(devices))
        # Machines may share the queue's file; each waits with a process of its own.
        with queue.acquired(workspace, devices, job, f"encoding {plan.settings.dataset}"):
            Workers(job, MODULE, count, devices).run(shards, "encoding", plan.total)
        job.outcome = {"encoded": sum(shards.finished().values()), "workers": count}
    return int(job.exit_code)


# ---- one worker


def worker(folder: Path) -> int:
    """Encode shards until none are left."""
    workspace, parent = Workspace(folder.parents[3]), folder.parent
    plan = _read_plan(workspace, parent)
    family, model = plan.settings.resolved
    # A worker sees only its own GPU, so the number in the setting does not apply.
    device = pick_device(plan.settings.device.partition(":")[0]).torch_name
    encoder = encoder_of(workspace, plan.settings, family.fetch(model), device, plan.precision)
    shards = Shards(parent, len(plan.shards))
    return take_shards(shards, lambda number: _encode(plan, number, encoder), encoder.kept_loaded())


def _encode(plan: Plan, number: int, encoder: Encoder) -> Iterator[int]:
    """Encode what the cache lacks of one shard, yielding the number of captions or clips done."""
    kind, first, last = plan.shards[number]
    if kind == "clips":
        for piece in plan.work.pieces[first:last]:
            if (key := encoder.clip_key(*piece)) not in encoder.cache:
                encoder.encode_clip(piece)
                log(f"encoded {key}")
            yield 1
        return
    for at in range(first, last, CAPTIONS_AT_ONCE):
        captions = plan.work.captions[at : min(last, at + CAPTIONS_AT_ONCE)]
        missing = [key for key in map(encoder.caption_key, captions) if key not in encoder.cache]
        encoder.encode_captions(captions, lambda *_: None)
        for key in missing:
            log(f"encoded {key}")
        yield len(captions)


def main() -> int:
    """Run as the coordinator of this machine (one argument) or as a worker (two)."""
    folder, *number = sys.argv[1:]
    return worker(Path(folder).resolve()) if number else launch(Path(folder).resolve())


if __name__ == "__main__":
    sys.exit(main())

"""Encode a run's dataset in advance, on several processes and machines: `cache/encoding/KEY/`.

    work.json               settings, precision, and the shards: [kind, first, last) of captions or pieces
    shards/                 which worker does which shard (workbench.jobs.shards)
    HOST-ID/                the job of one machine (workbench.jobs): config.json has `processes`; worker-N.log has one
                            line, "encoded KEY", per encoded clip or caption

KEY is the hash of all tensors to encode, so machines that need the same ones share the work. A run with these settings
then finds its tensors in the cache.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

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
from workbench.trainer.encoder import Encoder, EncodingWork, encoder_of, encoding_work, precision_of
from workbench.workspace import Workspace, read_json, slugify
from workbench.workspace.records import key_of

MODULE = "workbench.trainer.encoding_job"
CAPTIONS_A_SHARD = 512  # large, so that few workers have to load the text encoder
Shard = tuple[str, int, int]  # (kind, first, last) of captions or pieces


class EncodeSettings(Settings):
    """How one machine shares the work among processes."""

    processes: int = field(0, title="Processes", section="Work", low=0, high=256)
    """Workers on this machine. 0 means one per GPU, or a single one without a GPU."""

    clips_a_shard: int = field(32, title="Clips per shard", section="Work", low=1, high=10_000, advanced=True)
    """How many clips a worker takes at a time. If a machine goes down, only its current shards are lost."""


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
    shards = list[Shard]()
    for kind, count, size in (
        ("captions", len(found.captions), CAPTIONS_A_SHARD),
        ("clips", len(found.pieces), how.clips_a_shard),
    ):
        shards += [(kind, first, min(count, first + size)) for first in range(0, count, size)]
    kept = {"settings": settings.model_dump(mode="json"), "precision": precision, "shards": shards}
    make_once(parent / WORK, kept)
    folder = machine_of(parent)
    how.save(folder / jobs.CONFIG)
    return folder


def machine_of(parent: Path) -> Path:
    return parent / slugify(f"{socket.gethostname()[:40]}-{platform.boot_id()[:8]}")


def _read_plan(workspace: Workspace, parent: Path) -> tuple[TrainSettings, str, EncodingWork, Sequence[Shard]]:
    """Return the run's settings, the precision, the work and its shards."""
    kept = read_json(parent / WORK)
    settings = parse(TrainSettings, kept["settings"])
    work = encoding_work(settings, load_data(workspace, settings))
    return settings, kept["precision"], work, [tuple(one) for one in kept["shards"]]


# ---- the job of one machine


def launch(job: jobs.Job) -> None:
    """Start this machine's workers and wait for them."""
    workspace, parent = Workspace.open(job.folder.parents[3]), job.folder.parent
    how = EncodeSettings.load(job.folder / jobs.CONFIG)
    job.beat("reading the dataset")
    settings, _, work, cut = _read_plan(workspace, parent)
    shards = Shards(parent, len(cut))
    devices = gpus_of(settings.device)[: how.processes or None]
    count = how.processes or max(1, len(devices))
    # Machines may share the queue's file; each waits with a process of its own.
    with queue.acquired(workspace, devices, job, f"encoding {settings.dataset}"):
        Workers(job, MODULE, count, devices).run(shards, "encoding", len(work.captions) + len(work.pieces))
    job.outcome = {"encoded": sum(shards.finished().values()), "workers": count}


# ---- one worker


def worker(folder: Path) -> int:
    """Encode shards until none are left."""
    workspace, parent = Workspace(folder.parents[3]), folder.parent
    settings, precision, work, cut = _read_plan(workspace, parent)
    family, model = settings.resolved
    # A worker sees only its own GPU, so the number in the setting does not apply.
    device = pick_device(settings.device.partition(":")[0]).torch_name
    encoder = encoder_of(workspace, settings, family.fetch(model), device, precision)
    return take_shards(
        Shards(parent, len(cut)), lambda number: _encode(work, cut[number], encoder), encoder.kept_loaded()
    )


def _encode(work: EncodingWork, shard: Shard, encoder: Encoder) -> Iterator[int]:
    """Encode what the cache lacks of one shard, yielding the number of captions or clips done."""
    kind, first, last = shard
    if kind == "clips":
        for piece in work.pieces[first:last]:
            if (key := encoder.clip_key(*piece)) not in encoder.cache:
                encoder.encode_clip(piece)
                log(f"encoded {key}")
            yield 1
        return
    for at in range(first, last, CAPTIONS_AT_ONCE):
        captions = work.captions[at : min(last, at + CAPTIONS_AT_ONCE)]
        missing = [key for key in map(encoder.caption_key, captions) if key not in encoder.cache]
        encoder.encode_captions(captions, lambda *_: None)
        for key in missing:
            log(f"encoded {key}")
        yield len(captions)


if __name__ == "__main__":  # with one argument the coordinator of this machine, with two a worker
    sys.exit(worker(Path(sys.argv[1]).resolve()) if len(sys.argv) > 2 else jobs.Job.main(launch))

"""Encode a dataset for a run ahead of it, by many processes and machines: `cache/encoding/KEY/`.

    work.json               settings, precision, and the shards as [kind, first, last) of captions and pieces
    shards/                 who does which (workbench.jobs.shards)
    HOST-ID/                the job of one machine (workbench.jobs): config.json has `processes`; worker-N.log, a line a
                            clip or caption that was encoded: "encoded KEY"

KEY is the hash of all tensors to be made, so that whoever wants the same, on whatever machine, joins in. A run with
these settings then finds its tensors. Not covered: what has to be encoded (encoding_work), doing it (encode).
"""

from __future__ import annotations

import math
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench import jobs
from workbench.errors import explain
from workbench.families import find_model, settle
from workbench.jobs import gpu_lock, processes
from workbench.jobs.devices import gpus, pick_device
from workbench.jobs.shards import Claim, Overtaken, Shards, make_once, work
from workbench.jobs.workers import Workers, orphaned
from workbench.runs.checks import check
from workbench.runs.data import TrainingData, load_data
from workbench.runs.settings import TrainSettings
from workbench.settings import Settings, field, parse
from workbench.trainer.inputs.cache import Cache, key_of
from workbench.trainer.inputs.encoder import CAPTIONS_AT_ONCE, Encoder
from workbench.trainer.inputs.encoding_plan import PRECISIONS, TORCH_NAMES, EncodingWork, encoding_work
from workbench.workspace import Workspace, read_json, slugify

MODULE, FOLDER, WORK = "workbench.trainer.inputs.encoding_job", "encoding", "work.json"
CAPTIONS_A_SHARD = 512  # so that few workers load the text encoder
Kind = Literal["captions", "clips"]


class EncodeSettings(Settings):
    """How the work is shared on one machine."""

    processes: int = field(0, title="Processes", section="Work", low=0, high=256)
    """Workers on this machine. 0: one a GPU, without a GPU one."""

    clips_a_shard: int = field(32, title="Clips a shard", section="Work", low=1, high=10_000, advanced=True)
    """What a worker takes at a time: all that is lost with a machine that goes down."""


@dataclass(frozen=True)
class Plan:
    """The work, cut up. shards: (kind, first, last) of captions or pieces."""

    settings: TrainSettings
    precision: str
    work: EncodingWork
    shards: Sequence[tuple[Kind, int, int]]

    @property
    def total(self) -> int:
        """Captions and pieces together."""
        return len(self.work.captions) + len(self.work.pieces)


class Encoding:
    """The encoding of a dataset on this machine, seen from outside: start it, watch it, stop it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder  # this machine's job

    @classmethod
    def create(cls, workspace: Workspace, settings: TrainSettings, how: EncodeSettings) -> Encoding:
        """Plan the work, or join who has. Raises ConfigError, DataError, ModelUnavailable, CannotWrite."""
        settings = settings.changed(model=settle(settings.model))
        check(workspace, settings)
        data = load_data(workspace, settings)
        family, model = find_model(settings.model)
        where = family.fetch(model)
        precision: str = settings.precision
        if precision == "auto":
            cpu = pick_device(settings.device).kind == "cpu"
            precision = "fp32" if cpu else PRECISIONS[family.stored_dtype(where)]
        plan = _plan(settings, precision, data, how.clips_a_shard)
        encoder = _encoder(workspace, plan, where, "cpu")
        keys = [encoder.caption_key(caption) for caption in plan.work.captions]
        keys += [encoder.clip_key(one.item, one.view, one.flipped, plan.work.reduction) for one in plan.work.pieces]
        parent = workspace.cache / FOLDER / key_of({"keys": sorted(keys)})
        kept = {"settings": settings.model_dump(mode="json"), "precision": precision, "shards": plan.shards}
        make_once(parent / WORK, kept)
        folder = machine_of(parent)
        how.save(folder / jobs.CONFIG)
        return cls(folder)

    def start(self) -> jobs.Status:
        return jobs.start(self.folder, MODULE)

    def stop(self) -> None:
        jobs.stop(self.folder)

    def wait(self, seconds: float | None = None) -> jobs.Status:
        return jobs.wait(self.folder, seconds)

    @property
    def status(self) -> jobs.Status:
        return jobs.status(self.folder)


def machine_of(parent: Path) -> Path:
    """The job of this machine at the work in a folder."""
    return parent / slugify(f"{socket.gethostname()[:40]}-{processes.boot_id()[:8]}")


def _plan(settings: TrainSettings, precision: str, data: TrainingData, size: int) -> Plan:
    found = encoding_work(settings, data)
    shards: list[tuple[Kind, int, int]] = [*_cut("captions", len(found.captions), CAPTIONS_A_SHARD)]
    return Plan(settings, precision, found, [*shards, *_cut("clips", len(found.pieces), size)])


def _cut(kind: Kind, count: int, size: int) -> list[tuple[Kind, int, int]]:
    return [(kind, n * size, min(count, (n + 1) * size)) for n in range(math.ceil(count / size))]


def _read_plan(workspace: Workspace, parent: Path) -> Plan:
    kept = read_json(parent / WORK)
    settings = parse(TrainSettings, kept["settings"])
    found = encoding_work(settings, load_data(workspace, settings))
    return Plan(settings, kept["precision"], found, [tuple(one) for one in kept["shards"]])


def _encoder(workspace: Workspace, plan: Plan, folder: Path, device: Any) -> Encoder:
    family, model = find_model(plan.settings.model)
    dtype: Any = TORCH_NAMES[plan.precision]
    return Encoder(family, model, folder, Cache(workspace.cache), device, dtype)


# ---- the job of one machine


def launch(folder: Path) -> int:
    """Start the workers and see them through."""
    with jobs.Job(folder) as job:
        workspace, parent = Workspace.open(folder.parents[3]), folder.parent
        how = EncodeSettings.load(folder / jobs.CONFIG)
        job.beat("reading the dataset")
        plan = _read_plan(workspace, parent)
        shards = Shards(parent, len(plan.shards))
        devices = gpus() if pick_device(plan.settings.device).kind == "cuda" else []
        devices = devices[: how.processes or None]
        count = how.processes or max(1, len(devices))
        with ExitStack() as held:
            for device in devices:
                name = f"encoding {plan.settings.dataset}"
                held.enter_context(gpu_lock.hold(workspace.locks, device.uuid, name, math.inf, _patient(job)))
            Workers(job, MODULE, count, devices).run(shards, "encoding", plan.total)
        job.outcome = {"encoded": sum(shards.finished().values()), "workers": count}
    return int(job.exit_code)


def _patient(job: jobs.Job) -> Any:
    def look(holder: str) -> None:
        job.beat(f"waiting: the GPU is held by {holder}", patient=True)
        if job.take("stop") is not None:
            raise jobs.Stop("Stopped while it waited for the GPU.")

    return look


# ---- one worker


def _one(claim: Claim, plan: Plan, encoder: Encoder, ending: Callable[[], bool]) -> None:
    """One shard, without what is in the cache; left unfinished when the worker is to end. Raises Overtaken."""
    kind, first, last = plan.shards[claim.number]
    if kind == "captions":
        for at in range(first, last, CAPTIONS_AT_ONCE):
            captions = plan.work.captions[at : min(last, at + CAPTIONS_AT_ONCE)]
            keys = [encoder.caption_key(caption) for caption in captions]
            missing = [key for key in keys if key not in encoder.cache]
            encoder.encode_captions(captions, lambda *_: None)
            _say(missing)
            claim.piece(len(captions))
            if ending():
                return
    else:
        for one in plan.work.pieces[first:last]:
            key = encoder.clip_key(one.item, one.view, one.flipped, plan.work.reduction)
            if key not in encoder.cache:
                encoder.encode_clip(one.item, one.view, one.flipped, plan.work.reduction)
                _say([key])
            claim.piece()
            if ending():
                return
    claim.finish()


def _say(keys: Sequence[str]) -> None:
    sys.stdout.write("".join(f"encoded {key}\n" for key in keys))
    sys.stdout.flush()


def worker(folder: Path, number: int) -> int:
    """Take shards until none is left."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())

    def ending() -> bool:
        return stop.is_set() or orphaned()

    workspace, parent = Workspace(folder.parents[3]), folder.parent
    plan = _read_plan(workspace, parent)
    family, model = find_model(plan.settings.model)
    import torch

    device = torch.device(pick_device(plan.settings.device).torch_name)
    dtypes: dict[str, Any] = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    encoder = Encoder(family, model, family.fetch(model), Cache(workspace.cache), device, dtypes[plan.precision])
    shards = Shards(parent, len(plan.shards))
    try:
        with encoder.kept_loaded():
            for claim in work(shards):
                with claim, suppress(Overtaken):
                    _one(claim, plan, encoder, ending)
                if ending():
                    return 0
    except (RuntimeError, OSError, ValueError) as error:
        code, sentence = explain(error)
        sys.stdout.write(f"{sentence}\n")
        return int(code)
    return 0


def main() -> int:
    """With one argument the job of this machine, with two one of its workers."""
    folder, *number = sys.argv[1:]
    return worker(Path(folder).resolve(), int(number[0])) if number else launch(Path(folder).resolve())


if __name__ == "__main__":
    sys.exit(main())

"""Everything a run holds while it trains, made in order: data, encoded tensors, model, trained weights, optimizer.

Where several processes compute a run (ranks), each has a session. All do the same in the same order, but only that of
rank 0 writes files and logs. Not covered: the steps (loop), previews (previewing), commands (commands), what a finished
run leaves (export).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator

from workbench import jobs
from workbench.clips.records import read_info
from workbench.errors import CannotWrite
from workbench.families import settle
from workbench.families.lora_files import DROPPED_KEY
from workbench.families.noise_schedules import DEFAULTS
from workbench.jobs.devices import Device
from workbench.memory.block_swap import parked
from workbench.runs import checkpoints, optimizer_options
from workbench.runs.analysis import visible_effect
from workbench.runs.checkpoints import beginning
from workbench.runs.checks import check, check_device, check_ranks, initial_lora
from workbench.runs.data import LOCK, load_data, seed_for
from workbench.runs.metrics import MetricsWriter, read_metrics, record_session
from workbench.runs.queue import QueueSlot
from workbench.runs.settings import TrainSettings
from workbench.trainer import previewing, saving, tokenizer
from workbench.trainer.distributed.ranks import Ranks
from workbench.trainer.inputs.batch_inputs import BatchInputs
from workbench.trainer.inputs.encoder import (
    DRIFT_INPUTS,
    drift_captions,
    encoder_of,
    encoding_work,
    precision_of,
    preservation_prompts,
)
from workbench.trainer.log import log
from workbench.trainer.model import memory_levels, optimizers
from workbench.trainer.model.ema import Ema
from workbench.trainer.model.trainable import Trainable, continue_from
from workbench.trainer.monitoring import trackers
from workbench.trainer.monitoring.evaluation import PriorDrift, held_out_by_band
from workbench.trainer.monitoring.preview_inputs import PreviewInputs
from workbench.trainer.monitoring.previews import Previewer
from workbench.trainer.threads import Threads
from workbench.workspace import Workspace, read_json, write_json


class Session:
    """One run in one process, ready for its next step. `step` is the last one done."""

    keeps_going = True  # a preview that fails is left out, and the run goes on

    def __init__(
        self,
        run: Path,
        job: jobs.Job,
        settings: TrainSettings,
        hardware: Device,
        ranks: Ranks | None = None,
        from_start: bool = False,
        ends_at: float = math.inf,
    ) -> None:
        """from_start: it may begin at step 0 again where no checkpoint is whole;  ends_at: the time limit, by
        time.monotonic()"""
        self.run = run
        self.job = job
        self.settings = settings
        self.ends_at = ends_at
        self.hardware = hardware
        self.ranks = ranks or Ranks()
        count = self.ranks.count
        self.machine = (
            f"{count} processes ({settings.parallel}), each on {hardware.name}" if count > 1 else hardware.name
        )
        self.sharded = settings.parallel == "fsdp" and self.ranks.count > 1
        self.device = torch.device(hardware.torch_name)
        self.workspace = Workspace.of(run)
        self.step_seconds = 0.0
        self.note = ""  # what a person should know of where it began
        self.warning = ""  # the newest failure that did not end the run
        self.stop_requested = False  # while something took long; commands ends the run
        self.slot: QueueSlot | None = None  # its devices, where this process may lend them
        self.packages = (*checkpoints.PACKAGES, *optimizer_options.package(settings))

        self._read_dataset()
        resumed = self.ranks.from_first(self._find_checkpoint(from_start) if self.ranks.first else None)
        self.threads = Threads(run, resumed[1].get("threads") if resumed else None) if hardware.kind == "cpu" else None
        # A checkpoint of before the defaults were numbered has the first ones.
        self.defaults = resumed[1].get("defaults", 1) if resumed else DEFAULTS
        job.beat("fetching the model", patient=True)
        with self.ranks.first_alone():
            self.folder = self.family.fetch(self.model, log)
        self.precision = precision_of(self.family, self.folder, settings, hardware.kind)
        if settings.tokenizer_steps:
            self.folder = tokenizer.trained_folder(self)
        self._encode()
        self._load_model()
        self._make_optimizer()
        self.step = saving.restore(self, *resumed) if resumed else self._begin()
        if resumed:
            log(f"going on from the checkpoint of step {self.step}")
        if self.ranks.first:
            self._open_records()
        lines = read_metrics(run) if self.ranks.first else []
        # A fork begins after step 0, but as little of it was seen.
        self.unmeasured, self.unseen = self.ranks.from_first((not lines, not any("loss" in line for line in lines)))
        self.effects = {one["step"]: effect for one in lines if (effect := visible_effect.values_of(one))}
        self._prepare_prior_drift()

    # ---- making it, in order

    def _read_dataset(self) -> None:
        settings = self.settings
        self.job.beat("reading the dataset")
        with self.ranks.first_alone():
            settle(settings.model)  # on a machine that does not know a Hub model yet
        self.shape = check(self.workspace, settings)
        check_ranks(settings, self.ranks.count)
        check_device(settings, self.hardware)
        self.family, self.model = settings.resolved
        self.data = data = load_data(self.workspace, settings)
        for sentence in data.dropped:
            log(f"left out: {sentence}")
        counts = f"{len(data.regularization)} for regularization, {len(data.held_out)} held out"
        log(f"{len(data.train)} clips to train on, {counts}")
        if len(data.buckets) > 1:
            log(f"shapes: {'; '.join(map(str, data.buckets))}")
        self.info = read_info(self.workspace.dataset(settings.dataset))
        self.shape = data.buckets[0].shape(self.shape.fps)
        self.preservation_prompts = preservation_prompts(self.family, self.model, settings)
        self.preview_inputs = PreviewInputs(data, settings, self.preservation_prompts)

    def _open_records(self) -> None:
        self.record()
        self.metrics = MetricsWriter(self.run, self.step)
        self.tracker = trackers.Tracker(self.accelerator, self.run, self.settings, self.step, log)

    def record(self, paused_at: float | None = None) -> None:
        """Write down that training begins now, or goes on after a pause. Raises CannotWrite."""
        if not self.ranks.first:
            return
        record_session(
            self.run,
            self.step,
            paused_at,
            device=self.machine,
            precision=self.precision,
            versions={name: version(name) for name in self.packages},
            trained=sum(parameter.numel() for parameter in self.trainable.parameters),
            dropped=list(self.data.dropped),
            stops_at=None if math.isinf(self.ends_at) else time.time() + self.ends_at - time.monotonic(),
            note=self.note,
        )

    def _find_checkpoint(self, from_start: bool) -> tuple[Path, dict[str, Any]] | None:
        """The newest good checkpoint and its state, if this is still the run that wrote it. Raises ResumeRefused."""
        begun = beginning(self.run, from_start)
        lock, found, self.note = self.data.lock(), begun.checkpoint, begun.note
        if self.note:
            log(self.note)
        if found is None or not (self.run / LOCK).exists():  # a fork has a checkpoint, and locks its own clips
            write_json(self.run / LOCK, lock)
        if found is None:
            return None
        state = read_json(found[1] / checkpoints.STATE)
        checkpoints.refuse_changes(
            state["settings"], self.settings, lock, read_json(self.run / LOCK), state["versions"]
        )
        return found[1], state

    def _encode(self) -> None:
        """Captions, then clips; each encoder leaves before the next one comes."""
        settings, ranks = self.settings, self.ranks
        self.encoder = encoder_of(self.workspace, settings, self.folder, self.device, self.precision, self.defaults)
        self.encoder.log = log
        work = encoding_work(settings, self.data)
        self.encoder.encode_captions(ranks.share(sorted(work.captions)), self._encoding)
        self.encoder.encode_clips(ranks.share(work.pieces), self._encoding)
        if ranks.count > 1:
            self.job.beat("waiting for what other processes encode", patient=True)
            ranks.wait()
        self.inputs = BatchInputs(self.encoder, self.model, self.data, settings, ranks.count, self.defaults)

    def _encoding(self, phase: str, done: int, total: int, seconds: float) -> None:
        self.job.beat(phase, done, total, step_seconds=seconds)
        self.job.check_stop("Stopped while encoding; what was encoded is kept.")

    def _load_model(self) -> None:
        self.job.beat("loading the model")
        settings, family = self.settings, self.family
        mixed = "no" if self.precision == "fp32" else self.precision
        more = trackers.accelerator_options(self.run, settings)
        self.accelerator = Accelerator(mixed_precision=mixed, cpu=self.hardware.kind == "cpu", **more)
        begin = torch.device("cpu") if memory_levels.begins_on_host(settings, self.sharded) else self.device
        expert = self.model.expert(settings.expert)
        transformer = family.load_transformer(self.folder, begin, self.encoder.dtype, expert.part)
        family.use_attention(transformer, settings.attention, self.device)
        self.trainable = Trainable(family, transformer, settings, seed_for(settings.seed, "lora"), expert.part)
        memory_levels.put_on(family, transformer, settings, self.device, self.sharded)
        if self.sharded:
            self.trainable.follow()
        # No wrapper where several processes share the steps: they sum their gradients themselves.
        self.transformer = self.accelerator.prepare_model(transformer, evaluation_mode=self.ranks.count > 1)
        self.schedule = self.inputs.schedule
        self.previewer = Previewer(
            family,
            self.model,
            self.folder,
            replace(self.shape, frames=settings.preview_frames or self.shape.frames),
            settings,
            self.device,
            self.encoder.dtype,
            writes=self.ranks.first,
        )
        if not self.sharded and self.device.type != "mps":  # whose memory is the machine's: nothing has more room
            self.previewer.make_room = lambda: parked(self.bare_transformer)
        self.previewer.before_decoding = self.check_for_stop
        log(f"{self.model.title} on {self.machine} in {self.precision}; training {self.trainable.summary}")

    def _make_optimizer(self) -> None:
        settings = self.settings
        self.ranks.begin_alike(self.trainable.parameters)
        optimizer = optimizers.build(settings, self.trainable.named)
        self.learning_rate = optimizers.learning_rate(settings, optimizer)
        self.optimizer = self.accelerator.prepare(optimizer)
        self.ema = Ema(self.trainable.named, settings.ema_decay) if settings.ema_decay else None

    def _begin(self) -> int:
        """The first start: from nothing, or from the LoRA that the settings name. Raises ConfigError."""
        if (path := initial_lora(self.workspace, self.settings)) is not None:
            log(continue_from(self.family, self.bare_transformer, self.settings, path))
            if self.settings.ema_decay:
                self.ema = Ema(self.trainable.named, self.settings.ema_decay)
        return 0

    def _prepare_prior_drift(self) -> None:
        """Choose the inputs of the prior drift: clips of the regularization dataset, else captions alone."""
        self.prior_drift, data, inputs = None, self.data, self.inputs
        # It compares with the base model, which is at hand only where a LoRA alone is trained.
        if self.idle or self.settings.method != "lora" or self.settings.train_also:
            return
        own = list(inputs.clips(data.train[:DRIFT_INPUTS]))
        others = list(inputs.clips(data.regularization[:DRIFT_INPUTS]))
        if not others:
            own = list(inputs.captions(drift_captions(data), data.train[0]))
            others = list(inputs.captions(self.preservation_prompts[:DRIFT_INPUTS], data.train[0]))
        if others:
            self.prior_drift = PriorDrift(self.family, self.schedule, own, others, self.settings.seed, self.device)

    # ---- what is held

    @property
    def idle(self) -> bool:
        """Whether rank 0 measures, generates and writes without this process; sharded weights need all."""
        return not self.ranks.first and not self.sharded

    @property
    def bare_transformer(self) -> Any:
        """The transformer without what accelerate put around it."""
        return self.accelerator.unwrap_model(self.transformer)

    @contextmanager
    def weights_in_use(self) -> Iterator[None]:
        """The weights that are meant to be used in place of those that are trained: an average, where there is one."""
        with optimizers.averaged(self.optimizer), self.ema.applied() if self.ema is not None else nullcontext():
            yield

    @contextmanager
    def base_model(self) -> Iterator[None]:
        """Inside it the transformer is the base model, without its LoRA."""
        self.bare_transformer.disable_adapters()
        try:
            yield
        finally:
            self.bare_transformer.enable_adapters()

    # ---- between two steps

    def beat(self, phase: str, **more: Any) -> None:
        more.setdefault("message", self.warning or self.note)
        self.job.beat(phase, self.step, self.settings.steps, step_seconds=self.step_seconds, **more)

    def write(self, **line: Any) -> None:
        """A line of the metrics, for whoever reads them."""
        if not self.ranks.first:
            return
        try:
            self.metrics.write(step=self.step, time=time.time(), **line)
        except CannotWrite as error:
            warning = f"{error}; the curve waits in memory meanwhile"
            if self.warning != warning:
                log(warning)
            self.warning = warning
        self.tracker.log({"step": self.step, **line})

    def evaluate(self) -> None:
        """Measure the held-out loss and the prior drift; what cannot be measured is left out."""
        self.beat("measuring", patient=self.idle)
        if self.idle:
            return
        line: dict[str, Any] = {}
        with self.weights_in_use(), self.accelerator.autocast():
            if self.data.held_out:
                clips = self.inputs.clips(self.data.held_out)
                bands = held_out_by_band(
                    self.family, self.transformer, self.schedule, clips, self.settings.seed, self.device
                )
                line = {"held_out_loss": sum(bands) / len(bands), "held_out_bands": list(bands)}
            if self.prior_drift is not None:
                own, others = self.prior_drift.measure(self.bare_transformer, self.base_model)
                line |= {"change_own": own, "change_others": others}
        if line:
            self.write(**line)
        if "held_out_loss" in line:
            log(f"step {self.step}: held-out loss {line['held_out_loss']:.4f}")

    def check_for_stop(self, together: bool = False) -> None:
        """Raises previewing.Interrupted once a stop was requested; together: all processes check at the same time."""
        self.stop_requested = self.stop_requested or self.job.take("stop") is not None
        if any(self.ranks.gathered(self.stop_requested)) if together else self.stop_requested:
            raise previewing.Interrupted("Stopped while it generated previews.")

    def save(self, must: bool = True) -> None:
        """Publish a checkpoint of the present step, then retire the oldest.

        must: a disk that refuses ends the run; else it is logged, and the next save tries again. Raises CannotWrite.
        """
        self.beat("saving a checkpoint", patient=self.idle)
        if self.idle:
            return
        self.warning = saving.save(self, must)
        if self.warning:
            log(self.warning)
        elif self.previewer.unwritten:
            with previewing.failures_left_out(self):
                self.previewer.write()

    def notes(self) -> dict[str, str]:
        """The metadata of a file of weights, beside rank and alpha. No time in it: equal runs make equal files."""
        return {
            "base_model": self.model.id if self.model.local else self.model.source,
            "base_revision": self.model.revision or "",
            "run": self.run.name,
            "step": str(self.step),
            "trigger_word": self.info.trigger_word,
            "seed": str(self.settings.seed),
            **({"expert": self.settings.expert} if self.model.boundary else {}),
            **({DROPPED_KEY: "zeros"} if self.settings.dropped_caption == "zeros" else {}),
        }

    def close(self) -> None:
        """Close what is written to, however the run ends."""
        if self.ranks.first:
            self.metrics.close()
            self.tracker.finish()

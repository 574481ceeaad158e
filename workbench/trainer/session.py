"""Everything a run holds while it trains, built in order: clips, encoded tensors, model, trained weights, optimizer.

Where several processes compute a run (ranks), each has a session. All do the same in the same order, but only that of
rank 0 writes files and logs. The session also does what happens between two steps: it writes metrics, measures, saves
and, while a run is paused, lends its device. The loop decides when; `previews` generates videos.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from safetensors.torch import save as to_bytes

from workbench import jobs
from workbench.clips.records import DatasetInfo, read_info
from workbench.errors import CannotWrite, ConfigError
from workbench.families import settle
from workbench.families.lora_files import DROPPED_KEY, REFERENCE_KEY
from workbench.families.noise_schedules import DEFAULTS
from workbench.jobs.devices import Device
from workbench.jobs.log import log
from workbench.jobs.queue import QueueSlot
from workbench.jobs.torch_devices import free_memory, moved_to_host, tensors_in
from workbench.memory.block_swap import parked
from workbench.runs import checkpoints, optimizer_options
from workbench.runs.analysis import visible_effect
from workbench.runs.checks import check, check_device, check_masks, check_ranks, initial_lora
from workbench.runs.data import LOCK, load_data, read_mask, seed_for
from workbench.runs.frozen_loras import frozen_loras, identities, refuse_others, trained_over
from workbench.runs.metrics import MetricsWriter, read_metrics, record_session
from workbench.runs.settings import TrainSettings
from workbench.trainer import optimizers, slider, tokenizer, trackers
from workbench.trainer.batch_inputs import BatchInputs
from workbench.trainer.encoder import encoder_of, encoding_work, precision_of, preservation_prompts
from workbench.trainer.evaluation import (
    EvaluationInput,
    PriorDrift,
    held_out_by_band,
    levels_by_mask,
    seen_in_one_step,
)
from workbench.trainer.frozen import FrozenLoras
from workbench.trainer.optimizers import Ema
from workbench.trainer.previewer import Previewer, PreviewInputs, frames_of
from workbench.trainer.ranks import Ranks
from workbench.trainer.threads import Threads
from workbench.trainer.trainable import Trainable, apply_memory_levels, begins_on_host, continue_from
from workbench.workspace import Workspace, read_json, write_bytes, write_json

EFFECT_CLIPS = 2  # on which the visible effect by mask is measured


class Interrupted(jobs.Stop):
    """A stop was requested while previews were generated: they are left, the run saves and ends."""


class Session:
    """One run in one process, ready for its next step. `step` is the last one done."""

    def __init__(
        self,
        job: jobs.Job,
        settings: TrainSettings,
        hardware: Device,
        ranks: Ranks | None = None,
        *,
        from_start: bool = False,
        ends_at: float = math.inf,
        slot: QueueSlot | None = None,
        trial: bool = False,
    ) -> None:
        """Build everything up to the first step. Raises WorkbenchError, or jobs.Stop when asked to stop.

        Args:
            job: Its folder is the run's.
            from_start: Whether it may begin at step 0 again where no checkpoint is whole.
            ends_at: The time limit, by time.monotonic().
            slot: Its devices, which it lends while it is paused. None where this process may not lend them.
            trial: Take a few clips of the largest shape, to measure with; and a preview that fails is an error.
        """
        self.run, self.job, self.settings, self.hardware = job.folder, job, settings, hardware
        self.ranks = ranks or Ranks()
        self.ends_at, self.slot, self.trial = ends_at, slot, trial
        self.workspace, self.device = Workspace.of(self.run), torch.device(hardware.torch_name)
        count = self.ranks.count
        self.sharded = settings.parallel == "fsdp" and count > 1
        self.machine = (
            f"{count} processes ({settings.parallel}), each on {hardware.name}" if count > 1 else hardware.name
        )
        self.packages = (*checkpoints.PACKAGES, *optimizer_options.package(settings))
        self.step, self.step_seconds = 0, 0.0
        self.note = ""  # what a person should know of where it began
        self.warning = ""  # the newest failure that did not end the run
        self.stop_requested = False  # while previews were generated; the loop then ends the run

        self._read_dataset()
        resumed = self.ranks.from_first(self._find_checkpoint(from_start) if self.ranks.first else None)
        kept = resumed[1].get("threads") if resumed else None
        self.threads = Threads(self.run, kept) if hardware.kind == "cpu" else None
        # A checkpoint of before the defaults were numbered has the first ones.
        self.defaults = resumed[1].get("defaults", 1) if resumed else DEFAULTS
        self._fetch_model()
        self._encode()
        self._load_transformer()
        self._build_previewer()
        if settings.is_slider and not settings.dataset:
            slider.generate_clips(self)
        self._build_optimizer()
        if resumed:
            self._restore(*resumed)
        elif (path := initial_lora(self.workspace, settings)) is not None:
            log(continue_from(self.family, self.bare_transformer, settings, path))
            self.ema = self._new_ema()  # of the weights that were just loaded
        self._open_records()
        self._build_prior_drift()

    # ---- building it, in order

    def _read_dataset(self) -> None:
        settings = self.settings
        self.job.beat("reading the dataset")
        with self.ranks.first_alone():
            settle(settings.model)  # on a machine that does not know a Hub model yet
        shape = check(self.workspace, settings)
        check_ranks(settings, self.ranks.count)
        check_device(settings, self.hardware)
        self.family, self.model = settings.resolved
        data = load_data(self.workspace, settings)
        check_masks(settings, data)
        self.data = data = data.few_of_largest_shape(settings.batch_size) if self.trial else data
        for sentence in data.dropped:
            log(f"left out: {sentence}")
        if not settings.dataset:
            log(f"no dataset: {len(data.train)} clips that the base model generates")
        counts = f"{len(data.regularization)} for regularization, {len(data.held_out)} held out"
        log(f"{len(data.train)} clips to train on, {counts}")
        if len(data.buckets) > 1:
            log(f"shapes: {'; '.join(map(str, data.buckets))}")
        self.info = read_info(self.workspace.dataset(settings.dataset)) if settings.dataset else DatasetInfo()
        self.shape = data.buckets[0].shape(shape.fps)
        self.preservation_prompts = preservation_prompts(self.family, self.model, settings)

    def _find_checkpoint(self, from_start: bool) -> tuple[Path, dict[str, Any]] | None:
        """The newest good checkpoint and its state, if this is still the run that wrote it. Raises ResumeRefused."""
        begun = checkpoints.beginning(self.run, from_start)
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

    def _fetch_model(self) -> None:
        self.job.beat("fetching the model", patient=True)
        with self.ranks.first_alone():
            self.folder = self.family.fetch(self.model, log)
        self.precision = precision_of(self.family, self.folder, self.settings, self.hardware.kind)
        if self.settings.tokenizer_steps:
            self.folder = tokenizer.trained_folder(self)

    def _encode(self) -> None:
        """Captions, then clips; each encoder leaves before the next one comes."""
        settings, ranks = self.settings, self.ranks
        self.encoder = encoder_of(self.workspace, settings, self.folder, self.device, self.precision, self.defaults)
        work = encoding_work(settings, self.data)

        def report(phase: str, done: int, total: int, seconds: float) -> None:
            self.job.beat(phase, done, total, step_seconds=seconds)
            self.job.check_stop("Stopped while encoding; what was encoded is kept.")

        self.encoder.encode_captions(ranks.share(sorted(work.captions)), report)
        self.encoder.encode_clips(ranks.share(work.pieces), report)
        if ranks.count > 1:
            self.job.beat("waiting for what other processes encode", patient=True)
            ranks.wait()
        self.inputs = BatchInputs(self.encoder, self.model, self.data, settings, ranks.count, self.defaults)
        self.inputs.check_masks()
        self.schedule = self.inputs.schedule

    def _load_transformer(self) -> None:
        """The transformer on its device, with what is trained of it and what makes its steps cheaper."""
        self.job.beat("loading the model")
        settings, family = self.settings, self.family
        mixed = "no" if self.precision == "fp32" else self.precision
        more = trackers.accelerator_options(self.run, settings)
        self.accelerator = Accelerator(mixed_precision=mixed, cpu=self.hardware.kind == "cpu", **more)
        begin = torch.device("cpu") if begins_on_host(settings, self.sharded) else self.device
        part = self.model.expert(settings.expert).part
        transformer = family.load_transformer(self.folder, begin, self.encoder.dtype, part)
        family.use_attention(transformer, settings.attention, self.device)
        self.trainable = Trainable(family, transformer, settings, seed_for(settings.seed, "lora"), part)
        apply_memory_levels(family, transformer, settings, self.device, self.sharded)
        if self.sharded:
            self.trainable.follow()
        self.frozen = FrozenLoras(frozen_loras(self.workspace, settings))
        self.frozen.attach(family, transformer, self.model.title, self.model.expert(settings.expert).name)
        # No wrapper where several processes share the steps: they sum their gradients themselves.
        self.transformer = self.accelerator.prepare_model(transformer, evaluation_mode=self.ranks.count > 1)
        log(f"{self.model.title} on {self.machine} in {self.precision}; training {self.trainable.summary}")

    def _build_optimizer(self) -> None:
        self.ranks.begin_alike(self.trainable.parameters)
        optimizer = optimizers.build(self.settings, self.trainable.named)
        self.learning_rate = optimizers.learning_rate(self.settings, optimizer)
        self.optimizer = self.accelerator.prepare(optimizer)
        self.ema = self._new_ema()

    def _new_ema(self) -> Ema | None:
        """A moving average that starts with the present weights, where the run keeps one."""
        return Ema(self.trainable.named, self.settings.ema_decay) if self.settings.ema_decay else None

    def _restore(self, folder: Path, state: Mapping[str, Any]) -> None:
        """Load what `save` published. Raises ResumeRefused."""
        form = self.family.text_form(self.folder)
        checkpoints.refuse_other_form(state, self.precision, form, self.model.title)
        refuse_others(state.get("frozen_loras", {}), self.frozen.loras)
        self.trainable.load(folder)
        if (file := folder / checkpoints.OPTIMIZER).exists():
            optimizers.load_state(self.optimizer, self.trainable.named, load_file(file), state["optimizer"])
        if self.ema is not None and (averages := folder / checkpoints.EMA).exists():
            self.ema.load(load_file(averages))
        else:
            self.ema = self._new_ema()  # a fork may begin to average where its parent did not
        if self.accelerator.scaler is not None and state["scaler"]:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        self.step = int(state["step"])
        log(f"going on from the checkpoint of step {self.step}")

    def _build_previewer(self) -> None:
        settings = self.settings
        self.preview_inputs = PreviewInputs(self.data, settings, self.preservation_prompts)
        # Weights in shards stay; Apple's memory is the machine's, so nothing has more room elsewhere.
        moves = not self.sharded and self.device.type != "mps"
        self.previewer = Previewer(
            self.run,
            self.family,
            self.model,
            self.folder,
            replace(self.shape, frames=settings.preview_frames or self.shape.frames),
            settings,
            self.device,
            self.encoder.dtype,
            writes=self.ranks.first,
            offload_transformer=(lambda: parked(self.bare_transformer)) if moves else nullcontext,
            before_decoding=self.check_for_stop,
            frozen=self.frozen,
        )

    def _open_records(self) -> None:
        lines = []
        if self.ranks.first:
            self.record_start()
            self.metrics = MetricsWriter(self.run, self.step)
            self.tracker = trackers.Tracker(self.accelerator, self.run, self.settings, self.step, log)
            lines = read_metrics(self.run)
        # A fork begins after step 0, but has no steps of its own either.
        started = not lines, not any("loss" in line for line in lines)
        self.no_metrics_yet, self.no_steps_yet = self.ranks.from_first(started)
        self._effects_by_mask = {one["step"] for one in lines if "visible_inside" in one}
        self._effects = {one["step"]: effect for one in lines if (effect := visible_effect.values_of(one))}

    def _build_prior_drift(self) -> None:
        self.prior_drift = None
        # It compares with the base model, which is at hand only where a LoRA alone is trained.
        if self.idle or self.settings.method == "full" or self.settings.train_also:
            return
        own, others = self.inputs.drift_inputs(self.preservation_prompts)
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
    def as_in_use(self) -> Iterator[None]:
        """The weights that are meant to be used, with the frozen LoRAs that previews have."""
        with self.weights_in_use(), self.frozen.previewing():
            yield

    @contextmanager
    def base_model(self) -> Iterator[None]:
        """Inside it the transformer is the base model, without its LoRA; frozen LoRAs that are on stay on."""
        self.bare_transformer.disable_adapters()
        try:
            yield
        finally:
            self.bare_transformer.enable_adapters()

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
            **trained_over(self.frozen.loras),
            **({REFERENCE_KEY: str(self.settings.reference_downscale)} if self.settings.reference else {}),
        }

    # ---- reporting

    def beat(self, phase: str, **more: Any) -> None:
        """Report what the run does now, for readers and the stall timeout."""
        more.setdefault("message", self.warning or self.note)
        self.job.beat(phase, self.step, self.settings.steps, step_seconds=self.step_seconds, **more)

    def write(self, **line: Any) -> None:
        """Write a line of the metrics, for whoever reads them."""
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

    def finish_step(self, **line: Any) -> None:
        """Count a step that has adjusted the weights, and report it. line: of the metrics, with its `seconds`"""
        self.step += 1
        seconds = line["seconds"]
        self.step_seconds = 0.9 * self.step_seconds + 0.1 * seconds if self.step_seconds else seconds
        self.write(**line)
        self.beat("training")

    def record_start(self, paused_at: float | None = None) -> None:
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

    # ---- measuring

    def evaluate(self) -> None:
        """Measure the held-out loss and the prior drift; what cannot be measured is left out."""
        self.beat("measuring", patient=self.idle)
        if self.idle:
            return
        line: dict[str, Any] = {}
        with self.weights_in_use(), self.accelerator.autocast():
            if self.data.held_out:
                clips = self.inputs.clips(self.data.held_out)
                found = held_out_by_band(
                    self.family, self.transformer, self.schedule, clips, self.settings.seed, self.device
                )
                line = {"held_out_loss": found.loss, "held_out_bands": list(found.bands)}
                line |= {} if found.outside is None else {"held_out_outside": found.outside}
            if self.prior_drift is not None:
                own, others = self.prior_drift.measure(self.bare_transformer, self.base_model)
                line |= {"change_own": own, "change_others": others}
        if line:
            self.write(**line)
        if "held_out_loss" in line:
            log(f"step {self.step}: held-out loss {line['held_out_loss']:.4f}")

    def write_visible_effect(self) -> None:
        """Measure how far this step's previews are from those of the base model. Nothing is written twice: a start
        after a kill measures the same again."""
        effect = visible_effect.measure(self.run, self.step)
        if effect is not None and effect != self._effects.get(self.step):
            self._effects[self.step] = effect
            self.write(**effect)

    def write_effect_by_mask(self) -> None:
        """Measure how far the LoRA changes what is seen of masked clips, inside of what it learned from and outside.

        Held-out clips, or else some that are trained on, are noised, and the model says in one step what they were,
        with the LoRA and without it; both are decoded. Nothing is measured twice, and nothing where the base model is
        not at hand, or previews are not decoded either.
        """
        settings = self.settings
        items = [item for item in (self.data.held_out or self.data.train) if item.mask][:EFFECT_CLIPS]
        changes_more = settings.method == "full" or settings.train_also
        if not items or changes_more or settings.preview_latents_only or self.step in self._effects_by_mask:
            return
        self._effects_by_mask.add(self.step)
        self.beat("measuring", message="the visible effect by mask")
        found = list[tuple[float | None, float | None]]()
        with self.as_in_use(), self.accelerator.autocast():

            def seen(probe: EvaluationInput) -> torch.Tensor:
                model, seed = self.bare_transformer, settings.seed
                return seen_in_one_step(self.family, model, self.schedule, probe, seed, self.device)

            changed = [seen(probe) for probe in self.inputs.clips(items)]
            with self.base_model():
                before = [seen(probe) for probe in self.inputs.clips(items)]
        if self.ranks.first:
            with self.previewer.decoding():
                for item, *latents in zip(items, before, changed, strict=True):
                    mask = torch.from_numpy(read_mask(item))
                    decoded = (self.family.decode(self.previewer.vae, one) for one in latents)
                    one, other = (frames_of(video, len(mask)) for video in decoded)
                    found.append(levels_by_mask(one, other, 1 - mask if settings.loss_mask == "outside" else mask))
        means = {}
        for name, values in zip(("visible_inside", "visible_outside"), zip(*found, strict=True), strict=False):
            if known := [value for value in values if value is not None]:
                means[name] = round(sum(known) / len(known), 3)
        if means:
            self.write(**means)

    # ---- saving

    def save(self, must: bool = True) -> None:
        """Publish a checkpoint of the present step, then retire the oldest. A step that is saved is not saved again.

        All processes give their shards, and rank 0 writes.
        must: a disk that refuses ends the run; else it is logged, and the next save tries again. Raises CannotWrite.
        """
        self.beat("saving a checkpoint", patient=self.idle)
        if self.idle:
            return
        first = self.ranks.first
        beside = self.trainable.plain(first)
        tensors, values = optimizers.state_of(self.optimizer, self.trainable.named, first)
        averages = self.ema.tensors(first) if self.ema is not None else None
        scaler = self.accelerator.scaler
        state = {
            "step": self.step,
            "settings": self.settings.model_dump(mode="json"),
            "versions": {name: version(name) for name in self.packages},
            "precision": self.precision,
            "defaults": self.defaults,
            "text_form": self.family.text_form(self.folder),
            "threads": torch.get_num_threads() if self.device.type == "cpu" else None,
            "scaler": scaler.state_dict() if scaler is not None else None,
            "optimizer": values,
        }
        if frozen := identities(self.frozen.loras):
            state["frozen_loras"] = frozen

        def fill(target: Path) -> None:
            self.trainable.write(target, self.notes(), beside)
            write_bytes(target / checkpoints.OPTIMIZER, to_bytes(tensors))
            if averages is not None:
                write_bytes(target / checkpoints.EMA, to_bytes(averages))
            write_json(target / checkpoints.STATE, state)

        if first and not checkpoints.verified(checkpoints.folder_of(self.run, self.step)):
            try:
                checkpoints.publish(self.run, self.step, fill)
            except CannotWrite as error:
                if must:
                    raise
                self.warning = f"step {self.step} is not saved, the next save tries again: {error}"
                log(self.warning)
                return
            checkpoints.retire(self.run, self.settings.keep_checkpoints, self.settings.keep_every, self.step)
        self.warning = ""
        if self.previewer.unwritten:
            with self.preview_failures_logged():
                self.previewer.write()

    # ---- previews

    @contextmanager
    def preview_failures_logged(self) -> Iterator[None]:
        """What goes wrong inside costs the previews, never the run."""
        if self.trial:
            yield
            return
        try:
            yield
        except Interrupted:
            log(f"asked to stop: the preview of step {self.step} is left for the next start")
        except CannotWrite as error:
            self.warning = f"a preview of step {self.step} is not written yet, the next preview tries again: {error}"
            log(self.warning)
        except (torch.OutOfMemoryError, ConfigError) as error:
            log(f"the preview of step {self.step} is left out: {str(error).splitlines()[0]}")
            free_memory()

    def check_for_stop(self, together: bool = False) -> None:
        """Raises Interrupted once a stop was requested; together: all processes check at the same time."""
        self.stop_requested = self.stop_requested or self.job.take("stop") is not None
        if any(self.ranks.gathered(self.stop_requested)) if together else self.stop_requested:
            raise Interrupted("Stopped while it generated previews.")

    # ---- pausing

    @contextmanager
    def device_lent(self) -> Iterator[None]:
        """Free the device for others meanwhile, if it is this process's to lend.

        Its tensors wait in CPU memory. Every bit comes back as it was, so a run that was paused ends in the same
        weights as one that was not. Slots of swapped blocks (memory.block_swap) stay, and so does what the driver keeps
        for a process. After an error nothing comes back, and neither does the device.
        """
        if self.slot is None:
            yield
            return
        on_gpu = self.device.type == "cuda"
        if on_gpu:
            self.inputs.release()
        with moved_to_host(self.held_tensors() if on_gpu else ()), self.slot.lent():
            yield

    def held_tensors(self) -> Iterator[torch.Tensor]:
        """Every tensor kept between two steps: the model, what is trained, the optimizer's, the average."""
        model = self.bare_transformer
        averages = self.ema.model.shadow_params if self.ema is not None else []
        states = (value for state in self.optimizer.state.values() for value in tensors_in(state))
        frozen = self.frozen.tensors()
        return chain(model.parameters(), model.buffers(), frozen, self.trainable.parameters, averages, states)

    def close(self) -> None:
        """Close what is written to, however the run ends."""
        if self.ranks.first:
            self.metrics.close()
            self.tracker.finish()

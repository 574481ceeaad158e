"""Everything a run holds while it trains, built in order: clips, encoded tensors, model, trained weights, optimizer.

When several processes (ranks) train a run, each has a session. All do the same work in the same order, but only rank 0
writes files and logs. The session also does the work between steps: it writes metrics, measures, saves and, while the
run is paused, lends its device. The loop decides when. `previewer` generates videos.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
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
from workbench.families.lora_check import Outputs
from workbench.families.lora_files import DROPPED_KEY, REFERENCE_KEY
from workbench.families.model_inputs import SOUND_ONLY
from workbench.families.noise_schedules import DEFAULTS
from workbench.families.self_test import SelfTestFacts
from workbench.jobs.devices import Device
from workbench.jobs.log import log
from workbench.jobs.queue import QueueSlot
from workbench.jobs.torch_devices import free_memory, moved_to_host, tensors_in
from workbench.memory.block_swap import parked
from workbench.runs import checkpoints, optimizer_options
from workbench.runs.analysis import best_point, visible_effect
from workbench.runs.analysis.best_point import Forecast
from workbench.runs.analysis.curves import Curves
from workbench.runs.checks import check, check_device, check_masks, check_ranks, initial_lora
from workbench.runs.data import LOCK, load_data, seed_for
from workbench.runs.frozen_loras import frozen_loras, identities, refuse_others, trained_over
from workbench.runs.metrics import MetricsWriter, read_metrics, record_session
from workbench.runs.settings import TrainSettings
from workbench.trainer import optimizers, slider, tokenizer, trackers
from workbench.trainer.batch_inputs import BatchInputs
from workbench.trainer.encoder import encoder_of, encoding_work, precision_of, preservation_prompts
from workbench.trainer.evaluation import EFFECT_INPUTS, EffectAndDrift, PriorDrift, held_out_by_band
from workbench.trainer.optimizers import Ema
from workbench.trainer.previewer import Previewer, PreviewInputs
from workbench.trainer.ranks import Ranks
from workbench.trainer.threads import Threads
from workbench.trainer.trainable import (
    FrozenLoras,
    Trainable,
    apply_memory_levels,
    begins_on_host,
    continue_from,
)
from workbench.workspace import Workspace, read_json, write_bytes, write_json


class Interrupted(jobs.Stop):
    """A stop was requested while previews were being generated; the run drops them, saves and ends."""


class Session:
    """One run in one process, ready for its next step. `step` is the last completed step."""

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
            job: The job; its folder is the run's.
            from_start: Start over at step 0 if no checkpoint is intact.
            ends_at: The time limit, as a time.monotonic() value.
            slot: The devices to lend while the run is paused; None if this process must not lend them.
            trial: Take only a few clips of the largest shape, and treat a failed preview as an error.
        """
        self.run, self.job, self.settings, self.hardware = job.folder, job, settings, hardware
        self.ranks = ranks or Ranks()
        self.ends_at, self.slot, self.trial = ends_at, slot, trial
        self.workspace, self.device = Workspace.of(self.run), torch.device(hardware.torch_name)
        self.machine = hardware.name
        if (count := self.ranks.count) > 1:
            self.machine = f"{count} processes ({settings.parallel}), each on {hardware.name}"
        self.sharded = settings.parallel == "fsdp" and count > 1
        self.packages = (*checkpoints.PACKAGES, *optimizer_options.package(settings))
        self.step, self.step_seconds = 0, 0.0
        self.note = ""  # what the user should know about where the run started
        self.warning = ""  # the latest failure that did not end the run
        self.stop_requested = False  # set while previews are generated; the loop then ends the run
        self.stop_at_best_point = False  # whether that request asked for the best point

        self._read_dataset()
        resumed = self.ranks.from_first(self._find_checkpoint(from_start) if self.ranks.first else None)
        kept = resumed[1].get("threads") if resumed else None
        self.threads = Threads(self.run, kept) if hardware.kind == "cpu" else None
        # Checkpoints from before the defaults were versioned use version 1.
        self.defaults = resumed[1].get("defaults", 1) if resumed else DEFAULTS
        self._fetch_and_encode()
        self._load_transformer()
        self._build_previewer()
        if settings.is_slider and not settings.dataset:
            slider.generate_clips(self)
        self.prepare_weights(resumed)
        self._open_records()

    # ---- building the session, in order

    def _read_dataset(self) -> None:
        settings = self.settings
        self.job.beat("reading the dataset")
        with self.ranks.first_alone():
            settle(settings.model)  # this machine may not know the Hub model yet
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
            log(f"no dataset: the base model generates {len(data.train)} clips")
        counts = f"{len(data.regularization)} for regularization, {len(data.held_out)} held out"
        log(f"{len(data.train)} clips to train on, {counts}")
        if len(data.buckets) > 1:
            log(f"shapes: {'; '.join(map(str, data.buckets))}")
        self.info = read_info(self.workspace.dataset(settings.dataset)) if settings.dataset else DatasetInfo()
        self.shape = data.buckets[0].shape(shape.fps)
        self.preservation_prompts = preservation_prompts(self.family, self.model, settings)

    def _find_checkpoint(self, from_start: bool) -> tuple[Path, dict[str, Any]] | None:
        """Return the newest intact checkpoint and its state. Raises ResumeRefused if the run has changed since."""
        begun = checkpoints.beginning(self.run, from_start)
        lock, found, self.note = self.data.lock(), begun.checkpoint, begun.note
        if self.note:
            log(self.note)
        if found is None or not (self.run / LOCK).exists():  # a fork starts with a checkpoint but without a lock
            write_json(self.run / LOCK, lock)
        if found is None:
            return None
        state = read_json(found[1] / checkpoints.STATE)
        checkpoints.refuse_changes(
            state["settings"], self.settings, lock, read_json(self.run / LOCK), state["versions"]
        )
        return found[1], state

    def _fetch_and_encode(self) -> None:
        """Fetch the model, then encode captions, then clips, with one encoder in memory at a time."""
        settings, ranks = self.settings, self.ranks
        self.job.beat("fetching the model", patient=True)
        with ranks.first_alone():
            self.folder = self.family.fetch(self.model, log)
        self.precision = precision_of(self.family, self.folder, settings, self.hardware.kind)
        if settings.tokenizer_steps:
            self.folder = tokenizer.trained_folder(self)
        self.encoder = encoder_of(self.workspace, settings, self.folder, self.device, self.precision, self.defaults)
        work = encoding_work(settings, self.data)

        def report(phase: str, done: int, total: int, seconds: float) -> None:
            self.job.beat(phase, done, total, step_seconds=seconds)
            self.job.check_stop("Stopped while encoding; the encoded clips and captions are kept.")

        self.encoder.encode_captions(ranks.share(sorted(work.captions)), report)
        self.encoder.encode_clips(ranks.share(work.pieces), report)
        if ranks.count > 1:
            self.job.beat("waiting for what other processes encode", patient=True)
            ranks.wait()
        self.inputs = BatchInputs(self.encoder, self.model, self.data, settings, ranks.count, self.defaults)
        self.inputs.check_masks()
        self.schedule = self.inputs.schedule

    def _load_transformer(self) -> None:
        """Load the transformer, attach the LoRA, apply the memory levels and attach frozen LoRAs."""
        self.job.beat("loading the model")
        settings, family = self.settings, self.family
        mixed = "no" if self.precision == "fp32" else self.precision
        tracking = trackers.accelerator_options(self.run, settings)
        self.accelerator = Accelerator(mixed_precision=mixed, cpu=self.hardware.kind == "cpu", **tracking)
        load_on = torch.device("cpu") if begins_on_host(settings, self.sharded) else self.device
        part = self.model.expert(settings.expert).part
        transformer = family.load_transformer(self.folder, load_on, self.encoder.dtype, part)
        family.use_attention(transformer, settings.attention, self.device)
        self.trainable = Trainable(family, transformer, settings, seed_for(settings.seed, "lora"), part)
        apply_memory_levels(family, transformer, settings, self.device, self.sharded)
        if self.sharded:
            self.trainable.follow()
        self.frozen = FrozenLoras(frozen_loras(self.workspace, settings))
        self.frozen.attach(family, transformer, self.model.title, self.model.expert(settings.expert).name)
        # Several ranks sum their gradients themselves (Ranks.sum_gradients), so accelerate must not wrap the model.
        self.transformer = self.accelerator.prepare_model(transformer, evaluation_mode=self.ranks.count > 1)
        log(f"{self.model.title} on {self.machine} in {self.precision}; training {self.trainable.summary}")

    def prepare_weights(self, resumed: tuple[Path, dict[str, Any]] | None) -> None:
        """Build the optimizer, and load the checkpoint that `save` published or the LoRA to start from.

        resumed: The checkpoint's folder and state, or None for a run's beginning. Raises ResumeRefused.
        """
        settings, named, self.ema = self.settings, self.trainable.named, None
        self.ranks.begin_alike(self.trainable.parameters)
        optimizer = optimizers.build(settings, named)
        self.learning_rate = optimizers.learning_rate(settings, optimizer)
        self.optimizer = self.accelerator.prepare(optimizer)
        if resumed:
            folder, state = resumed
            form = self.family.text_form(self.folder)
            checkpoints.refuse_other_form(state, self.precision, form, self.model.title)
            refuse_others(state.get("frozen_loras", {}), self.frozen.loras)
            self._restore(folder, state)
            if self.accelerator.scaler is not None and state["scaler"]:
                self.accelerator.scaler.load_state_dict(state["scaler"])
            log(f"resuming from the checkpoint of step {self.step}")
        elif (path := initial_lora(self.workspace, settings)) is not None:
            log(continue_from(self.family, self.bare_transformer, settings, path))
        if settings.ema_decay:
            self.ema = Ema(named, settings.ema_decay)  # a fork may keep an average that its parent did not
            if resumed and (averages := resumed[0] / checkpoints.EMA).exists():
                self.ema.load(load_file(averages))

    def _build_previewer(self) -> None:
        settings = self.settings
        self.preview_inputs = PreviewInputs(self.data, settings, self.preservation_prompts)
        # Sharded weights stay in place, and Apple's GPU shares the machine's memory, so moving them frees nothing.
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
        settings, lines = self.settings, []
        if self.ranks.first:
            self.record_start()
            self.metrics = MetricsWriter(self.run, self.step)
            self.tracker = trackers.Tracker(self.accelerator, self.run, settings, self.step, log)
            lines = read_metrics(self.run)
        # A fork begins after step 0, yet it has no steps of its own.
        started = not lines, not any("loss" in line for line in lines)
        self.no_metrics_yet, self.no_steps_yet = self.ranks.from_first(started)
        self.effects_by_mask = {one["step"] for one in lines if "visible_inside" in one}
        self.effects = {one["step"]: effect for one in lines if (effect := visible_effect.values_of(one))}
        self.prior_drift = None
        if self.has_base_model and not self.idle and settings.sound not in SOUND_ONLY:  # drift is the picture's
            own, others = self.inputs.drift_inputs(self.preservation_prompts)
            if others:
                self.prior_drift = PriorDrift(self.family, self.schedule, own, others, settings.seed, self.device)
        self.best_point_every, self.points = best_point.interval(settings), best_point.points_of(lines)
        self.best_point_ends_it = settings.best_point == "do" and not best_point.record(self.run)
        self.effect_and_drift = None
        if self.best_point_every and not self.idle:
            sides = self.inputs.effect_inputs(self.preservation_prompts, EFFECT_INPUTS)
            self.effect_and_drift = EffectAndDrift(self.family, self.schedule, *sides, settings.seed, self.device)

    # ---- the model and its weights

    @property
    def idle(self) -> bool:
        """Whether rank 0 measures, generates and writes without this process. Sharded weights need every rank."""
        return not self.ranks.first and not self.sharded

    @property
    def has_base_model(self) -> bool:
        """Whether the base model is there to compare with: only if nothing but a LoRA is trained."""
        return self.settings.method != "full" and not self.settings.train_also

    @property
    def bare_transformer(self) -> Any:
        """The transformer without accelerate's wrapper."""
        return self.accelerator.unwrap_model(self.transformer)

    @contextmanager
    def weights_in_use(self) -> Iterator[None]:
        """Put the averaged weights, if any, in place of the trained ones."""
        with optimizers.averaged(self.optimizer), self.ema.applied() if self.ema is not None else nullcontext():
            yield

    @contextmanager
    def as_in_use(self) -> Iterator[None]:
        """Use the averaged weights and the frozen LoRAs of previews."""
        with self.weights_in_use(), self.frozen.previewing():
            yield

    @contextmanager
    def base_model(self) -> Iterator[None]:
        """Disable the LoRA. Frozen LoRAs that are on stay on."""
        self.bare_transformer.disable_adapters()
        try:
            yield
        finally:
            self.bare_transformer.enable_adapters()

    def notes(self) -> dict[str, str]:
        """Return a weight file's metadata besides rank and alpha. No timestamps: equal runs write equal files."""
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

    def self_test_facts(self, outputs: Outputs | None = None) -> SelfTestFacts:
        """Return what the test in a LoRA's file says besides its layers."""
        model, shape = self.model, self.shape
        return SelfTestFacts(
            base_model=model.id if model.local else model.source,
            model=model,
            folder=self.folder,
            expert=self.settings.expert if model.boundary else "",
            shift=self.settings.preview_flow_shift or model.flow_shift_at(shape.height, shape.width),
            outputs=outputs,
        )

    # ---- reporting

    def beat(self, phase: str, **more: Any) -> None:
        """Report the current phase to readers and the stall timeout."""
        more.setdefault("message", self.warning or self.note)
        self.job.beat(phase, self.step, self.settings.steps, step_seconds=self.step_seconds, **more)

    def write(self, **line: Any) -> None:
        """Write a line of metrics and send it to the tracker."""
        if not self.ranks.first:
            return
        try:
            self.metrics.write(step=self.step, time=time.time(), **line)
        except CannotWrite as error:
            warning = f"{error}; metrics are kept in memory until it can be written"
            if self.warning != warning:
                log(warning)
            self.warning = warning
        self.tracker.log({"step": self.step, **line})

    def record_start(self, paused_at: float | None = None) -> None:
        """Record that training starts now, or continues after a pause. Raises CannotWrite."""
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
        """Measure the held-out loss and the prior drift, if the run has clips or prompts for them."""
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
                line |= {} if found.sound is None else {"held_out_sound": found.sound}
            if self.prior_drift is not None:
                own, others = self.prior_drift.measure(self.bare_transformer, self.base_model)
                line |= {"change_own": own, "change_others": others}
        if line:
            self.write(**line)
        if "held_out_loss" in line:
            log(f"step {self.step}: held-out loss {line['held_out_loss']:.4f}")

    def measure_effect(self) -> Forecast | None:
        """Measure effect and drift for the best point; return the forecast, the same on all ranks."""
        self.beat("measuring", patient=self.idle)
        if self.effect_and_drift is not None:
            with self.weights_in_use(), self.accelerator.autocast():
                line = self.effect_and_drift.measure(self.bare_transformer, self.base_model)
            self.write(**line)
            self.points.extend(best_point.points_of([{"step": self.step, **line}]))
        return self.forecast()

    def forecast(self) -> Forecast | None:
        """Return the forecast of the best point from the measurements so far, the same on all ranks."""
        return self.ranks.from_first(best_point.forecast(self.points, self.settings) if self.ranks.first else None)

    # ---- saving

    def go_back(self, step: int) -> None:
        """Put a checkpoint's weights, optimizer state and average in place of the current ones."""
        folder = checkpoints.folder_of(self.run, step)
        self._restore(folder, read_json(folder / checkpoints.STATE))
        if self.ema is not None:
            self.ema.load(load_file(folder / checkpoints.EMA))

    def _restore(self, folder: Path, state: dict[str, Any]) -> None:
        self.trainable.load(folder)
        if (file := folder / checkpoints.OPTIMIZER).exists():
            optimizers.load_state(self.optimizer, self.trainable.named, load_file(file), state["optimizer"])
        self.step = int(state["step"])

    def save(self, must: bool = True) -> None:
        """Publish a checkpoint of the current step, unless there is one, and retire the oldest.

        All ranks contribute their shards; rank 0 writes. If the disk refuses, raise CannotWrite (`must`), or log it and
        leave it to the next save.
        """
        self.beat("saving a checkpoint", patient=self.idle)
        if self.idle:
            return
        first = self.ranks.first
        also_trained = self.trainable.plain(first)
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
            self.trainable.write(target, self.notes(), also_trained, self.self_test_facts())
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
                self.warning = f"step {self.step} was not saved; the next save will try again: {error}"
                log(self.warning)
                return
            checkpoints.retire(self.run, self.settings.keep_checkpoints, self.settings.keep_every, self.step)
            with suppress(OSError):
                Curves(self.run).refresh()  # keeps what it has read, so that a page shows a long run at once
        self.warning = ""
        if self.previewer.unwritten:
            with self.preview_failures_logged():
                self.previewer.write()

    # ---- previews

    @contextmanager
    def preview_failures_logged(self) -> Iterator[None]:
        """Log failures instead of raising them: a failed preview must not end the run. A trial raises them."""
        if self.trial:
            yield
            return
        try:
            yield
        except Interrupted:
            log(f"stop requested: the preview of step {self.step} is postponed until the next start")
        except CannotWrite as error:
            self.warning = f"a preview of step {self.step} was not written; the next one will try again: {error}"
            log(self.warning)
        except (torch.OutOfMemoryError, ConfigError) as error:
            log(f"skipped the preview of step {self.step}: {str(error).splitlines()[0]}")
            free_memory()

    def check_for_stop(self, together: bool = False) -> None:
        """Raise Interrupted if a stop was requested. together: on all ranks, which check at the same time"""
        if not self.stop_requested and (request := self.job.take("stop")) is not None:
            self.stop_requested, self.stop_at_best_point = True, bool(request.get("best_point"))
        if any(self.ranks.gathered(self.stop_requested)) if together else self.stop_requested:
            raise Interrupted("Stopped while generating previews.")

    # ---- pausing

    @contextmanager
    def device_lent(self) -> Iterator[None]:
        """Free the device for other jobs, if this process may lend it.

        The tensors wait in CPU memory and return bit for bit, so a paused run ends with the same weights as an
        uninterrupted one. The slots of swapped blocks (memory.block_swap) and the driver's memory per process stay on
        the device. After an error neither the tensors nor the device come back.
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
        """Yield every tensor kept between steps: model, trained weights, optimizer state and average."""
        model = self.bare_transformer
        averages = self.ema.model.shadow_params if self.ema is not None else []
        states = (value for state in self.optimizer.state.values() for value in tensors_in(state))
        frozen = self.frozen.tensors()
        return chain(model.parameters(), model.buffers(), frozen, self.trainable.parameters, averages, states)

    def close(self) -> None:
        """Close the metrics and the tracker."""
        if self.ranks.first:
            self.metrics.close()
            self.tracker.finish()

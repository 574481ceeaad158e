"""Everything a run holds while it trains, made in order: data, encoded tensors, model, LoRA, optimizer; and what
happens between two steps: measure, preview, save, obey, export.

Not covered: the steps themselves (loop), several GPUs, other optimizers than AdamW.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import torch
from accelerate import Accelerator
from diffusers.optimization import get_scheduler

from workbench import jobs
from workbench.clips import read_info
from workbench.devices import GIGABYTE, Device
from workbench.families import find_model
from workbench.trainer import checkpoint, lora
from workbench.trainer.cache import Cache
from workbench.trainer.card import model_card
from workbench.trainer.data import Batches, Item, load_data, seed_for
from workbench.trainer.encode import Encoder, free_memory
from workbench.trainer.evaluation import held_out_loss
from workbench.trainer.metrics import MetricsWriter, read_metrics
from workbench.trainer.previews import Previewer
from workbench.trainer.runs import CARD, EXPORT, check
from workbench.trainer.settings import TrainSettings
from workbench.workspace import Workspace, read_json, write_json, write_text

LOCK = "dataset.lock.json"
PACKAGES = ("torch", "diffusers", "peft", "accelerate", "transformers")
PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class Session:
    """One run in one process, ready for its next step. `step` is the last one done."""

    def __init__(self, run: Path, job: jobs.Job, settings: TrainSettings, place: Device) -> None:
        self.run = run
        self.job = job
        self.settings = settings
        self.place = place
        self.device = torch.device(place.torch_name)
        self.workspace = Workspace(run.parent.parent)
        self.step_seconds = 0.0

        job.beat("reading the dataset")
        self.shape = check(self.workspace, settings)
        self.family, self.model = find_model(settings.model)
        self.data = load_data(self.workspace, settings, self.shape)
        self.batches = Batches(self.data, settings)
        for sentence in self.data.dropped:
            say(f"left out: {sentence}")
        data = self.data
        say(f"{len(data.train)} clips to train on, {len(data.known)} known, {len(data.held_out)} held out")
        self.info = read_info(self.workspace.dataset(settings.dataset))
        self.prompts = list(settings.preview_prompts)
        self.prompts = self.prompts or [item.caption for item in (*self.data.held_out, *self.data.train)[:2]]

        resumed = self._find_checkpoint()
        self.folder = self.family.fetch(self.model, say)
        self.precision = self._choose_precision()
        self._encode()
        self._load_model()
        self.step = self._restore(*resumed) if resumed else 0
        self.metrics = MetricsWriter(run, self.step)

    # ---- making it, in order

    def _find_checkpoint(self) -> tuple[Path, dict[str, Any]] | None:
        """The newest good checkpoint and its state, if this is still the run that wrote it. Raises ResumeRefused."""
        lock, found = self.data.lock(), checkpoint.newest(self.run)
        if found is None:
            write_json(self.run / LOCK, lock)
            return None
        state = read_json(found[1] / checkpoint.STATE)
        checkpoint.refuse_changes(state["settings"], self.settings, lock, read_json(self.run / LOCK))
        changed = [
            f"{name} {old} -> {version(name)}" for name, old in state["versions"].items() if version(name) != old
        ]
        if changed:
            say(f"packages changed since the checkpoint, the result may differ in the last bits: {', '.join(changed)}")
        return found[1], state

    def _choose_precision(self) -> str:
        if self.settings.precision != "auto":
            return self.settings.precision
        return "fp32" if self.place.kind == "cpu" else PRECISIONS[self.family.stored_dtype(self.folder)]

    def _encode(self) -> None:
        """Captions, then clips; each encoder leaves before the next one comes."""
        self.cache = Cache(self.workspace.cache)
        self.encoder = Encoder(self.family, self.model, self.folder, self.cache, self.device, DTYPES[self.precision])
        captions = [item.caption for item in self.data.items]
        self.encoder.encode_captions([*captions, *self.prompts, ""], self._encoding)
        self.encoder.encode_clips(self.data.items, self._encoding)

    def _encoding(self, phase: str, done: int, total: int, seconds: float) -> None:
        self.job.beat(phase, done, total, step_seconds=seconds)
        if self.job.take("stop") is not None:
            raise jobs.Stop("Stopped while encoding; what was encoded is kept.")

    def _load_model(self) -> None:
        self.job.beat("loading the model")
        settings, family = self.settings, self.family
        mixed = "no" if self.precision == "fp32" else self.precision
        self.accelerator = Accelerator(mixed_precision=mixed, cpu=self.place.kind == "cpu")
        self.transformer = family.load_transformer(self.folder, self.device, DTYPES[self.precision])
        trainable = lora.attach(family, self.transformer, settings, seed_for(settings.seed, "lora"))
        self.names, self.parameters = [name for name, _ in trainable], [parameter for _, parameter in trainable]
        if settings.gradient_checkpointing:
            self.transformer.enable_gradient_checkpointing()
        self.optimizer = torch.optim.AdamW(
            self.parameters,
            lr=settings.learning_rate,
            betas=(settings.adam_beta1, settings.adam_beta2),
            weight_decay=settings.weight_decay,
            fused=True,
        )
        # Only the schedule's pure function of the step is used: there is no scheduler state that could drift.
        schedule = get_scheduler(
            settings.lr_schedule,
            self.optimizer,
            num_warmup_steps=settings.warmup_steps,
            num_training_steps=settings.steps,
        )
        self.lr_factor = schedule.lr_lambdas[0]
        self.transformer, self.optimizer = self.accelerator.prepare(self.transformer, self.optimizer)
        self.schedule = family.noise_schedule(self.folder, self.device)
        shape = self.shape
        self.latents_shape = family.latents_shape(self.folder, shape.frames, shape.height, shape.width)
        self.previewer = Previewer(
            family, self.model, self.folder, shape, settings, self.device, DTYPES[self.precision]
        )
        count = sum(parameter.numel() for parameter in self.parameters)
        say(f"{self.model.title} on {self.place.name} in {self.precision}; LoRA of {count:,} values")

    def _restore(self, folder: Path, state: dict[str, Any]) -> int:
        lora.load_state(self.family, self.bare_transformer, folder / checkpoint.LORA)
        checkpoint.read_optimizer(folder / checkpoint.OPTIMIZER, self.optimizer, self.names)
        if self.accelerator.scaler is not None and state["scaler"]:
            self.accelerator.scaler.load_state_dict(state["scaler"])
        say(f"going on from the checkpoint of step {state['step']}")
        return int(state["step"])

    # ---- tensors

    @property
    def bare_transformer(self) -> Any:
        """The transformer without what accelerate put around it."""
        return self.accelerator.unwrap_model(self.transformer)

    def moments(self, items: Sequence[Item]) -> dict[str, torch.Tensor]:
        return self._batch([self.encoder.clip_key(item) for item in items])

    def embeddings(self, captions: Sequence[str]) -> dict[str, torch.Tensor]:
        return self._batch([self.encoder.caption_key(caption) for caption in captions])

    def _batch(self, keys: Sequence[str]) -> dict[str, torch.Tensor]:
        tensors = [self.cache.get(key) for key in keys]
        return {name: torch.cat([one[name] for one in tensors]).to(self.device) for name in tensors[0]}

    def noise(self, count: int, purpose: str, *place: int) -> torch.Tensor:
        """Standard normal noise shaped as `count` latents; drawn on the processor, so every device gets the same."""
        generator = torch.Generator().manual_seed(seed_for(self.settings.seed, purpose, *place))
        return torch.randn(count, *self.latents_shape, generator=generator).to(self.device)

    # ---- between two steps

    def beat(self, phase: str, **more: Any) -> None:
        self.job.beat(phase, self.step, self.settings.steps, step_seconds=self.step_seconds, **more)

    def evaluate(self) -> None:
        """Write the held-out loss to the metrics; nothing when no clips are held out."""
        if not self.data.held_out:
            return
        self.beat("measuring the held-out loss")
        with self.accelerator.autocast():
            value = held_out_loss(
                self.family,
                self.transformer,
                self.schedule,
                self.data.held_out,
                lambda item: (self.moments([item]), self.embeddings([item.caption])),
                self.latents_shape,
                self.settings.seed,
                self.device,
            )
        self.metrics.write(step=self.step, time=time.time(), held_out_loss=value)
        say(f"step {self.step}: held-out loss {value:.4f}")

    def preview(self, prompts: Sequence[str]) -> None:
        """Draw preview videos. Running out of memory here costs the previews, never the run."""

        def report(done: int, total: int) -> None:
            self.beat("drawing previews", message=f"denoising step {done} of {total}")

        embedded = [(prompt, self.embeddings([prompt])) for prompt in prompts]
        try:
            with self.accelerator.autocast():
                self.previewer.draw(self.run, self.step, self.bare_transformer, embedded, self.embeddings([""]), report)
        except torch.OutOfMemoryError as error:
            say(
                f"the preview of step {self.step} is left out, it did not fit into memory: {str(error).splitlines()[0]}"
            )
            free_memory()

    def save(self) -> None:
        """Publish a checkpoint of the present step, then retire the oldest."""
        self.beat("saving a checkpoint")
        scaler = self.accelerator.scaler.state_dict() if self.accelerator.scaler is not None else None
        state = {
            "step": self.step,
            "settings": self.settings.model_dump(mode="json"),
            "versions": {name: version(name) for name in PACKAGES},
            "scaler": scaler,
        }

        def fill(target: Path) -> None:
            lora.write(self.family, self.bare_transformer, target / checkpoint.LORA, self.notes())
            checkpoint.write_optimizer(target / checkpoint.OPTIMIZER, self.optimizer, self.names)
            write_json(target / checkpoint.STATE, state)

        checkpoint.publish(self.run, self.step, fill)
        checkpoint.retire(self.run, self.settings.keep_checkpoints)

    def notes(self) -> dict[str, str]:
        """What a LoRA file says of itself, beside rank and alpha. No time in it: equal runs make equal files."""
        return {
            "base_model": self.model.id if self.model.local else self.model.source,
            "base_revision": self.model.revision or "",
            "run": self.run.name,
            "step": str(self.step),
            "trigger_word": self.info.trigger_word,
            "seed": str(self.settings.seed),
        }

    def obey(self) -> None:
        """Follow the commands left in the run's control folder. Raises jobs.Stop after saving."""
        if self.job.take("save") is not None:
            self.save()
        if (asked := self.job.take("preview")) is not None:
            prompts = [asked["prompt"]] if asked.get("prompt") else self.prompts
            self.encoder.encode_captions(prompts, self._encoding)
            self.preview(prompts)
        paused = self.job.take("pause") is not None
        while paused and self.job.take("resume") is None:
            self.beat("paused", paused=True)
            self._stop_if_asked()
            time.sleep(0.2)
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self.job.take("stop") is not None:
            self.save()
            raise jobs.Stop(f"Stopped at step {self.step} of {self.settings.steps}; start it again to go on.")

    # ---- the end

    def export(self) -> None:
        """Write the LoRA and its card, and prove that the stock pipeline loads it and draws otherwise with it."""
        self.beat("exporting")
        self.metrics.close()
        path = self.run / EXPORT
        lora.write(self.family, self.bare_transformer, path, self.notes())
        probe = self.data.train[0]
        inputs = {
            "schedule": self.schedule,
            "latents": self.family.draw_latents(self.moments([probe]), self.noise(1, "probe")),
            "text": self.embeddings([probe.caption]),
            "noise": self.noise(1, "probe noise"),
            "timesteps": torch.tensor([self.family.timesteps // 2], device=self.device),
        }
        with self.accelerator.autocast():
            change = lora.prove(self.family, self.folder, self.bare_transformer, path, inputs)
        measured = [line["held_out_loss"] for line in read_metrics(self.run)[0] if "held_out_loss" in line]
        losses = (measured[0], measured[-1]) if measured else (None, None)
        shape, prompt = (self.shape.frames, self.shape.height, self.shape.width), self.prompts[0]
        facts = {
            "clips": len(self.data.train),
            "trigger_word": self.info.trigger_word,
            "prompt": prompt,
            "usage": self.family.usage(self.model, self.folder, EXPORT, prompt, shape),
            "losses": losses,
            "packages": {name: version(name) for name in PACKAGES},
        }
        write_text(self.run / CARD, model_card(self.run.name, self.model, self.settings, facts))
        self.job.outcome = {
            "lora": EXPORT,
            "steps": self.step,
            "change": change,
            "held_out_loss_before": losses[0],
            "held_out_loss_after": losses[1],
        }
        say(f"done: {path} changes the model's output by {change:.1%}")


def memory_gb(device: Device) -> float:
    """Memory this process holds, GiB: the GPU's peak, or the process's own on a processor."""
    if device.kind == "cuda":
        return torch.cuda.max_memory_reserved() / GIGABYTE
    return psutil.Process().memory_info().rss / GIGABYTE


def say(text: str) -> None:
    """A line of the run's log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()

"""Train a model's video encoder before its transformer: the first part of a run with `tokenizer_steps`.

    runs/NAME/base_model/       the model that the run then trains: the new vae/, and links to its model's other parts
        metrics.jsonl           see workbench.runs.metrics
        state.safetensors       the state to resume from

Each clip gives several windows, with a random start and a random crop, so that a few clips go a long way. Windows stay
in memory as long as there is room. Each step is a function of the seed and its number, so a resumed run ends with the
same weights. The result is the moving average of the weights.
"""

from __future__ import annotations

import json
import math
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import save as to_bytes

from workbench import jobs
from workbench.clips.frame_plan import FramePlan, Taking, take
from workbench.errors import NonFiniteLoss
from workbench.families import model_files
from workbench.jobs.log import log
from workbench.jobs.torch_devices import free_memory
from workbench.runs.data import RunClip, seed_for
from workbench.runs.from_scratch import BASE_MODEL
from workbench.runs.metrics import MetricsWriter
from workbench.runs.settings import TrainSettings
from workbench.trainer import optimizers
from workbench.trainer.encoder import read_video
from workbench.trainer.optimizers import Ema
from workbench.workspace import write_bytes

if TYPE_CHECKING:
    from workbench.trainer.session import Session

AVERAGING = 0.995
WARMUP = 60  # steps
LAST_RATE = 0.03  # share of the learning rate left at the end of the cosine schedule
LOGGED_EVERY = 50  # steps
MEASURED = 16  # clips of each kind, at most
WINDOWS = 8  # per clip
KEPT_BYTES = 2 << 30  # of windows in memory
STATE = "state.safetensors"


def trained_folder(session: Session) -> Path:
    """Return the folder of the model with the trained video encoder, training it first if needed.

    Raises jobs.Stop, NonFiniteLoss, CannotWrite.
    """
    folder = session.run / BASE_MODEL
    with session.ranks.first_alone():
        if not (folder / model_files.INDEX).is_file():
            _Training(session, folder).run()
            free_memory()
    return folder


class _Training:
    def __init__(self, session: Session, folder: Path) -> None:
        self.session, self.folder, settings = session, folder, session.settings
        self.vae = session.family.load_vae(session.folder, session.device, torch.float32)
        self.vae.requires_grad_(True)
        self.named = list(self.vae.named_parameters())
        chosen = settings.changed(learning_rate=settings.tokenizer_learning_rate)
        self.optimizer = optimizers.build(chosen, self.named)
        self.average = Ema(self.named, AVERAGING)
        self.step, self.total, self.seconds = 0, settings.tokenizer_steps, 0.0
        self.windows: dict[tuple[int, int], torch.Tensor] = {}
        self.room = KEPT_BYTES
        if (folder / STATE).is_file():
            self._load()

    def run(self) -> None:
        session, losses = self.session, list[float]()
        metrics = MetricsWriter(self.folder, self.step)
        log(f"training the tokenizer, {sum(p.numel() for _, p in self.named):,} values, from step {self.step}")
        try:
            with ThreadPoolExecutor(1) as pool:
                batch = pool.submit(self._batch, self.step + 1)
                while self.step < self.total:
                    self._follow()
                    began, clips = time.perf_counter(), batch.result()
                    batch = pool.submit(self._batch, min(self.step + 2, self.total))
                    losses.append(self._train(clips))
                    seconds = time.perf_counter() - began
                    self.seconds = 0.9 * self.seconds + 0.1 * seconds if self.seconds else seconds
                    metrics.write(step=self.step, time=time.time(), loss=losses[-1], seconds=seconds)
                    if self.step % LOGGED_EVERY == 0 or self.step == self.total:
                        log(f"tokenizer step {self.step} of {self.total}: loss {sum(losses) / len(losses):.4f}")
                        losses.clear()
                    if self.step % session.settings.save_every == 0:
                        self._save()
                    if (every := session.settings.evaluate_every) and self.step % every == 0:
                        metrics.write(step=self.step, time=time.time(), **self._measure())
            found = self._measure()
            metrics.write(step=self.step, time=time.time(), **found)
            log("tokenizer: " + ", ".join(f"{name.replace('_', ' ')} {value:.1f} dB" for name, value in found.items()))
        finally:
            metrics.close()
        with self.average.applied():
            self.vae.save_pretrained(self.folder / "vae")
        model_files.complete(self.folder, session.folder, own="vae")
        (self.folder / STATE).unlink(missing_ok=True)

    def _train(self, clips: torch.Tensor) -> float:
        session, step = self.session, self.step + 1
        falling = 0.5 * (1 + math.cos(math.pi * self.step / self.total))
        factor = min(1.0, step / WARMUP) * (LAST_RATE + (1 - LAST_RATE) * falling)
        rate = session.settings.tokenizer_learning_rate * factor
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.vae.train()
        # No autocast for fp16: small gradients would underflow.
        with torch.autocast(session.device.type, torch.bfloat16, enabled=session.precision == "bf16"):
            loss = session.family.vae_loss(self.vae, clips.to(session.device))
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_([p for _, p in self.named], session.settings.max_grad_norm or math.inf)
        value = float(loss.detach())
        if not torch.isfinite(norm) or not torch.isfinite(loss):
            raise NonFiniteLoss(
                f"the loss of tokenizer step {step} is not a number (learning rate {rate:.2e}): lower "
                f"tokenizer_learning_rate"
            )
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.update(step)
        self.step = step
        return value

    def _follow(self) -> None:
        """Report progress; save and raise jobs.Stop at the time limit or on request."""
        session = self.session
        session.job.beat("training the tokenizer", self.step, self.total, step_seconds=self.seconds)
        late = time.monotonic() >= session.ends_at
        if late or session.job.take("stop") is not None:
            self._save()
            why = "The time limit is reached: saved and stopped" if late else "Stopped"
            raise jobs.Stop(f"{why} at step {self.step} of {self.total} of the tokenizer; start it again to resume.")

    # ---- clips

    def _batch(self, step: int) -> torch.Tensor:
        """Return windows [B, 3, F, H, W] of clips of one shape. Shapes with more clips are chosen more often."""
        settings, items = self.session.settings, self.session.data.train
        noise = torch.Generator().manual_seed(seed_for(settings.seed, "tokenizer", step))
        bucket = items[int(torch.randint(len(items), (1,), generator=noise))].bucket
        same = [number for number, item in enumerate(items) if item.bucket == bucket]
        count = settings.tokenizer_batch_size
        chosen = torch.randint(len(same), (count,), generator=noise).tolist()
        which = torch.randint(WINDOWS, (count,), generator=noise).tolist()
        clips = torch.stack([self._window(same[number], one) for number, one in zip(chosen, which, strict=True)])
        flipped = torch.rand(count, 1, 1, 1, 1, generator=noise) < settings.horizontal_flip
        return torch.where(flipped, clips.flip(-1), clips).float() / 127.5 - 1.0

    def _window(self, number: int, which: int) -> torch.Tensor:
        """Return one of a clip's windows, uint8 [3, F, H, W]."""
        if (known := self.windows.get((number, which))) is not None:
            return known
        session, item = self.session, self.session.data.train[number]
        chance = random.Random(seed_for(session.settings.seed, "tokenizer window", number, which))
        video = read_video(replace(item, plan=window(item, session.shape.fps, session.settings, chance)))
        found = ((video[0] + 1.0) * 127.5).round().byte()
        if found.nbytes <= self.room:
            self.windows[number, which] = found
            self.room -= found.nbytes
        return found

    def _measure(self) -> dict[str, float]:
        """Return the PSNR of reconstructed training clips and held-out clips, in dB."""
        data, family, found = self.session.data, self.session.family, dict[str, float]()
        self.vae.eval()
        with self.average.applied(), torch.no_grad():
            for name, items in (("trained_psnr", data.train), ("held_out_psnr", data.held_out)):
                each = []
                for clip in map(read_video, items[:MEASURED]):
                    back = family.decode(self.vae, family.encode_video(self.vae, clip)["mean"])
                    each.append(float(10 * torch.log10(4 / (back.cpu() - clip).square().mean())))
                found |= {name: sum(each) / len(each)} if each else {}
        return found

    # ---- state

    def _save(self) -> None:
        tensors, values = optimizers.state_of(self.optimizer, self.named)
        parts = {
            "weights": {name: p.detach().cpu() for name, p in self.named},
            "average": self.average.tensors(),
            "optimizer": tensors,
        }
        every = {f"{part}:{name}": value.contiguous() for part, of in parts.items() for name, value in of.items()}
        write_bytes(self.folder / STATE, to_bytes(every, {"step": str(self.step), "optimizer": json.dumps(values)}))

    def _load(self) -> None:
        parts: dict[str, dict[str, torch.Tensor]] = {"weights": {}, "average": {}, "optimizer": {}}
        with safe_open(self.folder / STATE, "pt") as file:
            notes: dict[str, Any] = file.metadata()
            for key in file.keys():  # noqa: SIM118 - not a dictionary
                part, _, name = key.partition(":")
                parts[part][name] = file.get_tensor(key)
        self.step = int(notes["step"])
        with torch.no_grad():
            for name, parameter in self.named:
                parameter.copy_(parts["weights"][name])
        self.average.load(parts["average"])
        optimizers.load_state(self.optimizer, self.named, parts["optimizer"], json.loads(notes["optimizer"]))


def window(item: RunClip, fps: float, settings: TrainSettings, chance: random.Random) -> FramePlan:
    """Plan as many frames of a clip as the run takes, with a random start and a random crop."""
    clip, shape = item.plan.clip, item.bucket.shape(fps)
    taking = Taking("start", settings.skip_start, settings.skip_end, "random", chance.randrange(1 << 30))
    room = 0 if clip.is_image else last_start(taking.usable(clip).frames, clip.fps, fps, shape.frames)
    start, how = settings.skip_start + chance.randint(0, room), settings.crop
    plan = take(clip, shape, replace(taking, skip_start=start, crop="stretch" if how == "stretch" else "random"))[0]
    if plan.dropped or settings.frame_sampling in ("sat", "spread"):  # their frames are not consecutive
        return replace(plan, indices=item.plan.indices, dropped=None)
    return plan


def last_start(frames: int, own_fps: float, fps: float, needed: int) -> int:
    """Return the last frame at which a window of `needed` frames can start (see `available_frames`)."""
    return max(0, frames - max(1, math.ceil(1 + (needed - 1.5) * own_fps / fps - 1e-6)))

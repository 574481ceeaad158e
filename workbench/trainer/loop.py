"""The training loop, top to bottom: step 0, then step after step, then the export.

What it is told comes from the run's folder, what it has to say goes there. Randomness is drawn here, from generators
seeded by (run seed, purpose, step), and handed to the family; so the loss is a pure function, and a resumed run equals
an uninterrupted one bit for bit. Not covered: what is prepared before and happens between steps (session).
"""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path

import torch

from workbench import gpu_lock, jobs, processes
from workbench.devices import pick_device
from workbench.errors import NonFiniteLoss
from workbench.trainer.data import Item, seed_for
from workbench.trainer.session import Session, memory_gb
from workbench.trainer.settings import TrainSettings
from workbench.workspace import Workspace

GPU_PATIENCE = 30.0  # seconds a warm sampler gets to unload its model


def train(run: Path, job: jobs.Job) -> None:
    """Train, or go on with, the run in this folder. Raises WorkbenchError, or jobs.Stop when asked to stop."""
    settings = TrainSettings.load(run / jobs.CONFIG)
    device = pick_device(settings.device)
    locks = Workspace(run.parent.parent).locks
    with contextlib.ExitStack() as held:
        if device.kind == "cuda":
            job.beat("waiting for the GPU")
            held.enter_context(gpu_lock.hold(locks, device.uuid, f"run {run.name}", GPU_PATIENCE))
        with processes.loading():
            session = Session(run, job, settings, device)
        steps(session)


def steps(session: Session) -> None:
    """From the session's step to the last one, and the export."""
    settings = session.settings
    if session.step == 0:  # what the base model does
        if settings.evaluate_every:
            session.evaluate()
        if settings.preview_every:
            session.preview(session.prompts)
    while session.step < settings.steps:
        train_step(session)
        last = session.step == settings.steps
        if settings.evaluate_every and (last or session.step % settings.evaluate_every == 0):
            session.evaluate()
        if last or session.step % settings.save_every == 0:
            session.save()
        if settings.preview_every and (last or session.step % settings.preview_every == 0):
            session.preview(session.prompts)
        session.obey()
    session.export()


def train_step(session: Session) -> None:
    """One adjustment of the LoRA, told to metrics and heartbeat. Raises NonFiniteLoss before anything is adjusted."""
    settings, family, transformer = session.settings, session.family, session.transformer
    accelerator, optimizer, device = session.accelerator, session.optimizer, session.device
    began, step = time.perf_counter(), session.step + 1
    transformer.train()
    lr = settings.learning_rate * session.lr_factor(step - 1)
    for group in optimizer.param_groups:
        group["lr"] = lr

    # -- gradients, summed over the batches of this step
    losses, levels, seen = [], [], list[Item]()
    for micro in range(settings.gradient_accumulation):
        items = session.batches.batch((step - 1) * settings.gradient_accumulation + micro)
        seen += items
        draw = torch.Generator().manual_seed(seed_for(settings.seed, "timesteps and captions", step, micro))
        timesteps = torch.randint(family.timesteps, (len(items),), generator=draw).to(device)
        kept = (torch.rand(len(items), generator=draw) >= settings.caption_dropout).tolist()
        captions = [item.caption if keep else "" for item, keep in zip(items, kept, strict=True)]
        noise = session.noise(len(items), "noise", step, micro)
        posterior = session.noise(len(items), "posterior", step, micro)
        latents = family.draw_latents(session.moments(items), posterior)
        if settings.lora_dropout:
            torch.manual_seed(seed_for(settings.seed, "dropout", step, micro))
        with accelerator.autocast():
            text = session.embeddings(captions)
            loss = family.loss(transformer, session.schedule, latents, text, noise, timesteps).mean()
        accelerator.backward(loss / settings.gradient_accumulation)
        losses.append(loss.detach())
        levels.append(timesteps.float().mean())

    # -- one adjustment, unless something is not a number
    norm = float(accelerator.clip_grad_norm_(session.parameters, settings.max_grad_norm or math.inf))
    mean_loss = torch.stack(losses).mean().item()
    # fp16 scales gradients up until they overflow, and skips that step: only there is an infinite norm ordinary.
    if not math.isfinite(mean_loss) or (session.precision != "fp16" and not math.isfinite(norm)):
        what = "gradient" if math.isfinite(mean_loss) else "loss"
        raise NonFiniteLoss(
            f"the {what} of step {step} is not a number (learning rate {lr:.2e}, clips "
            f"{', '.join(item.path.name for item in seen)}): lower the learning rate, or use bf16 instead of fp16. "
            f"Checkpoints before this step are good."
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    session.step = step

    # -- tell
    seconds = time.perf_counter() - began
    session.step_seconds = 0.9 * session.step_seconds + 0.1 * seconds if session.step_seconds else seconds
    session.metrics.write(
        step=step,
        time=time.time(),
        loss=mean_loss,
        lr=lr,
        grad_norm=norm,
        timestep=torch.stack(levels).mean().item(),
        seconds=seconds,
        memory_gb=memory_gb(session.place),
    )
    session.beat("training")

"""The training loop, top to bottom: step 0, every training step and what follows it, then the export.

Settings and commands come from the run's folder; metrics and checkpoints go there. Every random number comes from a
generator seeded with (run seed, purpose, step), see batch_inputs and losses. So a resumed run matches an uninterrupted
one bit for bit.

When several processes (ranks) share a step, each runs this loop. Rank 0 reads the commands and sends them to the other
ranks, so that all ranks act at the same step. A stop signal counts no matter which rank receives it.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from workbench import jobs
from workbench.errors import CannotWrite, NonFiniteLoss
from workbench.families import model_files, self_test
from workbench.families.lora_check import Outputs
from workbench.families.lora_files import DROPPED_KEY
from workbench.families.model_inputs import SOUND_ONLY
from workbench.fit.timing import preserves_outside
from workbench.jobs import processes
from workbench.jobs.devices import Device, pick_devices
from workbench.jobs.log import log
from workbench.jobs.queue import QueueSlot
from workbench.jobs.torch_devices import free_memory, held_gb, make_current
from workbench.memory import compiling
from workbench.runs import checkpoints
from workbench.runs.analysis import best_point, visible_effect
from workbench.runs.checkpoints import from_start_requested
from workbench.runs.failures import fall_back, settings_in_use
from workbench.runs.model_card import CardFacts, card_facts, model_card
from workbench.runs.previews import LiveSample, previews_of
from workbench.runs.run import CARD, Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.evaluation import effect_by_mask
from workbench.trainer.launcher import SINGLE, ProcessRank
from workbench.trainer.losses import backward
from workbench.trainer.previewer import write_png
from workbench.trainer.ranks import Ranks
from workbench.trainer.session import Session
from workbench.workspace import write_text

PREVIEWING = "generating previews"  # the phase
PICTURE = "first_frame.png"  # the input of the model card's code, for image-to-video models
EFFECT_CLIPS = 2  # clips on which the visible effect by mask is measured
PAUSE_SECONDS = 0.2  # between checks for commands during a pause
Commands = dict[str, dict[str, Any]]  # name -> arguments


def train(job: jobs.Job, process: ProcessRank = SINGLE, slot: QueueSlot | None = None) -> None:
    """Start or resume the run in the job's folder. Raises WorkbenchError, or jobs.Stop when asked to stop.

    Args:
        process: This process's rank among those that train the run together.
        slot: The run's devices, lent to others while it is paused.
    """
    settings = TrainSettings.load(job.folder / jobs.CONFIG)
    ends_at = math.inf if settings.time_limit is None else time.monotonic() + 60 * settings.time_limit
    device = pick_devices(settings.device, process.local_count)[process.local_rank]
    set_arithmetic(settings, device)
    if not process.first:
        job.beat("waiting for the first process", patient=True)  # it may sit in the queue for hours
    with Ranks.met(process, device, settings.nccl_timeout) as ranks:

        def build(from_start: bool) -> Session:
            with processes.loading():
                used = settings_in_use(job.folder, settings)
                return Session(job, used, device, ranks, from_start=from_start, ends_at=ends_at, slot=slot)

        if not finish_or_fall_back(build(from_start_requested())):
            free_memory()
            # Memory may have run out before the first checkpoint.
            finish_or_fall_back(build(from_start=True))


def finish_or_fall_back(session: Session) -> bool:
    """Train to the end and close. Return False if memory ran out and a cheaper session should take over."""
    with contextlib.closing(session):
        try:
            training_loop(session)
        except torch.OutOfMemoryError as error:
            # Apple's GPU does not support all of the cheaper settings (runs.checks).
            falls_back = session.ranks.count == 1 and session.hardware.kind != "mps"
            notice = fall_back(session.run, session.settings, session.step, str(error)) if falls_back else ""
            if not notice:
                raise
            log(notice)
            return False
    return True


def set_arithmetic(settings: TrainSettings, device: Device) -> None:
    """Set up CUDA arithmetic: TF32, and determinism with `exact`. A CPU is always deterministic."""
    if device.kind != "cuda":
        return
    make_current(device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = settings.tf32
    if settings.exact:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # must be set before cuBLAS is first used
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False


def training_loop(session: Session) -> None:
    """Train from the session's step to the last one, then export.

    Raises jobs.Stop when asked to stop, or at the time limit.
    """
    settings = session.settings
    if session.threads:
        session.threads.choose(lambda: rehearse(session))
    if session.no_metrics_yet and settings.evaluate_every:  # the baseline: the base model, or a fork's starting point
        session.evaluate()
    preview_at_start(session)
    session.ranks.wait()  # rank 0 may have previewed for longer than NCCL would wait
    if any(session.ranks.gathered(session.stop_requested)):
        follow_commands(session)
    while session.step < settings.steps:
        train_step(session)
        last = session.step == settings.steps
        forecast = None
        if session.best_point_every and (last or session.step % session.best_point_every == 0):
            forecast = session.measure_effect()
            if forecast is not None and forecast.reached and forecast.step == session.step:
                session.save(must=False)
        if settings.evaluate_every and (last or session.step % settings.evaluate_every == 0):
            session.evaluate()
        if last or session.step % settings.save_every == 0:
            session.save(must=last)
        if settings.preview_every and (last or session.step % settings.preview_every == 0):
            preview(session)
        follow_commands(session, late=time.monotonic() >= session.ends_at and not last)
        if forecast is not None and forecast.reached and session.best_point_ends_it and not last:
            stop_at_best_point(session, forecast.step)
    export(session)


def train_step(session: Session) -> None:
    """Update the weights once and report the step. Raises NonFiniteLoss, before anything is updated."""
    settings, accelerator, optimizer, ranks = session.settings, session.accelerator, session.optimizer, session.ranks
    began, step = time.perf_counter(), session.step + 1
    session.transformer.train()
    lr = session.learning_rate(step - 1)
    for group in optimizer.param_groups:
        group["lr"] = lr

    # -- gradients, summed over the batches of this step on all ranks
    own = [backward(session, step, micro) for micro in ranks.share(range(settings.gradient_accumulation))]
    ranks.sum_gradients(session.trainable.parameters)

    # -- one update, unless the loss or the gradient is not finite
    norm = float(accelerator.clip_grad_norm_(session.trainable.parameters, settings.max_grad_norm or math.inf))
    samples_of = [[*zip(one.quantiles.tolist(), one.each.tolist(), strict=True)] for one in own]
    mine = zip(own, samples_of, strict=True)
    batches = ranks.in_order([(*one.means.tolist(), of, one.names, one.heard) for one, of in mine])
    losses, preservation_losses, outside_losses, sound_losses, samples, names, heard = zip(*batches, strict=True)
    mean_loss = sum(losses) / len(batches)
    # fp16's loss scaling overflows now and then and skips that step, so an infinite norm is normal there.
    if not math.isfinite(mean_loss + sum(sound_losses)) or (session.precision != "fp16" and not math.isfinite(norm)):
        what = "gradient" if math.isfinite(mean_loss + sum(sound_losses)) else "loss"
        raise NonFiniteLoss(
            f"the {what} of step {step} is not a number (learning rate {lr:.2e}, clips "
            f"{', '.join(itertools.chain(*names))}): lower the learning rate, or use bf16 instead of fp16. "
            f"Checkpoints before this step are good."
        )
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if session.ema is not None:
        session.ema.update(step)

    # -- report
    seconds = time.perf_counter() - began
    extra = {"preservation_loss": sum(preservation_losses) / len(batches)} if settings.preservation_weight else {}
    if preserves_outside(settings):
        extra["outside_loss"] = sum(outside_losses) / len(batches)
    if any(heard):  # a step may take only clips without sound
        extra["sound_loss"] = sum(sound_losses) / sum(heard)
    session.step = step
    session.step_seconds = 0.9 * session.step_seconds + 0.1 * seconds if session.step_seconds else seconds
    session.write(
        loss=mean_loss,
        **extra,
        lr=lr,
        grad_norm=norm,
        samples=[[round(quantile, 4), loss] for quantile, loss in itertools.chain(*samples)],
        seconds=seconds,
        memory_gb=held_gb(session.hardware),
    )
    session.beat("training")
    if session.threads:
        session.threads.watch(tuple(one.shape for one in own), seconds)


def rehearse(session: Session) -> None:
    """Compute the gradients of the next batch and discard them."""
    session.transformer.train()
    backward(session, session.step + 1, 0)
    session.optimizer.zero_grad(set_to_none=True)


# ---- commands


def follow_commands(session: Session, late: bool = False) -> None:
    """Follow the commands in the run's control folder. Raises jobs.Stop, after saving, when the run should end.

    late: whether the time limit has passed; the clock of rank 0 decides for all ranks
    """
    commands = _take(session, "save", "preview", "pause", "stop", late=late)
    if "save" in commands:
        session.save(must=False)
    if (request := commands.get("preview")) is not None:
        live = [LiveSample.read(one) for one in request.get("live_samples") or ()]
        for one in live:
            generate_live_sample(session, one)
        if request.get("previews") or not live:
            prompts = [request["prompt"]] if request.get("prompt") else session.preview_inputs.prompts
            for scale in request.get("scales") or [1.0]:
                preview(session, prompts, float(scale))
        commands |= _take(session, "pause", "stop")  # previews take a while
    if "pause" in commands and "stop" not in commands:
        _pause(session)
    if "stop" in commands:
        found = session.forecast() if commands["stop"].get("best_point") else None
        if found is not None and found.reached:
            stop_at_best_point(session, found.step)
        _save_and_stop(session, "Stopped")
    if "late" in commands:
        _save_and_stop(session, "The time limit is reached: saved and stopped")


def _take(session: Session, *names: jobs.Command, late: bool = False) -> Commands:
    """Take the pending commands among `names`; the result is the same on all ranks."""
    own: Commands = {name: arguments for name in names if (arguments := session.job.take(name)) is not None}
    if session.stop_requested:  # taken while previews were generated
        own["stop"] = {"best_point": session.stop_at_best_point}
    if late:
        own["late"] = {}
    by_rank = session.ranks.gathered(own)
    stops = [one["stop"] for one in by_rank if "stop" in one]
    return by_rank[0] | ({"stop": stops[0]} if stops else {})


def _pause(session: Session) -> None:
    """Save, lend the device to other jobs, and wait for "resume". Raises jobs.Stop if "stop" comes instead."""
    session.save(must=False)
    paused_at = time.time()
    session.beat("paused", paused=True)
    try:
        with session.device_lent():
            commands: Commands = {}
            while not {"resume", "stop"} & set(commands):
                session.beat("paused", paused=True)
                time.sleep(PAUSE_SECONDS)
                commands |= _take(session, "resume", "stop")
            if "stop" in commands:
                _save_and_stop(session, "Stopped")
    finally:
        with contextlib.suppress(CannotWrite):  # a full disk must not end the run here
            session.record_start(paused_at)


def _save_and_stop(session: Session, why: str) -> None:
    """Save and end the run, so that it can resume from this step. Raises jobs.Stop."""
    if session.step:
        session.save()
    raise jobs.Stop(f"{why} at step {session.step} of {session.settings.steps}; start it again to resume.")


def stop_at_best_point(session: Session, best: int) -> None:
    """Save, export the LoRA of the best point's checkpoint, and end the run. Raises jobs.Stop.

    The newest checkpoint is that of the current step, so the run can go on from here as if it had not stopped.
    """
    session.save()
    reached = session.step
    if best != reached and session.ranks.from_first(checkpoints.verified(checkpoints.folder_of(session.run, best))):
        session.go_back(best)
    export(session)
    if session.ranks.first:
        best_point.write_record(session.run, session.step, reached)
    at = "" if session.step == reached else f", which was reached before step {reached:,}"
    rest = f"start it again to train the rest of its {session.settings.steps:,} steps"
    raise jobs.Stop(f"Stopped at its best point, step {session.step:,}{at}; {rest}.")


# ---- videos: scheduled previews, and live samples on request; if one fails, the run goes on


def preview_at_start(session: Session) -> None:
    """Before training: show the training inputs and base-model previews, or finish interrupted previews."""
    every, step, settings = session.settings.preview_every, session.step, session.settings
    if not every or not (session.no_steps_yet or step % every == 0 or step == settings.steps):
        return
    if session.no_steps_yet and settings.preview_inputs and session.ranks.first:
        session.beat(PREVIEWING, message="training inputs")
        with session.preview_failures_logged():
            session.previewer.save_inputs(session.preview_inputs.clips(session.inputs))
    preview(session)


def preview(session: Session, prompts: Sequence[str] = (), scale: float = 1.0) -> None:
    """Generate preview videos of `prompts`, by default the run's own, at a LoRA scale."""
    if session.idle:
        session.beat(PREVIEWING, patient=True)
        return
    generated, prompts = False, prompts or session.preview_inputs.prompts
    scheduled = scale == 1.0 and list(prompts) == session.preview_inputs.prompts
    session.encoder.encode_captions(prompts, lambda *_: None)  # a requested prompt may be new
    controls = session.preview_inputs.controls(session.inputs) if scheduled else []
    with session.preview_failures_logged(), session.as_in_use(), session.accelerator.autocast():
        generated = session.previewer.generate(
            session.step,
            session.bare_transformer,
            [*session.preview_inputs.with_embeddings(prompts, session.inputs), *controls],
            session.inputs.negative(),
            progress(session, PREVIEWING),
            scale,
        )
    if session.ranks.first and session.step and scale == 1.0 and session.settings.sound not in SOUND_ONLY:
        effect = visible_effect.measure(session.run, session.step)
        if effect is not None and effect != session.effects.get(session.step):
            session.effects[session.step] = effect
            session.write(**effect)
    if session.step and scheduled and session.step not in session.effects_by_mask:
        data, latents_only = session.data, session.settings.preview_latents_only
        masked = [item for item in (data.held_out or data.train) if item.mask][:EFFECT_CLIPS]
        if masked and session.has_base_model and not latents_only:
            session.effects_by_mask.add(session.step)
            session.beat("measuring", message="the visible effect by mask")
            with session.preview_failures_logged():
                if effects := effect_by_mask(session, masked):
                    session.write(**effects)
    if generated and session.ranks.first:
        written = previews_of(session.run, session.step)
        session.tracker.show(session.step, [(one.prompt, one.video) for one in written])


def generate_live_sample(session: Session, sample: LiveSample) -> None:
    """Generate a video with the current weights, for the run's folder and the samples."""
    phase = "generating a live sample"
    if session.idle:
        session.beat(phase, patient=True)
        return
    began, prompt = time.monotonic(), sample.prompt.strip() or session.preview_inputs.prompts[0]
    session.encoder.encode_captions([prompt], lambda *_: None)
    given = {"preview_steps": sample.steps, "preview_guidance": sample.guidance_scale}
    settings = session.settings.changed(**{name: value for name, value in given.items() if value is not None})
    with session.preview_failures_logged(), session.as_in_use(), session.accelerator.autocast():
        (one,) = session.preview_inputs.with_embeddings([prompt], session.inputs)
        replace(session.previewer, settings=settings).generate_live(
            session.step,
            session.bare_transformer,
            one,
            sample.seed,
            session.inputs.negative(),
            progress(session, phase),
            sample.scale,
            began,
        )


def progress(session: Session, phase: str) -> Callable[[int, int], None]:
    """Return a callback that reports denoising steps. It raises Interrupted on all ranks once a stop is requested."""

    def report(done: int, total: int) -> None:
        session.beat(phase, message=f"denoising step {done} of {total}")
        session.check_for_stop(together=session.sharded)

    return report


# ---- the end: export the trained weights, prove that they load, write the model card and the result


def export(session: Session) -> None:
    """Write the trained weights and the model card; prove that the stock pipeline loads them and its output changes."""
    session.beat("exporting", patient=session.idle)
    if session.idle:
        return
    compiling.interpret_blocks(session.family.all_blocks(session.trainable.transformer))  # the proof swaps layers
    with session.weights_in_use(), session.frozen.off():
        about = session.self_test_facts(_outputs(session))
        path = session.trainable.export(session.run, session.notes(), session.ranks.first, about)
        if session.sharded:
            session.ranks.wait()  # all ranks read the file that rank 0 wrote
        with session.accelerator.autocast():
            # The probe is the first training clip, with sound in a run that learns it, at half noise, with fixed seeds.
            inputs = session.inputs
            item = next((one for one in session.data.train if one.heard), session.data.train[0])
            clip = next(inputs.clips([item]))
            assert clip.moments is not None
            latents, noise = session.family.sample_latents(clip.moments, inputs.noise(item, "probe")), "probe noise"
            sound = None if clip.sound is None else inputs.sound_noise(clip.sound, "probe sound noise")
            noised = clip.noised(session.schedule, latents, inputs.noise(item, noise), 0.5, sound)
            change = session.trainable.prove(session.folder, path, {"schedule": session.schedule, "inputs": noised})
    if not session.ranks.first:
        return
    if session.trainable.full:
        # Make the run's folder a complete model that `--model runs/NAME` and diffusers can load.
        base, shape = session.family.base_of(session.folder) or session.model, session.shape
        made_for: dict[str, Any] = {"task": session.model.task, "fps": shape.fps}
        made_for |= {"frames": shape.frames, "height": shape.height, "width": shape.width}
        if session.settings.dropped_caption == "zeros":
            made_for[DROPPED_KEY] = "zeros"
        others = [part for part, _ in base.files if part != session.trainable.part]
        if (not base.local or base.embedded) and not others:
            made_for[model_files.BASE_MODEL] = base.base_id
        model_files.complete(session.run, session.folder, session.trainable.part, made_for)
    facts = card_facts(Run(session.run), session.settings, session.step)
    write_text(session.run / CARD, _card(session, path, facts))
    before, after = facts.losses or (None, None)
    session.job.outcome = {
        "lora": path.name,  # after full fine-tuning, the folder of the trained part
        "steps": session.step,
        "change": change,
        "held_out_loss_before": before,
        "held_out_loss_after": after,
    }
    log(f"done: {path} changes the model's output by {change:.1%}")


def _outputs(session: Session) -> Outputs | None:
    """Return the model's output with and without the LoRA, for the test in its file; None if it would say too little.

    With other weights trained beside the LoRA, there is no base model to compare with; shards need every rank.
    """
    if not session.has_base_model or session.sharded:
        return None
    with session.accelerator.autocast():
        transformer = session.trainable.transformer
        return self_test.run(session.family, session.model, session.folder, transformer, session.device)


def _card(session: Session, path: Path, facts: CardFacts) -> str:
    """Return the model card, and write the frames that its sample code loads."""
    shape, prompt = (session.shape.frames, session.shape.height, session.shape.width), session.preview_inputs.prompts[0]
    scale, experts = session.settings.image_latent_scale, [session.settings.expert]
    if (picture := session.preview_inputs.picture(prompt, session.inputs)) is not None:
        write_png(session.run / PICTURE, picture)
    for end, picture in session.preview_inputs.conditioning_pictures(prompt, session.inputs).items():
        write_png(session.run / f"{end}_frame.png", picture)
    model = session.previewer.generated_with
    kinds = session.settings.conditioning_kinds
    usage = session.family.usage(model, session.folder, path.name, prompt, shape, scale, experts, kinds=kinds)
    widget = [{"text": prompt}] if prompt else []
    return model_card(session.run.name, session.model, facts, usage, widget, session.info.trigger_word)

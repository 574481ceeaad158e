"""Train part of a run again, as it was and with one thing changed, on common random numbers, and measure both.

All trainings begin with the same weights and optimizer state: the run's checkpoint, or step 0. A clip that is left out
keeps its place with a loss weight of zero; a word is removed from captions only. So the other clips get the same noise
and timesteps at the same steps, and any difference in the end is due to the change. Repeats use other seeds for order
and noise, each with all changes, and show how much of a difference is chance. All measurements use the same inputs and
noise, those of the unchanged run.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from workbench.clips import media
from workbench.errors import DataError
from workbench.jobs.devices import Device
from workbench.jobs.torch_devices import free_memory
from workbench.runs import checkpoints
from workbench.runs.data import RunClip, TrainingData, seed_for
from workbench.runs.settings import TrainSettings
from workbench.trainer.attribution import Question, marked_cells, sample_clip
from workbench.trainer.batch_inputs import BatchInputs
from workbench.trainer.encoder import CONDITIONING, NO_CONDITIONING, Piece
from workbench.trainer.evaluation import EffectAndDrift, EvaluationInput, held_out_by_band
from workbench.trainer.loop import set_arithmetic, train_step
from workbench.trainer.previewer import step_folder
from workbench.trainer.session import Session
from workbench.trainer.what_if import CountedJob, as_words
from workbench.workspace import read_json

PROBES = 8  # clips of each side on which effect and drift are measured
DRAWS = 4  # noise samples for the sample in question
STOPPED = "Stopped. Finished trainings are kept: ask again to continue."
AS_IT_WAS = 0  # number of the unchanged training
PER_ARM = 100  # the videos of a training are in step-N with N = PER_ARM * its number + repeat
BASE = PER_ARM - 1  # the base model's


class Arm(NamedTuple):
    """A training. `clips` (ids) have no weight in it, and `words` are removed from the captions."""

    settings: TrainSettings
    clips: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()


def clip_id(item: RunClip) -> str:
    return Path(item.plan.clip.file_name).stem


def without_words(caption: str, words: Sequence[str]) -> str:
    """Return a caption without these words and the double spaces that they would leave."""
    kept = " ".join(as_words(words).sub("", caption).split())
    return re.sub(r"\s+([,.;:!?])", r"\1", kept).strip(" ,;")


def touched(item: RunClip, arm: Arm) -> bool:
    """Whether a change affects this clip."""
    has_word = bool(arm.words) and not item.given_text and as_words(arm.words).search(item.caption) is not None
    return has_word or clip_id(item) in arm.clips


def changed(data: TrainingData, arm: Arm) -> TrainingData:
    """Return the data of a training: the same clips in the same places."""
    items = []
    for item in data.train:
        if touched(item, arm._replace(clips=frozenset())):
            item = replace(item, caption=without_words(item.caption, arm.words))
        items.append(replace(item, weight=0.0) if clip_id(item) in arm.clips else item)
    return replace(data, train=tuple(items))


class Probes:
    """The inputs that every training is measured on, with the noise of the unchanged run."""

    def __init__(self, session: Session, arms: Sequence[Arm], asked: Question | None) -> None:
        """Encode the sample in question and build the inputs.

        arms: all trainings; clips that one of them leaves out are not used for measuring, unless there are no others
        """
        data, family, model = session.data, session.family, session.model
        kept = tuple(item for item in data.train if not any(clip_id(item) in arm.clips for arm in arms))
        plain = replace(data, train=kept or data.train)
        inputs = BatchInputs(session.encoder, model, plain, session.settings, 1, session.defaults)
        sides = inputs.effect_inputs(session.preservation_prompts, PROBES)
        seed, device, schedule = session.settings.seed, session.device, session.schedule
        self._effect = EffectAndDrift(family, schedule, *sides, seed, device)
        self._held_out = [probe.to(torch.device("cpu")) for probe in inputs.clips(data.held_out)]
        self._seed, self._schedule = seed, schedule
        self._sample: EffectAndDrift | None = None
        if asked is not None:
            item, view = sample_clip(model, asked), inputs.view
            session.encoder.encode_captions([item.caption], lambda *_: None)
            views = dict.fromkeys(["clip", NO_CONDITIONING if view == CONDITIONING else view])
            session.encoder.encode_clips([Piece(item, one) for one in views], lambda *_: None)
            (probe,) = inputs.clips([item])
            probe = replace(probe, mask=marked_cells(family, session.folder, item, asked))
            self._sample = EffectAndDrift(family, schedule, [probe] * DRAWS, [], seed, device)

    def measure(self, session: Session) -> dict[str, float]:
        """Measure a training's weights."""
        session.beat("measuring")
        transformer, found = session.bare_transformer, dict[str, float]()
        with session.weights_in_use(), session.accelerator.autocast():
            if self._sample is not None:
                found["sample"] = self._sample.measure(transformer, session.base_model)["effect"]
            values = self._effect.measure(transformer, session.base_model)
            found |= {name: values[name] for name in ("effect", "drift") if name in values}
            if self._held_out:
                probes: Iterator[EvaluationInput] = (probe.to(session.device) for probe in self._held_out)
                loss = held_out_by_band(session.family, transformer, self._schedule, probes, self._seed, session.device)
                found["held_out_loss"] = loss.loss
        return found


def trained(
    job: CountedJob,
    device: Device,
    arms: Sequence[Arm],
    begin: Path | None,
    repeats: int,
    samples: int,
    asked: Question | None,
    done: Mapping[str, Any],
) -> Iterator[tuple[int, int, dict[str, float]]]:
    """Train every arm in every repeat and yield (number of the arm, repeat, what was measured) after each.

    Args:
        arms: All trainings, the unchanged one first.
        begin: The checkpoint that all begin with; None for step 0.
        samples: How many repeats of the unchanged run get videos; the others get them in the first repeat. 0 for none.
        done: "arm-repeat" of trainings that have already finished.
    """
    set_arithmetic(arms[0].settings, device)
    resumed = None if begin is None else (begin, read_json(begin / checkpoints.STATE))
    job.begin = int(resumed[1]["step"]) if resumed else 0
    steps = arms[0].settings.steps - job.begin
    job.total, probes = steps * len(arms) * repeats, None
    by_settings: dict[str, list[int]] = {}
    for number, arm in enumerate(arms):
        by_settings.setdefault(arm.settings.model_dump_json(), []).append(number)
    for numbers in by_settings.values():
        left = [(one, repeat) for one in numbers for repeat in range(repeats) if f"{one}-{repeat}" not in done]
        if not left and probes is not None:
            continue
        with contextlib.closing(Session(job, arms[numbers[0]].settings, device, from_start=True)) as session:
            session.threads = None
            probes = probes or Probes(session, arms, asked)
            start = [parameter.detach().clone() for parameter in session.trainable.parameters]
            plain, settings = session.data, session.settings
            texts = [item.caption for one in numbers for item in changed(plain, arms[one]).train if not item.given_text]
            prompts = session.preview_inputs.prompts if samples else []
            negative = [session.model.negative_prompt, ""]
            session.encoder.encode_captions([*dict.fromkeys([*texts, *prompts, *negative])], lambda *_: None)
            for number, repeat in left:
                job.base = steps * (number * repeats + repeat)
                with torch.no_grad():
                    for parameter, value in zip(session.trainable.parameters, start, strict=True):
                        parameter.copy_(value)
                session.step = 0
                seed = seed_for(settings.seed, "what if", repeat) % 2**31 if repeat else settings.seed
                session.settings = settings.changed(seed=seed)
                session.data = changed(plain, arms[number])
                session.inputs = BatchInputs(
                    session.encoder, session.model, session.data, session.settings, 1, session.defaults
                )
                session.prepare_weights(resumed)
                while session.step < settings.steps:
                    job.check_stop(STOPPED)
                    train_step(session)
                if repeat < (samples if number == AS_IT_WAS else min(samples, 1)):
                    _generate(session, PER_ARM * number + repeat, base=asked is not None and number == AS_IT_WAS)
                yield number, repeat, probes.measure(session)
        free_memory()


def _generate(session: Session, number: int, base: bool) -> None:
    """Generate the videos of a training, and those of the base model if requested."""
    prompts = session.preview_inputs.with_embeddings(session.preview_inputs.prompts, session.inputs)

    def report(done: int, total: int) -> None:
        session.job.beat("generating samples", message=f"denoising step {done} of {total}")
        session.job.check_stop(STOPPED)

    with session.as_in_use(), session.accelerator.autocast():
        model, negative = session.bare_transformer, session.inputs.negative()
        session.previewer.generate(number, model, prompts, negative, report)
        if base:
            session.previewer.generate(BASE, model, prompts, negative, report, 0.0)


# ---- comparing videos


def videos_of(job: Path, number: int, repeat: int = 0) -> list[Path]:
    """Return the videos of a training in the order of prompts and seeds."""
    found = step_folder(job, PER_ARM * number + repeat).glob("*.mp4")
    return sorted((path for path in found if path.stem.isdecimal()), key=lambda path: int(path.stem))


def apart(one: Path, other: Path, box: Sequence[int] = (), frames: Sequence[int] = ()) -> float:
    """Return the mean difference of two videos of one size in levels of 255, inside a box and a span if given."""
    left, top, width, height = box or (0, 0, 1 << 20, 1 << 20)
    first, last = frames or (0, 1 << 20)
    found = []
    for number, ((_, a), (_, b)) in enumerate(zip(media.decode(one), media.decode(other), strict=False)):
        if a.shape != b.shape:
            raise DataError(f"{one.name} and {other.name} differ in size, so they cannot be compared")
        if first <= number <= last:
            part = a[top : top + height, left : left + width], b[top : top + height, left : left + width]
            found.append(float(abs(part[0].astype("float32") - part[1]).mean()))
    return sum(found) / max(1, len(found))

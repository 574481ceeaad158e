"""What if a run were trained without this clip, this word, or with another setting: ask, and read the answer. No torch.

Each question is a job in a folder named for everything that determines the answer, so a repeated question finds it:

    .what-if/RUN-KEY/              a job: `python -m workbench.trainer.what_if FOLDER`
      config.json                  WhatIfSettings
      trainings.json               what was measured of the trainings that are finished
      result.json                  how the job ended
    runs/RUN/what-if/KEY/          the answer (`Answer`) and its videos: ARM-NUMBER.mp4, ARM 0 as it was

`counterfactual` trains and measures; this module says which changes can be asked about and what the numbers mean.
"""

from __future__ import annotations

import math
import re
import shutil
import statistics
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from workbench import jobs
from workbench.display.quantities import counted, percent
from workbench.errors import ConfigError
from workbench.jobs import processes, queue
from workbench.jobs.devices import DeviceChoice, pick_device
from workbench.runs import checkpoints
from workbench.runs.checks import check
from workbench.runs.data import Batches, TrainingData, load_data, read_lock
from workbench.runs.run import Run, carried
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import parse_values
from workbench.sampler.samples import Sample, Samples
from workbench.settings import Settings, field
from workbench.trainer.causes import checked_box, checked_frames
from workbench.workspace import Workspace, is_slug, read_json, read_object, write_json
from workbench.workspace.records import key_of, read_record

MODULE, FOLDER, TITLE = "workbench.trainer.what_if", ".what-if", "a what-if"
KEPT, ANSWER, TRAININGS = "what-if", "answer.json", "trainings.json"
WHAT = "What"
CLIPS, WORDS, SETTING = "clips", "words", "setting"  # kinds of changes
MOST_CHANGES, FEWEST_REPEATS, MOST_REPEATS, MOST_PROMPTS = 8, 3, 12, 4
FEWEST_STEPS, SHARE = 40, 8  # trained again: an eighth of the run, but at least so many steps
# 97.5% quantiles of Student's t by degrees of freedom, from 1.
STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201)
GONE = 0.5  # of the way from the base model's video to what is marked; below, it is gone
# Settings whose change would compare two different things, and where to go instead.
FIXED = frozenset(
    ("model", "variant", "revision", "method", "expert", "start_from", "dataset", "more_datasets", "held_out", "steps")
) | frozenset(
    ("validation_dataset", "frames", "height", "width", "fps", "buckets", "bucket_limit", "epochs", "seed", "device")
)


class WhatIfSettings(Settings):
    """A question: what changes if part of a run is trained again with something left out or another setting."""

    run: str = field("", title="Run", section=WHAT)
    """The run."""

    without_clip: tuple[str, ...] = field((), title="Without clip", section=WHAT)
    """Leave out this clip: its id or name. Several, separated by commas, are left out together; repeat the option to
    try each separately."""

    without_word: tuple[str, ...] = field((), title="Without word", section=WHAT)
    """Leave this word out of the captions. Several, separated by commas, are left out together; repeat the option to
    try each separately."""

    setting: tuple[str, ...] = field((), title="With setting", section=WHAT)
    """Change a setting of the run: NAME=VALUE. Repeat the option to try each separately."""

    sample: str = field("", title="Sample", section=WHAT)
    """Ask about this sample: its id. Empty: the concept as a whole."""

    box: tuple[int, ...] = field((), title="Box", section=WHAT)
    """The marked box of the sample: left, top, width and height in pixels. Empty: the whole picture."""

    frames: tuple[int, ...] = field((), title="Frames", section=WHAT)
    """The first and the last marked frame of the sample, counted from 0. Empty: all frames."""

    begin: int | None = field(None, title="From step", low=0, section=WHAT)
    """Step of the checkpoint to begin at. Empty: the last one before a change can matter."""

    steps: int | None = field(None, title="Steps", low=1, high=1_000_000, unit="steps", section=WHAT)
    """How many steps to train again. Empty: an eighth of the run's, at least 40."""

    repeats: int = field(4, title="Repeats", low=FEWEST_REPEATS, high=MOST_REPEATS, section=WHAT)
    """How often each is trained, every time with another seed. More repeats detect smaller differences."""

    seeds: int = field(2, title="Seeds", low=0, high=32, section=WHAT)
    """Videos for each of the run's preview prompts. 0: none."""

    device: DeviceChoice = field("auto", title="Device", section=WHAT, source="devices", advanced=True)
    """The device to train on. auto: a GPU if there is one, else the CPU."""

    @property
    def changes(self) -> tuple[str, ...]:
        """Every change in the question: "clips:ID,ID", "words:WORD" or "setting:NAME=VALUE"."""
        given = {CLIPS: self.without_clip, WORDS: self.without_word, SETTING: self.setting}
        return tuple(dict.fromkeys(f"{kind}:{one}" for kind, several in given.items() for one in several))


Verdict = Literal["told", "chance", "same"]


class Told(BaseModel):
    """A measure with and without a change, over the repeats.

    before, after: means.  low, high: 95% interval of the difference.
    band: standard deviation over the unchanged trainings, which differ in their seeds alone.
    verdict: `told` if the difference is clear, `chance` if not, `same` if every training gave exactly the same.
    """

    measure: str
    before: float
    after: float
    low: float
    high: float
    band: float
    verdict: Verdict

    @property
    def difference(self) -> float:
        return self.after - self.before


class Changed(BaseModel):
    """What a change did.

    measures: the deciding one first.
    samples:  how many videos were compared.
    differ:   how many differ more from those of the unchanged training than two seeds of it do.
    shown, gone: how many of them show what is marked without the change, and in how many of these it is gone.
    """

    change: str
    measures: list[Told]
    samples: int = 0
    differ: int = 0
    shown: int = 0
    gone: int = 0


class Answer(BaseModel):
    """The answer to a question, as stored with its run.

    prompts: of the videos, by their numbers; width, height: their size, 0 without any.
    asked:   the changes in the order of the question, which is also the order of the videos' files.
    changes: what they did, the one that matters most first.
    """

    sample: str
    box: list[int]
    frames: list[int]
    begin: int
    steps: int
    repeats: int
    seeds: int
    prompts: list[str]
    width: int = 0
    height: int = 0
    asked: list[str]
    changes: list[Changed]
    seconds: float
    time: float


# ---- asking


def request(workspace: Workspace, run: Run, settings: WhatIfSettings) -> jobs.Status:
    """Start the trainings, unless this question was answered or is being answered, and return the job's status.

    Raises ConfigError if the run or a change cannot be asked about, CannotWrite.
    """
    if len(settings.changes) > MOST_CHANGES:
        raise ConfigError(f"changes has {len(settings.changes)}, must be at most {MOST_CHANGES}: ask in two questions")
    if not settings.changes:
        raise ConfigError("nothing is changed: name a clip, a word or a setting to try without or with")
    _check_run(run)
    if settings.sample:
        sample = Samples(workspace).get(settings.sample)
        _ = sample.video  # raises without a video
        if run.settings.tells:
            raise ConfigError.of(
                "sample", f"{run.name} trains with given frames, a control or a reference: leave it empty"
            )
        settings = settings.changed(
            box=tuple(checked_box(sample, settings.box)), frames=tuple(checked_frames(sample, settings.frames))
        )
    elif settings.box or settings.frames:
        raise ConfigError.of(
            "sample", "a box or a span is marked, but sample is empty: say which sample it is marked in"
        )
    begin = first_step(run) if settings.begin is None else settings.begin
    if begin and begin not in run.checkpoints:
        known = ", ".join(map(str, run.checkpoints)) or "none yet"
        raise ConfigError.of(
            "begin", f"{run.name} has no checkpoint of step {begin} to begin at: its checkpoints are {known}"
        )
    if begin < first_step(run):
        raise ConfigError.of("begin", f"begin is {begin}, but the run is a fork that begins at step {first_step(run)}")
    settings = settings.changed(run=run.name, steps=settings.steps or usual_steps(run.settings))
    entries = read_lock(run.folder) or load_data(workspace, run.settings).lock()
    settings = settings.changed(without_clip=tuple(_by_name(one, entries) for one in settings.without_clip))
    parts = [parsed(workspace, run.settings, entries, change) for change in settings.changes]
    if begin:
        state = read_json(checkpoints.folder_of(run.folder, begin) / checkpoints.STATE)
        for values, _, _ in parts:
            changed = run.settings.changed(**values, steps=begin + 1)
            if lost := carried(checkpoints.folder_of(run.folder, begin), state, changed).dropped:
                raise ConfigError.of("begin", f"begin is {begin}, which would lose {lost[0]}: begin at 0")
    what = {name: value for name, value in settings.model_dump(mode="json").items() if name not in ("device", "run")}
    folder = workspace.root / FOLDER / f"{run.name}-{key_of(what)[:8]}"
    if jobs.status(folder).state.alive or read_answer(run, folder.name.rpartition("-")[2]):
        return jobs.status(folder)
    settings.save(folder / jobs.CONFIG)
    return queue.submit(workspace, folder, MODULE, [pick_device(settings.device)], TITLE)


def _by_name(clips: str, entries: Sequence[Mapping[str, Any]]) -> str:
    """Return ids of clips, separated by commas, as names for people where these are unique."""
    names = {Path(one["file_name"]).stem: Path(one["name"]).stem for one in entries}
    several = Counter(names.values())
    parts = [one.strip() for one in clips.split(",")]
    return ",".join(names[one] if several[names.get(one, "")] == 1 and "," not in names[one] else one for one in parts)


def first_step(run: Run) -> int:
    """Return the step that a run began at: 0, or that of the checkpoint that a fork continues."""
    return int(run.parent.get("step", 0))


def usual_steps(settings: TrainSettings) -> int:
    """Return how many steps are trained again by default."""
    return min(max(FEWEST_STEPS, math.ceil(settings.steps / SHARE)), settings.steps)


def _check_run(run: Run) -> None:
    settings = run.settings
    family, model = settings.resolved
    reasons = {
        "it trains more than a LoRA, so no base model remains to compare with": settings.method == "full"
        or bool(settings.train_also),
        "it is a slider, whose clips are not examples to learn": settings.is_slider,
        "it trains its tokenizer": settings.tokenizer_steps > 0,
        "its model predicts codes, whose distance from a clip cannot be measured": family.codes(model) > 0,
    }
    if why := next((why for why, holds in reasons.items() if holds), ""):
        raise ConfigError(f"{run.name} cannot be trained again with a change: {why}")


def parsed(
    workspace: Workspace, settings: TrainSettings, entries: Sequence[Mapping[str, Any]], change: str
) -> tuple[dict[str, Any], frozenset[str], tuple[str, ...]]:
    """Return what a change does: changed settings, ids of clips left out, words left out. Raises ConfigError.

    entries: the run's clips, as in dataset.lock.json
    """
    own = [one for one in entries if one["role"] == "train"]
    kind, _, what = change.partition(":")
    parts = tuple(dict.fromkeys(filter(None, (one.strip() for one in what.split(",")))))
    if kind == CLIPS and parts:
        named = {str(one["name"]): Path(one["file_name"]).stem for one in own}
        named |= {Path(name).stem: clip for name, clip in named.items()}
        ids = set(named.values())
        if missing := [one for one in parts if one not in ids and one not in named]:
            known = ", ".join(str(one["name"]) for one in own[:5])
            raise ConfigError.of(
                "without_clip", f"the run trains on no clip {missing[0][:80]!r}: choose from {known} ..."
            )
        chosen = frozenset(one if one in ids else named[one] for one in parts)
        if chosen >= ids:
            raise ConfigError.of("without_clip", "these are all of the run's clips: leave out fewer")
        return {}, chosen, ()
    if kind == WORDS and parts:
        if missing := [one for one in parts if not any(as_words([one]).search(each["caption"]) for each in own)]:
            raise ConfigError.of("without_word", f"no caption of the run has {missing[0][:80]!r}: check its spelling")
        return {}, frozenset(), parts
    if kind == SETTING and what:
        values = parse_values([what])
        ((name, several),) = values.items()
        if len(several) != 1:
            raise ConfigError.of("setting", f"{name} has {len(several)} values, must be one: give each its own change")
        if name in FIXED:
            raise ConfigError.of(
                "setting",
                f"{name} cannot be changed here, because both trainings must share it: clone the run instead",
            )
        changed = settings.changed(**{name: several[0]})
        check(workspace, changed)
        return {name: several[0]}, frozenset(), ()
    raise ConfigError(f"{what[:80]!r} is no change: name a clip, a word, or a setting as NAME=VALUE")


def as_words(words: Sequence[str]) -> re.Pattern[str]:
    """Return a pattern that matches each of these as a whole word, ignoring case."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", re.IGNORECASE)


# ---- the job


class CountedJob(jobs.Job):
    """A job whose progress is counted over all trainings.

    base, total: steps before the current training, and of all.  begin: the step that each begins at.
    """

    base, total, begin, done = 0, 0, 0, 0

    def beat(self, phase: str, step: int = 0, total: int = 0, **more: Any) -> None:
        if phase == "training":
            self.done = self.base + step - self.begin
        if self.total and not phase.startswith("encoding"):
            step, total = self.done, self.total
        super().beat(phase, step, total, **more)


def answer(job: CountedJob) -> None:
    """Train, measure and keep the answer. Raises WorkbenchError, or jobs.Stop when asked to stop."""
    settings = WhatIfSettings.load(job.folder / jobs.CONFIG)
    workspace, began = Workspace.open(job.folder.parents[1]), time.monotonic()
    run, device = Run.open(workspace, settings.run), pick_device(settings.device)
    with queue.acquired(workspace, [device], job, TITLE):
        job.beat("loading torch")
        with processes.loading():
            from workbench.trainer import attribution, counterfactual
        data = load_data(workspace, run.settings)
        parts = [parsed(workspace, run.settings, data.lock(), change) for change in settings.changes]
        before = run.settings
        begin, steps = settings.begin, settings.steps or usual_steps(before)
        arms = [counterfactual.Arm(before)]
        arms += [counterfactual.Arm(before.changed(**values), clips, words) for values, clips, words in parts]
        if begin is None:
            begin = _last_common(run, data, arms, counterfactual.touched)
        sample = Samples(workspace).get(settings.sample) if settings.sample else None
        prompts = (sample.settings.prompt,) if sample else ()
        prompts = tuple(dict.fromkeys((*prompts, *before.preview_prompts)))[:MOST_PROMPTS]
        arms = [arm._replace(settings=_short(arm.settings, begin + steps, settings.seeds, prompts)) for arm in arms]
        measured = read_object(job.folder / TRAININGS)
        training = counterfactual.trained(
            job,
            device,
            arms,
            checkpoints.folder_of(run.folder, begin) if begin else None,
            settings.repeats,
            min(settings.repeats, FEWEST_REPEATS) if settings.seeds else 0,
            attribution.question_of(sample, settings.box, settings.frames) if sample else None,
            measured,
        )
        for number, repeat, values in training:
            measured[f"{number}-{repeat}"] = values
            write_json(job.folder / TRAININGS, measured)
        job.beat("comparing videos", patient=True)
        found = [
            _compared(job.folder, sample, settings, number, measured) for number in range(1, len(settings.changes) + 1)
        ]
    made = [read_object(path.with_suffix(".json")) for path in counterfactual.videos_of(job.folder, 0)]
    target = run.folder / KEPT / job.folder.name.rpartition("-")[2]
    target.mkdir(parents=True, exist_ok=True)
    for number in range(len(arms)):
        for path in counterfactual.videos_of(job.folder, number):
            shutil.move(path, target / f"{number}-{path.name}")
    told = Answer(
        **settings.model_dump(include={"sample", "box", "frames", "repeats", "seeds"}),
        begin=begin,
        steps=steps,
        prompts=[one["prompt"] for one in made],
        width=made[0]["width"] if made else 0,
        height=made[0]["height"] if made else 0,
        asked=list(settings.changes),
        changes=sorted(found, key=lambda one: (one.measures[0].verdict != "told", -abs(one.measures[0].difference))),
        seconds=round(time.monotonic() - began, 1),
        time=time.time(),
    )
    write_json(target / ANSWER, told.model_dump(mode="json"))
    for name in ("checkpoints", "previews", "metrics.jsonl", "dataset.lock.json", "sessions.jsonl"):
        path = job.folder / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
    job.outcome = {"sentence": " ".join(map(sentence, told.changes)), "file": str(target / ANSWER)}


def _last_common(run: Run, data: TrainingData, arms: Sequence[Any], touched: Any) -> int:
    """Return the step of the newest checkpoint that no change could have affected, else the run's beginning.

    A clip matters from the first batch that holds it, a setting from the beginning.
    """
    before, own = arms[0].settings, first_step(run)
    if any(arm.settings != before for arm in arms) or data.lock() != read_lock(run.folder):
        return own
    touches = [item for item in data.train if any(touched(item, arm) for arm in arms[1:])]
    contents, batches, first = {item.sha256 for item in touches}, Batches(data, before), before.steps
    for number in range(before.steps * before.gradient_accumulation):
        if any(item.role == "train" and item.sha256 in contents for item in batches.batch(number)):
            first = number // before.gradient_accumulation
            break
    folders = [(step, checkpoints.folder_of(run.folder, step)) for step in run.checkpoints if step <= first]
    return max((step for step, folder in folders if checkpoints.verified(folder)), default=own)


def _short(settings: TrainSettings, steps: int, seeds: int, prompts: Sequence[str] = ()) -> TrainSettings:
    """Return the settings of a training that ends at a step, with its schedule, and does nothing but train."""
    quiet: dict[str, Any] = dict.fromkeys(("preview_every", "evaluate_every", "preview_controls", "tokenizer_steps"), 0)
    quiet |= dict.fromkeys(("preview_inputs", "preview_latents_only", "oom_fallback", "push_to_hub"), False)
    return settings.changed(
        **quiet,
        steps=steps,
        epochs=None,
        warmup_steps=min(settings.warmup_steps, steps // 10),
        save_every=steps,
        preview_count=max(1, seeds),
        preview_prompts=tuple(prompts),
        tracker="none",
        time_limit=None,
        best_point="off",
        gpus=1,
        parallel="ddp",
    )


def _compared(
    folder: Path, sample: Sample | None, settings: WhatIfSettings, number: int, measured: Mapping[str, Any]
) -> Changed:
    """Compare a change with the unchanged training: what was measured, and the videos."""
    from workbench.trainer.counterfactual import AS_IT_WAS, BASE, apart, videos_of
    from workbench.trainer.previewer import step_folder

    def of(arm: int, measure: str) -> list[float]:
        return [float(measured[f"{arm}-{repeat}"][measure]) for repeat in range(settings.repeats)]

    names = [name for name in MEASURES if name in measured["0-0"]]
    found = Changed(
        change=settings.changes[number - 1], measures=[told(name, of(0, name), of(number, name)) for name in names]
    )
    others = [videos_of(folder, AS_IT_WAS, repeat) for repeat in range(1, min(settings.repeats, FEWEST_REPEATS))]
    for index, (before, after) in enumerate(zip(videos_of(folder, AS_IT_WAS), videos_of(folder, number), strict=True)):
        made = read_object(before.with_suffix(".json"))
        fits = sample is not None and all(made[side] == sample.record[side] for side in ("frames", "height", "width"))
        mark = (settings.box, settings.frames) if fits else ((), ())
        chance = [apart(other[index], before, *mark) for other in others if index < len(other)]
        found.samples += 1
        found.differ += apart(after, before, *mark) > max(chance, default=0.0)
        if sample is None or not any(mark):
            continue
        most = apart(step_folder(folder, BASE) / f"{before.stem}-scale-0.mp4", sample.video, *mark)
        if apart(before, sample.video, *mark) < GONE * most:
            found.shown += 1
            found.gone += apart(after, sample.video, *mark) >= GONE * most
    return found


# ---- what the numbers mean

MEASURES = {
    "sample": "share of the way to the sample",
    "effect": "effect",
    "drift": "drift",
    "held_out_loss": "held-out loss",
}
"""Measures in words. The first that was measured decides."""


def told(measure: str, before: Sequence[float], after: Sequence[float]) -> Told:
    """Compare a measure over repeats, in pairs with the same seed.

    A difference is clear ("told") if its 95% interval (Student's t over the repeats) excludes 0 and it is larger
    than the standard deviation over seeds: with common random numbers, even tiny differences are steady.
    """
    count, apart = len(before), [late - early for early, late in zip(before, after, strict=True)]
    quantile = STUDENT[count - 2]
    mean, reach = statistics.mean(apart), quantile * statistics.stdev(apart) / math.sqrt(count)
    band = statistics.stdev(before)
    clear = abs(mean) > max(reach, band)
    verdict: Verdict = "same" if not any(apart) else "told" if clear else "chance"
    values = {"low": mean - reach, "high": mean + reach, "band": band}
    rounded = {name: round(value, 6) for name, value in values.items()}
    before_mean, after_mean = (round(statistics.mean(values), 6) for values in (before, after))
    return Told(measure=measure, before=before_mean, after=after_mean, verdict=verdict, **rounded)


def label(change: str) -> str:
    """Say what a change does: "without clip 07_cat", "with rank 8"."""
    kind, _, what = change.partition(":")
    if kind == SETTING:
        name, _, value = what.partition("=")
        return f"with {name.strip().replace('_', ' ')} {value.strip()}"
    parts = [one.strip() for one in what.split(",")]
    noun = {CLIPS: "clip", WORDS: "the word"}[kind]
    shown = " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))
    return f"without {noun}{'s' if len(parts) > 1 else ''} {shown}"


def in_numbers(one: Told) -> str:
    """Format a measure's values: "62% → 31% (95%: -38 to -24 points; seeds alone vary by ±5)"."""
    if one.measure == "held_out_loss":
        return (
            f"{one.before:.4f} → {one.after:.4f} (95%: {one.low:+.4f} to {one.high:+.4f}; "
            f"seeds alone vary by ±{one.band:.4f})"
        )
    low, high, band = (f"{100 * value:{sign}.1f}" for value, sign in ((one.low, "+"), (one.high, "+"), (one.band, "")))
    range_of = f"95%: {low} to {high} points; seeds alone vary by ±{band}"
    return f"{percent_of(one.before)} → {percent_of(one.after)} ({range_of})"


def percent_of(share: float) -> str:
    return f"{100 * share:.1f}%" if abs(share) < 0.1 else percent(share)


def sentence(one: Changed) -> str:
    """Say what a change did, or that it made no clear difference."""
    first, what = one.measures[0], label(one.change)
    if first.verdict == "same":
        return f"{what[0].upper()}{what[1:]}: no difference at all, the trainings are the same."
    numbers = f"{MEASURES[first.measure]} {in_numbers(first)}"
    if first.verdict == "chance":
        return f"{what[0].upper()}{what[1:]}: no clear difference; {numbers}."
    said = f"{what[0].upper()}{what[1:]}: {numbers}."
    if one.shown:
        return f"{said} What is marked is gone in {one.gone} of the {counted(one.shown, 'sample')} that showed it."
    if one.samples:
        return f"{said} {one.differ} of {counted(one.samples, 'sample')} differ more than from one seed to the next."
    return said


# ---- reading


def read_answer(run: Run, key: str) -> Answer | None:
    """Return an answer; None if there is none or its file is damaged."""
    found = read_record(run.folder / KEPT / key / ANSWER, Answer) if is_slug(key) else None
    return Answer.model_validate(found) if found else None


def questions(workspace: Workspace, run: Run) -> list[str]:
    """Return the keys of a run's questions, newest first: running ones, and answers."""
    paths = {path.parent.name: path for path in (run.folder / KEPT).glob(f"*/{ANSWER}")}
    for path in (workspace.root / FOLDER).glob(f"{run.name}-*/{jobs.CONFIG}"):
        name, _, key = path.parent.name.rpartition("-")
        if name == run.name:
            paths.setdefault(key, path)
    return sorted(paths, key=lambda key: -paths[key].stat().st_mtime)


if __name__ == "__main__":
    sys.exit(CountedJob.main(answer))

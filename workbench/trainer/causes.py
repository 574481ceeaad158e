"""Which clips caused what a sample shows: ask (`request`), and read the answer (`answers`). No torch.

Each question is a job in a folder named for everything that determines the answer, so a repeated question finds it:

    cache/causes/SAMPLE-KEY/            a job: `python -m workbench.trainer.causes FOLDER`
      config.json                       CausesSettings
      result.json                       how the job ended
    samples/DAY/SAMPLE.causes.json      the answers on a sample, newest first (`Answer`)
    cache/KEY.safetensors               sketched gradients, which later questions on the same run reuse

`attribution` computes the scores; this module says what they mean.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from workbench import jobs
from workbench.display.quantities import counted
from workbench.errors import ConfigError
from workbench.jobs import processes, queue
from workbench.jobs.devices import DeviceChoice, pick_device
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.sampler.samples import CAUSES, Sample, Samples
from workbench.settings import Settings, field
from workbench.workspace import Workspace, write_json
from workbench.workspace.records import key_of, read_record

MODULE, FOLDER, TITLE = "workbench.trainer.causes", "causes", "a search for causes"
MOST_CHECKPOINTS = 3  # evenly spread over the run, the sample's own among them
FEWEST_CLIPS = 4  # with fewer there is no usual score to compare with
STANDS_OUT = 3.5  # of the modified z-score: Iglewicz and Hoaglin 1993, How to Detect and Handle Outliers
BY_CHANCE = 1.645  # standard errors that unrelated answers reach once in twenty times
MOST_NAMED, MOST_ANSWERS = 5, 20
WHAT = "What"


class CausesSettings(Settings):
    """A question: which clips of a run caused what a sample, or the marked part of it, shows."""

    sample: str = field("", title="Sample", section=WHAT)
    """Id of the sample."""

    run: str = field("", title="Run", section=WHAT)
    """The run whose LoRA made it."""

    steps: tuple[int, ...] = field((), title="Checkpoints", section=WHAT)
    """Steps of the run's checkpoints to compare gradients at."""

    box: tuple[int, ...] = field((), title="Box", section=WHAT)
    """The marked box: left, top, width and height in pixels. Empty: the whole picture."""

    frames: tuple[int, ...] = field((), title="Frames", section=WHAT)
    """The first and the last marked frame, counted from 0. Empty: all frames."""

    device: DeviceChoice = field("auto", title="Device", section=WHAT, source="devices", advanced=True)
    """The device to compute on. auto: a GPU if there is one, else the CPU."""


class Cause(BaseModel):
    """A clip's part in what a sample shows.

    score: mean cosine between the gradients of the clip and of the sample, -1 to 1.
    usual: the score's distance from the clips' median, in median absolute deviations scaled to standard deviations.
    """

    file_name: str
    name: str
    dataset: str
    caption: str
    score: float
    usual: float = 0.0


class Answer(BaseModel):
    """The answer to a question, as stored beside its sample.

    key: the job's id.
    agreement: rank correlation between the scores of the two noise draws, -1 to 1.
    missing: clips the run trained on that are gone from their datasets.
    """

    key: str
    run: str
    steps: list[int]
    box: list[int]
    frames: list[int]
    clips: list[Cause]
    agreement: float
    missing: list[str]
    seconds: float
    time: Annotated[float, Field(ge=0)]


# ---- asking


def request(
    workspace: Workspace,
    sample: Sample,
    run: str = "",
    box: Sequence[int] = (),
    frames: Sequence[int] = (),
    device: DeviceChoice = "auto",
) -> jobs.Status:
    """Start the search for causes, unless this question was answered or is being answered, and return the job's status.

    Args:
        run: The run, if the sample was made with LoRAs of several runs.
        box: Left, top, width and height in pixels; () for the whole picture.
        frames: First and last frame, from 0; () for all.

    Raises:
        ConfigError: No run can be asked about this sample, or the mark lies outside it. CannotWrite.
    """
    if sample.problem or "scenes" in sample.record:
        raise ConfigError(sample.problem or f"{sample.id} joins several scenes: choose the sample of one of them")
    _ = sample.video  # raises without a video
    run, last = run_of(workspace, sample, run)
    settings = CausesSettings(
        sample=sample.id,
        run=run,
        steps=tuple(_steps(workspace, run, last)),
        box=tuple(checked_box(sample, box)),
        frames=tuple(checked_frames(sample, frames)),
        device=device,
    )
    _check_run(Run.open(workspace, run))
    what = {name: value for name, value in settings.model_dump(mode="json").items() if name != "device"}
    folder = workspace.cache / FOLDER / f"{sample.id}-{key_of(what)[:8]}"
    if jobs.status(folder).state.alive or any(one.key == folder.name for one in answers(sample)):
        return jobs.status(folder)
    settings.save(folder / jobs.CONFIG)
    return queue.submit(workspace, folder, MODULE, [pick_device(device)], TITLE)


def run_of(workspace: Workspace, sample: Sample, wanted: str = "") -> tuple[str, int | None]:
    """Return the run whose LoRA a sample used, and the step of its checkpoint, None for the final LoRA.

    Raises ConfigError if there is no such run, or if there are several and none is chosen.
    """
    found = dict[str, int | None]()
    if sample.record.get("run"):
        found[str(sample.record["run"])] = int(sample.record.get("step") or 0)
    for lora in sample.record.get("loras") or ():
        path = Path(str(lora.get("file", "")))
        if not path.is_absolute():
            path = workspace.root / path
        with contextlib.suppress(ValueError):
            slug, *inside = path.relative_to(workspace.runs).parts
            step = inside[1].removeprefix("step-") if len(inside) == 3 else ""
            found[slug] = int(step) if step.isdecimal() else None
    runs = {slug: step for slug, step in found.items() if (workspace.runs / slug / jobs.CONFIG).exists()}
    if wanted and wanted not in runs:
        raise ConfigError.of("run", f"run is {wanted[:80]!r}, whose LoRA did not make this sample: leave it empty")
    if not runs:
        raise ConfigError(
            "no run of this workspace trained a LoRA of this sample, so there are no clips to compare with: choose a "
            "sample that was made with a run's LoRA"
        )
    if len(runs) > 1 and not wanted:
        raise ConfigError.of("run", f"run is empty, but several made this sample: choose {' or '.join(runs)}")
    slug = wanted or next(iter(runs))
    return slug, runs[slug]


def _check_run(run: Run) -> None:
    """Raise ConfigError for a run whose gradients cannot be computed."""
    settings = run.settings
    reasons = {
        "it trained all weights, whose gradients are too many to compare": settings.method == "full",
        "it is a slider, whose loss is not that of its clips": settings.is_slider,
        "it was trained with given frames, a control or a reference, which is not supported": settings.tells,
        "it trained its tokenizer": settings.tokenizer_steps > 0,
    }
    if why := next((why for why, holds in reasons.items() if holds), ""):
        raise ConfigError(f"{run.name} cannot say which clips caused this: {why}")


def _steps(workspace: Workspace, run: str, last: int | None) -> list[int]:
    """Return the steps of the checkpoints to compare at: evenly spread ones up to the sample's. Raises ConfigError."""
    saved = [step for step in checkpoints.steps(workspace.run(run)) if last is None or step <= last]
    if not saved:
        raise ConfigError(f"{run} has no checkpoint of that step or earlier: keep more checkpoints (keep_checkpoints)")
    count = min(len(saved), MOST_CHECKPOINTS)
    return sorted({saved[-1 - round(index * (len(saved) - 1) / max(1, count - 1))] for index in range(count)})


def checked_box(sample: Sample, box: Sequence[int]) -> Sequence[int]:
    """Return a marked box, or () if it is the whole picture. Raises ConfigError if it lies outside the sample."""
    if not box:
        return ()
    width, height = (int(sample.record.get(side) or 0) for side in ("width", "height"))
    if len(box) != 4:
        raise ConfigError.of("box", f"box has {len(box)} numbers: give left, top, width and height in pixels")
    left, top, wide, tall = box
    if min(left, top) < 0 or min(wide, tall) < 1 or left + wide > width or top + tall > height:
        text = ", ".join(map(str, box))
        raise ConfigError.of("box", f"box is {text}, must lie inside the sample, which is {width}x{height}")
    return () if (left, top, wide, tall) == (0, 0, width, height) else box


def checked_frames(sample: Sample, frames: Sequence[int]) -> Sequence[int]:
    """Return a marked span, or () if it is all frames. Raises ConfigError if it lies outside the sample."""
    if not frames:
        return ()
    count = int(sample.record.get("frames") or 0)
    if len(frames) != 2 or not 0 <= frames[0] <= frames[1] < count:
        text = ", ".join(map(str, frames))
        raise ConfigError.of("frames", f"frames is {text}: give the first and the last frame, from 0 to {count - 1}")
    return () if tuple(frames) == (0, count - 1) else frames


# ---- the job


def search(job: jobs.Job) -> None:
    """Compare gradients and keep the answer. Raises WorkbenchError, or jobs.Stop when asked to stop."""
    settings, workspace = CausesSettings.load(job.folder / jobs.CONFIG), Workspace.open(job.folder.parents[2])
    sample, run = Samples(workspace).get(settings.sample), Run.open(workspace, settings.run)
    device, began = pick_device(settings.device), time.monotonic()

    def report(phase: str, done: int = 0, total: int = 0, seconds: float = 0.0) -> None:
        job.beat(phase, done, total, **({"step_seconds": seconds} if seconds else {"patient": True}))
        job.check_stop("Stopped. Gradients of clips are kept for the next search.")

    with queue.acquired(workspace, [device], job, TITLE):
        report("loading torch")
        with processes.loading():
            from workbench.trainer.attribution import Gradients, compare, question_of
        asked = question_of(sample, settings.box, settings.frames)
        found = compare(Gradients(workspace, run.folder, run.settings, device, report), settings.steps, asked, report)
    scores = found.scores.mean(0)
    answer = Answer(
        key=job.folder.name,
        **settings.model_dump(include={"run", "steps", "box", "frames"}),
        clips=judged(
            [
                Cause(
                    file_name=clip.plan.clip.file_name,
                    name=clip.name,
                    dataset=clip.path.parent.parent.name,
                    caption=clip.caption,
                    score=round(score, 5),
                )
                for clip, score in zip(found.clips, scores.tolist(), strict=True)
            ]
        ),
        agreement=round(rank_correlation(*found.scores.tolist()), 3),
        missing=found.missing,
        seconds=round(time.monotonic() - began, 1),
        time=time.time(),
    )
    keep(sample, answer)
    job.outcome = {"sentence": sentence(answer), "file": str(sample.path.with_suffix(CAUSES))}


# ---- the answer


def judged(clips: Sequence[Cause]) -> list[Cause]:
    """Return clips with their distances from the median score, highest first."""
    scores = [one.score for one in clips]
    middle = statistics.median(scores)
    spread = 1.4826 * statistics.median(abs(score - middle) for score in scores)
    told = [one.model_copy(update={"usual": round((one.score - middle) / max(spread, 1e-9), 2)}) for one in clips]
    return sorted(told, key=lambda one: -one.score)


def needed_agreement(clips: int) -> float:
    """Return the rank correlation that the scores of the two noise draws must reach: chance exceeds it once in 20.

    The standard error of the rank correlation of unrelated lists is 1 / sqrt(n - 1).
    """
    return float(BY_CHANCE / (clips - 1) ** 0.5)


def named(answer: Answer) -> list[Cause]:
    """Return the clips that caused what the sample shows; [] if none stands out or the answer is not reliable."""
    count = len(answer.clips)
    if count < FEWEST_CLIPS or answer.agreement < needed_agreement(count):
        return []
    return [one for one in answer.clips if one.usual >= STANDS_OUT][:MOST_NAMED]


def sentence(answer: Answer) -> str:
    """Say which clips caused it, or why no clip can be named."""
    what = "what is marked" if answer.box or answer.frames else "this sample"
    if len(answer.clips) < FEWEST_CLIPS:
        few = counted(len(answer.clips), "clip")
        return f"The run trained on {few}, too few to tell which one caused {what}."
    if answer.agreement < (needed := needed_agreement(len(answer.clips))):
        return (
            f"Cannot tell: the scores of two noise draws agree no better than chance (correlation "
            f"{answer.agreement:.2f}, where chance alone reaches {needed:.2f})."
        )
    if not (found := named(answer)):
        return f"No clip stands out: all of them contribute equally to {what}, so the concept explains it."
    names = [one.name for one in found]
    several = f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    theirs = "their gradients match" if len(names) > 1 else "its gradient matches"
    return f"{several} most likely caused {what}: {theirs} it unusually well."


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float:
    """Return Spearman's rank correlation of two lists of different numbers; 0 if either is constant."""
    ranks = [[sorted(values).index(value) for value in values] for values in (one, other)]
    with contextlib.suppress(statistics.StatisticsError):
        return statistics.correlation(*ranks)
    return 0.0


def keep(sample: Sample, answer: Answer) -> None:
    """Write an answer beside its sample, before older ones. Raises CannotWrite."""
    others = [one for one in answers(sample) if one.key != answer.key]
    told = [one.model_dump(mode="json") for one in (answer, *others)[:MOST_ANSWERS]]
    write_json(sample.path.with_suffix(CAUSES), {"answers": told})


def answers(sample: Sample) -> list[Answer]:
    """Return the answers on a sample, newest first. A damaged file has none."""
    found = read_record(sample.path.with_suffix(CAUSES), _Answers)
    return _Answers.model_validate(found).answers if found else []


class _Answers(BaseModel):
    answers: list[Answer]


def searches(workspace: Workspace, sample: str) -> list[Path]:
    """Return the folders of the existing searches on a sample, newest first."""
    found = [path.parent for path in (workspace.cache / FOLDER).glob(f"{sample}-*/{jobs.CONFIG}")]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


if __name__ == "__main__":
    sys.exit(jobs.Job.main(search))

"""What is said of a run at its head: a claim, the evidence, and the one thing to do next. No torch.

It gathers what the failure table, the diagnosis and the state say, and chooses among them; `perform_named` does what it
or one of the run's other actions offers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from workbench.display.quantities import duration
from workbench.display.states import Tone
from workbench.errors import NotNow
from workbench.jobs import State
from workbench.runs.analysis.diagnosis import Diagnosis
from workbench.runs.run import Action, Run, as_flags, perform
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot
from workbench.workspace import Workspace


@dataclass(frozen=True)
class Verdict:
    """tone: whether it is good news;  claim: what is so;  evidence: why;  action: what to do about it, if anything"""

    tone: Tone
    claim: str
    evidence: str
    action: Action | None = None


def verdict_of(seen: RunSnapshot) -> Verdict | None:
    """Return what is said of a run; None before anything can be said."""
    state, name = seen.status.state, seen.name
    if seen.failure:
        return _failed(seen)
    if seen.waits:
        return Verdict("plain", _waits(seen), "")
    if seen.status.hanging:
        silent = f"No sign of life for {duration(seen.status.silent_seconds)}."
        limit = seen.settings.stall_timeout if seen.settings else 0
        end = f" After {limit:g} minutes it ends itself and writes them down." if limit else ""
        return Verdict("bad", silent, f"Its stacks say where it stands.{end}", seen.action("stacks"))
    if state is State.NEW:
        return Verdict("plain", "Not started yet.", "It trains when it is put into the queue.", seen.action("go on"))
    if state is State.PAUSED:
        freed = "Its device is free meanwhile. It goes on where it stopped."
        return Verdict("plain", f"Paused at step {seen.curves.last.get('step', 0):,}.", freed, seen.action("sample"))
    if state is State.STOPPED and seen.outcome:
        return Verdict(
            "plain", f"Stopped at step {seen.curves.last.get('step', 0):,}.", seen.outcome.text, seen.action("go on")
        )
    if seen.diagnosis:
        claim, evidence = _split(seen.diagnosis)
        return Verdict(seen.diagnosis.tone, claim, evidence, _remedy(seen, seen.diagnosis))
    if seen.outcome:
        return Verdict("good", "Finished.", seen.outcome.text, seen.action("sample"))
    if state in (State.STARTING, State.RUNNING):
        return Verdict("plain", "It is too early to tell.", f"{name} has done no step yet.")
    return None


def _failed(seen: RunSnapshot) -> Verdict:
    assert seen.failure is not None
    found = seen.failure
    step = seen.curves.last.get("step", 0)
    at = f" at step {step:,}" if step else ""
    hints = [action.hint for action in found.actions if action.hint]
    until = [seen.diagnosis.sentence] if seen.diagnosis else []
    message = found.message and f"{found.message[0].upper()}{found.message[1:].rstrip('.')}."
    evidence = " ".join(filter(None, (message, found.facts, found.saved, found.advice, *hints, *until)))
    action = next((one for one in found.actions if not one.hint), None)
    return Verdict("bad", f"{found.cause}{at}.", evidence, action)


def _waits(seen: RunSnapshot) -> str:
    before = seen.queue[: (seen.position or 1) - 1]
    if not before:
        return "Next, as soon as the device is free."
    return f"Waits for {before[0]}" + (f" and {len(before) - 1} more." if len(before) > 1 else ".")


def _split(found: Diagnosis) -> tuple[str, str]:
    """The claim, and the evidence with what to do next."""
    head, colon, rest = found.sentence.partition(": ")
    if colon and len(head) <= 60:
        claim, evidence = f"{head}.", rest[:1].upper() + rest[1:]
    elif len(found.sentence) <= 60:
        claim, evidence = found.sentence, ""
    else:
        claim, evidence = f"{found.claim}.", found.sentence
    return claim, f"{evidence} {found.advice}".strip()


def _remedy(seen: RunSnapshot, found: Diagnosis) -> Action | None:
    """The diagnosis' remedy as an action, with the time it takes where that is known."""
    remedy, name = found.remedy, seen.name
    if remedy is None:
        return seen.action("sample")
    if remedy.kind == "sample":
        newest = remedy.step in (None, max(seen.saved, default=None))
        lora = name if seen.lora and newest else f"runs/{name}@{remedy.step}"
        return Action("sample", remedy.label, f"workbench sample --lora {lora}", step=remedy.step)
    flags = as_flags(remedy.settings)
    if remedy.kind == "new run":
        return Action("new run", remedy.label, f"workbench train --clone {name}{flags}", remedy.settings)
    assert remedy.step is not None
    seconds = (remedy.settings.get("steps", 0) - remedy.step) * float(seen.curves.last.get("seconds") or 0.0)
    label = remedy.label + (f" · {duration(seconds)}" if seconds > 0 else "")
    return Action("fork", label, f"workbench train --fork {name}@{remedy.step}{flags}", remedy.settings, remedy.step)


def offered(seen: RunSnapshot) -> Sequence[Action]:
    """All that can be done with a run now, the verdict's first."""
    verdict = verdict_of(seen)
    first = [verdict.action] if verdict and verdict.action else []
    return [*first, *(seen.failure.actions if seen.failure else ()), *seen.actions]


def perform_named(workspace: Workspace, seen: RunSnapshot, kind: str, label: str = "") -> Run | TrainSettings | str:
    """Do what is offered under a kind, and a label where several have that kind.

    Returns:
        The run to show from then on, settings for the form of a new run, or a sentence.

    Raises:
        NotNow: If it is no longer offered.
        ConfigError, CannotWrite
    """
    found = next((one for one in offered(seen) if one.kind == kind and label in ("", one.label)), None)
    if found is None:
        raise NotNow(f"{seen.name} is {seen.headline} now, and this is no longer offered: look at it again")
    return perform(workspace, seen.run, found)

"""Why a run ended as it did and what to do next, found in a table of rules (failure_rules). No torch.

A rule fits by exit code and by the run's own message or its last traceback. Not covered: how a failure is rendered (ui,
notebook, cli), doing what helps (actions).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.jobs import State, Status
from workbench.runs import oom_fallback
from workbench.runs.checkpoints import NOTHING_WHOLE
from workbench.runs.failure_rules import BUG, DEAD, RULES, STACKS, FailureRule
from workbench.runs.run import Action, ActionKind, as_flags
from workbench.runs.settings import TrainSettings

TAIL_LINES = 12
LAST_LINES = 5
LOG_LINES = 200  # of the log's end, in which the cause is looked for
BEGIN = "---- this start begins at "  # a line of the log that parts one start from the next


@dataclass(frozen=True)
class Failure:
    """Why a run failed: its own message, what is known of the cause, what is safe, what helps, the log's last lines."""

    rule: str
    cause: str
    message: str
    facts: str
    advice: str
    saved: str
    tail: str
    actions: tuple[Action, ...]

    @property
    def sentences(self) -> list[str]:
        """What a person reads below the cause, in order."""
        hints = [action.hint for action in self.actions]
        return [text for text in (self.message, self.facts, f"{self.saved} {self.advice}".strip(), *hints) if text]


def failure_of(status: Status, log: str, saved: Sequence[int], settings: TrainSettings | None = None) -> Failure | None:
    """Why a run failed or died; None for any other run.

    log: its last LOG_LINES;  saved: steps of its checkpoints, oldest first;  settings: None where they cannot be read
    """
    if status.state not in (State.FAILED, State.DIED):
        return None
    rule = _rule(status, log)
    checkpoint = saved[-1] if saved else None
    settings = settings and oom_fallback.in_use(status.folder, settings)
    return Failure(
        rule=rule.name,
        cause=rule.cause,
        message=status.message,
        facts=memory_facts(f"{status.message}\n{_last_messages(log)}") if "memory" in rule.name else "",
        advice=rule.advice,
        saved="" if rule.pattern == NOTHING_WHOLE else last_checkpoint(saved),  # its message names the damaged ones
        tail="\n".join(log.splitlines()[-TAIL_LINES:]),
        actions=_actions(rule, status.name, checkpoint, settings),
    )


def last_checkpoint(saved: Sequence[int]) -> str:
    """From where a run can go on, as a sentence."""
    return f"The last checkpoint is of step {saved[-1]}." if saved else "No checkpoint was written yet."


def memory_facts(text: str) -> str:
    """A GPU's message about memory as one sentence: how much was requested, how much was free, who holds the rest."""
    size = r"([\d.]+ [KMGT]?i?B)"
    requested = re.search(rf"Tried to allocate {size}", text)
    if not requested:
        return ""
    words = [f"{requested[1]} were requested"]
    total = re.search(rf"total capacity of {size}", text) or re.search(rf"{size} total capacity", text)
    free = re.search(rf"of which {size} is free", text) or re.search(rf"{size} free", text)
    if free and total:
        words.append(f"{free[1]} of {total[1]} were free")
    others = re.findall(rf"Process (\d+) has {size} memory in use", text)
    words += [f"process {pid} of another program holds {held}" for pid, held in dict.fromkeys(others)]
    return ", ".join(words) + "."


def _rule(status: Status, log: str) -> FailureRule:
    code = DEAD if status.state is State.DIED else status.exit_code
    messages = f"{status.message}\n{_last_messages(log)}"
    stacks = status.folder / STACKS
    if code == DEAD and stacks.exists():
        with stacks.open(errors="replace") as file:
            messages += f"\n{file.readline()}"
    return next(
        (rule for rule in RULES if code in rule.codes and re.search(rule.pattern, messages, re.MULTILINE)),
        BUG,
    )


def _last_messages(log: str) -> str:
    """The last traceback of the newest start, or its last few lines where there is none."""
    own = log.rpartition(BEGIN)[2]
    _, found, traceback = own.rpartition("Traceback (most recent call last)")
    return traceback if found else "\n".join(own.splitlines()[-LAST_LINES:])


def _actions(rule: FailureRule, run: str, checkpoint: int | None, settings: TrainSettings | None) -> tuple[Action, ...]:
    """The rule's actions, the one that helps most first; what needs a checkpoint is left out where there is none.

    The last one starts the run again, whatever the rule says: its cause may have been repaired meanwhile.
    """
    found = []
    if rule.change is not None and settings is not None and (changed := rule.change(settings)):
        words = ", ".join(f"{name} {value}" for name, value in changed.items())
        if checkpoint:
            command = f"workbench train --fork {run}@{checkpoint}{as_flags(changed)}"
            found.append(Action("fork", f"Fork from step {checkpoint} with {words}", command, changed, checkpoint))
        command = f"workbench train --clone {run}{as_flags(changed)}"
        found.append(Action("new run", f"Copy settings to the form with {words}", command, changed))
    starts = {"go on"} if checkpoint else {"go on", "from start"}
    again: tuple[ActionKind, ...] = () if starts & {*rule.kinds} else ("go on",)
    for kind in (*rule.kinds, *again):
        if kind == "from start" or (kind == "go on" and not checkpoint):
            found.append(Action("from start", "Begin again at step 0", f"workbench runs start {run} --from-start"))
        elif kind == "go on":
            found.append(Action(kind, f"Resume from step {checkpoint}", f"workbench runs start {run}"))
        elif kind == "fork" and checkpoint:
            command = f"workbench train --fork {run}@{checkpoint}"
            found.append(Action(kind, f"Fork from step {checkpoint}", command, step=checkpoint))
        elif kind == "new run":
            found.append(Action(kind, "Copy settings to the form", f"workbench train --clone {run}"))
        elif kind != "fork":
            found.append(_elsewhere(kind, run, settings))
    return tuple(found)


def _elsewhere(kind: str, run: str, settings: TrainSettings | None) -> Action:
    """What no button beside the failure can do."""
    if kind == "log in":
        source = settings.model if settings else ""
        with contextlib.suppress(ConfigError):
            source = find_model(source)[1].source if settings else ""
        hint = (
            f"Terms and access: https://huggingface.co/{source}. To log in: hf auth login, in a terminal on "
            "the machine that trains; a token never goes through a page or a notebook."
        )
        return Action("log in", "How to log in", "hf auth login", hint=hint)
    if kind == "free space":
        hint = (
            "Checkpoints that can go are listed under Checkpoints; the folder named cache in the workspace holds only "
            "copies, which are made again."
        )
        return Action("free space", "What can go", f"workbench runs prune {run} --keep 1", hint=hint)
    hint = "The check of the dataset, in the Dataset tab, says what is wrong with which clip."
    dataset = settings.dataset if settings else "NAME"
    return Action("dataset", "Open the dataset", f"workbench dataset show {dataset}", hint=hint)

"""At a run's end its LoRA goes to the Hub, with `push_to_hub`: by a job of its own, which no run waits for.

The job is the one that `workbench publish lora` starts (workbench.publishing): private, with the login that is stored
on this machine, never with a token of an environment. Its failures are written to its own folder and fails no
run. Not covered: what is pushed.
"""

from __future__ import annotations

from pathlib import Path

from workbench import hub, jobs
from workbench.errors import ConfigError, WorkbenchError
from workbench.runs.settings import TrainSettings
from workbench.workspace import write_json

MODULE, FOLDER = "workbench.publishing", "publishing"


def job_of(root: Path, what: str, name: str) -> Path:
    """The folder of a push in the workspace `root`; what: "lora" or "space";  name: the LoRA's, as runs/NAME."""
    return root / FOLDER / f"{what}--{name.replace('/', '--')}"


def check(settings: TrainSettings) -> None:
    """Refuse what would fail only at the end. Raises ConfigError."""
    if not settings.push_to_hub:
        return
    if settings.method == "full":
        raise _refusal("push_to_hub is on, but method is full: only a LoRA is pushed. Turn it off, or train a LoRA")
    if settings.repository:
        hub.check_repo_id(settings.repository)
    if not hub.logged_in():
        raise _refusal(f"push_to_hub is on, but nobody is logged in to the Hub on this machine: {hub.MAY_WRITE}")


def start(run: Path, settings: TrainSettings) -> str:
    """Start the push of a run that has finished; a sentence for its log, "" where none is wanted. Never raises."""
    if not settings.push_to_hub:
        return ""
    name = f"runs/{run.name}"
    job_folder = job_of(run.parent.parent, "lora", name)
    request = {"repo_id": settings.repository, "private": True, "lora": name}
    try:
        jobs.start(job_folder, MODULE, before=lambda: write_json(job_folder / jobs.CONFIG, request))
    except (WorkbenchError, OSError) as error:
        return f"the push to the Hub could not be started ({error}): workbench publish lora {run.name}"
    return f"the LoRA goes to the Hub, private; workbench publish lora {run.name} shows how far it is"


def _refusal(sentence: str) -> ConfigError:
    return ConfigError(sentence, {"push_to_hub": sentence})

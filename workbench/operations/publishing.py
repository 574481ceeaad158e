"""Publishing: push a LoRA, a fully fine-tuned model, a demo Space of a LoRA, or a dataset to the Hub.

Pushes use the Hub's own login (`hf auth login`); no operation takes a token. A push continues when the shell stops
watching it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from workbench import jobs
from workbench.dataset_builder.export import contents
from workbench.dataset_builder.settings import ExportSettings
from workbench.display.quantities import byte_size
from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.jobs.snapshot import JobSnapshot
from workbench.operations.dataset_tasks import DatasetTask, NamedDataset, start_task
from workbench.operations.dataset_tasks import job as dataset_job
from workbench.operations.registry import Fields, operation
from workbench.operations.shared import LoraName
from workbench.publishing import account as logins
from workbench.publishing import push
from workbench.publishing.account import Account
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.publishing.upload_plan import UploadPlan
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace, read_object

Pushed = Annotated[LoraName, AfterValidator(lambda name: name if "/" in name else f"runs/{name}")]
DatasetPush = Annotated[ExportSettings, Fields(only=("repo_id", "private", "license", "trigger_word"))]
PushId = Annotated[str, Field(description="Id of the push: lora/NAME or space/NAME.")]

LOGIN = (
    " Run `hf auth login` in a terminal on this machine, with a token that can write "
    "(https://huggingface.co/settings/tokens). This page detects the login; it never asks for a token."
)


class Place(Snapshot):
    """The Hub repository of a LoRA or its Space."""

    repo_id: str
    """The repository it was last pushed to, or its default one; "" while no owner is known."""

    url: str
    """Address of the repository; "" before the first push."""

    private: bool
    """Whether the repository is private."""

    time: float | None
    """When it was last pushed, as Unix time; null before the first push."""


class Push(JobSnapshot):
    """A push to the Hub."""

    repo_id: str
    """The repository it pushes to."""

    url: str
    """Address of the repository; "" until the push is done."""

    commit: str
    """The commit it made, or the latest one if nothing had changed; "" until the push is done."""

    changed: bool
    """Whether it made a new commit."""

    activity: str
    """What it is doing and how long that will take, or how it ended."""

    share: float | None
    """Share of the upload that is done, 0 to 1; null while unknown."""

    @property
    def goes_on(self) -> str:
        what, _, name = self.id.partition("/")
        return f"The push to {self.repo_id} continues in the background. Follow it: workbench publish {what} {name}"

    def outcome(self) -> Iterable[str]:
        done = "pushed" if self.changed else "nothing has changed, so there is no new commit"
        return (f"{done}: {self.url} (commit {self.commit[:8]})",)


class Publishing(Snapshot):
    """The Hub account, the repositories of a LoRA and its Space, and the progress of their pushes."""

    account: Account
    """The account, as far as it is known yet."""

    known: bool
    """Whether the Hub has confirmed the account."""

    login: str
    """How to log in, if nobody with write access is logged in; "" otherwise and until the Hub responds."""

    lora: Place
    """Repository of the LoRA."""

    space: Place
    """Repository of its demo Space."""

    push: Push | None
    """The last push of the LoRA; null before the first."""

    space_push: Push | None
    """The last push of its Space; null before the first."""


class Plan(Snapshot):
    """What a push would upload."""

    repo_id: str
    """The repository it would push to."""

    private: bool
    """Whether the repository is private."""

    sentence: str
    """A summary in words."""

    sizes: dict[str, int]
    """File name -> size in bytes."""

    notes: tuple[str, ...]
    """Remarks to read first, one sentence each."""

    readme: str
    """Text of its README."""

    @property
    def files(self) -> list[str]:
        """The plan without the README, in lines."""
        sizes = (f"  {byte_size(size):>12}  {name}" for name, size in self.sizes.items())
        return [self.sentence, *sizes, *(f"Note: {note}" for note in self.notes)]

    def text(self) -> Iterator[str]:
        yield from self.files
        yield from f"\nREADME.md:\n{self.readme}".split("\n") if self.readme else ()


@operation(shell=False)
def account(workspace: Workspace) -> Account:
    """Show which Hub account is logged in on this machine."""
    return logins.ask()


@operation(shell=False)
def show(workspace: Workspace, name: LoraName) -> Publishing:
    """Show the Hub account, the repositories of a LoRA and its Space, and the progress of their pushes.

    Returns right away, without waiting for the Hub.
    """
    who, found = logins.now(), push.find(workspace, name)
    known = who is not logins.ASKING

    def last(what: push.What) -> Push | None:
        pushed = jobs.status(push.folder(workspace, what, name)).state is not State.NEW
        return job(workspace, f"{what}/{name}") if pushed else None

    def place(published: Mapping[str, Any], what: push.What) -> Place:
        default = push.default_repo(who.name, found.title, what) if who.name else ""
        return Place(
            repo_id=str(published.get("repo_id") or default),
            url=str(published.get("url") or ""),
            private=bool(published.get("private")),
            time=float(published["time"]) if isinstance(published.get("time"), int | float) else None,
        )

    return Publishing(
        account=who,
        known=known,
        login=_login(who, known),
        lora=place(found.published, "lora"),
        space=place(found.published.get("space") or {}, "space"),
        push=last("lora"),
        space_push=last("space"),
    )


def _login(who: Account, known: bool) -> str:
    if who.name and who.reads_only:
        return f"You are logged in as {who.name}, with a token that can only read.{LOGIN}"
    if known and not who.name and ("logged in" in who.problem or "refuses" in who.problem):
        return f"Nobody is logged in to the Hub on this machine.{LOGIN}"
    return ""


@operation(shell=False, says=lambda plan: plan.files)
def plan_lora(workspace: Workspace, name: Pushed, settings: LoraPush) -> Plan:
    """Show what pushing a LoRA would upload."""
    return Plan.model_validate(push.plan_upload(workspace, name, chosen(workspace, name, settings)))


@operation(shell=False, says=lambda plan: plan.files)
def plan_space(workspace: Workspace, name: Pushed, settings: SpacePush) -> Plan:
    """Show what pushing a LoRA's demo Space would upload."""
    return Plan.model_validate(push.plan_upload(workspace, name, chosen(workspace, name, settings)))


@operation(shell=False, says=lambda plan: plan.files)
def plan_dataset(dataset: NamedDataset, settings: DatasetPush) -> Plan:
    """Show what pushing a dataset would upload."""
    if not settings.repo_id:
        raise ConfigError("repo_id is empty: give it with --to OWNER/NAME")
    files = contents(dataset.folder, settings)
    return Plan.model_validate(UploadPlan("dataset", settings.repo_id, settings.private, "", files))


def chosen(workspace: Workspace, name: str, settings: LoraPush | SpacePush) -> LoraPush | SpacePush:
    """Fill in the repository: by default, one of the logged-in account."""
    owner = "" if settings.repo_id else logins.ask().name
    named: LoraPush | SpacePush = push.named(workspace, name, settings, owner)
    return named


@operation(shell=False)
def job(workspace: Workspace, id: PushId) -> Push:
    """Show the progress of a push, or its outcome."""
    folder = _folder(workspace, id)
    status, result = jobs.status(folder), jobs.result(folder)
    config = read_object(folder / jobs.CONFIG)
    return Push.from_objects(
        status,
        id=id,
        repo_id=str(config.get("repo_id", "")),
        url=str(result.get("url") or ""),
        commit=str(result.get("commit") or ""),
        changed=bool(result.get("changed")),
        activity=_activity(status, result),
        share=status.share if status.phase == "uploading" else None,
    )


def _folder(workspace: Workspace, id: str) -> Path:
    what, _, name = id.partition("/")
    return push.folder(workspace, "space" if what == "space" else "lora", name)


def _activity(status: jobs.Status, result: Mapping[str, Any]) -> str:
    """Describe the progress of a push, or its outcome."""
    if status.state is State.STOPPING:
        return "Stopping"
    if status.state.alive and status.total and status.phase == "uploading":
        sent = f"Uploading {byte_size(status.step)} of {byte_size(status.total)}"
        return f"{sent} · {status.left}" if status.left else sent
    if status.state.alive:
        return (status.phase or "starting").capitalize()
    if status.state is State.FINISHED:
        return "Published" if result.get("changed", True) else "Nothing has changed, so there is no new commit"
    if status.state is State.STOPPED:
        return status.message[:1].upper() + status.message[1:]
    return f"Not published. {status.message} Publish again: the Hub skips what it already has."


@operation(changes=True, job=job, preview=plan_lora)
def lora(workspace: Workspace, name: Pushed, settings: LoraPush) -> Push:
    """Push a LoRA or a fully fine-tuned model to the Hub: weights, model card, previews.

    Pushing the same files again makes no new commit; repeat an interrupted push to continue it.
    """
    return start(workspace, name, chosen(workspace, name, settings))


@operation(changes=True, job=job, preview=plan_lora)
def model(workspace: Workspace, name: Pushed, settings: LoraPush) -> Push:
    """Push a run that trained all weights to the Hub: the trained part, model card, previews."""
    workspace.model(name)  # raises if it is not a model
    return lora(workspace, name, settings)


@operation(changes=True, job=job, preview=plan_space)
def space(workspace: Workspace, name: Pushed, settings: SpacePush) -> Push:
    """Push a demo Space for a LoRA that is already on the Hub."""
    return start(workspace, name, chosen(workspace, name, settings))


@operation(changes=True, job=dataset_job, preview=plan_dataset)
def dataset(dataset: NamedDataset, settings: DatasetPush) -> DatasetTask:
    """Push a dataset to the Hub in its VideoFolder layout, with a card."""
    return start_task(dataset, "export", settings)


def start(workspace: Workspace, name: str, settings: LoraPush | SpacePush) -> Push:
    """Start a push to the repository in the settings. A push that is already running continues."""
    push.start(workspace, name, settings)
    return job(workspace, f"{'space' if isinstance(settings, SpacePush) else 'lora'}/{name}")


@operation(changes=True, shell=False)
def stop(workspace: Workspace, id: PushId) -> Push:
    """Stop a push. Nothing that was uploaded so far becomes visible."""
    jobs.stop(_folder(workspace, id))
    return job(workspace, id)

"""Publishing: a LoRA, a model that was trained whole, or a demo of a LoRA, pushed to the Hub.

The token is the Hub's own login; no operation takes one. A dataset is pushed by its export.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from workbench import jobs
from workbench.display.quantities import byte_size, duration
from workbench.jobs import State
from workbench.operations.registry import JobSnapshot, Snapshot, operation
from workbench.publishing import account as logins
from workbench.publishing import push
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.workspace import Workspace, read_object

Name = Annotated[
    str,
    Field(title="LoRA", description="runs/RUN, runs/RUN@STEP or loras/NAME.", json_schema_extra={"source": "loras"}),
]
PushId = Annotated[str, Field(description="lora/NAME or space/NAME, as a push answers it.")]

LOGIN = (
    " Run `hf auth login` in a terminal on this machine, with a token that can write "
    "(https://huggingface.co/settings/tokens). This page then notices by itself; it never asks for a token."
)


class Account(Snapshot):
    """Who is logged in to the Hub."""

    name: str
    """Name of the account; "" if nobody is logged in."""

    owners: tuple[str, ...]
    """The account and its organizations, to which it may push."""

    reads_only: bool
    """Whether the login may not write."""

    problem: str
    """Why nobody is logged in, and what to do; "" when all is well."""


class Place(Snapshot):
    """Where a LoRA or its Space is on the Hub, or would go."""

    repo_id: str
    """The repository it was last pushed to, or its default one; "" while no owner is known."""

    url: str
    """Its address; "" while it is not there."""

    private: bool
    """Whether only its owners can see it."""

    time: float | None
    """Unix time of the last push; null before."""


class Push(JobSnapshot):
    """A push at work, or how it ended."""

    repo_id: str
    """The repository it goes to."""

    url: str
    """Its address on the Hub; "" before."""

    commit: str
    """The commit it made, or the latest one if nothing had changed; "" before."""

    changed: bool
    """Whether it made a new commit."""

    activity: str
    """What it is doing with the time that is left, or how it ended, for people."""

    share: float | None
    """How much of it is sent, from 0 to 1; null while that is unknown."""

    @property
    def goes_on(self) -> str:
        what, _, name = self.id.partition("/")
        return f"The push to {self.repo_id} goes on. See it again: workbench publish {what} {name}"

    def outcome(self) -> Iterable[str]:
        done = "pushed" if self.changed else "nothing has changed, so there is no new commit"
        return (f"{done}: {self.url} (commit {self.commit[:8]})",)


class Publishing(Snapshot):
    """What is known before a push: who is logged in, where things are, how far a push is."""

    account: Account
    """As far as is known yet."""

    known: bool
    """Whether the Hub has answered who is logged in."""

    login: str
    """How to log in, if nobody who can write is logged in; otherwise, and while the Hub is silent, ""."""

    lora: Place
    """Where the LoRA is."""

    space: Place
    """Where the Space that demonstrates it is."""

    push: Push | None
    """The last push of the LoRA; null before the first."""

    space_push: Push | None
    """The last push of its Space; null before the first."""


class Plan(Snapshot):
    """What a push would send."""

    repo_id: str
    """The repository it goes to."""

    private: bool
    """Whether only its owners can see it."""

    sentence: str
    """The same in words."""

    sizes: dict[str, int]
    """Bytes of each file."""

    notes: tuple[str, ...]
    """Remarks to read first, a sentence each."""

    readme: str
    """The text of its README."""


@operation(shell=False)
def account(workspace: Workspace) -> Account:
    """Show who is logged in to the Hub."""
    return Account.model_validate(logins.ask())


@operation(shell=False)
def show(workspace: Workspace, name: Name) -> Publishing:
    """Show who is logged in, where a LoRA and its Space are or would go, and how far a push is; never waits."""
    who, found = logins.now(), push.find(workspace, name)

    def last(what: push.What) -> Push | None:
        return (
            job(workspace, f"{what}/{name}")
            if jobs.status(push.folder(workspace, what, name)).state is not State.NEW
            else None
        )

    def place(known: Mapping[str, Any], what: push.What) -> Place:
        otherwise = push.default_repo(who.name, found.title, what) if who.name else ""
        return Place(
            repo_id=str(known.get("repo_id") or otherwise),
            url=str(known.get("url") or ""),
            private=bool(known.get("private")),
            time=float(known["time"]) if isinstance(known.get("time"), int | float) else None,
        )

    return Publishing(
        account=Account.model_validate(who),
        known=who.known,
        login=_login(who),
        lora=place(found.published, "lora"),
        space=place(found.published.get("space") or {}, "space"),
        push=last("lora"),
        space_push=last("space"),
    )


def _login(who: logins.Account) -> str:
    if who.name and who.reads_only:
        return f"You are logged in as {who.name}, with a token that can only read.{LOGIN}"
    if who.known and not who.name and ("logged in" in who.problem or "refuses" in who.problem):
        return f"Nobody is logged in to the Hub on this machine.{LOGIN}"
    return ""


@operation(shell=False)
def plan_lora(workspace: Workspace, name: Name, settings: LoraPush) -> Plan:
    """Show what `lora` would send."""
    return Plan.model_validate(push.plan_upload(workspace, name, chosen(workspace, name, settings)))


@operation(shell=False)
def plan_space(workspace: Workspace, name: Name, settings: SpacePush) -> Plan:
    """Show what `space` would send."""
    return Plan.model_validate(push.plan_upload(workspace, name, chosen(workspace, name, settings)))


def chosen(workspace: Workspace, name: str, settings: LoraPush | SpacePush) -> LoraPush | SpacePush:
    """Return the settings with a repository: where none is named, one of whoever is logged in."""
    owner = "" if settings.repo_id else logins.ask().name
    named: LoraPush | SpacePush = push.named(workspace, name, settings, owner)
    return named


@operation(shell=False)
def job(workspace: Workspace, id: PushId) -> Push:
    """Show the progress of a push."""
    what, _, name = id.partition("/")
    kind: push.What = "space" if what == "space" else "lora"
    folder = push.folder(workspace, kind, name)
    status, result = jobs.status(folder), jobs.result(folder)
    config = read_object(folder / jobs.CONFIG)
    return Push(
        id=id,
        folder=str(folder),
        state=status.state.value,
        message=status.message,
        repo_id=str(config.get("repo_id", "")),
        url=str(result.get("url") or ""),
        commit=str(result.get("commit") or ""),
        changed=bool(result.get("changed")),
        activity=_activity(status, result),
        share=status.step / status.total if status.total and status.phase == "uploading" else None,
    )


def _activity(status: jobs.Status, result: Mapping[str, Any]) -> str:
    """How far a push is, or how it ended."""
    if status.state is State.STOPPING:
        return "Stopping"
    if status.state.alive and status.total and status.phase == "uploading":
        left = f" · about {duration(status.seconds_left)} left" if status.seconds_left is not None else ""
        return f"Uploading {byte_size(status.step)} of {byte_size(status.total)}{left}"
    if status.state.alive:
        return (status.phase or "starting").capitalize()
    if status.state is State.FINISHED:
        return "Published" if result.get("changed", True) else "Nothing has changed, so there is no new commit"
    if status.state is State.STOPPED:
        return status.message[:1].upper() + status.message[1:]
    return f"Not published. {status.message} Publish again: the Hub skips what it already has."


@operation(changes=True, job=job, shell=False)
def lora(workspace: Workspace, name: Name, settings: LoraPush) -> Push:
    """Push a LoRA, or a model that was trained whole: weights, model card, previews."""
    return start(workspace, name, chosen(workspace, name, settings))


@operation(changes=True, job=job, shell=False)
def space(workspace: Workspace, name: Name, settings: SpacePush) -> Push:
    """Push a Space that generates videos with a LoRA, which is on the Hub already."""
    return start(workspace, name, chosen(workspace, name, settings))


def start(workspace: Workspace, name: str, settings: LoraPush | SpacePush) -> Push:
    """Start a push to the repository that the settings name; one that is at work goes on."""
    push.start(workspace, name, settings)
    return job(workspace, f"{'space' if isinstance(settings, SpacePush) else 'lora'}/{name}")


@operation(changes=True, shell=False)
def stop(workspace: Workspace, id: PushId) -> Push:
    """Stop a push. Nothing sent so far becomes visible."""
    what, _, name = id.partition("/")
    jobs.stop(push.folder(workspace, "space" if what == "space" else "lora", name))
    return job(workspace, id)

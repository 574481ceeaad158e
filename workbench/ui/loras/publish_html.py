"""The publishing part as HTML: the login, the upload plan, the progress of a push. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from workbench.display.quantities import byte_size, duration
from workbench.jobs import State, Status
from workbench.publishing.account import Account
from workbench.publishing.upload_plan import UploadPlan
from workbench.ui.core import render

TOKENS = "https://huggingface.co/settings/tokens"
NOTHING = "Choose a LoRA above, then it can be pushed to the Hugging Face Hub."


def account(who: Account) -> str:
    """Who is logged in, or how to log in."""
    if not who.known:
        return '<p class="hint">Asking the Hugging Face Hub who is logged in on this machine ...</p>'
    if who.name and who.reads_only:
        message = f"Logged in as <b>{render.escaped(who.name)}</b>, with a token that may only read. {_how()}"
        return f'<div class="note bad">{message}</div>'
    if who.name:
        return f'<p class="hint">Logged in to the Hugging Face Hub as <b>{render.escaped(who.name)}</b>.</p>'
    if "logged in" in who.problem or "refuses" in who.problem:
        return f'<div class="note plain">Nobody is logged in to the Hugging Face Hub on this machine. {_how()}</div>'
    return render.note(f"Who is logged in could not be found out: {who.problem}")


def _how() -> str:
    return (
        "In a terminal of this machine, run <code>hf auth login</code> with a token that may write "
        f'(<a href="{TOKENS}" target="_blank" rel="noopener">make one</a>); this page then finds it by itself. It '
        "never asks for a token, and keeps none."
    )


def published(entry: Mapping[str, Any], thing: str) -> str:
    """Where it is on the Hub; nothing when it is not."""
    if not entry.get("url"):
        return ""
    when = time.strftime("%d %B %Y, %H:%M", time.localtime(float(entry.get("time") or 0)))
    visibility = "private" if entry.get("private") else "public"
    return f'<p class="hint">{thing} on the Hub: {link(str(entry["url"]))} ({visibility}, pushed {when}).</p>'


def link(url: str) -> str:
    """An address of the Hub that opens in a tab of its own."""
    if not url.startswith(("https://", "http://")):
        return render.escaped(url)
    address = render.escaped(url)
    return f'<a href="{address}" target="_blank" rel="noopener">{render.escaped(url.partition("://")[2])}</a>'


def upload_plan(plan: UploadPlan, with_readme: bool = False) -> str:
    """Every file of the upload, with its size; with_readme: and README.md, as text."""
    rows = [(name, byte_size(size)) for name, size in plan.sizes.items()]
    notes = "".join(f"<li>{render.escaped(note)}</li>" for note in plan.notes)
    text = f"<details><summary>README.md</summary>{render.log_box(plan.readme)}</details>" if with_readme else ""
    return (
        f'<div class="upload-plan"><p><b>{render.escaped(plan.sentence)}</b></p>'
        f"{f'<ul>{notes}</ul>' if notes else ''}"
        f'<div style="max-height:17em;overflow:auto">{render.table(("file", "size"), rows)}</div>{text}</div>'
    )


def readme(plan: UploadPlan) -> str:
    """README.md as Markdown: the front matter as code, the gallery named."""
    text = plan.readme
    if not text.startswith("---\n"):
        return text
    _, front, body = text.split("---\n", 2)
    body = body.replace("<Gallery />", "*The previews are shown here.*")
    return f"```yaml\n{front.strip()}\n```\n\n{body.strip()}"


def progress(status: Status, result: Mapping[str, Any]) -> str:
    """The progress of a push, or how it ended; nothing where there was none."""
    if status.state is State.NEW:
        return ""
    if status.state.alive:
        share = status.step / status.total if status.total and status.phase == "uploading" else None
        words = status.phase or "starting"
        if share is not None:
            words = f"{words} {status.message}: {byte_size(status.step)} of {byte_size(status.total)}"
        if status.state is State.STOPPING:
            words = "stopping"
        left = f" · about {duration(status.seconds_left)} left" if share and status.seconds_left is not None else ""
        return f'{render.bar(share)}<p class="doing">{render.escaped(words + left)}</p>'
    if status.state is State.FINISHED:
        outcome = "Pushed" if result.get("changed", True) else "Nothing has changed, so there is no new commit"
        return f'<div class="note good">{outcome}: {link(str(result.get("url", "")))}</div>'
    if status.state is State.STOPPED:
        return render.note(status.message[:1].upper() + status.message[1:])
    again = "Push again: what the Hub has is not sent twice."
    return f'<div class="note bad"><b>Not pushed.</b> {render.escaped(status.message)} {again}</div>'

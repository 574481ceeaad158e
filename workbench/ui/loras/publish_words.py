"""What the publishing part says, as HTML: the login, the list of what will go, how a push goes. Pure functions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from workbench.jobs import State, Status, duration
from workbench.publishing.account import Account
from workbench.publishing.upload_plan import Parcel, megabytes
from workbench.ui.core import render

TOKENS = "https://huggingface.co/settings/tokens"
NOTHING = "Choose a LoRA above, then it can be put on the Hugging Face Hub."


def account(who: Account) -> str:
    """Who is logged in, or how to log in."""
    if not who.known:
        return '<p class="hint">Asking the Hugging Face Hub who is logged in on this machine ...</p>'
    if who.name and who.reads_only:
        said = f"Logged in as <b>{render.escaped(who.name)}</b>, with a token that may only read. {_how()}"
        return f'<div class="note bad">{said}</div>'
    if who.name:
        return f'<p class="hint">Logged in to the Hugging Face Hub as <b>{render.escaped(who.name)}</b>.</p>'
    if "logged in" in who.problem or "refuses" in who.problem:
        return f'<div class="note plain">Nobody is logged in to the Hugging Face Hub on this machine. {_how()}</div>'
    return render.note(f"The Hub was asked who is logged in: {who.problem}")


def _how() -> str:
    return (
        "In a terminal of this machine, run <code>hf auth login</code> with a token that may write "
        f'(<a href="{TOKENS}" target="_blank" rel="noopener">make one</a>); this page then finds it by itself. It '
        "never asks for a token, and keeps none."
    )


def published(entry: Mapping[str, Any], thing: str) -> str:
    """Where it is on the Hub already; nothing when it is not."""
    if not entry.get("url"):
        return ""
    when = time.strftime("%d %B %Y, %H:%M", time.localtime(float(entry.get("time") or 0)))
    shown = "private" if entry.get("private") else "public"
    return f'<p class="hint">{thing} on the Hub: {link(str(entry["url"]))} ({shown}, pushed {when}).</p>'


def link(url: str) -> str:
    """An address of the Hub that opens in a tab of its own."""
    if not url.startswith(("https://", "http://")):
        return render.escaped(url)
    shown = render.escaped(url)
    return f'<a href="{shown}" target="_blank" rel="noopener">{render.escaped(url.partition("://")[2])}</a>'


def going(parcel: Parcel, with_card: bool = False) -> str:
    """Every file that would go, with its size; with_card: and README.md, as text."""
    rows = [(name, megabytes(size)) for name, size in parcel.sizes.items()]
    notes = "".join(f"<li>{render.escaped(note)}</li>" for note in parcel.notes)
    readme = f"<details><summary>README.md</summary>{render.log_box(parcel.card)}</details>" if with_card else ""
    return (
        f'<div class="parcel"><p><b>{render.escaped(parcel.sentence)}</b></p>'
        f"{f'<ul>{notes}</ul>' if notes else ''}"
        f'<div style="max-height:17em;overflow:auto">{render.table(("file", "size"), rows)}</div>{readme}</div>'
    )


def card(parcel: Parcel) -> str:
    """README.md as Markdown to be shown: the front matter as code, the gallery named."""
    text = parcel.card
    if not text.startswith("---\n"):
        return text
    _, front, body = text.split("---\n", 2)
    body = body.replace("<Gallery />", "*The previews are shown here.*")
    return f"```yaml\n{front.strip()}\n```\n\n{body.strip()}"


def progress(status: Status, result: Mapping[str, Any]) -> str:
    """How a push goes, or how it ended; nothing where there was none."""
    if status.state is State.NEW:
        return ""
    if status.state.alive:
        share = status.step / status.total if status.total and status.phase == "uploading" else None
        words = status.phase or "starting"
        if share is not None:
            words = f"{words} {status.message}: {megabytes(status.step)} of {megabytes(status.total)}"
        if status.state is State.STOPPING:
            words = "stopping"
        left = f" · about {duration(status.seconds_left)} left" if share and status.seconds_left is not None else ""
        return f'{render.bar(share)}<p class="doing">{render.escaped(words + left)}</p>'
    if status.state is State.FINISHED:
        said = "Pushed" if result.get("changed", True) else "Nothing has changed, so there is no new commit"
        return f'<div class="note good">{said}: {link(str(result.get("url", "")))}</div>'
    if status.state is State.STOPPED:
        return render.note(status.message[:1].upper() + status.message[1:])
    again = "Push again: what the Hub has is not sent twice."
    return f'<div class="note bad"><b>Not pushed.</b> {render.escaped(status.message)} {again}</div>'

"""What only visitors of the demo see on the page: what they may do here, and a replay of a run."""

from __future__ import annotations

import os

import gradio as gr

from workbench.demo_space import replays
from workbench.demo_space.limits import MOST, Limits
from workbench.demo_space.sessions import LOGIN
from workbench.ui.core import render


def banner(limits: Limits) -> str:
    """What the demo is, and what happens to a visitor's files."""
    steps, minutes = f"{MOST['TrainSettings.steps']:g}", f"{limits.job / 60:.0f}"
    idle, longest = f"{limits.idle / 60:.0f}", f"{limits.longest / 3600:g}"
    return (
        '<div class="note demo"><b>This is a demo on a small machine.</b> The workspace you see is yours alone: nobody '
        f"else can look into it, and all of it is removed {idle} minutes after you have left, {longest} hours after "
        f"you came at the latest. You can build datasets of your own clips ({limits.upload // 2**20} MB an upload), "
        f"train the built-in model ({steps} steps and {minutes} minutes at most, one run at a time) and sample it. "
        "Large models, publishing, other machines and files of this one are switched off. The tab <i>Replay</i> "
        f"shows a real training run from beginning to end.{_sign_in()}</div>"
    )


def _sign_in() -> str:
    """The owner's way to the whole workbench, where there is one."""
    address = os.environ.get(LOGIN, "")
    link = f'<a href="{render.escaped(address)}" target="_blank" rel="noopener">Sign in</a>'
    return f" If this Space is yours: {link} for the whole workbench." if address else ""


def replay_tab() -> None:
    """A tab with a replay and a slider over its time. It needs no listener: all of it is in the browser."""
    found = replays.shipped()
    gr.set_static_paths([replay.folder for replay in found])
    with gr.Tab("Replay", id="replay", elem_id="tab-replay"):
        for number, replay in enumerate(found):
            gr.HTML(
                replays.player(replay, render.url),
                elem_id=f"replay-{number}",
                js_on_load=replays.SCRIPT.read_text(encoding="utf-8"),
                css_template=replays.STYLE.read_text(encoding="utf-8"),
            )
        if not found:
            gr.HTML(render.note("This copy of the workbench comes with no replay.", "empty"))

"""What a training run looks like on the page: head, failure card, previews. Strings of HTML from a snapshot.

Not covered: the charts and the buttons (train_tab), which are components.
"""

from __future__ import annotations

import time

from workbench.errors import ExitCode
from workbench.jobs import State, Status, duration
from workbench.trainer.runs import Preview
from workbench.ui import render
from workbench.ui.live import Live, Snapshot, thinned

COLUMNS = 8
KINDS = {
    State.NEW: "idle", State.STARTING: "going", State.RUNNING: "going", State.PAUSED: "idle", State.STOPPING: "idle",
    State.FINISHED: "good", State.STOPPED: "idle", State.FAILED: "bad", State.DIED: "bad",
}  # fmt: skip
# What went wrong in a few words, and what to do next; the job's own sentence stands between them.
CAUSES = {
    ExitCode.BAD_CONFIG: (
        "A setting does not fit",
        "Copy its settings into the form, change the one named, and start.",
    ),
    ExitCode.BAD_DATA: ("The clips do not fit", "Look at the dataset in the Dataset tab, mend it, then go on."),
    ExitCode.MODEL_UNAVAILABLE: ("The model could not be loaded", "Check the connection and the licence, then go on."),
    ExitCode.CANNOT_WRITE: (
        "The disk refused",
        "Free some space, then go on: everything up to the checkpoint is safe.",
    ),
    ExitCode.DEVICE_BUSY: ("The GPU is taken", "Wait for the other job or stop it, then go on."),
    ExitCode.RESUME_REFUSED: ("The run cannot go on", "What it was trained on has changed: start a new run instead."),
    ExitCode.OUT_OF_MEMORY: (
        "Out of memory",
        "Copy its settings into the form; fewer frames, a smaller size, batch or rank, or gradient checkpointing help.",
    ),
    ExitCode.NON_FINITE_LOSS: ("The loss broke", "Copy its settings into the form and halve the learning rate."),
    ExitCode.HUNG: ("The run stood still", "Go on from the checkpoint; if it happens again, look at the log."),
}
BUG = ("An error inside the workbench", "Go on from the checkpoint; if it happens again, the log says where.")
DIED = ("The process is gone", "Go on from the checkpoint.")


def empty() -> str:
    return render.note(
        "No run is chosen. Fill in the form on the left and press Start training, or train the demo first.", "empty"
    )


def head(snapshot: Snapshot, live: Live) -> str:
    """Name, state, progress, the numbers that matter."""
    status = snapshot.status
    kind = KINDS[status.state]
    share = status.step / status.total if status.total else None
    if status.state is State.FINISHED:
        share = 1.0
    elif not status.state.alive:
        share = share or 0.0
    title = f"<h2>{render.escaped(status.name)}</h2>{render.badge(status.state, kind)}"
    return (
        f'<div class="run-head"><div class="title">{title}'
        f'<span class="left">{render.escaped(_time(status))}</span></div>'
        f"{render.bar(share, kind)}<p>{render.escaped(_doing(status))}</p>{render.facts(_facts(snapshot, live))}</div>"
    )


def _time(status: Status) -> str:
    if status.state is State.RUNNING and status.seconds_left is not None:
        return f"about {duration(status.seconds_left)} left"
    if status.state.alive or not (status.started_at and status.ended_at):
        return ""
    return f"took {duration(status.ended_at - status.started_at)}"


def _doing(status: Status) -> str:
    """Phase and step in words."""
    words = {
        State.NEW: ["not started yet"],
        State.STARTING: ["loading"],
        State.FINISHED: [f"{status.total} steps done" if status.total else "done"],
    }.get(status.state)
    if words is None:
        words = [status.phase or "starting"] if status.state.alive else []
        words += [f"{status.step} of {status.total}"] if status.total else []
    if status.state is State.STOPPING:
        words.append("finishes its step, saves, and ends")
    if status.state is State.PAUSED:
        words.append("waits until you press Continue")
    if status.state.alive and status.message:
        words.append(status.message)
    if status.hanging:
        words.append(f"no sign of life for {duration(status.silent_seconds)}")
    return " · ".join(words)


def _facts(snapshot: Snapshot, live: Live) -> list[tuple[str, str]]:
    curves, status = snapshot.curves, snapshot.status
    pairs = []
    if curves.smoothed is not None:
        pairs.append(("loss, smoothed", f"{curves.smoothed:.4f}"))
    if curves.held_out:
        first, last = curves.held_out[min(curves.held_out)], curves.held_out[max(curves.held_out)]
        pairs.append(("held-out loss", f"{first:.4f} → {last:.4f}" if len(curves.held_out) > 1 else f"{last:.4f}"))
    if "lr" in curves.last:
        pairs.append(("learning rate", f"{curves.last['lr']:.2e}"))
    if curves.last.get("seconds"):
        pairs.append(("a step takes", f"{curves.last['seconds']:.2f} s"))
    if curves.last.get("memory_gb"):
        pairs.append(("memory", f"{curves.last['memory_gb']:.1f} GB"))
    if status.state.alive:
        device, load = live.load()
        what = "processor" if device.startswith("processor") else "GPU"
        pairs.append(
            (f"{what} load", f"{load.utilisation:.0f} %, {load.memory_used_gb:.1f} of {load.memory_total_gb:.0f} GB")
        )
    elif status.ended_at:
        pairs.append(("ended", time.strftime("%d %b, %H:%M", time.localtime(status.ended_at))))
    return pairs


def ending(snapshot: Snapshot) -> str:
    """What to do once a run is over: the LoRA of a finished one, the card of a failed one. Empty before."""
    status = snapshot.status
    if status.state is State.FINISHED and snapshot.lora:
        size = snapshot.lora.stat().st_size / 1e6
        link = render.download(snapshot.lora, f"{status.name}.safetensors")
        said = f"<b>The LoRA is ready.</b> {link} ({size:.1f} MB): it loads in diffusers as it is."
        return f'<div class="note good">{said}</div>'
    if status.state is State.STOPPED:
        return render.note(f"Stopped as asked, {_saved(snapshot)}. It can go on from there at any time.")
    if status.state not in (State.FAILED, State.DIED):
        return ""
    code = status.exit_code
    cause, advice = DIED if status.state is State.DIED else CAUSES.get(ExitCode(code), BUG) if code in _CODES else BUG
    tail = "\n".join(snapshot.log.splitlines()[-12:])
    return (
        f'<div class="note bad card"><h3>{render.escaped(cause)}</h3><p>{render.escaped(status.message)}</p>'
        f"<p>{render.escaped(_saved(snapshot).capitalize())}. {render.escaped(advice)}</p>"
        f"<details><summary>The log's last lines</summary>{render.log_box(tail)}</details></div>"
    )


_CODES = {code.value for code in ExitCode}


def _saved(snapshot: Snapshot) -> str:
    saved = snapshot.checkpoints
    return f"the last good checkpoint is step {saved[-1]}" if saved else "no checkpoint was written yet"


def previews(snapshot: Snapshot) -> str:
    """Prompts down, steps across; the base model first. Once the run is over: before and after, large."""
    found = snapshot.previews
    if not found:
        if snapshot.settings and snapshot.settings.preview_every and snapshot.status.state.alive:
            return render.note("The first previews show what the model draws before training. They come soon.", "empty")
        return render.note("This run has no previews.", "empty")
    steps = thinned(sorted({preview.step for preview in found}), COLUMNS)
    cells = {(preview.index, preview.step): preview for preview in found}
    prompts: dict[int, str] = {}
    for preview in found:
        prompts[preview.index] = preview.prompt
    titles = "".join(f"<th>{'base model' if step == 0 else f'step {step}'}</th>" for step in steps)
    rows = []
    for index, prompt in sorted(prompts.items()):
        videos = "".join(_cell(cells.get((index, step)), snapshot) for step in steps)
        rows.append(f'<tr><th scope="row">{render.escaped(prompt)}</th>{videos}</tr>')
    return (
        f'<div class="scroll"><table class="previews"><thead><tr><th>prompt</th>{titles}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cell(preview: Preview | None, snapshot: Snapshot) -> str:
    if preview is None:
        return "<td></td>"
    label = f"{preview.prompt}, {'base model' if preview.step == 0 else f'step {preview.step}'}"
    return f"<td>{render.video(preview.video, snapshot.width, label)}</td>"


def before_after(snapshot: Snapshot) -> str:
    """The base model and the finished LoRA side by side, a pair for each prompt; empty while the run goes on."""
    if snapshot.status.state.alive or len({preview.step for preview in snapshot.previews}) < 2:
        return ""
    last = max(preview.step for preview in snapshot.previews)
    pairs = []
    for after in (preview for preview in snapshot.previews if preview.step == last):
        before = next((p for p in snapshot.previews if p.step == 0 and p.index == after.index), None)
        if before:
            sides = ((before, "base model"), (after, f"with the LoRA, step {last}"))
            videos = "".join(
                f"<figure>{render.video(preview.video, snapshot.width, f'{preview.prompt}, {side}')}"
                f"<figcaption>{side}</figcaption></figure>"
                for preview, side in sides
            )
            pairs.append(f'<div class="pair"><div>{videos}</div><p>{render.escaped(after.prompt)}</p></div>')
    return f'<div class="pairs">{"".join(pairs)}</div>' if pairs else ""

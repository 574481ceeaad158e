"""The Sample tab: ask for a video, watch it come, look back at earlier ones and take up their settings again.

Requests and results are files, so a reload or a restart of the server loses neither. Not covered: drawing
(workbench.sampler), how many requests run at once.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench import gpu_lock
from workbench.errors import ConfigError, DeviceBusy
from workbench.families import find_model
from workbench.jobs import duration
from workbench.sampler import queue
from workbench.sampler.queue import RequestState
from workbench.sampler.samples import Sample, Samples
from workbench.sampler.settings import SampleSettings
from workbench.ui import render
from workbench.ui.boundary import QUIET, TICK, UPWARDS, Seen, handler, tick, watch
from workbench.ui.form import Form, sentences
from workbench.ui.live import Live, Recent
from workbench.workspace import Workspace

HISTORY = 24
VIEW = ("device", "result", "cancel", "restore", "remove", "history")  # what follows the chosen request or sample


class SampleTab:
    """Builds the tab's components; `wire` connects them."""

    def __init__(self, workspace: Workspace, live: Live) -> None:
        self.workspace, self.live = workspace, live
        self._history = Recent(lambda: Samples(workspace).history(HISTORY))
        with gr.Row():
            with gr.Column(scale=4, min_width=330, elem_classes="side"):
                self.form = Form(SampleSettings, workspace, SampleSettings())
                self.generate = gr.Button("Generate", variant="primary", elem_id="generate")
            with gr.Column(scale=9, min_width=420):
                self.device = gr.HTML(elem_id="sample-device")
                self.result = gr.HTML(elem_id="sample-result")
                with gr.Row(elem_classes="buttons"):
                    self.cancel = gr.Button("Cancel", variant="stop", visible=False, elem_id="cancel-sample")
                    self.restore = gr.Button("Use these settings again", visible=False, elem_id="restore-sample")
                    self.remove = gr.Button("Take out of the history", visible=False)
                self.history = gr.Gallery(
                    label="History", columns=6, height=260, allow_preview=False, object_fit="contain",
                    interactive=False, visible=False, elem_id="sample-history", buttons=[],
                )  # fmt: skip

    def wire(self, timer: gr.Timer, load: Any) -> None:
        """Connect the listeners; `load` is the page's load event."""
        self.chosen = gr.BrowserState(None, storage_key="workbench-sample", secret="workbench")
        seen = gr.State(Seen())
        outputs = [getattr(self, name) for name in VIEW]
        load(tick(self._tick), [self.chosen, seen], outputs, **TICK)
        watch(timer, self._look, [self.chosen, seen], dict(zip(VIEW, outputs, strict=True)))
        asked = self.generate.click(
            handler(self._generate),
            [seen, *self.form.inputs],
            [self.chosen, self.form.problems, *outputs],
            **QUIET,
        )
        asked.then(None, js=UPWARDS)
        self.cancel.click(handler(self._cancel), [self.chosen, seen], outputs, **QUIET)
        self.history.select(handler(self._select), seen, [self.chosen, *outputs], **QUIET)
        self.restore.click(handler(self._restore), self.chosen, [self.form.problems, *self.form.inputs], **QUIET)
        self.remove.click(handler(self._remove), [self.chosen, seen], [self.chosen, *outputs], **QUIET)
        self.form.wire(load)

    # ---- showing

    def _look(self, chosen: str | None, seen: Seen) -> dict[str, Any] | None:
        return None if seen.late(chosen) else self._values(chosen)

    def _tick(self, chosen: str | None, seen: Seen) -> Any:
        values = self._look(chosen, seen)
        return gr.skip() if values is None else seen.changed(VIEW, values)

    def _show(self, chosen: str | None, seen: Seen) -> list[Any]:
        seen.choose(chosen)
        return seen.changed(VIEW, self._values(chosen))

    def _values(self, chosen: str | None) -> dict[str, Any]:
        history = self._history.get()
        request = self._request(chosen)
        sample = next((sample for sample in history if sample.id == chosen), None)
        if request is None and sample is None and history:
            sample = history[0]
        going = request is not None and not request.state.over
        ids = [item.id for item in history]
        holder = gpu_lock.holder(self.workspace.locks)
        busy = f"The GPU is held by {holder}." if holder and holder != queue.HOLDER else ""
        result = _sample(sample) if sample else _progress(request) if request else _empty()
        return {
            "device": render.note(busy) if busy else "",
            "result": result,
            "cancel": (going, lambda: gr.update(visible=going)),
            "restore": (sample is not None, lambda: gr.update(visible=sample is not None)),
            "remove": (sample is not None, lambda: gr.update(visible=sample is not None)),
            "history": (ids, lambda: _strip(history)),
        }

    def _request(self, chosen: str | None) -> queue.Progress | None:
        """The request that is shown: the chosen one, else one that is under way; None when it is long over."""
        for name in filter(None, [chosen, *queue.pending(self.workspace)[:1]]):
            try:
                return queue.progress(self.workspace, name)
            except ConfigError:
                continue
        return None

    # ---- doing

    def _generate(self, seen: Seen, *values: Any) -> list[Any]:
        try:
            chosen = queue.submit(self.workspace, self.form.parse(values))
        except (ConfigError, DeviceBusy) as error:
            said = sentences(error, SampleSettings) if isinstance(error, ConfigError) else render.problems([str(error)])
            return [gr.skip(), said, *[gr.skip()] * len(VIEW)]
        return [chosen, "", *self._show(chosen, seen)]

    def _cancel(self, chosen: str | None, seen: Seen) -> list[Any]:
        request = self._request(chosen)
        if request:
            queue.cancel(self.workspace, request.id)
        return self._show(chosen, seen)

    def _select(self, seen: Seen, event: gr.SelectData) -> list[Any]:
        history = self._history.get()
        chosen = history[event.index].id if event.index < len(history) else None
        return [chosen, *self._show(chosen, seen)]

    def _shown(self, chosen: str | None) -> Sample:
        history = self._history.get()
        if not history:
            raise ConfigError("there is no sample yet: write a prompt and press Generate")
        return next((sample for sample in history if sample.id == chosen), history[0])

    def _restore(self, chosen: str | None) -> list[Any]:
        gr.Info("The form now holds the settings of this video.", duration=4)
        return ["", *self.form.write(self._shown(chosen).settings.model_dump(mode="json"))]

    def _remove(self, chosen: str | None, seen: Seen) -> list[Any]:
        Samples(self.workspace).delete(self._shown(chosen).id)
        self._history.get(now=True)
        return [None, *self._show(None, seen)]


def _empty() -> str:
    return render.note(
        "No video yet. Say what it shall show, choose a LoRA of yours if there is one, and press Generate.", "empty"
    )


def _strip(history: list[Sample]) -> Any:
    shown = [(str(sample.path), sample.settings.prompt or "(no prompt)") for sample in history]
    return gr.update(value=shown, visible=bool(shown))


def _progress(request: queue.Progress) -> str:
    """A request under way, or one that ended without a video."""
    asked = request.settings.prompt if request.settings else ""
    prompt = f'<p class="prompt">{render.escaped(asked or "(no prompt)")}</p>'
    if request.state is RequestState.CANCELLED:
        return prompt + render.note(request.message or "Cancelled.")
    if request.state.over:
        return prompt + f'<div class="note bad card"><h3>No video</h3><p>{render.escaped(request.message)}</p></div>'
    drawing = request.state is RequestState.DRAWING and request.total
    words = f"step {request.step} of {request.total}" if drawing else {
        RequestState.WAITING: "waiting", RequestState.LOADING: "loading the model"
    }.get(request.state, "drawing")  # fmt: skip
    left = f" · about {duration(request.seconds_left)} left" if request.seconds_left is not None else ""
    said = f" · {request.message}" if request.message else ""
    share = request.step / request.total if drawing else None
    return f'{prompt}{render.bar(share)}<p class="doing">{render.escaped(words + left + said)}</p>'


def _sample(sample: Sample) -> str:
    """A finished video, large, with what made it."""
    settings, record = sample.settings, sample.record
    loras = ", ".join(settings.loras) or "none"
    pairs = [
        ("model", settings.model),
        ("LoRAs", loras),
        ("seed", str(record.get("seed", settings.seed))),
        ("steps", str(record.get("steps", settings.steps or "the model's own"))),
        ("guidance", str(record.get("guidance_scale", settings.guidance_scale or "the model's own"))),
        ("length", f"{record.get('frames', settings.frames or '?')} frames"),
    ]
    width = int(record.get("width") or settings.width or _model_width(settings.model))
    link = render.download(sample.path, sample.path.name)
    return (
        f'<figure class="result">{render.video(sample.path, width, settings.prompt)}'
        f'<figcaption><p class="prompt">{render.escaped(settings.prompt or "(no prompt)")}</p>'
        f"{render.facts(pairs)}{link}</figcaption></figure>"
    )


def _model_width(name: str) -> int:
    try:
        return find_model(name)[1].width
    except ConfigError:  # a model folder that is gone since
        return render.PIXEL_ART + 1

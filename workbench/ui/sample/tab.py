"""The Sample tab: request videos, follow them, look at earlier ones and continue from them.

Requests and results are files, so a reload or a restart of the server loses neither. Not covered: generating
(workbench.sampler), the tab's parts (the other modules here).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench import policy
from workbench.compare import Grid
from workbench.compare.suggestions import of_sample
from workbench.errors import ConfigError, DeviceBusy
from workbench.sampler import prompt_enhancer, queue
from workbench.sampler.input_files import kept
from workbench.sampler.samples import Sample, Samples, settings_of
from workbench.sampler.settings import BatchSettings, SampleSettings
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, TICK, Seen, handler, send, tell, tick, watch
from workbench.ui.core.form import sentences
from workbench.ui.core.live import Live
from workbench.ui.sample import result
from workbench.ui.sample.enhancer import EnhancerPart
from workbench.ui.sample.history import History
from workbench.ui.sample.queue_strip import QueueStrip, find
from workbench.ui.sample.request_form import SampleForm
from workbench.workspace import Workspace

REMEMBERED = 60  # requests of this page whose failures it still shows
# On a narrow page the result is below the form.
SHOW = """() => {{
    const wrong = [...document.querySelectorAll(".problems")].some((box) => box.offsetParent);
    if (!wrong) document.querySelector("{}")?.scrollIntoView({{behavior: "smooth", block: "start"}});
}}"""
MESSAGES = {
    "settings": "The form now holds the settings of this video.",
    "seed": "The next video begins from the same noise.",
    "change": "The form now changes this video: describe the new one, and press Generate.",
    "continue": "The form now continues this video: describe what comes next, and press Generate.",
}


class SampleTab:
    """Builds the tab's components; `wire` connects them."""

    def __init__(self, workspace: Workspace, live: Live) -> None:
        self.workspace, self.live = workspace, live
        with gr.Row():
            with gr.Column(scale=4, min_width=330, elem_classes=["side", "sample-side"]):
                self.form = SampleForm(workspace)
                self.enhancer = EnhancerPart(workspace)
                self.again = gr.File(
                    label="Settings from a video made here, or its JSON",
                    file_types=[".mp4", ".json"],
                    height=150,
                    elem_id="sample-again",
                )
                self.generate = gr.Button("Generate", variant="primary", elem_id="generate")
            with gr.Column(scale=9, min_width=420):
                self.strip = QueueStrip(workspace)
                self.result = gr.HTML(js_on_load=result.BUTTONS, elem_id="sample-result")
                self.history = History(workspace)

    @property
    def view(self) -> dict[str, Any]:
        """Everything that changes by itself, by the names that `_values` uses."""
        own = {"queue": self.strip.component, "result": self.result, "history": self.history.component}
        return own | {f"enhancer.{name}": one for name, one in self.enhancer.view.items()}

    def wire(self, timer: gr.Timer, load: Any) -> None:
        """Connect the listeners; `load` is the page's load event."""
        self.chosen = gr.BrowserState(None, storage_key="workbench-sample", secret="workbench")
        self.submitted = gr.BrowserState([], storage_key="workbench-submitted", secret="workbench")
        self.typed = gr.BrowserState({}, storage_key="workbench-sample-form", secret="workbench")
        seen = gr.State(Seen())
        state, outputs = [self.chosen, self.submitted, seen], list(self.view.values())
        load(tick(self._tick), state, outputs, **TICK)
        load(handler(self._typed), self.typed, self.form.inputs, **QUIET)
        watch(timer, self._look, state, self.view, ("queue",))
        form = self.form
        begun = send(
            self.generate.click,
            handler(self._generate),
            [form.videos, form.each_line, *form.inputs],
            [self.chosen, self.submitted, self.typed, form.problems, *outputs],
            before=[self.submitted, seen],
        )
        begun.then(None, js=SHOW.format("#sample-queue"))
        pressed = self.strip.component.action
        pressed(handler(self._command), state, [self.chosen, self.submitted, *outputs], **QUIET)
        opened = self.history.component.open(
            handler(self._open), [self.submitted, seen], [self.chosen, *outputs], **QUIET
        )
        opened.then(None, js=SHOW.format("#sample-result"))
        done = self.result.action(
            handler(self._do), state, [self.chosen, form.problems, *form.inputs, *outputs], **QUIET
        )
        form.follow(done)
        read = self.again.upload(
            handler(self._read_back), self.again, [form.problems, *form.inputs, self.again], **QUIET
        )
        form.follow(read)
        form.wire(load)
        fields = (form.field(name) for name in ("prompt", "model", "image"))
        for event in self.enhancer.wire(*fields):
            event.then(tick(self._tick), state, outputs, **QUIET)

    def wire_grid(self, tabs: gr.Tabs, parts: gr.Tabs, chosen: gr.BrowserState) -> None:
        """Let a sample be put in a grid, which is then shown. parts, chosen: Compare's sub-tabs, and its grid."""

        def put(event: gr.EventData) -> list[Any]:
            sample = self.history.sample(str(event.id)) if event.do == "grid" else None
            if sample is None:
                return [gr.skip()] * 3
            scale = float(sample.record.get("guidance_scale") or 1)
            grid = Grid.create(self.workspace, *of_sample(sample.settings, scale))
            grid.generate()
            return [gr.Tabs(selected="compare"), gr.Tabs(selected="videos"), grid.name]

        self.result.action(handler(put), None, [tabs, parts, chosen], **QUIET)

    # ---- showing

    def _look(self, chosen: str | None, submitted: list[str], seen: Seen) -> dict[str, Any] | None:
        return None if seen.late(chosen) else self._values(chosen, submitted)

    def _tick(self, chosen: str | None, submitted: list[str], seen: Seen) -> Any:
        values = self._look(chosen, submitted, seen)
        return gr.skip() if values is None else seen.changed(self.view, values)

    def _show(self, chosen: str | None, submitted: list[str], seen: Seen) -> list[Any]:
        """All of it, as it is this very moment."""
        seen.choose(chosen)
        return seen.changed(self.view, self._values(chosen, submitted, now=True))

    def _values(self, chosen: str | None, submitted: list[str], now: bool = False) -> dict[str, Any]:
        self.history.ids(now)
        strip = self.strip.value(submitted or [], now)
        sample = self._sample(chosen)
        return {
            "queue": strip,
            "result": (self._mark(sample, strip), lambda: self._result(sample, strip)),
            "history": self.history.value(sample.id if sample else ""),
            **{f"enhancer.{name}": value for name, value in self.enhancer.values().items()},
        }

    def _sample(self, chosen: str | None) -> Sample | None:
        """The chosen sample, else the newest."""
        return (self.history.sample(chosen) if chosen else None) or self.history.newest()

    @staticmethod
    def _mark(sample: Sample | None, strip: dict[str, Any]) -> object:
        return sample.id if sample else bool(strip["requests"] or strip["failed"])

    def _result(self, sample: Sample | None, strip: dict[str, Any]) -> str:
        if sample is None:
            return "" if strip["requests"] or strip["failed"] else result.empty()
        return result.html(sample, prompt_enhancer.shorts(self.workspace).get(sample.settings.prompt, ""))

    def _typed(self, values: dict[str, Any]) -> list[Any]:
        """The form's values of the last request, after a reload."""
        known = {name: value for name, value in (values or {}).items() if name in SampleSettings.model_fields}
        return self.form.write(known)

    # ---- actions

    def _read_back(self, file: str) -> list[Any]:
        """Fill the form with the settings of an uploaded video."""
        settings = settings_of(policy.resolve(file), self.workspace)
        gr.Info(MESSAGES["settings"], duration=5)
        return ["", *self.form.write(settings.model_dump(mode="json")), None]

    def _generate(
        self, submitted: list[str], seen: Seen, videos: float | None, each_line: bool, *values: Any
    ) -> list[Any]:
        try:
            settings, many = self.form.requests(videos, each_line, values)
            ids = queue.submit_all(self.workspace, kept(self.workspace, many))
        except (ConfigError, DeviceBusy) as error:
            return [gr.skip(), gr.skip(), gr.skip(), _problems(error), *[gr.skip()] * len(self.view)]
        submitted = [*(submitted or []), *ids][-REMEMBERED:]
        return [None, submitted, settings.model_dump(mode="json"), "", *self._show(None, submitted, seen)]

    def _command(self, chosen: str | None, submitted: list[str], seen: Seen, event: gr.EventData) -> list[Any]:
        """A button of a request was pressed."""
        what, name = str(event.do), str(event.id)
        submitted = [one for one in submitted or [] if one != name or what == "cancel"]
        if what == "all":
            queue.cancel_all(self.workspace, self.strip.waiting(now=True))
        elif what == "cancel":
            queue.cancel_all(self.workspace, [name])
        elif what in ("again", "force"):
            request = find(self.workspace, name)
            if request is None or request.settings is None:
                raise ConfigError("this request is gone: submit it again with the form")
            settings = request.settings.changed(force_loras=True) if what == "force" else request.settings
            submitted.append(queue.submit(self.workspace, settings))
        return [chosen, submitted, *self._show(chosen, submitted, seen)]

    def _open(self, submitted: list[str], seen: Seen, event: gr.EventData) -> list[Any]:
        return [str(event.id), *self._show(str(event.id), submitted, seen)]

    def _do(self, chosen: str | None, submitted: list[str], seen: Seen, event: gr.EventData) -> list[Any]:
        """A button of the chosen sample was pressed."""
        what, sample = str(event.do), self.history.sample(str(event.id))
        if sample is None:
            raise ConfigError("this sample is gone: choose another from the history")
        nothing = [gr.skip()] * (1 + len(self.form.inputs))
        if what == "grid":
            return [gr.skip(), *nothing, *[gr.skip()] * len(self.view)]  # see wire_grid
        if what == "remove":
            Samples(self.workspace).delete(sample.id)
            return [None, *nothing, *self._show(None, submitted, seen)]
        tell(MESSAGES[what])
        return [chosen, "", *self.form.write(_next(what, sample)), *[gr.skip()] * len(self.view)]


def _next(what: str, sample: Sample) -> dict[str, Any]:
    """The form's values to continue from a sample."""
    settings = sample.settings.changed(seed=sample.record.get("seed", sample.settings.seed))
    if what == "seed":
        return {"seed": settings.seed}
    if what == "change":
        settings = settings.changed(video=str(sample.path), image="", continue_from="")
    elif what == "continue":
        settings = settings.changed(continue_from=str(sample.path), image="", video="")
    return settings.model_dump(mode="json")


def _problems(error: ConfigError | DeviceBusy) -> str:
    """Why nothing was submitted, with the names in the form."""
    if isinstance(error, DeviceBusy):
        return render.problems([str(error)])
    names = set(BatchSettings.model_fields) & set(error.problems)
    return sentences(error, BatchSettings if names else SampleSettings)

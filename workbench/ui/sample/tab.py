"""The Sample tab: request videos, follow them, look at earlier ones and continue from them.

Requests and results are files, so a reload or a restart of the server loses neither.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench import policy
from workbench.compare import Grid
from workbench.compare.suggestions import of_sample
from workbench.errors import ConfigError
from workbench.sampler import prompt_enhancer, queue
from workbench.sampler.inputs import kept
from workbench.sampler.samples import Sample, joins_scenes, settings_of
from workbench.sampler.settings import SampleSettings
from workbench.ui.core.boundary import EACH, on, tell
from workbench.ui.core.guide import CAPTIONS, OVER_TRAINING, guide_fold
from workbench.ui.core.view import LiveView, remembered
from workbench.ui.sample import result
from workbench.ui.sample.comparison import SideBySide
from workbench.ui.sample.enhancer import EnhancerPart
from workbench.ui.sample.history import History
from workbench.ui.sample.queue_strip import QueueStrip
from workbench.ui.sample.request_form import SampleForm
from workbench.workspace import Workspace

REMEMBERED = 60  # requests of this page whose failures it still shows
# On a narrow page the result is below the form.
SHOW = """async () => {{
    await new Promise((go) => setTimeout(go, 60));  // until problems are shown
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

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        with gr.Row():
            with gr.Column(scale=4, min_width=360, elem_classes=["side", "sample-side"]):
                self.form = SampleForm(workspace)
                self.enhancer = EnhancerPart(workspace)
                self.form.problems_here()
                self.generate = gr.Button("Generate", variant="primary", elem_id="generate")
                guide_fold("Guide: prompts, scales, over-training", "guide-sample", CAPTIONS, OVER_TRAINING)
            with gr.Column(scale=9, min_width=420):
                self.strip = QueueStrip(workspace)
                self.result = gr.HTML(js_on_load=result.BUTTONS, elem_id="sample-result")
                self.comparison = SideBySide()
                self.history = History(workspace)
        self.chosen, self.submitted = remembered("sample"), remembered("submitted", [])
        own = [self.strip.component, self.result, self.history.component]
        state = [self.chosen, self.submitted]
        components, typed = [*own, *self.enhancer.components], [self.enhancer.written]
        self.view = LiveView(components, self._values, state, [self.strip.component], typed)

    def wire(self, timer: gr.Timer, opened: Any, load: Any) -> None:
        """Connect the listeners. opened: the event when a person opens the tab; load: the page's load event"""
        view, form = self.view, self.form
        view.follow(timer, opened)
        outputs = [self.chosen, self.submitted]
        begun = view.act(self.generate.click, self._generate, [self.submitted, *form.batch], outputs, form)
        begun.then(None, js=SHOW.format("#sample-queue"))
        view.act(self.strip.component.action, self._command, [self.submitted], [self.submitted])
        viewed = view.act(self.history.component.open, self._open, [], [self.chosen], **EACH)
        viewed.then(None, js=SHOW.format("#sample-result"))
        form.fill(self.result.action, self._continue, [], [form.batch[-1]])
        view.act(self.result.action, self._change, [self.chosen], [self.chosen])
        on(self.history.component.compare, self._compare, [], [self.comparison.component])
        form.fill(form.again.upload, self._read_back, [form.again], [form.again, form.batch[-1]])
        each_line, videos, scenes = form.batch
        form.remember("sample", load, {"each_line": each_line, "videos": videos, "scenes": scenes})
        form.check_again(lambda settings: queue.check(self.workspace, settings))
        form.wire(opened)
        self.enhancer.wire(view, *(form.field(name) for name in ("prompt", "model", "image")))

    def wire_grid(self, tabs: gr.Tabs, parts: gr.Tabs, chosen: gr.BrowserState) -> None:
        """Let a sample be put in a grid, which is then shown. parts, chosen: Compare's sub-tabs, and its grid."""

        def put(event: gr.EventData) -> list[Any]:
            if event.do != "grid":
                return [gr.skip()] * 3
            sample = self._named(event)
            scale = float(sample.record.get("guidance_scale") or 1)
            grid = Grid.create(self.workspace, *of_sample(sample.settings, scale))
            grid.generate()
            return [gr.Tabs(selected="compare"), gr.Tabs(selected="videos"), grid.name]

        on(self.result.action, put, [], [tabs, parts, chosen])

    # ---- showing

    def _values(self, chosen: str | None, submitted: list[str] | None) -> dict[Any, Any]:
        strip, sample = self.strip.value(submitted or []), self._sample(chosen)
        waits = bool(strip["requests"] or strip["failed"])
        mark = (sample.id, sample.starred, sample.latents_only) if sample else waits
        return {
            self.strip.component: strip,
            self.result: (mark, lambda: self._result(sample, waits)),
            self.history.component: self.history.value(sample.id if sample else ""),
            **self.enhancer.values(),
        }

    def _refresh(self) -> None:
        """Read anew what was read a moment ago."""
        self.history.listing(now=True)
        self.strip.waiting(now=True)

    def _sample(self, chosen: str | None) -> Sample | None:
        """The chosen sample, else the newest."""
        return (self.history.sample(chosen) if chosen else None) or self.history.newest()

    def _result(self, sample: Sample | None, waits: bool) -> str:
        if sample is None:
            return "" if waits else result.empty()
        return result.html(sample, prompt_enhancer.shorts(self.workspace).get(sample.settings.prompt, ""))

    def _named(self, event: gr.EventData) -> Sample:
        """The sample whose button was pressed. Raises ConfigError."""
        sample = self.history.sample(str(event.id))
        if sample is None:
            raise ConfigError("this sample is gone: choose another from the history")
        return sample

    # ---- actions

    def _read_back(self, file: str) -> list[Any]:
        """Whether the lines of an uploaded video are scenes, and its settings, for the form."""
        path = policy.resolve(file)
        settings = settings_of(path, self.workspace)
        tell(MESSAGES["settings"])
        return [None, joins_scenes(path), settings]

    def _generate(
        self,
        submitted: list[str] | None,
        each_line: bool,
        videos: float | None,
        scenes: bool,
        settings: SampleSettings,
    ) -> list[Any]:
        many, chains = self.form.each(settings, each_line, videos, scenes)
        ids = queue.submit_all(self.workspace, kept(self.workspace, many), chains=chains)
        self._refresh()
        return [None, [*(submitted or []), *ids][-REMEMBERED:]]

    def _command(self, submitted: list[str] | None, event: gr.EventData) -> list[str]:
        """A button of a request was pressed."""
        what, name = str(event.do), str(event.id)
        submitted = [one for one in submitted or [] if one != name or what == "cancel"]
        if what == "all":
            queue.cancel_all(self.workspace, self.strip.waiting(now=True))
        elif what == "cancel":
            queue.cancel_all(self.workspace, [name])
        elif what in ("again", "force"):
            queue.again(self.workspace, name, **({"force_loras": True} if what == "force" else {}))
            submitted.append(name)
        self._refresh()
        return submitted

    def _open(self, event: gr.EventData) -> str:
        return str(event.id)

    def _continue(self, event: gr.EventData) -> list[Any]:
        """What the form takes over from a sample: whether its lines are scenes, the settings."""
        what = str(event.do)
        if what not in MESSAGES:
            return [gr.skip(), {}]
        sample = self._named(event)
        values = continued(what, sample)
        tell(MESSAGES[what])
        return ["scenes" in sample.record if what == "settings" else gr.skip(), values]

    def _change(self, chosen: str | None, event: gr.EventData) -> str | None:
        """Star the sample, take its star away, or move it to the bin."""
        what, samples = str(event.do), self.history.samples
        if what not in ("star", "unstar", "remove", "decode"):
            return chosen
        name = self._named(event).id
        if what == "decode":
            queue.decode(self.workspace, name)
            tell("It is decoded in the background: see the queue.")
            self._refresh()
            return chosen
        if what == "remove":
            samples.remove(name)
            tell("Moved to the bin: choose Bin in the history to restore it.")
        else:
            samples.star(name, what == "star")
        self._refresh()
        return None if what == "remove" else chosen

    def _compare(self, event: gr.EventData) -> dict[str, Any]:
        return self.comparison.value(self.history.named(map(str, event.ids)))


def continued(what: str, sample: Sample) -> dict[str, Any]:
    """The form's values to continue from a sample."""
    settings = sample.settings.changed(seed=sample.record.get("seed", sample.settings.seed))
    if what == "seed":
        return {"seed": settings.seed}
    if what == "change":
        settings = settings.changed(video=str(sample.path), image="", continue_from="")
    elif what == "continue":
        settings = settings.changed(continue_from=str(sample.path), image="", video="")
    return settings.model_dump(mode="json")

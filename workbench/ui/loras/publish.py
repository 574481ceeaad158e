"""Publishing the chosen LoRA: the upload plan, the push, and the demo Space made of it. Work is done by jobs alone.

Not covered: what is pushed and how (workbench.publishing), its HTML (publish_html), which LoRA is chosen (tab).
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import gradio as gr

from workbench import jobs
from workbench.errors import ConfigError
from workbench.loras import library
from workbench.loras.library import LibraryLora
from workbench.publishing import account, push
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, TICK, Seen, handler, tell, tick, watch
from workbench.ui.core.form import Form, sentences
from workbench.ui.core.live import Live
from workbench.ui.loras import publish_html
from workbench.workspace import Workspace

S = TypeVar("S", LoraPush, SpacePush)
SHOW_PLAN, README_TITLE = "Show upload plan", {"lora": "The model card", "space": "The Space's README"}


class _Push(Generic[S]):
    """The form, the list and the buttons of one kind of push."""

    def __init__(self, workspace: Workspace, what: push.What, settings: type[S], button: str) -> None:
        self.workspace, self.what = workspace, what
        self.settings: type[S] = settings
        self.form: Form[S] = Form(settings, workspace, settings())
        with gr.Row(elem_classes="buttons"):
            self.show_plan = gr.Button(SHOW_PLAN, elem_id=f"show-plan-{what}")
            self.go = gr.Button(button, variant="primary", interactive=False, elem_id=f"push-{what}")
            self.stop = gr.Button("Stop", variant="stop", visible=False, elem_id=f"stop-{what}")
        self.progress = gr.HTML(elem_id=f"progress-{what}")
        self.list = gr.HTML(elem_id=f"plan-{what}")
        with gr.Accordion(README_TITLE[what], open=False, visible=False, elem_id=f"readme-{what}") as self.fold:
            self.readme = gr.Markdown()
        self.planned = gr.State("")

    @property
    def cleared(self) -> list[Any]:
        """The components of a plan that is shown."""
        return [self.list, self.readme, self.fold, self.go, self.planned, self.form.problems]

    def clear(self) -> list[Any]:
        """No plan is shown."""
        return ["", "", gr.update(visible=False), gr.update(interactive=False), "", ""]

    def show(self, chosen: str | None, *values: Any) -> list[Any]:
        """The plan and the README; the button becomes enabled."""
        name = _named(chosen)
        try:
            settings = self._settings(name, values)
            plan = push.plan_upload(self.workspace, name, settings)
        except ConfigError as error:
            return [*self.clear()[:-1], sentences(error, self.settings)]
        planned = self._mark(name, settings)
        return [
            publish_html.upload_plan(plan),
            publish_html.readme(plan),
            gr.update(visible=bool(plan.readme)),
            gr.update(interactive=True),
            planned,
            "",
        ]

    def start(self, chosen: str | None, planned: str, *values: Any) -> list[Any]:
        """Push as planned; when the form has changed since, show the new plan first."""
        name = _named(chosen)
        settings = self._settings(name, values)
        if self._mark(name, settings) != planned:
            tell("The form has changed since: check the new upload plan, then press again.", 8)
            return self.show(chosen, *values)
        push.start(self.workspace, name, settings)
        return self.clear()

    def end(self, chosen: str | None) -> None:
        push.stop(self.workspace, self.what, _named(chosen))

    def status(self, name: str) -> tuple[jobs.Status, dict[str, Any]]:
        return push.status(self.workspace, self.what, name), push.result(self.workspace, self.what, name)

    def default(self, lora: LibraryLora, owner: str) -> str:
        """What the field for the repository begins with."""
        before = lora.published.get("space", {}) if self.what == "space" else lora.published
        fallback = push.default_repo(owner, lora.title, self.what) if owner else ""
        return str(before.get("repo_id") or fallback)

    def _settings(self, name: str, values: tuple[Any, ...]) -> Any:
        return push.named(self.workspace, name, self.form.parse(values), account.now().name)

    def _mark(self, name: str, settings: LoraPush | SpacePush) -> str:
        return f"{name} {settings.model_dump_json()}"


class PublishPart:
    """The part's components; `wire` connects them."""

    def __init__(self, workspace: Workspace, live: Live) -> None:
        self.workspace, self.live = workspace, live
        gr.HTML('<h3 class="part">Publish</h3>')
        self.account = gr.HTML(elem_id="publish-account")
        self.lora = _Push(workspace, "lora", LoraPush, "Push to the Hub")
        with gr.Accordion(
            "Make a Space: a demo page in which people generate videos with it", open=False, elem_id="make-space"
        ):
            self.space_note = gr.HTML(elem_id="space-note")
            self.space = _Push(workspace, "space", SpacePush, "Make the Space")

    @property
    def view(self) -> dict[str, Any]:
        """What depends on the chosen LoRA."""
        return {
            "account": self.account,
            "lora": self.lora.progress,
            "stop_lora": self.lora.stop,
            "note": self.space_note,
            "space": self.space.progress,
            "stop_space": self.space.stop,
        }

    def wire(self, timer: gr.Timer, load: Any, chosen: Any) -> None:
        """Connect the listeners; chosen: the component that holds the name of the chosen LoRA."""
        seen = gr.State(Seen())
        watch(timer, self._look, [chosen, seen], self.view)
        repos = [self.lora.form.inputs[0], self.space.form.inputs[0]]
        fresh = [*repos, *self.lora.cleared, *self.space.cleared]
        for event in (load, chosen.change):
            event(tick(self._begin), chosen, fresh, **TICK)
        for part in (self.lora, self.space):
            inputs = part.form.inputs
            part.show_plan.click(handler(part.show), [chosen, *inputs], part.cleared, **QUIET)
            part.go.click(handler(part.start), [chosen, part.planned, *inputs], part.cleared, **QUIET)
            part.stop.click(handler(part.end), chosen, None, **QUIET)

    def _begin(self, chosen: str | None) -> list[Any]:
        """Another LoRA: its own repository, and no plan."""
        lora = self._lora(chosen)
        owner = account.now().name if lora else ""  # no request before a LoRA is chosen
        repos = [part.default(lora, owner) if lora else "" for part in (self.lora, self.space)]
        return [*repos, *self.lora.clear(), *self.space.clear()]

    def _look(self, chosen: str | None, seen: Seen) -> dict[str, Any] | None:
        """What `view` shows."""
        lora = self._lora(chosen)
        if lora is None:
            hidden = {name: ("none", lambda: gr.update(visible=False)) for name in ("stop_lora", "stop_space")}
            return {
                "account": render.note(publish_html.NOTHING, "empty"),
                "lora": "",
                "note": "",
                "space": "",
                **hidden,
            }
        values: dict[str, Any] = {
            "account": publish_html.account(account.now()) + publish_html.published(lora.published, "It is"),
            "note": publish_html.published(lora.published.get("space", {}), "Its Space is") or _first(lora),
        }
        for part in (self.lora, self.space):
            status, result = part.status(lora.name)
            values[part.what] = publish_html.progress(status, result)
            alive = status.state.alive
            values[f"stop_{part.what}"] = (alive, lambda alive=alive: gr.update(visible=alive))
        return values

    def _lora(self, chosen: str | None) -> LibraryLora | None:
        try:
            return library.find(self.workspace, chosen) if chosen else None
        except ConfigError:  # one that was removed
            return None


def _named(chosen: str | None) -> str:
    if not chosen:
        raise ConfigError("no LoRA is chosen: click one above")
    return chosen


def _first(lora: LibraryLora) -> str:
    if lora.published.get("repo_id"):
        return '<p class="hint">A Space loads the LoRA from its repository on the Hub.</p>'
    return render.note("Push the LoRA first: its Space loads it from the Hub.")

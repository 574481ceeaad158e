"""Publishing the chosen LoRA: the upload plan, the push, and the demo Space made of it. Work is done by jobs alone."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import gradio as gr

from workbench.errors import ConfigError
from workbench.loras import library
from workbench.loras.library import LibraryLora
from workbench.publishing import account, push
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, TICK, tick
from workbench.ui.core.form import Form
from workbench.ui.core.problems import NO_PROBLEMS
from workbench.ui.core.view import LiveView, remembered, visible
from workbench.ui.loras import publish_html
from workbench.workspace import Workspace

S = TypeVar("S", LoraPush, SpacePush)
# In the browser and at once: a reload, or another LoRA that is chosen before the server answers, loses nothing.
KEEP = """(lora, repo, typed) => [[
    ...(typed ?? []).filter(([name]) => name !== lora), ...(lora && repo.trim() ? [[lora, repo]] : []),
]]"""
CHANGED = (
    "Nothing was pushed: the form has changed since its plan was shown. Check the new one below, then press again."
)
SHOW_PLAN, README_TITLE = "Show upload plan", {"lora": "The model card", "space": "The Space's README"}


class _Push(Generic[S]):
    """The form, the list and the buttons of one kind of push."""

    def __init__(self, workspace: Workspace, what: push.What, settings: type[S], button: str) -> None:
        self.workspace, self.what = workspace, what
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

        self.repo = self.form.field("repo_id")
        self.cleared = [self.list, self.readme, self.fold, self.go, self.planned]  # the components of a plan
        self.components = [self.progress, self.stop, self.repo]

    def clear(self) -> list[Any]:
        """No plan is shown."""
        return ["", "", gr.update(visible=False), gr.update(interactive=False), ""]

    def wire(self, view: LiveView, filled_for: gr.Textbox, typed: gr.BrowserState) -> None:
        """Connect the listeners.

        view: of the part, whose choice is the name of the LoRA;  filled_for: the LoRA that the form is filled in for
        typed: (LoRA, the repository that was typed for it)
        """
        self.repo.change(None, [filled_for, self.repo, typed], [typed], js=KEEP, **QUIET)
        self.form.submit(self.show_plan.click, self._show, [view.choice], self.cleared)
        view.act(self.go.click, self._start, [view.choice, self.planned], self.cleared, self.form)
        view.act(self.stop.click, self._end, [view.choice])

    def values(self, lora: LibraryLora, owner: str) -> dict[Any, Any]:
        status = push.status(self.workspace, self.what, lora.name)
        result, empty = push.result(self.workspace, self.what, lora.name), self._default(lora, owner)
        return {
            self.progress: publish_html.progress(status, result),
            self.stop: visible(status.state.alive),
            self.repo: (empty, lambda: gr.update(placeholder=empty)),
        }

    def _show(self, chosen: str | None, settings: S) -> list[Any]:
        """The plan and the README; the button becomes enabled."""
        name, settings = self._named(chosen, settings)
        plan = push.plan_upload(self.workspace, name, settings)
        return [
            publish_html.upload_plan(plan),
            publish_html.readme(plan),
            gr.update(visible=bool(plan.readme)),
            gr.update(interactive=True),
            _mark(name, settings),
        ]

    def _start(self, chosen: str | None, planned: str, settings: S) -> list[Any]:
        """Push as planned; when the form has changed since, show the new plan first."""
        name, named = self._named(chosen, settings)
        if _mark(name, named) != planned:
            plan, *others = self._show(chosen, settings)
            return [f'<div role="alert">{render.note(CHANGED, "bad")}</div>{plan}', *others]
        push.start(self.workspace, name, named)
        return self.clear()

    def _end(self, chosen: str | None) -> None:
        push.stop(self.workspace, self.what, _chosen(chosen))

    def _default(self, lora: LibraryLora, owner: str) -> str:
        """The repository where none is typed; "" while nobody is known to be logged in."""
        before = lora.published.get("space", {}) if self.what == "space" else lora.published
        fallback = push.default_repo(owner, lora.title, self.what) if owner else ""
        return str(before.get("repo_id") or fallback)

    def _named(self, chosen: str | None, settings: S) -> tuple[str, Any]:
        """The LoRA and the settings with their repository. Raises ConfigError."""
        name = _chosen(chosen)
        return name, push.named(self.workspace, name, settings, account.now().name)


class PublishPart:
    """The part's components; `wire` connects them."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        gr.HTML('<h3 class="part">Publish</h3>', elem_classes="with-loras")
        self.account = gr.HTML(elem_id="publish-account", elem_classes="with-loras")
        with gr.Column(visible=False, elem_classes="publish") as self.forms:
            self.lora = _Push(workspace, "lora", LoraPush, "Push to the Hub")
            with gr.Accordion(
                "Make a Space: a demo page in which people generate videos with it", open=False, elem_id="make-space"
            ):
                self.space_note = gr.HTML(elem_id="space-note")
                self.space = _Push(workspace, "space", SpacePush, "Make the Space")

    def wire(self, timer: gr.Timer, chosen: Any) -> None:
        """Connect the listeners; chosen: the component that holds the name of the chosen LoRA."""
        parts = (self.lora, self.space)
        components = [self.account, self.space_note, *self.lora.components, *self.space.components]
        view = LiveView(components, self._values, [chosen])
        view.follow(timer)
        problems = [part.form.problems for part in parts]
        # The forms are shown by the answer that fills them in: what is typed in them is not overwritten by it.
        filled_for = gr.Textbox(visible=False)
        cleared = [*self.lora.cleared, *self.space.cleared]
        fresh = [self.forms, filled_for, *(part.repo for part in parts), *problems, *cleared]
        # Not made inside of the forms: the browser reads it when it is shown, which must be before a LoRA is chosen.
        typed = {part.what: remembered(f"repositories-{part.what}", []) for part in parts}
        chosen.change(tick(self._begin), [chosen, *typed.values()], fresh, **TICK)
        for part in parts:
            part.wire(view, filled_for, typed[part.what])

    def _begin(self, chosen: str | None, *typed: list[list[str]] | None) -> list[Any]:
        """Another LoRA: the repositories that were typed for it, and no plan."""
        repos = [next((repo for name, repo in one or () if name == chosen), "") for one in typed]
        forms = gr.update(visible=self._lora(chosen) is not None)
        return [forms, chosen or "", *repos, NO_PROBLEMS, NO_PROBLEMS, *self.lora.clear(), *self.space.clear()]

    def _values(self, chosen: str | None) -> dict[Any, Any]:
        lora = self._lora(chosen)
        if lora is None:
            empty = dict.fromkeys((self.space_note, self.lora.progress, self.space.progress), "")
            hidden = dict.fromkeys((self.lora.stop, self.space.stop), visible(False))
            nothing = render.note(publish_html.NOTHING, "empty")
            return {self.account: nothing, **empty, **hidden}
        space, user = lora.published.get("space", {}), account.now()
        return {
            self.account: publish_html.account(user) + publish_html.published(lora.published, "It is"),
            self.space_note: publish_html.published(space, "Its Space is") or _first(lora),
            **self.lora.values(lora, user.name),
            **self.space.values(lora, user.name),
        }

    def _lora(self, chosen: str | None) -> LibraryLora | None:
        try:
            return library.find(self.workspace, chosen) if chosen else None
        except ConfigError:  # one that was removed
            return None


def _mark(name: str, settings: LoraPush | SpacePush) -> str:
    return f"{name} {settings.model_dump_json()}"


def _chosen(chosen: str | None) -> str:
    if not chosen:
        raise ConfigError("no LoRA is chosen: click one above")
    return chosen


def _first(lora: LibraryLora) -> str:
    if lora.published.get("repo_id"):
        return '<p class="hint">A Space loads the LoRA from its repository on the Hub.</p>'
    return render.note("Push the LoRA first: its Space loads it from the Hub.")

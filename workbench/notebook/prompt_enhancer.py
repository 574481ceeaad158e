"""The prompt enhancer in a notebook: a language model writes a long prompt, which is used only on a click."""

from __future__ import annotations

import ipywidgets as widgets

from workbench import jobs
from workbench.display.inline_html import note
from workbench.notebook.form import SettingsForm
from workbench.notebook.live import Panel, visible, wrapped
from workbench.sampler import prompt_enhancer
from workbench.sampler.prompt_enhancer import PromptSettings
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace


class PromptEnhancer(Panel):
    """The settings, Write, and the written prompt. `write`, `use` and `restore` are its buttons."""

    def __init__(self, workspace: Workspace, form: SettingsForm[SampleSettings]) -> None:
        """form: its prompt is what is written from, and where the written one goes"""
        super().__init__()
        self.workspace, self.form = workspace, form
        saved = prompt_enhancer.settings_of(workspace).model_dump(mode="json")
        self.settings = SettingsForm(PromptSettings, workspace, saved)
        self.status = widgets.HTML()
        self.text = widgets.Textarea(rows=5, layout=widgets.Layout(width="100%", max_width="720px"))
        add = self.add_button
        self.write_button = add("Write a long prompt", "From the prompt in the form", self.write, "pencil")
        self.stop_button = add("Stop", "Stop writing", lambda: prompt_enhancer.stop(workspace), "stop", "danger")
        self.use_button = add(
            "Use it as the prompt", "As it is here, your changes included", self.use, "check", "primary"
        )
        self.restore_button = add("Restore my prompt", "What it was written from", self.restore, "undo")
        self.written = wrapped(self.use_button, self.restore_button)
        self.box.children = (
            *(self.settings.box, wrapped(self.write_button, self.stop_button), self.message),
            *(self.status, self.text, self.written),
        )
        self._written: str | None = None
        self.watch()

    def write(self) -> None:
        """Start writing a long prompt from the form's, in the background. Raises ConfigError, CannotWrite."""
        values = self.form.values
        sample = SampleSettings(model=values["model"] or "", prompt=values["prompt"], image=values["image"] or "")
        prompt_enhancer.write(self.workspace, self.settings.settings, sample)
        self.watch()

    def use(self) -> None:
        """Put the written prompt, as it was changed by hand, into the form. Raises ConfigError, CannotWrite."""
        taken = prompt_enhancer.take(self.workspace, self.text.value, str(self.form.values["prompt"]))
        self.form.set({"prompt": taken})

    def restore(self) -> None:
        """Put the prompt that it was written from into the form. Raises ConfigError."""
        self.form.set({"prompt": prompt_enhancer.own_words(self.workspace)})

    def _show(self) -> bool:
        """Show how the writing is going. True while it goes on."""
        status, written = prompt_enhancer.status(self.workspace), prompt_enhancer.written(self.workspace)
        alive, text = status.state.alive, written.prompt if written else ""
        visible(self.stop_button, alive)
        self.write_button.disabled = alive
        visible(self.text, bool(text))
        visible(self.written, bool(text))
        if text != self._written:  # what was changed by hand since stays
            self._written = self.text.value = text
        if alive:
            self.status.value = note(status.phase or "starting")
        elif status.state in (jobs.State.FAILED, jobs.State.DIED):
            self.status.value = note(f"No prompt was written. {status.message}", "error")
        elif written is not None and written.tokens is not None and written.limit is not None:
            self.status.value = note(f"{written.tokens} of the {written.limit} tokens that the video model reads.")
        else:
            self.status.value = ""
        return alive

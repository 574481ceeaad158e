"""Have a language model write the prompt, in a notebook: asked for, shown, changed by hand, and only then used.

Not covered: the language model (sampler.prompt_enhancer).
"""

from __future__ import annotations

import ipywidgets as widgets

from workbench import jobs
from workbench.notebook import rendering
from workbench.notebook.form import WidgetForm
from workbench.notebook.live import Panel, Ticker, button, visible, wrapped
from workbench.sampler import prompt_enhancer
from workbench.sampler.prompt_enhancer import PromptSettings
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace


class PromptPart(Panel):
    """Who writes, Write, and what came of it. `write`, `take` and `back` are its buttons."""

    def __init__(self, workspace: Workspace, form: WidgetForm[SampleSettings]) -> None:
        """form: its prompt is what is written from, and where the written one goes"""
        self.workspace, self.form = workspace, form
        self.settings = WidgetForm(
            PromptSettings, workspace, prompt_enhancer.settings_of(workspace).model_dump(mode="json")
        )
        self.write_button = button("Write a long prompt", "From the prompt in the form; nothing is used yet", "pencil")
        self.stop_button = button("Stop", "End the writing", "stop", "danger", "90px")
        self.doing_now = widgets.HTML()
        self.text = widgets.Textarea(rows=5, layout=widgets.Layout(width="100%", max_width="720px"))
        self.take_button = button(
            "Use it as the prompt", "As it stands here, your changes included", "check", "primary"
        )
        self.back_button = button("Back to my own words", "What it was written from", "undo")
        for each, action in (
            (self.write_button, self.write),
            (self.stop_button, lambda: prompt_enhancer.stop(workspace)),
            (self.take_button, self.take),
            (self.back_button, self.back),
        ):
            each.on_click(self.doing(action))
        self.taking = wrapped(self.take_button, self.back_button)
        super().__init__([])
        self.box.children = (
            self.settings.box, wrapped(self.write_button, self.stop_button), self.said, self.doing_now, self.text,
            self.taking,
        )  # fmt: skip
        self._shown: str | None = None
        self.ticker = Ticker(self.refresh)
        if self.refresh():
            self.ticker.start()

    def write(self) -> None:
        """Have the form's prompt written out, in the background. Raises ConfigError, CannotWrite."""
        values = self.form.values
        sample = SampleSettings(model=values["model"] or "", prompt=values["prompt"], image=values["image"] or "")
        prompt_enhancer.write(self.workspace, self.settings.settings, sample)
        self.refresh()
        self.ticker.start()

    def take(self) -> None:
        """Put the written prompt, as it was changed by hand, into the form. Raises ConfigError, CannotWrite."""
        self.form.set(
            {"prompt": prompt_enhancer.take(self.workspace, self.text.value, str(self.form.values["prompt"]))}
        )

    def back(self) -> None:
        """Put the words that it was written from into the form. Raises ConfigError."""
        self.form.set({"prompt": prompt_enhancer.own_words(self.workspace)})

    def refresh(self) -> bool:
        """Show how the writing stands. True while it goes on."""
        status, written = prompt_enhancer.status(self.workspace), prompt_enhancer.written(self.workspace)
        alive, text = status.state.alive, written.prompt if written else ""
        visible(self.stop_button, alive)
        self.write_button.disabled = alive
        visible(self.text, bool(text))
        visible(self.taking, bool(text))
        if text != self._shown:  # what was changed by hand since stays
            self._shown = self.text.value = text
        if alive:
            self.doing_now.value = rendering.note(status.phase or "starting")
        elif status.state in (jobs.State.FAILED, jobs.State.DIED):
            self.doing_now.value = rendering.note(f"No prompt was written. {status.message}", "error")
        elif written is not None and written.tokens is not None and written.limit is not None:
            said = f"{written.tokens} of the {written.limit} tokens that the video model reads."
            self.doing_now.value = rendering.note(said)
        else:
            self.doing_now.value = ""
        return alive

    def close(self) -> None:
        self.ticker.stop()
        super().close()

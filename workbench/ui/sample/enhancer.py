"""The prompt enhancer: a language model writes a long prompt, which a person may edit before it is used."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from workbench.jobs import State, Status
from workbench.sampler import prompt_enhancer
from workbench.sampler.prompt_enhancer import EnhancedPrompt, PromptSettings
from workbench.sampler.settings import SampleSettings
from workbench.ui.core import render
from workbench.ui.core.boundary import on
from workbench.ui.core.form import Form
from workbench.ui.core.view import LiveView, visible
from workbench.workspace import Workspace

HELP = (
    "Video models follow long, detailed prompts better. A language model of yours turns a few words into one; nothing "
    "is sent anywhere, and nothing used, before you press a button."
)


class EnhancerPart:
    """A folded part of the tab. `components` follow the job."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        with gr.Accordion("Prompt enhancer", open=False, elem_id="prompt-enhancer"):
            gr.HTML(f'<p class="hint">{HELP}</p>')
            self.form = Form(PromptSettings, workspace, prompt_enhancer.settings_of(workspace))
            with gr.Row(elem_classes="buttons"):
                self.write = gr.Button("Write a long prompt", elem_id="write-prompt")
                self.stop = gr.Button("Stop", variant="stop", visible=False)
            self.progress = gr.HTML(elem_id="enhancing")
            self.written = gr.Textbox(
                "",
                label="Written prompt",
                lines=5,
                max_lines=14,
                interactive=True,
                visible=False,
                info="Edit it as you like; it is used when you press the button below.",
                elem_id="written-prompt",
            )
            with gr.Row(elem_classes="buttons", visible=False) as self.taking:
                self.take = gr.Button("Use this prompt", variant="primary", elem_id="use-written")
                self.back = gr.Button("Back to the short prompt", elem_id="own-words")
        self.components = [self.stop, self.progress, self.written, self.taking]

    def values(self) -> dict[Any, Any]:
        """component -> what it shows."""
        status, written = prompt_enhancer.status(self.workspace), prompt_enhancer.written(self.workspace)
        text = written.prompt if written else ""
        return {
            self.stop: visible(status.state.alive),
            self.progress: progress(status, written),
            self.written: gr.update(value=text, visible=bool(text)),
            self.taking: visible(bool(text)),
        }

    def wire(self, view: LiveView, prompt: Any, model: Any, image: Any) -> None:
        """Connect the listeners. view: of the tab;  prompt, model, image: fields of its form"""
        view.act(self.write.click, self._write, [prompt, model, image], form=self.form)
        view.act(self.stop.click, partial(prompt_enhancer.stop, self.workspace))
        on(self.take.click, partial(prompt_enhancer.take, self.workspace), [self.written, prompt], [prompt])
        on(self.back.click, partial(prompt_enhancer.own_words, self.workspace), [], [prompt])

    def _write(self, prompt: str, model: str, image: str, settings: PromptSettings) -> None:
        sample = SampleSettings(model=model or "", prompt=prompt, image=image or "")
        prompt_enhancer.write(self.workspace, settings, sample)


def progress(status: Status, written: EnhancedPrompt | None) -> str:
    """What the language model does, or how long the prompt became."""
    if status.state.alive:
        return f'{render.bar(None)}<p class="doing">{render.escaped(status.phase or "starting")}</p>'
    if status.state in (State.FAILED, State.DIED):
        return render.note(f"No prompt was written. {status.message}", "bad")
    if written is None or written.tokens is None or written.limit is None:
        return ""
    return f'<p class="hint">{written.tokens} of the {written.limit} tokens that the video model reads.</p>'

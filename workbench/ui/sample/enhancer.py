"""The prompt enhancer: a language model writes a long prompt, which a person may edit before it is used.

Not covered: the language model (sampler.prompt_enhancer).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.sampler import prompt_enhancer
from workbench.sampler.prompt_enhancer import PromptSettings
from workbench.sampler.settings import SampleSettings
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler, send
from workbench.ui.core.form import Form, sentences
from workbench.workspace import Workspace

HELP = (
    "Video models follow long, detailed prompts better. A language model of yours turns a few words into one; nothing "
    "is sent anywhere, and nothing used, before you press a button."
)


class EnhancerPart:
    """A folded part of the tab. `view` follows the job; `values` are its updates."""

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
        self.view = {name: getattr(self, name) for name in ("stop", "progress", "written", "taking")}

    def values(self) -> dict[str, Any]:
        """Updates for the components of `view`."""
        status, written = prompt_enhancer.status(self.workspace), prompt_enhancer.written(self.workspace)
        alive, text = status.state.alive, written.prompt if written else ""
        return {
            "stop": (alive, lambda: gr.update(visible=alive)),
            "progress": self._progress(),
            "written": (text, lambda: gr.update(value=text, visible=bool(text))),
            "taking": (bool(text), lambda: gr.update(visible=bool(text))),
        }

    def _progress(self) -> str:
        status, written = prompt_enhancer.status(self.workspace), prompt_enhancer.written(self.workspace)
        if status.state.alive:
            return f'{render.bar(None)}<p class="doing">{render.escaped(status.phase or "starting")}</p>'
        if status.state in (State.FAILED, State.DIED):
            return render.note(f"No prompt was written. {status.message}", "bad")
        if written is None or written.tokens is None or written.limit is None:
            return ""
        return f'<p class="hint">{written.tokens} of the {written.limit} tokens that the video model reads.</p>'

    def wire(self, prompt: Any, model: Any, image: Any) -> list[Any]:
        """Connect the listeners; prompt, model, image: fields of the tab's form. Returns what changes the view."""
        fields = [prompt, model, image, *self.form.inputs]
        started = send(self.write.click, handler(self._write), fields, self.form.problems)
        stopped = self.stop.click(handler(lambda: prompt_enhancer.stop(self.workspace)), None, None, **QUIET)
        self.take.click(handler(self._take), [self.written, prompt], prompt, **QUIET)
        self.back.click(handler(self._back), None, prompt, **QUIET)
        return [started, stopped]

    def _write(self, prompt: str, model: str, image: str, *values: Any) -> str:
        try:
            sample = SampleSettings(model=model or "", prompt=prompt, image=image or "")
            prompt_enhancer.write(self.workspace, self.form.parse(values), sample)
        except ConfigError as error:
            return sentences(error, PromptSettings)
        return ""

    def _take(self, text: str, prompt: str) -> str:
        return prompt_enhancer.take(self.workspace, text, prompt)

    def _back(self) -> str:
        return prompt_enhancer.own_words(self.workspace)

"""The previews of a run: steps side by side, the LoRA at several scales, the training inputs; and requesting more."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.display.charts import thinned
from workbench.display.html import escaped, video_table
from workbench.errors import ConfigError
from workbench.runs import display
from workbench.runs.previews import LiveSample, Preview, step_title
from workbench.runs.run import Run
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core import render
from workbench.ui.core.form import Form
from workbench.ui.core.view import visible
from workbench.ui.train.part import TrainHost, TrainPart, action_button
from workbench.workspace import Workspace

COLUMNS = 8
SCALES = (0.0, 0.5, 1.0)
LIVE_SAMPLE_HELP = (
    "A video by the weights as they are, generated between two steps. The run waits for it, and learns exactly what it "
    "would have learned without it."
)


class PreviewsPart(TrainPart):
    """Before and after of a finished run, the table, live samples, training inputs."""

    def __init__(self, workspace: Workspace) -> None:
        self.pairs = gr.HTML(elem_id="before-after")
        gr.HTML('<h3 class="part">Previews</h3>')
        self.table = gr.HTML(elem_id="previews")
        with gr.Row(elem_classes="choosing", visible=False) as self.request:
            self.prompt = gr.Textbox(
                "", label="Another prompt", placeholder="empty: the run's own prompts", elem_id="own-prompt", scale=4
            )
            self.now = gr.Button("Preview now", elem_id="preview-run")
            self.scales = gr.Button("Preview at 0, 0.5 and 1", elem_id="preview-scales")
        self.decode = gr.Button(visible=False, elem_id="decode-previews")
        self.scaled = gr.HTML(elem_id="scaled-previews")
        with gr.Accordion("Live sample", open=False, visible=False, elem_id="live-sample") as self.live:
            gr.HTML(f'<p class="hint">{LIVE_SAMPLE_HELP}</p>')
            self.form = Form(LiveSample, workspace, LiveSample(), unset="as in the previews")
            self.generate = gr.Button("Generate after this step", variant="primary", elem_id="generate-live-sample")
        self.live_samples = gr.HTML(elem_id="live-samples")
        with gr.Accordion("Training inputs", open=False, visible=False, elem_id="training-inputs") as self.inputs_part:
            self.inputs = gr.HTML(elem_id="inputs")
        with gr.Accordion(
            "Control previews", open=False, visible=False, elem_id="control-previews"
        ) as self.controls_part:
            gr.HTML(f'<p class="hint">{display.CONTROLS.capitalize()}: previews show only what they change more.</p>')
            self.controls = gr.HTML(elem_id="controls")
        self.components = [
            self.pairs,
            self.table,
            self.request,
            self.scales,
            self.decode,
            self.scaled,
            self.live,
            self.live_samples,
            self.inputs_part,
            self.inputs,
            self.controls_part,
            self.controls,
        ]

    def values(self, snapshot: RunSnapshot) -> dict[Any, Any]:
        possible = visible(snapshot.action("preview") is not None)
        lora = snapshot.settings is not None and snapshot.settings.method == "lora"
        return {
            self.pairs: before_after(snapshot),
            self.table: previews(snapshot),
            self.request: possible,
            self.scales: visible(lora),
            self.decode: action_button(snapshot.action("decode")),
            self.scaled: scaled(snapshot),
            self.live: possible,
            self.live_samples: live_samples(snapshot),
            self.inputs_part: visible(bool(snapshot.previews.inputs)),
            self.inputs: training_inputs(snapshot),
            self.controls_part: visible(bool(snapshot.previews.controls)),
            self.controls: display.controls(snapshot.previews, lambda one: _cell(one, snapshot.width)),
        }

    def wire(self, host: TrainHost) -> None:
        host.act(self.generate.click, request_live_sample, form=self.form)
        host.perform(self.decode.click, lambda snapshot: snapshot.action("decode"))
        host.act([self.now.click, self.prompt.submit], request, [self.prompt])
        host.act(self.scales.click, request_scales, [self.prompt])


def request(run: Run, prompt: str) -> str:
    run.preview(prompt.strip() or None)
    return "The previews are generated after this step."


def request_scales(run: Run, prompt: str) -> str:
    if run.settings.method != "lora":
        raise ConfigError(f"{run.name} trains all weights and no LoRA, so there is no scale to change")
    run.preview(prompt.strip() or None, SCALES)
    return "Generated after this step: the base model, the LoRA at half its scale, and at its full scale."


def request_live_sample(run: Run, settings: LiveSample) -> str:
    run.live_sample(settings)
    return "The video is generated after this step; it appears here and under Sample."


# ---- as HTML


def previews(snapshot: RunSnapshot) -> str:
    """Prompts down, steps across; the base model first."""
    found = snapshot.previews
    note = render.note(snapshot.preview_note, "plain" if found.latents else "empty") if snapshot.preview_note else ""
    steps = thinned(found.steps, COLUMNS)
    rows = [
        (prompt, [_cell(found.at(index, step), snapshot.width) for step in steps])
        for index, prompt in found.prompts.items()
    ]
    return video_table(["prompt", *map(step_title, steps)], rows) + note


def scaled(snapshot: RunSnapshot) -> str:
    """The newest step that has previews at several scales of the LoRA, a row a prompt."""
    found = snapshot.previews.by_scale
    if not found:
        return ""
    scales = sorted({one.scale for row in found for one in row})
    rows = []
    for row in found:
        at = {one.scale: one for one in row}
        rows.append((row[0].prompt, [_cell(at.get(scale), snapshot.width) for scale in scales]))
    heads = [f"scale {scale:g}" if scale else "base model" for scale in scales]
    title = f'<h4 class="section">The LoRA at several scales, step {found[0][0].step}</h4>'
    return title + video_table(["prompt", *heads], rows)


def live_samples(snapshot: RunSnapshot) -> str:
    """What was requested of the living run, newest first."""
    videos = "".join(
        f"<figure>{render.video(one.video, snapshot.width, one.prompt)}<figcaption><b>{escaped(one.prompt)}</b><br>"
        f"{escaped(', '.join(one.facts))}</figcaption></figure>"
        for one in snapshot.previews.live
    )
    return f'<h4 class="section">Live samples</h4><div class="live-samples">{videos}</div>' if videos else ""


def training_inputs(snapshot: RunSnapshot) -> str:
    """Clips as the model's input, each beside what its VAE keeps of it."""
    rows = []
    for one in snapshot.previews.inputs:
        cells = [render.video(one.clip, snapshot.width, f"{one.caption}, the model's input")]
        if one.reconstruction:
            cells.append(render.video(one.reconstruction, snapshot.width, f"{one.caption}, what the VAE keeps"))
        rows.append((one.caption, cells))
    return video_table(["caption", "the model's input", "what the VAE keeps"], rows)


def before_after(snapshot: RunSnapshot) -> str:
    """The base model and the finished LoRA side by side, a pair for each prompt; empty while the run goes on."""
    pairs = []
    for before, after in () if snapshot.status.state.alive else snapshot.previews.pairs:
        videos = "".join(
            f"<figure>{render.video(one.video, snapshot.width, f'{one.prompt}, {title}')}"
            f"<figcaption>{title}</figcaption></figure>"
            for one, title in ((before, "base model"), (after, f"with the LoRA, step {after.step}"))
        )
        pairs.append(f'<div class="pair"><div>{videos}</div><p>{escaped(after.prompt)}</p></div>')
    return f'<div class="pairs">{"".join(pairs)}</div>' if pairs else ""


def _cell(preview: Preview | None, width: int) -> str:
    if preview is None:
        return ""
    scale = "" if preview.scale == 1 else f", scale {preview.scale:g}"
    return render.video(preview.video, width, f"{preview.prompt}, {preview.title}{scale}")

"""The previews of a run: steps side by side, the LoRA at several strengths, what goes in; and asking for more.

Not covered: drawing them (trainer.monitoring.previews).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.runs.live_sample import LiveSample
from workbench.runs.run import Preview, Run
from workbench.settings import Spec, parse, specs
from workbench.ui.core import render
from workbench.ui.core.form import from_component, to_component
from workbench.ui.core.live import Snapshot, thinned
from workbench.ui.train.part import TrainHost, TrainPart

COLUMNS = 8
SCALES = (0.0, 0.5, 1.0)
TRY_HELP = (
    "A video by the weights as they are, drawn between two steps. The run waits for it, and learns exactly what it "
    "would have learned without it."
)
AT_SCALES = "Preview at 0, 0.5 and 1"


class PreviewsPart(TrainPart):
    """Before and after of a finished run, the table, what was asked for, what goes in."""

    def __init__(self) -> None:
        self.pairs = gr.HTML(elem_id="before-after")
        gr.HTML('<h3 class="part">Previews</h3>')
        self.table = gr.HTML(elem_id="previews")
        with gr.Row(elem_classes="choosing", visible=False) as self.ask:
            self.prompt = gr.Textbox(
                "", label="Another prompt", placeholder="empty: the run's own prompts", elem_id="own-prompt", scale=4
            )
            self.now = gr.Button("Preview now", elem_id="preview-run")
            self.scales = gr.Button(AT_SCALES, elem_id="preview-scales")
        self.decode = gr.Button("Decode previews", visible=False, elem_id="decode-previews")
        self.scaled = gr.HTML(elem_id="scaled-previews")
        with gr.Accordion("Try it now", open=False, visible=False, elem_id="try-now") as self.trying:
            gr.HTML(f'<p class="hint">{TRY_HELP}</p>')
            prompt, *numbers = specs(LiveSample)
            self.wish = [self._field(prompt)]
            with gr.Row(elem_classes="fields"):
                self.wish += [self._field(spec) for spec in numbers]
            self.try_now = gr.Button("Draw it after this step", variant="primary", elem_id="try-it-now")
        self.tries = gr.HTML(elem_id="tries")
        with gr.Accordion("What goes in", open=False, visible=False, elem_id="what-goes-in") as self.inputs_part:
            self.inputs = gr.HTML(elem_id="inputs")
        names = ("pairs", "table", "ask", "scales", "decode", "scaled", "trying", "tries", "inputs_part", "inputs")
        self.view = {name: getattr(self, name) for name in names}

    @staticmethod
    def _field(spec: Spec) -> Any:
        empty = "as in the previews" if spec.optional else ""
        return gr.Textbox(
            to_component(spec, spec.default) if spec.optional else str(spec.default), label=spec.title, info=spec.help,
            placeholder=empty, lines=spec.lines, min_width=140, elem_id=f"try-{spec.name}",
        )  # fmt: skip

    def values(self, snapshot: Snapshot) -> dict[str, Any]:
        asks = snapshot.status.state is State.RUNNING and not waits(snapshot)
        scales = asks and snapshot.settings is not None and snapshot.settings.method == "lora"
        inputs, state = bool(snapshot.shown.inputs), snapshot.decoding and snapshot.decoding.state
        decodes = bool(snapshot.shown.latents) and not snapshot.status.state.alive and not (state and state.alive)
        return {
            "pairs": before_after(snapshot),
            "table": previews(snapshot),
            "ask": (asks, lambda: gr.update(visible=asks)),
            "scales": (scales, lambda: gr.update(visible=scales)),
            "decode": (decodes, lambda: gr.update(visible=decodes)),
            "scaled": scaled(snapshot),
            "trying": (asks, lambda: gr.update(visible=asks)),
            "tries": tries(snapshot),
            "inputs_part": (inputs, lambda: gr.update(visible=inputs)),
            "inputs": what_goes_in(snapshot),
        }

    def wire(self, host: TrainHost) -> None:
        def draw(run: Run, prompt: str) -> str:
            run.preview(prompt.strip() or None)
            return "The previews are drawn after this step."

        def draw_at_scales(run: Run, prompt: str) -> str:
            if run.settings.method != "lora":
                raise ConfigError(f"{run.name} trains all weights and no LoRA, so there is no strength to change")
            run.preview(prompt.strip() or None, SCALES)
            return "Drawn after this step: the base model, the LoRA at half strength, and at full strength."

        def decode(run: Run) -> str:
            run.decode_previews()
            return "The previews are decoded in the background, and come one by one."

        def try_it(run: Run, *values: Any) -> str:
            given = zip(specs(LiveSample), values, strict=True)
            run.try_it(parse(LiveSample, {spec.name: from_component(spec, value) for spec, value in given}))
            return "The video is drawn after this step; it comes here and under Sample."

        host.act(self.try_now.click, try_it, self.wish)
        host.act(self.decode.click, decode)
        for event in (self.now.click, self.prompt.submit):
            host.act(event, draw, [self.prompt])
        host.act(self.scales.click, draw_at_scales, [self.prompt])


def waits(snapshot: Snapshot) -> bool:
    """Whether the run waits for its turn."""
    return snapshot.run.name in snapshot.queue


# ---- as HTML


def previews(snapshot: Snapshot) -> str:
    """Prompts down, steps across; the base model first."""
    found, latents = snapshot.previews, kept_as_latents(snapshot)
    if not found:
        if latents:
            return latents
        if snapshot.settings and snapshot.settings.preview_every and snapshot.status.state.alive:
            return render.note("The first previews show what the model draws before training. They come soon.", "empty")
        return render.note("This run has no previews.", "empty")
    steps = thinned(sorted({preview.step for preview in found}), COLUMNS)
    cells = {(preview.index, preview.step): preview for preview in found}
    prompts = {preview.index: preview.prompt for preview in found}
    rows = []
    for index, prompt in sorted(prompts.items()):
        videos = "".join(_cell(cells.get((index, step)), snapshot) for step in steps)
        rows.append(f'<tr><th scope="row">{render.escaped(prompt)}</th>{videos}</tr>')
    return _table(["prompt", *map(_when, steps)], rows) + latents


def scaled(snapshot: Snapshot) -> str:
    """The newest step at which somebody asked for several strengths of the LoRA, a row a prompt."""
    found = snapshot.shown.scaled
    if not found:
        return ""
    step = max(one.step for one in found)
    mine = [one for one in found if one.step == step]
    full = {one.index: one for one in snapshot.previews if one.step == step}
    scales = sorted({one.scale for one in mine})
    rows = []
    for index in sorted({one.index for one in mine}):
        at = {one.scale: one for one in mine if one.index == index}
        prompt = next(iter(at.values())).prompt
        shown = [*((scale, at[scale].video) if scale in at else None for scale in scales)]
        shown.append((1.0, full[index].video) if index in full else None)
        videos = "".join(
            f"<td>{render.video(one[1], snapshot.width, f'{prompt}, strength {one[0]:g}')}</td>" if one else "<td></td>"
            for one in shown
        )
        rows.append(f'<tr><th scope="row">{render.escaped(prompt)}</th>{videos}</tr>')
    heads = [f"strength {scale:g}" if scale else "base model" for scale in scales]
    return f'<h4 class="section">The LoRA at several strengths, step {step}</h4>' + _table(
        ["prompt", *heads, "strength 1"], rows
    )


def tries(snapshot: Snapshot) -> str:
    """What a person asked the living run for, newest first."""
    shown = []
    for video, record in snapshot.shown.tries:
        prompt = str(record.get("prompt", ""))
        scale = record.get("scale", 1.0)
        facts = [f"step {record.get('step')}", f"seed {record.get('seed')}", f"{record.get('steps')} denoising steps"]
        facts += [f"guidance {record.get('guidance_scale')}", f"LoRA at {scale:g}" if scale else "base model"]
        shown.append(
            f"<figure>{render.video(video, snapshot.width, prompt)}<figcaption><b>{render.escaped(prompt)}</b><br>"
            f"{render.escaped(', '.join(facts))}</figcaption></figure>"
        )
    return f'<h4 class="section">Tried</h4><div class="tries">{"".join(shown)}</div>' if shown else ""


def what_goes_in(snapshot: Snapshot) -> str:
    """Clips as the model was shown them, each beside what its video encoder keeps of it."""
    rows = [
        f'<tr><th scope="row">{render.escaped(caption)}</th>'
        f"<td>{render.video(clip, snapshot.width, f'{caption}, as it goes in')}</td>"
        f"<td>{render.video(back, snapshot.width, f'{caption}, what the encoder keeps')}</td></tr>"
        for caption, clip, back in snapshot.shown.inputs
    ]
    return _table(["caption", "the clip as it goes in", "what the video encoder keeps"], rows) if rows else ""


def kept_as_latents(snapshot: Snapshot) -> str:
    """How many previews are not decoded, and what decodes them; "" where there are none."""
    count = snapshot.shown.latents
    if not count:
        return ""
    which = "1 preview is" if count == 1 else f"{count} previews are"
    decoding = snapshot.decoding
    if decoding is None or decoding.state is State.FINISHED:
        doing = "Decode them to see them."
    elif decoding.state.alive:
        doing = f"{decoding.phase}, {decoding.step} of {decoding.total}" if decoding.total else decoding.phase
    else:
        doing = f"Decoding them {decoding.state}: {decoding.message}"
    return render.note(f"{which} kept as latents, as the run's settings ask for. {doing}")


def before_after(snapshot: Snapshot) -> str:
    """The base model and the finished LoRA side by side, a pair for each prompt; empty while the run goes on."""
    if snapshot.status.state.alive or len({preview.step for preview in snapshot.previews}) < 2:
        return ""
    last = max(preview.step for preview in snapshot.previews)
    pairs = []
    for after in (preview for preview in snapshot.previews if preview.step == last):
        before = next((p for p in snapshot.previews if p.step == 0 and p.index == after.index), None)
        if before:
            sides = ((before, "base model"), (after, f"with the LoRA, step {last}"))
            videos = "".join(
                f"<figure>{render.video(preview.video, snapshot.width, f'{preview.prompt}, {side}')}"
                f"<figcaption>{side}</figcaption></figure>"
                for preview, side in sides
            )
            pairs.append(f'<div class="pair"><div>{videos}</div><p>{render.escaped(after.prompt)}</p></div>')
    return f'<div class="pairs">{"".join(pairs)}</div>' if pairs else ""


def _cell(preview: Preview | None, snapshot: Snapshot) -> str:
    if preview is None:
        return "<td></td>"
    label = f"{preview.prompt}, {_when(preview.step)}"
    return f"<td>{render.video(preview.video, snapshot.width, label)}</td>"


def _when(step: int) -> str:
    return f"step {step}" if step else "base model"


def _table(heads: list[str], rows: list[str]) -> str:
    titles = "".join(f"<th>{head}</th>" for head in heads)
    return (
        f'<div class="scroll"><table class="previews"><thead><tr>{titles}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )

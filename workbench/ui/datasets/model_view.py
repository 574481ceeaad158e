"""The model input of each clip: frames, crop, buckets, and what the VAE keeps of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr

from workbench.clips import buckets
from workbench.clips.records import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import PLAN_COLUMNS, plan_rows, plan_sentence
from workbench.display import charts
from workbench.families import find_model
from workbench.jobs import State
from workbench.sampler import vae_reconstruction
from workbench.sampler.vae_reconstruction import Reconstruction
from workbench.ui.core import render
from workbench.ui.core.boundary import on
from workbench.ui.core.view import Values, visible
from workbench.ui.datasets.clips import figure
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView, wanted_shape
from workbench.workspace import Workspace

MOST_ROWS = 500
MOST_BUCKETS = 3  # to begin with


class ModelInputPanel(DatasetPanel):
    """The plan of the open clip, of all clips, and the buckets that lose least."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.one = gr.HTML(elem_id="clip-plan")
        with gr.Row(elem_classes="buttons", visible=False) as self.buttons:
            self.play = gr.Button("Play the model input", elem_id="play-plan")
            self.back = gr.Button("Play the VAE reconstruction", elem_id="play-vae")
        self.video = gr.HTML(elem_id="plan-video")
        self.requested = gr.State("")  # folder of the reconstruction that is shown
        self.vae = gr.HTML(elem_id="vae-video")
        gr.HTML('<h3 class="part">All clips</h3>')
        self.plans = gr.HTML(elem_id="plans")
        gr.HTML('<h3 class="part">Buckets that lose least</h3>')
        self.most = gr.Slider(
            1,
            8,
            value=MOST_BUCKETS,
            step=1,
            label="Buckets",
            min_width=200,
            info="Clips of different length and size train in groups of one shape.",
        )
        self.buckets = gr.HTML(elem_id="buckets")

        self.view = [self.one, self.buttons, self.plans, self.buckets]

    def values(self, look: DatasetView) -> Values:
        mark = (look.mark, look.model, look.shape, look.problem)
        return {
            self.one: ((mark, look.clip), lambda: _one(look)),
            self.buttons: visible(bool(look.clip)),
            self.plans: (mark, lambda: _plans(look)),
            self.buckets: ((look.mark, look.model), lambda: _buckets(look.dataset, look.model, MOST_BUCKETS)),
        }

    def wire(self, host: DatasetHost) -> None:
        model = [host.model, host.frames]
        host.ask(self.play.click, self._play, model, [self.video], clip=True, slow=True)
        timer = gr.Timer(1.0, active=False)
        outputs = [self.requested, self.vae, timer]
        host.ask(self.back.click, self._request, model, outputs, clip=True)
        on(timer.tick, _reconstructed, [self.requested], outputs)
        host.ask(self.most.change, _buckets, [host.model, self.most], [self.buckets])

    def _play(self, dataset: Dataset, clip: Clip, model: str, frames: str) -> str:
        shape = wanted_shape(model, frames)
        target, plan = dataset.planned_video(clip, shape)
        return figure(target, shape.width, f"Exactly the model input: {plan.sentence}")

    def _request(self, dataset: Dataset, clip: Clip, model: str, frames: str) -> list[Any]:
        shape = wanted_shape(model, frames)
        found = vae_reconstruction.request(self.workspace, dataset.folder, clip, model, shape)
        return [str(found.folder), _beside(found), gr.Timer(active=True)]


def _reconstructed(folder: str) -> list[Any]:
    """How far the reconstruction is; asked once a second until it is over."""
    if not folder:
        return [gr.skip(), gr.skip(), gr.Timer(active=False)]
    found = vae_reconstruction.read(Path(folder))
    alive = found.status.state.alive
    return [gr.skip() if alive else "", _beside(found), gr.Timer(active=alive)]


def _beside(found: Reconstruction) -> str:
    status = found.status
    if found.beside is not None:
        words = f"Left: the model input. Right: what the VAE gives back. {found.psnr:.1f} dB, the worst frame "
        return figure(found.beside, 1, f"{words}{found.psnr_worst:.1f} dB. {vae_reconstruction.MEANING}.")
    if status.state.alive or status.state is State.NEW:
        return render.working(None, status.phase or "starting")
    return render.note(f"The VAE's picture could not be made. {status.message}", "bad")


def _one(look: DatasetView) -> str:
    """The plan of the open clip."""
    if look.clip is None:
        return render.note("Open a clip under Clips to play the model input.", "empty")
    if look.shape is None:
        return render.note(look.problem, "bad")
    plan = next((plan for plan in look.dataset.plans(look.shape) if plan.clip == look.clip), None)
    if plan is None:
        return ""
    use = "" if plan.dropped else f". That is {plan.use}."
    sentence = f"{look.clip.name}: {plan.sentence}{use}"
    return render.note(sentence, "bad" if plan.dropped else "plain") + "".join(map(render.note, plan.warnings))


def _plans(look: DatasetView) -> str:
    """The model input of every clip, in words; the clips that are left out first."""
    if look.shape is None:
        return render.note(look.problem, "bad")
    found = look.dataset.plans(look.shape)
    if not found:
        return ""
    sentence = render.escaped(plan_sentence(look.shape, found))
    return f"<p>{sentence}</p>" + render.table(PLAN_COLUMNS, plan_rows(found, MOST_ROWS))


def _buckets(dataset: Dataset, model_name: str, most: int) -> str:
    """The choice of at most that many buckets that loses least, as bars."""
    model = find_model(model_name).model
    clips = dataset.clips
    if not clips:
        return ""
    table = buckets.assign(clips, buckets.choose(clips, model, int(most)), model.fps)
    counts = {str(bucket): count for bucket, count in table.clips_per_bucket.items()}
    bars = charts.bars("The buckets that lose least", counts)
    out = [(one.clip.name, one.dropped or "") for one in table.dropped[:MOST_ROWS]]
    return f"<p>{table.sentence}</p>{bars}{render.table(('left out', 'why'), out)}"

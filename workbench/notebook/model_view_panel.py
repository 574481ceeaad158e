"""What the model sees of each clip, in a notebook: frames, crop, buckets, and what its VAE gives back of them.

Not covered: how frames are chosen (frame_plan, buckets), the VAE (sampler.reconstruction_worker, a process of its own).
"""

from __future__ import annotations

import threading
from pathlib import Path

import ipywidgets as widgets

from workbench import jobs
from workbench.clips import buckets
from workbench.clips.buckets import BucketTable
from workbench.clips.frame_plan import FramePlan, Shape, shape_for
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError, WorkbenchError
from workbench.families import default_model, find_model, models
from workbench.notebook import rendering
from workbench.notebook.live import Panel, Ticker, button
from workbench.sampler import vae_reconstruction
from workbench.sampler.vae_reconstruction import Reconstruction
from workbench.workspace import Workspace

MOST_ROWS = 200
SHOWN = 320  # pixels of a pair of videos
SIMILAR = "30 dB and more look alike; under 25 dB the VAE loses what a LoRA could have learnt."


class SeesPanel(Panel):
    """A clip as a model sees it, and as its VAE gives it back; below, the plans of all clips and the buckets."""

    def __init__(self, workspace: Workspace, dataset: str, model: str | None = None, frames: int | None = None) -> None:
        """model, frames: to begin with; else the built-in model and what it was made for. Raises ConfigError."""
        self.workspace = workspace
        self.dataset = Dataset.open(workspace, dataset)
        self._asked: Path | None = None
        self._lock = threading.Lock()
        wide = widgets.Layout(width="300px")
        self.model = widgets.Combobox(
            value=model or default_model(), options=[each.id for each in models()], ensure_option=False, layout=wide
        )
        self.frames = widgets.Text(
            value=str(frames or ""), placeholder="frames: the model's own", continuous_update=False,
            layout=widgets.Layout(width="180px"),
        )  # fmt: skip
        self.clip = widgets.Dropdown(
            options=[(clip.source or clip.id, clip.file_name) for clip in self.dataset.clips], layout=wide
        )
        self.play_button = button("Play what the model sees", "Exactly these frames, cropped and scaled", "play")
        self.back_button = button("Play what its VAE gives back", "What it cannot keep, a LoRA cannot learn", "columns")
        self.again_button = button("", "Look again at the clips", "refresh")
        self.seen, self.vae, self.plans, self.buckets = (widgets.HTML() for _ in range(4))
        self.most = widgets.IntSlider(value=3, min=1, max=8, description="Buckets", continuous_update=False)
        super().__init__([])
        self.play_button.on_click(self.doing(self.play))
        self.back_button.on_click(self.doing(self.reconstruct))
        self.again_button.on_click(self.doing(self.show))
        for field in (self.model, self.frames, self.most):
            field.observe(lambda _: self.doing(self.show)(None), names="value")
        videos = widgets.HBox([self.seen, self.vae], layout=widgets.Layout(flex_flow="row wrap"))
        self.box.children = (
            widgets.HBox([self.model, self.frames]),
            widgets.HBox([self.clip, self.play_button, self.back_button, self.again_button]),
            self.said, videos, self.plans, widgets.HTML("<b>Buckets that lose least</b>"), self.most, self.buckets,
        )  # fmt: skip
        self.ticker = Ticker(self.refresh)
        self.doing(self.show)(None)

    @property
    def shape(self) -> Shape:
        """What every clip is brought to. Raises ConfigError when the model or the number of frames is not legal."""
        frames = self.frames.value.strip()
        if frames and not frames.isdecimal():
            raise ConfigError(f"frames is {frames[:20]!r}, must be a whole number: leave it empty for the model's own")
        return shape_for(find_model(self.model.value)[1], int(frames) if frames else None)

    def show(self) -> None:
        """The plans of all clips and the choice of buckets, as they are now. Raises ConfigError."""
        shape, clips, chosen = self.shape, self.dataset.clips, self.clip.value
        self.clip.options = [(clip.source or clip.id, clip.file_name) for clip in clips]
        if chosen in [clip.file_name for clip in clips]:
            self.clip.value = chosen
        self.plans.value = _plans(shape, self.dataset.plans(shape))
        if clips:
            _, model = find_model(self.model.value)
            self.buckets.value = _bars(buckets.assign(clips, buckets.choose(clips, model, self.most.value), model.fps))

    def play(self, name: str | None = None) -> FramePlan:
        """Play exactly the frames that the model sees of a clip: of that name, else the chosen one.

        Raises ConfigError, DataError when it is left out, CannotWrite.
        """
        shape, clip = self.shape, self.dataset.clip(self._choose(name))
        target, plan = self.dataset.planned_video(self.workspace, clip, shape)
        warnings = "".join(f" {warning}." for warning in plan.warnings)
        words = f"Exactly what the model sees: {plan.sentence}. It is {plan.use}.{warnings}"
        self.seen.value = rendering.figure(target, words, SHOWN // 2, shape.width)
        return plan

    def reconstruct(self, name: str | None = None) -> Reconstruction:
        """Start drawing what the model's VAE gives back of a clip, in a process of its own; `wait` waits for it.

        Raises ConfigError, DataError when it is left out, CannotWrite.
        """
        shape, clip = self.shape, self.dataset.clip(self._choose(name))
        found = vae_reconstruction.request(self.workspace, self.dataset.folder, clip, self.model.value, shape)
        self._asked = found.folder
        self.refresh()
        self.ticker.start()
        return found

    def wait(self, seconds: float | None = None) -> Reconstruction:
        """Wait until the reconstruction is there or the time is up. Raises ConfigError when none was asked for."""
        if self._asked is None:
            raise ConfigError("no reconstruction was asked for here: press Play what its VAE gives back")
        jobs.wait(self._asked, seconds)
        self.refresh()
        return vae_reconstruction.look(self._asked)

    def refresh(self) -> bool:
        """Show how far the reconstruction is. True until it is over."""
        with self._lock:
            if self._asked is None:
                return False
            found = vae_reconstruction.look(self._asked)
            try:
                self.vae.value = _beside(found)
            except (WorkbenchError, OSError) as error:
                self.say(str(error), "error")
            return found.status.state.alive

    def close(self) -> None:
        self.ticker.stop()
        super().close()

    def _choose(self, name: str | None) -> str:
        """The clip's file name, chosen in the list, too. Raises ConfigError."""
        if name is None and self.clip.value is None:
            raise ConfigError(f"{self.dataset.name} has no clips: import some")
        wanted = self.dataset.clip(name or self.clip.value).file_name
        self.clip.value = wanted
        return wanted


def sees_panel(workspace: Workspace, dataset: str, model: str | None = None, frames: int | None = None) -> SeesPanel:
    """What a model sees of the clips, and what its VAE gives back. Raises ConfigError."""
    return SeesPanel(workspace, dataset, model, frames)


def _plans(shape: Shape, found: list[FramePlan]) -> str:
    """What the model sees of every clip, in words; the clips that are left out first."""
    used = sum(plan.dropped is None for plan in found)
    said = (
        f"Of each clip the model sees {shape.frames} frames at {shape.fps:g} a second, {shape.width}x{shape.height}. "
        f"{used:,} of {len(found):,} clips are used."
    )
    rows = [
        (plan.clip.source or plan.clip.id, f"{plan.clip.seconds:.1f} s", plan.sentence, plan.use)
        for plan in sorted(found, key=lambda plan: plan.dropped is None)[:MOST_ROWS]
    ]
    heads = ("clip", "length", "what the model sees", "share of the clip")
    return rendering.note(said) + (rendering.table(heads, rows) if rows else "")


def _bars(table: BucketTable) -> str:
    """The choice of buckets that loses least, as bars."""
    kept = f"{1 - table.loss:.0%} of the footage is kept, {len(table.dropped):,} clips are left out."
    out = [(placed.clip.source or placed.clip.id, placed.dropped or "") for placed in table.dropped[:MOST_ROWS]]
    counts = {str(bucket): count for bucket, count in table.clips_per_bucket.items()}
    return rendering.note(kept) + rendering.bars(counts) + (rendering.table(("left out", "why"), out) if out else "")


def _beside(found: Reconstruction) -> str:
    status = found.status
    if found.beside is not None:
        words = (
            f"Left: what the model is given. Right: what its VAE gives back. {found.psnr:.1f} dB, the worst frame "
            f"{found.psnr_worst:.1f} dB. {SIMILAR}"
        )
        return rendering.figure(found.beside, words, SHOWN)
    if status.state.alive or status.state is jobs.State.NEW:
        return rendering.note(status.phase or "starting")
    return rendering.note(f"The VAE's picture could not be made. {status.message}", "error")

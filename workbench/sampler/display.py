"""Samples in a notebook: the videos side by side, each with its title, as HTML that carries the videos.

Not covered: what is shown of a sample (view), videos in HTML (inline_html).
"""

from __future__ import annotations

from collections.abc import Sequence

from workbench.display.inline_html import figure, note, picture, row
from workbench.sampler.queue import Progress, RequestState
from workbench.sampler.samples import LATENTS, Sample
from workbench.sampler.settings import SampleSettings
from workbench.sampler.view import LATENTS_ONLY, report, request_view, subtitle, title, width_of
from workbench.workspace import read_json

VIDEO_WIDTH = 192  # pixels


def samples_html(samples: Sequence[Sample], width: int = VIDEO_WIDTH) -> str:
    """Finished samples side by side. width: of each on the page, pixels"""
    if not samples:
        return note("There are no samples yet.")
    return row([_figure(one, width) for one in samples])


def _figure(one: Sample, width: int) -> str:
    text = one.problem or line(one.settings)
    if one.latents_only:
        return note(f"{text}: {LATENTS_ONLY}")
    return figure(one.path, text, width, width_of(one.settings, one.record))


def line(settings: SampleSettings | None) -> str:
    """A sample in a line: prompt, LoRAs, seed."""
    return " · ".join(filter(None, (title(settings), subtitle(settings))))


def progress_html(now: Progress) -> str:
    """How far a request is, with its latent preview; of a finished one the video."""
    if now.video is not None:
        record = read_json(now.video.with_suffix(".json"))
        if now.video.suffix == LATENTS:
            return note(f"{line(now.settings)}: {LATENTS_ONLY}. {'. '.join(report(record))}")
        width = width_of(now.settings, record) if now.settings else None
        return figure(now.video, f"{line(now.settings)}. {'. '.join(report(record))}", VIDEO_WIDTH, width)
    view = request_view(now)
    kind = "error" if now.state is RequestState.FAILED else "plain"
    text = note(f"{view.title} · {view.subtitle}: {view.status}. {view.message}", kind)
    return text + (picture(now.picture, "preview", VIDEO_WIDTH) if now.picture else "")

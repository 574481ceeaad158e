"""Earlier samples in pages, searched by words of their prompt, model or LoRAs.

The browser's half is assets/sample_history.js. Not covered: an opened sample (result).
"""

from __future__ import annotations

import threading
from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import ConfigError
from workbench.sampler.samples import ID, Sample, Samples
from workbench.sampler.view import loras_of, title
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.ui.core.live import Recent
from workbench.ui.sample.result import width
from workbench.workspace import Workspace

PAGE = 12


class PageOfSamples(BaseModel):
    """Which page, the first being 0, of the samples that have every word."""

    model_config = ConfigDict(extra="forbid")

    search: str = Field(default="", max_length=1000)
    page: int = Field(default=0, ge=0)


class History:
    """Builds the component, and knows the samples: each record is read once. Its event is open {"id"}."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._ids = Recent(lambda: sorted(self._on_disk(), reverse=True))
        self._lock = threading.Lock()
        self._known: dict[str, Sample] = {}
        self.component = gr.HTML(
            value={"mark": "", "chosen": ""},
            html_template="",
            css_template=render.style("components"),
            js_on_load=render.script("sample_history"),
            apply_default_css=False,
            server_functions=[answering("samples_page", PageOfSamples, self.page)],
            elem_id="sample-history",
        )

    def ids(self, now: bool = False) -> list[str]:
        """Of all samples, newest first."""
        return self._ids.get(now)

    def sample(self, sample_id: str) -> Sample | None:
        """None for one that is missing or cannot be read."""
        if sample_id not in self.ids():
            return None
        with self._lock:
            if sample_id not in self._known:
                try:
                    self._known[sample_id] = Samples(self.workspace).get(sample_id)
                except ConfigError:
                    return None
            return self._known[sample_id]

    def newest(self) -> Sample | None:
        return next((sample for name in self.ids() if (sample := self.sample(name))), None)

    def value(self, chosen: str) -> dict[str, str]:
        """The component's value: the page of samples is loaded again when that changes."""
        ids = self.ids()
        return {"mark": f"{len(ids)} {ids[0]}" if ids else "", "chosen": chosen}

    def page(self, query: PageOfSamples) -> dict[str, Any]:
        """One page of samples, and how many there are."""
        words = query.search.casefold().split()
        ids = self.ids(now=True)
        if words:
            ids = [name for name in ids if (sample := self.sample(name)) and _has(sample, words)]
        page = min(query.page, max(0, (len(ids) - 1) // PAGE))
        found = [self.sample(name) for name in ids[page * PAGE : (page + 1) * PAGE]]
        return {
            "samples": [_data(sample) for sample in found if sample],
            "page": page,
            "matching": len(ids),
            "size": PAGE,
            "all": len(self.ids()),
        }

    def _on_disk(self) -> list[str]:
        found = self.workspace.samples.glob("[0-9]*/*.json")
        return [path.stem for path in found if ID.fullmatch(path.stem)]


def _has(sample: Sample, words: list[str]) -> bool:
    settings = sample.settings
    text = f"{settings.prompt} {settings.model} {' '.join(settings.loras)} seed {settings.seed}".casefold()
    return all(word in text for word in words)


def _data(sample: Sample) -> dict[str, Any]:
    settings = sample.settings
    return {
        "id": sample.id,
        "url": render.url(sample.path),
        "prompt": title(settings),
        "about": loras_of(settings),
        "pixelated": width(sample) <= render.PIXEL_ART,
    }

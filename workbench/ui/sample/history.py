"""Earlier samples in pages: searched by words and dates, starred, chosen, removed to the bin and restored.

The browser's half is assets/sample_history.js.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from workbench.errors import ConfigError
from workbench.sampler.samples import Listing, Sample, SampleQuery, Samples, write_download
from workbench.sampler.view import LATENTS_ONLY, loras_used, title_of
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.ui.core.live import Recent
from workbench.ui.core.widgets import component
from workbench.ui.sample.result import width
from workbench.workspace import Workspace

PAGE = 12
MOST_CHOSEN = 1000


class PageOfSamples(SampleQuery):
    """Which page, the first being 0, of the samples that the query names."""

    page: int = Field(default=0, ge=0)


class ChosenSamples(BaseModel):
    """Samples by their ids. starred: for `star_samples`"""

    model_config = ConfigDict(extra="forbid")

    ids: list[str] = Field(min_length=1, max_length=MOST_CHOSEN)
    starred: bool = True


class ToDownload(ChosenSamples):
    """Samples to be one file. kind: a zip of them all, or a GIF that shows them side by side"""

    kind: Literal["zip", "gif"]


class History:
    """Builds the component, and knows the samples: each record is read once.

    Its events are open {"id"} and compare {"ids"}.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.samples = Samples(workspace)
        self._listing = Recent(self.samples.listing)
        self._lock = threading.Lock()
        self._known: dict[tuple[str, bool], Sample] = {}
        self.component = component(
            "sample-history",
            {"mark": "", "chosen": ""},
            render.script("sample_history"),
            functions=[
                answering("samples_page", PageOfSamples, self.page),
                answering("star_samples", ChosenSamples, self.star),
                answering("remove_samples", ChosenSamples, self.remove),
                answering("restore_samples", ChosenSamples, self.restore),
                answering("download_samples", ToDownload, self.download),
            ],
        )

    def listing(self, now: bool = False) -> Listing:
        """Which samples there are."""
        return self._listing.get(now)

    def sample(self, sample_id: str) -> Sample | None:
        """None for one that is not there."""
        return self._read(sample_id, False) if sample_id in self.listing().ids else None

    def newest(self) -> Sample | None:
        """The newest whose record can be read."""
        samples = map(self.sample, self.listing().ids)
        return next((one for one in samples if one and not one.problem), None)

    def named(self, ids: Iterable[str]) -> list[Sample]:
        """The samples of these ids, in their order. Raises ConfigError when one is gone."""
        return [self.samples.get(name) for name in ids]

    def value(self, chosen: str) -> dict[str, str]:
        """The component's value: the page of samples is loaded again when `mark` changes."""
        listing = self.listing()
        newest = listing.ids[0] if listing.ids else ""
        mark = f"{newest} {len(listing.ids)} {listing.videos} {len(listing.removed)} {hash(listing.starred)}"
        return {"mark": mark if newest or listing.removed else "", "chosen": chosen}

    def _read(self, sample_id: str, removed: bool) -> Sample | None:
        """One that is listed; None when it is gone. Videos of the history and the bin never change there."""
        with self._lock:
            known = self._known.get((sample_id, removed))
            if known is None or known.latents_only:  # which may have become a video
                try:
                    sample = self.samples.get(sample_id, removed)
                except ConfigError:
                    return None
                if sample.problem:  # until its record is put right
                    return sample
                self._known[sample_id, removed] = sample
            return self._known[sample_id, removed]

    # ---- requests of the browser

    def page(self, query: PageOfSamples) -> dict[str, Any]:
        """One page of samples, and how many there are."""
        removed, listing = query.show == "removed", self.listing(now=True)
        ids = listing.find(query, self._read)
        page = min(query.page, max(0, (len(ids) - 1) // PAGE))
        found = [self._read(name, removed) for name in ids[page * PAGE : (page + 1) * PAGE]]
        return {
            "samples": [_data(sample, sample.id in listing.starred) for sample in found if sample],
            "page": page,
            "matching": len(ids),
            "size": PAGE,
            "all": len(listing.ids) + len(listing.removed),
        }

    def star(self, chosen: ChosenSamples) -> dict[str, Any]:
        """Star samples, or take their stars away."""
        return self._each(chosen, lambda name: self.samples.star(name, chosen.starred))

    def remove(self, chosen: ChosenSamples) -> dict[str, Any]:
        """Move samples to the bin."""
        return self._each(chosen, self.samples.remove)

    def restore(self, chosen: ChosenSamples) -> dict[str, Any]:
        """Move samples back from the bin."""
        return self._each(chosen, self.samples.restore)

    def download(self, chosen: ToDownload) -> dict[str, Any]:
        """Samples as one file; the answer has its address."""
        file = write_download(self.named(chosen.ids), self.workspace, f".{chosen.kind}")
        return {"url": render.url(file), "name": file.name}

    def _each(self, chosen: ChosenSamples, change: Callable[[str], object]) -> dict[str, Any]:
        try:
            for name in chosen.ids:
                change(name)
        finally:
            self.listing(now=True)
        return {}


def _data(sample: Sample, starred: bool) -> dict[str, Any]:
    return {
        "id": sample.id,
        "url": "" if sample.latents_only else render.url(sample.path),
        "prompt": title_of(sample) + (f" ({LATENTS_ONLY})" if sample.latents_only else ""),
        "about": loras_used(sample),
        "created": sample.created,
        "starred": starred,
        "pixelated": width(sample) <= render.PIXEL_ART,
    }

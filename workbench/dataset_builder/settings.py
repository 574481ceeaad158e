"""The settings of an import, one declaration each."""

from __future__ import annotations

from typing import Literal

from workbench.dataset_builder.sources.tree import Columns
from workbench.settings import Settings, field

DATA = "Data"


class ImportSettings(Settings):
    """What `datasets/<slug>/.import/config.json` holds."""

    sources: tuple[str, ...] = field((), title="Videos", section=DATA, lines=3, path=True)
    """Video and picture files, folders of them, or zip and tar archives. Captions that came with them are taken over,
    in whatever layout they are."""

    layout: Literal["auto", "videofolder", "csv", "sidecars", "lists", "labels", "webdataset"] = field(
        "auto", title="Layout", section=DATA, advanced=True
    )
    """How captions lie beside the videos. auto: found out by itself. videofolder, csv: metadata.jsonl or .csv;
    sidecars: a .txt a video; lists: prompts.txt and videos.txt; labels: folders videos and labels; webdataset: tar
    shards."""

    hub_dataset: str = field("", title="Hub dataset", section=DATA)
    """A dataset on the Hugging Face Hub, as OWNER/NAME, to be downloaded and imported. For private ones log in on this
    machine first (`hf auth login`)."""

    revision: str = field("", title="Revision", section=DATA, advanced=True)
    """Branch, tag or commit of the Hub dataset. Empty: its newest state."""

    hub_config: str = field("", title="Configuration", section=DATA, advanced=True)
    """Which configuration (subset) of the Hub dataset is taken, where its card names several. Empty: all."""

    video_column: str = field("", title="Video column", section=DATA, advanced=True)
    """The column of metadata.jsonl, metadata.csv or a parquet table that holds the video or its file name. Empty:
    file_name, video, path or file."""

    caption_column: str = field("", title="Caption column", section=DATA, advanced=True)
    """The column of such a table, or the key of a WebDataset's JSON, that holds the caption. Empty: text, caption or
    prompt."""

    longest_side: int | None = field(
        None, title="Longest side", section=DATA, unit="pixels", low=64, high=8192, advanced=True
    )
    """Larger pictures are scaled down to this, which saves disk and time. Empty: pictures keep their size."""

    dataset: str = field("", title="Dataset", section=DATA, source="datasets")
    """The dataset the clips go into: one of yours, or the name of a new one."""

    trigger_word: str = field("", title="Trigger word", section=DATA)
    """A word of your own that stands for the new concept; it is added to every caption without it."""

    @property
    def wanted_layout(self) -> str:
        """The layout's name, "" to find it out."""
        return "" if self.layout == "auto" else self.layout

    @property
    def columns(self) -> Columns:
        return Columns(self.video_column.strip(), self.caption_column.strip())

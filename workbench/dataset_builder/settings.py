"""The settings of an import, one declaration each."""

from __future__ import annotations

from typing import Literal

from workbench.dataset_builder.sources.columns import Columns
from workbench.settings import Settings, field

DATA = "Data"


class ImportSettings(Settings):
    """What `datasets/<slug>/.import/config.json` holds."""

    sources: tuple[str, ...] = field((), title="Videos", section=DATA, lines=3, path=True)
    """Video and picture files, folders of them, zip and tar archives, or parquet tables; also latents that
    were computed elsewhere (docs/given_latents.md). Captions that came with them are taken over, in whatever layout
    they are."""

    layout: Literal["auto", "videofolder", "csv", "sidecars", "lists", "labels", "webdataset"] = field(
        "auto", title="Layout", section=DATA, advanced=True
    )
    """How captions lie beside the videos. auto: found out by itself. videofolder, csv: metadata.jsonl, metadata.csv and
    tables of other names; sidecars: a .txt a video; lists: prompts.txt and videos.txt; labels: folders videos and
    labels; webdataset: tar shards."""

    hub_dataset: str = field("", title="Hub dataset", section=DATA)
    """A dataset on the Hugging Face Hub, as OWNER/NAME, to be downloaded and imported. For private ones log in on this
    machine first (`hf auth login`)."""

    revision: str = field("", title="Revision", section=DATA, advanced=True)
    """Branch, tag or commit of the Hub dataset. Empty: its newest state."""

    hub_config: str = field("", title="Configuration", section=DATA, advanced=True)
    """Which configuration (subset) of the Hub dataset is taken, where its card names several. Empty: all."""

    own_source: str = field("", title="Own source", section=DATA, advanced=True)
    """Clips from Python code of your own: NAME or NAME=TEXT of a class that an installed package names under the entry
    point video_lora_workbench.sources. It gets the text."""

    video_column: str = field("", title="Video column", section=DATA, advanced=True)
    """The column of a table that holds the video or its file name, or a list file with a path a line (files.lst).
    Empty: found by its usual names, such as file_name, video, path, media_path or video_path."""

    caption_column: str = field("", title="Caption column", section=DATA, advanced=True)
    """The column of a table, or the key of a JSON record, that holds the caption; or a list file with a caption a line
    (captions.lst), or the ending of caption files (longcap for 000.longcap). Empty: found by its usual names, such as
    text, caption, prompt or description."""

    first_line: bool = field(False, title="First line only", section=DATA, advanced=True)
    """Take only the first line of each caption's text file, as SAT's trainers do. Otherwise all its lines are one
    caption."""

    frames_as_video: bool = field(False, title="Numbered pictures are a video", section=DATA, advanced=True)
    """Whether a folder of numbered pictures (walk/frame_0001.png and so on, five or more without a gap) is one video.
    Its caption is in walk.txt, in walk/caption.txt or in the row of a table that names the folder. Off: each is a
    picture."""

    frame_rate: float = field(24.0, title="Their frame rate", section=DATA, unit="fps", low=1, high=60, advanced=True)
    """The frame rate of videos that are made of numbered pictures."""

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
    def rate_of_frames(self) -> float | None:
        """The frame rate of numbered pictures that are one video, None where each is a picture."""
        return self.frame_rate if self.frames_as_video else None

    @property
    def columns(self) -> Columns:
        return Columns(self.video_column.strip(), self.caption_column.strip(), self.first_line)

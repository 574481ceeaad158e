"""The settings of an import, one declaration each."""

from __future__ import annotations

from workbench.settings import Settings, field

DATA = "Data"


class ImportSettings(Settings):
    """What `datasets/<slug>/.import/config.json` holds."""

    sources: tuple[str, ...] = field(
        (),
        title="Videos",
        section=DATA,
        lines=3,
        help="Video files, or folders of them. Captions are taken from .txt files beside the videos, or from a "
        "metadata.jsonl or metadata.csv.",
    )
    dataset: str = field(
        "",
        title="Dataset",
        section=DATA,
        source="datasets",
        help="The dataset the clips go into: one of yours, or the name of a new one.",
    )
    trigger_word: str = field(
        "",
        title="Trigger word",
        section=DATA,
        help="A word of your own that stands for the new concept; it is put in front of every caption without it.",
    )

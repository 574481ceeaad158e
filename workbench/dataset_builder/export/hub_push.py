"""Push a dataset to the Hub: clips in the VideoFolder layout, with a card, as one commit. Nothing here knows a token.

Not covered: the client and its errors (workbench.hub), fetching datasets (sources.hub), models and Spaces (publishing).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from workbench import hub
from workbench.clips.records import DatasetInfo, read_clips, read_info
from workbench.dataset_builder.export.files import exported_clips
from workbench.dataset_builder.export.settings import ExportSettings
from workbench.dataset_builder.sources.layouts.base import ExportedClip
from workbench.dataset_builder.sources.layouts.tables import VideoFolder
from workbench.hub import Pushed

OnFile = Callable[[int, int], None]
"""Called with (files sent, all files); may raise to stop."""


def contents(dataset: Path, settings: ExportSettings) -> dict[str, Path | bytes]:
    """What a push to `settings.repo_id` sends: file name -> file or bytes, in the VideoFolder layout with a card.

    Raises DataError.
    """
    clips = exported_clips(dataset, settings.trigger_word, readable=False)
    files = dict(VideoFolder(texts=False).files(clips, first_frames=False))
    return {**files, "README.md": dataset_card(read_info(dataset), clips, settings).encode()}


def push(dataset: Path, settings: ExportSettings, on_file: OnFile = lambda *_: None) -> Pushed:
    """Upload a dataset to `settings.repo_id` in the VideoFolder layout, as one commit.

    A new repository is private unless asked otherwise; into one that is there, a commit is added, which the Hub can
    take back. Raises ConfigError (also before private clips go into a public repository), DataError, HubRefuses,
    HubLost.
    """
    files = contents(dataset, settings)
    message = f"{len(read_clips(dataset))} clips from Video LoRA Workbench"
    return hub.push("dataset", settings.repo_id, files, message, settings.private, on_file)


def dataset_card(info: DatasetInfo, found: Sequence[ExportedClip], settings: ExportSettings) -> str:
    """The dataset's README.md, made from what is known of it."""
    from huggingface_hub import DatasetCardData

    clips = [item.clip for item in found]
    sizes = Counter(f"{clip.width}x{clip.height}" for clip in clips).most_common()
    rates = Counter(f"{clip.fps:g}" for clip in clips).most_common()
    data = DatasetCardData(
        pretty_name=info.title or None,
        license=settings.license or None,
        task_categories=["text-to-video"],
        size_categories=[_size_category(len(clips))],
        tags=["video", "lora"],
    )
    facts = [
        ("Clips", f"{len(clips):,}"),
        ("Length", f"{sum(clip.seconds for clip in clips):,.1f} s"),
        ("Sizes", ", ".join(f"{size} ({count})" for size, count in sizes[:5])),
        ("Frames per second", ", ".join(f"{rate} ({count})" for rate, count in rates[:5])),
        ("With a caption", f"{sum(bool(item.caption) for item in found):,}"),
    ]
    if info.trigger_word:
        written = "written into the captions" if settings.trigger_word else "not written into the captions"
        facts.append(("Trigger word", f"`{info.trigger_word}`, {written}"))
    table = "".join(f"| {name} | {value} |\n" for name, value in facts)
    return (
        f"---\n{data.to_yaml()}\n---\n\n# {info.title or settings.repo_id.rpartition('/')[2]}\n\n"
        "Captioned video clips for fine-tuning a video model: constant frame rate, upright, square pixels, H.264.\n\n"
        f"| | |\n| --- | --- |\n{table}\n"
        "```python\nfrom datasets import Video, load_dataset\n\n"
        f'clips = load_dataset("{settings.repo_id}", split="train").cast_column("video", Video(decode=False))\n```\n'
    )


def _size_category(count: int) -> str:
    for limit, name in ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K")):
        if count < limit:
            return name
    return "100K<n<1M"

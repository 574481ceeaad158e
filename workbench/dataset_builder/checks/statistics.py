"""Statistics of a dataset for charts: durations, sizes, frame rates, motion, caption lengths, words.

Everything comes from the records and the last check (motion, tokens). Nothing is decoded; what was not checked is left
out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from workbench.clips.records import Clip, DatasetInfo, known_info, read_clips
from workbench.dataset_builder.checks.dataset_check import read_tokens, text_hash
from workbench.dataset_builder.checks.measures import read_measures
from workbench.display import inline_html
from workbench.display.quantities import counted
from workbench.snapshots import Snapshot

MOST_WORDS, BINS = 30, 20
BAR, MOST_BARS = 40, 12  # characters in the longest bar, bars in a histogram
STOP_WORDS = re.compile(
    "an?|and|are|as|at|be|been|being|but|by|for|from|has|have|he|her|him|his|in|into|is|it|its|of|on|onto|or|over|she|"
    "so|than|that|the|their|them|then|there|they|this|to|under|up|was|were|which|while|who|with"
)

BETWEEN_WORDS = str.maketrans(dict.fromkeys('.,;:!?"()[]{}…„“”»«|/', " "))


@dataclass(frozen=True)
class Histogram:
    """A histogram: counts[i] clips lie between edges[i] and edges[i + 1]."""

    title: str
    unit: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]


class Statistics(Snapshot):
    """A dataset in numbers."""

    notes: tuple[str, ...]
    """Remarks, one sentence each."""

    histograms: dict[str, Histogram]
    """Those that are known of duration, motion, words and tokens: title, unit, edges, counts."""

    counts: dict[str, dict[str, int]]
    """Title -> value -> number of clips with that value."""

    def text(self) -> Iterator[str]:
        yield " ".join(self.notes)
        for one in self.histograms.values():
            edges = zip(one.edges, one.edges[1:], one.counts, strict=False)
            yield from _bars(
                f"{one.title} ({one.unit})", [(f"{low:g} to {high:g}", count) for low, high, count in edges]
            )
        for title, counts in self.counts.items():
            yield from _bars(title, list(counts.items())[:MOST_BARS])

    def _repr_html_(self) -> str:
        charts = [inline_html.histogram(one.title, one.unit, one.edges, one.counts) for one in self.histograms.values()]
        charts += [inline_html.bars(title, counts) for title, counts in self.counts.items()]
        return inline_html.note(" ".join(self.notes)) + inline_html.row(charts)


def _bars(title: str, rows: list[tuple[str, int]]) -> Iterator[str]:
    yield from ("", title)
    width = max((len(name) for name, _ in rows), default=0)
    top = max((count for _, count in rows), default=0) or 1
    yield from (f"  {name:>{width}}  {'#' * round(BAR * count / top)} {count}" for name, count in rows)


def statistics(dataset: Path) -> Statistics:
    """Compute the statistics of a dataset."""
    info = known_info(dataset)
    motion = {sha256: found.motion for sha256, found in read_measures(dataset).items() if not found.error}
    return of_clips(read_clips(dataset), info, motion, *read_tokens(dataset, info))


def of_clips(
    clips: Sequence[Clip],
    info: DatasetInfo,
    motion: dict[str, float],
    token_limit: int = 0,
    tokens: dict[str, int] | None = None,
) -> Statistics:
    """Compute statistics from records.

    motion: `Measures.motion` by sha256. token_limit, tokens: how many tokens of a caption the checked model reads, 0 if
        unknown, and counts by `text_hash`.
    """
    if not clips:
        return Statistics(notes=("There are no clips yet: import some.",), histograms={}, counts={})
    videos = [clip for clip in clips if not clip.is_image]
    captioned = [clip for clip in clips if clip.text.strip()]
    moving = [motion[clip.sha256] for clip in videos if clip.sha256 in motion]
    of_tokens = [tokens.get(text_hash(clip)) for clip in captioned] if tokens else []
    images = f", {len(clips) - len(videos):,} of them images" if len(videos) < len(clips) else ""
    notes = [f"{counted(len(clips), 'clip')}, {sum(clip.seconds for clip in videos):,.1f} s{images}."]
    if captioned and (trigger := info.trigger_word.strip()):
        near = [clip for clip in captioned if trigger.lower() in clip.text.lower()]  # a fast filter before the rule
        share = sum(info.caption(clip) == clip.text.strip() for clip in near) / len(captioned)
        notes.append(f"{share:.0%} of the captions contain the trigger word as written.")
    if token_limit:
        notes.append(f"The model reads {token_limit} tokens of a caption.")
    if not moving:
        notes.append("Run a check to measure motion.")
    elif len(moving) < len(videos):
        notes.append(f"Motion is known for {len(moving) / len(videos):.0%} of the videos: check again.")
    histograms = {
        "duration": _histogram("Duration", "seconds", [clip.seconds for clip in videos]),
        "motion": _histogram("Motion", "levels within 1/8 s", moving),
        "words": _histogram("Words per caption", "words", [len(clip.text.split()) for clip in captioned], whole=True),
        "tokens": _histogram("Tokens per caption", "tokens", [c for c in of_tokens if c is not None], whole=True),
    }
    counts: dict[str, Sequence[tuple[str, int]]] = {
        "Sizes": Counter(f"{clip.width}x{clip.height}" for clip in clips).most_common(),
        "Aspect ratios": Counter(_aspect(clip) for clip in clips).most_common(),
        "Frames per second": Counter(f"{round(clip.fps, 3):g}" for clip in videos).most_common(),
        "Words in most captions": _words(captioned),
        "Tags": Counter(tag for clip in clips for tag in clip.tags).most_common(MOST_WORDS),
    }
    return Statistics(
        notes=tuple(notes),
        histograms={name: histogram for name, histogram in histograms.items() if histogram is not None},
        counts={title: dict(found) for title, found in counts.items() if found},
    )


def _histogram(title: str, unit: str, values: Sequence[float], whole: bool = False) -> Histogram | None:
    """Build a histogram of at most BINS bins with a round width; None without values. whole: bins of at least 1."""
    if not values:
        return None
    low, high = min(values), max(values)
    least = (high - low) / BINS or 1.0
    power: float = 10.0 ** math.floor(math.log10(least))
    # Round up to 1, 2, 5, 10, 20 ... or 0.1, 0.2, 0.5 ...
    width = next(power * step for step in (1, 2, 5, 10) if power * step >= least - 1e-12)
    width = max(1.0, width) if whole else width
    first = math.floor(low / width + 1e-9)
    per_bin = Counter(math.floor(value / width + 1e-9) for value in values)
    bins = max(per_bin) - first + 1
    edges = tuple(round((first + number) * width, 6) for number in range(bins + 1))
    return Histogram(title, unit, edges, tuple(per_bin[first + number] for number in range(bins)))


def _aspect(clip: Clip) -> str:
    """Return a clip's aspect ratio by its common name, else as a number."""
    ratio = clip.width / clip.height if clip.height else 0.0
    known = {"16:9": 16 / 9, "9:16": 9 / 16, "4:3": 4 / 3, "3:4": 3 / 4, "3:2": 1.5, "2:3": 2 / 3, "1:1": 1.0}
    return next((name for name, value in known.items() if abs(ratio / value - 1) < 0.02), f"{ratio:.2f}")


def _words(clips: Sequence[Clip]) -> tuple[tuple[str, int], ...]:
    """Return the words that occur in most captions, without stop words and numbers."""
    counts: Counter[str] = Counter()
    for clip in clips:
        counts.update(dict.fromkeys(clip.text.lower().translate(BETWEEN_WORDS).split(), 1))
    telling = (item for item in counts.most_common() if item[0][0].isalpha() and not STOP_WORDS.fullmatch(item[0]))
    return tuple(islice(telling, MOST_WORDS))

"""Statistics of a dataset for charts: durations, sizes, frame rates, motion, caption lengths, words. Plain data, fast.

Everything comes from the records and the last check (motion, tokens). Nothing is decoded; what was not checked is left
out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from workbench.clips.records import Clip, DatasetInfo, known_info, read_clips
from workbench.dataset_builder.checks.dataset_check import read_tokens, text_hash
from workbench.dataset_builder.checks.measures import read_measures
from workbench.display import inline_html
from workbench.display.quantities import counted

MOST_WORDS, BINS = 30, 20
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


@dataclass(frozen=True)
class Statistics:
    """A dataset in numbers.

    histograms: duration, motion, words and tokens, except those without data.
    sizes, aspects, fps: value -> number of clips, most frequent first.
    words, tags: (word, number of captions or clips with it).
    with_trigger: share of captions that contain the trigger word as written, 0 to 1; None without a trigger word.
    measured: share of videos whose motion is known, 0 to 1.
    token_limit: tokens of a caption that the checked model reads; 0 if unknown.
    """

    clips: int
    seconds: float
    images: int
    histograms: dict[str, Histogram]
    sizes: dict[str, int]
    aspects: dict[str, int]
    fps: dict[float, int]
    words: tuple[tuple[str, int], ...]
    tags: tuple[tuple[str, int], ...]
    with_trigger: float | None
    measured: float
    token_limit: int

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Title -> value -> number of clips, most frequent first, except those without data."""
        named = {
            "Sizes": self.sizes,
            "Aspect ratios": self.aspects,
            "Frames per second": {f"{fps:g}": count for fps, count in self.fps.items()},
            "Words in most captions": dict(self.words),
            "Tags": dict(self.tags),
        }
        return {title: counts for title, counts in named.items() if counts}

    @property
    def notes(self) -> list[str]:
        """The other numbers in words."""
        if not self.clips:
            return ["There are no clips yet: import some."]
        images = f", {self.images:,} of them images" if self.images else ""
        found = [f"{counted(self.clips, 'clip')}, {self.seconds:,.1f} s{images}."]
        if self.with_trigger is not None:
            found.append(f"{self.with_trigger:.0%} of the captions contain the trigger word as written.")
        if self.token_limit:
            found.append(f"The model reads {self.token_limit} tokens of a caption.")
        if "motion" not in self.histograms:
            found.append("Run a check to measure motion.")
        elif self.measured < 1:
            found.append(f"Motion is known for {self.measured:.0%} of the videos: check again.")
        return found

    @property
    def charts(self) -> list[str]:
        found = [inline_html.histogram(one.title, one.unit, one.edges, one.counts) for one in self.histograms.values()]
        return found + [inline_html.bars(title, counts) for title, counts in self.counts.items()]

    def _repr_html_(self) -> str:
        return inline_html.note(" ".join(self.notes)) + inline_html.row(self.charts)


def statistics(dataset: Path) -> Statistics:
    """Compute the statistics of a dataset."""
    info = known_info(dataset)
    return of_clips(
        read_clips(dataset),
        info,
        {sha256: found.motion for sha256, found in read_measures(dataset).items() if not found.error},
        *read_tokens(dataset, info),
    )


def of_clips(
    clips: Sequence[Clip],
    info: DatasetInfo,
    motion: dict[str, float],
    token_limit: int = 0,
    tokens: dict[str, int] | None = None,
) -> Statistics:
    """Compute statistics from records. motion: `Measures.motion` by sha256. tokens: counts by `text_hash`."""
    videos = [clip for clip in clips if not clip.is_image]
    captioned = [clip for clip in clips if clip.text.strip()]
    moving = [motion[clip.sha256] for clip in videos if clip.sha256 in motion]
    counted = [tokens.get(text_hash(clip)) for clip in captioned] if tokens else []
    found = (
        ("duration", _histogram("Duration", "seconds", [clip.seconds for clip in videos])),
        ("motion", _histogram("Motion", "levels within 1/8 s", moving)),
        ("words", _histogram("Words per caption", "words", [len(clip.text.split()) for clip in captioned], whole=True)),
        ("tokens", _histogram("Tokens per caption", "tokens", [c for c in counted if c is not None], whole=True)),
    )
    trigger = info.trigger_word.strip()
    near = [clip for clip in captioned if trigger.lower() in clip.text.lower()]  # a fast filter before the exact rule
    holding = sum(info.caption(clip) == clip.text.strip() for clip in near) if trigger else 0
    return Statistics(
        clips=len(clips),
        seconds=sum(clip.seconds for clip in videos),
        images=len(clips) - len(videos),
        histograms={name: histogram for name, histogram in found if histogram is not None},
        sizes=dict(Counter(f"{clip.width}x{clip.height}" for clip in clips).most_common()),
        aspects=dict(Counter(_aspect(clip) for clip in clips).most_common()),
        fps=dict(Counter(round(clip.fps, 3) for clip in videos).most_common()),
        words=_words(captioned),
        tags=tuple(Counter(tag for clip in clips for tag in clip.tags).most_common(MOST_WORDS)),
        with_trigger=holding / len(captioned) if trigger and captioned else None,
        measured=len(moving) / len(videos) if videos else 0.0,
        token_limit=token_limit,
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

"""A dataset in numbers, as pictures to be kept in the notebook: durations, motion, captions, sizes, words.

Not covered: the numbers themselves (dataset_builder.checks.statistics).
"""

from __future__ import annotations

import io
import math
import warnings
from typing import Any

from IPython.display import HTML

from workbench.dataset_builder.checks.statistics import Histogram, Statistics
from workbench.dataset_builder.dataset import Dataset
from workbench.notebook import rendering

COLUMNS, WIDTH, HEIGHT = 3, 3.4, 2.3  # inches of one picture
MOST = 10  # bars in a picture
INK, BAR = "#7a7a7a", rendering.SMOOTH  # grey is read on light and dark pages alike


def statistics_pictures(dataset: Dataset) -> HTML:
    """The pictures as one SVG and a sentence. Raises DataError, ConfigError where the dataset's files are broken."""
    numbers = dataset.statistics
    if not numbers.clips:
        return HTML(rendering.note("Import some clips first."))
    return HTML(rendering.note(_sentence(numbers)) + _svg(numbers))


def _sentence(numbers: Statistics) -> str:
    words = [f"{numbers.clips:,} clips, {numbers.seconds:,.1f} s."]
    if numbers.with_trigger is not None:
        words.append(f"{numbers.with_trigger:.0%} of the captions hold the trigger word as they are written.")
    if numbers.token_limit:
        words.append(f"The model reads {numbers.token_limit} tokens of a caption.")
    if "motion" not in numbers.histograms:
        words.append("Motion is known once the clips were checked.")
    return " ".join(words)


def _svg(numbers: Statistics) -> str:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    named = (
        ("Sizes", numbers.sizes), ("Proportions", numbers.aspects),
        ("Frames per second", {f"{fps:g}": count for fps, count in numbers.fps.items()}),
        ("Words that most captions hold", dict(numbers.words)), ("Tags", dict(numbers.tags)),
    )  # fmt: skip
    bars = [(title, counts) for title, counts in named if counts]
    count = len(numbers.histograms) + len(bars)
    rows = math.ceil(count / COLUMNS)
    # Text stays text: the page's own fonts know the letters of every script, of which matplotlib's know few.
    with mpl.rc_context({"svg.fonttype": "none", "text.color": INK, "axes.labelcolor": INK, "font.size": 8}):
        figure = Figure(figsize=(COLUMNS * WIDTH, rows * HEIGHT), layout="constrained")
        places = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
        for place, histogram in zip(places, numbers.histograms.values(), strict=False):
            _histogram(place, histogram)
        for place, (title, counts) in zip(places[len(numbers.histograms) :], bars, strict=False):
            _bars(place, title, counts)
        for place in places:
            place.tick_params(colors=INK, length=2)
            for name, spine in place.spines.items():
                spine.set_visible(name in ("left", "bottom"))
                spine.set_color(INK)
        for place in places[count:]:
            place.set_axis_off()
        file = io.StringIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
            figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    drawn = file.getvalue()
    return drawn[drawn.index("<svg") :]


def _histogram(place: Any, histogram: Histogram) -> None:
    widths = [high - low for low, high in zip(histogram.edges, histogram.edges[1:], strict=False)]
    place.bar(histogram.edges[:-1], histogram.counts, width=widths, align="edge", color=BAR, edgecolor="none")
    place.set_title(histogram.title)
    place.set_xlabel(histogram.unit)
    place.set_ylabel("clips")
    place.yaxis.get_major_locator().set_params(integer=True)


def _bars(place: Any, title: str, counts: dict[str, int]) -> None:
    """A bar a value, the most frequent on top."""
    shown = list(counts.items())[:MOST]
    rows = range(len(shown))
    place.barh(rows, [count for _, count in shown], color=BAR, height=0.7)
    # A caption may hold a dollar sign, which would be read as a formula.
    place.set_yticks(rows, [name[:24] for name, _ in shown], parse_math=False)
    place.set_ylim(max(len(shown), 4) - 0.5, -0.5)
    place.set_title(title if len(counts) <= MOST else f"{title} ({MOST} of {len(counts):,})")
    place.xaxis.get_major_locator().set_params(integer=True)

"""Compare runs side by side, from their snapshots: settings, results, curves and previews of the same prompts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import PrivateAttr

from workbench.display import elements
from workbench.display.inline_html import EMBED_LIMIT, framed
from workbench.errors import ConfigError
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, snapshot
from workbench.runs.view import answered, compared_charts, drawn
from workbench.settings import specs, value_text
from workbench.snapshots import HIDDEN, Snapshot
from workbench.workspace import finite

MOST = 8  # more runs cannot be told apart by color
OF_THE_MOMENT = ("load", "stops_at")  # facts that are not results
HEIGHT = 720  # of the frame in a notebook, pixels


class Comparison(Snapshot):
    """Runs side by side."""

    names: tuple[str, ...]
    """Names of the runs."""

    results: dict[str, tuple[str, ...]]
    """Result -> its value for each run."""

    settings: dict[str, tuple[str, ...]]
    """Setting that differs -> its value for each run."""

    previews: Annotated[tuple[dict[str, Any], ...], HIDDEN] = ()
    """For each prompt: prompt, videos (the base model's, then the newest of each run; null if there is none)."""

    _runs: tuple[RunSnapshot, ...] = PrivateAttr(())  # for the curves in a notebook

    def lines(self) -> Iterator[tuple[str, str]]:
        yield from ()

    def table(self) -> tuple[Sequence[str], list[Sequence[str]]]:
        return ("", *self.names), [(row, *texts) for row, texts in {**self.results, **self.settings}.items()]

    def _repr_html_(self) -> str:
        """Show the comparison in a frame, with every video that is small enough to embed."""
        answer, files = self.model_dump(), dict[str, Path]()
        for one in answer["previews"]:
            paths = [Path(video) if video else None for video in one["videos"]]
            one["videos"] = [
                str(path) if path and path.is_file() and path.stat().st_size <= EMBED_LIMIT else None for path in paths
            ]
            files |= {name: Path(name) for name in one["videos"] if name}
        charts = drawn(compared_charts([(one.name, one.curves) for one in self._runs]))
        asked = [
            answered("progress/compared", charts, names=self.names),
            answered("runs/compare", answer, names=self.names),
        ]
        title = f"Runs {', '.join(self.names)}"
        shown = elements.exported(title, "wb-run-comparison", {"names": self.names}, files, finite(dict(asked)))
        return framed(shown, title, HEIGHT)


def compare(runs: Sequence[Run]) -> Comparison:
    """Compare runs. Raises ConfigError for more than MOST of them."""
    if len(runs) > MOST:
        raise ConfigError(f"{len(runs)} runs are chosen, but at most {MOST} can be compared: choose fewer")
    seen = tuple(map(snapshot, runs))
    results = [_results(one) for one in seen]
    # Take the order of the run with the most results; the order of results never differs between runs.
    labels = max(([*result] for result in results), key=len, default=[])
    labels += [label for result in results for label in result if label not in labels]
    settings = dict[str, tuple[str, ...]]()
    for spec in specs(TrainSettings):
        values = [value_text(getattr(one.settings, spec.name)) if one.settings else "?" for one in seen]
        if len(set(values) - {"?"}) > 1:
            settings[spec.title] = tuple(values)
    made = Comparison(
        names=tuple(one.name for one in seen),
        results={label: tuple(result.get(label, "") for result in results) for label in dict.fromkeys(labels)},
        settings=settings,
        previews=tuple(_previews(seen)),
    )
    made._runs = seen
    return made


def _previews(runs: Sequence[RunSnapshot]) -> Iterator[dict[str, Any]]:
    """Yield each prompt that at least two runs share, or all those of a single run, with the videos to compare."""
    newest = [{preview.prompt: preview for preview in one.previews.previews if preview.step} for one in runs]
    base = {preview.prompt: preview for one in runs for preview in one.previews.previews if not preview.step}
    for prompt in dict.fromkeys(prompt for found in newest for prompt in found):
        if sum(prompt in found for found in newest) >= min(2, len(runs)):
            videos = [base.get(prompt), *(found.get(prompt) for found in newest)]
            yield {"prompt": prompt, "videos": [one and str(one.video) for one in videos]}


def _results(seen: RunSnapshot) -> dict[str, str]:
    found = {"state": seen.headline, "diagnosis": seen.diagnosis.kind if seen.diagnosis else ""}
    found |= {"steps": str(seen.step)}
    if seen.best_step is not None:
        found["best checkpoint"] = f"step {seen.best_step}"
    return found | {fact.label: fact.text for fact in seen.facts if fact.key not in OF_THE_MOMENT}

"""Compare runs side by side, from their snapshots: settings, results, curves and previews of the same prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.display import elements
from workbench.display.inline_html import EMBED_LIMIT, framed
from workbench.errors import ConfigError
from workbench.runs.previews import Preview
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, snapshot
from workbench.runs.view import answered, compared_charts, drawn
from workbench.settings import specs, value_text
from workbench.workspace import finite

MOST = 8  # more runs cannot be told apart by color
OF_THE_MOMENT = ("load", "stops_at")  # facts that are not results
HEIGHT = 720  # of the frame in a notebook, pixels


@dataclass(frozen=True)
class Comparison:
    """Runs side by side. Tables are rows of (label, one text per run); "" if a run lacks the value."""

    runs: tuple[RunSnapshot, ...]

    @property
    def names(self) -> list[str]:
        return [one.name for one in self.runs]

    @property
    def settings(self) -> list[tuple[str, list[str]]]:
        """The settings that differ."""
        found = []
        for spec in specs(TrainSettings):
            values = [value_text(getattr(one.settings, spec.name)) if one.settings else "?" for one in self.runs]
            if len(set(values) - {"?"}) > 1:
                found.append((spec.title, values))
        return found

    @property
    def results(self) -> list[tuple[str, list[str]]]:
        results = [_results(one) for one in self.runs]
        # Take the order of the run with the most results; the order of results never differs between runs.
        names = max(([*result] for result in results), key=len, default=[])
        names += [name for result in results for name in result if name not in names]
        return [(name, [result.get(name, "") for result in results]) for name in dict.fromkeys(names)]

    @property
    def previews(self) -> list[tuple[str, list[Preview | None]]]:
        """(prompt, [the base model's preview, each run's newest]) for prompts that at least two runs share.

        With a single run, for all of its prompts.
        """
        newest = [{preview.prompt: preview for preview in one.previews.previews if preview.step} for one in self.runs]
        every = [preview for one in self.runs for preview in one.previews.previews]
        base = {preview.prompt: preview for preview in every if not preview.step}
        prompts = dict.fromkeys(prompt for found in newest for prompt in found)
        least = min(2, len(self.runs))
        return [
            (prompt, [base.get(prompt), *(found.get(prompt) for found in newest)])
            for prompt in prompts
            if sum(prompt in found for found in newest) >= least
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the answer of the operation `runs/compare`."""
        return {
            "names": self.names,
            "results": {row: tuple(texts) for row, texts in self.results},
            "settings": {row: tuple(texts) for row, texts in self.settings},
            "previews": tuple(
                {"prompt": prompt, "videos": [one and str(one.video) for one in videos]}
                for prompt, videos in self.previews
            ),
        }

    def _repr_html_(self) -> str:
        """Show the comparison in a frame, with every video that is small enough to embed."""
        answer, files = self.to_json(), dict[str, Path]()
        for one in answer["previews"]:
            paths = [Path(video) if video else None for video in one["videos"]]
            one["videos"] = [
                str(path) if path and path.is_file() and path.stat().st_size <= EMBED_LIMIT else None for path in paths
            ]
            files |= {name: Path(name) for name in one["videos"] if name}
        charts = drawn(compared_charts([(one.name, one.curves) for one in self.runs]))
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
    return Comparison(tuple(map(snapshot, runs)))


def _results(seen: RunSnapshot) -> dict[str, str]:
    found = {"state": seen.headline, "diagnosis": seen.diagnosis.kind if seen.diagnosis else ""}
    found |= {"steps": str(seen.step)}
    if seen.best_step is not None:
        found["best checkpoint"] = f"step {seen.best_step}"
    return found | {fact.label: fact.text for fact in seen.facts if fact.key not in OF_THE_MOMENT}

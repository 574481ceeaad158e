"""Sweeps: one run for every combination of values, named after them.

They are ordinary runs: they share encoded clips and captions in the cache, and once started they wait for the device in
order. `analysis.comparison` compares them.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import ConfigError
from workbench.families import settled_model
from workbench.runs.checks import check
from workbench.runs.run import SLIDER, Run
from workbench.runs.settings import TrainSettings
from workbench.settings import Spec, from_text, parse, specs
from workbench.workspace import Workspace
from workbench.workspace.folders import MOST_GROUP

MOST = 100


def created(
    workspace: Workspace, settings: TrainSettings, values: Mapping[str, Sequence[Any]], name: str | None = None
) -> list[Run]:
    """Create one run, or one for every combination of values, in that order, without starting them.

    If both experts of a model are to be trained, each gets its own run. The runs of a sweep form a group, named after
    what differs. All runs are checked before the first is written. Raises ConfigError, DataError, CannotWrite.
    """
    titles = {spec.name: spec.title.lower() for spec in specs(TrainSettings)}
    tried = ", ".join(titles[one] for one in values)
    experts = [expert.name for expert in settled_model(settings.model).model.experts]
    if len(experts) > 1 and settings.expert == "both":
        values = {"expert": experts, **values}
    if not values:
        return [Run.create(workspace, settings, name)]
    prepared = combinations(settings, values)
    for _, changed in prepared:
        check(workspace, changed)
    stem = name or settings.dataset or SLIDER
    runs = [Run.create(workspace, changed, f"{stem} {words}") for words, changed in prepared]
    if tried and len(runs) > 1:
        for run in runs:
            run.set_group(f"{stem}: {tried}"[:MOST_GROUP])
    return runs


def combinations(settings: TrainSettings, values: Mapping[str, Sequence[Any]]) -> list[tuple[str, TrainSettings]]:
    """Return, for every combination, its values in words and its settings. Raises ConfigError."""
    for name, several in values.items():
        if len(several) != len({json.dumps(value) for value in several}) or not several:
            raise ConfigError(f"{name} has {list(several)} to try: list at least one value, and each only once")
    if (count := math.prod(map(len, values.values()))) > MOST:
        raise ConfigError(f"these values make {count} runs, but a sweep has at most {MOST}: list fewer values")
    found = []
    for chosen in itertools.product(*values.values()):
        pairs = dict(zip(values, chosen, strict=True))
        words = " ".join(f"{name} {_word(value)}" for name, value in pairs.items())
        found.append((words, parse(TrainSettings, {**settings.model_dump(mode="json"), **pairs})))
    return found


def parse_values(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Parse values by setting, as people write them: "learning_rate=1e-4,3e-4", 'targets="to_q,to_k",attention'.

    A setting can be named by its key or its label, as in "Learning rate=1e-4". If its value is a list, its parts are
    separated by ";". Raises ConfigError.
    """
    known = {spec.name: spec for spec in specs(TrainSettings)}
    labels = {spec.title.casefold(): spec.name for spec in known.values()}
    values: dict[str, list[Any]] = {}
    for text in texts:
        name, sign, listed = text.partition("=")
        name = labels.get(name.strip().casefold()) or name.strip().replace("-", "_")
        if not sign or not listed.strip():
            raise ConfigError(f"{text[:80]!r} is not a list of values: write SETTING=VALUE,VALUE, as in rank=8,16")
        if name not in known:
            parse(TrainSettings, {name: None})  # raises, and suggests the setting that may have been meant
        if name in values:
            raise ConfigError(f"{name} is listed twice: put all of its values after one {name}=")
        values[name] = [_value(known[name], part) for part in next(csv.reader([listed], skipinitialspace=True))]
    return values


def _value(spec: Spec, text: str) -> Any:
    """Convert text to a JSON value; text that does not fit is left for the settings to refuse."""
    text = text.strip()
    if spec.optional and text.lower() in ("", "none"):
        return None
    if spec.kind == "texts":
        return [part.strip() for part in text.split(";") if part.strip()]
    if spec.kind == "switch":
        return {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}.get(
            text.lower(), text
        )
    return from_text(spec, text)


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)

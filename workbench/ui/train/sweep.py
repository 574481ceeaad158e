"""The values to try: settings by their labels, each with several values; the browser's half is assets/sweep.js."""

from __future__ import annotations

from typing import Any

import gradio as gr
from pydantic import BaseModel, ConfigDict, Field

from workbench.choices import choices_of
from workbench.errors import ConfigError
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import parse_values, problem_of, runs_of
from workbench.settings import Spec, specs, value_text
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.ui.core.widgets import component
from workbench.workspace import Workspace

SPECS = specs(TrainSettings)
FORM = "train"  # under which name the browser keeps what the form of a new run holds


class EverySetting(BaseModel):
    """A query for all settings of a run."""

    model_config = ConfigDict(extra="forbid")


class SweepTexts(BaseModel):
    """SETTING=VALUE,VALUE texts, as `parse_values` takes them."""

    model_config = ConfigDict(extra="forbid")

    texts: list[str] = Field(max_length=200)


def sweep_fields(workspace: Workspace) -> gr.HTML:
    """The component. Its value is a list of SETTING=VALUE,VALUE texts."""
    return component(
        "sweep-values",
        [],
        f"const FORM = 'workbench-form-{FORM}';\n{render.script('sweep')}",
        functions=[
            answering("sweep_settings", EverySetting, lambda _: {"settings": [_data(one, workspace) for one in SPECS]}),
            answering("sweep_check", SweepTexts, lambda given: checked(given.texts)),
        ],
    )


def checked(texts: list[str]) -> dict[str, Any]:
    """What is wrong with each text, "" for nothing, and how many runs they make; 0 where something is wrong."""
    problems = [problem_of(text) for text in texts]
    try:
        runs = 0 if any(problems) else runs_of(parse_values(texts))
    except ConfigError as error:
        problems, runs = [*problems[:-1], str(error)], 0
    return {"problems": problems, "runs": runs}


def _data(spec: Spec, workspace: Workspace) -> dict[str, Any]:
    """A setting as the browser needs it. choices: (value as it is written, title) where values are ticked"""
    if spec.kind == "switch":
        choices = [("on", "on"), ("off", "off")]
    elif spec.kind == "texts":
        choices = []
    else:
        choices = [(one.value, one.title) for one in choices_of(spec, workspace)]
    return {
        "name": spec.name,
        "title": spec.title,
        "section": spec.section,
        "help": spec.help,
        "rule": "values of a list with ; between its parts" if spec.kind == "texts" else spec.rule,
        "default": value_text(spec.default),
        "also": spec.also,
        "choices": choices,
    }

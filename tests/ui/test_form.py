"""Every setting goes into its component and comes back; what is wrong comes back as the settings' own sentence."""

from __future__ import annotations

import asyncio
from typing import Any

import gradio as gr
import pytest

from workbench.errors import ConfigError, DataError, DeviceBusy, WorkbenchError
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, Spec, specs
from workbench.ui.core.form import Form, from_component, sentences, to_component
from workbench.ui.core.model_part import hints
from workbench.ui.core.problems import described, refused
from workbench.workspace import Workspace

CLASSES = (TrainSettings, SampleSettings)
EVERY = [pytest.param(cls, spec, id=f"{cls.__name__}.{spec.name}") for cls in CLASSES for spec in specs(cls)]


def form_of(cls: type[Settings], workspace: Workspace) -> Form[Any]:
    async def build() -> Form[Any]:
        with gr.Blocks():
            return Form(cls, workspace, cls())

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


def other_value(spec: Spec) -> Any:
    """A legal value that is not the default."""
    if spec.kind == "switch":
        return not spec.default
    if spec.kind == "choice":
        return next(choice for choice in spec.choices if choice != spec.default)
    if spec.kind in ("integer", "number"):
        low = spec.low if spec.low is not None else 0
        high = spec.high if spec.high is not None else 100
        return int((low + high) // 2) if spec.kind == "integer" else (low + high) / 2
    return ["one", "two, with comma"] if spec.kind == "texts" else "some text"


@pytest.mark.parametrize(("cls", "spec"), EVERY)
def test_a_value_comes_back_as_it_went_in(cls: type[Settings], spec: Spec) -> None:
    defaults = cls().model_dump(mode="json")
    for value in (defaults[spec.name], other_value(spec)):
        assert from_component(spec, to_component(spec, value)) == value


@pytest.mark.parametrize("cls", CLASSES)
def test_the_fields_of_a_fresh_form_are_the_defaults(cls: type[Settings], workspace: Workspace) -> None:
    form = form_of(cls, workspace)
    assert form.parse([component.value for component in form.inputs]) == cls()


@pytest.mark.parametrize("cls", CLASSES)
def test_every_field_explains_itself(cls: type[Settings], workspace: Workspace) -> None:
    for spec, component in zip(specs(cls), form_of(cls, workspace).inputs, strict=True):
        if not isinstance(component, gr.HTML):  # rows of LoRAs explain themselves in the browser
            assert component.info == spec.help
            assert component.label.startswith(spec.title)
        assert not spec.unit or spec.unit in component.label.lower()


def test_what_the_browser_makes_of_numbers_is_understood(workspace: Workspace) -> None:
    form = form_of(TrainSettings, workspace)
    values = {**form.read([component.value for component in form.inputs]), "steps": 40.0, "learning_rate": 1}
    found = form.parse([values[spec.name] for spec in form.specs])
    assert (found.steps, found.learning_rate) == (40, 1.0)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("steps", 2.7, "steps is 2.7"),
        ("steps", None, "steps is None"),
        ("rank", 0, "1 to 1024"),
        ("model", "", "model"),
    ],
)
def test_a_broken_rule_is_named_with_its_remedy(workspace: Workspace, name: str, value: Any, sentence: str) -> None:
    from workbench.runs.checks import check

    form = form_of(TrainSettings, workspace)
    values = [
        value if spec.name == name else component.value for spec, component in zip(form.specs, form.inputs, strict=True)
    ]
    with pytest.raises(ConfigError) as caught:
        check(workspace, form.parse(values).changed(dataset="cats"))
    assert sentence in sentences(caught.value, TrainSettings)


def test_sentences_are_text_not_html() -> None:
    assert "<script>" not in sentences(ConfigError("prompt is <script>"), SampleSettings)


def test_a_problem_names_its_field_whatever_the_kind_of_error() -> None:
    shown = refused(described(DataError("no clips", {"dataset": "dataset cats has no clip"}), TrainSettings))
    assert shown["problems"] == [{"name": "dataset", "text": "Dataset: dataset cats has no clip", "lasts": False}]
    assert described(DeviceBusy("the GPU is held"), TrainSettings) == [{"name": "", "text": "the GPU is held"}]


def test_what_a_check_refuses_goes_when_it_does_not_refuse_it_any_more(workspace: Workspace) -> None:
    now: list[WorkbenchError] = [DataError("no clips", {"dataset": "dataset cats has no clip"})]

    def check(settings: TrainSettings) -> None:
        for error in now:
            raise error

    async def build() -> Form[TrainSettings]:
        with gr.Blocks():
            form = Form(TrainSettings, workspace, TrainSettings())
            form.check_again(check)
            return form

    form = asyncio.run(build())
    values = [component.value for component in form.inputs]
    broken = [-1 if spec.name == "rank" else value for spec, value in zip(form.specs, values, strict=True)]
    shown = refused(described(now[0], TrainSettings), form._refused_now(values) or ())
    assert [one["lasts"] for one in shown["problems"]] == [True]
    assert form._checked_again(shown, *values) == shown
    now[:] = [ConfigError("the model is away")]
    assert form._checked_again(shown, *values)["problems"] == []
    assert form._checked_again(shown, *broken) == gr.skip(), "the check cannot be asked"
    other = refused(
        described(ConfigError("there is a run of that name"), TrainSettings), form._refused_now(values) or ()
    )
    assert form._checked_again(other, *values) == other, "the check does not know of it"


def test_writing_some_settings_leaves_the_others(workspace: Workspace) -> None:
    form = form_of(SampleSettings, workspace)
    updates = dict(
        zip([spec.name for spec in form.specs], form.write({"prompt": "a ring", "loras": ["demo"]}), strict=True)
    )
    assert updates["prompt"]["value"] == "a ring"
    assert updates["loras"]["value"] == ["demo"]
    assert "value" not in updates["seed"]


def test_empty_fields_say_what_the_model_makes_of_them() -> None:
    empty = [spec for spec in specs(SampleSettings) if spec.optional]
    assert any("9" in hint["placeholder"] for hint in hints(empty, "tiny-cogvideox"))
    assert all("placeholder" not in hint for hint in hints(empty, "no such model"))

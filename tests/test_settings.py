"""Settings: one declaration each, strict, and every refusal names setting, value, rule and remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import ValidationError

from workbench.errors import ConfigError
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings
from workbench.settings import Settings, field, parse, specs


class Toy(Settings):
    count: int = field(3, title="Count", section="One", low=1, high=10, unit="clips")
    """How many."""

    rate: float = field(0.5, title="Rate", section="One", low=0.0, high=1.0)
    """How fast."""

    size: int | None = field(None, title="Size", section="Two", low=8)
    """How large."""

    loud: bool = field(False, title="Loud", section="Two", advanced=True)
    """How loud."""

    kind: Literal["dog", "cat"] = field("cat", title="Kind", section="Two")
    """Which."""

    words: tuple[str, ...] = field((), title="Words", section="Two", lines=3)
    """What."""

    path: str = field("", title="Path", section="Two", source="datasets")
    """Where."""


def test_every_setting_is_fully_declared_and_defaults_survive_a_file(tmp_path: Path) -> None:
    for cls in (TrainSettings, SampleSettings):
        for spec in specs(cls):
            assert spec.title, spec.name
            assert spec.help.rstrip().endswith((".", "0.8")), f"the help of {spec.name} is a sentence"
            assert spec.section, spec.name
            assert spec.kind != "choice" or spec.default in spec.choices, spec.name
            assert spec.kind not in ("integer", "number") or None not in (spec.low, spec.high), spec.name
        cls().save(tmp_path / "config.json")
        assert cls.load(tmp_path / "config.json") == cls()


def test_specs_tell_all_there_is_to_draw_a_form() -> None:
    by_name = {spec.name: spec for spec in specs(Toy)}
    assert [spec.kind for spec in by_name.values()] == [
        "integer", "number", "integer", "switch", "choice", "texts", "text",
    ]  # fmt: skip
    assert by_name["count"].rule == "1 to 10 clips"
    assert by_name["size"].optional
    assert by_name["size"].rule == "8 or more"
    assert by_name["kind"].choices == ("dog", "cat")
    assert by_name["kind"].rule == "dog or cat"
    assert by_name["loud"].advanced
    assert by_name["words"].rows == 3
    assert by_name["path"].source == "datasets"


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"count": 11}, "count is 11, must be 1 to 10 clips: the default is 3"),
        ({"count": "7"}, 'count is "7", must be 1 to 10 clips: the default is 3'),
        ({"rate": -1}, "rate is -1, must be 0 to 1: the default is 0.5"),
        ({"size": 4}, "size is 4, must be 8 or more"),
        ({"loud": 1}, "loud is 1, must be true or false: the default is False"),
        ({"kind": "cow"}, 'kind is "cow", must be dog or cat: the default is cat'),
        ({"words": "one"}, 'words is "one", must be a list of texts: the default is ()'),
        ({"coutn": 3}, "coutn is not a setting: did you mean count?"),
        ({"xyzzy": 3}, "xyzzy is not a setting: remove it"),
    ],
)
def test_a_refusal_names_setting_value_rule_and_remedy(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Toy, values)
    assert str(caught.value) == sentence
    assert caught.value.problems == {next(iter(values)): sentence}


def test_every_problem_is_told_at_once() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Toy, {"count": 0, "rate": 2, "kind": "cow"})
    assert set(caught.value.problems) == {"count", "rate", "kind"}


def test_a_number_is_what_json_can_hold() -> None:
    for value in (float("nan"), object()):
        with pytest.raises(ConfigError):
            parse(Toy, {"rate": value})
    assert parse(Toy, {"rate": 1}).rate == 1.0, "a whole number is fine where any is"


def test_settings_do_not_change_but_have_checked_copies() -> None:
    with pytest.raises(ValidationError):
        Toy().count = 4  # type: ignore[misc]
    assert Toy().changed(count=4, words=["a"]) == Toy(count=4, words=("a",))
    with pytest.raises(ConfigError, match="count is 40"):
        Toy().changed(count=40)


def test_a_file_that_is_no_object_is_refused(tmp_path: Path) -> None:
    for text in ("[]", "null"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(ConfigError, match="must hold a JSON object"):
            Toy.load(tmp_path / "config.json")


def test_the_name_of_another_trainer_is_found_and_answered_with_ours() -> None:
    also = {spec.name: spec.also.casefold() for spec in specs(TrainSettings)}
    assert set(TrainSettings.ALSO) <= also.keys()
    for search, setting in (("vram", "gradient_checkpointing"), ("wandb", "tracker"), ("resolution", "width")):
        assert search in also[setting]
    for theirs, ours in (("network_dim", "rank"), ("max_train_steps", "steps"), ("mixed_precision", "precision")):
        with pytest.raises(ConfigError, match=f"{theirs} is not a setting: did you mean {ours}"):
            parse(TrainSettings, {theirs: 8})

"""Edits of many captions: right words, one entry of the history each, nothing else touched."""

from __future__ import annotations

import pytest

from workbench.dataset_builder import Dataset
from workbench.dataset_builder.captions import editing
from workbench.dataset_builder.captions.editing import Rewritten, Search
from workbench.errors import ConfigError


def texts(dataset: Dataset) -> list[str]:
    return [clip.text for clip in dataset.clips]


def give(dataset: Dataset, *captions: str) -> None:
    for clip, text in zip(dataset.clips, captions, strict=False):
        dataset.set_caption(clip.file_name, text, by="file")


def test_an_edit_is_one_entry_of_the_history_and_one_undo(dataset: Dataset) -> None:
    before, entries = dataset.clips, len(dataset.history)
    assert editing.replace(dataset.folder, Search("SQUARE moving"), "box going") == 6
    assert texts(dataset)[0] == "a red box going right, 0"
    assert len(dataset.history) == entries + 1
    assert (dataset.history[-1].what, dataset.history[-1].clips) == (
        "'SQUARE moving' became 'box going' in captions",
        6,
    )
    assert {clip.caption_by for clip in dataset.clips} == {"file"}
    dataset.undo()
    assert dataset.clips == before
    assert editing.replace(dataset.folder, Search("circle"), "box") == 0
    assert len(dataset.history) == entries + 2


@pytest.mark.parametrize(
    ("search", "replacement", "result"),
    [
        (Search("cat"), "dog", "A dog, a dogalog and a dog. (dog)"),
        (Search("cat", match_case=True), "dog", "A Cat, a dogalog and a dog. (dog)"),
        (Search("(c)at", expression=True), r"\1ub", "A Cub, a cubalog and a cub. (cub)"),
        (Search("cat|and", expression=True, whole_word=True), "x", "A x, a catalog x a x. (x)"),
    ],
)
def test_find_and_replace(dataset: Dataset, search: Search, replacement: str, result: str) -> None:
    clip = dataset.clips[2]
    dataset.set_caption(clip.file_name, "A Cat, a catalog and a cat. (cat)")
    before = dataset.clip(clip.file_name)
    [seen] = editing.preview_replace(dataset.folder, search, replacement, [clip.id])
    assert seen == Rewritten(clip.name, before.text, result)
    assert dataset.clip(clip.file_name) == before
    assert editing.replace(dataset.folder, search, replacement, [clip.id]) == 1
    assert dataset.clip(clip.file_name).text == result
    assert texts(dataset)[0] == "a red square moving right, 0"


@pytest.mark.parametrize(
    ("search", "replacement", "sentence"),
    [
        (Search(""), "x", "nothing to find: give a text"),
        (Search("(a", expression=True), "x", r"'\(a' cannot be used as a regular expression \(missing \)"),
        (Search("a", expression=True), r"\7", r"expression \(invalid group reference\): fix or simplify it"),
        (Search("(a+)+$", expression=True), "x", r"expression \(it takes too long\): fix"),
    ],
)
def test_a_search_that_cannot_be_used_says_why(
    dataset: Dataset, search: Search, replacement: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editing, "PATTERN_SECONDS", 0.2)
    give(dataset, "a" * 3000 + "b")
    before = dataset.clips
    with pytest.raises(ConfigError, match=sentence):
        editing.replace(dataset.folder, search, replacement)
    assert dataset.clips == before


def test_prefix_and_suffix(dataset: Dataset) -> None:
    give(dataset, "one", "in short: two, end", "")
    names = [clip.id for clip in dataset.clips[:3]]
    assert editing.add_prefix(dataset.folder, " in short: ", names) == 2
    assert texts(dataset)[:3] == ["in short: one", "in short: two, end", "in short:"]
    assert [clip.caption_by for clip in dataset.clips[:3]] == ["file", "file", "hand"]
    give(dataset, "one", "two, end", "")
    assert editing.add_suffix(dataset.folder, ", end", names) == 2
    assert texts(dataset)[:3] == ["one, end", "two, end", "end"]
    assert editing.add_suffix(dataset.folder, "of all", names) == 3
    assert texts(dataset)[:3] == ["one, end of all", "two, end of all", "end of all"]
    with pytest.raises(ConfigError, match="the prefix is empty: give a text"):
        editing.add_prefix(dataset.folder, "  ")
    with pytest.raises(ConfigError, match="there is no clip 'gone' in this dataset"):
        editing.add_prefix(dataset.folder, "x", ["gone"])


def test_the_trigger_word_goes_in_and_out(dataset: Dataset) -> None:
    give(dataset, "ZWX running", "a zwxy, sitting", "a dog, zwx, on grass", "zwx, a dog", "seen with zwx, asleep", "")
    assert editing.add_trigger_word(dataset.folder) == 2
    assert texts(dataset)[1] == "zwx a zwxy, sitting"
    assert texts(dataset)[5] == "zwx"
    assert [dataset.captions[clip.file_name] for clip in dataset.clips] == texts(dataset)
    assert editing.remove_trigger_word(dataset.folder) == 6
    assert texts(dataset) == ["running", "a zwxy, sitting", "a dog, on grass", "a dog", "seen with, asleep", ""]
    dataset.set_trigger_word("")
    with pytest.raises(ConfigError, match="no trigger word: set one first"):
        editing.add_trigger_word(dataset.folder)


def test_tags_are_counted_and_removed(dataset: Dataset) -> None:
    give(dataset, "Dog, grass,  sun", "dog,dog , rain", "a dog", "", "grass", "it's a well-lit, dog's")
    assert editing.tag_counts(dataset.clips) == {
        "Dog": 2, "grass": 2, "sun": 1, "rain": 1, "a dog": 1, "it's a well-lit": 1, "dog's": 1,
    }  # fmt: skip
    assert editing.remove_tag(dataset.folder, " dog ") == 2
    assert texts(dataset) == ["grass, sun", "rain", "a dog", "", "grass", "it's a well-lit, dog's"]

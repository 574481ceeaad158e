"""Every change can be taken back, and done again; what was done since is never lost by it."""

from __future__ import annotations

import pytest

from workbench.dataset_builder import Dataset, history
from workbench.errors import ConfigError


def files(dataset: Dataset) -> set[str]:
    return {path.name for path in (dataset.folder / "clips").iterdir()}


def test_a_caption_is_undone_and_done_again(dataset: Dataset) -> None:
    clip = dataset.clips[1]
    dataset.set_caption(clip.file_name, "new")
    dataset.undo()
    assert dataset.clip(clip.file_name) == clip
    dataset.redo()
    assert dataset.clip(clip.file_name).text == "new"
    assert dataset.clip(clip.file_name).caption_by == "hand"
    dataset.undo()
    assert dataset.clip(clip.file_name) == clip
    assert [entry.kind for entry in dataset.history] == ["note", "change", "undo", "redo", "undo"]


def test_undoing_goes_back_step_by_step(dataset: Dataset) -> None:
    before = dataset.clips
    dataset.set_caption(before[0].file_name, "first")
    dataset.remove(before[1].file_name, before[2].file_name)
    dataset.set_trigger_word("qqq")
    for _ in range(3):
        dataset.undo()
    assert dataset.clips == before
    assert dataset.info.trigger_word == "zwx"
    assert files(dataset) == {clip.file_name.split("/")[1] for clip in before}
    assert dataset.removed == []
    with pytest.raises(ConfigError, match="nothing to undo"):
        dataset.undo()


def test_a_later_change_is_not_overwritten(dataset: Dataset) -> None:
    clip = dataset.clips[0]
    dataset.set_caption(clip.file_name, "one")
    first = dataset.history[-1].number
    dataset.set_caption(clip.file_name, "two")
    with pytest.raises(ConfigError, match=r"0\.mp4 was changed again since: undo the later change first"):
        dataset.undo(first)
    dataset.undo()
    dataset.undo(first)
    assert dataset.clip(clip.file_name) == clip
    with pytest.raises(ConfigError, match="was undone already"):
        dataset.undo(first)


def test_after_a_new_change_nothing_is_left_to_redo(dataset: Dataset) -> None:
    first, second, *_ = dataset.clips
    dataset.set_caption(first.file_name, "one")
    dataset.undo()
    assert [entry.what for entry in dataset.redoable] == [f"caption of {first.name}"]
    dataset.set_caption(second.file_name, "two")
    assert dataset.redoable == []
    with pytest.raises(ConfigError, match="there is nothing to redo"):
        dataset.redo()
    dataset.undo()
    dataset.redo()
    assert dataset.clip(second.file_name).text == "two"


def test_a_clip_is_followed_through_cuts_and_undoing(dataset: Dataset) -> None:
    clip = dataset.clips[1]
    trimmed = dataset.trim(clip.file_name, 0, 1)
    parts = dataset.split(trimmed.file_name, [(0, 0.5), (0.5, 1)])
    assert dataset.successor(clip.file_name) == dataset.successor(trimmed.file_name) == parts[0]
    dataset.undo()
    assert [dataset.successor(part.file_name) for part in parts] == [trimmed, trimmed]
    dataset.undo()
    assert dataset.successor(parts[1].file_name) == clip
    dataset.redo()
    assert dataset.successor(clip.file_name) == trimmed
    dataset.remove(trimmed.file_name)
    assert dataset.successor(clip.file_name) is None


def test_a_change_that_does_not_fit_changes_nothing(dataset: Dataset) -> None:
    before, lines = dataset.clips, len(dataset.history)
    with pytest.raises(ConfigError, match="1 clip of this change left the dataset"):
        history.change(dataset.folder, "x", {"clips/gone.mp4": ()})
    with pytest.raises(ConfigError, match="two records would name the same file"):
        history.change(dataset.folder, "x", added=[before[0]])
    assert (dataset.clips, len(dataset.history)) == (before, lines)


def test_the_content_hash_follows_what_a_model_could_learn(dataset: Dataset) -> None:
    first = dataset.content_hash
    dataset.set_caption(dataset.clips[0].file_name, "else")
    second = dataset.content_hash
    assert second != first
    dataset.undo()
    assert dataset.content_hash == first
    dataset.remove(dataset.clips[0].file_name)
    assert dataset.content_hash not in (first, second)

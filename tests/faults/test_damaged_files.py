"""Any byte of any file may be wrong: every list goes on, what is damaged is named, and nothing is lost."""

from __future__ import annotations

import itertools
import random
import re
import shutil
import struct
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from tests.driving import create, session
from tests.every_file import Readers, damaged, damages, files, fill
from tests.shell import Shell
from tests.written_run import write_run
from workbench.clips.records import file_sha256, write_clips
from workbench.compare.grid import Grid
from workbench.dataset_builder import Dataset
from workbench.errors import CannotWrite, ConfigError
from workbench.families.model import Model
from workbench.fit.warnings import run_warnings
from workbench.overview import OverviewReader
from workbench.runs import checkpoints
from workbench.runs.data import load_data
from workbench.runs.settings import TrainSettings
from workbench.trainer.loop import train_step
from workbench.workspace import Workspace, from_json, write_json

pytestmark = pytest.mark.long

BAD = b'{"file_name": "clips/\xff.mp4", "text": "caf\xe9"}'

FOUND = (  # once: values of other types where a text or a number belongs
    (r"datasets/bad/sources\.jsonl", b'"source":"', b'"source":1.5,"was":"'),
    (r"grids/.*/requests\.json", b'": "2', b'": [], "was": "2'),
    (r"runs/bad/\.summary\.json", b'"step"', b'"stop"'),
)


def test_one_damage_of_each_kind_of_file_costs_that_file_alone(workspace: Workspace) -> None:
    """benchmarks/damaged_files.py tries all of them."""
    fill(workspace)
    readers, failures = Readers(workspace, page=False), list[str]()
    assert list(readers.failures()) == []
    for kind, path in files(workspace).items():
        chance = random.Random(kind)
        name, damage = chance.choice(list(damages(path.read_bytes(), chance)))
        with damaged(path, damage):
            failures += [f"{kind}: {name}: {one}" for one in readers.failures(kind, name)]
    for kind, found, put in FOUND:
        (path,) = [path for name, path in files(workspace).items() if re.fullmatch(kind, name)]
        assert found in path.read_bytes()
        with damaged(path, partial(_replace, found, put)):
            failures += [f"{kind}: {put!r}: {one}" for one in readers.failures(kind)]
    assert failures == []


def _replace(found: bytes, put: bytes, path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(found, put))


def lines(dataset: Dataset) -> list[bytes]:
    return (dataset.folder / "metadata.jsonl").read_bytes().splitlines()


def spoil(dataset: Dataset, *wrong: bytes) -> None:
    """Put lines behind the first one."""
    first, *others = lines(dataset)
    (dataset.folder / "metadata.jsonl").write_bytes(b"\n".join([first, *wrong, *others]) + b"\n")


def test_a_line_that_cannot_be_read_is_named_everywhere_and_the_rest_is_used(
    workspace: Workspace, dataset: Dataset, shell: Shell
) -> None:
    healthy, settings = dataset.clips, TrainSettings(dataset="squares", held_out=1)
    spoil(dataset, BAD, b'{"file_name": "a.mp4", "frames": 1e999}', b"[" * 5000, lines(dataset)[0], b"\0" * 9)
    assert dataset.clips == healthy
    said = dataset.damage
    assert [one.split(" is left out (")[0] for one in said[:3]] == [
        f"squares/metadata.jsonl, line {n}" for n in (2, 3, 4)
    ]
    assert said[3:] == ["2 more lines of squares/metadata.jsonl are left out: fix or remove them."]
    for words in (("status",), ("dataset", "list"), ("dataset", "show", "squares")):
        shown = " ".join(shell(*words).out.split())
        assert "squares/metadata.jsonl, line 2 is left out (Invalid JSON: invalid unicode code point" in shown, shown
    (line,) = OverviewReader(workspace).read().datasets
    assert line.next_step == said[0]
    assert said[0] in run_warnings(workspace, settings)
    data = load_data(workspace, settings)
    assert (len(data.train) + len(data.held_out), list(data.dropped)) == (len(healthy), said)


def test_a_change_keeps_the_lines_that_cannot_be_read_and_can_be_undone(dataset: Dataset) -> None:
    spoil(dataset, BAD, lines(dataset)[0])
    twice = lines(dataset)[0]
    dataset.set_caption(dataset.clips[1].file_name, "another")
    dataset.remove(dataset.clips[2].file_name)
    dataset.undo()
    assert lines(dataset)[-2:] == [BAD, twice]
    assert dataset.clips[1].text == "another"
    path = dataset.folder / "metadata.jsonl"
    path.write_bytes(path.read_bytes().replace(BAD + b"\n", b"").removesuffix(twice + b"\n"))
    assert dataset.damage == []


def test_a_file_that_cannot_be_read_at_all_is_not_replaced(dataset: Dataset) -> None:
    clip = dataset.clips[0]
    for name in ("metadata.jsonl", "dataset.json"):
        path = dataset.folder / name
        path.unlink()
        path.symlink_to(path.name)  # a link in a circle: what cannot be read, whoever runs the tests
        assert any(f"{name} cannot be read" in one for one in dataset.damage)
    with pytest.raises(CannotWrite, match="cannot be read"):
        write_clips(dataset.folder, [clip])
    with pytest.raises(ConfigError, match="cannot be read"):
        dataset.set_trigger_word("new")
    assert all((dataset.folder / name).is_symlink() for name in ("metadata.jsonl", "dataset.json"))


def test_a_change_whose_line_is_damaged_keeps_what_it_replaced(dataset: Dataset) -> None:
    dataset.set_caption(dataset.clips[0].file_name, "another")
    (number,) = (one.number for one in dataset.undoable)
    kept = (dataset.folder / ".history" / f"{number}.json").read_bytes()
    path = dataset.folder / "history.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"kind": "change"', b'"kind": "ch\xffange"'))
    dataset.set_caption(dataset.clips[1].file_name, "a third")
    assert dataset.undoable[0].number == number + 1
    assert (dataset.folder / ".history" / f"{number}.json").read_bytes() == kept


def test_stars_and_marks_that_cannot_be_read_are_not_overwritten_and_keep_every_checkpoint(
    workspace: Workspace,
) -> None:
    run, grid = write_run(workspace, "first", 200), workspace.grids / "g"
    assert [one.step for one in checkpoints.doomed(run.folder, 1, coming=300)] == [100]
    for path, change in (
        (run.folder / "stars.json", lambda: checkpoints.star(run.folder, 100)),
        (run.folder / "stars.json", lambda: checkpoints.star(run.folder, 100, on=False)),
        (grid / "marks.json", lambda: Grid(workspace, grid).changing_marks().__enter__()),
    ):
        path.parent.mkdir(exist_ok=True)
        for damaged_text in (b'{"checkpoints": [100, 2\xff', b'{"stars": 3, "checkpoints": 3}', b"[]"):
            path.write_bytes(damaged_text)
            with pytest.raises(ConfigError, match="fix or remove it"):
                change()
            assert path.read_bytes() == damaged_text
    assert checkpoints.doomed(run.folder, 1, coming=300) == []


def test_half_a_surrogate_pair_never_reaches_a_file(tmp_path: Path) -> None:
    value = from_json(r'{"a\ud800": ["\udfff", "\ud83d\ude00", "\\ud800"]}')
    assert value == {"a\ufffd": ["\ufffd", "\U0001f600", r"\ud800"]}
    write_json(tmp_path / "a.json", value)


# ---- Files of the cache that a bad disk or copy changed: noticed at the next look, encoded again, to the same weigh


STEPS = 3


def flip(path: Path) -> None:
    """One bit of the last number's exponent: the number becomes huge, or next to nothing."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 0b01000000
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def rename_tensor(path: Path) -> None:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    path.write_bytes(data[:8] + data[8 : 8 + length].replace(b"F32", b"I32") + data[8 + length :])


def test_every_damaged_file_is_encoded_again_and_the_run_ends_in_the_same_weights(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    def spoil(entries: Sequence[Path]) -> None:
        """Damage every file. By size, so that clips as well as captions get each of the damages."""
        by_size = sorted(entries, key=lambda path: (path.stat().st_size, path.name))
        for path, damage in zip(by_size, itertools.cycle((flip, cut, rename_tensor, Path.unlink)), strict=False):
            damage(path)

    def weights(when: str) -> str:
        """The digest of a run's weights; the cache is damaged before it begins, or before its first step."""
        run = create(workspace, toy_model.source, steps=STEPS, batch_size=5)
        entries = list(workspace.cache.glob("*.safetensors"))
        good = {path: path.read_bytes() for path in entries}
        if when == "before the start":
            spoil(entries)
        made = session(run)
        if when == "before a step":
            made.encoder.cache._memory.clear()
            spoil(entries)
        made.evaluate()
        while made.step < STEPS:
            train_step(made)
        made.save()
        made.close()
        used = [path for path in entries if path.exists() and path.read_bytes() == good[path]]
        assert when == "never" or len(used) >= 6, "at least each clip was read"
        found = file_sha256(checkpoints.folder_of(run.folder, STEPS) / checkpoints.LORA)
        shutil.rmtree(run.folder)  # its name is in the file
        for path, data in good.items():
            path.write_bytes(data)
        return found

    want = weights("never")
    for when in ("before the start", "before a step"):
        assert weights(when) == want, when

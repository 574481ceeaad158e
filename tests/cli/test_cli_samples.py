"""`workbench samples` lists, searches, stars, removes, restores and exports; nothing is changed when an id is wrong."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tests.shell import Shell
from tests.test_overview import add_sample
from workbench.errors import ExitCode
from workbench.sampler.samples import Samples
from workbench.workspace import Workspace


def test_samples_are_found_starred_moved_to_the_bin_and_back(
    shell: Shell, workspace: Workspace, tmp_path: Path
) -> None:
    assert "workbench sample PROMPT" in shell("samples").out
    cat, dog = add_sample(workspace, "a cat"), add_sample(workspace, "a dog", "cats=0.5")

    def listed(*flags: str) -> list[str]:
        return [one["id"] for one in json.loads(shell("samples", *flags, "--json").out)]

    assert listed() == [dog, cat]
    assert listed("--search", "cat") == [dog, cat]  # the LoRA's name has it, too
    assert listed("--search", "a cat seed 7") == [dog, cat]
    assert listed("--limit", "1") == [dog]
    assert listed("--until", "2020-01-01") == []
    assert listed("--since", "2020-01-01") == [dog, cat]
    shell("samples", "star", cat)
    assert listed("--show", "starred") == [cat]
    assert "★" in shell("samples").out
    shell("samples", "unstar", cat)
    assert listed("--show", "starred") == []
    failed = shell("samples", "remove", cat, "20200101-000000-000000-abcd")
    assert failed.code == ExitCode.BAD_CONFIG
    assert listed() == [dog, cat]
    assert "in the bin" in shell("samples", "remove", cat, cat).out
    assert (listed(), listed("--show", "removed")) == ([dog], [cat])
    shell("samples", "restore", cat)
    assert listed() == [dog, cat]
    target = tmp_path / "mine.zip"
    shell("samples", "export", str(target), cat, dog)
    assert len(zipfile.ZipFile(target).namelist()) == 4
    assert "must be a new file" in shell("samples", "export", str(target), cat).err
    shell("samples", "export", str(tmp_path / "mine.gif"), cat, dog)
    assert (tmp_path / "mine.gif").read_bytes().startswith(b"GIF89a")
    assert Samples(workspace).get(cat).settings.prompt == "a cat"

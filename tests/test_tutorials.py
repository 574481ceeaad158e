"""docs/tutorials: the commands of each practice, in their order, as they stand there, with few steps."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = {
    page.stem: text
    for page in sorted((ROOT / "docs" / "tutorials").glob("*.md"))
    if "## Practice" in (text := page.read_text(encoding="utf-8"))
}


def commands(text: str) -> Iterator[str]:
    """Yield the command lines of the section on practice."""
    practice = text.partition("\n## Practice")[2].partition("\n## ")[0]
    for block in re.findall(r"^```\n(.*?)^```", practice, re.DOTALL | re.MULTILINE):
        yield from block.replace("\\\n", " ").splitlines()


def test_every_tutorial_for_a_lora_has_a_practice() -> None:
    assert {"style", "character", "motion", "control"} <= set(TUTORIALS)
    for text in TUTORIALS.values():
        words = [line.split()[:2] for line in commands(text)]
        assert ["workbench", "train"] in words
        assert ["workbench", "sample"] in words


@pytest.mark.release
@pytest.mark.parametrize("name", TUTORIALS)
def test_its_commands_run(name: str, tmp_path: Path) -> None:
    for folder in ("assets", "benchmarks"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    environment = {key: value for key, value in os.environ.items() if key != "WORKBENCH_HOME"}
    environment["PYTHONPATH"] = str(ROOT)
    for line in commands(TUTORIALS[name]):
        words = shlex.split(_shortened(line, tmp_path))
        program = {"workbench": [sys.executable, "-m", "workbench"], "python": [sys.executable]}[words[0]]
        done = subprocess.run([*program, *words[1:]], capture_output=True, text=True, cwd=tmp_path, env=environment)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    assert [*tmp_path.glob("workspace/runs/*/lora.safetensors")]
    assert [*tmp_path.glob("workspace/samples/*/*.mp4")]


def _shortened(line: str, folder: Path) -> str:
    """Return a command with two steps instead of hundreds, and with a clip's file for one with ID."""
    if line.startswith("workbench train"):
        line = re.sub(r"--(steps|preview-every) \d+", "", line) + " --steps 2 --preview-every 1"
    line = re.sub(r"base,\d+,final", "base,final", line)
    if found := re.search(r"\S*/ID\.\S*", line):
        line = line.replace(found[0], str(min(folder.glob(found[0].replace("ID.", "*.")))))
    return line

"""docs/agent_skill.md does what it says: its commands, in its order, with the examples of its table, on real clips."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from workbench.clips import media
from workbench.jobs import State
from workbench.paths import ASSETS
from workbench.runs.analysis.diagnosis import Kind

SKILL = Path(__file__).resolve().parent.parent / "docs" / "agent_skill.md"
TEXT = SKILL.read_text(encoding="utf-8")
WORD = re.compile(r"\b[A-Z][A-Z_]+\b")
COMMANDS = [
    line for block in re.findall(r"^```bash\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE) for line in block.splitlines()
]


def examples() -> dict[str, str]:
    """Word -> example of the document's table; a row may have two of each."""
    found = {}
    for row in re.findall(r"^\| (`.*) \|$", TEXT, re.MULTILINE):
        words, _, values = row.split(" | ") if row.count(" | ") == 2 else ("", "", "")
        found |= dict(zip(re.findall(r"`([A-Z_]+)`", words), re.findall(r"`([^`]+)`", values), strict=True))
    return found


def test_it_has_the_front_matter_of_a_skill() -> None:
    front = re.match(r"---\nname: ([a-z0-9-]{1,64})\ndescription: (.{1,1024})\n---\n", TEXT)
    assert front, "name: lower-case letters, digits, hyphens; description: one line"


def test_its_table_has_every_word_of_its_commands() -> None:
    assert set(examples()) == {word for line in COMMANDS for word in WORD.findall(line)}


def test_it_knows_every_state_and_every_diagnosis() -> None:
    states = TEXT.partition("`state` is")[2].partition(".")[0]
    assert {state.value for state in State} == set(re.findall(r"`(\w+)`", states.partition(";")[0]))
    assert not [kind for kind in get_args(Kind) if f"`{kind}`" not in TEXT]


@pytest.mark.release
def test_its_commands_make_a_lora_from_a_folder_of_clips(tmp_path: Path) -> None:
    before = _give(tmp_path / "clips")
    answers = dict(_follow(tmp_path, examples()))
    (imported,) = (answer for line, answer in answers.items() if line.startswith("workbench dataset import"))
    assert "'notes.docx': skipped" in imported
    assert "'torn.mp4': refused" in imported
    assert "the LoRA is the only" in TEXT
    plain, adapted = (json.loads(answer)[0] for line, answer in answers.items() if line.startswith("workbench sample"))
    assert plain["settings"]["loras"] == []
    assert _hash(Path(plain["video"])) != _hash(Path(adapted["video"]))
    (shown,) = (json.loads(answer) for line, answer in answers.items() if line.startswith("workbench loras show"))
    assert shown["trigger"] == examples()["TRIGGER"]
    assert (tmp_path / examples()["LORA_FILE"]).stat().st_size > 1000
    assert {path.name: _hash(path) for path in (tmp_path / "clips").iterdir()} == before, "the person's files changed"


def _give(folder: Path) -> dict[str, str]:
    """A folder as people have them: five clips without captions, a near copy, a torn file, a note. Returns hashes."""
    folder.mkdir()
    given = sorted((ASSETS / "demo_clips" / "stripes").glob("*.mp4"))[:5]
    for clip in given:
        shutil.copy(clip, folder)
    facts = media.probe(given[0])
    frames = media.read_frames(given[0], range(facts.frames))
    media.encode(frames, folder / "copy.mp4", facts.fps, crf=26)
    (folder / "torn.mp4").write_bytes(given[1].read_bytes()[:700])
    (folder / "notes.docx").write_text("shot in May")
    return {path.name: _hash(path) for path in folder.iterdir()}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _follow(folder: Path, words: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(command, what it printed) of every command of the document, run in the folder."""
    clips: list[dict[str, Any]] = []
    for line in COMMANDS:
        for clip in [one["file_name"] for one in clips] if re.search(r"\bCLIP\b", line) else [words["CLIP"]]:
            values = {**words, "CLIP": clip}
            yield line, _run(folder, WORD.sub(lambda found, values=values: values[found[0]], line))
        if line.startswith(("workbench dataset show", "workbench dataset fix")):
            shown = _run(folder, f"workbench dataset show {words['DATASET']} --json")
            clips = json.loads(shown)["clips"]


def _run(folder: Path, line: str) -> str:
    """One line in a shell of its own, as an agent does it."""
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "WORKBENCH_HOME": str(folder / "workspace"),
    }
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, cwd=folder, env=environment)
    codes = re.findall(r"\d+", line.partition("# ends with ")[2]) or ["0"]
    assert str(done.returncode) in codes, f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    if "--json" in line:
        json.loads(done.stdout)
    return done.stdout

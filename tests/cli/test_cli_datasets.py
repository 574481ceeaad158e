"""`workbench dataset` on the real command line, with real clips and real processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dataset_builder.foreign import write_video
from tests.drawing import MakeClip, draw
from tests.fake_hub import FakeHub
from tests.shell import Shell, ctrl_c
from workbench import jobs
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.settings import ImportSettings
from workbench.errors import ExitCode
from workbench.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent.parent


def clips(shell: Shell, dataset: str) -> list[dict[str, Any]]:
    """Return a dataset's clips."""
    found: list[dict[str, Any]] = json.loads(shell("dataset", "show", dataset, "--json").out)["clips"]
    return found


def clip_names(shell: Shell, dataset: str) -> list[str]:
    return [one["name"] for one in clips(shell, dataset)]


def made(shell: Shell, *command: str | Path) -> list[dict[str, Any]]:
    """What a command answers of clips."""
    said = shell("dataset", *command, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    return found if isinstance(found, list) else [found]


@pytest.fixture
def footage(tmp_path: Path, make_clip: MakeClip) -> Path:
    """A folder with a source video of two one-second shots, a plain clip, and a file that is not a video."""
    folder = tmp_path / "given"
    shots = [draw(24, (96, 64), "red", (200, 200, 200)), draw(24, (96, 64), "blue", (10, 10, 10))]
    media.encode(np.concatenate(shots), folder / "two shots.mp4", 24)
    (folder / "two shots.txt").write_text("a square on a wall, red")
    make_clip(folder / "plain.mp4", 20, (96, 64), 10, "green").with_suffix(".txt").write_text("a green square, green")
    (folder / "page.mp4").write_text("<!doctype html>")
    return folder


def test_from_footage_to_an_export_and_back(shell: Shell, footage: Path, tmp_path: Path) -> None:
    said = shell("dataset", "preview", footage)
    assert "3 videos" in said.out
    assert "2 captions" in said.out
    assert said.out.endswith("The import will report any that cannot be read.\n")

    said = shell("dataset", "import", "Cats", footage, "--trigger-word", "zwx")
    assert said.code == 0, said.err
    assert "Imported: 2 taken, 1 refused." in said.out
    assert "'page.mp4': refused: looks like a web page" in said.out
    shots, plain = "two shots.mp4", "plain.mp4"
    assert sorted(clip_names(shell, "cats")) == [plain, shots]

    preview = shell("dataset", "split", "cats", shots, "--preview", "--min-seconds", "0.5")
    assert "0.00 to 1.00 s, 1.00 to 2.00 s" in preview.out
    assert "finished 48/48" in preview.out, "it is a task, whose progress is seen"
    assert preview.out.endswith("1 clip would be cut into 2.\n")
    assert len(clip_names(shell, "cats")) == 2
    said = shell("dataset", "split", "cats", shots, "--min-seconds", "0.5")
    assert said.code == 0, said.err
    assert "1 clip was cut into 2" in said.out
    assert len(clip_names(shell, "cats")) == 3

    (trimmed,) = made(shell, "trim", "cats", plain, "0.5", "1.5")
    assert (trimmed["frames"], trimmed["fps"]) == (10, 10)
    assert "undone: span of plain.mp4" in shell("dataset", "undo", "cats").out
    assert plain in clip_names(shell, "cats")

    said = shell("dataset", "check", "cats", "--fewest-words", "4")
    assert said.code == 0, said.err
    assert "same_caption (1, " in said.out
    assert "short_caption" not in said.out
    parts = [name for name in clip_names(shell, "cats") if name != plain]
    assert shell("dataset", "to-fix", "cats", "same_caption", "tag", parts[0]).out == "Tag 2 clips for later.\n"
    assert not [one for one in clips(shell, "cats") if one["tags"]]
    assert shell("dataset", "fix", "cats", "same_caption", "tag", parts[0]).out == "Tagged 2 clips for later.\n"
    assert [one["tags"] for one in clips(shell, "cats") if one["tags"]] == [["same_caption"]] * 2

    (rewritten,) = [one for one in made(shell, "to-replace", "cats", "SQUARE", "box") if one["name"] == plain]
    assert (rewritten["before"], rewritten["after"]) == ("a green square, green", "a green box, green")
    assert "a green square" in shell("dataset", "show", "cats").out
    assert made(shell, "replace", "cats", "square", "box") == [{"changed": 3}]
    assert made(shell, "prefix", "cats", "film of", plain) == [{"changed": 1}]
    assert {"tag": "red", "clips": 2} in made(shell, "tags", "cats")

    for target, layout in ((tmp_path / "out", "lists"), (tmp_path / "out.zip", "csv")):
        said = shell("dataset", "export", "cats", target, "--layout", layout, "--no-trigger-word")
        assert said.code == 0, said.err
        assert said.out.endswith(f"3 clips written: {target}\n")
        again = shell("dataset", "import", f"back {layout}", target)
        assert "Imported: 3 taken" in again.out
        assert sorted(one["caption"] for one in clips(shell, f"back-{layout}")) == [
            "a box on a wall, red",
            "a box on a wall, red",
            "film of a green box, green",
        ]
    said = shell("dataset", "export", "cats", tmp_path / "out")
    assert said.code == 64
    assert "already exists: choose another name" in said.err


def test_a_hub_dataset(
    shell: Shell, workspace: Workspace, tmp_path: Path, make_clip: MakeClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeHub().serving() as hub:
        hub.repos["datasets/me/cats"] = {
            "one.mp4": make_clip(tmp_path / "one.mp4").read_bytes(),
            "one.txt": b"a square",
        }
        for name, value in (("HF_ENDPOINT", hub.url), ("HF_HUB_OFFLINE", "0"), ("HF_HUB_DISABLE_XET", "1")):
            monkeypatch.setenv(name, value)
        look = [sys.executable, "-m", "workbench", "dataset", "preview", "--hub", "me/cats"]
        said = subprocess.run(look, capture_output=True, text=True, cwd=ROOT, check=True)
        assert re.match(r"me/cats at \w+: .* to download: 1 \.mp4, 1 \.txt", said.stdout)
        imported = shell("dataset", "import", "cats", "--hub", "me/cats")
    assert imported.code == 0, imported.err
    assert [one["caption"] for one in clips(shell, "cats")] == ["a square"]


def test_what_a_model_sees(shell: Shell, dataset: Dataset, tmp_path: Path) -> None:
    said = shell("dataset", "write-plan", "squares", tmp_path / "seen", "--frames", "9", "--fps", "8")
    assert said.code == 0, said.err
    assert "The model sees 9 frames of each clip at 8 fps, 40x40. 6 of 6 clips are used." in said.out
    written = sorted((tmp_path / "seen").glob("*.mp4"))
    assert [media.probe(path).frames for path in written] == [9] * 6
    said = shell("dataset", "write-plan", "squares", dataset.folder / "clips")
    assert said.code == 64
    assert "already exists: choose a new folder" in said.err
    said = shell("dataset", "plan", "squares", "--buckets", "2", "--fps", "8")
    assert re.search(r"^ +\d  \d+ frames, ", said.out, re.MULTILINE)
    assert "0 clips are left out" in said.out
    said = shell("dataset", "plan", "squares", "--frames", "17", "--fps", "4")
    assert said.out.count("left out: too short") == 6
    assert "0 of 6 clips are used" in said.out


def test_ctrl_c_leaves_a_task_alone_and_stop_ends_it(shell: Shell, workspace: Workspace, tmp_path: Path) -> None:
    # 10-bit colors force each file to be re-encoded, so that the import outlasts this test.
    long = write_video(tmp_path / "long.mp4", draw(300, (320, 180)), pixels="yuv420p10le").read_bytes()
    (tmp_path / "many").mkdir()
    for number in range(40):
        (tmp_path / "many" / f"{number}.mp4").write_bytes(long + bytes([number]))  # so that each has different content
    folder = workspace.datasets / "many" / ".import"
    try:
        given = ("dataset", "import", "many", str(tmp_path / "many"))
        out = ctrl_c(*given, when=lambda: jobs.status(folder).step >= 1)
        assert "The task import continues in the background. Follow it: workbench dataset follow many import" in out
        assert jobs.status(folder).state.alive
        assert re.search(r"^import +running +import · \d+ of 40", shell("dataset", "tasks", "many").out, re.MULTILINE)
        assert shell("dataset", "stop", "many", "import").code == 0
        said = shell("dataset", "follow", "many", "import")
        assert said.code == ExitCode.STOPPED
        assert "resume it: workbench dataset start many import" in said.err
        assert shell("dataset", "start", "many", "import", "--detach").code == 0
        assert jobs.status(folder).state.alive
    finally:
        jobs.kill(folder)


# ---- help and sentences


def test_settings_of_a_task_come_from_a_file(shell: Shell, dataset: Dataset, tmp_path: Path) -> None:
    """For example the task's own file, which also contains the command's positional arguments."""
    file = tmp_path / "config.json"
    ImportSettings(sources=("/nowhere",), dataset="other", trigger_word="qqy").save(file)
    said = shell("dataset", "import", "squares", dataset.path_of(dataset.clips[0]), "--config", file, "--detach")
    assert said.code == 0, said.err
    jobs.wait(dataset.folder / ".import")
    assert ImportSettings.load(dataset.folder / ".import" / jobs.CONFIG).dataset == "squares"
    assert dataset.info.trigger_word == "qqy"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["import", "new"], 64, "there is nothing to import"),
        (["import", "new", ".", "--longest-side", "1"], 64, "longest_side is 1, must be"),
        (["split-at", "squares", "none", "1"], 64, "there is no clip 'none'"),
        (["import", "new", "/nowhere"], 64, "which does not exist"),
        (["findings", "squares"], 64, "was never checked: workbench dataset check squares"),
        (["fix", "squares", "blur", "sharpen"], 64, "sharpen"),
        (["export", "squares"], 64, "target is not set"),
        (["replace", "squares", "(", "x", "--expression"], 64, "cannot be used as a regular expression"),
        (["auto-caption", "squares", "--captioner", "endpoint"], 64, "base_url is not set"),
        (["stop", "squares", "check"], 64, "only a running task can be stopped"),
        (["follow", "squares", "dance"], 2, "dance"),
        (["trigger", "squares", "--write", "--remove"], 64, "contradict"),
    ],
)
def test_a_mistake_is_one_sentence_and_a_code(
    shell: Shell, dataset: Dataset, workspace: Workspace, arguments: list[str], code: int, sentence: str
) -> None:
    said = shell("dataset", *arguments)
    assert (said.code, sentence in said.err) == (code, True), said.err
    assert [one.name for one in Dataset.all(workspace)] == ["squares"]

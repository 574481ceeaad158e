"""What a sample's file says of itself: no path of this machine, and everything that a face needs to make it again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from workbench.clips import media
from workbench.errors import ConfigError
from workbench.operations import samples
from workbench.sampler.inputs import kept
from workbench.sampler.samples import new_id, settings_of, shareable, video_path, write_sample
from workbench.sampler.settings import BatchSettings, SampleSettings, expand
from workbench.workspace import Workspace, named_paths

FRAMES = np.zeros((9, 16, 16, 3), np.uint8)


@pytest.fixture
def made(workspace: Workspace) -> tuple[Path, SampleSettings]:
    """A sample that names files inside of the workspace and outside of it."""
    picture = workspace.samples / "inputs" / "ab.png"
    picture.parent.mkdir(parents=True)
    Image.new("RGB", (8, 8), "red").save(picture)
    lora = workspace.runs / "ring" / "checkpoints" / "step-00000010" / "lora.safetensors"
    lora.parent.mkdir(parents=True)
    lora.write_bytes(b"x")
    settings = SampleSettings(
        model="tiny-cogvideox-i2v",
        prompt="/a slash, a ship",
        negative_prompt="~blur",
        image=str(picture),
        seed=7,
        loras=(f"{lora}=0.5", "/elsewhere/private/mine.safetensors=1", "other=0.25"),
        steps=3,
    )
    record = {
        "settings": settings.model_dump(mode="json"),
        "prompt": settings.prompt,
        "folder": "/models/secret/place",
        "loras": [{"name": str(lora), "file": str(lora), "scale": 0.5}],
        "seed": 7,
    }
    video = video_path(workspace, new_id())
    write_sample(video, FRAMES, 8, record, workspace.root)
    return video, settings


def test_no_path_of_this_machine_is_in_the_video(
    workspace: Workspace, made: tuple[Path, SampleSettings], tmp_path: Path
) -> None:
    video, settings = made
    inside = video.read_bytes()
    for text in (str(workspace.root), str(tmp_path), "/elsewhere", "/models", "private", "secret"):
        assert text.encode() not in inside, text
    embedded = json.loads(media.read_comment(video) or "")
    assert (embedded["folder"], embedded["prompt"]) == ("place", settings.prompt)
    assert embedded["settings"]["image"] == "samples/inputs/ab.png"
    assert json.loads(video.with_suffix(".json").read_text())["folder"] == "/models/secret/place"

    assert settings_of(video, workspace) == settings, "where it was made, the record beside it has whole paths"
    moved = Path(shutil.copy(video, tmp_path / "moved.mp4"))
    there = settings_of(moved, workspace)
    assert (there.image, there.prompt, there.seed) == (settings.image, settings.prompt, 7)
    assert there.loras == (settings.loras[0], "mine.safetensors=1", "other=0.25")
    elsewhere = Workspace.open(tmp_path / "other")
    assert settings_of(moved, elsewhere).image == "samples/inputs/ab.png"
    with pytest.raises(ConfigError, match="is outside this workspace"):
        settings_of(video.with_suffix(".json"), elsewhere)


@pytest.mark.parametrize("image", ["../../secret.png", "a\0b", "/etc/passwd"])
def test_a_foreign_record_names_no_file_outside_of_the_workspace(
    workspace: Workspace, tmp_path: Path, image: str
) -> None:
    (workspace.root.parent / "secret.png").touch()
    record = {"settings": {"prompt": "x", "image": image}}
    media.encode(FRAMES, tmp_path / "foreign.mp4", 8, comment=json.dumps(record))
    with pytest.raises(ConfigError, match="is outside this workspace"):
        settings_of(tmp_path / "foreign.mp4", workspace)


def test_what_holds_no_settings_is_refused_in_a_sentence(workspace: Workspace, tmp_path: Path) -> None:
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "no.mp4").write_text("no video")
    media.encode(FRAMES, tmp_path / "deep.mp4", 8, comment="[" * 20_000)
    media.encode(FRAMES, tmp_path / "plain.mp4", 8)
    for name in ("deep.json", "no.mp4", "deep.mp4", "plain.mp4", "gone.json", "gone.mp4"):
        with pytest.raises(ConfigError):
            settings_of(tmp_path / name, workspace)


def test_a_line_may_have_a_first_frame_of_its_own(workspace: Workspace, tmp_path: Path) -> None:
    for name in ("ship.png", "cat.png", "all.png"):
        Image.new("RGB", (8, 8), name[:1] == "s" and "red" or "blue").save(tmp_path / name)
    lines = f"a ship sails @@ {tmp_path}/ship.png\n\na cat\na@b, a cat@@{tmp_path}/cat.png"
    settings = SampleSettings(prompt=lines, image=str(tmp_path / "all.png"), seed=3)
    many = expand(settings, BatchSettings(each_line=True, videos=2))
    assert [(one.prompt, Path(one.image).name, one.seed) for one in many] == [
        ("a ship sails", "ship.png", 3), ("a ship sails", "ship.png", 4), ("a cat", "all.png", 3),
        ("a cat", "all.png", 4), ("a@b, a cat", "cat.png", 3), ("a@b, a cat", "cat.png", 4),
    ]  # fmt: skip
    assert expand(settings, BatchSettings())[0].prompt == lines, "only where each line is a prompt"
    assert {Path(one.image).parent for one in kept(workspace, many)} == {workspace.samples / "inputs"}
    with pytest.raises(ConfigError, match="gone.png"):
        kept(workspace, expand(settings.changed(prompt="x@@gone.png"), BatchSettings(each_line=True)))


def test_the_page_holds_the_pictures_of_lines_to_its_rules(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_paths, "_roots", [workspace.root.resolve()])
    Image.new("RGB", (8, 8)).save(tmp_path / "outside.png")

    settings = SampleSettings(prompt=f"x@@{tmp_path / 'outside.png'}")
    with pytest.raises(ConfigError, match="this page may not read"):
        samples.request(workspace, settings, BatchSettings(each_line=True))


def test_no_video_that_ships_names_a_path(request: pytest.FixtureRequest) -> None:
    for path in (request.config.rootpath / "assets").rglob("*.mp4"):
        record = json.loads(media.read_comment(path) or "{}")
        assert shareable(record, None) == record, path

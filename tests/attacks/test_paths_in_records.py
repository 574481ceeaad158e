"""Attack: a record from elsewhere names a file of this machine, by its path or through a link."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.dataset_builder.small import write_dataset
from tests.drawing import MakeClip
from tests.fake_hub import FakeHub, login
from tests.publishing.conftest import run, weights
from tests.shell import Shell
from tests.written_run import write_run
from workbench.clips.records import Clip, clip_file, damage, read_clips, write_clips
from workbench.dataset_builder.dataset import Dataset
from workbench.demo_space.replays import Replay
from workbench.errors import ConfigError, DataError
from workbench.loras import removal
from workbench.publishing import push
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.publishing.upload_plan import UploadPlan
from workbench.remote.sync import bundle
from workbench.runs.run import Run
from workbench.sampler.samples import settings_of
from workbench.ui.app import _may_serve
from workbench.workspace import Workspace, confined, read_json, write_json

__all__ = ["run", "weights"]
SECRET = b"swordfish"
FIRST = "previews/step-00000200/0"


def photo(path: Path) -> Path:
    """A JPEG whose metadata say where it was taken."""
    about = Image.Exif()
    about[0x010E] = SECRET.decode()
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (40, 30), "red").save(path, "JPEG", exif=about)
    return path


def space(workspace: Workspace, run: Run, image: object) -> UploadPlan:
    """The plan of a Space of a run whose first preview names a picture."""
    write_json(run.folder / "published.json", {"repo_id": "me/cats", "url": "", "private": False})
    record = run.folder / f"{FIRST}.json"
    values = read_json(record)
    write_json(record, {**values, "settings": {**values["settings"], "image": image}})
    return push.plan_upload(workspace, "runs/cats", SpacePush(repo_id="me/demo"))


def sent(plan: UploadPlan) -> bytes:
    return b"".join(data if isinstance(data, bytes) else b"" for data in plan.files.values())


def test_a_space_takes_no_file_from_outside_the_workspace(workspace: Workspace, run: Run, tmp_path: Path) -> None:
    (outside := tmp_path / "outside" / "id_rsa.png").parent.mkdir()
    outside.write_bytes(SECRET)
    picture = photo(tmp_path / "outside" / "me.jpg")
    (link := workspace.samples / "link.png").symlink_to(picture)
    (loop := workspace.samples / "loop.png").symlink_to(loop)
    for named in (outside, picture, link, f"{workspace.samples}/../../outside/me.jpg", "../outside/me.jpg", loop, "\0"):
        plan = space(workspace, run, str(named))
        assert "samples/0.png" not in plan.files, named
        assert SECRET not in sent(plan)
        assert any("samples/0.mp4 goes without its first frame" in note for note in plan.notes)


def test_a_space_takes_pictures_alone_and_nothing_that_lies_inside_them(workspace: Workspace, run: Run) -> None:
    (text := workspace.samples / "notes.png").write_bytes(SECRET)
    for named in (str(text), ["x"], {"a": 1}, 7, True, str(workspace.samples)):
        assert "samples/0.png" not in space(workspace, run, named).files
    (both := photo(workspace.samples / "inputs" / "me.jpg")).write_bytes(both.read_bytes() + SECRET)
    assert SECRET in both.read_bytes()
    plan = space(workspace, run, str(both))
    data = plan.files["samples/0.png"]
    assert isinstance(data, bytes)
    assert Image.open(io.BytesIO(data)).size == (40, 30)
    assert SECRET not in sent(plan)
    assert not plan.notes


def test_any_values_in_preview_records_give_an_app_that_compiles(workspace: Workspace, run: Run) -> None:
    values = ["abc", [], {}, float("nan"), float("inf"), None, -1, True]
    record = read_json(run.folder / f"{FIRST}.json")
    for number, value in enumerate(values):
        odd = {**record, "seed": value, "steps": values[number - 1], "guidance_scale": values[number - 2]}
        path = run.folder / f"previews/step-00000200/{number}.json"
        path.write_text(json.dumps({**odd, "negative_prompt": 'x"""\n\\\'+exit()#'}))
        if not path.with_suffix(".mp4").exists():
            shutil.copyfile(run.folder / f"{FIRST}.mp4", path.with_suffix(".mp4"))
    app = space(workspace, run, "").files["app.py"]
    assert isinstance(app, bytes)
    compile(app, "app.py", "exec")
    assert not re.search(rb"\b(nan|inf)\b", app)


@pytest.mark.parametrize("name", [f"{FIRST}.mp4", f"{FIRST}.json", "lora.safetensors", "also.safetensors"])
def test_a_link_in_a_run_is_not_published(workspace: Workspace, run: Run, tmp_path: Path, name: str) -> None:
    (outside := tmp_path / "private").write_bytes(
        (run.folder / name).read_bytes() if (run.folder / name).exists() else b""
    )
    (run.folder / name).unlink(missing_ok=True)
    (run.folder / name).symlink_to(outside)
    for settings in (LoraPush(repo_id="me/cats"), SpacePush(repo_id="me/demo")):
        write_json(run.folder / "published.json", {"repo_id": "me/cats", "url": "", "private": False})
        with pytest.raises(DataError, match="leads out of the workspace"):
            push.plan_upload(workspace, "runs/cats", settings)


def test_a_run_whose_folder_is_on_another_disk_is_published(workspace: Workspace, run: Run, tmp_path: Path) -> None:
    os.replace(run.folder, tmp_path / "elsewhere")
    run.folder.symlink_to(tmp_path / "elsewhere")
    assert "samples/0.mp4" in push.plan_upload(workspace, "runs/cats", LoraPush(repo_id="me/cats")).files


def test_a_push_names_every_file_before_it_sends_one(
    shell: Shell, workspace: Workspace, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with FakeHub().serving() as server:
        login(monkeypatch, server, tmp_path / "login")
        said = shell("publish", "lora", "cats", "--to", "me/cats")
    assert said.code == 0, said.err
    for name in ("pytorch_lora_weights.safetensors", "README.md", "samples/0.mp4", "config.json"):
        assert name in said.out.partition("pushed")[0]


# ---- datasets


@pytest.mark.parametrize("field", ["file_name", "master", "first_frame"])
@pytest.mark.parametrize("name", ["/etc/passwd", "../../x.mp4", "clips/../../x.mp4", "..\\x.mp4", "a\0b"])
def test_a_clip_record_names_nothing_outside_its_dataset(workspace: Workspace, field: str, name: str) -> None:
    folder = write_dataset(workspace.dataset("squares"))
    values = json.loads(read_clips(folder)[0].model_dump_json())
    (folder / "metadata.jsonl").write_text(json.dumps({**values, field: name}) + "\n")
    assert not read_clips(folder)
    assert "line 1 is left out" in damage(folder)[0]


def test_a_clip_that_is_a_link_out_of_its_dataset_is_not_opened(
    workspace: Workspace, tmp_path: Path, make_clip: MakeClip
) -> None:
    folder, sent = write_dataset(workspace.dataset("cats")), write_run(workspace, "sent")
    clip = read_clips(folder)[0]
    make_clip(outside := tmp_path / "private.mp4", size=(40, 40))
    clip_file(folder, clip.file_name).unlink()
    (folder / clip.file_name).symlink_to(outside)
    dataset = Dataset(folder)
    for open_it in (
        lambda: dataset.path_of(clip),
        lambda: bundle(workspace, sent),
        lambda: clip_file(folder, clip.file_name),
    ):
        with pytest.raises(DataError, match="a link out of"):
            open_it()
    picture = photo(tmp_path / "me.jpg")
    (folder / "first_frames").mkdir()
    (folder / "first_frames" / "a.png").symlink_to(picture)
    write_clips(folder, [Clip(file_name="clips/b.mp4", first_frame="first_frames/a.png")])
    with pytest.raises(DataError, match="a link out of"):
        bundle(workspace, sent)


def test_a_dataset_whose_folder_is_on_another_disk_is_read(workspace: Workspace, tmp_path: Path) -> None:
    folder = write_dataset(tmp_path / "disk" / "squares")
    workspace.dataset("squares").symlink_to(folder)
    clip = read_clips(folder)[0]
    assert Dataset(workspace.dataset("squares")).path_of(clip).is_file()


# ---- samples, LoRAs, replays, served files


@pytest.mark.parametrize("name", ["image", "video", "continue_from"])
def test_a_record_from_elsewhere_names_no_input_outside_the_workspace(
    workspace: Workspace, tmp_path: Path, name: str
) -> None:
    picture, record = photo(tmp_path / "me.jpg"), tmp_path / "theirs.json"
    for named in (str(picture), "../me.jpg", "/etc/passwd"):
        write_json(record, {"settings": {"prompt": "a cat", name: named}})
        with pytest.raises(ConfigError, match="is outside this workspace"):
            settings_of(record, workspace)
    inside = photo(workspace.samples / "inputs" / "a.jpg")
    write_json(record, {"settings": {"prompt": "a cat", name: "samples/inputs/a.jpg"}})
    assert getattr(settings_of(record, workspace), name) == str(inside)
    write_json(record, {"prompt": "a cat", name: str(picture)})  # a person's own settings
    assert getattr(settings_of(record, workspace), name) == str(picture)


@pytest.mark.parametrize(
    "values", [{"from": "../.."}, {"from": "/etc"}, {"files": ["../../x"]}, {"files": 7}, {"from": ""}]
)
def test_a_removed_lora_goes_back_into_the_workspace_alone(workspace: Workspace, values: dict[str, object]) -> None:
    folder = workspace.root / "loras" / ".removed" / "x"
    record = {
        "name": "loras/x", "title": "x", "bytes": 1, "time": 1.0, "from": "loras/x", "files": ["lora.safetensors"],
    }  # fmt: skip
    write_json(folder / "removed.json", {**record, **values})
    (folder / "lora.safetensors").write_bytes(SECRET)
    with pytest.raises(ConfigError):
        removal.restore(workspace, "x")
    assert (folder / "lora.safetensors").read_bytes() == SECRET


@pytest.mark.parametrize("previews", [[[0, 0, 0, "/etc/passwd"]], [[0, 0, 0, "../x"]], [[]], 7, None, [7]])
def test_a_replay_names_its_own_files_alone(tmp_path: Path, previews: object) -> None:
    write_json(tmp_path / "replay.json", {"points": [], "previews": previews})
    with pytest.raises(ConfigError):
        Replay.open(tmp_path)


def test_a_link_is_not_served(workspace: Workspace, tmp_path: Path) -> None:
    (outside := tmp_path / "private.mp4").write_bytes(SECRET)
    (own := workspace.run("cats") / "previews" / "0.mp4").parent.mkdir(parents=True)
    own.write_bytes(b"video")
    (link := own.with_name("1.mp4")).symlink_to(outside)
    assert _may_serve(workspace, str(own))
    for path in (link, outside, f"{workspace.runs}/../../private.mp4", "private.mp4", "a\0b"):
        assert not _may_serve(workspace, str(path)), path


def test_what_is_no_path_gets_a_sentence(workspace: Workspace) -> None:
    for name in ("a\0b", "../x", "/etc/passwd"):
        with pytest.raises(ConfigError, match="cannot be read: check|leads outside"):
            confined(workspace.samples, name)

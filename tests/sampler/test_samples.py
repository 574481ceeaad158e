"""Samples on disk: written whole, read back, listed newest first, deleted without loss."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors import safe_open

from tests.loras.making import layer, put_lora
from tests.shell import run_command
from workbench.clips import media
from workbench.errors import ConfigError
from workbench.families import families
from workbench.families.base import Family
from workbench.jobs.devices import pick_device
from workbench.loras.library import find
from workbench.sampler import queue
from workbench.sampler.generate import Sampler
from workbench.sampler.samples import (
    MOST_TILES,
    SampleQuery,
    Samples,
    keep_as_preview,
    new_id,
    settings_of,
    video_path,
    write_download,
    write_sample,
    write_samples,
)
from workbench.sampler.settings import SampleSettings
from workbench.sampler.view import actions
from workbench.workspace import Workspace


def frames(count: int = 9) -> np.ndarray:
    ramp = np.linspace(0, 1, count * 32 * 48 * 3).reshape(count, 32, 48, 3)
    return ramp.astype(np.float32)


def make(workspace: Workspace, prompt: str = "a red ball", count: int | None = None) -> str:
    sample_id = new_id()
    settings = SampleSettings(prompt=prompt, loras=("ring=0.5",), seed=7)
    write_sample(
        video_path(workspace, sample_id),
        frames()[:count],
        8,
        {"settings": settings.model_dump(mode="json"), "seed": 7, "frames": len(frames()[:count])},
    )
    return sample_id


def test_settings_come_back_from_video_and_json(workspace: Workspace) -> None:
    prompt = 'a "quoted" ball; {braces} = #1 \\ \n ☃ über'
    path = video_path(workspace, make(workspace, prompt))
    expected = SampleSettings(prompt=prompt, loras=("ring=0.5",), seed=7)
    assert settings_of(path) == expected
    assert settings_of(path.with_suffix(".json")) == expected


def test_unfinished_samples_are_not_shown(workspace: Workspace) -> None:
    unfinished, whole = (make(workspace) for _ in range(2))
    video_path(workspace, unfinished).with_suffix(".json").unlink()
    assert [sample.id for sample in Samples(workspace).history()] == [whole]


@pytest.mark.parametrize("damage", [b"", b"{}", b"[" * 9999, b"\xff", b'{"settings": {"steps": "many"}}'])
def test_where_a_record_is_damaged_the_one_inside_the_video_counts(workspace: Workspace, damage: bytes) -> None:
    path = video_path(workspace, make(workspace))
    path.with_suffix(".json").write_bytes(damage)
    (found,) = Samples(workspace).history()
    assert (found.problem, found.settings.prompt, found.record["frames"]) == ("", "a red ball", 9)
    assert settings_of(path, workspace) == found.settings


def test_a_sample_without_any_record_is_listed_with_the_reason_and_can_be_removed(workspace: Workspace) -> None:
    damaged, whole = make(workspace), make(workspace)
    path = video_path(workspace, damaged)
    path.with_suffix(".json").write_text("{")
    path.write_bytes(b"no video")
    samples = Samples(workspace)
    newest, found = samples.history()
    assert (newest.id, newest.problem) == (whole, "")
    assert found.id == damaged
    assert found.problem.startswith(f"{damaged}.json is damaged, and {damaged}.mp4 has no record either: ")
    assert [one.id for one in samples.history(query=SampleQuery(search="tiny"))] == [whole]  # it has no settings
    assert [label for label, _ in actions(found)] == ["remove"]
    samples.remove(damaged)
    assert [one.id for one in samples.history()] == [whole]
    assert samples.restore(damaged).problem == found.problem


def test_a_removed_sample_comes_back_from_the_bin_as_it_was(workspace: Workspace) -> None:
    sample_id, samples = make(workspace), Samples(workspace)
    before = samples.get(sample_id)
    samples.star(sample_id)
    samples.remove(sample_id)
    assert samples.history() == []
    (binned,) = samples.history(query=SampleQuery(show="removed"))
    assert binned.path == workspace.samples / ".removed" / f"{sample_id}.mp4"
    assert samples.restore(sample_id) == before
    assert samples.get(sample_id).starred
    assert list((workspace.samples / ".removed").iterdir()) == []
    with pytest.raises(ConfigError, match="is not in the bin"):
        samples.restore(sample_id)
    for name in ("../../x", "20261123-000000-000000-abcd"):
        with pytest.raises(ConfigError, match="there|exist"):
            samples.star(name)


def test_samples_are_found_by_words_days_and_stars(workspace: Workspace) -> None:
    names = [make(workspace, f"a {animal} runs") for animal in ("cat", "dog", "cow")]
    old = "20200101-120000-000000-abcd"
    video_path(workspace, old).parent.mkdir()
    for suffix in (".mp4", ".json"):
        path = video_path(workspace, names[0]).with_suffix(suffix)
        path.rename(video_path(workspace, old).with_suffix(suffix))
    samples = Samples(workspace)
    samples.star(names[1])

    def found(**query: object) -> list[str]:
        return [one.id for one in samples.history(query=SampleQuery.model_validate(query))]

    assert found(search="RUNS a seed 7") == [names[2], names[1], old]
    assert found(search="dog ring=0.5") == [names[1]]
    assert found(show="starred") == [names[1]]
    noon = samples.get(old).created
    assert found(until=noon + 1) == found(since=noon, until=noon + 1) == [old]
    assert found(since=noon + 1, search="cow") == [names[2]]


def test_a_zip_has_each_video_by_a_readable_name_with_settings_without_paths(workspace: Workspace) -> None:
    name = make(workspace, "A cat, on a sofa!")
    sample = Samples(workspace).get(name)
    record = {**sample.record, "file": str(workspace.root / "runs" / "x"), "other": "/home/somebody/y"}
    sample.path.with_suffix(".json").write_text(json.dumps(record))
    file = write_download(Samples(workspace).history(), workspace, ".zip")
    with zipfile.ZipFile(file) as archive:
        stem = f"{name[:15]}-a-cat-on-a-sofa-{name[-4:]}"
        assert sorted(archive.namelist()) == [f"{stem}.json", f"{stem}.mp4"]
        assert archive.read(f"{stem}.mp4") == sample.path.read_bytes()
        kept = json.loads(archive.read(f"{stem}.json"))
    assert (kept["file"], kept["other"]) == ("runs/x", "y")
    os.utime(file, (1, 1))
    assert write_download([], workspace, ".zip").exists()
    assert not file.exists()


def test_a_gif_shows_samples_side_by_side_with_a_row_for_each_prompt(workspace: Workspace, tmp_path: Path) -> None:
    for prompt in ("a dog", "a cat", "a dog"):
        make(workspace, prompt)
    long, short = video_path(workspace, new_id()), frames(5)[:, :16, :16]
    write_sample(long, short, 4, {"settings": {"prompt": "a cow"}})
    samples = Samples(workspace).history()
    target = tmp_path / "all.gif"
    write_samples(samples, target, workspace.root)
    with Image.open(target) as picture:
        # 48x32 pixels, four times as large; two columns and a row for cat, cow and dog; 5 frames at 4 fps last longest,
        # and the 10th picture is the 9th
        assert (picture.size, picture.n_frames, picture.info["duration"]) == ((2 * 192, 3 * 128), 9, 120)
        first = np.asarray(picture.convert("RGB"))
        picture.seek(8)
        last = np.asarray(picture.convert("RGB"))
    assert (first[:256, 192:] == 255).all(), "no second cat and no second cow"
    assert (first[128:256, :32] == 0).all(), "a square clip in a wide tile"
    dogs = last[256:, :192].astype(int) - last[256:, 192:]
    assert abs(dogs).max() <= 1
    assert last[256:].mean() > first[256:].mean() + 50
    write_samples(samples[:1], tmp_path / "one.gif", workspace.root)
    with Image.open(tmp_path / "one.gif") as picture:
        assert picture.size == (192, 192)
    write_samples(samples[1:2] * MOST_TILES, tmp_path / "row.gif", workspace.root)
    with Image.open(tmp_path / "row.gif") as picture:
        assert picture.size == (48 * MOST_TILES, 32), "enlarged no more where there are many"
    with pytest.raises(ConfigError, match=f"for one GIF, which shows {MOST_TILES}"):
        write_samples(samples * 10, tmp_path / "many.gif", workspace.root)
    assert not (tmp_path / "many.gif").exists()


def test_a_png_shows_pictures_and_a_folder_has_a_file_for_each_prompt(workspace: Workspace, tmp_path: Path) -> None:
    for prompt, count in (("a dog", 1), ("a cat", 1), ("a dog", 1), ("a cow", None)):
        make(workspace, prompt, count)
    *pictures, video = sorted(Samples(workspace).history(), key=lambda one: one.settings.prompt == "a cow")
    write_samples(pictures, tmp_path / "all.png", workspace.root)
    with Image.open(tmp_path / "all.png") as picture:
        assert (picture.format, picture.size) == ("PNG", (2 * 48, 2 * 32))
        assert (np.asarray(picture)[:32, 48:] == 255).all(), "no second cat"
    with pytest.raises(ConfigError, match=r"is a video of \d+ frames, but a PNG shows pictures: export a GIF"):
        write_samples([video], tmp_path / "video.png", workspace.root)
    write_samples([*pictures, video], tmp_path / "each", workspace.root)
    assert sorted(path.name for path in (tmp_path / "each").iterdir()) == [
        "001-a-cat.png",
        "002-a-cow.gif",
        "003-a-dog.png",
    ]
    with Image.open(tmp_path / "each" / "003-a-dog.png") as picture:
        assert picture.size == (2 * 48, 32)
    assert not list(tmp_path.glob(".each*"))


def test_a_lora_without_a_run_keeps_the_first_videos_it_drew_alone_as_its_previews(workspace: Workspace) -> None:
    path = put_lora(workspace, "ring", layer("a", 2, 4, 4))
    put_lora(workspace, "dot", layer("a", 2, 4, 4))
    ring, dot = ({"name": f"loras/{name}", "scale": 1.0} for name in ("ring", "dot"))
    for worn in ([], [ring, dot], [{**ring, "scale": 0.5}], [{"name": "runs/ring", "scale": 1.0}], *[[ring]] * 4):
        video = video_path(workspace, make(workspace, "a green ball"))
        keep_as_preview(workspace, video, {"loras": worn})
    kept = find(workspace, "loras/ring").previews
    assert len(kept) == 3
    assert kept[0].read_bytes() == video.read_bytes()
    assert json.loads(kept[0].with_suffix(".json").read_text())["settings"]["prompt"] == "a green ball"
    assert find(workspace, "loras/dot").previews == ()
    assert sorted(each.name for each in path.parent.iterdir()) == ["lora.json", "lora.safetensors", "previews"]


@pytest.mark.parametrize("name", ["../../etc/passwd", "", "x", "20260101-000000-000000-abcd/.."])
def test_only_ids_name_samples(workspace: Workspace, name: str) -> None:
    with pytest.raises(ConfigError, match="choose one from the history"):
        Samples(workspace).remove(name)


# ---- Samples that are kept as latents: nothing is decoded, and what is decoded later is the video sampled directly


ASKED = SampleSettings(prompt="a red circle moves left", seed=3, steps=2, frames=9, device="cpu")
EACH = [(family, family.toys[0]) for family in families()]


@pytest.mark.parametrize(("family", "variant"), EACH, ids=[f"{one.name}-{toy}" for one, toy in EACH])
def test_latents_that_were_saved_decode_to_the_video_sampled_directly(
    family: Family, variant: str, tmp_path: Path
) -> None:
    model = family.toy(tmp_path / "toy", variant)
    workspace, sampler = Workspace.open(tmp_path / "work"), Sampler(model.id, pick_device("cpu"), lambda _: None)
    asked = SampleSettings(model=model.id, prompt="a dog", seed=1, steps=2, device="cpu")
    direct = sampler.generate(workspace, asked)
    sampler.write_latents(tmp_path / "kept.mp4", sampler.denoise(workspace, asked))
    kept = sampler.read_latents(tmp_path / "kept.mp4")
    later = sampler.decode(kept)
    assert np.array_equal(later.frames, direct.frames)
    same = ("settings", "seed", "frames", "fps", "decoded", "model")
    assert {name: later.record[name] for name in same} == {name: direct.record[name] for name in same}
    with safe_open(tmp_path / "kept.safetensors", "np") as file:
        assert file.metadata()["model"] == model.id
        assert file.get_tensor("codes" if family.name == "phenaki" else "latents").ndim == (
            3 if family.name == "phenaki" else 4
        )


def test_a_request_for_latents_leaves_no_video_until_it_is_decoded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = Workspace.open(tmp_path)
    direct, kept = queue.submit_all(workspace, [ASKED, ASKED.changed(latents_only=True)])
    try:
        ended = [queue.wait(workspace, name, 300) for name in (direct, kept)]
        assert [one.state for one in ended] == [queue.RequestState.DONE] * 2, ended
        sample = Samples(workspace).get(kept)
        assert sample.latents_only
        assert not sample.path.with_suffix(".mp4").exists()
        with safe_open(sample.path, "np") as file:
            about = file.metadata()
            assert file.get_tensor("latents").ndim == 4
        assert (about["frames"], about["scaled"], about["layout"]) == ("9", "true", "C f h w")
        listed = run_command(capsys, "--workspace", tmp_path, "samples")
        assert f"{ASKED.prompt} (latents only)" in listed.out
        with pytest.raises(ConfigError, match="latents only: decode it first"):
            _ = sample.video
        Samples(workspace).remove(kept)
        assert not sample.path.exists()
        Samples(workspace).restore(kept)

        decoded = run_command(capsys, "--workspace", tmp_path, "samples", "decode", kept)
        assert decoded.code == 0, decoded.err
        one, other = (Samples(workspace).get(name) for name in (direct, kept))
        assert not other.latents_only
        assert other.settings == one.settings
        frames = [media.read_frames(found.video, range(9)) for found in (one, other)]
        assert np.array_equal(*frames)
        queue.decode(workspace, kept)
        assert not queue.pending(workspace), "what is decoded is not decoded again"
    finally:
        queue.stop_worker(workspace)


def test_latents_that_nobody_could_go_on_from_are_refused(tmp_path: Path) -> None:
    workspace, asked = Workspace.open(tmp_path), ASKED.changed(latents_only=True)
    with pytest.raises(ConfigError, match="turn it off for scenes"):
        queue.submit_all(workspace, [asked, asked], chains=1)
    with pytest.raises(ConfigError, match="a grid shows videos"):
        queue.submit(workspace, asked, into="grids/one/cells/two")

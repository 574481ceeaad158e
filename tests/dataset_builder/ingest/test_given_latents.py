"""Latents files as clips: which are imported or refused, and which operations they do not support."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import save_file

from tests.shell import Shell
from workbench.clips.frame_plan import shape_for
from workbench.clips.records import file_sha256
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.export import export
from workbench.dataset_builder.history import thumbnail_name
from workbench.dataset_builder.settings import ExportSettings
from workbench.errors import DataError, WorkbenchError
from workbench.families import find_model
from workbench.families.latents_file import Fit
from workbench.runs.data import load_data
from workbench.runs.settings import TrainSettings
from workbench.sampler import vae_reconstruction
from workbench.workspace import Workspace

TINY, CODES = "tiny-cogvideox", "tiny-phenaki"
ABOUT = {"model": TINY, "fps": "8"}
Tensors = dict[str, np.ndarray]


def latents(*shape: int, seed: int = 0) -> np.ndarray:
    """Write latents, by default for 9 frames of 40x40."""
    return np.random.default_rng(seed).standard_normal(shape or (16, 3, 10, 10)).astype(np.float32)


def write(path: Path, tensors: Tensors | None = None, **about: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    said = {name: value for name, value in {**ABOUT, **about}.items() if value}
    save_file(tensors or {"latents": latents()}, path, said)
    return path


def text(tokens: int = 16, width: int = 64) -> np.ndarray:
    return np.ones((tokens, width), np.float32)


@pytest.fixture
def given(workspace: Workspace, tmp_path: Path) -> Dataset:
    """Import a file of latents and embeddings with its caption in a text file beside it."""
    path = write(tmp_path / "given" / "walk.safetensors", {"latents": latents(), "embeddings": text()})
    path.with_suffix(".txt").write_text("a man walks")
    dataset = Dataset.create(workspace, "Given")
    dataset.import_files([tmp_path / "given"])
    return dataset


def test_a_file_is_copied_unchanged_with_its_caption_and_a_poster(given: Dataset, tmp_path: Path) -> None:
    (clip,) = given.clips
    assert (clip.name, clip.text, clip.latents_model) == ("walk.safetensors", "a man walks", TINY)
    assert (clip.frames, clip.width, clip.height, clip.fps) == (9, 40, 40, 8.0)
    source = tmp_path / "given" / "walk.safetensors"
    assert clip.file_name == f"latents/{file_sha256(source)[:16]}.safetensors"
    assert given.path_of(clip).read_bytes() == source.read_bytes()
    assert (given.folder / thumbnail_name(clip)).stat().st_size > 100
    given.remove(clip.name)
    assert not given.path_of(clip).exists()
    given.undo()
    assert given.path_of(clip).exists()
    assert given.clips == [clip]
    (again,) = given.import_files([source])
    assert again.outcome == "known"


def test_embeddings_belong_to_the_caption_that_came_with_them(given: Dataset) -> None:
    assert given.clips[0].given_text
    given.set_caption("walk.safetensors", "a man runs")
    assert not given.clips[0].given_text
    given.undo()
    assert given.clips[0].given_text


@pytest.mark.parametrize(
    ("tensors", "about", "sentence"),
    [
        ({"latents": latents()}, {"model": ""}, "its metadata has no model"),
        ({"latents": latents()}, {"model": "nobody"}, "an unknown model: model is 'nobody'"),
        ({"latents": latents(48, 3, 10, 10)}, {"model": "ltx"}, "model is ltx, but none of its models has 48 channels"),
        ({"frames": latents()}, {}, "it holds frames, must hold latents, or mean and std"),
        ({"mean": latents()}, {}, "it holds mean, must hold latents, or mean and std"),
        ({"latents": latents().astype(np.float64)}, {}, "its tensor latents is F64, must be F32 or F16 or BF16"),
        ({"latents": latents(2, 16, 3, 10, 10)}, {}, r"is \[2, 16, 3, 10, 10\], must be \[channels, frames"),
        ({"latents": latents(3, 16, 10, 10)}, {}, r"are \[3, 16, 10, 10\], those of .* have 16 channels"),
        ({"mean": latents(), "std": latents(16, 3, 10, 8)}, {}, "give both the same shape"),
        ({"mean": latents(), "std": latents()}, {}, "its std has -.*, must not be negative"),
        ({"latents": latents() * np.inf}, {}, "its tensor latents has 4,800 values that are NaN or infinite"),
        ({"latents": latents()}, {"frames": "49"}, "frames is 49, but its latents decode to 9"),
        ({"latents": latents()}, {"fps": "fast"}, "fps is fast, must be above 0"),
        ({"latents": latents()}, {"scaled": "false"}, "scaled is false"),
        ({"latents": latents(), "embeddings": text(8)}, {}, r"embeddings are \[8, 64\], .* takes \[16, 64\]"),
        ({"latents": latents()}, {"model": CODES}, "it holds latents, must hold codes"),
        ({"codes": np.full((5, 5, 5), 10**6)}, {"model": CODES}, "its codes are 1000000 to 1000000, .* has 0 to"),
        ({"codes": np.ones((5, 5, 5), int), "embeddings": text()}, {"model": CODES}, "no mask, .* needs a mask"),
    ],
)
def test_an_invalid_file_says_what_is_wrong(
    workspace: Workspace, tmp_path: Path, tensors: Tensors, about: dict[str, str], sentence: str
) -> None:
    path = write(tmp_path / "bad.safetensors", tensors, **about)
    dataset = Dataset.create(workspace, "Bad")
    with pytest.raises(DataError, match=sentence):
        dataset.import_files([path])
    assert not list(dataset.folder.glob("latents/*"))


def test_a_family_name_means_any_of_its_published_models(workspace: Workspace, tmp_path: Path) -> None:
    path = write(
        tmp_path / "one.safetensors",
        {"latents": latents(128, 2, 4, 4), "embeddings": text(128, 4096), "mask": np.ones(128, np.uint8)},
        model="ltx",
        fps="",
    )
    dataset = Dataset.create(workspace, "Given")
    (result,) = dataset.import_files([path])
    assert "its metadata has no fps: using 25" in result.notes[0]
    (clip,) = dataset.clips
    assert (clip.latents_model, clip.frames, clip.width, clip.height, clip.fps) == ("ltx", 9, 128, 128, 25.0)
    reasons = {name: Fit(*find_model(name)).misfit(path) for name in ("ltx-video-2b-0.9.1", "ltx-video-2b-0.9.5")}
    assert not reasons["ltx-video-2b-0.9.1"]
    assert "takes [256, 4096]" in reasons["ltx-video-2b-0.9.5"]
    small = write(tmp_path / "two.safetensors", {"latents": latents()}, model="cogvideox")
    assert dataset.import_files([small])[0].clip.width == 80  # of a published model, not of the built-in one


def test_a_truncated_or_invalid_file_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    whole = write(tmp_path / "whole.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[:-100])
    (tmp_path / "text.safetensors").write_text("no such thing as a tensor is in this file")
    dataset = Dataset.create(workspace, "Bad")
    whole_one, *bad = sorted(dataset.import_files([tmp_path]), key=lambda one: one.outcome != "taken")
    assert whole_one.outcome == "taken"
    assert sorted(one.notes[0] for one in bad) == [
        "it is not a complete safetensors file (it does not begin as one): write or copy it again",
        "it is not a complete safetensors file (it ends before its tensors do): write or copy it again",
    ]


def test_clips_that_a_run_cannot_use_are_left_out_with_the_reason(given: Dataset, tmp_path: Path) -> None:
    """One fits. The others differ in length, frame rate, family and VAE."""
    folder = tmp_path / "more"
    write(folder / "long.safetensors", {"latents": latents(16, 5, 10, 10)})
    write(folder / "fast.safetensors", {"latents": latents(seed=1)}, fps="24")
    write(folder / "codes.safetensors", {"codes": np.ones((5, 5, 5), np.int64)}, model=CODES)
    write(folder / "wan.safetensors", {"latents": latents(seed=2)}, model="wan")
    write(folder / "large.safetensors", {"latents": latents(seed=3)}, model="cogvideox-2b")
    given.import_files([folder])
    workspace = Workspace.of(given.folder)
    settings = TrainSettings().changed(model=TINY, dataset="given", held_out=0)
    data = load_data(workspace, settings)
    assert [item.name for item in data.train] == ["walk.safetensors"]
    reasons = dict(sentence.split(": ", 1) for sentence in data.dropped)
    assert "17 frames of 40x40 at 8 fps, but 9 of 40x40 at 8 fps are needed" in reasons["long.safetensors"]
    assert "add the bucket 17x40x40" in reasons["long.safetensors"]
    assert "set fps to 24" in reasons["fast.safetensors"]
    assert reasons["codes.safetensors"].startswith("its latents are from Tiny Phenaki")
    assert reasons["wan.safetensors"].startswith("its latents are from Wan")
    assert "whose VAE or scale differs from that of" in reasons["large.safetensors"]

    both = load_data(workspace, settings.changed(buckets=("9x40x40", "17x40x40")))
    assert sorted(item.name for item in both.train) == ["long.safetensors", "walk.safetensors"]
    given.remove("walk.safetensors")
    with pytest.raises(DataError, match="has no usable clip .*its latents are from"):
        load_data(workspace, settings)


def test_image_to_video_needs_the_picture_that_came_with_the_latents(given: Dataset, tmp_path: Path) -> None:
    workspace = Workspace.of(given.folder)
    settings = TrainSettings().changed(model="tiny-cogvideox-i2v", dataset="given", held_out=0)
    write(tmp_path / "shown" / "shown.safetensors", {"latents": latents(seed=4)}, model="tiny-cogvideox-i2v")
    Image.new("RGB", (80, 80), "red").save(tmp_path / "shown" / "first.png")
    row = '{"file_name": "shown.safetensors", "text": "red", "first_frame": "first.png"}\n'
    (tmp_path / "shown" / "metadata.jsonl").write_text(row)
    given.import_files([tmp_path / "shown"])
    data = load_data(workspace, settings)
    assert [item.name for item in data.train] == ["shown.safetensors"]
    (dropped,) = data.dropped
    assert "needs a first frame, and latents have none" in dropped
    low = settings.changed(condition="low resolution")
    with pytest.raises(DataError, match="low resolution, which is made from a clip's frames, and latents have none"):
        load_data(workspace, low)


def test_models_with_the_same_vae_and_scale_share_latents(tmp_path: Path) -> None:
    path = write(tmp_path / "one.safetensors", model="cogvideox-5b")
    taken = {name: Fit(*find_model(name)).misfit(path) for name in ("cogvideox-5b-i2v", "cogvideox-2b")}
    assert not taken["cogvideox-5b-i2v"]
    assert "whose VAE or scale differs from that of" in taken["cogvideox-2b"]  # the same weights, but another scale


@pytest.mark.parametrize(
    ("operation", "sentence"),
    [
        (lambda dataset, name: dataset.trim(name, 0.0, 0.5), "is latents, which cannot be cut"),
        (lambda dataset, name: dataset.view_as_model(name, TINY), "there is no video to watch"),
        (
            lambda dataset, name: vae_reconstruction.request(
                Workspace.of(dataset.folder), dataset.folder, dataset.clip(name), TINY, shape_for(find_model(TINY)[1])
            ),
            "there is no video to compare with",
        ),
    ],
    ids=["trim", "view", "reconstruction"],
)
def test_operations_on_pixels_are_refused(
    given: Dataset, operation: Callable[[Dataset, str], Any], sentence: str
) -> None:
    with pytest.raises(WorkbenchError, match=sentence):
        operation(given, "walk.safetensors")


def test_tasks_skip_latents_by_name(given: Dataset, shell: Shell) -> None:
    report = given.check(captions=False)
    assert not [one for one in report.findings if one.kind == "damaged"]
    report = given.check(captions=False, model="tiny-phenaki")
    (left_out,) = [one for one in report.findings if "latents are from Tiny CogVideoX" in one.sentence]
    assert left_out.kind == "left_out"
    split = shell("dataset", "split", "given", "--mode", "windows", "--window-seconds", "1", "--min-seconds", "0.5")
    assert split.code == 0, split.err
    assert "walk.safetensors is latents, which cannot be cut" in split.out
    assert "latents of tiny-cogvideox" in shell("dataset", "show", "given").out


@pytest.mark.parametrize("layout", ["videofolder", "webdataset"])
def test_an_exported_dataset_has_the_file_and_is_imported_again(given: Dataset, tmp_path: Path, layout: str) -> None:
    target = tmp_path / ("out.tar" if layout == "webdataset" else "out")
    export(given.folder, ExportSettings(target=str(target), layout=layout))
    again = Dataset.create(Workspace.of(given.folder), "Again")
    again.import_files([target])
    (one,), (other,) = given.clips, again.clips
    assert (one.sha256, one.text, one.given_text) == (other.sha256, other.text, other.given_text)

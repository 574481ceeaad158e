"""Operations on a clip's companion files: list, attach, make, paint, track, detach."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests import tiny_vision
from tests.dataset_builder.small import write_dataset
from tests.operations.conftest import Call
from tests.patience import PATIENCE
from workbench import jobs
from workbench.clips import media
from workbench.clips.records import write_clips
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.findings import finding_of, write_report
from workbench.dataset_builder.cuts import painted
from workbench.dataset_builder.tasks import Name as TaskName
from workbench.errors import ConfigError, DataError
from workbench.workspace import Workspace


@pytest.fixture
def small(workspace: Workspace) -> Dataset:
    return Dataset(write_dataset(workspace.datasets / "small", ("one", "two", "three", "four", "five")))


def finished(dataset: Dataset, task: TaskName) -> None:
    status = dataset.task(task).wait(PATIENCE)
    assert status.state is jobs.State.FINISHED, status.message


def runs_of(mask: np.ndarray) -> list[int]:
    """Return the run lengths of a mask, outside first."""
    flat = (mask > 127).ravel()
    lengths = [len(list(group)) for _, group in groupby(flat)]
    return [0, *lengths] if flat[0] else lengths


def square(video: np.ndarray, frame: int) -> np.ndarray:
    """The drawn square of a frame, which is of another color than the gray around it."""
    return (np.abs(video[frame].astype(int) - 90).sum(-1) > 120).astype(np.uint8) * 255


def test_edges_are_made_for_all_clips_as_one_change(call: Call, small: Dataset) -> None:
    assert call("clips/companions", name="small") == []
    call("clips/make", name="small", maker="edges")
    finished(small, "make")
    assert small.task("make").result["done"] == "Edges: made 5 control clips."
    found = call("clips/companions", name="small")
    assert [one["kind"] for one in found] == ["control"] * 5
    assert all(one["fits"] and one["state"] == f"same {one['frames']} frames" for one in found)
    card = call("clips/cards", name="small")["clips"][0]
    assert Path(card["beside"]["control"]).is_file()
    with pytest.raises(ConfigError, match="no clip needs one: all have a control clip"):
        call("clips/make", name="small", maker="gray")
    call("datasets/undo", name="small")
    assert call("clips/companions", name="small") == []
    assert [one["id"] for one in call("clips/list-makers")][:2] == ["edges", "gray"]


def test_pairs_say_what_is_missing_and_what_does_not_fit_with_its_fix(call: Call, small: Dataset) -> None:
    assert call("clips/pairs", name="small") | {"pairs": []} == {
        "role": "control",
        "pairs": [],
        "first": 0,
        "found": 5,
        "has": {"control": 0, "reference": 0, "mask": 0, "last_frame": 0},
        "all": 5,
        "lacking": 5,
        "unfit": 0,
    }
    one, other = small.clips[:2]
    long = np.zeros((one.frames + 4, one.height, one.width, 3), np.uint8)
    media.encode(long, small.folder / "clips" / f"{one.id}.control-0.mp4", one.fps)
    longer = one.changed(control=f"clips/{one.id}.control-0.mp4")
    lost = other.changed(mask=f"clips/{other.id}.mask-0.mp4")
    write_clips(small.folder, [longer, lost, *small.clips[2:]])
    about = {"kind": "control", "beside": longer.control}
    write_report(
        small.folder, 0.0, "any", small.clips, [finding_of("beside_long", "It is longer.", [longer], about=about)]
    )

    seen = call("clips/pairs", name="small")
    assert (seen["role"], seen["lacking"], seen["unfit"], seen["has"]["control"]) == ("every", 5, 2, 1)
    found = call("clips/pairs", name="small", role="control", only="unfit")
    assert (found["found"], found["lacking"]) == (1, 4)
    partner = found["pairs"][0]["partners"]["control"]
    assert not partner["fits"]
    assert (partner["finding"], partner["fixes"]["fit-beside"]) == ("beside_long", "Fit it to the clip")
    (pair,) = call("clips/pairs", name="small", role="mask", only="unfit")["pairs"]
    assert pair["partners"]["mask"]["state"] == "its file is missing"
    (pair,) = call("clips/pairs", name="small", clips=[other.id])["pairs"]
    assert pair["clip"]["id"] == other.id
    assert [one["clip"]["id"] for one in call("clips/pairs", name="small", first=3, most=3)["pairs"]] == [
        one.id for one in small.clips[3:]
    ]
    assert call("datasets/about", name="small")["summary"]["paired"] == 2


def test_a_file_is_attached_and_detached(call: Call, small: Dataset, tmp_path: Path) -> None:
    clip = small.clips[4]
    media.encode(np.zeros((clip.frames, 32, 32, 3), np.uint8), tmp_path / "dark.mp4", 8)
    made = call("clips/attach", name="small", clip=clip.id, kind="mask", file=str(tmp_path / "dark.mp4"))
    assert (made["kind"], made["frames"], made["fits"]) == ("mask", 6, True)
    assert call("clips/detach", name="small", kind="mask", clips=[clip.id]) == {"changed": 1}
    assert call("clips/detach", name="small", kind="mask") == {"changed": 0}
    with pytest.raises(ConfigError, match="which does not exist"):
        call("clips/attach", name="small", clip=clip.id, kind="mask", file=str(tmp_path / "nothing.mp4"))


def test_a_mask_is_painted_tracked_softened_and_inverted(call: Call, small: Dataset, tmp_path: Path) -> None:
    clip = small.clips[4]
    video = media.read_frames(small.path_of(clip), range(clip.frames))
    with pytest.raises(ConfigError, match="no clip has a painted frame"):
        call("clips/track", name="small")
    seen = call("clips/paint", name="small", clip=clip.id, frame=0, runs=runs_of(square(video, 0)))
    assert [one["frame"] for one in seen["painted"]] == [0]
    assert (np.asarray(Image.open(seen["painted"][0]["file"])) == square(video, 0)).all()
    Image.fromarray(square(video, 5)).save(tmp_path / "last.png")
    call("clips/paint", name="small", clip=clip.id, frame=5, file=str(tmp_path / "last.png"))
    call("clips/track", name="small", clips=[clip.id])
    finished(small, "track")
    seen = call("clips/mask", name="small", clip=clip.id)
    assert (seen["used"], len(seen["confidence"]), seen["confidence"][0]) == ([0, 5], 6, 1.0)
    masks = media.read_frames(Path(seen["mask"]), range(6))
    assert np.abs(masks.astype(int) - masks[..., :1]).max() <= 2  # gray
    assert ((masks[0, ..., 0] > 127) == (square(video, 0) > 127)).mean() > 0.98
    assert call("clips/companions", name="small", clips=[clip.id])[0]["state"].startswith("tracked, ")

    soft = call("clips/mask-edge", name="small", clip=clip.id, soften=6, invert=True)
    assert (soft["soften"], soft["invert"], soft["confidence"]) == (6.0, True, seen["confidence"])
    inverted = media.read_frames(Path(soft["mask"]), range(6))[..., 0]
    assert inverted[0, 0, -1] > 200
    assert 30 < np.median(inverted[0][square(video, 0) > 0]) < 128
    call("datasets/undo", name="small")
    assert call("clips/mask", name="small", clip=clip.id)["invert"] is False
    assert call("clips/paint", name="small", clip=clip.id, frame=5)["painted"][0]["frame"] == 0


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"frame": 99, "runs": (1024,)}, "frame is 99, .* has frames 0 to 5"),
        ({"frame": 0, "runs": (1000, 25)}, "runs add up to 1,025 pixels, but the clip has 1,024"),
        ({"frame": 0, "runs": (1024,), "file": "x.png"}, "file and runs are both given"),
    ],
)
def test_what_cannot_be_painted_is_a_sentence(
    call: Call, small: Dataset, values: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        call("clips/paint", name="small", clip=small.clips[4].id, **values)


def test_a_picture_that_another_program_would_have_to_read_is_refused(
    call: Call, small: Dataset, tmp_path: Path
) -> None:
    """Pillow gives PostScript to Ghostscript, whatever the file is called."""
    foreign = tmp_path / "mask.png"
    foreign.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EndComments\nshowpage\n%%EOF\n")
    with pytest.raises(DataError, match="mask.png is not a readable picture: save it as PNG"):
        call("clips/paint", name="small", clip=small.clips[4].id, frame=0, file=str(foreign))


def test_what_is_known_of_masks_survives_a_damaged_file(call: Call, small: Dataset) -> None:
    clip = small.clips[4]
    folder = painted.folder_of(small.folder, clip)
    folder.mkdir(parents=True)
    (folder / painted.INFO).write_text('{"x": {"painted": "none"}}')
    assert call("clips/mask", name="small", clip=clip.id)["confidence"] == []


# ---- by models


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"maker": "depth", "model": "/nowhere"},
            "model is '/nowhere', neither a known model nor a folder with a config.json",
        ),
        (
            {"maker": "pose", "detector": "x"},
            "detector is 'x', neither a known model nor .*: choose one of PekingU/rtdetr",
        ),
        ({"maker": "edges", "model": "x"}, "model is x, but edges needs none: leave it out"),
        ({"maker": "depth", "detector": "x"}, "detector is x, but depth needs none: leave it out"),
    ],
)
def test_a_model_that_cannot_be_is_refused_before_the_job(
    call: Call, small: Dataset, values: dict[str, object], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        call("clips/make", name="small", **values)


def test_depth_and_poses_are_made_by_models_in_a_process_of_their_own(
    call: Call, small: Dataset, tmp_path: Path
) -> None:
    model = str(tiny_vision.make_depth(tmp_path / "tiny-depth"))
    call("clips/make", name="small", maker="depth", model=model, device="cpu")
    finished(small, "make")
    assert small.task("make").result["done"] == "Depth: made 5 control clips."
    found = call("clips/companions", name="small")
    assert all(one["fits"] and one["kind"] == "control" for one in found)
    pose, detector = tiny_vision.make_pose(tmp_path / "pose"), tiny_vision.make_detector(tmp_path / "detector")
    clip = small.clips[4].id
    more = {"model": str(pose), "detector": str(detector), "device": "cpu"}
    call("clips/make", name="small", clips=[clip], maker="pose", kind="reference", **more)
    finished(small, "make")
    assert {one["kind"] for one in call("clips/companions", name="small", clips=[clip])} == {"control", "reference"}


def test_a_mask_is_tracked_by_a_model_in_a_process_of_its_own(call: Call, small: Dataset, tmp_path: Path) -> None:
    clip = small.clips[4]
    video = media.read_frames(small.path_of(clip), range(clip.frames))
    call("clips/paint", name="small", clip=clip.id, frame=1, runs=runs_of(square(video, 1)))
    with pytest.raises(ConfigError, match=r"model is '/nowhere', neither a known model nor a folder"):
        call("clips/track", name="small", model="/nowhere")
    model = tiny_vision.make_segmenter(tmp_path / "tiny-sam")
    call("clips/track", name="small", model=str(model), device="cpu")
    finished(small, "track")
    seen = call("clips/mask", name="small", clip=clip.id)
    assert (seen["used"], len(seen["confidence"]), seen["confidence"][1]) == ([1], 6, 1.0)
    assert (seen["by"], seen["problem"]) == ("tiny-sam", "")
    masks = media.read_frames(Path(seen["mask"]), range(6))
    assert ((masks[1, ..., 0] > 127) == (square(video, 1) > 127)).mean() > 0.98
    assert call("clips/mask-edge", name="small", clip=clip.id, invert=True)["by"] == "tiny-sam"


def test_a_model_that_cannot_be_loaded_says_so_where_the_mask_is(call: Call, small: Dataset, tmp_path: Path) -> None:
    clip = small.clips[4]
    call("clips/paint", name="small", clip=clip.id, frame=0, runs=(0, clip.width * clip.height))
    call("clips/track", name="small", clips=[clip.id], model=str(tiny_vision.make_depth(tmp_path / "depth")))
    assert small.task("track").wait(PATIENCE).state is jobs.State.FAILED
    assert "a depth_anything, must be a sam2_video" in call("clips/mask", name="small", clip=clip.id)["problem"]
    assert call("clips/mask", name="small", clip=small.clips[3].id)["problem"] == ""

"""SAM 2 tracking: real transformers classes on a miniature with random weights, compared to transformers' own loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import tiny_vision
from tests.drawing import draw
from workbench.vision.segmenting import MEAN, SPREAD, Segmenter

FRAMES, HEIGHT, WIDTH = 6, 48, 64
VIDEO = draw(FRAMES, (WIDTH, HEIGHT))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Segmenter:
    return Segmenter(str(tiny_vision.make_segmenter(tmp_path_factory.mktemp("sam") / "model")), "cpu")


def box(left: int, right: int) -> np.ndarray:
    mask = np.zeros((HEIGHT, WIDTH), np.uint8)
    mask[16:32, left:right] = 255
    return mask


def silent(done: int, steps: int) -> None:
    pass


def test_every_frame_gets_a_mask_and_confidence_and_painted_masks_stay(model: Segmenter) -> None:
    steps: list[tuple[int, int]] = []
    masks, confidence = model.track(VIDEO, {2: box(18, 34)}, lambda *step: steps.append(step))
    assert (masks.shape, masks.dtype, confidence.shape) == ((FRAMES, HEIGHT, WIDTH), np.uint8, (FRAMES,))
    assert (masks[2] == box(18, 34)).all()
    assert confidence[2] == 1
    assert ((confidence >= 0) & (confidence <= 1)).all()
    assert (np.delete(confidence, 2) < 1).all()
    assert steps == [(step, FRAMES - 1) for step in range(1, FRAMES)]


def test_a_correction_changes_the_frames_around_it(model: Segmenter) -> None:
    once, _ = model.track(VIDEO, {0: box(0, 16)}, silent)
    corrected, trust = model.track(VIDEO, {0: box(0, 16), 3: box(40, 60)}, silent)
    assert (corrected[3] == box(40, 60)).all()
    assert trust[3] == 1
    assert (once[4] != corrected[4]).any()
    again, _ = model.track(VIDEO, {0: box(0, 16)}, silent)
    assert (once == again).all(), "nothing is left of an earlier clip"


def test_results_equal_those_of_transformers_loop(model: Segmenter) -> None:
    import torch
    from transformers import Sam2VideoInferenceSession

    side = model.model.image_size
    colors = torch.from_numpy(VIDEO).permute(0, 3, 1, 2).float() / 255
    as_it_is: dict[str, Any] = {"size": (side, side), "mode": "bilinear", "align_corners": False, "antialias": True}
    resized = torch.nn.functional.interpolate(colors, **as_it_is)
    mean, spread = (torch.tensor(one)[:, None, None] for one in (MEAN, SPREAD))
    session = Sam2VideoInferenceSession(
        video=(resized - mean) / spread, video_height=HEIGHT, video_width=WIDTH, dtype=torch.float32
    )
    given = torch.from_numpy(box(0, 16))[None, None].float() / 255
    given = torch.nn.functional.interpolate(given, **as_it_is)
    session.add_mask_inputs(session.obj_id_to_idx(1), 0, (given >= 0.5).float())
    session.obj_with_new_inputs = [1]
    model.model(inference_session=session, frame_idx=0)
    stock = {out.frame_idx: out for out in model.model.propagate_in_video_iterator(session, start_frame_idx=0)}
    masks, _ = model.track(VIDEO, {0: box(0, 16)}, silent)
    for number in range(1, FRAMES):
        edges = torch.nn.functional.interpolate(stock[number].pred_masks, (HEIGHT, WIDTH), mode="bilinear")
        expected = (edges[0, 0].sigmoid() * 255).round().numpy()
        assert np.abs(masks[number].astype(float) - expected).max() <= 1


def test_the_callback_can_stop_tracking(model: Segmenter) -> None:
    def stop(done: int, steps: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.track(VIDEO, {0: box(0, 16)}, stop)
    assert not model.model.mask_decoder._forward_hooks

"""Turn frames into what depth and pose ControlNets expect: gray depth maps, or OpenPose skeletons on black.

Depth is estimated frame by frame (white is near, black is far) and normalized over the whole clip, so that brightness
does not flicker as objects enter and leave the frame. For poses, a detector finds the people in each frame, and a pose
model finds each person's joints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from workbench.errors import ConfigError
from workbench.vision.local_models import MEAN, SPREAD, KnownModel, LocalModel, Picture, fetch, fits, load

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

TOO_LARGE = "the GPU ran out of memory for the frames: choose a smaller model, or the device cpu"

# ---- depth -----------------------------------------------------------------------------------------------------------

SMALL, COMMIT = "depth-anything/Depth-Anything-V2-Small-hf", "5426e4f0f36572d16453bbda7a8389317b1bef99"
DEPTH_MODELS = (KnownModel(SMALL, "Depth Anything V2 Small", COMMIT, 1, 0.1, "Apache-2.0"),)
METRIC = ("depth_pro", "glpn", "prompt_depth_anything", "zoedepth")  # predict meters; others predict inverse depth
NEAREST = 1e-2  # meters
OUTLIERS = 0.5  # percent of pixels clipped to black, and to white
SAMPLED = 8  # every n-th row and column is sampled for the percentiles


class Depth(LocalModel):
    """A model for AutoModelForDepthEstimation, such as Depth Anything."""

    KIND: ClassVar[str] = "AutoModelForDepthEstimation"
    PROCESSOR: ClassVar[str] = "AutoImageProcessor"
    KNOWN: ClassVar[tuple[KnownModel, ...]] = DEPTH_MODELS

    def pictures(self, frames: Iterable[Picture]) -> Iterator[Picture]:
        """Yield a depth picture per frame, once all frames have been read. Raises OutOfMemory."""
        import cv2
        import numpy as np

        size, depths = (0, 0), []
        with fits(TOO_LARGE):
            for frame in frames:
                size = frame.shape[1], frame.shape[0]
                depths.append(self._inverse_depth(frame))
        if not depths:
            return
        sampled = np.concatenate([depth[::SAMPLED, ::SAMPLED].ravel() for depth in depths])
        far, near = np.percentile(sampled, (OUTLIERS, 100 - OUTLIERS))
        for depth in depths:
            shade = ((depth - far) / max(1e-6, near - far)).clip(0, 1)
            gray: Any = cv2.resize(np.round(shade * 255).astype(np.uint8), size, interpolation=cv2.INTER_LINEAR)
            yield np.repeat(gray[..., None], 3, axis=2)

    def _inverse_depth(self, frame: Picture) -> Any:
        """Return [h, w], float32, at the model's resolution: larger is nearer."""
        import torch
        from PIL import Image

        config = self.model.config
        with torch.inference_mode():
            inputs = self.processor(images=Image.fromarray(frame), return_tensors="pt").to(self.model.device)
            depth = self.model(**inputs).predicted_depth[0].float()
            if config.model_type in METRIC or getattr(config, "depth_estimation_type", "relative") == "metric":
                depth = 1 / depth.clamp_min(NEAREST)
            return depth.cpu().numpy()


# ---- poses -----------------------------------------------------------------------------------------------------------

VITPOSE, VITPOSE_COMMIT = "usyd-community/vitpose-base-simple", "f6e1613793fc8a9220d857bdc4b9fc23f79eafe9"
RTDETR, RTDETR_COMMIT = "PekingU/rtdetr_r50vd_coco_o365", "457857cec8ac28ddede40ecee9eed2beca321af8"
POSE_MODELS = (KnownModel(VITPOSE, "ViTPose Base", VITPOSE_COMMIT, 1, 0.34, "Apache-2.0"),)
DETECTORS = (KnownModel(RTDETR, "RT-DETR R50", RTDETR_COMMIT, 1, 0.17, "Apache-2.0"),)
PERSON = 0.5  # minimum score of a person
JOINT = 0.3  # minimum score of a joint
MOST_PEOPLE = 20  # per frame, by score
MARGIN = 1.25  # scale of a person's box, as in ViTPose's training
JOINTS = 17  # COCO: nose, eyes, ears, shoulders, elbows, wrists, hips, knees, ankles; left before right

# OpenPose's 18 points as COCO joint numbers. The neck (-1) lies midway between the shoulders.
POINTS = (0, -1, 6, 8, 10, 5, 7, 9, 12, 14, 16, 11, 13, 15, 2, 1, 4, 3)
NECK, SHOULDERS = 1, (5, 6)
LIMBS = (
    *((1, 2), (1, 5), (2, 3), (3, 4), (5, 6), (6, 7), (1, 8), (8, 9), (9, 10), (1, 11), (11, 12), (12, 13)),
    *((1, 0), (0, 14), (14, 16), (0, 15), (15, 17)),
)
COLORS = (
    *((255, 0, 0), (255, 85, 0), (255, 170, 0), (255, 255, 0), (170, 255, 0), (85, 255, 0), (0, 255, 0)),
    *((0, 255, 85), (0, 255, 170), (0, 255, 255), (0, 170, 255), (0, 85, 255), (0, 0, 255), (85, 0, 255)),
    *((170, 0, 255), (255, 0, 255), (255, 0, 170), (255, 0, 85)),
)
LIMB_SHADE = 0.6  # limbs are darker than joints
STROKE = 4 / 512  # half the width of a limb, relative to the frame's shorter side

Person: TypeAlias = "tuple[NDArray[np.float32], NDArray[np.float32]]"
"""Joint positions [17, 2], x and y in pixels, and scores [17], 0 to 1."""


class Pose(LocalModel):
    """A ViTPose model with COCO joints and a person detector."""

    KIND: ClassVar[str] = "VitPoseForPoseEstimation"
    TYPE: ClassVar[str] = "vitpose"
    KNOWN: ClassVar[tuple[KnownModel, ...]] = POSE_MODELS

    def __init__(self, model: str = "", device: str = "auto", detector: str = "") -> None:
        super().__init__(model, device)
        joints = self.model.config.num_labels
        if joints != JOINTS:
            raise ConfigError(f"model is {model}, which has {joints} joints, not COCO's {JOINTS}: choose another")
        folder = fetch(detector or DETECTORS[0].id, DETECTORS, "detector", any_of_hub=True)
        kinds = "AutoModelForObjectDetection", "AutoImageProcessor"
        self.detector, self.detector_processor = load(folder, self.device, *kinds)
        self.person = {number for number, name in self.detector.config.id2label.items() if name.lower() == "person"}
        if not self.person:
            raise ConfigError(f"detector is {detector}, which has no class person: choose {DETECTORS[0].id}")

    def close(self) -> None:
        self.detector = self.detector_processor = None
        super().close()

    def pictures(self, frames: Iterable[Picture]) -> Iterator[Picture]:
        """Draw the people of each frame. Raises OutOfMemory."""
        import numpy as np

        for frame in frames:
            drawn = np.zeros_like(frame)
            with fits(TOO_LARGE):
                people = self.people(frame)
            for places, scores in people:
                draw(drawn, places, scores)
            yield drawn

    def people(self, frame: Picture) -> list[Person]:
        """Find the people in a frame and their joints, highest score first."""
        import torch
        from PIL import Image

        with torch.inference_mode():
            inputs = self.detector_processor(images=Image.fromarray(frame), return_tensors="pt")
            inputs = inputs.to(self.detector.device)
            [found] = self.detector_processor.post_process_object_detection(
                self.detector(**inputs), threshold=PERSON, target_sizes=[frame.shape[:2]]
            )
            kinds = found["labels"].tolist()
            boxes = [box for box, kind in zip(found["boxes"].tolist(), kinds, strict=True) if kind in self.person]
            if not boxes:
                return []
            return self._joints(frame, [_fit_box(box, self._size) for box in boxes[:MOST_PEOPLE]])

    @property
    def _size(self) -> tuple[int, int]:
        """Width and height of the pose model's input."""
        height, width = self.model.config.backbone_config.image_size
        return width, height

    def _joints(self, frame: Picture, boxes: list[tuple[float, float, float, float]]) -> list[Person]:
        """Find joints in boxes (left, top, width, height) that have the aspect ratio of the model's input."""
        import cv2
        import numpy as np
        import torch

        (width, height), crops = self._size, []
        for left, top, box_width, box_height in boxes:
            scale_x, scale_y = (width - 1) / box_width, (height - 1) / box_height
            matrix = np.array([[scale_x, 0, -left * scale_x], [0, scale_y, -top * scale_y]], np.float32)
            crop: Any = cv2.warpAffine(frame, matrix, (width, height), flags=cv2.INTER_LINEAR)
            crops.append(((crop / 255 - np.array(MEAN)) / np.array(SPREAD)).transpose(2, 0, 1).astype(np.float32))
        inputs = {"pixel_values": torch.from_numpy(np.stack(crops)).to(self.model.device)}
        if self.model.config.backbone_config.num_experts > 1:  # ViTPose++: the first expert is trained on COCO
            inputs["dataset_index"] = torch.zeros(len(crops), dtype=torch.long, device=self.model.device)
        places, scores = peaks(self.model(**inputs).heatmaps.float().cpu().numpy())
        corners = np.array(boxes, np.float32)[:, None]  # [N, 1, 4]
        return list(zip(corners[..., :2] + places * corners[..., 2:], scores, strict=True))


def _fit_box(box: list[float], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Widen a person's box (left, top, right, bottom) to an aspect ratio, with a margin: left, top, width, height."""
    left, top, right, bottom = box
    aspect = size[0] / size[1]
    width = max(right - left, (bottom - top) * aspect, 1.0) * MARGIN
    height = width / aspect
    return (left + right - width) / 2, (top + bottom - height) / 2, width, height


def peaks(heat: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Find the peak of heatmaps [N, K, h, w], by fitting a parabola to the highest cell's neighborhood.

    Returns:
        Positions [N, K, 2], x and y from 0 (first cell) to 1 (last cell), and peak values [N, K].
    """
    import numpy as np

    height, width = heat.shape[2:]
    highest = heat.reshape(*heat.shape[:2], -1).argmax(-1)
    rows, columns = np.divmod(highest, width)
    padded = np.pad(heat, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="reflect")  # so that a peak at the border stays there
    people, joints = np.ogrid[: heat.shape[0], : heat.shape[1]]

    def at(down: int, across: int) -> NDArray[np.float32]:
        found: NDArray[np.float32] = padded[people, joints, rows + 1 + down, columns + 1 + across]
        return found

    def offset(before: NDArray[np.float32], after: NDArray[np.float32]) -> NDArray[np.float32]:
        curvature = np.maximum(2 * at(0, 0) - before - after, 1e-6)
        found: NDArray[np.float32] = ((after - before) / (2 * curvature)).clip(-0.5, 0.5)
        return found

    x, y = columns + offset(at(0, -1), at(0, 1)), rows + offset(at(-1, 0), at(1, 0))
    places = np.stack([x / max(1, width - 1), y / max(1, height - 1)], axis=-1)
    return places.astype(np.float32), at(0, 0)


def draw(canvas: Picture, places: NDArray[np.float32], scores: NDArray[np.float32]) -> None:
    """Draw a person's skeleton as OpenPose does: limbs first, then joints. places, scores: as in `Person`."""
    import cv2
    import numpy as np

    seen = [joint >= 0 and bool(scores[joint] >= JOINT) for joint in POINTS]
    points = [places[joint] for joint in POINTS]
    seen[NECK] = all(scores[shoulder] >= JOINT for shoulder in SHOULDERS)
    points[NECK] = places[list(SHOULDERS)].mean(0)
    stroke = max(1, round(STROKE * min(canvas.shape[:2])))
    for (start, end), color in zip(LIMBS, COLORS, strict=False):
        if seen[start] and seen[end]:
            center, delta = (points[start] + points[end]) / 2, points[end] - points[start]
            axes = (round(float(np.hypot(*delta)) / 2), stroke)
            angle = round(float(np.degrees(np.arctan2(delta[1], delta[0]))))
            limb: Any = cv2.ellipse2Poly((round(float(center[0])), round(float(center[1]))), axes, angle, 0, 360, 1)
            cv2.fillConvexPoly(canvas, limb, [shade * LIMB_SHADE for shade in color])
    for point, visible, color in zip(points, seen, COLORS, strict=True):
        if visible:
            cv2.circle(canvas, (round(float(point[0])), round(float(point[1]))), stroke, color, thickness=-1)

"""How near each place of a video is, as a gray one: white is near, black is far, as depth ControlNets have it.

A model tells the depth of single frames. What is nearest and farthest is looked for in the whole clip, so that its
brightness does not change from frame to frame with what else is in the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import numpy as np

from workbench.vision.local_models import KnownModel, LocalModel, Picture, fits

MODELS = (
    KnownModel(
        "depth-anything/Depth-Anything-V2-Small-hf",
        "Depth Anything V2 Small",
        "5426e4f0f36572d16453bbda7a8389317b1bef99",
        1,
        0.1,
        "Apache-2.0",
    ),
)
METRIC = ("depth_pro", "glpn", "prompt_depth_anything", "zoedepth")  # tell meters; the others tell nearness
NEAREST = 1e-2  # meters
OUTLIERS = 0.5  # percent of all places that may be nearer than white, or farther than black
SAMPLED = 8  # of so many pixels of a row and a column one is looked at for that


class Depth(LocalModel):
    """A model for AutoModelForDepthEstimation, such as Depth Anything."""

    KIND: ClassVar[str] = "AutoModelForDepthEstimation"
    PROCESSOR: ClassVar[str] = "AutoImageProcessor"
    KNOWN: ClassVar[tuple[KnownModel, ...]] = MODELS

    def pictures(self, frames: Iterable[Picture]) -> Iterator[Picture]:
        """Make a gray picture of each frame; the first comes when all frames were looked at.

        Raises OutOfMemory.
        """
        import cv2

        size, found = (0, 0), []
        with fits("the GPU has not enough memory for the frames: choose a smaller model, or the device cpu"):
            for frame in frames:
                size = frame.shape[1], frame.shape[0]
                found.append(self._nearness(frame))
        if not found:
            return
        sampled = np.concatenate([one[::SAMPLED, ::SAMPLED].ravel() for one in found])
        far, near = np.percentile(sampled, (OUTLIERS, 100 - OUTLIERS))
        for one in found:
            shade = ((one - far) / max(1e-6, near - far)).clip(0, 1)
            gray: Any = cv2.resize(np.round(shade * 255).astype(np.uint8), size, interpolation=cv2.INTER_LINEAR)
            yield np.repeat(gray[..., None], 3, axis=2)

    def _nearness(self, frame: Picture) -> Any:
        """[h, w], float32, at the model's own resolution: larger is nearer."""
        import torch
        from PIL import Image

        config = self.model.config
        with torch.inference_mode():
            inputs = self.processor(images=Image.fromarray(frame), return_tensors="pt").to(self.model.device)
            depth = self.model(**inputs).predicted_depth[0].float()
            if config.model_type in METRIC or getattr(config, "depth_estimation_type", "relative") == "metric":
                depth = 1 / depth.clamp_min(NEAREST)
            return depth.cpu().numpy()

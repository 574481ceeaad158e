"""Turn a video into a gray depth video as depth ControlNets expect it: white is near, black is far.

The model estimates depth frame by frame. Values are normalized over the whole clip, so that brightness does not flicker
as objects enter and leave the frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

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
METRIC = ("depth_pro", "glpn", "prompt_depth_anything", "zoedepth")  # predict meters; others predict inverse depth
NEAREST = 1e-2  # meters
OUTLIERS = 0.5  # percent of pixels clipped to black, and to white
SAMPLED = 8  # every n-th row and column is sampled for the percentiles


class Depth(LocalModel):
    """A model for AutoModelForDepthEstimation, such as Depth Anything."""

    KIND: ClassVar[str] = "AutoModelForDepthEstimation"
    PROCESSOR: ClassVar[str] = "AutoImageProcessor"
    KNOWN: ClassVar[tuple[KnownModel, ...]] = MODELS

    def pictures(self, frames: Iterable[Picture]) -> Iterator[Picture]:
        """Yield a depth picture per frame, once all frames have been read. Raises OutOfMemory."""
        import cv2
        import numpy as np

        size, depths = (0, 0), []
        with fits("the GPU ran out of memory for the frames: choose a smaller model, or the device cpu"):
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

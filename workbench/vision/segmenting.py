"""Carry masks that were painted on a few frames through a video with SAM 2.

The painted frames are the model's prompts. From the first one it goes through the frames to the end, then back to the
beginning; it remembers the painted frames and the last ones that it saw. It says of each mask how well it expects it to
fit, and whether it sees the subject at all: both make a frame's confidence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from workbench.vision.local_models import MEAN, SPREAD, KnownModel, LocalModel, Picture, fits

MODELS = (
    KnownModel(
        "facebook/sam2.1-hiera-tiny",
        "SAM 2.1 Tiny",
        "de431c4043854a71d8101e17995dfe596bf101a5",
        2,
        0.16,
        "Apache-2.0",
    ),
    KnownModel(
        "facebook/sam2.1-hiera-small",
        "SAM 2.1 Small",
        "ee5bba1d82bb8749febdf90f45e84b687142ba03",
        2,
        0.18,
        "Apache-2.0",
    ),
    KnownModel(
        "facebook/sam2.1-hiera-large",
        "SAM 2.1 Large",
        "665f8e2ad61cf5f53d65644ff27c8ee525124610",
        4,
        0.9,
        "Apache-2.0",
    ),
)
SIDE = 1024  # pixels of the longer side: the model sees no more
TOO_LARGE = "the GPU has not enough memory to track: choose a smaller model, or the device cpu"
SUBJECT = 1  # what the model calls the one thing that is tracked
Mask = NDArray[np.uint8]


class Segmenter(LocalModel):
    """A SAM 2 for videos."""

    KIND: ClassVar[str] = "Sam2VideoModel"
    TYPE: ClassVar[str] = "sam2_video"
    KNOWN: ClassVar[tuple[KnownModel, ...]] = MODELS
    HALF: ClassVar[bool] = True

    def track(
        self, frames: NDArray[np.uint8], painted: Mapping[int, Mask], said: Callable[[int, int], None]
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Carry painted masks through a video.

        Args:
            frames: [F, H, W, 3], RGB.
            painted: Frame number -> its mask, [H, W], 0 (outside) to 255 (inside). One at least.
            said: Told the steps done and their number; may raise to stop.

        Returns:
            Masks, [F, H, W], 0 to 255, soft at the edges; and the confidence of each, [F], 0 to 1.

        Raises:
            OutOfMemory
        """
        import torch

        masks, confidence = np.zeros(frames.shape[:3], np.uint8), np.ones(len(frames), np.float32)
        # The model tells how well it expects its mask to fit, but passes it on to nobody.
        fit: list[float] = []
        hook = self.model.mask_decoder.register_forward_hook(lambda *call: fit.append(float(call[2][1].max())))
        try:
            with fits(TOO_LARGE), torch.inference_mode():
                session, remembered = self._prompted(frames, painted)
                for number, mask in painted.items():
                    masks[number] = mask
                first, done = min(painted), 0
                for way in (range(first + 1, len(frames)), range(first - 1, -1, -1)):
                    gone = not (painted[first] > 127).any()  # whether the last painted frame has no subject
                    for number in way:
                        if number in painted:
                            gone = not (painted[number] > 127).any()
                        else:
                            masks[number], presence = self._next(session, number, way.step < 0)
                            empty = gone and not (masks[number] > 127).any()
                            confidence[number] = 1 - presence if empty else presence * min(1.0, max(0.0, fit[-1]))
                            remembered.pop(number - way.step * self.model.config.max_object_pointers_in_encoder, None)
                        done += 1
                        said(done, len(frames) - 1)
                    remembered.clear()
        finally:
            hook.remove()
        return masks, confidence

    def _prompted(self, frames: NDArray[np.uint8], painted: Mapping[int, Mask]) -> tuple[Any, dict[int, Any]]:
        """A session that knows the painted frames; and what it keeps of the others, by number."""
        import torch
        from transformers import Sam2VideoInferenceSession

        height, width = frames.shape[1:3]
        device, dtype = self.model.device, self.model.dtype
        devices = {"inference_device": device, "inference_state_device": device, "video_storage_device": device}
        session = Sam2VideoInferenceSession(video_height=height, video_width=width, dtype=dtype, **devices)
        session.processed_frames = _Seen(frames, self._prepared)
        subject = session.obj_id_to_idx(SUBJECT)
        for number, mask in painted.items():
            given = torch.from_numpy(np.ascontiguousarray(mask))[None, None].to(device).float() / 255
            session.add_mask_inputs(subject, number, (self._resized(given) >= 0.5).float())
            session.obj_with_new_inputs = [SUBJECT]
            self.model(inference_session=session, frame_idx=number)
        return session, session.output_dict_per_obj[subject]["non_cond_frame_outputs"]

    def _next(self, session: Any, number: int, back: bool) -> tuple[Mask, float]:
        """The mask of a frame, and how likely the subject is in it."""
        import torch

        found = self.model(inference_session=session, frame_idx=number, reverse=back)
        size = session.video_height, session.video_width
        edges = torch.nn.functional.interpolate(found.pred_masks.float(), size, mode="bilinear", align_corners=False)
        mask: Mask = (edges[0, 0].sigmoid() * 255).round().byte().cpu().numpy()
        return mask, float(found.object_score_logits.float().sigmoid().max())

    def _prepared(self, frame: Picture) -> Any:
        """A frame as the model takes it, [3, side, side]."""
        import torch

        device = self.model.device
        colors = torch.from_numpy(np.ascontiguousarray(frame)).to(device).permute(2, 0, 1)[None].float() / 255
        mean, spread = (torch.tensor(one, device=device)[:, None, None] for one in (MEAN, SPREAD))
        return ((self._resized(colors) - mean) / spread)[0].to(self.model.dtype)

    def _resized(self, picture: Any) -> Any:
        """A picture of the model's size. picture: [1, C, H, W]"""
        import torch

        side = self.model.image_size
        return torch.nn.functional.interpolate(
            picture, (side, side), mode="bilinear", align_corners=False, antialias=True
        )


class _Seen:
    """Frames as a session asks for them, each prepared when it is: all at once, a long video would fill the memory."""

    def __init__(self, frames: NDArray[np.uint8], prepare: Callable[[Picture], Any]) -> None:
        self._frames, self._prepare = frames, prepare

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, number: int) -> Any:
        return self._prepare(self._frames[number])

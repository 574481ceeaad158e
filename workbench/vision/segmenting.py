"""Propagate masks painted on a few frames through a video with SAM 2.

The painted frames are the model's prompts. Tracking runs from the first painted frame to the end of the video, then
backward to the start; the model remembers the painted frames and the most recent others. A frame's confidence combines
the model's estimate of mask quality with its estimate of whether the subject is visible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from workbench.vision.local_models import MEAN, SPREAD, KnownModel, LocalModel, Picture, fits

SAM = "facebook/sam2.1-hiera-"
MODELS = (
    KnownModel(f"{SAM}tiny", "SAM 2.1 Tiny", "de431c4043854a71d8101e17995dfe596bf101a5", 2, 0.16, "Apache-2.0"),
    KnownModel(f"{SAM}small", "SAM 2.1 Small", "ee5bba1d82bb8749febdf90f45e84b687142ba03", 2, 0.18, "Apache-2.0"),
    KnownModel(f"{SAM}large", "SAM 2.1 Large", "665f8e2ad61cf5f53d65644ff27c8ee525124610", 4, 0.9, "Apache-2.0"),
)
SIDE = 1024  # pixels of the longer side, the model's input resolution
TOO_LARGE = "the GPU ran out of memory while tracking: choose a smaller model, or the device cpu"
SUBJECT = 1  # object id of the tracked subject
Mask = NDArray[np.uint8]


class Segmenter(LocalModel):
    """A SAM 2 video model."""

    KIND: ClassVar[str] = "Sam2VideoModel"
    TYPE: ClassVar[str] = "sam2_video"
    KNOWN: ClassVar[tuple[KnownModel, ...]] = MODELS
    HALF: ClassVar[bool] = True

    def track(
        self, frames: NDArray[np.uint8], painted: Mapping[int, Mask], on_step: Callable[[int, int], None]
    ) -> tuple[NDArray[np.uint8], NDArray[np.float32]]:
        """Propagate painted masks through a video; return masks [F, H, W], soft at the edges, and confidences [F], 0 to
        1.

        frames: [F, H, W, 3], RGB.
        painted: frame number -> mask [H, W], 0 (outside) to 255 (inside). At least one.
        on_step: called with the steps done and their total; may raise to stop. Raises OutOfMemory.
        """
        import torch

        masks, confidence = np.zeros(frames.shape[:3], np.uint8), np.ones(len(frames), np.float32)
        # The mask decoder predicts the IoU of its mask, but the model does not return it.
        iou: list[float] = []
        hook = self.model.mask_decoder.register_forward_hook(lambda *call: iou.append(float(call[2][1].max())))
        try:
            with fits(TOO_LARGE), torch.inference_mode():
                session, remembered = self._prompted(frames, painted)
                for number, mask in painted.items():
                    masks[number] = mask
                first, done = min(painted), 0
                for numbers in (range(first + 1, len(frames)), range(first - 1, -1, -1)):
                    gone = not (painted[first] > 127).any()  # whether the last painted frame has no subject
                    for number in numbers:
                        if number in painted:
                            gone = not (painted[number] > 127).any()
                        else:
                            masks[number], presence = self._next(session, number, numbers.step < 0)
                            empty = gone and not (masks[number] > 127).any()
                            confidence[number] = 1 - presence if empty else presence * min(1.0, max(0.0, iou[-1]))
                            oldest = number - numbers.step * self.model.config.max_object_pointers_in_encoder
                            remembered.pop(oldest, None)
                        done += 1
                        on_step(done, len(frames) - 1)
                    remembered.clear()
        finally:
            hook.remove()
        return masks, confidence

    def _prompted(self, frames: NDArray[np.uint8], painted: Mapping[int, Mask]) -> tuple[Any, dict[int, Any]]:
        """Start a session prompted with the painted frames; return it and its memory of other frames, by number."""
        import torch
        from transformers import Sam2VideoInferenceSession

        height, width = frames.shape[1:3]
        device, dtype = self.model.device, self.model.dtype
        devices = {"inference_device": device, "inference_state_device": device, "video_storage_device": device}
        session = Sam2VideoInferenceSession(video_height=height, video_width=width, dtype=dtype, **devices)
        session.processed_frames = _LazyFrames(frames, self._prepared)
        subject = session.obj_id_to_idx(SUBJECT)
        for number, mask in painted.items():
            given = torch.from_numpy(np.ascontiguousarray(mask))[None, None].to(device).float() / 255
            session.add_mask_inputs(subject, number, (self._resized(given) >= 0.5).float())
            session.obj_with_new_inputs = [SUBJECT]
            self.model(inference_session=session, frame_idx=number)
        return session, session.output_dict_per_obj[subject]["non_cond_frame_outputs"]

    def _next(self, session: Any, number: int, back: bool) -> tuple[Mask, float]:
        """Return a frame's mask and the probability that the subject is visible."""
        import torch

        found = self.model(inference_session=session, frame_idx=number, reverse=back)
        size = session.video_height, session.video_width
        logits = torch.nn.functional.interpolate(found.pred_masks.float(), size, mode="bilinear", align_corners=False)
        mask: Mask = (logits[0, 0].sigmoid() * 255).round().byte().cpu().numpy()
        return mask, float(found.object_score_logits.float().sigmoid().max())

    def _prepared(self, frame: Picture) -> Any:
        """Resize and normalize a frame for the model: [3, side, side]."""
        import torch

        device = self.model.device
        colors = torch.from_numpy(np.ascontiguousarray(frame)).to(device).permute(2, 0, 1)[None].float() / 255
        mean, spread = (torch.tensor(one, device=device)[:, None, None] for one in (MEAN, SPREAD))
        return ((self._resized(colors) - mean) / spread)[0].to(self.model.dtype)

    def _resized(self, picture: Any) -> Any:
        """Resize a picture [1, C, H, W] to the model's input size."""
        import torch

        side = self.model.image_size
        return torch.nn.functional.interpolate(
            picture, (side, side), mode="bilinear", align_corners=False, antialias=True
        )


class _LazyFrames:
    """A session's frames, prepared on access: a long video prepared all at once would not fit in memory."""

    def __init__(self, frames: NDArray[np.uint8], prepare: Callable[[Picture], Any]) -> None:
        self._frames, self._prepare = frames, prepare

    def __len__(self) -> int:
        return len(self._frames)

    def __getitem__(self, number: int) -> Any:
        return self._prepare(self._frames[number])

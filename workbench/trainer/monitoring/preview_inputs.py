"""What previews are made of: prompts with the model's other inputs, and clips as they go into training.

Not covered: generating them (previews).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps

from workbench import policy
from workbench.errors import ConfigError
from workbench.runs.data import RunClip, TrainingData
from workbench.runs.settings import TrainSettings
from workbench.trainer.inputs.batch_inputs import BatchInputs
from workbench.trainer.inputs.encoder import read_video
from workbench.trainer.monitoring.preview_files import PreviewPrompt
from workbench.trainer.monitoring.previews import PreviewClip

CLIPS = 2  # whose captions are the prompts where none are given, and that are kept as training inputs


class PreviewInputs:
    """The prompts and clips of one run."""

    def __init__(self, data: TrainingData, settings: TrainSettings, preservation_prompts: Sequence[str] = ()) -> None:
        self._settings, self._preservation_prompts = settings, preservation_prompts
        self._known = [item for item in data.regularization if item.bucket == data.buckets[0]]
        # Previews have the run's first shape, so a picture must have it, too.
        fitting = [item for item in (*data.held_out, *data.train) if item.bucket == data.buckets[0]]
        self._items = fitting or [*data.held_out, *data.train]
        self.prompts = list(settings.preview_prompts) or [item.caption for item in self._items[:CLIPS]]

    def with_embeddings(self, prompts: Sequence[str], inputs: BatchInputs) -> list[PreviewPrompt]:
        """The prompts with their embeddings, and for an image-to-video model each with its picture."""
        return [self._preview_of(one, self._item(one), self.picture(one, inputs), inputs) for one in prompts]

    def controls(self, inputs: BatchInputs) -> list[PreviewPrompt]:
        """What the LoRA should leave alone, as many as the run's settings and its own previews allow.

        Preservation prompts; for a model that is shown a picture, clips of the regularization dataset, as a picture of
        the new concept would be no control. None where previews stay latents, which nothing compares.
        """
        count = 0 if self._settings.preview_latents_only else min(self._settings.preview_controls, len(self.prompts))
        if inputs.view == "clip":
            found = [self._preview_of(one, self._items[0], None, inputs) for one in self._preservation_prompts[:count]]
        else:
            pictures = [None if self._conditioned(inputs) else inputs.picture(item) for item in self._known[:count]]
            known = zip(self._known, pictures, strict=False)
            found = [self._preview_of(item.caption, item, picture, inputs) for item, picture in known]
        return [one._replace(control=number) for number, one in enumerate(found)]

    def _preview_of(self, prompt: str, item: RunClip, image: torch.Tensor | None, inputs: BatchInputs) -> PreviewPrompt:
        given = next(inputs.clips([item])).given if self._conditioned(inputs) else None
        return PreviewPrompt(prompt, inputs.embeddings([prompt]), image, given)

    def picture(self, prompt: str, inputs: BatchInputs) -> torch.Tensor | None:
        """The picture that a video of a prompt begins with: float32 [1, 3, H, W] in [-1, 1]; None without one."""
        if inputs.view == "clip" or self._conditioned(inputs):
            return None
        given, item = self._settings.preview_images, self._item(prompt)
        return read_picture(Path(given[self._index(prompt) % len(given)]), item) if given else inputs.picture(item)

    def _conditioned(self, inputs: BatchInputs) -> bool:
        """Whether a clip gives more than a picture."""
        return inputs.view != "clip" and (inputs.view == "low resolution" or self._settings.condition_frames == "every")

    def _index(self, prompt: str) -> int:
        return self.prompts.index(prompt) if prompt in self.prompts else 0

    def _item(self, prompt: str) -> RunClip:
        return self._items[self._index(prompt) % len(self._items)]

    def clips(self, inputs: BatchInputs) -> list[PreviewClip]:
        """Some clips as the model reads them; latents have no frames to show."""
        found = []
        for item in [item for item in self._items if not item.plan.clip.is_latents][:CLIPS]:
            probe = next(inputs.clips([item]))
            assert probe.moments is not None
            found.append(PreviewClip(item.name, item.caption, read_video(item), probe.moments, probe.shape))
        return found


def read_picture(path: Path, like: RunClip) -> torch.Tensor:
    """A picture file scaled and cropped to a clip's shape: float32 [1, 3, H, W] in [-1, 1]. Raises ConfigError."""
    size = (like.bucket.width, like.bucket.height)
    try:
        with Image.open(policy.resolve(path, "preview_images")) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
            fitted = ImageOps.fit(upright, size, Image.Resampling.BICUBIC)
    except (OSError, ValueError) as error:
        sentence = f"preview_images has {str(path)!r}, which cannot be read as a picture ({error}): give another"
        raise ConfigError(sentence, {"preview_images": sentence}) from error
    pixels = torch.from_numpy(np.array(fitted)).permute(2, 0, 1)
    return (pixels.float() / 127.5 - 1.0).unsqueeze(0)

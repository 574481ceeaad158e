"""Captions from vision-language models on this machine, run with transformers.

A model is one of the choices below at its pinned commit, or a folder with any model that AutoModelForImageTextToText
supports. Weights are read from safetensors only, and a model's own code is never run. We sample the frames ourselves
and pass their timestamps, because processors would otherwise resample at their own rates. The processors need a
torchvision that matches torch (the extra `caption`). Sizes are estimates; memory is for bfloat16 and eight frames.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, ClassVar

from workbench.captioners.base import Captioner, CaptionerSettings, CaptionFailed, whole_sentences
from workbench.errors import ConfigError
from workbench.jobs.devices import pick_device
from workbench.jobs.torch_devices import free_memory
from workbench.paths import extra_command
from workbench.vision import local_models
from workbench.vision.local_models import KnownModel, fits

if TYPE_CHECKING:
    from workbench.clips.media import Pixels
    from workbench.workspace import Workspace

INSTALL = f"install the extra: {extra_command('caption')}, with torchvision from the same source as torch"

QWEN, SMOL = "Qwen/Qwen", "HuggingFaceTB/SmolVLM2-"
CHOICES = (
    KnownModel(f"{QWEN}3-VL-4B-Instruct", "Qwen3-VL 4B", "ebb281ec70b05090aa6165b016eac8ec08e71b17", 10, 8.9),
    KnownModel(f"{QWEN}3-VL-2B-Instruct", "Qwen3-VL 2B", "89644892e4d85e24eaac8bacfd4f463576704203", 6, 4.3),
    KnownModel(f"{QWEN}3-VL-8B-Instruct", "Qwen3-VL 8B", "0c351dd01ed87e9c1b53cbc748cba10e6187ff3b", 20, 17.5),
    KnownModel(f"{SMOL}2.2B-Instruct", "SmolVLM2 2.2B", "482adb537c021c86670beed01cd58990d01e72e4", 6, 9.0),
    KnownModel(f"{SMOL}500M-Video-Instruct", "SmolVLM2 500M", "7b375e1b73b11138ff12fe22c8f2822d8fe03467", 2, 2.0),
    KnownModel(f"{QWEN}2.5-VL-3B-Instruct", "Qwen2.5-VL 3B", "66285546d2b821cf421d4f5eb2576359d3770cd3", 9, 7.5),
    KnownModel(f"{QWEN}2.5-VL-7B-Instruct", "Qwen2.5-VL 7B", "cc594898137f460bfe9f0759e9844b3ce807cfb5", 20, 16.6),
)


class VisionLanguage(Captioner):
    """A model on this machine's GPU, which the job reserves, or on the CPU (slow)."""

    id: ClassVar[str] = "vision_language"
    title: ClassVar[str] = "A vision-language model on this machine"
    needs: ClassVar[str] = (
        "2 to 20 GB of GPU memory and a download of 1 to 18 GB, depending on the model; a torchvision that matches "
        "torch."
    )
    extra: ClassVar[str] = "caption"
    imports: ClassVar[tuple[str, ...]] = ("torchvision", "num2words")
    reads: ClassVar[tuple[str, ...]] = ("model", "device")
    choices: ClassVar[tuple[KnownModel, ...]] = CHOICES

    def __init__(self, settings: CaptionerSettings, workspace: Workspace) -> None:
        self._settings = settings
        self._model: Any = None
        self._processor: Any = None

    def check(self) -> None:
        super().check()
        local_models.check(self._settings.model, CHOICES)

    @property
    def model_name(self) -> str:
        return local_models.title_of(self._settings.model, CHOICES)

    def open(self) -> None:
        check_torchvision()
        device = pick_device(self._settings.device)
        folder = local_models.fetch(self._settings.model, CHOICES)
        kinds = "AutoModelForImageTextToText", "AutoProcessor"
        self._model, self._processor = local_models.load(folder, device, *kinds, half=True, install=INSTALL)

    def caption(self, frames: Pixels, fps: float, instruction: str) -> str:
        import torch

        too_large = "the GPU ran out of memory for the frames: lower frames or picture_side, or choose a smaller model"
        try:
            with fits(too_large), torch.inference_mode():
                inputs = self._inputs(frames, fps, instruction)
                longest = self._settings.longest_answer
                tokens = self._model.generate(**inputs, max_new_tokens=longest, do_sample=False)
                tokens = tokens[0, inputs["input_ids"].shape[1] :]
                text = str(self._processor.decode(tokens, skip_special_tokens=True))
                return whole_sentences(text) if len(tokens) >= longest else text
        except ValueError as error:  # such as a picture too narrow for the model's patches
            raise CaptionFailed(f"the model's processor rejected the frames ({error})") from error

    def close(self) -> None:
        if self._model is not None:
            self._model = self._processor = None
            free_memory()

    def _inputs(self, frames: Pixels, fps: float, instruction: str) -> Any:
        """Prepare the model's inputs: a picture for one frame, else a video with timestamps from `fps`."""
        count = len(frames)
        picture = {"type": "image", "image": frames[0]} if count == 1 else {"type": "video", "video": frames}
        options: dict[str, Any] = {}
        if count > 1:
            times = {"total_num_frames": count, "fps": fps, "duration": count / fps, "frames_indices": [*range(count)]}
            options = {"do_sample_frames": False, "video_metadata": [times]}
        message = {"role": "user", "content": [picture, {"type": "text", "text": instruction}]}
        inputs = self._processor.apply_chat_template(
            [message],
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",  # not in processor_kwargs, where SmolVLM's processor overrides it
            processor_kwargs=options,
        )
        return inputs.to(self._model.device, dtype=self._model.dtype)


def check_torchvision() -> None:
    """Raise ConfigError if torchvision is missing or was built for another torch."""
    try:
        importlib.import_module("torchvision")
    except ImportError:
        raise ConfigError(f"vision-language models need torchvision, which is not installed: {INSTALL}") from None
    except RuntimeError as error:  # its operators do not load with this torch
        raise ConfigError(f"the installed torchvision was built for another torch ({error}): {INSTALL}") from None


CAPTIONER = VisionLanguage

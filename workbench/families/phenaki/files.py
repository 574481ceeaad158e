"""A model's folder: diffusers' layout, with Phenaki's own classes; and the pipeline that loads LoRAs as diffusers does.

Not covered: loading single parts (family).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from workbench.families.model_files import INDEX, MADE_FOR
from workbench.workspace import link_or_copy, write_json

PIPELINE = "PhenakiPipeline"
OWN = "workbench.families.phenaki"
PARTS = {
    "tokenizer": ["transformers", "T5Tokenizer"],
    "text_encoder": ["transformers", "T5EncoderModel"],
    "vae": [f"{OWN}.tokenizer", "PhenakiTokenizer"],
    "transformer": [f"{OWN}.transformer", "PhenakiTransformer"],
}


def write(
    folder: Path, tokenizer: Any, transformer: Any, text: Path, made_for: dict[str, int], half: bool = False
) -> None:
    """Write a model.

    Args:
        text: a folder whose captions' tokenizer and encoder are copied, large files as links where the disk allows it
        half: weights as float16
    """
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("tokenizer", "text_encoder"):
        if text != folder:
            shutil.copytree(text / part, folder / part, copy_function=link_or_copy, dirs_exist_ok=True)
    for part, model in (("vae", tokenizer), ("transformer", transformer)):
        if half:
            import copy

            model = copy.deepcopy(model).half()
        model.save_pretrained(folder / part)
    write_json(folder / MADE_FOR, made_for)
    write_json(folder / INDEX, {"_class_name": PIPELINE, **PARTS})
    for part in ("vae", "transformer"):
        for file in (folder / part).iterdir():
            file.chmod(0o644)


def pipeline(transformer: Any) -> Any:
    """diffusers' loader of LoRAs around a transformer."""
    from diffusers import DiffusionPipeline
    from diffusers.loaders import CogVideoXLoraLoaderMixin

    class PhenakiPipeline(DiffusionPipeline, CogVideoXLoraLoaderMixin):
        def __init__(self, transformer: Any) -> None:
            super().__init__()
            self.register_modules(transformer=transformer)

    return PhenakiPipeline(transformer)

"""A random miniature model and LoRA files for it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.families import find_model

WriteLora = Callable[..., Path]


@pytest.fixture(scope="session")
def toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with rotary positions and DPM, as the larger ones have, in diffusers' layout."""
    folder = tmp_path_factory.mktemp("models") / "toy"
    find_model("tiny-cogvideox")[0].toy(folder, "rotary")
    return folder


@pytest.fixture(scope="session")
def image_toy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that starts from a first frame."""
    folder = tmp_path_factory.mktemp("models") / "image-toy"
    find_model("tiny-cogvideox")[0].toy(folder, "image-1.5")
    return folder


@pytest.fixture(scope="session")
def write_lora(toy_folder: Path) -> WriteLora:
    """write_lora(path, seed=0, rank=4, alpha=8.0): a LoRA for the toy model, strong enough to be seen."""
    return lambda path, seed=0, rank=4, alpha=8.0: _write_lora(toy_folder, path, seed, rank, alpha)


def _write_lora(model: Path, path: Path, seed: int, rank: int, alpha: float) -> Path:
    import torch
    from diffusers import CogVideoXPipeline, CogVideoXTransformer3DModel
    from diffusers.training_utils import _collate_lora_metadata
    from peft import LoraConfig, get_peft_model_state_dict

    transformer = CogVideoXTransformer3DModel.from_pretrained(model / "transformer")
    transformer.add_adapter(LoraConfig(r=rank, lora_alpha=alpha, target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
    noise = torch.Generator().manual_seed(seed)
    for name, parameter in transformer.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn(parameter.shape, generator=noise)
    path.parent.mkdir(parents=True, exist_ok=True)
    CogVideoXPipeline.save_lora_weights(
        path.parent,
        get_peft_model_state_dict(transformer),
        weight_name=path.name,
        **_collate_lora_metadata({"transformer": transformer}),
    )
    return path

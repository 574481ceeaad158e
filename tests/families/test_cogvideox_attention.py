"""CogVideoX's own attention against diffusers' processor: every architecture, with LoRAs of all kinds beside it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.errors import ConfigError
from workbench.families.cogvideox import attention
from workbench.families.cogvideox.family import FAMILY
from workbench.families.model import Model
from workbench.families.model_inputs import Given, ModelInputs
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora

CPU = torch.device("cpu")
LIMIT = 3e-6  # relative, float32: sums in another order


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @functools.cache
    def made(variant: str) -> Model:
        return FAMILY.toy(tmp_path_factory.mktemp("toys") / variant, variant)

    return made


def transformer(model: Model, kernel: str, joined: bool = False, **settings: Any) -> Any:
    """With a LoRA that does something, always the same for the same settings."""
    made = FAMILY.load_transformer(Path(model.source), CPU, torch.float32)
    attention.use_attention(made, kernel, CPU)
    pairs = lora.attach(FAMILY, made, TrainSettings().changed(rank=2, **settings), 1)
    draw = torch.Generator().manual_seed(5)
    for name, parameter in pairs:
        if "lora_B" in name:
            parameter.data = torch.randn(parameter.shape, generator=draw) * 0.1
    if joined:
        FAMILY.join_projections(made)
    return made


def outcome(model: Model, made: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Losses of two clips, and the gradients of the LoRA."""
    draw, folder = torch.Generator().manual_seed(3), Path(model.source)
    shape = (2, *FAMILY.latents_shape(folder, model.frame_rule.step + 1, 16, 16))
    latents, noise, condition = (torch.randn(shape, generator=draw) for _ in range(3))
    text = {"prompt_embeds": torch.randn(2, made.config.max_text_seq_length, 32, generator=draw)}
    given = Given(beside=condition) if model.task == "image-to-video" else None
    inputs = ModelInputs(latents, text, noise, torch.tensor([100, 700]), given)
    found = FAMILY.loss(made, FAMILY.noise_schedule(folder, CPU), inputs)
    found.mean().backward()
    named = {name: parameter.grad for name, parameter in made.named_parameters() if parameter.grad is not None}
    return found.detach(), named


def same(ours: Any, theirs: Any) -> None:
    assert torch.allclose(ours[0], theirs[0], rtol=LIMIT, atol=0)
    assert ours[1].keys() == theirs[1].keys()
    assert theirs[1]
    for name, gradient in theirs[1].items():
        assert (ours[1][name] - gradient).norm() <= LIMIT * gradient.norm() + 1e-9, name


@pytest.mark.parametrize("variant", FAMILY.toys)
def test_loss_and_gradients_equal_the_stock_processors(toy: Any, variant: str) -> None:
    model = toy(variant)
    stock = outcome(model, transformer(model, "stock"))
    same(outcome(model, transformer(model, "auto")), stock)
    same(outcome(model, transformer(model, "auto", joined=True)), stock)
    same(outcome(model, transformer(model, "math", joined=True)), stock)


@pytest.mark.parametrize(
    "settings", [{"dora": True}, {"rslora": True}, {"targets": ".*attn1.to_[qv]"}, {"targets": ".*to_out.0"}], ids=str
)
def test_loras_that_cannot_be_joined_go_their_own_way(toy: Any, settings: dict[str, Any]) -> None:
    model = toy("rotary")
    stock = outcome(model, transformer(model, "stock", **settings))
    same(outcome(model, transformer(model, "auto", joined=True, **settings)), stock)


class Operations(TorchDispatchMode):
    """Which operations were computed."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self.names.add(str(function).split(".")[1])
        return function(*arguments, **(named or {}))


@pytest.mark.parametrize(("kernel", "fused"), [("auto", True), ("math", False)])
def test_b25_the_kernel_that_is_chosen_computes_the_attention(toy: Any, kernel: str, fused: bool) -> None:
    model = toy("rotary")
    made = transformer(model, kernel)
    with Operations() as operations:
        outcome(model, made)
    assert ("_scaled_dot_product_flash_attention_for_cpu" in operations.names) is fused


def test_b25_a_kernel_that_is_not_there_is_refused(toy: Any) -> None:
    with pytest.raises(ConfigError, match="attention is cudnn, which needs an NVIDIA GPU"):
        transformer(toy("rotary"), "cudnn")

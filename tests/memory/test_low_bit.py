"""Layers in fewer bits: how much they round, what they keep, that a LoRA on them learns what it would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from workbench.families import families
from workbench.families.model_inputs import ModelInputs
from workbench.memory.checkpointing import recomputing
from workbench.memory.compiling import compile_blocks
from workbench.memory.low_bit import BLOCK, NF4, Format, LowBitLinear, pack, shrink
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora

FAMILY = families()[0]
CPU = torch.device("cpu")
BUILT_IN = Path(__file__).resolve().parents[2] / "assets" / "tiny-cogvideox"
FORMATS: tuple[Format, ...] = ("int8", "fp8", "nf4")
# Of the built-in model: the output's relative error, and the cosine between the LoRA's gradients. Measured: 0.007 and
# 0.9998, 0.022 and 0.9979, 0.078 and 0.983.
LIMITS = {"int8": (0.011, 0.9995), "fp8": (0.033, 0.996), "nf4": (0.11, 0.975)}


class Model:
    """The built-in model with a LoRA that does something, and a batch."""

    def __init__(self, **settings: Any) -> None:
        chosen = TrainSettings(dataset="x", model=str(BUILT_IN), rank=4, **settings)
        self.transformer = FAMILY.load_transformer(BUILT_IN, CPU, torch.float32)
        self.blocks = list(self.transformer.transformer_blocks)
        self.trained = [parameter for _, parameter in lora.attach(FAMILY, self.transformer, chosen, seed=0)]
        random = torch.Generator().manual_seed(1)
        for parameter in self.trained:
            parameter.requires_grad_(True).data.add_(torch.randn(parameter.shape, generator=random) * 0.02)
        shape = FAMILY.latents_shape(BUILT_IN, 9, 80, 80)
        latents, noise = torch.randn(2, *shape, generator=random), torch.randn(2, *shape, generator=random)
        text = {"prompt_embeds": torch.randn(2, 16, 64, generator=random)}
        times = torch.tensor([100, 700])
        self.batch = (FAMILY.noise_schedule(BUILT_IN, CPU), ModelInputs(latents, text, noise, times))

    def output(self) -> torch.Tensor:
        with torch.no_grad():
            return FAMILY.predict(self.transformer, *self.batch)

    def gradient(self, autocast: bool = False) -> torch.Tensor:
        self.transformer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = FAMILY.loss(self.transformer, *self.batch).mean()
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.cat([parameter.grad.flatten() for parameter in self.trained if parameter.grad is not None])


@pytest.fixture(scope="module")
def plain() -> tuple[torch.Tensor, torch.Tensor]:
    model = Model()
    return model.output(), model.gradient()


@pytest.mark.parametrize("how", FORMATS)
def test_a_lora_on_the_built_in_model_learns_nearly_the_same(
    how: Format, plain: tuple[torch.Tensor, torch.Tensor]
) -> None:
    output, gradient = plain
    model = Model()
    before = sum(parameter.nbytes for parameter in model.transformer.transformer_blocks.parameters())
    saved = shrink(model.blocks, how)
    error, cosine = LIMITS[how]
    assert (model.output() - output).norm() < error * output.norm()
    for autocast in (False, True):
        assert functional.cosine_similarity(model.gradient(autocast), gradient, dim=0) > cosine
    held = [*model.transformer.transformer_blocks.parameters(), *model.transformer.transformer_blocks.buffers()]
    assert before - saved == sum(tensor.nbytes for tensor in held)
    assert saved > {"int8": 0.7, "fp8": 0.7, "nf4": 0.8}[how] * before

    found = model.gradient()
    model.transformer.enable_gradient_checkpointing(recomputing("full", random=False))
    assert torch.equal(model.gradient(), found)


@pytest.mark.parametrize("how", FORMATS)
def test_a_layer_makes_no_tensor_from_numbers_when_it_computes(how: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a GPU that would be a copy from the host, which waits for all that is queued: in each layer, both ways."""
    layer = LowBitLinear(nn.Linear(128, 64).requires_grad_(False), how)
    x = torch.ones(2, 128, requires_grad=True)
    monkeypatch.delattr(torch, "tensor")
    layer(x).sum().backward()
    assert x.grad is not None


@pytest.mark.parametrize("how", FORMATS)
def test_what_a_format_can_hold_comes_back_exactly(how: Format) -> None:
    random = torch.Generator().manual_seed(0)
    if how == "int8":
        numbers = torch.randint(-127, 128, (64, 128), generator=random).float()
        numbers[:, 0] = 127
    elif how == "fp8":
        numbers = (torch.randn(64, 128, generator=random) * 50).to(torch.float8_e4m3fn).float()
        numbers[:, 0] = 448
    else:
        numbers = torch.tensor(NF4)[torch.randint(16, (64, 128), generator=random)]
        numbers[:, ::BLOCK] = 1
    numbers *= 2.0 ** torch.arange(64)[:, None].sub(40)
    numbers[-1] = 0
    linear = nn.Linear(128, 64, bias=False)
    linear.weight = nn.Parameter(numbers, requires_grad=False)
    assert torch.equal(LowBitLinear(linear, how).weight, numbers)
    stored = LowBitLinear(linear.bfloat16(), how).weight
    assert stored.dtype == torch.bfloat16
    assert torch.equal(stored, numbers.bfloat16())


@pytest.mark.parametrize("how", FORMATS)
def test_rounding_is_to_the_nearest_and_always_the_same(how: Format) -> None:
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(0))
    linear = nn.Linear(256, 64)
    linear.weight = nn.Parameter(weight, requires_grad=False)
    rounded = LowBitLinear(linear, how)
    off = (rounded.weight - weight).abs()
    if how == "int8":
        assert (off <= weight.abs().amax(1, keepdim=True) / 254 * 1.0001).all()
    elif how == "fp8":
        assert (off <= weight.abs() / 16 + weight.abs().amax(1, keepdim=True) / 448 / 512).all()
    else:
        largest = weight.reshape(-1, BLOCK).abs().amax(1, keepdim=True)
        every = torch.tensor(NF4) * largest[..., None]
        best = (every - weight.reshape(-1, BLOCK, 1)).abs().amin(-1)
        assert (off.reshape(-1, BLOCK) <= best + largest / 256).all()
    again = pack(weight, how)
    assert torch.equal(again.values.view(torch.uint8), rounded.values.view(torch.uint8))
    assert torch.equal(again.scale, rounded.scale)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("how", FORMATS)
def test_b27_gradients_are_those_of_the_rounded_weight_and_only_its_bytes_are_kept(how: Format, compiled: bool) -> None:
    torch.manual_seed(0)
    block = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64))
    for place in (0, 2):
        block[place].weight.requires_grad_(False)
    shrink([block], how)
    x = torch.randn(2, 3, 64, requires_grad=True)
    if compiled:
        torch._dynamo.reset()
        compile_blocks([block], backend="aot_eager")
    kept: list[torch.Tensor] = []
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda kept: kept)
    with hooks, torch.autocast("cpu", torch.bfloat16):
        y = block(x)
    y.float().square().sum().backward()
    assert y.dtype == torch.bfloat16
    weights = {(128, 64), (64, 128)}
    assert not [one for one in kept if tuple(one.shape) in weights and one.dtype in (torch.float32, torch.bfloat16)]

    again = x.detach().clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        first = functional.linear(again, block[0].weight, block[0].bias)
        second = functional.linear(functional.gelu(first), block[2].weight, block[2].bias)
    expected = torch.autograd.grad(second.float().square().sum(), [again, block[0].bias, block[2].bias])
    for one, other in zip((x.grad, block[0].bias.grad, block[2].bias.grad), expected, strict=True):
        assert functional.cosine_similarity(one.flatten(), other.flatten(), dim=0) > 0.9999


def test_what_is_trained_or_small_stays_as_it_is() -> None:
    block = nn.ModuleDict({"trained": nn.Linear(64, 64), "small": nn.Linear(63, 64), "frozen": nn.Linear(64, 64)})
    block["small"].requires_grad_(False)
    block["frozen"].requires_grad_(False)
    assert shrink([block], "int8") == 64 * 64 * 3 - 64 * 4
    assert [type(layer) for layer in block.values()] == [nn.Linear, nn.Linear, LowBitLinear]
    assert shrink([block], "int8") == 0, "nothing is rounded twice"


def test_dora_measures_the_rounded_weight_and_a_new_lora_finds_the_layers() -> None:
    model = Model(dora=True)
    shrink(model.blocks, "int8")
    layer = model.blocks[0].attn1.to_q
    assert isinstance(layer.base_layer, LowBitLinear)
    assert torch.isfinite(model.gradient()).all()
    before = model.output()
    tensors = lora.state(model.transformer)
    model.transformer.delete_adapters(lora.ADAPTER)
    settings = TrainSettings(dataset="x", model=str(BUILT_IN), rank=4, dora=True)
    lora.attach(FAMILY, model.transformer, settings, seed=3)
    assert not torch.equal(model.output(), before)
    lora.set_state(model.transformer, tensors)
    assert torch.equal(model.output(), before)

"""Streamed blocks: the same bits as without, a slot is never overwritten while it is needed, all comes back at the end.

On a machine with a CUDA device the same is proved there, where copies run beside the computing.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from workbench.memory.block_swap import BlockSwap, parked
from workbench.memory.compiling import compile_blocks
from workbench.memory.low_bit import shrink

NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]
BLOCKS, WIDTH = 7, 64


class Block(nn.Module):
    """Frozen layers, a frozen buffer, and a trained one beside them, as a LoRA is."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.register_buffer("still", torch.rand(WIDTH))
        self.requires_grad_(False)
        self.trained = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        normal = self.norm(hidden) * self.still
        return hidden + self.out(torch.relu(self.mix(normal))) + self.trained(normal)


class Model(nn.Module):
    """Blocks in a row, recomputed when gradients need it."""

    def __init__(self, device: str, recompute: bool = True, low_bit: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks, self.recompute, self.device = nn.ModuleList(Block() for _ in range(BLOCKS)), recompute, device
        if low_bit:
            shrink(list(self.blocks), "nf4")

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            again = self.recompute and torch.is_grad_enabled()
            hidden = checkpoint(block, hidden, use_reentrant=False) if again else block(hidden)
        return hidden

    def hidden(self, seed: int = 1) -> torch.Tensor:
        return torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(seed)).to(self.device)

    def output(self) -> torch.Tensor:
        with torch.no_grad():
            return self(self.hidden())

    def gradients(self, seed: int = 1) -> list[torch.Tensor]:
        """The loss, and the gradients of what is trained."""
        self.zero_grad()
        loss = self(self.hidden(seed)).square().mean()
        loss.backward()
        trained = [block.trained.weight.grad for block in self.blocks]
        return [loss.detach(), *(gradient.clone() for gradient in trained if gradient is not None)]


class LateCopies:
    """The worst order that is allowed: a slot is spoiled as soon as a copy is asked for, and filled when waited for."""

    def __init__(self) -> None:
        self.waiting: dict[int, tuple[torch.Tensor, tuple[torch.Tensor, ...]]] = {}
        self.started = 0

    def start(self, slot: int, target: torch.Tensor, source: tuple[torch.Tensor, ...]) -> None:
        target.fill_(255)  # not a number, in float32
        self.waiting[slot] = (target, source)
        self.started += 1

    def wait(self, slot: int) -> None:
        if slot in self.waiting:
            target, source = self.waiting.pop(slot)
            memory = torch.cat(source)
            target[: len(memory)].copy_(memory)


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(*pair) for pair in zip(one, other, strict=True))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("low_bit", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3, BLOCKS, 100])
def test_streamed_blocks_give_the_same_bits(count: int, low_bit: bool, device: str) -> None:
    plain, swapped = (Model(device, low_bit=low_bit) for _ in range(2))
    plain.to(device)
    swap = BlockSwap(list(swapped.blocks), count, torch.device(device))
    swapped.to(device)
    assert len(swap.blocks) == min(count, BLOCKS)
    for seed in (1, 2):
        assert same(swapped.gradients(seed), plain.gradients(seed))
        assert torch.equal(swapped.output(), plain.output())
        assert torch.equal(swapped.output(), plain.output())


def test_a_slot_is_filled_before_it_is_read_and_not_before_it_is_free() -> None:
    plain, swapped = Model("cpu"), Model("cpu")
    swap = BlockSwap(list(swapped.blocks), BLOCKS, torch.device("cpu"))
    copies = LateCopies()
    swap._copies = copies  # type: ignore[assignment]
    asked: list[int] = []
    for block in swapped.blocks:
        block.register_forward_pre_hook(lambda *_: asked.append(copies.started))
    for _ in range(3):
        before = copies.started
        assert same(swapped.gradients(), plain.gradients())
        # Both ends of the row are still there when the direction turns.
        assert copies.started - before == 2 * (BLOCKS - 2) + (2 if before == 0 else 0)
    assert torch.equal(swapped.output(), plain.output())
    assert all(later > earlier for earlier, later in pairwise(asked[: BLOCKS - 1])), "the next is fetched ahead"


@pytest.mark.parametrize("device", DEVICES)
def test_a_pass_that_was_interrupted_leaves_nothing_wrong_behind(device: str) -> None:
    plain, swapped = Model(device).to(device), Model(device)
    BlockSwap(list(swapped.blocks), 5, torch.device(device))
    swapped.to(device)
    for place in (0, 3, BLOCKS - 1):
        hook = swapped.blocks[place].register_forward_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            swapped.gradients()
        hook.remove()
        assert same(swapped.gradients(), plain.gradients())
    swapped.zero_grad()
    loss = swapped(swapped.hidden()).square().mean()
    assert torch.equal(swapped.output(), plain.output()), "between a pass and its way back"
    loss.backward()
    assert torch.equal(swapped.blocks[0].trained.weight.grad, plain.blocks[0].trained.weight.grad)


def test_without_recomputing_autograd_refuses_rather_than_take_other_weights() -> None:
    swapped = Model("cpu", recompute=False)
    BlockSwap(list(swapped.blocks), 4, torch.device("cpu"))
    swapped.to("cpu")
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        swapped.gradients()


def test_b28_what_is_trained_keeps_its_identity_and_is_not_streamed() -> None:
    swapped = Model("cpu")
    trained = [block.trained.weight for block in swapped.blocks]
    frozen = sum(tensor.nbytes for tensor in swapped.state_dict().values()) - sum(one.nbytes for one in trained)
    swap = BlockSwap(list(swapped.blocks), BLOCKS, torch.device("cpu"))
    assert frozen <= sum(piece.nbytes for host in swap._hosts for piece in host) < 1.05 * frozen
    assert all(block.trained.weight is one for block, one in zip(swapped.blocks, trained, strict=True))
    places = {block.mix.weight.data_ptr() for block in swapped.blocks}
    assert len(places) == 2, "the others share these two places"


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler looks at it
def test_translated_blocks_are_streamed_too() -> None:
    plain, swapped = Model("cpu", low_bit=True), Model("cpu", low_bit=True)
    BlockSwap(list(swapped.blocks), 5, torch.device("cpu"))
    torch._dynamo.reset()
    compile_blocks(list(swapped.blocks), backend="aot_eager")
    for seed in (1, 2):
        assert same(swapped.gradients(seed), plain.gradients(seed))
    assert torch.equal(swapped.output(), plain.output())


@pytest.mark.parametrize("device", DEVICES)
def test_parked_weights_make_room_and_come_back(device: str) -> None:
    plain, swapped = Model(device).to(device), Model(device)
    swap = BlockSwap(list(swapped.blocks), 3, torch.device(device))
    swapped.to(device)
    staying = {tensor.data_ptr() for block in swap.blocks for tensor in block.parameters()}
    swapped.output()
    with parked(swapped):
        for block in swapped.blocks:
            assert block.trained.weight.device.type == device
            assert block.mix.weight.is_cuda is (block in swap.blocks and device == "cuda")
    assert staying == {tensor.data_ptr() for block in swap.blocks for tensor in block.parameters()}
    assert same(swapped.gradients(), plain.gradients())

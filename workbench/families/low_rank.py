"""The best pair of low-rank matrices for a product, for a whole matrix and for a Kronecker product.

Everything is computed in float64, so that the stated errors are the errors. Of LyCORIS' kinds of layers pairs are made:

    LoKr     kron(w1, w2), each whole or a product      lokr_w1, or lokr_w1_a and lokr_w1_b; the same of w2; lokr_t2
    LoHa     (w1_a @ w1_b) * (w2_a @ w2_b), by element  hada_w1_a, hada_w1_b, hada_w2_a, hada_w2_b; hada_t1, hada_t2
    LoCon    up @ core @ down                           lora_up, lora_mid, lora_down

A LoCon with a core is a LoRA exactly, and so are a LoKr and a LoHa whose factors have a low rank. Of others the best
approximation of rank LARGEST is taken, and what that loses is told. peft uses the same names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workbench.errors import ConfigError

if TYPE_CHECKING:
    import torch

    Factors = Mapping[str, torch.Tensor]

NOTHING = 1e-6  # singular values below this share of the largest are rounding


@dataclass(frozen=True)
class RankLimit:
    """How much rank is kept: at most `rank`, and no more than holds `share` of the sum of squares; None: no limit."""

    rank: int | None = None
    share: float | None = None

    def kept(self, squares: torch.Tensor) -> int:
        """How many of the squared singular values, largest first, are kept; at least one."""
        total = float(squares.sum())
        there = int((squares > NOTHING**2 * squares[0]).sum())
        limit = there if self.rank is None else min(self.rank, there)
        if self.share is None or total == 0:
            return max(1, limit)
        enough = int((squares.cumsum(0) < self.share * total * (1 - 1e-12)).sum()) + 1
        return max(1, min(enough, limit))


@dataclass(frozen=True)
class LowRankProduct:
    """Two matrices and what their product lacks: up [outputs, rank] @ down [rank, inputs].

    lost, total: sums of squares of what is missing and of the whole change
    """

    up: torch.Tensor
    down: torch.Tensor
    lost: float
    total: float


def low_rank_of_product(up: torch.Tensor, down: torch.Tensor, cut: RankLimit) -> LowRankProduct:
    """The best pair for up @ down, without ever making the product."""
    import torch

    left, above = torch.linalg.qr(up.double())
    right, below = torch.linalg.qr(down.double().T)
    outer, values, inner = torch.linalg.svd(above @ below.T)
    rank = cut.kept(values.square())
    root = values[:rank].sqrt()
    lost, total = float(values[rank:].square().sum()), float(values.square().sum())
    return LowRankProduct(left @ (outer[:, :rank] * root), (root[:, None] * inner[:rank]) @ right.T, lost, total)


def low_rank_of_matrix(change: torch.Tensor, cut: RankLimit) -> LowRankProduct:
    """The best pair for a change [outputs, inputs]."""
    import torch

    wide = change.double()
    if tall := wide.shape[0] < wide.shape[1]:
        wide = wide.T
    # The eigenvectors of the smaller Gram matrix: several times faster than the singular values of the whole.
    squares, vectors = torch.linalg.eigh(wide.T @ wide)
    squares, vectors = squares.flip(0).clamp(min=0), vectors.flip(1)
    rank = cut.kept(squares)
    root = squares[:rank].sqrt().clamp(min=1e-30).sqrt()
    basis = vectors[:, :rank]
    first, second = (wide @ basis) / root, (basis * root).T
    total = float(wide.square().sum())
    lost = float((wide - first @ second).square().sum())
    return LowRankProduct(second.T, first.T, lost, total) if tall else LowRankProduct(first, second, lost, total)


def low_rank_of_kronecker(
    left: tuple[torch.Tensor, torch.Tensor], right: tuple[torch.Tensor, torch.Tensor], cut: RankLimit
) -> LowRankProduct:
    """The best pair for the Kronecker product of two products, from the singular values of each.

    left, right: (up, down) of the product on either side
    """
    no_limit = RankLimit()
    first, second = low_rank_of_product(*left, no_limit), low_rank_of_product(*right, no_limit)
    # The columns of `up` and the rows of `down` are orthogonal and equally long: their squares are singular values.
    ours, theirs = first.up.square().sum(0), second.up.square().sum(0)
    values, order = (ours[:, None] * theirs).flatten().sort(descending=True)
    rank = cut.kept(values.square())
    row, column = order[:rank] // len(theirs), order[:rank] % len(theirs)
    up = (first.up[:, None, row] * second.up[None, :, column]).flatten(0, 1)
    down = (first.down[row, :, None] * second.down[column, None, :]).flatten(1)
    return LowRankProduct(up, down, float(values[rank:].square().sum()), float(values.square().sum()))


def factorized(size: int, factor: int) -> tuple[int, int]:
    """The two factors of a layer's inputs or outputs in a LoKr, as LyCORIS and peft choose them."""
    if size % factor == 0:
        return factor, size // factor
    first, second, length = 1, size, 1 + size
    while first < second:
        tried = first + 1
        while size % tried:
            tried += 1
        if tried + size // tried > length or tried > factor:
            break
        first, second, length = tried, size // tried, tried + size // tried
    return (first, second) if first <= second else (second, first)


# ---- LyCORIS' layers

FACTOR = re.compile(
    r"(?P<layer>.+)\.(?P<factor>lokr_w[12](?:_[ab])?|lokr_t2|hada_w[12]_[ab]|hada_t[12])(?:\.(?!weight)\w+)?(?:\.weight)?"
)
MUSUBI = "lokr_factor"  # a tensor of musubi-tuner's LoKr files, which says nothing of a layer
LARGEST = 256  # rank that a conversion has at most: a file as large as one of a large plain LoRA


def kind(factors: Factors) -> str:
    """What a layer's factors are, in words."""
    return "a LoKr" if any(name.startswith("lokr_") for name in factors) else "a LoHa"


def as_pair(layer: str, factors: Factors, alpha: float | None, scale: float | None) -> LowRankProduct:
    """The pair of LoRA matrices of a layer, its strength multiplied in; a convolution's `down` is flat.

    alpha: of the layer, as LyCORIS means it;  scale: what counts instead where it is not None (peft)

    Raises ConfigError for factors that do not belong together.
    """
    try:
        if kind(factors) == "a LoKr":
            sides = _side(factors, "lokr_w1"), _side(factors, "lokr_w2")
            made = low_rank_of_kronecker(*sides, RankLimit(LARGEST))
        else:
            made = _loha(factors)
    except KeyError as error:
        raise ConfigError(
            f"{kind(factors)} lacks {error.args[0]} of {layer[:80]}: download or export it again"
        ) from None
    except RuntimeError:
        raise ConfigError(
            f"the factors of {layer[:80]} have sizes that do not belong together: download or export it again"
        ) from None
    scale = strength(factors, alpha) if scale is None else scale
    return LowRankProduct(made.up * scale, made.down, made.lost * scale**2, made.total * scale**2)


def strength(factors: Factors, alpha: float | None) -> float:
    """What a layer's product counts, as LyCORIS means its alpha."""
    dim = next((one.shape[0] for name, one in factors.items() if name.endswith("_b")), None)
    # Without a decomposed factor there is no rank to divide by, and LyCORIS ignores alpha.
    return 1.0 if alpha is None or dim is None else alpha / dim


def with_strength(factors: Factors, scale: float) -> dict[str, torch.Tensor]:
    """A LoKr's factors with its strength multiplied into the first."""
    first = "lokr_w1" if "lokr_w1" in factors else "lokr_w1_a"
    return {
        name: (one.float() * scale).to(one.dtype) if name == first and scale != 1 else one
        for name, one in factors.items()
    }


def without_core(core: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """`down` of a LoCon with its core multiplied in, which becomes [rank, inputs, kernel ...]."""
    import torch

    return torch.einsum("ij...,jq->iq...", core.float(), down.flatten(1).float()).to(down.dtype)


def _side(factors: Factors, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """(up, down) of one side of a Kronecker product, float64."""
    import torch

    core = factors.get(name.replace("_w", "_t"))
    if name in factors:
        whole = factors[name].double().flatten(1)
        one = torch.eye(min(whole.shape), dtype=torch.float64)
        return (one, whole) if whole.shape[0] <= whole.shape[1] else (whole, one)
    first, second = factors[f"{name}_a"].double(), factors[f"{name}_b"].double()
    if core is None:
        return first, second
    return first.T, torch.einsum("ij...,jr->ir...", core.double(), second).flatten(1)


def _loha(factors: Factors) -> LowRankProduct:
    import torch

    ups, downs = [], []
    for number in (1, 2):
        first, second = factors[f"hada_w{number}_a"].double(), factors[f"hada_w{number}_b"].double()
        core = factors.get(f"hada_t{number}")
        if core is not None:
            first, second = first.T, torch.einsum("ij...,jr->ir...", core.double(), second).flatten(1)
        if first.shape[1] != second.shape[0]:
            raise RuntimeError("different ranks")
        ups.append(first)
        downs.append(second)
    # The elementwise product of two products is one product, of all pairs of columns and of all pairs of rows.
    up = (ups[0][:, :, None] * ups[1][:, None, :]).flatten(1)
    down = (downs[0][:, None, :] * downs[1][None, :, :]).flatten(0, 1)
    return low_rank_of_product(up, down, RankLimit(LARGEST))

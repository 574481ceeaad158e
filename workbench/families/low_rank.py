"""Best low-rank approximations of matrix products, whole matrices and Kronecker products.

Everything is computed in float64, so that rounding does not add to the reported errors. LyCORIS layers become pairs of
LoRA matrices:

    LoKr     kron(w1, w2), each whole or a product      lokr_w1, or lokr_w1_a and lokr_w1_b; w2 likewise; lokr_t2
    LoHa     (w1_a @ w1_b) * (w2_a @ w2_b), by element  hada_w1_a, hada_w1_b, hada_w2_a, hada_w2_b; hada_t1, hada_t2
    LoCon    up @ core @ down                           lora_up, lora_mid, lora_down

A LoCon with a core becomes an exact LoRA, as do a LoKr and a LoHa of low rank. Others become the best approximation
of rank LARGEST, with the error reported. peft uses the same names.
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

NOTHING = 1e-6  # singular values below this share of the largest are rounding errors


@dataclass(frozen=True)
class RankLimit:
    """How much rank to keep: at most `rank`, and no more than `share` of the sum of squares needs; None: no limit."""

    rank: int | None = None
    share: float | None = None

    def kept(self, squares: torch.Tensor) -> int:
        """Return how many of the squared singular values, largest first, to keep; at least one."""
        total = float(squares.sum())
        nonzero = int((squares > NOTHING**2 * squares[0]).sum())
        limit = nonzero if self.rank is None else min(self.rank, nonzero)
        if self.share is None or total == 0:
            return max(1, limit)
        enough = int((squares.cumsum(0) < self.share * total * (1 - 1e-12)).sum()) + 1
        return max(1, min(enough, limit))


@dataclass(frozen=True)
class LowRankProduct:
    """A low-rank approximation, up [outputs, rank] @ down [rank, inputs]."""

    up: torch.Tensor
    down: torch.Tensor
    # lost, total: sums of squares of the error and of the original
    lost: float
    total: float


def low_rank_of_product(up: torch.Tensor, down: torch.Tensor, cut: RankLimit) -> LowRankProduct:
    """Approximate up @ down without computing the product."""
    import torch

    left, above = torch.linalg.qr(up.double())
    right, below = torch.linalg.qr(down.double().T)
    outer, values, inner = torch.linalg.svd(above @ below.T)
    rank = cut.kept(values.square())
    root = values[:rank].sqrt()
    lost, total = float(values[rank:].square().sum()), float(values.square().sum())
    return LowRankProduct(left @ (outer[:, :rank] * root), (root[:, None] * inner[:rank]) @ right.T, lost, total)


def low_rank_of_matrix(change: torch.Tensor, cut: RankLimit) -> LowRankProduct:
    """Approximate a matrix [outputs, inputs]."""
    import torch

    wide = change.double()
    if tall := wide.shape[0] < wide.shape[1]:
        wide = wide.T
    # Eigenvectors of the smaller Gram matrix are several times faster than an SVD.
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
    """Approximate the Kronecker product of two products, each given as (up, down), from their singular values."""
    no_limit = RankLimit()
    first, second = low_rank_of_product(*left, no_limit), low_rank_of_product(*right, no_limit)
    # The columns of `up` and rows of `down` are orthogonal and equally long: their squared lengths are singular values.
    ours, theirs = first.up.square().sum(0), second.up.square().sum(0)
    values, order = (ours[:, None] * theirs).flatten().sort(descending=True)
    rank = cut.kept(values.square())
    row, column = order[:rank] // len(theirs), order[:rank] % len(theirs)
    up = (first.up[:, None, row] * second.up[None, :, column]).flatten(0, 1)
    down = (first.down[row, :, None] * second.down[column, None, :]).flatten(1)
    return LowRankProduct(up, down, float(values[rank:].square().sum()), float(values.square().sum()))


def factorized(size: int, factor: int) -> tuple[int, int]:
    """Split a layer's inputs or outputs into the two factors of a LoKr, as LyCORIS and peft do."""
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
MUSUBI = "lokr_factor"  # a tensor in musubi-tuner's LoKr files that belongs to no layer
LARGEST = 256  # most rank of a conversion, whose file is then as large as that of a large LoRA


def kind(factors: Factors) -> str:
    """Return what a layer's factors are, in words."""
    return "a LoKr" if any(name.startswith("lokr_") for name in factors) else "a LoHa"


def as_pair(layer: str, factors: Factors, alpha: float | None, scale: float | None) -> LowRankProduct:
    """Convert a layer's factors to LoRA matrices with its strength multiplied in. A convolution's `down` is flat.

    The strength is `scale` or, if that is None, follows from LyCORIS' alpha. Raises ConfigError for factors that do not
    belong together.
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
    """Return a layer's strength, as LyCORIS defines its alpha."""
    dim = next((one.shape[0] for name, one in factors.items() if name.endswith("_b")), None)
    # Without a decomposed factor there is no rank to divide by, and LyCORIS ignores alpha.
    return 1.0 if alpha is None or dim is None else alpha / dim


def with_strength(factors: Factors, scale: float) -> dict[str, torch.Tensor]:
    """Return a LoKr's factors with its strength multiplied into the first."""
    first = "lokr_w1" if "lokr_w1" in factors else "lokr_w1_a"
    return {
        name: (one.float() * scale).to(one.dtype) if name == first and scale != 1 else one
        for name, one in factors.items()
    }


def without_core(core: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """Multiply a LoCon's core into its `down`, which becomes [rank, inputs, kernel ...]."""
    import torch

    return torch.einsum("ij...,jq->iq...", core.float(), down.flatten(1).float()).to(down.dtype)


def _side(factors: Factors, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return (up, down) of one side of a Kronecker or elementwise product, float64."""
    import torch

    if name in factors:
        whole = factors[name].double().flatten(1)
        one = torch.eye(min(whole.shape), dtype=torch.float64)
        return (one, whole) if whole.shape[0] <= whole.shape[1] else (whole, one)
    first, second = factors[f"{name}_a"].double(), factors[f"{name}_b"].double()
    if (core := factors.get(name.replace("_w", "_t"))) is None:
        return first, second
    return first.T, torch.einsum("ij...,jr->ir...", core.double(), second).flatten(1)


def _loha(factors: Factors) -> LowRankProduct:
    ups, downs = [], []
    for name in ("hada_w1", "hada_w2"):
        up, down = _side(factors, name)
        if up.shape[1] != down.shape[0]:
            raise RuntimeError("different ranks")
        ups.append(up)
        downs.append(down)
    # The elementwise product of two products is a product of all pairs of columns and all pairs of rows.
    up = (ups[0][:, :, None] * ups[1][:, None, :]).flatten(1)
    down = (downs[0][:, None, :] * downs[1][None, :, :]).flatten(0, 1)
    return low_rank_of_product(up, down, RankLimit(LARGEST))

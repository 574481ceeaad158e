"""The best pair of low-rank matrices for a product, for a whole matrix and for a Kronecker product.

Everything is computed in float64, so that the stated errors are the errors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

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

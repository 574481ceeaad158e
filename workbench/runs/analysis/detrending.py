"""The training loss without the effect of the sampled noise levels. No torch.

The loss depends far more on a sample's noise level than on anything the run has learned so far, and levels are
sampled at random, so the plain curve shows mostly the sampling. This is a control variate (Owen, "Monte Carlo theory,
methods and examples", 8.9; as CUPED, Deng et al., WSDM 2013):

    detrended(step) = mean loss(step) - [mean c(levels of the step) - mean c(all levels sampled in the run)]

The bracket is zero on average whatever the function c is, because levels do not depend on the step; so the curve
estimates the same expected loss as the plain one, and the better c tells a sample's loss from its level, the less
it jumps. The best c is the typical loss at each level. It is learned from the run itself: a straight line between
the KNOTS, by least squares. Losses are compared within blocks of the run only (a constant of its own for each block,
as in the regression of Frisch, Waugh and Lovell), so that what was learned from block to block is not mistaken for the
levels' doing. A ridge of one sample keeps a young run's line flat instead of wild.

Only sums are kept, in as many buckets as a curve has: adding a sample takes the same time however long the run is.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from workbench.runs.analysis.series import Buckets, Mean, Sums

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Where the line may bend, as quantiles of noise: closer together where losses change fast.
KNOTS = (0.0, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)
BUCKETS = 500
BLOCKS = 20  # at most
BLOCK_SAMPLES = 64  # at least


@dataclass(slots=True)
class KnotSums(Sums):
    """Sums of the samples of neighbouring steps. `at_knots` sums how near each sample is to each knot (1 in all)."""

    at_knots: list[float] = field(default_factory=lambda: [0.0] * len(KNOTS))

    def merge(self, later: Self) -> None:
        Sums.merge(self, later)
        self.at_knots = [one + other for one, other in zip(self.at_knots, later.at_knots, strict=True)]


class Detrending:
    """Takes samples one by one, gives the detrended loss at any time."""

    def __init__(self) -> None:
        self._buckets = Buckets(KnotSums, BUCKETS)
        # Least squares in sums: of the products of neighbouring knots' nearness, and of nearness times loss.
        self._own = [0.0] * len(KNOTS)
        self._next = [0.0] * (len(KNOTS) - 1)
        self._loss = [0.0] * len(KNOTS)

    def add(self, step: int, quantile: float, loss: float) -> None:
        """Add one sample; one that is not finite is left out."""
        if not (math.isfinite(quantile) and math.isfinite(loss)):
            return
        position = min(max(quantile, 0.0), 1.0)
        left = min(bisect_right(KNOTS, position), len(KNOTS) - 1) - 1
        upper = (position - KNOTS[left]) / (KNOTS[left + 1] - KNOTS[left])
        lower = 1 - upper
        sums = self._buckets.at(step)
        sums.add(step, loss)
        sums.at_knots[left] += lower
        sums.at_knots[left + 1] += upper
        self._own[left] += lower * lower
        self._own[left + 1] += upper * upper
        self._next[left] += lower * upper
        self._loss[left] += lower * loss
        self._loss[left + 1] += upper * loss

    def means(self) -> list[Mean]:
        """The detrended loss, in loss units: one mean a bucket of steps."""
        import numpy as np

        found = list(self._buckets.buckets)
        if not found:
            return []
        counts = np.array([sums.count for sums in found], dtype=float)
        totals = np.array([sums.total for sums in found])
        at_knots = np.array([sums.at_knots for sums in found])
        typical = self._typical(counts, totals, at_knots)
        usual = at_knots.sum(0) / counts.sum()
        values = totals / counts - (at_knots / counts[:, None] - usual) @ typical
        return [Mean(sums.last, float(value), sums.count) for sums, value in zip(found, values, strict=True)]

    def _typical(
        self, counts: NDArray[np.floating], totals: NDArray[np.floating], at_knots: NDArray[np.floating]
    ) -> NDArray[np.floating]:
        """The typical loss at each knot, up to a constant."""
        import numpy as np

        samples = counts.sum()
        blocks = max(1, min(BLOCKS, int(samples // BLOCK_SAMPLES)))
        starts = np.searchsorted(np.cumsum(counts), samples * np.arange(blocks) / blocks, side="right")
        starts = np.unique(starts)
        size, loss, knots = (np.add.reduceat(sums, starts, axis=0) for sums in (counts, totals, at_knots))
        products = np.diag(self._own) + np.diag(self._next, 1) + np.diag(self._next, -1)
        products -= (knots / size[:, None]).T @ knots
        right = np.array(self._loss) - knots.T @ (loss / size)
        return np.linalg.solve(products + np.eye(len(KNOTS)), right)

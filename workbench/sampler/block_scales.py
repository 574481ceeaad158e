"""Strengths of single transformer blocks of a LoRA, written behind its scale: ring=0.8[0-9:0.5, 12:0, rest:1].

Each part is a block, a range of blocks or `rest`, and a factor of the LoRA's scale. Blocks count from 0, as in the
training setting `blocks`; `rest` are the layers outside the main blocks. Blocks that are not named keep the scale.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

REST = "rest"
PART = re.compile(rf"(?:(\d{{1,4}})(?:\s*-\s*(\d{{1,4}}))?|{REST})\s*:\s*(\S+)")
GRAMMAR = "write ranges of blocks with factors, as in ring=0.8[0-9:0.5, 12:0]"


@dataclass(frozen=True)
class BlockScales:
    """Factors of a LoRA's scale by (first block, last block), in order; `rest` for the layers outside the blocks."""

    ranges: tuple[tuple[int, int, float], ...] = ()
    rest: float = 1.0

    def __bool__(self) -> bool:
        return bool(self.ranges) or self.rest != 1

    def __str__(self) -> str:
        parts = [f"{first if first == last else f'{first}-{last}'}:{factor:g}" for first, last, factor in self.ranges]
        parts += [f"{REST}:{self.rest:g}"] if self.rest != 1 else []
        return f"[{','.join(parts)}]" if parts else ""

    def factor(self, block: int | None) -> float:
        """Return the factor of a block, or with None of the layers outside the blocks."""
        if block is None:
            return self.rest
        return next((factor for first, last, factor in self.ranges if first <= block <= last), 1.0)

    def unused(self, blocks: Iterable[int | None]) -> str:
        """Say which part changes none of a LoRA's blocks, as the end of a sentence that names it; "" if all do.

        blocks: of the LoRA's layers, None for layers outside the blocks
        """
        found = set(blocks)
        numbers = sorted(one for one in found if one is not None)
        has = f"its blocks are {_in_words(numbers)}" if numbers else "it has no layers in blocks"
        for first, last, _ in self.ranges:
            if not any(first <= number <= last for number in numbers):
                name = str(first) if first == last else f"{first}-{last}"
                return f"{name}, but {has}: name some of these"
        if self.rest != 1 and None not in found:
            return f"{REST}, but the LoRA has no layers outside the blocks: leave it out"
        return ""


def parse_blocks(text: str) -> BlockScales:
    """Parse what stands between the brackets. Raises ValueError, whose text continues a sentence on it."""
    ranges, rest = list[tuple[int, int, float]](), 1.0
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = PART.fullmatch(part)
        try:
            factor = float(match[3]) if match else math.nan
        except ValueError:
            factor = math.nan
        if match is None or not math.isfinite(factor):
            raise ValueError(f"{part[:40]!r}: {GRAMMAR}")
        if match[1] is None:
            rest = factor
            continue
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise ValueError(f"{part[:40]!r}, a range that ends before it begins: {GRAMMAR}")
        if any(first <= other[1] and other[0] <= last for other in ranges):
            raise ValueError(f"{part[:40]!r}, which names a block twice: give each block one factor")
        ranges.append((first, last, factor))
    return BlockScales(tuple(sorted(ranges)), rest)


def _in_words(numbers: list[int]) -> str:
    """Return sorted numbers as ranges: 0 to 5, 8, 10 to 12."""
    runs = list[list[int]]()
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)

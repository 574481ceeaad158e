"""What people think of a grid's videos: stars, rejects, blind votes, the best checkpoint; grids/<slug>/marks.json.

    {"stars": [key], "rejects": [key], "votes": [{"left", "right", "chosen", "time"}], "best": {...}}

A vote is between two videos of a row whose names were hidden: chosen is a key, "" where neither was better. Not
covered: the best checkpoint in its run (runs.checkpoints).
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.compare.axes import GridPlan
from workbench.errors import ConfigError
from workbench.workspace import read_object, read_to_change, write_json

FILE = "marks.json"
FEWEST = 5  # votes; with fewer no difference is significant


@dataclass(frozen=True)
class Marks:
    """The file's content. best: {"column", "step", "why", "time"}, {} before a choice."""

    stars: frozenset[str] = frozenset()
    rejects: frozenset[str] = frozenset()
    votes: tuple[dict[str, Any], ...] = ()
    best: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tally:
    """The votes for a column. confidence: in words, whether it is better or worse than the others."""

    won: int
    lost: int
    tied: int
    confidence: str

    @property
    def votes(self) -> int:
        return self.won + self.lost + self.tied


def read(folder: Path) -> Marks:
    """The marks of a grid; none where the file is missing or broken."""
    raw = read_object(folder / FILE)
    with contextlib.suppress(TypeError, AttributeError):
        votes = tuple(vote for vote in raw.get("votes", ()) if {"left", "right", "chosen"} <= vote.keys())
        stars, rejects = frozenset(raw.get("stars", ())), frozenset(raw.get("rejects", ()))
        return Marks(stars, rejects, votes, dict(raw.get("best") or {}))
    return Marks()


def mark(folder: Path, key: str, *, starred: bool | None = None, rejected: bool | None = None) -> None:
    """Star or reject a video, or take it back; one excludes the other. Raises CannotWrite."""
    with _changing(folder) as raw:
        stars, rejects = set(raw["stars"]), set(raw["rejects"])
        if starred is not None:
            (stars.add if starred else stars.discard)(key)
            rejects -= {key} if starred else set()
        if rejected is not None:
            (rejects.add if rejected else rejects.discard)(key)
            stars -= {key} if rejected else set()
        raw["stars"], raw["rejects"] = sorted(stars), sorted(rejects)


def vote(folder: Path, left: str, right: str, chosen: str) -> None:
    """Note a blind vote between two videos. Raises ConfigError, CannotWrite."""
    if chosen not in (left, right, "") or left == right:
        raise ConfigError("the vote is for neither of the two videos: vote again")
    with _changing(folder) as raw:
        raw["votes"].append({"left": left, "right": right, "chosen": chosen, "time": time.time()})


def note_best(folder: Path, best: dict[str, Any]) -> None:
    """Note which column was found best. Raises CannotWrite."""
    with _changing(folder) as raw:
        raw["best"] = best


@contextlib.contextmanager
def _changing(folder: Path) -> Any:
    """The content to be changed; written when the block ends. Two pages that mark at once lose nothing."""
    with jobs.locked(folder / ".marks.lock"):
        present, now = read_to_change(folder / FILE), read(folder)
        if now == Marks() and any(present.values()):
            raise ConfigError(f"{folder / FILE} is damaged, and a change would lose what it holds: fix or remove it")
        raw = {"stars": sorted(now.stars), "rejects": sorted(now.rejects), "votes": list(now.votes), "best": now.best}
        yield raw
        write_json(folder / FILE, raw)


def tallies(plan: GridPlan, votes: tuple[dict[str, Any], ...]) -> list[Tally]:
    """The votes of each column, in their order. Votes on videos that left the grid do not count."""
    column = {key: index for keys in plan.keys for index, key in enumerate(keys)}
    counts = [[0, 0, 0] for _ in plan.columns]
    for one in votes:
        left, right = column.get(one["left"]), column.get(one["right"])
        if left is None or right is None:
            continue
        if not one["chosen"]:
            counts[left][2] += 1
            counts[right][2] += 1
        else:
            winner, loser = (left, right) if one["chosen"] == one["left"] else (right, left)
            counts[winner][0] += 1
            counts[loser][1] += 1
    return [Tally(won, lost, tied, confidence(won, lost)) for won, lost, tied in counts]


def confidence(won: int, lost: int) -> str:
    """In words, whether that many wins could be chance: a two-sided sign test, ties left out.

    Clear: chance alone does this once in twenty times or less; likely: once in five.
    """
    count, most = won + lost, max(won, lost)
    if count < FEWEST:
        return "too few votes to say"
    chance = min(1.0, 2 * sum(math.comb(count, one) for one in range(most, count + 1)) / 2**count)
    side = "better" if won > lost else "worse"
    if chance <= 0.05:
        return f"clearly {side}"
    return f"likely {side}" if chance <= 0.2 else "no difference seen"

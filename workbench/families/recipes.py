"""What LoRAs of one subject were trained with, as published: figures, each with its reason and its sources. No torch.

A family states its recipes as facts. Not covered: the settings that follow for a number of clips (runs.recipes), memory
(fit).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

Subject = Literal["style", "character", "object", "motion", "camera", "effect"]
SUBJECTS: tuple[Subject, ...] = get_args(Subject)


@dataclass(frozen=True)
class Source:
    """A paper, a model card or a document. url: "" for a document of this project"""

    title: str
    url: str = ""


@dataclass(frozen=True)
class Advice:
    """Why, and who says so. No source: common practice, of which no comparison was published."""

    reason: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """How LoRAs of one subject were trained.

    evidence: how well documented it is, one sentence
    clips, captions: advice on the dataset;  enough: with fewer clips than that, a warning
    steps: (clips, steps) by clips: between two, in proportion; outside, the nearest;  why_steps: their reason
    settings: (setting, value, reason)
    """

    subject: Subject
    evidence: str
    clips: Advice
    captions: Advice
    enough: int
    steps: tuple[tuple[int, int], ...]
    why_steps: Advice
    settings: tuple[tuple[str, str | int | float, Advice], ...]

    def steps_for(self, clips: int) -> int:
        """Steps for a number of clips, in tens."""
        if clips <= self.steps[0][0]:
            return self.steps[0][1]
        for (fewer, low), (more, high) in pairwise(self.steps):
            if clips <= more:
                return round((low + (high - low) * (clips - fewer) / (more - fewer)) / 10) * 10
        return self.steps[-1][1]

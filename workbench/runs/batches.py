"""Which clips are in which batch: a pure function of the clips, the settings and the batch's number, so that nothing
has to be remembered and a resumed run sees the batches of an uninterrupted one.

A batch has clips of one shape (bucket). Within a bucket every clip comes once before any comes again, in a new order
each time, and what is left over at the end of a pass begins the next batch: no clip is lost, none is filled in. Over a
pass every bucket gets as many batches as its clips ask for, in a new order. Where datasets are weighted by
sampling, each is a group with an order of its own, and groups take turns by their shares.

Not covered: tensors (trainer.inputs).
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from workbench.clips.buckets import Bucket
from workbench.runs.data import RunClip, TrainingData, seed_for
from workbench.runs.settings import TrainSettings


@dataclass(frozen=True)
class Group:
    """Clips that are sampled in one order. amount: how many of them a pass takes, in the mean."""

    name: str
    items: Sequence[RunClip]
    amount: Fraction


class Stream:
    """The endless order of one bucket's clips: those of the regularization dataset mixed in at an even share, every
    pass shuffled anew."""

    def __init__(self, groups: Sequence[Group], known: Sequence[RunClip], share: float, seed: int, name: str) -> None:
        self._groups = groups
        self._amount = sum((group.amount for group in groups), Fraction(0))
        self._known = list(known)
        # A bucket that has clips of one role only is filled with those.
        self._share = Fraction(share).limit_denominator(1000) if known else Fraction(0)
        self._seed = seed
        self._name = name

    def per_pass(self, batch_size: int) -> Fraction:
        """Batches in which each of the new clips comes once, or as many clips as there are new ones."""
        return self._amount / (batch_size * (1 - self._share))

    def item(self, position: int) -> RunClip:
        known_before, taken = _even_share(position, self._share)
        if taken:
            return self._shuffled(self._known, f"known{self._name}", known_before)
        position, left = position - known_before, self._amount
        for group in self._groups:
            before, taken = _even_share(position, group.amount / left)
            if taken:
                break
            position, left = position - before, left - group.amount
        of = f" of {group.name}" if group.name else ""
        return self._shuffled(group.items, f"train{of}{self._name}", before)

    def _shuffled(self, items: Sequence[RunClip], purpose: str, count: int) -> RunClip:
        epoch, index = divmod(count, len(items))
        return items[_order(len(items), seed_for(self._seed, f"order of {purpose}", epoch))[index]]


def _even_share(position: int, share: Fraction) -> tuple[int, bool]:
    """(how many of the positions before this one are taken at an even share, whether this one is)."""
    before = math.floor(position * share)
    return before, math.floor((position + 1) * share) > before


def _groups(train: Sequence[RunClip], bucket: Bucket) -> list[Group]:
    """The groups of a bucket. A group has its share of a pass over all buckets, split among them as its clips are."""
    repeated = [item for item in train for _ in range(item.repeats)]
    shares = {item.group: Fraction(str(item.share)) for item in repeated}
    found = []
    for name, share in shares.items():
        everywhere = [item for item in repeated if item.group == name]
        here = [item for item in everywhere if item.bucket == bucket]
        amount = len(repeated) * share / sum(shares.values()) * len(here) / len(everywhere)
        if here:
            found.append(Group(name, here, amount))
    return found


@lru_cache(maxsize=64)
def _order(count: int, seed: int) -> list[int]:
    order = list(range(count))
    random.Random(seed).shuffle(order)
    return order


class Batches:
    """The batches of a run, by number."""

    def __init__(self, data: TrainingData, settings: TrainSettings) -> None:
        self._size, self._seed = settings.batch_size, settings.seed
        used = [bucket for bucket in data.buckets if any(item.bucket == bucket for item in data.train)]
        self._streams, self._images = list[Stream](), list[bool]()
        for bucket in used:
            known = [item for item in data.regularization if item.bucket == bucket]
            name, share = "" if len(used) == 1 else f" in {bucket}", settings.regularization_share
            self._images.append(bucket.for_images)
            self._streams.append(Stream(_groups(data.train, bucket), known, share, settings.seed, name))
        self._per_pass = [stream.per_pass(self._size) for stream in self._streams]
        if settings.picture_share is not None and len(set(self._images)) > 1:
            wanted, now = Fraction(str(settings.picture_share)), self._pictures
            factor = wanted / (1 - wanted) * (1 - now) / now
            self._per_pass = [
                count * factor if image else count for count, image in zip(self._per_pass, self._images, strict=True)
            ]

    @property
    def _pictures(self) -> Fraction:
        return sum(itertools.compress(self._per_pass, self._images), Fraction(0)) / sum(self._per_pass)

    @property
    def pictures(self) -> float:
        """Share of the batches that hold still pictures, 0 to 1."""
        return float(self._pictures)

    @property
    def per_pass(self) -> float:
        """Batches in which each of the new clips comes once, over all buckets."""
        return float(sum(self._per_pass))

    def batch(self, number: int) -> list[RunClip]:
        """The clips of the batch with this number, counted from 0 over the whole run; all of one bucket."""
        if len(self._streams) == 1:
            return [self._streams[0].item(number * self._size + index) for index in range(self._size)]
        epoch = self._epoch(number)
        slots, before = _slots(self._seed, epoch, tuple(self._per_pass)), _before(epoch, self._per_pass)
        position = number - sum(before)
        bucket = slots[position]
        number_in_bucket = before[bucket] + slots[:position].count(bucket)
        return [self._streams[bucket].item(number_in_bucket * self._size + index) for index in range(self._size)]

    def _epoch(self, number: int) -> int:
        """The pass a batch is in: the last one that begins at or before it."""
        most = math.ceil((number + len(self._streams) + 1) / self.per_pass) + 1
        return bisect.bisect_right(range(most + 1), number, key=lambda epoch: sum(_before(epoch, self._per_pass))) - 1


def _before(epoch: int, per_pass: Sequence[Fraction]) -> list[int]:
    """Batches of each bucket before a pass: whole ones, so that over the passes every bucket gets its due."""
    return [math.floor(epoch * count) for count in per_pass]


@lru_cache(maxsize=4)
def _slots(seed: int, epoch: int, per_pass: tuple[Fraction, ...]) -> list[int]:
    """The bucket of each batch of a pass, shuffled: no bucket comes only at the end."""
    counts = zip(_before(epoch, per_pass), _before(epoch + 1, per_pass), strict=True)
    slots = [bucket for bucket, (before, after) in enumerate(counts) for _ in range(after - before)]
    random.Random(seed_for(seed, "order of buckets", epoch)).shuffle(slots)
    return slots

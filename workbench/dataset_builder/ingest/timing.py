"""How the times at which a source shows its frames become one constant rate.

A constant-rate source keeps exactly its frames (every n-th above 60 fps); only uneven rates are resampled, by
timestamp, and a picture that stands still for very long is shortened. Not covered: where the times come from
(media.read_times).
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

MAX_FPS = 60
ROUNDING = 0.002  # seconds by which a container that counts milliseconds may misstate the time between two frames
SAME_RATE = 5e-4  # rates that differ by less are one; 30 and 29.97 are two
LONGEST_STILL = 30.0  # seconds; screen recorders write nothing while nothing moves, for hours if need be
LAST_STILL = 1.0  # seconds: a last frame that is shown for longer is a still, too
Timed = tuple[float, Any]  # seconds, PyAV frame


@dataclass(frozen=True)
class Timing:
    """How a source's frames become a constant rate: every `take`-th frame as it is, or by timestamp when uneven.

    step:    seconds from one frame of the source to the next, on average
    last:    seconds that the last frame is a still for, 0 when it lasts as long as any other
    stills:  how many stills are shortened; seconds: what is left of the whole
    """

    fps: Fraction
    source_fps: float
    step: float
    even: bool
    take: int = 1
    last: float = 0.0
    stills: int = 0
    seconds: float = 0.0


def timing_of(times: list[float], declared: Sequence[float] = (), last: float = 0.0) -> Timing:
    """The constant rate for two or more frames shown at these times. Even: each is nearest to its own slot.

    declared: frame rates that the header states, the likelier first
    last: seconds that the last one is shown, 0 when that is not known
    """
    step = times[-1] / (len(times) - 1)
    last = last if last > max(LAST_STILL, 10 * step) else 0.0
    even = (
        0 < step <= LONGEST_STILL
        and not last
        and all(abs(time - number * step) < 0.3 * step for number, time in enumerate(times))
    )
    if even:
        # The header is more exact than containers that round their timestamps to milliseconds.
        tolerance = max(SAME_RATE, ROUNDING / times[-1])
        rate = next((rate for rate in declared if abs(rate * step - 1) < tolerance), 1 / step)
        take = max(1, math.ceil(rate / MAX_FPS - 1e-3))
        return Timing(_neat(rate) / take, rate, step, True, take, seconds=times[-1])
    steps = [later - earlier for earlier, later in zip(times, times[1:], strict=False) if later > earlier]
    usual = statistics.median(steps) if steps else 1.0
    # Averaged over its like: timestamps in whole milliseconds make 30 fps steps of 33 and 34.
    rate = 1 / statistics.fmean([step for step in steps if abs(step / usual - 1) < 0.1] or [usual])
    stills = sum(one > LONGEST_STILL for one in (*steps, last))
    seconds = sum(min(one, LONGEST_STILL) for one in (*steps, last))
    return Timing(Fraction(min(MAX_FPS, max(1, round(rate)))), rate, step, False, 1, last, stills, seconds)


def _neat(rate: float) -> Fraction:
    """The rate that was meant: 29.9697 -> 30000/1001."""
    whole = max(1, round(rate))
    for meant in (Fraction(whole), Fraction(whole * 1000, 1001)):
        if abs(rate / float(meant) - 1) < 4e-4:
            return meant
    return Fraction(rate).limit_denominator(1001)


def timing_changes(timing: Timing) -> list[str]:
    """What is changed about time, in words."""
    if not timing.even:
        changes = [f"uneven frame rate (about {timing.source_fps:.3g} fps) evened to {float(timing.fps):g} fps"]
        if timing.stills:
            count = "a still" if timing.stills == 1 else f"{timing.stills} stills"
            changes.append(f"{count} of more than {LONGEST_STILL:g} s shortened to that")
        return changes
    if timing.take > 1:
        ending = {2: "nd", 3: "rd"}.get(timing.take, "th")
        kept = f"every {timing.take}{ending} frame kept"
        return [f"{timing.source_fps:.4g} fps brought to {float(timing.fps):.4g} fps: {kept}"]
    return []


def evened(frames: Iterable[Timed], timing: Timing) -> Iterator[Any]:
    """The frames at the constant rate: an even source's once each, else the newest at the middle of each slot."""
    if timing.even:
        yield from (frame for number, (_, frame) in enumerate(frames) if number % timing.take == 0)
        return
    fps, slot, held, before, cut = float(timing.fps), 0, None, 0.0, 0.0
    for presented, frame in frames:
        cut = max(cut, presented - before - LONGEST_STILL)
        time = presented - cut
        while held is not None and (slot + 0.5) / fps < time:
            yield held
            slot += 1
        held, before = frame, time
    if held is not None:
        yield from itertools.repeat(held, 1 + round(fps * min(timing.last, LONGEST_STILL)))

"""A limit on how fast secrets are tried: no delay at first, then delays that grow, and never a lock-out.

Tries of one address are checked one after the other. Each wrong one makes the next wait longer, up to half a minute, so
that trying many at once is no faster than trying one. A right one waits its turn, gets in, and clears the count. What
is counted is the moment of the check, before which nothing is known to be right or wrong.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FREE = 4  # wrong tries without a delay
LONGEST = 30.0  # seconds between two tries
WAITING = 8  # tries of one address that wait; more are turned away
ADDRESSES = 4096  # remembered; the one that tried longest ago is forgotten first
FORGOTTEN = 900.0  # seconds without a try after which an address begins anew


class TooMany(Exception):
    """So many tries wait already that another would wait for minutes. seconds: when to try again"""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Too many tries wait already: try again in {seconds:.0f} seconds.")
        self.seconds = seconds


@dataclass
class _Tries:
    """wrong: so many in a row; free_at: when the next may be checked, in seconds of a monotonic clock"""

    wrong: int = 0
    free_at: float = 0.0
    waiting: int = 0


class Throttle:
    """Used from one event loop alone."""

    def __init__(self, longest: float = LONGEST) -> None:
        self._longest = longest
        self._of: OrderedDict[str, _Tries] = OrderedDict()

    async def check(self, address: str, right: Callable[[], bool]) -> bool:
        """What `right` returns, called when it is this attempt's turn. Raises TooMany."""
        tries = self._tries(address)
        if tries.waiting >= WAITING:
            raise TooMany(max(tries.free_at - time.monotonic(), 1.0))
        tries.waiting += 1
        try:
            while (left := tries.free_at - time.monotonic()) > 0:
                await asyncio.sleep(left)
            # Nothing is awaited between here and the new delay: of all that woke up, one is checked.
            if right():
                tries.wrong, tries.free_at = 0, 0.0
                return True
            tries.wrong += 1
            tries.free_at = time.monotonic() + self._delay(tries.wrong)
            return False
        finally:
            tries.waiting -= 1

    def _delay(self, wrong: int) -> float:
        return min(2.0 ** (wrong - FREE - 1), self._longest) if wrong > FREE else 0.0

    def _tries(self, address: str) -> _Tries:
        key = _network(address)
        tries = self._of.setdefault(key, _Tries())
        self._of.move_to_end(key)
        if tries.wrong and not tries.waiting and time.monotonic() > tries.free_at + FORGOTTEN:
            tries.wrong = 0
        if len(self._of) > ADDRESSES:
            idle = next((old for old, other in self._of.items() if not other.waiting), key)
            if idle != key:
                del self._of[idle]
        return tries


def _network(address: str) -> str:
    """What one person has of addresses as a rule: of IPv6 64 bits of them, of this machine all."""
    try:
        known = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv6Address) and known.ipv4_mapped:
        known = known.ipv4_mapped
    if known.is_loopback:
        return "loopback"
    return str(ipaddress.ip_network(f"{known}/64", strict=False)) if known.version == 6 else str(known)

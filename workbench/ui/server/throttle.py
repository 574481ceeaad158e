"""Limit how fast secrets can be guessed, with growing delays and without a lockout.

Attempts from one address are checked one after another, so parallel attempts are no faster. Each wrong one makes the
next wait longer, up to half a minute. A right one waits its turn, gets in, and clears the count.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

FREE = 4  # wrong attempts without a delay
LONGEST = 30.0  # seconds between two attempts
WAITING = 8  # attempts per address that may wait
ADDRESSES = 4096  # addresses to remember; the least recent is forgotten first
FORGOTTEN = 900.0  # seconds without an attempt after which the count restarts


class TooMany(Exception):
    """Too many attempts are waiting. seconds: when to try again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Too many attempts: try again in {seconds:.0f} seconds.")
        self.seconds = seconds


@dataclass
class _Attempts:
    """Attempts from one address.

    Attributes:
        wrong: Wrong attempts in a row.
        free_at: When the next one may be checked, in seconds of the monotonic clock.
        waiting: Attempts that wait.
    """

    wrong: int = 0
    free_at: float = 0.0
    waiting: int = 0


class Throttle:
    """Counts and delays attempts. Use it from one event loop only."""

    def __init__(self, longest: float = LONGEST) -> None:
        self._longest = longest
        self._by_network: OrderedDict[str, _Attempts] = OrderedDict()

    async def check(self, address: str, right: Callable[[], bool]) -> bool:
        """Call `right` when it is this attempt's turn, and return its result. Raises TooMany."""
        tries = self._tries(address)
        if tries.waiting >= WAITING:
            raise TooMany(max(tries.free_at - time.monotonic(), 1.0))
        tries.waiting += 1
        try:
            while (left := tries.free_at - time.monotonic()) > 0:
                await asyncio.sleep(left)
            # No await between here and the new delay, so that only one of the attempts that woke up is checked.
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

    def _tries(self, address: str) -> _Attempts:
        key = _network(address)
        tries = self._by_network.setdefault(key, _Attempts())
        self._by_network.move_to_end(key)
        if tries.wrong and not tries.waiting and time.monotonic() > tries.free_at + FORGOTTEN:
            tries.wrong = 0
        if len(self._by_network) > ADDRESSES:
            idle = next((old for old, other in self._by_network.items() if not other.waiting), key)
            if idle != key:
                del self._by_network[idle]
        return tries


def _network(address: str) -> str:
    """Return what one person usually has: an IPv4 address, an IPv6 /64 network, or all addresses of this machine."""
    try:
        known = ipaddress.ip_address(address.split("%")[0])
    except ValueError:
        return address
    if isinstance(known, ipaddress.IPv6Address) and known.ipv4_mapped:
        known = known.ipv4_mapped
    if known.is_loopback:
        return "loopback"
    return str(ipaddress.ip_network(f"{known}/64", strict=False)) if known.version == 6 else str(known)

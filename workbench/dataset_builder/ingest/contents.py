"""Sources of the same content, judged by several workers at once: the one that was given first is the one that is kept.

Without it the faster worker would decide which name and which caption a clip gets. Not covered: what was imported
before (ledger).
"""

from __future__ import annotations

import threading

from workbench.jobs.limited import ChildClosed


class Contents:
    """What the sources of one import hold, by their numbers in the order given. Any thread may call."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._unread = 0  # the first source whose content is not known
        self._read: set[int] = set()  # those after it whose content is
        self._judged: dict[int, str] = {}  # source -> SHA-256, of those that are being judged
        self._closed = False

    def enter(self, number: int, sha256: str) -> None:
        """Wait until no source before this one can still turn out to hold the same. Raises ChildClosed.

        The content of earlier sources is being read meanwhile, so this never waits for what has not begun.
        """
        with self._changed:
            self._judged[number] = sha256
            self._note_read(number)
            self._changed.wait_for(lambda: self._closed or self._is_first(number, sha256))
            if self._closed:
                raise ChildClosed

    def leave(self, number: int) -> None:
        """The source's result is in the ledger, whether or not its content could be read."""
        with self._changed:
            self._judged.pop(number, None)
            self._note_read(number)

    def close(self) -> None:
        """Let go of everybody who waits."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _note_read(self, number: int) -> None:
        self._read.add(number)
        while self._unread in self._read:
            self._read.remove(self._unread)
            self._unread += 1
        self._changed.notify_all()

    def _is_first(self, number: int, sha256: str) -> bool:
        return self._unread >= number and not any(
            earlier < number and content == sha256 for earlier, content in self._judged.items()
        )

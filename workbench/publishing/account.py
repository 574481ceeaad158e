"""Find out which account background jobs use on the Hub. The token stays in a child process.

`now` never waits: a child process asks the Hub, and a later call returns the answer.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

from workbench import hub
from workbench.errors import ModelUnavailable
from workbench.jobs import processes
from workbench.snapshots import Snapshot

TIMEOUT = 20.0  # seconds
FRESH, AGAIN = 600.0, 60.0  # seconds for which an answer, or a problem, stays valid


class Account(Snapshot):
    """The Hub account that is logged in on this machine."""

    name: str = ""
    """Name of the account; "" if nobody is logged in."""

    owners: tuple[str, ...] = ()
    """The account and the organizations that it can push to."""

    reads_only: bool = False
    """Whether its token can only read."""

    problem: str = ""
    """Why nobody is logged in, and what to do; "" if nothing is wrong."""


ASKING = Account()  # until the Hub has answered


def ask() -> Account:
    """Ask the Hub now. Raises HubRefuses if nobody is logged in, HubLost."""
    with hub.explained("your account"):
        about = hub.client().whoami()
    token = (about.get("auth") or {}).get("accessToken") or {}
    owners = [str(about["name"]), *(str(org["name"]) for org in about.get("orgs") or ())]
    return Account(name=str(about["name"]), owners=tuple(owners), reads_only=token.get("role") == "read")


class _Watch:
    """The last answer, and how long it is valid."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answer, self._until, self._mark, self._asking = ASKING, 0.0, -1.0, False

    def now(self, again: bool = False) -> Account:
        """Return who is logged in, if known. again: ask again, for the next call."""
        with self._lock:
            mark = _login_mark()
            outdated = again or mark != self._mark or time.monotonic() > self._until
            if outdated and not self._asking:
                self._asking, self._mark = True, mark
                threading.Thread(target=self._ask, daemon=True).start()
            return self._answer

    def _ask(self) -> None:
        values = processes.answer_of(__name__, TIMEOUT)  # in a process with a job's environment
        late = {"problem": "the Hub does not answer now: start the push anyway, and it will ask again"}
        answer = Account(**(late if values is None else values))
        with self._lock:
            self._answer, self._asking = answer, False
            self._until = time.monotonic() + (AGAIN if answer.problem else FRESH)


now = _Watch().now


def _login_mark() -> float:
    """Return a number that changes with every login and logout."""
    from huggingface_hub import constants

    try:
        return Path(constants.HF_TOKEN_PATH).stat().st_mtime
    except OSError:
        return 0.0


if __name__ == "__main__":
    try:
        answer = ask()
    except ModelUnavailable as error:
        answer = Account(problem=str(error))
    sys.stdout.write(answer.model_dump_json())

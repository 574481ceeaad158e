"""Who is logged in to the Hub on this machine, as a background job would be: the token stays in a child process.

`now` never waits: a process of its own asks the Hub, and a later call returns the answer.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench import hub
from workbench.errors import ModelUnavailable
from workbench.jobs import processes

TIMEOUT = 20.0  # seconds until the Hub counts as silent
FRESH, AGAIN = 600.0, 60.0  # seconds for which an answer and a problem are valid


@dataclass(frozen=True)
class Account:
    """The answer. name: "" when nobody is logged in;  problem: why not, and what to do; "" when all is well

    reads_only: whether the login may not write;  known: False until the Hub has answered
    """

    name: str = ""
    owners: tuple[str, ...] = ()
    reads_only: bool = False
    problem: str = ""
    known: bool = True


ASKING = Account(known=False)


def ask() -> Account:
    """Ask the Hub now. Raises HubRefuses when nobody is logged in, HubLost."""
    with hub.explained("your account"):
        about = hub.client().whoami()
    token = (about.get("auth") or {}).get("accessToken") or {}
    owners = [str(about["name"]), *(str(org["name"]) for org in about.get("orgs") or ())]
    return Account(str(about["name"]), tuple(owners), token.get("role") == "read")


class _Watch:
    """The last answer, and when it was given."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answer, self._until, self._mark, self._asking = ASKING, 0.0, -1.0, False

    def now(self, again: bool = False) -> Account:
        """Who is logged in, as far as is known; `again`: ask anew, for the next call."""
        with self._lock:
            mark = _login_mark()
            old = again or mark != self._mark or time.monotonic() > self._until
            if old and not self._asking:
                self._asking, self._mark = True, mark
                threading.Thread(target=self._ask, daemon=True).start()
            return self._answer

    def _ask(self) -> None:
        answer = _in_a_child()
        with self._lock:
            self._answer, self._asking = answer, False
            self._until = time.monotonic() + (AGAIN if answer.problem else FRESH)


now = _Watch().now


def _login_mark() -> float:
    """Changes with every login and logout."""
    from huggingface_hub import constants

    try:
        return Path(constants.HF_TOKEN_PATH).stat().st_mtime
    except OSError:
        return 0.0


def _in_a_child() -> Account:
    """Ask in a process that sees what a job sees."""
    values = processes.answer_of(__name__, TIMEOUT)
    if values is None:
        return Account(problem="the Hub does not answer just now: a push tries again by itself when it is started")
    return Account(**{**values, "owners": tuple(values["owners"])})


def _main() -> None:
    try:
        answer = ask()
    except ModelUnavailable as error:
        answer = Account(problem=str(error))
    sys.stdout.write(json.dumps(asdict(answer)))


if __name__ == "__main__":
    _main()

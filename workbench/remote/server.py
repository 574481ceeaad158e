"""`python -m workbench.remote.server`: serve the methods of `RemoteFolder` over stdin and stdout.

A message is a line with its length in bytes, followed by that many bytes of JSON. Requests are {"call": NAME, "of":
[ROOT, NAME, RUN], "with": {...}}, answers {"value": ...} or {"error": SENTENCE, "code": EXIT_CODE}. READY comes first,
so that clients can skip the output of a login shell. The server ends with its stdin; the runs it started keep going.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any

from workbench.errors import WorkbenchError
from workbench.remote.remote_folder import RemoteFolder

READY = b"video-lora-workbench is ready\n"
CALLS = (
    *("environment", "free_bytes", "missing", "store", "assemble", "run_folder"),
    *("start", "stop_when_idle", "poll", "send", "kill"),
)


def main() -> None:
    """Answer requests until stdin ends."""
    # Redirect stdout to stderr, so that nothing a library prints gets between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answers.write(READY)
    answers.flush()
    while (question := read(sys.stdin.buffer)) is not None:
        answers.write(message(answer(question)))
        answers.flush()


def answer(question: Any) -> dict[str, Any]:
    name = question.get("call")
    if name not in CALLS:
        sentence = f"{name!r} is unknown there: install the same version of the workbench on both sides"
        return {"error": sentence, "code": 64}
    try:
        return {"value": getattr(RemoteFolder(*question["of"]), name)(**question["with"])}
    except WorkbenchError as error:
        return {"error": str(error), "code": int(error.exit_code)}


def read(stream: IO[bytes]) -> Any:
    """Read the next message; None at the end."""
    line = stream.readline()
    return json.loads(stream.read(int(line))) if line.strip() else None


def message(value: Any) -> bytes:
    data = json.dumps(value).encode()
    return b"%d\n" % len(data) + data


if __name__ == "__main__":
    main()

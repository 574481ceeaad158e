"""`python -m workbench.remote.server`: the methods of `RemoteFolder`, called through stdin, answered on stdout.

A message is a line with its length in bytes, then so many bytes of JSON: {"call": NAME, "of": [ROOT, NAME, RUN],
"with": {...}} one way, {"value": ...} or {"error": SENTENCE, "code": EXIT_CODE} the other. READY comes first, so that
the output of a login shell is skipped. It ends with its stdin, and the runs it started go on.
"""

from __future__ import annotations

import json
import os
import sys
from typing import IO, Any

from workbench.errors import WorkbenchError
from workbench.remote.remote_folder import RemoteFolder

READY = b"video-lora-workbench is ready\n"
CALLS = ("environment", "free_bytes", "missing", "store", "assemble", "run_folder", "start", "poll", "send", "kill")


def main() -> None:
    """Answer until stdin ends."""
    # What a library prints must not come between the answers.
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
    """The next message, None at the end."""
    line = stream.readline()
    return json.loads(stream.read(int(line))) if line.strip() else None


def message(value: Any) -> bytes:
    data = json.dumps(value).encode()
    return b"%d\n" % len(data) + data


if __name__ == "__main__":
    main()

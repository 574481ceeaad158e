"""The key of an endpoint, from where the user keeps it to the process that needs it: never on disk, in an argument, an
environment that others can read, or a log.

The caption job is started without the variables that look like secrets (workbench.jobs). Whoever starts it hands the
key over through a pipe, whose number is all that the job's environment tells. A job started by hand finds the key in
its own environment. Last comes the system's keyring, where the package `keyring` is installed:

    keyring set video-lora-workbench api.example.com

Not covered: what the key opens (endpoint).
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

PIPE = "WORKBENCH_KEY_PIPE"  # the number of the pipe's end in the environment of the job
KEYRING_SERVICE = "video-lora-workbench"


@contextlib.contextmanager
def handed_over(variable: str, key: str = "") -> Iterator[dict[str, Any]]:
    """What subprocess.Popen must get for its child to find the key of that environment variable: pass_fds and env.

    key: the key itself, where it is not in this process's environment.

    `env` holds only what is to be added to the child's environment. Both are empty when there is no key to hand over.
    """
    key = (key or os.environ.get(variable, "")) if variable else ""
    if not key:
        yield {"pass_fds": (), "env": {}}
        return
    reader, writer = os.pipe()
    try:
        with open(writer, "wb") as file:  # a key fits into the pipe's buffer, so nobody waits for the child
            file.write(json.dumps({variable: key}).encode())
        yield {"pass_fds": (reader,), "env": {PIPE: str(reader)}}
    finally:
        os.close(reader)


def find_key(variable: str, base_url: str) -> str:
    """The key for an endpoint: handed over, else in the environment, else in the keyring; "" when there is none."""
    return _received().get(variable) or os.environ.get(variable, "") or _from_keyring(base_url)


@cache
def _received() -> dict[str, str]:
    """What the starter put into the pipe; read once, and the variable removed so that no child goes looking."""
    number = os.environ.pop(PIPE, "")
    if not number.isdigit():
        return {}
    with contextlib.suppress(OSError, ValueError), open(int(number), "rb") as file:
        values = json.loads(file.read())
        return {str(name): str(value) for name, value in values.items()}
    return {}


def _from_keyring(base_url: str) -> str:
    try:
        import keyring
        from keyring.errors import KeyringError
    except ImportError:
        return ""
    with contextlib.suppress(KeyringError):
        return keyring.get_password(KEYRING_SERVICE, urlsplit(base_url).hostname or "") or ""
    return ""

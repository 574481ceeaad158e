"""The key of a workspace's server, readable only by its owner, and the API token derived from it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

KEY_FILE = ".page-key"  # in the workspace folder
KEY_BYTES = 32


def api_token_of(folder: Path) -> str:
    """Return the API token of the workspace in this folder. It stays valid as long as the key file exists."""
    return hmac.new(server_key(folder), b"api", hashlib.sha256).hexdigest()


def server_key(folder: Path) -> bytes:
    """Return the key of the workspace in this folder, creating it on first use.

    If it cannot be stored, each call returns a new key.
    """
    path = folder / KEY_FILE
    fresh = secrets.token_bytes(KEY_BYTES)
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError), os.fdopen(_created(path), "wb") as file:
            file.write(fresh)
        kept = path.read_bytes()
        if len(kept) == KEY_BYTES:
            return kept
        path.unlink()  # truncated by a full disk or a crash
        with os.fdopen(_created(path), "wb") as file:
            file.write(fresh)
    return fresh


def _created(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)

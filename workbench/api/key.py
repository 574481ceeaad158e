"""The key of a workspace's server, readable for its owner alone, and the API's token, which is made of it."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
from pathlib import Path

KEY_FILE = ".page-key"  # of the workspace
KEY_BYTES = 32


def api_token_of(folder: Path) -> str:
    """The token of the API over a workspace, for whoever may read its files: it lasts as long as the key there."""
    return hmac.new(server_key(folder), b"api", hashlib.sha256).hexdigest()


def server_key(folder: Path) -> bytes:
    """The key of the workspace in this folder, made once; where it cannot be kept, one that ends with this process."""
    path = folder / KEY_FILE
    fresh = secrets.token_bytes(KEY_BYTES)
    with contextlib.suppress(OSError):
        with contextlib.suppress(FileExistsError), os.fdopen(_created(path), "wb") as file:
            file.write(fresh)
        kept = path.read_bytes()
        if len(kept) == KEY_BYTES:
            return kept
        path.unlink()  # cut short by a full disk or a crash
        with os.fdopen(_created(path), "wb") as file:
            file.write(fresh)
    return fresh


def _created(path: Path) -> int:
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)

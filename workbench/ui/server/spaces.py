"""Hugging Face Spaces: the owner, the proxy, and persistent storage.

The owner signs in with the Hub (`hf_oauth: true` in the README). Without the Hub's login there is no owner: Gradio
would mount a mock login that signs everybody in as the owner of the server's token.
"""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from pathlib import Path
from typing import Any

from workbench.demo_space import sessions
from workbench.demo_space.sessions import DemoSession
from workbench.ui.server import guard

KEPT = Path("/data")  # mount point of a Space's persistent storage
FRAMES = ("https://huggingface.co",)
LOGIN = ("OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "OAUTH_SCOPES", "OPENID_PROVIDER_URL")
MANAGES = ("admin", "write")  # roles in an organization that owns the Space


def rules() -> guard.Rules:
    """Return the rules behind a Space's proxy, which checks the host names."""
    own = os.environ.get("SPACE_HOST", "").lower()
    return guard.Rules(hosts=(guard.ANY, own) if own else (guard.ANY,), frames=FRAMES, proxied=True)


def has_login() -> bool:
    """Return whether Gradio mounts the Hub's own login here.

    Gradio recognizes a Space by SYSTEM, not only by SPACE_ID. `hf_oauth` sets the other variables and installs the
    packages.
    """
    from gradio.utils import get_space

    given = get_space() and all(os.environ.get(name) for name in LOGIN)
    return bool(given) and all(importlib.util.find_spec(name) for name in ("authlib", "itsdangerous"))


class Owner:
    """The owner of this Space, and their session."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder = name, folder
        self._session: DemoSession | None = None
        self._lock = threading.Lock()

    @classmethod
    def of_this_space(cls, folder: Path) -> Owner | None:
        """Return the owner, or None outside a Space or without `hf_oauth`. folder: for their session."""
        name = os.environ.get("SPACE_AUTHOR_NAME") or os.environ.get("SPACE_ID", "").split("/")[0]
        return cls(name, folder) if name and has_login() else None

    def sent(self, request: Any) -> bool:
        """Return whether a request comes from the owner, according to the signed cookie of their login."""
        login = (request.scope.get("session") or {}).get("oauth_info")
        return isinstance(login, dict) and self.owns(login)

    def owns(self, login: dict[str, Any]) -> bool:
        """Return whether a login is the owner's, or that of a manager of the organization that owns the Space."""
        until, who = login.get("expires_at"), login.get("userinfo")
        if not isinstance(until, int | float) or until < time.time() or not isinstance(who, dict):
            return False
        groups = who.get("orgs")
        known = groups if isinstance(groups, list) else []
        managed = [one for one in known if isinstance(one, dict) and one.get("roleInOrg") in MANAGES]
        names = [one.get("preferred_username") for one in (who, *managed)]
        return any(isinstance(one, str) and one.lower() == self.name.lower() for one in names)

    def session(self) -> DemoSession:
        """Return the owner's session, which starts with the first request."""
        with self._lock:
            if self._session is None or self._session.broken:
                stays = KEPT.is_dir() and os.access(KEPT, os.W_OK)
                self._session = sessions.owner_session(self._folder, (KEPT if stays else self._folder) / "workspace")
            return self._session

    def with_login(self, app: Any) -> Any:
        """Return the application with the routes of the Hub's login in front."""
        import fastapi
        from gradio.oauth import attach_oauth

        outside = fastapi.FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
        attach_oauth(outside)
        outside.mount("/", app)
        return outside

    def close(self) -> None:
        if self._session is not None and self._session.process is not None:
            self._session.process.kill()
            self._session.process.wait()

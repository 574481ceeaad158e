"""What is different on a Hugging Face Space: who the owner is, what its proxy does, where a workspace may stay.

The owner signs in with the Hub (`hf_oauth: true` in the README). Nobody is one where Gradio does not mount the Hub's
own login: what it mounts instead signs everybody in as whoever the server's token belongs to.
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

KEPT = Path("/data")  # where a Space's storage is mounted, if it has any
FRAMES = ("https://huggingface.co",)
LOGIN = ("OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "OAUTH_SCOPES", "OPENID_PROVIDER_URL")
MANAGES = ("admin", "write")  # roles in an organization that owns the Space


def rules() -> guard.Rules:
    """For a server behind a Space's proxy, which knows the names by which it is called."""
    own = [name for name in (os.environ.get("SPACE_HOST", "").lower(),) if name]
    return guard.Rules(hosts=(guard.ANY, *own), frames=FRAMES, proxied=True)


def has_login() -> bool:
    """Whether Gradio mounts the Hub's own login here: where it sees a Space, by SYSTEM and not by SPACE_ID alone. A
    Space with `hf_oauth` has the other variables, and installs the packages."""
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
        """None where nobody can sign in as one: not on a Space, or one without `hf_oauth`. folder: of their session"""
        name = os.environ.get("SPACE_AUTHOR_NAME") or os.environ.get("SPACE_ID", "").split("/")[0]
        return cls(name, folder) if name and has_login() else None

    def is_it(self, request: Any) -> bool:
        """Whether a request comes from the owner, by the signed cookie of their login."""
        login = (request.scope.get("session") or {}).get("oauth_info")
        return isinstance(login, dict) and self.owns(login)

    def owns(self, login: dict[str, Any]) -> bool:
        """Whether a login is the owner's, or one's who manages the organization that the Space belongs to."""
        until, who = login.get("expires_at"), login.get("userinfo")
        if not isinstance(until, int | float) or until < time.time() or not isinstance(who, dict):
            return False
        groups = who.get("orgs")
        known = groups if isinstance(groups, list) else []
        managed = [one for one in known if isinstance(one, dict) and one.get("roleInOrg") in MANAGES]
        names = [one.get("preferred_username") for one in (who, *managed)]
        return any(isinstance(one, str) and one.lower() == self.name.lower() for one in names)

    def session(self) -> DemoSession:
        """The owner's session, started at the first request."""
        with self._lock:
            if self._session is None or self._session.broken:
                stays = KEPT.is_dir() and os.access(KEPT, os.W_OK)
                self._session = sessions.owner_session(self._folder, (KEPT if stays else self._folder) / "workspace")
            return self._session

    def with_login(self, app: Any) -> Any:
        """The application with the routes of the Hub's login before it."""
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

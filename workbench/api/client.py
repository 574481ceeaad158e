"""A small client of the HTTP API; docs/api.md shows it at work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx

WAIT_SECONDS = 60.0  # of one request for a sample's state
ENDED = ("done", "failed", "cancelled")  # states of a sample


class Refused(Exception):
    """The server's own sentence. status: of HTTP;  problems: setting -> sentence"""

    def __init__(self, status: int, sentence: str, problems: dict[str, str]) -> None:
        super().__init__(sentence)
        self.status, self.problems = status, problems


class NotSampled(Exception):
    """A sample failed or was cancelled; the message says why."""


class Client:
    """Calls the API of one server. Every method raises Refused, or httpx's errors where nobody answers."""

    def __init__(self, url: str, token: str) -> None:
        """url: of the page;  token: what `workbench api-token` prints on the server's machine"""
        self._http = httpx.Client(
            base_url=f"{url.split('?')[0].rstrip('/')}/api/v1",
            headers={"authorization": f"Bearer {token}"},
            timeout=WAIT_SECONDS + 30,
            event_hooks={"response": [_check]},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def call(self, method: str, *path: str, body: Any = None, **query: Any) -> Any:
        """Any call of the API: call("GET", "datasets", "cats"); path: its parts, of any characters."""
        return self._http.request(method, _path(path), json=body, params=query).json()

    def download(self, target: str | Path, *path: str, **query: Any) -> Path:
        """Write a file of the API: download("cats.zip", "datasets", "cats", "export")."""
        part = Path(f"{target}.part")
        with self._http.stream("GET", _path(path), params=query) as answer, part.open("wb") as file:
            file.writelines(answer.iter_bytes())
        return part.replace(target)

    def train(self, name: str | None = None, **settings: Any) -> Any:
        """Create a run with these settings, start it and return it."""
        return self.call("POST", "runs", body={"settings": settings, "name": name})

    def follow(self, run: str) -> Iterator[Any]:
        """The run after each change, until it is over."""
        with self._http.stream("GET", _path(("runs", run, "events"))) as answer:
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    def sample(self, prompt: str, **settings: Any) -> str:
        """Generate a video and return the sample's id. image, video: paths on the server's machine.

        Raises NotSampled, too.
        """
        seen = self.call("POST", "samples", body={"prompt": prompt, **settings})
        while seen["state"] not in ENDED:
            seen = self.call("GET", "samples", seen["id"], wait=WAIT_SECONDS)
        if seen["state"] != "done":
            raise NotSampled(seen["message"] or f"the sample was {seen['state']}")
        return str(seen["id"])


def _path(parts: tuple[str, ...]) -> str:
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _check(answer: httpx.Response) -> None:
    if not answer.is_error:
        return
    answer.read()
    try:
        found = answer.json()
        sentence, problems = str(found["error"]), dict(found["problems"])
    except (ValueError, KeyError, TypeError):  # of the guard or the login: a sentence as text
        sentence, problems = answer.text, {}
    raise Refused(answer.status_code, sentence, problems)

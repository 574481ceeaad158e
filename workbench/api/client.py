"""A small client for the HTTP API. docs/api.md shows how to use it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import httpx

WAIT_SECONDS = 60.0  # how long one request waits for a sample
ENDED = ("done", "failed", "cancelled")  # final states of a sample


class Refused(Exception):
    """The server refused a request with the HTTP `status`. The message and `problems`, by setting, are the server's."""

    def __init__(self, status: int, sentence: str, problems: dict[str, str]) -> None:
        super().__init__(sentence)
        self.status, self.problems = status, problems


class NotSampled(Exception):
    """A sample failed or was cancelled; the message says why."""


class Client:
    """Call the API of one server. Every method raises Refused, or an httpx error if the server does not respond.

    Args:
        url: Address of the page.
        token: What `workbench api-token` prints on the server's machine.
    """

    def __init__(self, url: str, token: str) -> None:
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
        """Call any route: call("GET", "datasets", "cats"). The parts of the path are escaped."""
        return self._http.request(method, _path(path), json=body, params=query).json()

    def download(self, target: str | Path, *path: str, **query: Any) -> Path:
        """Download a file: download("cats.zip", "datasets", "cats", "export")."""
        part = Path(f"{target}.part")
        with self._http.stream("GET", _path(path), params=query) as response, part.open("wb") as file:
            file.writelines(response.iter_bytes())
        return part.replace(target)

    def train(self, name: str | None = None, **settings: Any) -> Any:
        """Create a run with these settings, start it, and return it."""
        return self.call("POST", "runs", body={"settings": settings, "name": name})

    def follow(self, run: str) -> Iterator[Any]:
        """Yield the run after each change until it is over."""
        with self._http.stream("GET", _path(("runs", run, "events"))) as response:
            for line in response.iter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    def sample(self, prompt: str, **settings: Any) -> str:
        """Generate a video and return the sample's id. Files such as `image` are paths on the server's machine.

        Raises NotSampled if the sample fails or is cancelled.
        """
        sample = self.call("POST", "samples", body={"prompt": prompt, **settings})
        while sample["state"] not in ENDED:
            sample = self.call("GET", "samples", sample["id"], wait=WAIT_SECONDS)
        if sample["state"] != "done":
            raise NotSampled(sample["message"] or f"the sample was {sample['state']}")
        return str(sample["id"])


def _path(parts: tuple[str, ...]) -> str:
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def _check(response: httpx.Response) -> None:
    if not response.is_error:
        return
    response.read()
    try:
        body = response.json()
        sentence, problems = str(body["error"]), dict(body["problems"])
    except (ValueError, KeyError, TypeError):  # the guard and the login respond with plain text
        sentence, problems = response.text, {}
    raise Refused(response.status_code, sentence, problems)

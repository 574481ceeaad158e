"""A server in a thread with OpenAI's chat completions API, handling one request at a time."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Reply:
    """A response: a body (JSON or raw bytes), a status, and headers."""

    def __init__(self, body: Any, status: int = 200, **headers: str) -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def says(text: Any, finish: str = "stop") -> Reply:
    """A chat completion."""
    return Reply({"choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": finish}]})


def refuses(status: int, message: str = "", **headers: str) -> Reply:
    return Reply({"error": {"message": message}}, status, **headers)


class ChatServer:
    """`answer` gets the number of the request (from 0) and its body; `requests` holds (path, headers, body) of each."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.answer: Callable[[int, dict[str, Any]], Reply] = lambda number, body: says(f"caption {number}")

    @property
    def questions(self) -> list[str]:
        """The texts of all requests."""
        return [body["messages"][0]["content"][-1]["text"] for _, _, body in self.requests]


@contextlib.contextmanager
def chat_server() -> Iterator[ChatServer]:
    """A running server; `url` is its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            number = len(server.requests)
            server.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            reply = server.answer(number, body)
            with contextlib.suppress(ConnectionError):  # the client was killed or timed out
                self.send_response(reply.status)
                for name, value in {**reply.headers, "Content-Length": str(len(reply.body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply.body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = ChatServer(f"http://127.0.0.1:{http.server_address[1]}/v1")
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()

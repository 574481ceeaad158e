"""The endpoint captioner against a real local server, and how its key gets there."""

from __future__ import annotations

import base64
import io
import json
import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from PIL import Image

from tests.dataset_builder.chat_server import ChatServer, Reply, chat_server, refuses, says
from tests.drawing import draw
from tests.patience import PATIENCE
from workbench.captioners import captioners, find_captioner, keys
from workbench.captioners.base import CaptionFailed, NoAnswer, whole_sentences
from workbench.captioners.endpoint import Endpoint
from workbench.dataset_builder.settings import CaptionSettings
from workbench.errors import ConfigError
from workbench.settings import specs
from workbench.workspace import Workspace

KEY, URL = "sk-not-a-real-key", "https://llm.example.com/v1"
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server() as running:
        yield running


def ask(server: ChatServer, frames: Any = None, **settings: Any) -> str:
    """Return the caption of five frames."""
    values = {"captioner": "endpoint", "base_url": server.url, "endpoint_model": "eye", **settings}
    captioner = Endpoint(CaptionSettings().changed(**values), Workspace(Path("/nowhere")))
    captioner.open()
    try:
        return captioner.caption(draw(5) if frames is None else frames, 2.0, "What is seen?")
    finally:
        captioner.close()


def test_captioners_are_found_and_list_their_settings() -> None:
    assert list(captioners()) == ["endpoint", "vision_language"]
    names = {spec.name for spec in specs(CaptionSettings)}
    for name, kind in captioners().items():
        assert (kind.id, set(kind.reads) - names, bool(kind.title and kind.needs)) == (name, set(), True)
    with pytest.raises(ConfigError, match="captioner is 'x', which does not exist: choose endpoint or vision_language"):
        find_captioner("x")


def test_frames_are_sent_in_order_as_jpeg_and_a_caption_returns(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", f"{KEY}\n")
    monkeypatch.setenv(keys.HOSTS, f"MY_KEY={urlsplit(server.url).hostname}")
    server.answer = lambda number, body: says([{"type": "text", "text": "A red square."}])
    frames = draw(5, (64, 48))
    assert ask(server, frames, key_variable="MY_KEY", longest_answer=77) == "A red square."
    [(path, headers, body)] = server.requests
    assert (path, headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert (body["model"], body["max_tokens"]) == ("eye", 77)
    *pictures, text = body["messages"][0]["content"]
    assert text == {"type": "text", "text": "What is seen?"}
    assert len(pictures) == 5
    for frame, part in zip(frames, pictures, strict=True):
        kind, data = part["image_url"]["url"].split(",")
        picture = Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")
        assert (kind, picture.size) == ("data:image/jpeg;base64", (64, 48))
        red = [picture.getpixel((x, 24))[0] > 150 for x in range(64)]
        assert red.index(True) == pytest.approx([pixel[0] > 150 for pixel in frame[24]].index(True), abs=2)


def test_a_truncated_answer_ends_with_its_last_full_sentence(server: ChatServer) -> None:
    server.answer = lambda number, body: says('He said "Go." Then she le', "length")
    assert ask(server) == 'He said "Go."'
    assert whole_sentences("no end") == "no end"
    assert whole_sentences("3.5 metres high. It") == "3.5 metres high."


def test_max_completion_tokens_is_used_if_max_tokens_is_rejected(server: ChatServer) -> None:
    message = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    server.answer = lambda number, body: refuses(400, message) if "max_tokens" in body else says("fine")
    assert ask(server) == "fine"
    assert server.requests[1][2]["max_completion_tokens"] == 300


@pytest.mark.parametrize(
    ("reply", "kind", "sentence"),
    [
        (refuses(401, f"bad key {KEY}"), ConfigError, r"denied access \(401\): the key in MY_KEY was rejected: set"),
        (refuses(404, "no model eye"), ConfigError, r"not found \(404: no model eye\): fix base_url .* 'eye'"),
        (Reply(b"", 301, Location="http://elsewhere/"), ConfigError, r"redirects \(301\)"),
        (refuses(429, "slow down", Retry_After="7"), NoAnswer, r"asks for fewer requests \(429: slow down\)"),
        (refuses(503), NoAnswer, r"is not available \(503\): wait and continue"),
        (refuses(400, f"too many pictures for {KEY}"), CaptionFailed, r"\(400: too many pictures for \[key\]\)"),
        (refuses(500, "boom"), CaptionFailed, r"could not answer \(500: boom\)"),
        (Reply(b"{broken"), CaptionFailed, r"not a chat completion \('{broken'\)"),
        (Reply(b'{"choices": []}'), CaptionFailed, "not a chat completion"),
    ],
)
def test_every_http_error_has_its_own_message(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch, reply: Reply, kind: type[Exception], sentence: str
) -> None:
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv(keys.HOSTS, f"MY_KEY={urlsplit(server.url).netloc}")
    server.answer = lambda number, body: reply
    with pytest.raises(kind, match=sentence) as caught:
        ask(server, key_variable="MY_KEY")
    assert KEY not in str(caught.value)
    if isinstance(caught.value, NoAnswer):
        assert caught.value.wait == (7.0 if reply.status == 429 else None)
    if isinstance(caught.value, CaptionFailed):
        assert caught.value.again == (reply.status != 400)


def test_a_missing_key_an_unreachable_server_and_a_timeout(server: ChatServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server.answer = lambda number, body: refuses(401)
    with pytest.raises(ConfigError, match="there is no key in OPENAI_API_KEY: set a valid key"):
        ask(server)
    over = threading.Event()
    server.answer = lambda number, body: says(str(over.wait(20)))
    with pytest.raises(CaptionFailed, match=r"no answer within 0\.2 seconds: raise timeout_seconds") as caught:
        ask(server, timeout_seconds=0.2)
    assert caught.value.again
    over.set()
    with pytest.raises(NoAnswer, match=r"http://127\.0\.0\.1:9/v1/chat/completions cannot be reached .*: start"):
        ask(server, base_url="http://127.0.0.1:9/v1")


@pytest.mark.parametrize("address", ["localhost:8000", "http://host:port/v1"])
def test_an_invalid_address_is_rejected_before_any_request(address: str) -> None:
    with pytest.raises(ConfigError, match="must be an address: write it as http://localhost:8000/v1"):
        CaptionSettings().changed(base_url=address)


def test_a_password_in_the_address_is_rejected() -> None:
    with pytest.raises(ConfigError, match="base_url contains a user name or password") as caught:
        CaptionSettings().changed(base_url="http://me:secret@host/v1")
    assert "secret" not in str(caught.value)


# ---- the key


def test_the_key_reaches_the_job_only_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", KEY)
    code = (
        "import json, os, sys; from workbench.captioners import keys;"
        "asked = [('MY_API_KEY', URL), ('MY_API_KEY', URL), ('ELSE', URL), ('MY_API_KEY', 'https://evil.example')];"
        "said = [keys.find_key(*one) for one in asked];"
        "start = open('/proc/self/environ').read() + open('/proc/self/cmdline').read();"
        "print(json.dumps([said, start, keys.PIPE in os.environ, sys.stdin.read()]))"
    )
    plain = {name: value for name, value in os.environ.items() if name != "MY_API_KEY"}
    monkeypatch.setenv(keys.HOSTS, "MY_API_KEY=llm.example.com")
    with keys.handed_over("MY_API_KEY", URL) as more:
        options = {**more, "env": {**plain, **more["env"]}}
        child = subprocess.Popen(
            [sys.executable, "-c", code.replace("URL", repr(URL))], stdout=subprocess.PIPE, cwd=ROOT, **options
        )
    out, _ = child.communicate(timeout=PATIENCE)
    said, start, still_named, left = json.loads(out)
    assert said == [KEY, KEY, "", ""]
    assert KEY not in start
    assert (still_named, left) == (False, "")


def test_without_a_key_nothing_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_API_KEY", raising=False)
    for name in ("MY_API_KEY", ""):
        with keys.handed_over(name, URL) as more:
            assert more == {"stdin": subprocess.DEVNULL, "env": {}}


def test_the_keyring_is_checked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = types.ModuleType("keyring.errors")
    errors.KeyringError = type("KeyringError", (Exception,), {})  # type: ignore[attr-defined]
    ring = types.ModuleType("keyring")
    ring.get_password = lambda service, user: f"{service} {user}"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", ring)
    monkeypatch.setitem(sys.modules, "keyring.errors", errors)
    monkeypatch.setenv("MY_KEY", KEY)
    monkeypatch.setenv(keys.HOSTS, "MY_KEY=api.example.com")
    assert keys.find_key("MY_KEY", "https://api.example.com/v1") == KEY
    assert keys.find_key("ELSE", "https://api.example.com/v1") == "video-lora-workbench api.example.com"

    def locked(*_: str) -> str:
        raise errors.KeyringError

    ring.get_password = locked  # type: ignore[attr-defined]
    assert keys.find_key("ELSE", "https://api.example.com/v1") == ""

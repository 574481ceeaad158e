"""Captions from any server with OpenAI's chat completions API: vLLM, llama.cpp, Ollama, LM Studio, a paid service.

Frames are sent in order as JPEG data URLs, so the server's model does not need video support. The API key is looked up
when the captioner opens and is sent in the request header only. Redirects are not followed, so the key never reaches
another host.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import math
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from workbench.captioners.base import Captioner, CaptionerSettings, CaptionFailed, NoAnswer, whole_sentences
from workbench.captioners.keys import HOSTS, KEYRING_SERVICE, USUAL, find_key, is_near, refusal
from workbench.errors import ConfigError, ModelUnavailable

if TYPE_CHECKING:
    import httpx

    from workbench.clips.media import Pixels
    from workbench.workspace import Workspace

JPEG_QUALITY = 90
CONNECT_SECONDS = 10.0
BUSY = (429, 502, 503, 504)  # the service is overloaded or down, so the clip is not to blame


class Endpoint(Captioner):
    """Send one HTTP request per clip."""

    id: ClassVar[str] = "endpoint"
    title: ClassVar[str] = "A server with an OpenAI-compatible API"
    needs: ClassVar[str] = (
        "Only a network connection: frames are sent to the address you enter, a local server or a service."
    )
    reads: ClassVar[tuple[str, ...]] = ("base_url", "endpoint_model", "key_variable", "timeout_seconds")

    def __init__(self, settings: CaptionerSettings, workspace: Workspace) -> None:
        if not settings.base_url:
            raise ConfigError("base_url is not set: enter the server's address, such as http://localhost:8000/v1")
        if not settings.endpoint_model:
            raise ConfigError("endpoint_model is not set: enter the model name that the server uses")
        self._settings = settings
        self._url = f"{settings.base_url.rstrip('/').removesuffix('/chat/completions')}/chat/completions"
        self._limit = "max_tokens"
        self._key = ""
        self._client: httpx.Client | None = None

    def check(self) -> None:
        super().check()
        variable, host = self._settings.key_variable, urlsplit(self._settings.base_url).hostname or ""
        # Local servers rarely need a key, and the default variable is not meant for them.
        if not variable or find_key(variable, self._settings.base_url) or (is_near(host) and variable in USUAL):
            return
        if sentence := refusal(variable, self._settings.base_url):
            raise ConfigError.of("key_variable", sentence)
        if not is_near(host):
            known = "" if USUAL.get(variable) == host else f" (and {HOSTS}={variable}={host})"
            raise ConfigError(
                f"key_variable is {variable!r}, but no key for {host} was found: set it{known} before you start the "
                f"workbench, or run: keyring set {KEYRING_SERVICE} {host}; leave key_variable empty if the server "
                "needs no key"
            )

    @property
    def model_name(self) -> str:
        return self._settings.endpoint_model

    def open(self) -> None:
        import httpx

        self._key = find_key(self._settings.key_variable, self._settings.base_url).strip()
        headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
        try:
            timeout = httpx.Timeout(self._settings.timeout_seconds, connect=CONNECT_SECONDS)
            self._client = httpx.Client(headers=headers, timeout=timeout)
        except UnicodeEncodeError:
            raise ConfigError("the API key contains invalid characters: copy it again") from None

    def caption(self, frames: Pixels, fps: float, instruction: str) -> str:
        response = self._post(frames, instruction)
        if response.status_code == 400 and self._limit == "max_tokens" and "max_completion_tokens" in response.text:
            self._limit = "max_completion_tokens"  # the newer name, which some models require
            response = self._post(frames, instruction)
        self._check(response)
        return _answer(response)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client, self._key = None, ""

    def _post(self, frames: Pixels, instruction: str) -> httpx.Response:
        import httpx
        from PIL import Image

        assert self._client is not None, "open it first"
        pictures = []
        for frame in frames:
            file = io.BytesIO()
            Image.fromarray(frame).save(file, "JPEG", quality=JPEG_QUALITY)
            url = f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
            pictures.append({"type": "image_url", "image_url": {"url": url}})
        body = {
            "model": self._settings.endpoint_model,
            "messages": [{"role": "user", "content": [*pictures, {"type": "text", "text": instruction}]}],
            self._limit: self._settings.longest_answer,
        }
        try:
            return self._client.post(self._url, json=body)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NoAnswer(f"{self._url} cannot be reached ({error}): start the server, or fix base_url") from None
        except httpx.TimeoutException:
            reason = f"no answer within {self._settings.timeout_seconds:g} seconds"
            raise CaptionFailed(
                f"{reason}: raise timeout_seconds, or send fewer or smaller frames", again=True
            ) from None
        except httpx.RequestError as error:
            raise CaptionFailed(f"the connection was lost ({type(error).__name__})", again=True) from None

    def _check(self, response: httpx.Response) -> None:
        status = response.status_code
        if status == 200:
            return
        reason = self._reason(response)
        if status in (401, 403):
            where = self._settings.key_variable or "the keyring"
            problem = f"the key in {where} was rejected" if self._key else f"there is no key in {where}"
            raise ConfigError(f"{self._url} denied access ({status}): {problem}: set a valid key and start again")
        if status == 404:
            raise ConfigError(
                f"{self._url} was not found (404{reason}): fix base_url (most end in /v1), or endpoint_model, "
                f"which is {self._settings.endpoint_model!r}"
            )
        if status in BUSY:
            words = "asks for fewer requests" if status == 429 else "is not available"
            wait: float | None = None
            with contextlib.suppress(ValueError):
                wait = float(response.headers.get("retry-after", ""))
            wait = wait if wait is not None and 0 <= wait < math.inf else None
            raise NoAnswer(f"{self._url} {words} ({status}{reason}): wait and continue", wait)
        if 300 <= status < 400:
            raise ConfigError(f"{self._url} redirects ({status}): enter the address it redirects to")
        if status == 402:
            raise ModelUnavailable(f"{self._url} requires payment (402{reason}): top up the account and continue")
        raise CaptionFailed(f"{self._url} could not answer ({status}{reason})", again=status >= 500)

    def _reason(self, response: httpx.Response) -> str:
        """Return the server's error message, shortened and with the key removed."""
        try:
            error = response.json()
            error = error.get("error", error.get("detail", "")) if isinstance(error, dict) else error
            error = error.get("message", error) if isinstance(error, dict) else error
        except ValueError:
            error = response.text
        text = " ".join(str(error).split())
        text = text.replace(self._key, "[key]") if self._key else text
        return f": {text[:200]}" if text else ""


def _answer(response: httpx.Response) -> str:
    """Return the text of a chat completion. Raises CaptionFailed if the response is not one."""
    try:
        choice: dict[str, Any] = response.json()["choices"][0]
        content = choice["message"]["content"]
    except (json.JSONDecodeError, UnicodeDecodeError, LookupError, TypeError):
        start = " ".join(response.text[:80].split())
        raise CaptionFailed(f"the response is not a chat completion ({start!r})", again=True) from None
    if isinstance(content, list):
        content = " ".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    text = content if isinstance(content, str) else ""
    return whole_sentences(text) if choice.get("finish_reason") == "length" else text


CAPTIONER = Endpoint

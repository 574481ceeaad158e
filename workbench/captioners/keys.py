"""The key of an endpoint, from where the user keeps it to the process that needs it: never on disk, in an argument, an
environment that others can read, or a log.

A key goes to the host that it was approved for and to no other, whatever address a form, a flag or a file asks for.
Approved are OPENAI_API_KEY for api.openai.com, what whoever starts the workbench names in its environment, and what
lies in the system's keyring (package `keyring`) under the host's name:

    WORKBENCH_KEY_HOSTS="MY_KEY=llm.example.com, LAB_KEY=localhost:8000"
    keyring set video-lora-workbench api.example.com

A token of the Hub opens the whole account and is never sent as such a key. The caption job is started without the
variables that look like secrets (workbench.jobs). Whoever starts it hands the key over through a pipe, whose number is
all that the job's environment tells. A job started by hand finds the key in its own environment.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

PIPE = "WORKBENCH_KEY_PIPE"  # its number in the environment of the job: that of its input
HOSTS = "WORKBENCH_KEY_HOSTS"  # VARIABLE=HOST or VARIABLE=HOST:PORT, with commas between
KEYRING_SERVICE = "video-lora-workbench"
USUAL = {"OPENAI_API_KEY": "api.openai.com"}
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HUGGINGFACEHUB_API_TOKEN", "HF_HUB_TOKEN")
HUB_TOKEN = "hf_"  # how the Hub begins all of them


@contextlib.contextmanager
def handed_over(variable: str, base_url: str, key: str = "") -> Iterator[dict[str, Any]]:
    """What subprocess.Popen must get for its child to find the key for that address: stdin and env.

    key: the key itself, where it is not in this process's environment.

    `env` holds only what is to be added to the child's environment. Nothing is in either when there is no key to hand
    over.
    """
    key = key or _from_environment(variable, base_url)
    if not key:
        yield {"stdin": subprocess.DEVNULL, "env": {}}
        return
    reader, writer = os.pipe()
    try:
        with open(writer, "wb") as file:  # a key fits into the pipe's buffer, so nobody waits for the child
            file.write(json.dumps({"variable": variable, "address": _host_and_port(base_url), "key": key}).encode())
        yield {"stdin": reader, "env": {PIPE: "0"}}
    finally:
        os.close(reader)


def find_key(variable: str, base_url: str) -> str:
    """The key for an endpoint: handed over, else in the environment, else in the keyring; "" when there is none."""
    given = _received()
    if given and (given["variable"], given["address"]) == (variable, _host_and_port(base_url)):
        return given["key"]
    return _from_environment(variable, base_url) or _from_keyring(base_url)


def refusal(variable: str, base_url: str) -> str:
    """Why the key in an environment variable is not sent to an address; "" when it is, or when there is none."""
    key, (scheme, host, _) = os.environ.get(variable, "").strip(), _split(base_url)
    if variable in HUB_TOKENS or key.startswith(HUB_TOKEN):
        return f"{variable} holds a token of the Hub, which is sent to no other server: make a key for {host} alone"
    if not key or _from_environment(variable, base_url):
        return ""
    if scheme != "https" and not is_near(host):
        return f"the key in {variable} is not sent over {scheme}://, where others can read it: use https://"
    return (
        f"the key in {variable} is not approved for {host}: start the workbench with {HOSTS}={variable}={host}, "
        f"or run: keyring set {KEYRING_SERVICE} {host}"
    )


def is_near(host: str) -> bool:
    """Whether a host is this machine or in its own network, where servers want no key as a rule."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_private
    return "." not in host or host.endswith((".local", ".lan", ".internal", ".localhost"))


def _from_environment(variable: str, base_url: str) -> str:
    """The key in an environment variable that is approved for this address; "" when there is none."""
    key, (scheme, host, _) = os.environ.get(variable, "") if variable else "", _split(base_url)
    approved = [f"{name}={usual}" for name, usual in USUAL.items()]
    approved += [pair.strip() for pair in os.environ.get(HOSTS, "").split(",")]
    sent = scheme == "https" or is_near(host)
    named = any(f"{variable}={one}" in approved for one in (host, _host_and_port(base_url)))
    hub = variable in HUB_TOKENS or key.strip().startswith(HUB_TOKEN)
    return key if host and named and sent and not hub else ""


def _host_and_port(base_url: str) -> str:
    _, host, port = _split(base_url)
    return f"{host}:{port}"


def _split(base_url: str) -> tuple[str, str, int]:
    """Scheme, host and port; of what is no address none."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(base_url)
        return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    return "", "", 0


@cache
def _received() -> dict[str, str]:
    """What the starter put into the pipe; read once, and the variable removed so that no child goes looking."""
    number = os.environ.pop(PIPE, "")
    if not number.isdecimal():
        return {}
    with contextlib.suppress(OSError, ValueError), open(int(number), "rb", closefd=False) as file:
        return {str(name): str(value) for name, value in json.loads(file.read()).items()}
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

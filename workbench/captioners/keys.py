"""API keys for endpoints: find a key where the user keeps it and pass it to the process that needs it.

Keys never appear on disk, in arguments, in an environment that others can read, or in a log. A key is sent only to the
host it was approved for, whatever address a form, flag or file asks for. Approved keys are OPENAI_API_KEY for
api.openai.com, those named in the environment of the workbench, and those in the system's keyring (package `keyring`)
under the host's name:

    WORKBENCH_KEY_HOSTS="MY_KEY=llm.example.com, LAB_KEY=localhost:8000"
    keyring set video-lora-workbench api.example.com

Hub tokens grant access to the whole account and are never sent as keys. The caption job starts without any environment
variables that look like secrets (workbench.jobs); its parent passes the key through a pipe and puts only the pipe's
number into the job's environment. A job started by hand reads the key from its own environment.
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

PIPE = "WORKBENCH_KEY_PIPE"  # environment variable with the pipe's file descriptor (the job's stdin)
HOSTS = "WORKBENCH_KEY_HOSTS"  # VARIABLE=HOST or VARIABLE=HOST:PORT, separated by commas
KEYRING_SERVICE = "video-lora-workbench"
USUAL = {"OPENAI_API_KEY": "api.openai.com"}
HUB_TOKENS = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HUGGINGFACE_TOKEN", "HUGGINGFACEHUB_API_TOKEN", "HF_HUB_TOKEN")
HUB_TOKEN = "hf_"  # prefix of every Hub token


@contextlib.contextmanager
def handed_over(variable: str, base_url: str, key: str = "") -> Iterator[dict[str, Any]]:
    """Yield the `stdin` and `env` arguments with which subprocess.Popen passes the key for this address to a child.

    `env` holds only additions to the child's environment. Without a key it is empty and `stdin` is DEVNULL.

    key: the key itself, if it is not in this process's environment.
    """
    key = key or _from_environment(variable, base_url)
    if not key:
        yield {"stdin": subprocess.DEVNULL, "env": {}}
        return
    reader, writer = os.pipe()
    try:
        with open(writer, "wb") as file:  # a key fits into the pipe's buffer, so this never blocks
            file.write(json.dumps({"variable": variable, "address": _host_and_port(base_url), "key": key}).encode())
        yield {"stdin": reader, "env": {PIPE: "0"}}
    finally:
        os.close(reader)


def find_key(variable: str, base_url: str) -> str:
    """Return an endpoint's key from the pipe, the environment or the keyring, in that order; "" if there is none."""
    given = _received()
    if given and (given["variable"], given["address"]) == (variable, _host_and_port(base_url)):
        return given["key"]
    return _from_environment(variable, base_url) or _from_keyring(base_url)


def refusal(variable: str, base_url: str) -> str:
    """Explain why the key in an environment variable is not sent to an address; "" if it is, or if there is no key."""
    key, (scheme, host, _) = os.environ.get(variable, "").strip(), _split(base_url)
    if variable in HUB_TOKENS or key.startswith(HUB_TOKEN):
        return f"{variable} holds a Hub token, which is never sent to other servers: create a key for {host} alone"
    if not key or _from_environment(variable, base_url):
        return ""
    if scheme != "https" and not is_near(host):
        return f"the key in {variable} is not sent over {scheme}://, where others can read it: use https://"
    return (
        f"the key in {variable} is not approved for {host}: start the workbench with {HOSTS}={variable}={host}, "
        f"or run: keyring set {KEYRING_SERVICE} {host}"
    )


def is_near(host: str) -> bool:
    """Whether a host is this machine or on its local network, where servers rarely need a key."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_private
    return "." not in host or host.endswith((".local", ".lan", ".internal", ".localhost"))


def _from_environment(variable: str, base_url: str) -> str:
    """Return the key in an environment variable if it is approved for this address, else ""."""
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
    """Return scheme, host and port; empty ones for an invalid address."""
    with contextlib.suppress(ValueError):
        parts = urlsplit(base_url)
        return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    return "", "", 0


@cache
def _received() -> dict[str, str]:
    """Read the key from the pipe, once, and remove the variable so that child processes do not try to read it."""
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

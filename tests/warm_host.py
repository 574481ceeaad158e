"""Processes that are forked from one which has imported what is large: `python -m tests.warm_host KIND FD FD`.

A training run or a sampling worker computes for less than a second in a test, after seven seconds of importing torch,
diffusers, transformers and peft; a page is built in less time than Gradio is imported, and a small video read in less
than PyAV. Each forked process is as real
as another: a process of its own, in its own session where one is asked for, with the environment, input, output,
command line and exit code of one that was begun from nothing. Its program is run from its first line; jobs import the
trainer, the sampler and all other modules that compute themselves. That programs also begin from nothing is tested
wherever a command starts them, where their environment is a special one, and where a test is marked "from_nothing".

Whoever connects to the first socket is told the environment in which the host has imported, and asks for a process:
JSON, with the descriptors of its stdin, stdout and stderr and of a pipe for its exit status (tests.warm_client). The
answer is its process id. The host ends when the other end of the second socket is closed. What a forked process starts,
such as a page's jobs, is asked for in the same way.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import socket
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.warm_client import MOST_BYTES, STATUS, patch

IMPORTED = {
    "job": (
        "torch", "torch._dynamo", "torch.distributed.tensor", "accelerate", "peft",
        "transformers.models.t5.modeling_t5", "transformers.models.t5.tokenization_t5",
        "diffusers.pipelines.cogvideo.pipeline_cogvideox", "diffusers.models.transformers.transformer_ltx",
        "diffusers.models.transformers.transformer_wan", "av", "httpx", "psutil", "workbench.dataset_builder",
        "workbench.runs.run",
    ),
    "page": ("workbench.ui.app", "workbench.ui.server.serving"),
    "child": ("av", "cv2", "scenedetect", "workbench.dataset_builder"),
}  # fmt: skip
ROOM = 4096  # bytes for the command line of a process


def serve(asked: socket.socket, life: socket.socket, ours: dict[str, str], made: dict[str, str]) -> list[str]:
    """Start processes until the other end of `life` is closed; in one that was asked for, return its command.

    ours: the environment in which this process has imported;  made: variables that every process has
    """
    running: dict[int, tuple[int, int]] = {}  # by the descriptor of a process: its id, and where its status goes
    while True:
        ready, _, _ = select.select([asked, life, *running], [], [])
        for process in set(ready) - {asked, life}:
            pid, told = running.pop(process)
            with contextlib.suppress(BrokenPipeError):  # nobody waits for it
                os.write(told, STATUS.pack(os.waitpid(pid, 0)[1]))
            os.close(told)
            os.close(process)
        if life in ready:
            return []
        if asked not in ready:
            continue
        asking, _ = asked.accept()
        with asking, contextlib.suppress(ConnectionError):  # one that was killed
            asking.send(json.dumps(ours).encode())
            message, given, _, _ = socket.recv_fds(asking, MOST_BYTES, 4)
            if not message:  # it needs another environment
                continue
            if not (pid := os.fork()):
                for one in (asked, life, asking):
                    one.close()
                for process, (_, told) in running.items():
                    os.close(told)
                    os.close(process)
                return _become(json.loads(message), given, made)
            running[os.pidfd_open(pid)] = pid, given.pop()
            for one in given:
                os.close(one)
            asking.send(str(pid).encode())


def import_for(kind: str) -> dict[str, str]:
    """Import the packages, without looking for garbage meanwhile. Returns the variables that they have set."""
    before = dict(os.environ)
    gc.disable()
    for module in IMPORTED[kind]:
        importlib.import_module(module)
    gc.enable()
    gc.freeze()
    assert threading.active_count() == 1, "a forked process has no other threads"
    return {name: value for name, value in os.environ.items() if before.get(name) != value}


def _become(wanted: dict[str, Any], given: list[int], made: dict[str, str]) -> list[str]:
    """Make this process the one that was asked for, as it would be after exec. Returns its command."""
    if wanted["session"]:
        os.setsid()
    for number, descriptor in enumerate(given[:3]):
        os.dup2(descriptor, number)
    for descriptor in given:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update({**wanted["environment"], **made})
    os.chdir(wanted["folder"])
    tempfile.tempdir = None  # as the environment says
    patch(wanted["hosts"])
    command: list[str] = wanted["command"]
    _show(command)
    return command


def _show(command: list[str]) -> None:
    """Write the command where ps and psutil read it: over the host's own, which has room for it.

    The last byte must not be zero: the text then counts up to the first zero (proc_pid_cmdline(5)).
    """
    facts = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begins, ends = int(facts[45]), int(facts[46])
    text = " ".join(command).encode()[: ends - begins - 2] + b"\0"
    ctypes.memmove(begins, text.ljust(ends - begins, b"-"), ends - begins)


def run(command: list[str]) -> None:
    """As `python OPTIONS -m MODULE ...` or `python FILE ...`."""
    if "-m" in command:
        sys.argv = command[command.index("-m") + 1 :]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = command[1:]
        sys.path.insert(0, str(Path(sys.argv[0]).parent))
        runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    ours = dict(os.environ)
    made = import_for(sys.argv[1])
    if command := serve(*(socket.socket(fileno=int(number)) for number in sys.argv[2:4]), ours, made):
        run(command)

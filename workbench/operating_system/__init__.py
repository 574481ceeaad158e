"""What differs between operating systems: locks, processes and their limits, links, renaming files that are open.

    posix       Linux and macOS: flock, process groups, signals, resource limits, /proc
    portable    what runs on Windows: filelock, psutil, files instead of signals, job objects (job_objects)

Windows has the second one alone. Elsewhere WORKBENCH_PLATFORM=portable chooses it, so that it is tested on Linux; what
it cannot do is in docs/platforms.md. Only what has no equal in Python's library or psutil belongs here. Not covered:
what is done with it (jobs, workspace), devices (jobs.devices).
"""

from __future__ import annotations

import os
import sys

from workbench.operating_system.system import System

VARIABLE = "WORKBENCH_PLATFORM"
WINDOWS = ("SYSTEMROOT", "SYSTEMDRIVE", "TEMP", "TMP", "USERPROFILE")
BARE = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", VARIABLE, *WINDOWS)


def _chosen() -> System:
    if sys.platform == "win32" or os.environ.get(VARIABLE) == "portable":
        from workbench.operating_system.portable import Portable

        return Portable()
    else:  # which mypy leaves out for Windows
        from workbench.operating_system.posix import Posix

        return Posix()


system = _chosen()


def bare_environment() -> dict[str, str]:
    """The environment of a child that only computes: no accounts, caches, proxies or keys."""
    return {name: os.environ[name] for name in BARE if name in os.environ}


__all__ = ["VARIABLE", "System", "bare_environment", "system"]

"""Bring the browser that the page's tests drive: `python scripts/browser.py`. Run with the environment's Python.

Tried in turn: a browser that is there, Playwright's own download, Debian's package (as root). Where none works, one
sentence says what to install, and the browser tests say the same when they are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DOWNLOAD_SECONDS = 180
REMEDY = "no browser for the page's tests: install one (Debian: apt-get install chromium; elsewhere Google Chrome)"


def main() -> int:
    browser = find() or downloaded() or packaged()
    print(f"browser: {browser}" if browser else REMEDY, flush=True)
    return 0


def find() -> str | None:
    """A browser on the PATH, or Playwright's own if it was downloaded before."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    return playwrights()


def playwrights() -> str | None:
    """Where Playwright's Chromium lies, None when it is not on disk."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def downloaded() -> str | None:
    """Playwright's own Chromium, with the libraries it needs where we may install them."""
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        command.insert(-1, "--with-deps")
    return playwrights() if runs(command) else None


def packaged() -> str | None:
    """Debian's chromium, when we are root."""
    if not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get")):
        return None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    runs(["apt-get", "update", "-qq"], environment)
    runs(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], environment)
    return shutil.which("chromium")


def runs(command: list[str], environment: dict[str, str] | None = None) -> bool:
    """Whether the command ends well within the time."""
    try:
        done = subprocess.run(command, env=environment, timeout=DOWNLOAD_SECONDS, capture_output=True)
    except (subprocess.TimeoutExpired, OSError):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())

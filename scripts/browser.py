"""Find or install the browser for the page's tests: `python scripts/browser.py`, with the environment's Python.

It tries an installed browser, Playwright's download, and Debian's package (as root). If none works, it prints what to
install, as do the skipped browser tests.
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
    """Return a browser on the PATH, or Playwright's if it was downloaded before."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    return playwrights()


def playwrights() -> str | None:
    """Return the path of Playwright's Chromium, or None if it is not on disk."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return None
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def downloaded() -> str | None:
    """Download Playwright's Chromium, as root with the libraries that it needs."""
    command = [sys.executable, "-m", "playwright", "install", "chromium"]
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get"):
        command.insert(-1, "--with-deps")
    return playwrights() if runs(command) else None


def packaged() -> str | None:
    """Install Debian's chromium, as root."""
    if not (hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("apt-get")):
        return None
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    runs(["apt-get", "update", "-qq"], environment)
    runs(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"], environment)
    return shutil.which("chromium")


def runs(command: list[str], environment: dict[str, str] | None = None) -> bool:
    """Run a command and return whether it succeeds in time."""
    try:
        done = subprocess.run(command, env=environment, timeout=DOWNLOAD_SECONDS, capture_output=True)
    except (subprocess.TimeoutExpired, OSError):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main())

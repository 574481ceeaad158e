"""Where the package lies, what it ships, how extras are installed. Not covered: the user's own files (workspace)."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CODE = Path(__file__).resolve().parent.parent  # the folder that holds the package `workbench`
_INSTALLED = CODE / "workbench" / "shipped"  # where a wheel has what stands beside the package in a checkout
SHIPPED = _INSTALLED if _INSTALLED.is_dir() else CODE
ASSETS, NOTEBOOKS = SHIPPED / "assets", SHIPPED / "notebooks"
PAGE = SHIPPED / "webui.py"  # the program that serves the page
GUIDE = SHIPPED / "docs" / "guide.md"
PACKAGE = "video-lora-workbench"


def extra_command(extra: str) -> str:
    """The command that brings an extra of this package, which is in no index.

    pip finds it by name where it is installed; where only its requirements are, as in a Space, by its folder.
    """
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        return f"pip install -e '{CODE}[{extra}]'"
    return f"pip install '{PACKAGE}[{extra}]'"

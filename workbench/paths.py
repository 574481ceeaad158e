"""Where the package lies and what it ships. Not covered: the user's own files (workspace)."""

from __future__ import annotations

from pathlib import Path

CODE = Path(__file__).resolve().parent.parent  # the folder that holds the package `workbench`
ASSETS = CODE / "assets"

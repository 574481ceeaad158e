"""Print the notes of a release from the changelog: `python scripts/release.py v0.2.0`. Standard library only.

It refuses a tag that differs from the version in workbench/__init__.py, and a version without a section.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 64
    try:
        print(notes(sys.argv[1], version(), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def version() -> str:
    """Return the version in workbench/__init__.py without importing it."""
    found = re.search(r'^__version__ = "(.+)"$', (ROOT / "workbench/__init__.py").read_text(encoding="utf-8"), re.M)
    if not found:
        raise ValueError("workbench/__init__.py has no line __version__ = ...")
    return found[1]


def notes(tag: str, current: str, changelog: str) -> str:
    """Return the section of a tag's version, without its heading. Raises ValueError."""
    if tag != f"v{current}":
        raise ValueError(
            f"the tag is {tag}, the version in workbench/__init__.py {current}: the tag must be v{current}"
        )
    section = re.search(rf"^## {re.escape(current)}(?: [^\n]*)?\n(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if not section or not section[1].strip():
        raise ValueError(f'CHANGELOG.md has nothing under "## {current}": rename "## Unreleased" to that')
    return section[1].strip()


if __name__ == "__main__":
    sys.exit(main())

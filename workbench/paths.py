"""Where the package and the files it ships are, what is installed, and how to strip folders from a text."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CODE = Path(__file__).resolve().parent.parent  # the folder that holds the package `workbench`
_INSTALLED = CODE / "workbench" / "shipped"  # where a wheel keeps what a checkout has beside the package
SHIPPED = _INSTALLED if _INSTALLED.is_dir() else CODE
ASSETS, NOTEBOOKS = SHIPPED / "assets", SHIPPED / "notebooks"
PAGE = SHIPPED / "webui.py"  # the program that serves the page
SKILL = SHIPPED / "docs" / "agent_skill.md"
PACKAGE = "video-lora-workbench"
# Matches a web address, which is kept, or the folders of a path: absolute, starting at a home folder or a parent, or on
# Windows. A folder's name may contain spaces; the punctuation of the sentence around it ends it.
_FOLDER = r"[^\s/\\'\"`,;:<>|]+(?: (?![.~])[^\s/\\'\"`,;:<>|]+){0,4}+[/\\]+"
_FOLDERS = re.compile(
    r"(?P<address>\bhttps?://[^\s'\"`]+)"
    r"|(?:\bfile:)?(?:(?<![\w.~])(?:~[\w.-]*|\.{1,2}|[A-Za-z]:)[/\\]+|(?<![\w.~])/+|\\\\)(?=[^\s/])"
    rf"(?:{_FOLDER})*"
)


def without_folders(text: str, *known: Path) -> str:
    """Shorten every path in a text to its last part, before the text is sent to others.

    known: folders to cut whatever their names look like, in addition to the user's home.
    """
    for folder in (*known, Path.home()):
        if len(folder.parts) > 2:
            pattern, name = re.escape(str(folder)), folder.name if folder in known else "~"
            text = re.sub(rf"{pattern}(?=[/\\])", "", text)
            text = re.sub(rf"{pattern}(?![\w-])", name.replace("\\", r"\\"), text)
    return _FOLDERS.sub(lambda found: found["address"] or "", text)


def installed_version(package: str) -> str:
    """Return the version of an installed package; "" if it is missing. Imports nothing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def extra_command(extra: str) -> str:
    """Return the pip command that installs an extra of this package.

    The package is on no index: pip finds it by name where it is installed, and by its folder where only its
    requirements are installed, as in a Space.
    """
    return f"pip install '{PACKAGE}[{extra}]'" if installed_version(PACKAGE) else f"pip install -e '{CODE}[{extra}]'"

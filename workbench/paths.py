"""Where the package lies, what it ships, how extras are installed; texts without this machine's folders."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CODE = Path(__file__).resolve().parent.parent  # the folder that holds the package `workbench`
_INSTALLED = CODE / "workbench" / "shipped"  # where a wheel has what stands beside the package in a checkout
SHIPPED = _INSTALLED if _INSTALLED.is_dir() else CODE
ASSETS, NOTEBOOKS = SHIPPED / "assets", SHIPPED / "notebooks"
PAGE = SHIPPED / "webui.py"  # the program that serves the page
SKILL = SHIPPED / "docs" / "agent_skill.md"
PACKAGE = "video-lora-workbench"
# An address of the web, which stays, or the folders of a path: absolute, relative to a home or upwards, of Windows. The
# name of a folder may have blanks inside; a sentence's own punctuation ends it.
_FOLDER = r"[^\s/\\'\"`,;:<>|]+(?: (?![.~])[^\s/\\'\"`,;:<>|]+){0,4}+[/\\]+"
_FOLDERS = re.compile(
    r"(?P<address>\bhttps?://[^\s'\"`]+)"
    r"|(?:\bfile:)?(?:(?<![\w.~])(?:~[\w.-]*|\.{1,2}|[A-Za-z]:)[/\\]+|(?<![\w.~])/+|\\\\)(?=[^\s/])"
    rf"(?:{_FOLDER})*"
)


def without_folders(text: str, *known: Path) -> str:
    """The text with every path of this machine cut to the name at its end: for what is sent to others.

    known: folders that are cut whatever their names look like, beside the user's home
    """
    for folder in (*known, Path.home()):
        if len(folder.parts) > 2:
            whole, alone = re.escape(str(folder)), folder.name if folder in known else "~"
            text = re.sub(rf"{whole}(?=[/\\])", "", text)
            text = re.sub(rf"{whole}(?![\w-])", alone.replace("\\", r"\\"), text)
    return _FOLDERS.sub(lambda found: found["address"] or "", text)


def extra_command(extra: str) -> str:
    """The command that brings an extra of this package, which is in no index.

    pip finds it by name where it is installed; where only its requirements are, as in a Space, by its folder.
    """
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        return f"pip install -e '{CODE}[{extra}]'"
    return f"pip install '{PACKAGE}[{extra}]'"

"""The one way from a text to the terminal: names, captions and metadata are other people's, and a terminal obeys them.

Escape sequences, other control characters, line ends within a name and marks that turn the writing direction are shown
as Python would write them (`\\x1b`, `\\n`, `\\u202e`). So a file's name can neither recolor the screen, set its title,
fill the clipboard nor forge a line. With --json a program gets the exact text: there they are escaped as JSON has it.
"""

from __future__ import annotations

import io
import json
import traceback
import unicodedata
from collections.abc import Iterable
from types import TracebackType

import click

# Of the characters without a shape: those that join letters, and emoji.
JOINERS = "\u200c\u200d"
STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")  # Unicode's categories


def visible(text: object) -> str:
    """A text as one line that steers no terminal."""
    whole = str(text)
    if whole.isascii() and whole.isprintable():
        return whole
    return "".join(_escaped(one) if _steers(one) else one for one in whole)


def _steers(one: str) -> bool:
    return unicodedata.category(one) in STEERING and one not in JOINERS


def _escaped(one: str) -> str:
    return repr(one)[1:-1] if one < "\u0080" else one.encode("ascii", "backslashreplace").decode()


def say(text: object = "", *, err: bool = False, bold: bool = False) -> None:
    """Print one line."""
    line = visible(text)
    click.echo(click.style(line, bold=True) if bold else line, err=err)


def say_lines(text: str | Iterable[object], *, err: bool = False) -> None:
    """Print several lines: of a text of ours, such as a log or a README, or one for each item."""
    for line in text.split("\n") if isinstance(text, str) else text:
        say(line, err=err)


def say_over(text: object = "", *, err: bool = False) -> None:
    """Print over the present line of a terminal, which the next call replaces; "" clears it."""
    click.echo(f"\r\x1b[K{visible(text)}", nl=False, err=err)


def ask(question: str) -> bool:
    """Ask for a yes or a no."""
    return click.confirm(visible(question))


def print_json(value: object) -> None:
    """For --json."""
    from workbench.workspace import finite

    text = json.dumps(finite(value), indent=2, ensure_ascii=False)
    click.echo("".join(json.dumps(one)[1:-1] if _steers(one) and one != "\n" else one for one in text))


def show_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """For `sys.excepthook`: a traceback whose texts steer no terminal."""
    for part in traceback.format_exception(kind, error, trace):
        first, *others = part.rstrip("\n").split("\n")
        say_lines([first, *(f"  {line}" for line in others)], err=True)  # a message has no line of its own


def shown_by_click(error: click.ClickException) -> None:
    """Print an error of the command line itself, which repeats what was typed."""
    written = io.StringIO()
    error.show(written)
    say_lines(written.getvalue().rstrip("\n"), err=True)

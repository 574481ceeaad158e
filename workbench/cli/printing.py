"""Print untrusted text safely: names, captions and metadata come from others, and terminals obey escape sequences.

Control characters, line breaks within a name and bidirectional marks are escaped as in Python (`\\x1b`, `\\n`,
`\\u202e`). So a file name cannot recolor the screen, set its title, fill the clipboard or forge a line. With --json
they are escaped as in JSON, which keeps the exact text.
"""

from __future__ import annotations

import io
import json
import sys
import traceback
import unicodedata
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console


JOINERS = "\u200c\u200d"  # invisible, but part of words and emoji
STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")  # Unicode's categories


def visible(text: object) -> str:
    """Return the text as one line without characters that steer a terminal."""
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
    """Print the lines of a text, such as a log or a README, or one line per item."""
    for line in text.split("\n") if isinstance(text, str) else text:
        say(line, err=err)


def say_over(text: object = "", *, err: bool = False) -> None:
    """Replace the current line of the terminal; "" clears it."""
    click.echo(f"\r\x1b[K{visible(text)}", nl=False, err=err)


def ask(question: str) -> bool:
    """Ask a yes-or-no question."""
    return click.confirm(visible(question))


def print_json(value: object) -> None:
    """Print the output of --json."""
    from workbench.workspace import finite

    text = json.dumps(finite(value), indent=2, ensure_ascii=False)
    click.echo("".join(json.dumps(one)[1:-1] if _steers(one) and one != "\n" else one for one in text))


def show_crash(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print a traceback safely; for `sys.excepthook`."""
    for part in traceback.format_exception(kind, error, trace):
        first, *others = part.rstrip("\n").split("\n")
        say_lines([first, *(f"  {line}" for line in others)], err=True)  # no line of a message starts a line


def show_usage_error(error: click.ClickException) -> None:
    """Print an error in the command line. Its text repeats what was typed."""
    written = io.StringIO()
    error.show(written)
    say_lines(written.getvalue().rstrip("\n"), err=True)


PIPE_WIDTH = 200  # of a table in a pipe or a file
GAP = "  "


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table without rules. right: heads of the columns that are right-aligned."""
    from rich.cells import cell_len
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    cells = [[visible(text) for text in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    if sum(widths) + len(GAP) * (len(widths) - 1) > console.width:
        _print_wrapped(console, heads, cells, right)
        return
    # rich is too slow for long lists.
    for number, row in enumerate([heads, *cells]):
        blanks = [" " * (width - cell_len(text)) for width, text in zip(widths, row, strict=True)]
        sides = [
            gap + text if head in right else text + gap for head, text, gap in zip(heads, row, blanks, strict=True)
        ]
        say(GAP.join(sides).rstrip(), bold=number == 0)


def _print_wrapped(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    """Print a table that is wider than the terminal, with wrapped cells."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(escape(head), justify="right" if head in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)

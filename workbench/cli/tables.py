"""Tables in the shell."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from workbench.cli.printing import say, visible

if TYPE_CHECKING:
    from rich.console import Console

PIPE_WIDTH = 200  # a table in a pipe or a file is not cut to a terminal's width
GAP = "  "


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Texts in rows and columns, without lines. right: heads of the columns whose texts stand at the right."""
    from rich.cells import cell_len
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    cells = [[visible(text) for text in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(heads, *cells, strict=True)]
    if sum(widths) + len(GAP) * (len(widths) - 1) > console.width:
        _print_wrapped(console, heads, cells, right)
        return
    # rich takes as long for a row of a long list as all else for the whole list.
    for number, row in enumerate([heads, *cells]):
        blanks = [" " * (width - cell_len(text)) for width, text in zip(widths, row, strict=True)]
        sides = [
            gap + text if head in right else text + gap for head, text, gap in zip(heads, row, blanks, strict=True)
        ]
        say(GAP.join(sides).rstrip(), bold=number == 0)


def _print_wrapped(console: Console, heads: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str]) -> None:
    """A table that is wider than the terminal: its cells are broken into lines."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(escape(head), justify="right" if head in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)

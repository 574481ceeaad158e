"""Tables in the shell. Not covered: what stands in them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

PIPE_WIDTH = 200  # a table in a pipe or a file is not cut to a terminal's width


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Texts in rows and columns, without lines. right: heads of the columns whose texts stand at the right."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for head in heads:
        table.add_column(escape(head), justify="right" if head in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    Console(width=None if sys.stdout.isatty() else PIPE_WIDTH).print(table)

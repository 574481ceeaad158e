"""What a notebook that was run shows."""

from __future__ import annotations

from collections.abc import Iterable

from nbformat import NotebookNode


def shown_pages(outputs: Iterable[NotebookNode]) -> list[str]:
    """The HTML of the outputs, without the script of the charts."""
    found = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    return [page for page in found if not page.startswith("<script>")]

"""The table of checks in docs/add_a_family.md is the one that follows from the tests."""

from __future__ import annotations

import pytest

from tests.families.check_table import BEGIN, DOCUMENT, END, table


@pytest.mark.long
def test_the_documents_table_says_which_variant_each_check_takes() -> None:
    written = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert written == table(), "python -m tests.families.check_table writes it anew"

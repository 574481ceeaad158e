"""The table of checks in docs/add_a_family.md is the one that follows from the tests, and what it says of learning is
what was measured."""

from __future__ import annotations

import json

import pytest

from tests.families.check_table import BEGIN, DOCUMENT, END, ROOT, table
from workbench.families import families

LEARNED = ROOT / "benchmarks" / "results" / "learns_a_clip_cpu.json"


@pytest.mark.long
def test_the_documents_table_says_which_variant_each_check_takes() -> None:
    written = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert written == table(), "python -m tests.families.check_table writes it anew"


def test_a_lora_of_every_family_halved_its_loss_on_a_clip() -> None:
    worst: dict[str, float] = {}
    for row in json.loads(LEARNED.read_text(encoding="utf-8"))["rows"]:
        name = row["case"].partition(",")[0]
        worst[name] = max(worst.get(name, 0.0), row["ratio"])
    assert set(worst) == {family.name for family in families()}
    assert max(worst.values()) < 0.5
    text = DOCUMENT.read_text(encoding="utf-8")
    for family in families():
        said = f"{100 * worst[family.name]:.2g} % ({family.title}"
        assert said in text, said

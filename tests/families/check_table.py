"""Which check takes which variant, read from the tests that pytest collects: the table of docs/add_a_family.md.

python -m tests.families.check_table        writes it into the document
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from workbench.families import families

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "add_a_family.md"
BEGIN, END = "<!-- tests/families/check_table.py writes from here -->", "<!-- to here -->"
CONTRACT, SIZES = "tests/families/test_contract.py", "tests/families/test_real_sizes.py"
DEFINITION, VIDEO = "test_the_loss_equals_its_definition", "test_a_video_equals_the_stock_pipelines"
# What a check is called -> the tests that take a variant; of the contract each of them must.
CHECKS: dict[str, tuple[str, ...]] = {
    "contract": (CONTRACT,),
    "LoRA in the stock pipeline": (f"{CONTRACT}::test_gradients_reach_the_lora_alone_and_its_file_works",),
    "loss by definition": (
        "tests/families/test_cogvideox_objective.py::test_the_loss_equals_the_official_training_step",
        f"tests/families/test_wan.py::{DEFINITION}",
        f"tests/families/test_ltx.py::{DEFINITION}",
        f"tests/families/test_phenaki.py::{DEFINITION}",
    ),
    "video of the stock pipeline": (
        "tests/families/test_cogvideox_sampling.py::test_b20_a_video_equals_the_stock_pipelines",
        f"tests/families/test_wan.py::{VIDEO}",
        f"tests/families/test_ltx.py::{VIDEO}",
    ),
    "LoRA formats": (
        "tests/families/test_cogvideox_loras.py::test_a_format_gives_back_what_it_was_given",
        "tests/families/test_lora_formats.py::test_every_format_goes_out_and_back",
    ),
    "memory levels": (
        "tests/trainer/test_memory_levels.py::test_each_level_computes_what_the_plain_model_does",
        "tests/memory/test_levels_of_families.py::test_levels_that_round_nothing_give_the_same_bits",
        "tests/trainer/test_phenaki_training.py::test_each_memory_level_computes_what_the_plain_model_does",
    ),
    "exact resume": (
        "tests/trainer/test_exact.py::test_interrupted_and_resumed_it_ends_in_the_same_bytes",
        "tests/trainer/test_every_family.py::test_a_resumed_run_is_exact",
        "tests/trainer/test_every_family.py::test_from_clips_to_a_grid",
        "tests/trainer/test_phenaki_training.py::test_interrupted_and_resumed_it_ends_in_the_same_bytes",
    ),
}
# Tests that take one variant without saying so in their names.
ONE = {
    "tests/trainer/test_exact.py": "cogvideox-sincos",  # the built-in model's architecture
}


def collected() -> list[str]:
    """The names of the tests, as pytest prints them. Raises CalledProcessError."""
    files = sorted({test.partition("::")[0] for tests in CHECKS.values() for test in tests} | {SIZES})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.splitlines() if "::" in line]


def variant_of(name: str, known: list[str]) -> str | None:
    """ "wan-a14b" of the name of a test that takes it; None for a test that takes none of the variants."""
    file, _, rest = name.partition("::")
    if file in ONE:
        return ONE[file]
    given = rest.partition("[")[2].rstrip("]").replace(" ", "-", 1)  # "wan text-..." and "wan-text-..." are one
    of_file = re.search(r"test_(wan|ltx|cogvideox|phenaki)", file)
    tried = (given, f"{of_file[1] if of_file else 'cogvideox'}-{given}")
    found = [one for one in known for text in tried if text == one or text.startswith(f"{one}-")]
    return max(found, key=len, default=None)


def table() -> str:
    """The table, and the sizes that are run on the meta device."""
    names = collected()
    known = [f"{family.name}-{variant}" for family in families() for variant in family.toys]
    taken: dict[str, dict[str, set[str]]] = {check: defaultdict(set) for check in CHECKS}
    for name in names:
        if (variant := variant_of(name, known)) is not None:
            for check, tests in CHECKS.items():
                if name.startswith(tests):
                    taken[check][variant].add(name.partition("[")[0])
    every = set().union(*taken["contract"].values())
    rows = [["Variant", *CHECKS], ["---"] * (len(CHECKS) + 1)]
    for family in families():
        for variant in family.toys:
            found = {check: by_variant[f"{family.name}-{variant}"] for check, by_variant in taken.items()}
            found["contract"] = found["contract"] if found["contract"] == every else set()
            rows.append([f"{family.title} `{variant}`", *("yes" if tests else "" for tests in found.values())])
    sizes = sorted({match[1] for name in names if (match := re.search(r"test_real_sizes.*\[(.+)\]", name))})
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", f"On the meta device: {', '.join(f'`{one}`' for one in sizes)}."])


def main() -> None:
    before, _, rest = DOCUMENT.read_text(encoding="utf-8").partition(BEGIN)
    DOCUMENT.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()

"""The workflows of GitHub Actions run what is here: the Pythons of pyproject.toml, scripts and targets that exist.

Not covered: their syntax (`make workflows` runs actionlint, which asks an index for it), and running them.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts import install

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
workflows = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def jobs(path: Path) -> dict[str, Any]:
    """Jobs by name."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return found


def test_the_short_tests_run_on_every_supported_python_and_system() -> None:
    matrix = jobs(ROOT / ".github/workflows/ci.yml")["short-tests"]["strategy"]["matrix"]
    minors = range(install.OLDEST_PYTHON[1], install.NEWEST_PYTHON[1] + 1)
    assert matrix["python"] == [f"3.{minor}" for minor in minors]
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "windows", "macos"]
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert supported == f">=3.{minors.start},<3.{minors.stop}"


@pytest.mark.parametrize("name", ["short", "portable"])
def test_the_tests_that_are_listed_exist(name: str) -> None:
    for line in (ROOT / f"tests/{name}.txt").read_text(encoding="utf-8").splitlines():
        path, _, test = re.sub("^--(ignore|deselect)=", "", line).partition("::")
        assert (ROOT / path).exists(), line
        assert not test or f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), line


@workflows
def test_a_job_may_do_little_and_ends(path: Path) -> None:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert document["permissions"] == {"contents": "read"}
    assert document["concurrency"]
    for name, job in document["jobs"].items():
        assert job["timeout-minutes"] <= 120, name


@workflows
def test_actions_are_pinned_to_a_commit(path: Path) -> None:
    for line in re.findall(r"uses: (.+)", path.read_text(encoding="utf-8")):
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


@workflows
def test_what_a_job_runs_is_here(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = "\n".join(step.get("run", "") for job in jobs(path).values() for step in job["steps"])
    for target in re.findall(r"^make ([a-z-]+)", commands, re.MULTILINE):
        assert f"\n{target}:" in makefile, f"make {target}"
    for name in re.findall(r"(?:scripts|tests)/[\w./]+", commands):
        assert (ROOT / name).exists(), name
    for module in re.findall(r"-m (scripts\.\w+)", commands):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module

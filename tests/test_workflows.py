"""The workflows of GitHub Actions run what is here: the Pythons of pyproject.toml, scripts and targets that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

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


@pytest.mark.parametrize(("workflow", "job"), [("ci", "package"), ("release", "build")])
def test_a_package_is_built_and_tried_with_locked_packages(workflow: str, job: str) -> None:
    """Else what passes changes with the index: an older checker refused what a newer build backend had written."""
    steps = jobs(ROOT / f".github/workflows/{workflow}.yml")[job]["steps"]
    lines = [line.strip() for step in steps for line in step.get("run", "").splitlines()]
    installs = [line for line in lines if " install " in line]
    for line in installs:
        locked = re.search(r"--require-hashes .*--requirement \S*locks/\w+[.]txt", line)
        torch = "--no-deps" in line and "pre-requirements.txt" in line
        assert locked or torch or "--no-index" in line, line
    assert [name for line in installs for name in re.findall(r"locks/\w+[.]txt", line)] == [
        "locks/release.txt",
        "locks/notebook.txt",
    ]
    assert not [line for line in lines if re.match(r"(uvx?|pipx) |python -m build", line)], (
        "an index chooses its packages"
    )


def test_torch_of_the_tried_package_has_one_version() -> None:
    lines = (ROOT / "pre-requirements.txt").read_text(encoding="utf-8").splitlines()
    (named,) = [Requirement(line) for line in lines if not line.startswith(("#", "--"))]
    assert str(named) == f"torch=={install.TORCH}+cpu"


def test_the_site_of_documents_is_made_with_locked_packages() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.partition("$(VENV)-docs/.installed:")[2].partition("\n\n")[0]
    assert re.findall(r"pip install (.+)", recipe) == ["$(LOCKED) --requirement locks/docs.txt"]
    assert "--require-hashes" in makefile.partition("\nLOCKED =")[2].splitlines()[0]


@workflows
def test_what_a_job_runs_is_here(path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = "\n".join(step.get("run", "") for job in jobs(path).values() for step in job["steps"])
    for target in re.findall(r"^make ([a-z-]+)", commands, re.MULTILINE):
        assert f"\n{target}:" in makefile, f"make {target}"
    for name in re.findall(r"(?:locks|scripts|tests)/[\w./]+", commands):
        assert (ROOT / name).exists(), name
    for module in re.findall(r"-m (scripts\.\w+)", commands):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module

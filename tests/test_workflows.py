"""The workflows of GitHub Actions run what is here: the Pythons of pyproject.toml, scripts and targets that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement

from scripts import install

ROOT = Path(__file__).resolve().parent.parent
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))}
WORKFLOWS: dict[str, dict[str, Any]] = {name: yaml.safe_load(text) for name, text in TEXTS.items()}
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def test_the_short_tests_run_on_every_supported_python_and_system() -> None:
    matrix = WORKFLOWS["ci"]["jobs"]["short-tests"]["strategy"]["matrix"]
    minors = range(install.OLDEST_PYTHON[1], install.NEWEST_PYTHON[1] + 1)
    assert matrix["python"] == [f"3.{minor}" for minor in minors]
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "windows", "macos"]
    supported = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["requires-python"]
    assert supported == f">=3.{minors.start},<3.{minors.stop}"


def test_the_tests_that_are_listed_exist() -> None:
    for name in ("short", "portable"):
        for line in (ROOT / f"tests/{name}.txt").read_text(encoding="utf-8").splitlines():
            path, _, test = re.sub("^--(ignore|deselect)=", "", line).partition("::")
            assert (ROOT / path).exists(), line
            assert not test or f"def {test}(" in (ROOT / path).read_text(encoding="utf-8"), line


def test_a_job_may_do_little_ends_and_uses_actions_that_are_pinned_to_a_commit() -> None:
    for workflow, document in WORKFLOWS.items():
        assert document["permissions"] == {"contents": "read"}, workflow
        assert document["concurrency"], workflow
        for name, job in document["jobs"].items():
            assert job["timeout-minutes"] <= 120, (workflow, name)
        for line in re.findall(r"uses: (.+)", TEXTS[workflow]):
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), (workflow, line)


def test_a_package_is_built_and_tried_with_locked_packages() -> None:
    """Else what passes changes with the index: an older checker refused what a newer build backend had written."""
    for workflow, job in (("ci", "package"), ("release", "build")):
        steps = WORKFLOWS[workflow]["jobs"][job]["steps"]
        lines = [line.strip() for step in steps for line in step.get("run", "").splitlines()]
        installs = [line for line in lines if " install " in line]
        for line in installs:
            locked = re.search(r"--require-hashes .*--requirement \S*locks/\w+[.]txt", line)
            torch = "--no-deps" in line and "pre-requirements.txt" in line
            assert locked or torch or "--no-index" in line, line
        named = [name for line in installs for name in re.findall(r"locks/\w+[.]txt", line)]
        assert named == ["locks/release.txt", "locks/notebook.txt"]
        chosen = [line for line in lines if re.match(r"(uvx?|pipx) |python -m build", line)]
        assert not chosen, f"an index chooses its packages: {chosen}"
    lines = (ROOT / "pre-requirements.txt").read_text(encoding="utf-8").splitlines()
    (torch,) = [Requirement(line) for line in lines if not line.startswith(("#", "--"))]
    assert str(torch) == f"torch=={install.TORCH}+cpu"


def test_the_site_of_documents_is_made_with_locked_packages() -> None:
    recipe = MAKEFILE.partition("$(VENV)-docs/.installed:")[2].partition("\n\n")[0]
    assert re.findall(r"pip install (.+)", recipe) == ["$(LOCKED) --requirement locks/docs.txt"]
    assert "--require-hashes" in MAKEFILE.partition("\nLOCKED =")[2].splitlines()[0]


def test_what_a_job_runs_is_here() -> None:
    steps = [step for one in WORKFLOWS.values() for job in one["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step.get("run", "") for step in steps)
    for target in re.findall(r"^make ([a-z-]+)", commands, re.MULTILINE):
        assert f"\n{target}:" in MAKEFILE, f"make {target}"
    for name in re.findall(r"(?:locks|scripts|tests)/[\w./]+", commands):
        assert (ROOT / name).exists(), name
    for module in re.findall(r"-m (scripts\.\w+)", commands):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module

"""The parts of a release: notes, locks, workflows, image."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import webui
from scripts import install, release, wheel_files
from workbench import __version__
from workbench.cli import COMMANDS

CHANGELOG = """# Changelog

## Unreleased

- x

## 0.3.0 (2027-01-02)

- new

### Fixes

- old

## 0.2.0

## 0.1.0

first
"""


def test_the_notes_are_the_section_alone() -> None:
    assert release.notes("v0.3.0", "0.3.0", CHANGELOG) == "- new\n\n### Fixes\n\n- old"
    assert release.notes("v0.1.0", "0.1.0", CHANGELOG) == "first"


@pytest.mark.parametrize(
    ("tag", "version", "said"),
    [
        ("v0.3.1", "0.3.0", "must be v0.3.0"),
        ("0.3.0", "0.3.0", "must be v0.3.0"),
        ("v0.2.0", "0.2.0", 'nothing under "## 0.2.0"'),
        ("v0.3", "0.3", 'nothing under "## 0.3"'),
    ],
)
def test_another_tag_or_an_empty_section_is_refused(tag: str, version: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        release.notes(tag, version, CHANGELOG)


def test_this_version_has_notes() -> None:
    assert release.version() == __version__
    command = [sys.executable, "scripts/release.py", f"v{__version__}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=release.ROOT)
    assert told.stdout.startswith("Eight model families")


# ---- lock


ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
GROUPS = ("docs", "release")  # alone, in a file of its name
EXTRAS = {"notebook": ["notebook"], "dev": ["notebook", "dev"]}  # by the name of the file in locks/
SYSTEMS = {
    "linux": {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"},
    "windows": {"sys_platform": "win32", "platform_system": "Windows", "os_name": "nt", "platform_machine": "AMD64"},
    "macos": {"sys_platform": "darwin", "platform_system": "Darwin", "os_name": "posix", "platform_machine": "arm64"},
}
PYTHONS = [f"3.{minor}" for minor in range(install.OLDEST_PYTHON[1], install.NEWEST_PYTHON[1] + 1)]
# Installed and pinned by GPU builds of torch.
WITH_TORCH = re.compile(r"torch|triton|cuda-\w+|nvidia-(?!ml-py)\S+")
LOCKS = pytest.mark.parametrize("lock", sorted([*EXTRAS, *GROUPS]))


def blocks(lock: str) -> list[str]:
    """Split a lock into packages, each with its hashes and dependents."""
    text = (ROOT / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
    return re.split(r"\n(?=[a-z])", text)[1:]


def wanted(lock: str) -> list[Requirement]:
    """Return the project's own requirements, without torch."""
    if lock in GROUPS:
        return [Requirement(line) for line in PYPROJECT["dependency-groups"][lock]]
    project = PYPROJECT["project"]
    lines = [*project["dependencies"], *PYPROJECT["dependency-groups"]["lock"], *PYPROJECT["build-system"]["requires"]]
    lines += [line for extra in EXTRAS[lock] for line in project["optional-dependencies"][extra]]
    return [one for one in map(Requirement, lines) if one.name != "torch"]


def locked(lock: str, environment: dict[str, str]) -> dict[str, str]:
    """Return name -> version of the packages installed in that environment."""
    found: dict[str, str] = {}
    for block in blocks(lock):
        one = Requirement(block.splitlines()[0].rstrip(" \\"))
        if one.marker is None or one.marker.evaluate(environment):
            (version,) = one.specifier
            assert one.name not in found, f"{one.name} has two versions at once"
            found[one.name] = version.version
    return found


@LOCKS
def test_every_dependency_is_locked_within_its_bounds(lock: str) -> None:
    for python, (system, facts) in product(PYTHONS, SYSTEMS.items()):
        environment = facts | {"python_version": python, "python_full_version": f"{python}.7", "extra": ""}
        found = locked(lock, environment)
        for one in wanted(lock):
            if one.marker is None or one.marker.evaluate(environment):
                version = found.get(canonicalize_name(one.name))
                where = f"locks/{lock}.txt, {system}, Python {python}"
                assert version, f"{where}: {one} is missing: make lock"
                assert one.specifier.contains(version), f"{where}: {version} is not {one}: make lock"
        assert not [name for name in found if WITH_TORCH.fullmatch(name)]


@LOCKS
def test_only_what_the_project_names_is_locked_each_with_a_hash(lock: str) -> None:
    why = f"(pyproject.toml:{lock})" if lock in GROUPS else "video-lora-workbench ("
    ours = {block.partition("==")[0] for block in blocks(lock) if why in block}
    assert ours == {canonicalize_name(one.name) for one in wanted(lock)}, "make lock"
    assert all("--hash=sha256:" in block for block in blocks(lock))


def test_both_locks_have_the_same_versions() -> None:
    smaller, larger = ({block.partition(" \\")[0] for block in blocks(lock)} for lock in ("notebook", "dev"))
    assert smaller < larger


def test_what_torch_needs_is_locked() -> None:
    """torch is installed after the lock, so that only torch and the packages its GPU builds pin are downloaded."""
    named = [Requirement(line) for line in requires("torch") or []]
    group = {one.name: one for one in map(Requirement, PYPROJECT["dependency-groups"]["lock"])}
    for one in named:
        if not WITH_TORCH.fullmatch(one.name) and (one.marker is None or one.marker.evaluate({"extra": ""})):
            assert one.name in group
            bounds = {str(bound) for bound in group[one.name].specifier}
            assert {str(bound) for bound in one.specifier if bound.operator == ">="} <= bounds, one


# ---- workflows


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
    """Otherwise results change with the index: an older checker once refused a newer backend's metadata."""
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


def test_what_a_job_runs_is_here() -> None:
    steps = [step for one in WORKFLOWS.values() for job in one["jobs"].values() for step in job["steps"]]
    commands = "\n".join(step.get("run", "") for step in steps)
    for target in re.findall(r"^make ([a-z-]+)", commands, re.MULTILINE):
        assert f"\n{target}:" in MAKEFILE, f"make {target}"
    for name in re.findall(r"(?:locks|scripts|tests)/[\w./]+", commands):
        assert (ROOT / name).exists(), name
    for module in re.findall(r"-m (scripts\.\w+)", commands):
        assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module


# ---- container


DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
SHIPPED = {line[1:] for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line[:1] == "!"}
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))


def test_the_image_has_the_torch_of_make_demo() -> None:
    found = re.findall(r"torch==(\S+)(?: --index-url (\S+))?", DOCKERFILE)
    assert found == [(install.TORCH, install.CPU_INDEX), (install.TORCH, "")]
    assert "torchvision" not in DOCKERFILE


def test_what_the_wheel_is_built_from_reaches_the_builder() -> None:
    assert {*wheel_files.BESIDE, "workbench", "pyproject.toml", "README.md", "LICENSE", "locks"} <= SHIPPED
    assert not [name for name in SHIPPED if not (ROOT / name).exists()]


def test_the_image_serves_the_page_as_somebody_without_rights() -> None:
    (command,) = re.findall(r"^CMD (\[.*\])", DOCKERFILE, re.MULTILINE)
    subcommand, *options = json.loads(command)
    assert subcommand in COMMANDS
    assert 'ENTRYPOINT ["tini", "--", "workbench"]' in DOCKERFILE
    assert webui.options(["--demo", *options]).port == 7860
    assert "ARG RUN_AS=workbench\nUSER ${RUN_AS}" in DOCKERFILE


def test_compose_opens_the_page_to_this_machine_with_a_password() -> None:
    for name, service in COMPOSE["services"].items():
        assert f" AS {name}\n" in DOCKERFILE
        assert service["build"]["target"] == name
        assert service["ports"] == ["127.0.0.1:7860:7860"]
        assert service["environment"][webui.PASSWORD_FILE] == f"/run/secrets/{service['secrets'][0]}"
        (volume,) = service["volumes"]
        assert f"\nVOLUME {volume.partition(':')[2]}\n" in DOCKERFILE

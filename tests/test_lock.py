"""The locks satisfy pyproject.toml on every Python and system, and hold only what it names. Asks no index."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires
from itertools import product
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import install

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
# What builds of torch for a GPU bring and pin themselves.
WITH_TORCH = re.compile(r"torch|triton|cuda-\w+|nvidia-(?!ml-py)\S+")
LOCKS = pytest.mark.parametrize("lock", sorted([*EXTRAS, *GROUPS]))


def blocks(lock: str) -> list[str]:
    """A package each, with its hashes and who needs it."""
    text = (ROOT / "locks" / f"{lock}.txt").read_text(encoding="utf-8")
    return re.split(r"\n(?=[a-z])", text)[1:]


def wanted(lock: str) -> list[Requirement]:
    """What the project names, other than torch."""
    if lock in GROUPS:
        return [Requirement(line) for line in PYPROJECT["dependency-groups"][lock]]
    project = PYPROJECT["project"]
    lines = [*project["dependencies"], *PYPROJECT["dependency-groups"]["lock"], *PYPROJECT["build-system"]["requires"]]
    lines += [line for extra in EXTRAS[lock] for line in project["optional-dependencies"][extra]]
    return [one for one in map(Requirement, lines) if one.name != "torch"]


def locked(lock: str, environment: dict[str, str]) -> dict[str, str]:
    """Version by name, of what is installed there."""
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
    """It is installed after the lock, so that nothing but torch itself and what builds for GPUs pin is fetched."""
    named = [Requirement(line) for line in requires("torch") or []]
    group = {one.name: one for one in map(Requirement, PYPROJECT["dependency-groups"]["lock"])}
    for one in named:
        if not WITH_TORCH.fullmatch(one.name) and (one.marker is None or one.marker.evaluate({"extra": ""})):
            assert one.name in group
            bounds = {str(bound) for bound in group[one.name].specifier}
            assert {str(bound) for bound in one.specifier if bound.operator == ">="} <= bounds, one

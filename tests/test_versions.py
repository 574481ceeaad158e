"""Every package has version bounds, the installed versions are within them and load. Needs no torch.

`make versions` runs this and more with the lowest and with the newest versions (scripts/versions.py).
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from scripts import install
from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = [Requirement(line) for line in PROJECT["dependencies"]]
OPTIONAL = [Requirement(line) for lines in PROJECT["optional-dependencies"].values() for line in lines]
# Import names of the packages whose C parts or own dependencies break first; none needs torch.
LOADED = "gradio, av, numpy, pydantic, psutil, PIL, click, rich, sentencepiece, google.protobuf, pynvml, "
LOADED += "jupyterlab, ipywidgets, anywidget, scenedetect, cv2, httpx, regex, huggingface_hub, safetensors.numpy, "
LOADED += "transformers"


def test_every_package_has_a_lowest_and_a_highest_version() -> None:
    for wanted in (*REQUIRED, *OPTIONAL):
        signs = {one.operator for one in wanted.specifier}
        assert signs >= {">=", "<"} or signs == {"=="} or wanted.name.startswith("types-"), f"{wanted}: say both bounds"


def test_the_installed_versions_are_within_the_bounds() -> None:
    for wanted in REQUIRED:
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            assert wanted.name == "torch" or wanted.marker, f"{wanted.name} is not installed"
            continue
        assert wanted.specifier.contains(found, prereleases=True), f"{wanted.name} {found}: {wanted}"


@pytest.mark.release
def test_every_package_can_be_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", f"import {LOADED}"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr


def test_the_supported_pythons_are_those_that_are_run() -> None:
    pythons = SpecifierSet(PROJECT["requires-python"])
    major, newest = install.NEWEST_PYTHON
    oldest = install.OLDEST_PYTHON[1]
    said = {minor for minor in range(8, 20) if f"{major}.{minor}.1" in pythons}
    assert said == set(range(oldest, newest + 1))

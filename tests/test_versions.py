"""What is declared is what was run: bounds on every package, and packages that can be loaded. Needs no torch.

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

from scripts import install, versions
from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED = [Requirement(line) for line in PROJECT["dependencies"]]
OPTIONAL = [Requirement(line) for lines in PROJECT["optional-dependencies"].values() for line in lines]
# Packages whose parts in C or own dependencies break first, by the names they are imported under; none needs torch.
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


def test_the_newest_python_that_runs_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyenv's shims are on the PATH and may still not run."""
    asked = {"shim": "", "real": "3.13", sys.executable: "3.11"}
    monkeypatch.setattr(versions, "version_of", lambda python: asked.get(python.name, ""))
    monkeypatch.setattr(versions.shutil, "which", lambda name: f"/bin/{'shim' if name.endswith('13') else 'none'}")
    monkeypatch.setattr(versions.Path, "home", lambda: tmp_path)
    assert versions.newest_python() == Path(sys.executable)
    place = tmp_path / ".pyenv" / "versions" / "3.13.0" / "bin"
    place.mkdir(parents=True)
    (place / "python").touch()
    monkeypatch.setattr(versions, "version_of", lambda python: "3.13" if "3.13.0" in str(python) else "")
    assert versions.newest_python() == (place / "python" if sys.version_info < (3, 13) else Path(sys.executable))

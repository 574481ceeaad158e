"""The wheel, installed into an environment of its own in another folder: what a checkout has beside it is there.

The program is the one that uvx and pipx start. The environment shares the packages of this one, so that nothing is
downloaded. An sdist holds as much: a wheel of it is the same.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE, until
from tests.serving import Page
from workbench.display import elements
from workbench.paths import CODE

pytestmark = pytest.mark.release

MOST_BYTES, MOST_BYTES_OF_ONE = 35_000_000, 8_000_000
LEFT_OVER = re.compile(r"(^|/)(__pycache__|[.]\w+_cache|tests)(/|$)|^workspace(/|$)|[.](pyc|log)$")
SDIST = {"assets", "docs", "notebooks", "scripts", "workbench", "webui.py", "CHANGELOG.md", "LICENSE", "README.md"}
SDIST |= {"pyproject.toml", "PKG-INFO", ".gitignore"}  # hatchling adds them
Workbench = Callable[..., str]


def built(kind: str, source: Path, folder: Path) -> Path:
    """A wheel or an sdist of a source tree, as a file in the folder. Asks no index."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=3 * PATIENCE)
    (found,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", CODE, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source tree that the sdist holds."""
    folder = tmp_path_factory.mktemp("sdist")
    with tarfile.open(built("sdist", CODE, folder)) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (tree,) = (folder / "unpacked").iterdir()
    return tree


@pytest.fixture(scope="module")
def program(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed program, in a folder that has nothing else beside its environment."""
    home = tmp_path_factory.mktemp("elsewhere")
    venv = home / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=3 * PATIENCE)
    paths = {"base": str(venv), "platbase": str(venv)}
    packages = Path(sysconfig.get_path("purelib", vars=paths))
    shared = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "shared.pth").write_text("\n".join(shared))
    scripts = Path(sysconfig.get_path("scripts", vars=paths))
    pip = [sys.executable, "-m", "pip", "--python", str(scripts / Path(sys.executable).name), "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile", "--ignore-installed"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=3 * PATIENCE, cwd=home)
    return scripts / "workbench"


@pytest.fixture(scope="module")
def workbench(program: Path, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """Runs the installed program in an empty folder."""
    folder = tmp_path_factory.mktemp("empty")

    def run(*arguments: str) -> str:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "WORKBENCH_HOME")}
        done = subprocess.run(
            [str(program), *arguments],
            cwd=folder,
            env={**kept, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture
def page(program: Path, tmp_path: Path) -> Iterator[Page]:
    """The page as the installed program serves it, in an empty folder. Where it still runs it is ended."""
    folder = tmp_path / "empty"
    folder.mkdir()
    # Tests that a shell began in the background ignore Ctrl-C, and the page would, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        served = Page(tmp_path / "workspace", cwd=folder, program=(str(program), "webui"), PYTHONPATH="")
    finally:
        signal.signal(signal.SIGINT, before)
    yield served
    for process in of_page(served):
        process.kill()
    served.close()


def of_page(page: Page) -> list[psutil.Process]:
    """The processes that serve it. On Windows the page is no process of its starter's: os.execv begins another one."""
    found = psutil.process_iter(["cmdline"])
    return [one for one in found if str(page.workspace) in (one.info["cmdline"] or ())]


def test_the_wheel_is_small_and_holds_no_test(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"workbench", "video_lora_workbench"}
    assert not [name for name in names if "/tests/" in name or name.endswith(".pyc")]


def test_the_sdist_holds_what_a_wheel_is_built_from_and_nothing_else(unpacked: Path) -> None:
    files = {path.relative_to(unpacked).as_posix(): path.stat().st_size for path in unpacked.rglob("*")}
    assert {name for name in files if "/" not in name} == SDIST
    few = {name for name in files if name.startswith(("docs/", "scripts/"))}
    assert few == {"docs/agent_skill.md", "scripts/wheel_files.py"}
    assert {"assets/elements/core.js", "assets/elements/base.css", "assets/tiny-cogvideox/model_index.json"} <= set(
        files
    )
    assert not [name for name in files if LEFT_OVER.search(name)]
    assert max(files.values()) < MOST_BYTES_OF_ONE
    assert sum(files.values()) < 2 * MOST_BYTES
    assert "Apache License" in (unpacked / "LICENSE").read_text(encoding="utf-8")


def test_older_tools_read_the_metadata(wheel: Path, unpacked: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    assert lines[0] == (unpacked / "PKG-INFO").read_text(encoding="utf-8").splitlines()[0] == "Metadata-Version: 2.4"


def test_a_wheel_of_the_sdist_is_the_wheel_of_the_checkout(wheel: Path, unpacked: Path, tmp_path: Path) -> None:
    ours, theirs = (
        {one.filename: one.CRC for one in zipfile.ZipFile(path).infolist()}
        for path in (wheel, built("wheel", unpacked, tmp_path))
    )
    assert theirs == ours


def test_the_demo_runs_from_an_installed_wheel(workbench: Workbench) -> None:
    said = workbench("demo", "--steps", "2")
    assert "before_after.mp4" in said
    assert "workbench webui" in said
    assert str(CODE) not in said


def test_the_notebooks_are_copied_and_nothing_is_replaced(workbench: Workbench, tmp_path: Path) -> None:
    workbench("notebooks", str(tmp_path / "mine"))
    assert len(list((tmp_path / "mine").glob("*.ipynb"))) == 5
    with pytest.raises(AssertionError, match="choose another folder"):
        workbench("notebooks", str(tmp_path / "mine"))


def test_the_page_starts_from_an_installed_wheel(page: Page) -> None:
    with page.client() as client:
        html = client.get("/").text
        names = re.findall(r"elements/elements-[\w.]+", html)
        assert len(names) == 2
        for name, expected in zip(names, (elements.style(), elements.page_script()), strict=True):
            assert client.get(f"/{name}").text == expected
    ended = of_page(page)
    assert [one for one in ended if any("shipped" in Path(part).parts for part in one.cmdline())]
    if os.name == "nt":  # has no Ctrl-C for one process
        for process in ended:
            process.terminate()
    else:
        page.process.send_signal(signal.SIGINT)
        assert page.process.wait(PATIENCE) == 0, page.log.read_text()
    until(lambda: not of_page(page))

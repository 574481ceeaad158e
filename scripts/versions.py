"""Run the project with other versions of what it needs: `python -m scripts.versions lowest`, `newest` or `both`.

    lowest      the oldest versions that pyproject.toml allows, with this Python
    newest      the newest ones, with the newest supported Python that is on this machine
    both        the two at the same time

An environment is made beside this one (.venv-lowest, .venv-newest) and chosen tests run in it: they import, open and
write videos, start the page, encode, train, export and sample. torch is the one of this environment. A Python that is
not this one gets its build for the processor; where that is not to be had, the tests that need no torch are run and a
line says so.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.install import CPU_INDEX, NEWEST_PYTHON, ROOT, TORCH, reachable

WITHOUT_TORCH = (
    "tests/test_versions.py",
    "tests/test_settings.py",
    "tests/clips/test_media.py",
    "tests/test_layers.py::test_faces_and_readers_load_no_torch",
    "tests/dataset_builder/ingest/test_intake.py",
    "tests/faults/test_video_files.py",
    "tests/dataset_builder/cuts/test_cutting.py",
    "tests/ui/test_start.py::test_the_server_comes_up_and_says_where",
)
WITH_TORCH = (
    "tests/families/test_cogvideox.py",
    "tests/trainer/test_trainable.py",
    "tests/sampler/test_generate.py",
    "tests/faults/test_broken_packages.py::test_a_machine_in_order_imports_a_clip_and_trains",
)
WHICH = ("lowest", "newest")
INDEX = "https://pypi.org/simple"
TOOLS = ("pytest>=8.3", "pytest-timeout>=2.3")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run chosen tests with the lowest or the newest packages.")
    parser.add_argument("which", choices=(*WHICH, "both"))
    which: str = parser.parse_args().which
    if not reachable(INDEX):
        print(f"{INDEX} does not answer: no other versions of packages are tried here")
        return 0
    if which == "both":
        return both()
    python = Path(sys.executable) if which == "lowest" else newest_python()
    venv = ROOT / f".venv-{which}"
    try:
        torch = install(venv, python, which)
    except subprocess.CalledProcessError as error:
        print(f"the packages could not be installed: {' '.join(map(str, error.cmd[:6]))} ... failed, see above")
        return 1
    if not torch:
        print(f"torch is not tried on Python {version_of(python)}: its build for the processor is not to be had here")
    tests = [*WITHOUT_TORCH, *(WITH_TORCH if torch else ())]
    print(f"{which} versions, Python {version_of(python)}", flush=True)
    command = [str(venv / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    return subprocess.run(command, cwd=ROOT).returncode


def both() -> int:
    """Run each in its own process, print their output one after another, and return 1 if any failed."""
    command = [sys.executable, "-m", "scripts.versions"]
    started = [
        subprocess.Popen([*command, which], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for which in WHICH
    ]
    said = [process.communicate()[0] for process in started]
    print("\n".join(said))
    return 1 if any(process.returncode for process in started) else 0


def install(venv: Path, python: Path, which: str) -> bool:
    """Make the environment anew; whether it has torch. Raises CalledProcessError."""
    shutil.rmtree(venv, ignore_errors=True)
    uv("venv", "--python", str(python), str(venv))
    wanted, without = venv / "wanted.txt", venv / "without.txt"
    # The shared torch brings what it needs itself; a marker that never holds takes it out of what is resolved.
    without.write_text("torch; sys_platform == 'never'\n", encoding="utf-8")
    tools = venv / "tools.txt"
    tools.write_text("\n".join(TOOLS) + "\n", encoding="utf-8")
    strategy = "lowest-direct" if which == "lowest" else "highest"
    target = ("--python", str(venv / "bin" / "python"))
    sources = [str(ROOT / "pyproject.toml"), *([] if same(python) else [str(tools)])]
    chosen = ("--resolution", strategy, "--override", str(without), "--output-file", str(wanted))
    uv("pip", "compile", *sources, "--extra", "notebook", *target, *chosen)
    uv("pip", "install", *target, "--no-deps", "--requirement", str(wanted))
    paths = [str(ROOT)]
    if same(python):
        paths += [path for path in sys.path if path.endswith("site-packages")]  # for torch and pytest
    packages = next((venv / "lib").glob("python*")) / "site-packages"
    (packages / "shared.pth").write_text("\n".join(paths) + "\n", encoding="utf-8")
    if same(python):
        return True
    if not reachable(CPU_INDEX):
        return False
    uv("pip", "install", *target, "--index-url", CPU_INDEX, f"torch=={TORCH}")
    return True


def same(python: Path) -> bool:
    """Whether packages of this environment run there, too."""
    return version_of(python) == version_of(Path(sys.executable))


def newest_python() -> Path:
    """The newest supported Python on the PATH or among pyenv's; this one when there is no newer."""
    for minor in range(NEWEST_PYTHON[1], sys.version_info.minor, -1):
        named = shutil.which(f"python3.{minor}")
        found = [Path(named)] if named else []
        for path in [*found, *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]:
            if version_of(path) == f"3.{minor}":
                return path
    return Path(sys.executable)


def version_of(python: Path) -> str:
    """ "3.12"; "" when it does not run."""
    code = "import sys; print(f'{sys.version_info.major}.{sys.version_info.minor}')"
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else ""


def uv(*arguments: str) -> None:
    """Run uv, which can choose the lowest versions; pip cannot."""
    subprocess.run([sys.executable, "-m", "uv", "--quiet", *arguments], check=True, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())

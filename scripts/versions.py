"""Test the project with other versions of its dependencies: `python -m scripts.versions lowest`, `newest` or `both`.

    lowest      the lowest versions that pyproject.toml allows, with this Python
    newest      the newest versions, with the newest supported Python on this machine
    both        the two at the same time

It makes an environment beside this one (.venv-lowest, .venv-newest) and runs chosen tests in it: they import, read and
write videos, start the page, encode, train, export and sample. torch is shared with this environment. Another Python
gets the CPU build; if that is unavailable, only the tests without torch run, and a line says so.
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
    "tests/dataset_builder/ingest/test_bad_inputs.py",
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
        print(f"{INDEX} does not answer: skipping the tests with other versions")
        return 0
    if which == "both":
        return both()
    python = Path(sys.executable) if which == "lowest" else newest_python()
    venv = ROOT / f".venv-{which}"
    try:
        torch = install(venv, python, which)
    except subprocess.CalledProcessError as error:
        print(f"installing the packages failed: {' '.join(map(str, error.cmd[:6]))} ...: see above")
        return 1
    if not torch:
        print(f"skipping the tests with torch on Python {version_of(python)}: its CPU build is not available here")
    tests = [*WITHOUT_TORCH, *(WITH_TORCH if torch else ())]
    print(f"{which} versions, Python {version_of(python)}", flush=True)
    command = [str(venv / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    return subprocess.run(command, cwd=ROOT).returncode


def both() -> int:
    """Run both in parallel, print their output one after another, and return 1 if any failed."""
    command = [sys.executable, "-m", "scripts.versions"]
    started = [
        subprocess.Popen([*command, which], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for which in WHICH
    ]
    said = [process.communicate()[0] for process in started]
    print("\n".join(said))
    return 1 if any(process.returncode for process in started) else 0


def install(venv: Path, python: Path, which: str) -> bool:
    """Make a new environment and return whether it has torch. Raises CalledProcessError."""
    shutil.rmtree(venv, ignore_errors=True)
    uv("venv", "--python", str(python), str(venv))
    wanted, without = venv / "wanted.txt", venv / "without.txt"
    # The shared torch has its own dependencies. A marker that is never true excludes it from the resolution.
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
    """Return whether packages of this environment also work with another Python."""
    return version_of(python) == version_of(Path(sys.executable))


def newest_python() -> Path:
    """Return the newest supported Python on the PATH or of pyenv, or this one."""
    for minor in range(NEWEST_PYTHON[1], sys.version_info.minor, -1):
        named = shutil.which(f"python3.{minor}")
        found = [Path(named)] if named else []
        for path in [*found, *Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python")]:
            if version_of(path) == f"3.{minor}":
                return path
    return Path(sys.executable)


def version_of(python: Path) -> str:
    """Return a Python's version, such as "3.12", or "" if it does not run."""
    code = "import sys; print(f'{sys.version_info.major}.{sys.version_info.minor}')"
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else ""


def uv(*arguments: str) -> None:
    """Run uv, which unlike pip can choose the lowest versions."""
    subprocess.run([sys.executable, "-m", "uv", "--quiet", *arguments], check=True, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())

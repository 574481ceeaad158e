"""Make .venv and install the project into it: `python scripts/install.py [--dev]`. Standard library only.

Packages have the versions and hashes in locks/, so that the same comes next year. torch is not in there, for its build
decides the size of the whole: the CPU build where there is no NVIDIA GPU (0.2 GB), the CUDA build where there is one
(3 GB and more). The CPU build has an index of its own; where that cannot be reached (a company mirror), the default
index is asked for the same version, whatever build it has. A torch that is there already is kept.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)  # what pyproject.toml says; a newer one was not run
TORCH = "2.13.0"  # the version every test of this release ran with
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CUDA_INDEX = "https://download.pytorch.org/whl/cu130"  # for Windows, whose default index has the CPU build alone
PROBE_SECONDS = 8


def main() -> int:
    parser = argparse.ArgumentParser(description="Make .venv and install the project into it.")
    parser.add_argument("--dev", action="store_true", help="with the tools that the tests and checks need")
    parser.add_argument("--unlocked", action="store_true", help="the newest packages that pyproject.toml allows")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="where the environment lives")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        python = environment(options.venv)
        if not options.unlocked:
            install_locked(python, options.dev)
        install_torch(python)
        install_project(python, options.dev, options.unlocked)
    except subprocess.CalledProcessError as error:
        print(f"installing stopped: {' '.join(map(str, error.cmd[:5]))} ... failed, its last lines say why", flush=True)
        return 1
    except RuntimeError as error:
        print(error, flush=True)
        return 1
    stamp = options.venv / (".installed-dev" if options.dev else ".installed")
    stamp.touch()
    (options.venv / ".installed").touch()
    print(f"installed in {time.monotonic() - began:.0f} s: {options.venv}", flush=True)
    return 0


def environment(venv: Path) -> Path:
    """The environment's python, made when missing."""
    python = venv / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not python.exists():
        print(f"making the environment {venv}", flush=True)
        made = subprocess.run([new_enough_python(), "-m", "venv", str(venv)], capture_output=True, text=True)
        if made.returncode:
            shutil.rmtree(venv, ignore_errors=True)
            said = (made.stdout + made.stderr).strip()
            raise RuntimeError(f"{said}\nPython cannot make an environment: on Debian, apt-get install python3-venv")
    return python


def new_enough_python() -> str:
    """This Python, or a supported one on the PATH."""
    if OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        return sys.executable
    for minor in range(NEWEST_PYTHON[1], OLDEST_PYTHON[1] - 1, -1):
        if found := shutil.which(f"python3.{minor}"):
            return found
    oldest, newest = (".".join(map(str, one)) for one in (OLDEST_PYTHON, NEWEST_PYTHON))
    raise RuntimeError(f"this is Python {sys.version.split()[0]}, {oldest} to {newest} are supported: install one")


def has_gpu() -> bool:
    """Whether an NVIDIA driver answers."""
    command = shutil.which("nvidia-smi")
    if not command:
        return False
    listed = subprocess.run([command, "-L"], capture_output=True, text=True)
    return listed.returncode == 0 and "GPU" in listed.stdout


def has_amd_gpu() -> bool:
    """Whether ROCm or its part of the kernel is here."""
    return shutil.which("rocminfo") is not None or Path("/dev/kfd").exists()


def installed_torch(python: Path) -> str | None:
    """The version of torch in the environment, None without one."""
    code = "from importlib.metadata import version; print(version('torch'))"
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else None


def install_locked(python: Path, dev: bool) -> None:
    """What torch and the project need, as locks/ says; torch then finds its own needs fulfilled."""
    lock = ROOT / "locks" / ("dev.txt" if dev else "notebook.txt")
    print(f"installing the packages of {lock.relative_to(ROOT)}", flush=True)
    how = ("--no-deps", "--require-hashes", "--only-binary", ":all:")
    if not pip(python, *how, "--requirement", str(lock), check=False):
        remedy = "if your package index lacks one of these versions: python scripts/install.py --unlocked"
        raise RuntimeError(f"installing stopped, the lines above say why; {remedy}{' --dev' if dev else ''}")


def install_torch(python: Path) -> None:
    """The build that fits the machine, unless a fitting one is there."""
    gpu, there = has_gpu(), installed_torch(python)
    if there and not (gpu and there.endswith("+cpu")):
        print(f"torch {there} is there and is kept", flush=True)
        return
    if there:
        subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "torch"], check=True)
    if gpu or sys.platform == "darwin":  # PyPI's build for macOS has no CUDA in it
        print(f"installing torch {TORCH} for {'the NVIDIA GPU' if gpu else 'macOS'}", flush=True)
        pip(python, f"torch=={TORCH}", *(["--index-url", CUDA_INDEX] if sys.platform == "win32" else []))
        return
    print(f"installing torch {TORCH} for the processor (no NVIDIA GPU here)", flush=True)
    if not (reachable(CPU_INDEX) and pip(python, f"torch=={TORCH}", "--index-url", CPU_INDEX, check=False)):
        print("  the CPU builds' own index does not answer: asking the default one", flush=True)
        pip(python, f"torch=={TORCH}")
    if has_amd_gpu():
        print(
            f"  for the AMD GPU: {python} -m pip uninstall torch, then install torch=={TORCH} with the --index-url that"
        )
        print("  pytorch.org/get-started/locally names for your ROCm; that build is kept", flush=True)


def reachable(url: str) -> bool:
    """Whether the address answers soon."""
    try:
        with urllib.request.urlopen(f"{url}/torch/", timeout=PROBE_SECONDS) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def install_project(python: Path, dev: bool, unlocked: bool) -> None:
    """The project, without touching torch; after the lock nothing is left to fetch, and pip holds it to our bounds."""
    print(f"installing the workbench{' and its tools' if dev else ''}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text(f"torch=={installed_torch(python)}\n", encoding="utf-8")
        nothing_fetched = [] if unlocked else ["--no-index", "--no-build-isolation"]
        project = f"{ROOT}[{'dev,notebook' if dev else 'notebook'}]"
        pip(python, "--editable", project, "--constraint", str(constraints), *nothing_fetched)


def pip(python: Path, *arguments: str, check: bool = True) -> bool:
    """Run pip install; quiet unless someone watches."""
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    command: list[str | Path] = [python, "-m", "pip", "install", "--disable-pip-version-check", *quiet, *arguments]
    return subprocess.run(command, check=check, cwd=ROOT).returncode == 0


if __name__ == "__main__":
    sys.exit(main())

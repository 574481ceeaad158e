"""Make .venv and install the project into it: `python scripts/install.py [--dev]`. Standard library only.

locks/ pins versions and hashes of all packages except torch, whose build depends on the machine: the CPU build without
an NVIDIA GPU (0.2 GB), the CUDA build with one (3 GB or more). The CPU build has its own index. If that is unreachable,
as behind a company mirror, the default index provides the same version in any build. An installed torch is kept.
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
OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)  # as in pyproject.toml; newer ones are untested
TORCH = "2.13.0"  # the version that this release was tested with
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
CUDA_INDEX = "https://download.pytorch.org/whl/cu130"  # for Windows, whose default index has only the CPU build
PROBE_SECONDS = 8


def main() -> int:
    parser = argparse.ArgumentParser(description="Make .venv and install the project into it.")
    parser.add_argument("--dev", action="store_true", help="also install the tools for tests and checks")
    parser.add_argument(
        "--unlocked", action="store_true", help="install the newest packages that pyproject.toml allows"
    )
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv", help="folder of the environment")
    options = parser.parse_args()
    began = time.monotonic()
    try:
        python = environment(options.venv)
        if not options.unlocked:
            install_locked(python, options.dev)
        install_torch(python)
        install_project(python, options.dev, options.unlocked)
    except subprocess.CalledProcessError as error:
        print(f"installation failed: {' '.join(map(str, error.cmd[:5]))} ...: see above", flush=True)
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
    """Return the environment's Python. Makes the environment if needed."""
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
    """Return this Python, or a supported one on the PATH."""
    if OLDEST_PYTHON <= sys.version_info[:2] <= NEWEST_PYTHON:
        return sys.executable
    for minor in range(NEWEST_PYTHON[1], OLDEST_PYTHON[1] - 1, -1):
        if found := shutil.which(f"python3.{minor}"):
            return found
    oldest, newest = (".".join(map(str, one)) for one in (OLDEST_PYTHON, NEWEST_PYTHON))
    raise RuntimeError(f"this is Python {sys.version.split()[0]}, {oldest} to {newest} are supported: install one")


def has_gpu() -> bool:
    """Return whether an NVIDIA driver answers."""
    command = shutil.which("nvidia-smi")
    if not command:
        return False
    listed = subprocess.run([command, "-L"], capture_output=True, text=True)
    return listed.returncode == 0 and "GPU" in listed.stdout


def has_amd_gpu() -> bool:
    """Return whether ROCm or its kernel driver is installed."""
    return shutil.which("rocminfo") is not None or Path("/dev/kfd").exists()


def installed_torch(python: Path) -> str | None:
    """Return the environment's version of torch, or None."""
    code = "from importlib.metadata import version; print(version('torch'))"
    asked = subprocess.run([python, "-c", code], capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else None


def install_locked(python: Path, dev: bool) -> None:
    """Install the locked packages, which include the dependencies of torch."""
    lock = ROOT / "locks" / ("dev.txt" if dev else "notebook.txt")
    print(f"installing the packages of {lock.relative_to(ROOT)}", flush=True)
    how = ("--no-deps", "--require-hashes", "--only-binary", ":all:")
    if not pip(python, *how, "--requirement", str(lock), check=False):
        remedy = "if your package index lacks one of these versions: python scripts/install.py --unlocked"
        raise RuntimeError(f"installation failed, see above; {remedy}{' --dev' if dev else ''}")


def install_torch(python: Path) -> None:
    """Install the build for this machine, unless a fitting one is installed."""
    gpu, there = has_gpu(), installed_torch(python)
    if there and not (gpu and there.endswith("+cpu")):
        print(f"keeping torch {there}", flush=True)
        return
    if there:
        subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", "torch"], check=True)
    if gpu or sys.platform == "darwin":  # PyPI's build for macOS has no CUDA
        print(f"installing torch {TORCH} for {'the NVIDIA GPU' if gpu else 'macOS'}", flush=True)
        pip(python, f"torch=={TORCH}", *(["--index-url", CUDA_INDEX] if sys.platform == "win32" else []))
        return
    print(f"installing torch {TORCH} for the CPU (no NVIDIA GPU found)", flush=True)
    if not (reachable(CPU_INDEX) and pip(python, f"torch=={TORCH}", "--index-url", CPU_INDEX, check=False)):
        print("  the index of CPU builds does not answer: using the default index", flush=True)
        pip(python, f"torch=={TORCH}")
    if has_amd_gpu():
        print(
            f"  for the AMD GPU: {python} -m pip uninstall torch, then install torch=={TORCH} with the --index-url that"
        )
        print("  pytorch.org/get-started/locally names for your ROCm; that build is kept", flush=True)


def reachable(url: str) -> bool:
    """Return whether the index answers in time."""
    try:
        with urllib.request.urlopen(f"{url}/torch/", timeout=PROBE_SECONDS) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def install_project(python: Path, dev: bool, unlocked: bool) -> None:
    """Install the project without touching torch. After the lock there is nothing left to download."""
    print(f"installing the workbench{' and its tools' if dev else ''}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text(f"torch=={installed_torch(python)}\n", encoding="utf-8")
        nothing_fetched = [] if unlocked else ["--no-index", "--no-build-isolation"]
        project = f"{ROOT}[{'dev,notebook' if dev else 'notebook'}]"
        pip(python, "--editable", project, "--constraint", str(constraints), *nothing_fetched)


def pip(python: Path, *arguments: str, check: bool = True) -> bool:
    """Run pip install, quietly unless on a terminal."""
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    command: list[str | Path] = [python, "-m", "pip", "install", "--disable-pip-version-check", *quiet, *arguments]
    return subprocess.run(command, check=check, cwd=ROOT).returncode == 0


if __name__ == "__main__":
    sys.exit(main())

"""An environment with torchvision for tests/captioners/test_vision_language.py, and the tests run in it.

    python tests/caption_environment.py [more arguments of pip]

It is a folder of its own, build/caption-environment, put in front of the Python path: the project's environment stays
as it is. The version is the one that belongs to the torch that is here. Beside a torch for processors, torchvision from
PyPI (made for CUDA) cannot load its compiled operators, and its import fails; the processors use none of them, so in
this folder alone the two that the import asks for are declared.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "build" / "caption-environment"
OPERATORS = """

if not _has_ops():
    _declared = torch.library.Library("torchvision", "DEF")
    for _name in ("nms", "qnms"):
        _declared.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""


def main(pip_arguments: list[str]) -> int:
    """Install what is missing, run the tests; returns their exit code."""
    import torch

    minor = int(torch.__version__.split(".")[1])
    wanted = [f"torchvision==0.{minor + 15}.*", "num2words"]  # torch 2.13 belongs to torchvision 0.28
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(FOLDER), os.environ.get("PYTHONPATH", "")])}
    if not (FOLDER / "num2words").is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(FOLDER), *wanted, *pip_arguments]
        subprocess.run(pip, check=True)
    look = subprocess.run(
        [sys.executable, "-c", "import torchvision"], env=environment, capture_output=True, text=True, check=False
    )
    if "operator torchvision::nms does not exist" in look.stderr:
        with (FOLDER / "torchvision" / "extension.py").open("a") as file:
            file.write(OPERATORS)
    tests = ["-m", "pytest", "tests/captioners/test_vision_language.py"]
    return subprocess.run([sys.executable, *tests], cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

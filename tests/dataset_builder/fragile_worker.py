"""The real worker, except that files of certain names bring it down the way hostile ones do."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from workbench.dataset_builder import normalise, worker


def fragile(source: Path, target: Path) -> normalise.Normalised:
    if "crash" in source.name:
        os.abort()
    if "spin" in source.name:
        while True:
            pass
    if "sleep" in source.name:
        time.sleep(600)
    if "memory" in source.name:
        bytearray(64 * 1024**3)
    if "surprise" in source.name:
        raise KeyError("nobody thought of this")
    return normalise.normalise(source, target)


if __name__ == "__main__":
    worker.normalise = fragile  # type: ignore[attr-defined]
    worker.main(Path(sys.argv[1]))

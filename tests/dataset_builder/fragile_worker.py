"""The real import worker, except that files with certain names crash it as malicious ones could."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from workbench.dataset_builder.ingest import canonical, worker


def fragile(
    source: Path, target: Path, longest_side: int | None, on_frame: Callable[[], None], keep_sound: bool
) -> canonical.CanonicalClip:
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
    if "slow" in source.name:  # longer than the limit, but with progress
        end = time.process_time() + 3
        while time.process_time() < end:
            on_frame()
    return canonical.convert(source, target, longest_side, on_frame, keep_sound=keep_sound)


if __name__ == "__main__":
    worker.convert = fragile  # type: ignore[attr-defined]
    worker.main(Path(sys.argv[1]))

"""Measure clips encoded per second by one process and by two, on the built-in model.

    python benchmarks/sharded_encoding.py --json benchmarks/results/sharded_encoding.json

The clips are drawn, so nothing is downloaded. Times are those of the encoding, without starting the processes.
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, report  # noqa: E402
from tests.drawing import draw  # noqa: E402
from workbench import jobs  # noqa: E402
from workbench.clips import media  # noqa: E402
from workbench.clips.records import Clip, file_sha256, write_clips  # noqa: E402
from workbench.families import default_model  # noqa: E402
from workbench.runs.settings import TrainSettings  # noqa: E402
from workbench.trainer.encoding_job import MODULE, EncodeSettings, plan_encoding  # noqa: E402
from workbench.workspace import Workspace  # noqa: E402

PATIENCE = 1800.0
COLORS = ("red", "green", "blue", "yellow")


def make_dataset(workspace: Workspace, count: int) -> None:
    """Make `count` clips of 17 frames with different contents."""
    folder = workspace.dataset("drawn")
    (folder / "clips").mkdir(parents=True)
    clips = []
    for number, color in zip(range(count), itertools.cycle(COLORS), strict=False):
        path = folder / "clips" / f"{number}.mp4"
        media.encode(draw(17, (64 + 2 * (number % 32), 64 + 2 * (number // 32)), color), path, 8)
        width, height = 64 + 2 * (number % 32), 64 + 2 * (number // 32)
        clips.append(
            Clip(
                file_name=f"clips/{number}.mp4",
                text=f"a {color} square, {number}",
                fps=8,
                frames=17,
                width=width,
                height=height,
                sha256=file_sha256(path),
            )
        )
    write_clips(folder, clips)


def measure(base: Path, count: int, processes: int) -> float:
    """Return clips per second, from the first encoded clip to the last."""
    workspace = Workspace.open(base / f"with-{processes}")
    make_dataset(workspace, count)
    settings = TrainSettings(model=default_model(), dataset="drawn", held_out=0, device="cpu", horizontal_flip=0.5)
    encoding = plan_encoding(workspace, settings, EncodeSettings(processes=processes, clips_a_shard=8))
    jobs.start(encoding, MODULE)
    status = jobs.wait(encoding, PATIENCE)
    if status.state is not jobs.State.FINISHED:
        raise SystemExit(jobs.log_tail(encoding))
    times = sorted(path.stat().st_mtime for path in workspace.cache.glob("*.safetensors"))
    plan = json.loads((encoding.parent / "work.json").read_text())
    captions = sum(last - first for kind, first, last in plan["shards"] if kind == "captions")
    clips = times[captions:]
    return (len(clips) - 1) / (clips[-1] - clips[0])


def main() -> None:
    parser = arguments(__doc__ or "", clips=12)
    parser.add_argument("--clips", type=int, default=128, help="number of clips; each is encoded twice, once mirrored")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        speeds = {processes: measure(Path(folder), options.clips, processes) for processes in (1, 2)}
    rows = [
        {"case": f"{count} processes", "clips a second": speed, "against one": speed / speeds[1]}
        for count, speed in speeds.items()
    ]
    report(rows, options.json)


if __name__ == "__main__":
    main()

"""Do a whole run, on a GPU with a random full-size model: everything from clips to a LoRA that other programs load.

    python benchmarks/whole_run.py --model 2b --json benchmarks/results/gpu_whole_run.json       on a GPU
    python benchmarks/whole_run.py                                                             the built-in model

trained      import, encode, train, held-out loss, preview, export; seconds per step, and of everything
killed       the same run with `exact`, killed with SIGKILL after its checkpoint and restarted: "same bits" as an
             undisturbed run, and the most steps lost
stock        diffusers' own pipeline loads the exported LoRA, and its output changes
out of room  on a GPU that is mostly filled by something else: the run continues with the next cheaper setting

Each is a row, printed as soon as it is measured.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from common import arguments, published, report
from random_models import make_clips, write_model

from workbench import jobs
from workbench.families import find_model
from workbench.jobs import State
from workbench.jobs.devices import load, pick_device
from workbench.runs.failures import fallback_record
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

STEPS, EVERY = 20, 10
PATIENCE, POLL_SECONDS = 540.0, 0.05
LEFT_GB = {"2b": 16.0, "5b": 24.0}  # too little for a step without recomputing, enough for one with
Row = dict[str, Any]


class WholeRun:
    """The model, its clips and the settings, in a folder that the next call reuses."""

    def __init__(self, model: str, folder: Path) -> None:
        self.model, self.device = model, pick_device("auto")
        self.workspace = Workspace.open(folder / "workspace")
        if model == "tiny":
            path, shape, clips = "tiny-cogvideox", (9, 64, 64), (4, 9, (64, 64), 8.0)
        else:
            name = f"cogvideox-{model}"
            dtype = torch.float16 if model == "2b" else torch.bfloat16
            parts = published(name, "transformer"), published(name, "vae")
            path = str(write_model(folder / model, *parts, dtype))
            known = find_model(name)[1]
            shape, clips = (known.frames, known.height, known.width), (4, 49, (720, 480), 8.0)
        began = time.monotonic()
        make_clips(self.workspace, *clips)
        self.import_seconds = time.monotonic() - began
        self.settings = TrainSettings(dataset="squares", model=path, tracker="none").changed(
            steps=STEPS,
            save_every=EVERY,
            evaluate_every=EVERY,
            preview_every=STEPS,
            preview_steps=4,
            held_out=1,
            rank=64,
            alpha=64.0,
            gradient_checkpointing="full",
            frames=shape[0],
            height=shape[1],
            width=shape[2],
        )

    def train(self, name: str, **changed: Any) -> Run:
        """Return a finished run of that name, reusing an existing one. Ends the program if it fails."""
        folder = self.workspace.runs / name
        run = Run(folder) if folder.exists() else Run.create(self.workspace, self.settings.changed(**changed), name)
        if run.status.state is not State.FINISHED:
            run.start(from_start=True)
            _finished(run)
        return run

    def trained(self) -> Row:
        began = time.monotonic()
        run = self.train("trained")
        seconds = time.monotonic() - began
        steps = sorted(line["seconds"] for line in run.metrics if "loss" in line)
        peak = max((line.get("memory_gb") or 0.0 for line in run.metrics), default=0.0)
        return {
            "import": self.import_seconds,
            "whole run": seconds,
            "a step": steps[len(steps) // 2],
            "peak_gb": peak,
            "previews": len(run.previews),
            "checkpoints": run.checkpoints,
        }

    def killed(self) -> Row:
        want = tensors_of(self.train("exact", exact=True, preview_every=0))
        run = Run.create(self.workspace, self.settings.changed(exact=True, preview_every=0), "killed")
        run.start()
        _until(run, lambda: run.status.phase == "training" and run.status.step > EVERY)
        reached = run.status.step
        os.kill(run.status.pid or 0, signal.SIGKILL)
        jobs.wait(run.folder, PATIENCE)
        saved = max(run.checkpoints, default=0)
        run.start(from_start=True)
        _finished(run)
        found = tensors_of(run)
        same = want.keys() == found.keys() and all(torch.equal(want[name], found[name]) for name in want)
        return {"same bits": same, "killed at": reached, "began again at": saved, "tensors": len(found)}

    def stock(self) -> Row:
        from diffusers import CogVideoXPipeline

        lora = self.train("trained").lora
        assert lora is not None
        device, dtype = torch.device(self.device.torch_name), torch.float32
        if self.device.kind == "cuda":
            dtype = torch.bfloat16
        source = find_model(self.settings.model)[1].source
        pipe = CogVideoXPipeline.from_pretrained(source, torch_dtype=dtype).to(device)
        pipe.set_progress_bar_config(disable=True)
        shape = {"num_frames": 9, "height": self.settings.height, "width": self.settings.width}
        tokens = pipe.transformer.config.max_text_seq_length

        def latents() -> torch.Tensor:
            made = pipe(
                "a square moves right",
                num_inference_steps=2,
                output_type="latent",
                max_sequence_length=tokens,
                generator=torch.Generator().manual_seed(0),
                **shape,
            )
            return made.frames.float().cpu()

        before = latents()
        pipe.load_lora_weights(str(lora.parent), weight_name=lora.name)
        after = latents()
        change = float((after - before).norm() / before.norm())
        return {"loaded": bool(pipe.get_active_adapters()), "change": change, "finite": bool(after.isfinite().all())}

    def out_of_room(self) -> Row:
        """Raise RuntimeError if the run does not continue."""
        if self.device.kind == "cpu":
            return {"left_gb": "", "went on with": "needs a GPU"}
        left = LEFT_GB[self.model]
        free = self.device.total_gb - load(self.device).memory_used_gb
        ballast = torch.empty(int((free - left) * 1024**3), dtype=torch.uint8, device=self.device.torch_name)
        run = Run.create(
            self.workspace, self.settings.changed(gradient_checkpointing="none", preview_every=0), "out of room"
        )
        run.start()
        _finished(run)
        del ballast
        return {"left_gb": left, "went on with": fallback_record(run.folder).get("after", "nothing: it had room")}


ROWS: dict[str, Callable[[WholeRun], Row]] = {
    "trained": WholeRun.trained,
    "killed": WholeRun.killed,
    "stock": WholeRun.stock,
    "out of room": WholeRun.out_of_room,
}


def tensors_of(run: Run) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    assert run.lora is not None
    return load_file(run.lora)


def _finished(run: Run) -> None:
    if run.wait(PATIENCE).state is not State.FINISHED:
        sys.exit(f"the run {run.name} ended as {run.status.state}:\n{jobs.log_tail(run.folder)}")


def _until(run: Run, reached: Callable[[], bool]) -> None:
    while not reached():
        if not run.status.state.alive:
            sys.exit(f"the run {run.name} ended by itself:\n{jobs.log_tail(run.folder)}")
        time.sleep(POLL_SECONDS)


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], rows=["trained", "stock"])
    parser.add_argument("--model", choices=["tiny", "2b", "5b"], default="tiny")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep model, clips and runs here for the next call")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        whole, rows = WholeRun(options.model, options.work or Path(temporary)), []
        for name in options.rows:
            rows.append({"case": name, "model": options.model, "found": json.dumps(ROWS[name](whole))})
            print(json.dumps(rows[-1]), flush=True)
    report(rows, options.json)


if __name__ == "__main__":
    main()

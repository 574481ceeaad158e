"""Check the CUDA path on a machine without a GPU: train and sample every family's miniatures on a simulated card.

    python benchmarks/fake_cuda.py                                  everything
    python benchmarks/fake_cuda.py --only wan --toys a14b           one miniature
    python benchmarks/fake_cuda.py --only ltx --parts levels        the memory levels alone

Needs PyTorch's CUDA build and gcc, but no GPU; simulated_gpu provides the card. Each row is one part of the work. The
column "found" holds "nothing", an error that a card would raise (such as tensors on two devices), or an operation that
would be slow or inexact there, with the line of workbench/ that asked for it. Waiting for the device inside a step is a
finding, except where the loop reads its loss and gradient norm. Runs with several processes are tested with gloo
(tests/trainer/test_ranks.py).
"""

from __future__ import annotations

import contextlib
import gc
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import simulated_gpu
from common import arguments, report
from simulated_gpu import BLOCKING_UPLOAD, ROUND_TRIP, Watch, simulated

if TYPE_CHECKING:
    from workbench.runs.run import Run
    from workbench.sampler.offload_plan import OffloadPlan
    from workbench.trainer.session import Session
    from workbench.workspace import Workspace

FAMILIES = ("cogvideox", "ltx", "wan", "phenaki")
PARTS = ("run", "levels", "sampling")
PROMPT = "a red square"
WAITS = (ROUND_TRIP, BLOCKING_UPLOAD)
# What a step may wait for, and how often in two steps: the norm of its gradients and, once that is there, its losses;
# the VAE's weights, which come for the first frames of many steps and leave again.
MAY_WAIT = {"trainer/loop.py": 8, "trainer/batch_inputs.py": 192}
LEFT = 1 << 14  # bytes of tables and of inputs read ahead that may stay on a card that is lent
LEVELS: dict[str, dict[str, Any]] = {
    "stock attention": {"attention": "stock"},
    "keep attention": {"gradient_checkpointing": "keep attention"},
    "full": {"gradient_checkpointing": "full"},
    "offloaded": {"gradient_checkpointing": "offloaded"},
    "int8": {"base_model_precision": "int8"},
    "fp8": {"base_model_precision": "fp8"},
    "nf4": {"base_model_precision": "nf4"},
    "block swap": {"blocks_to_swap": 1, "gradient_checkpointing": "full"},
    "block swap of all, nf4, offloaded": {
        "blocks_to_swap": 64,
        "base_model_precision": "nf4",
        "gradient_checkpointing": "offloaded",
    },
    "accumulation": {"gradient_accumulation": 2},
    "EMA": {"ema_decay": 0.9},
    "min-SNR": {"loss_weighting": "min-snr"},
    "preservation": {"preservation_weight": 0.5},
    "base model's targets": {"regularization_target": "base model", "regularization_share": 0.5},
    "DoRA, dropout": {"dora": True, "lora_dropout": 0.1},
    "all linear layers": {"targets": "all-linear"},
    "full fine-tune": {"method": "full"},
    "dropped captions, zeros": {"caption_dropout": 0.5, "dropped_caption": "zeros"},
    "loader threads": {"loader_threads": 2},
    "exact": {"exact": True},
    "fp16": {"precision": "fp16"},
    "fp32": {"precision": "fp32"},
}


class Table:
    """Collect the rows of the report."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.rows = watch, list[dict[str, Any]]()

    @contextlib.contextmanager
    def row(self, case: str, half: bool = True, in_step: bool = False) -> Iterator[None]:
        """Report what happens inside the block as one row. An error ends the block, not the benchmark."""
        watch, error, began = self.watch, "", time.monotonic()
        watch.found.clear()
        watch.half, watch.in_step = half, in_step
        try:
            yield
        except Exception as problem:  # noqa: BLE001 (any error is a finding)
            error = f"{type(problem).__name__} at {_line_of(problem)}: {str(problem).splitlines()[0][:300]}"
            if "--traceback" in sys.argv:
                traceback.print_exc()
        finally:
            watch.half = watch.in_step = False
        noted = [
            f"{one.kind} at {one.where} ({one.what}, {count} times)"
            for one, count in sorted(watch.found.items())
            if not (one.kind in WAITS and count <= MAY_WAIT.get(one.where.partition("workbench/")[2].split(":")[0], 0))
        ]
        found = [*([error] if error else []), *noted]
        self.rows.append({"case": case, "found": "; ".join(found) or "nothing"})
        print(f"{case} ({time.monotonic() - began:.0f} s): {self.rows[-1]['found']}", file=sys.stderr, flush=True)


def _line_of(problem: BaseException) -> str:
    ours = [one for one in traceback.extract_tb(problem.__traceback__) if one.filename.startswith(simulated_gpu.OURS)]
    return f"workbench{ours[-1].filename.removeprefix(simulated_gpu.OURS)}:{ours[-1].lineno}" if ours else "?"


# ---- training


class Slot:
    """Stand in for a queue slot and check what is left on the card while it is lent."""

    locks: list[int] = []

    def __init__(self) -> None:
        self.lender: Session | None = None
        self.left = ""

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        assert self.lender is not None
        self.left = _on_the_card(list(self.lender.held_tensors()))
        yield


def _on_the_card(held: Sequence[Any] = ()) -> str:
    """Describe what is still on the card: a model, the `held` tensors or other memory; "" if nothing is."""
    from simulated_tensors import OnGpu

    gc.collect()
    there = [one for one in gc.get_objects() if type(one) is OnGpu]
    known = {id(one) for one in held}
    mine = [one for one in there if getattr(one, "_is_param", False) or id(one) in known]
    left = mine or (there if sum(one.nbytes for one in there) > LEFT else [])
    return ", ".join(sorted({f"{one.dtype} {tuple(one.shape)}".removeprefix("torch.") for one in left}))


def session(run: Run, slot: Slot | None = None) -> Session:
    """Return a session in which failed previews are errors, like everything else."""
    from accelerate.state import AcceleratorState

    from workbench.jobs import Job
    from workbench.jobs.devices import pick_device
    from workbench.trainer.loop import set_arithmetic
    from workbench.trainer.session import Session

    class Strict(Session):
        preview_failures_logged = contextlib.nullcontext  # type: ignore[assignment]

    AcceleratorState._reset_state(reset_partial_state=True)  # one per process, as a run has its own process
    device = pick_device("cuda")
    set_arithmetic(run.settings, device)
    made = Strict(Job(run.folder), run.settings, device, slot=slot)  # type: ignore[arg-type]
    if slot is not None:
        slot.lender = made
    return made


def whole_run(table: Table, title: str, run: Run) -> Path | None:
    """Train from clips to export, resuming once. Returns the exported LoRA."""
    import torch

    from workbench.trainer.loop import export, preview, preview_at_start, train_step

    made: Session | None = None
    slot = Slot()
    with table.row(f"{title}: load, encode, cache", half=False):
        made = session(run, slot)
    if made is None:
        return None
    with table.row(f"{title}: held-out loss and prior drift"):
        made.evaluate()
    with table.row(f"{title}: training inputs and previews of the base model"):
        preview_at_start(made)
    with table.row(f"{title}: steps", in_step=True):
        train_step(made)
        train_step(made)
    with table.row(f"{title}: previews"):
        preview(made)
    with table.row(f"{title}: the card lent to others"):
        with made.device_lent():
            pass
        slot.lender = None  # it would keep the session alive
        if slot.left:
            raise RuntimeError(f"still on the card: {slot.left}")
    with table.row(f"{title}: save"):
        made.save()
    made.close()
    made = None
    with table.row(f"{title}: resume, a step, export", in_step=False):
        made = session(run)
        states = [one for state in made.optimizer.state.values() for one in state.values()]
        if wrong := [one for one in states if isinstance(one, torch.Tensor) and one.device.type != "cuda"]:
            raise RuntimeError(f"{len(wrong)} of the optimizer's tensors are on the processor")
        train_step(made)
        export(made)
        made.close()
    path = run.folder / "lora.safetensors"
    return path if path.is_file() else None


def level(table: Table, title: str, run: Run) -> None:
    """Train two steps and make a preview with other settings."""
    from workbench.trainer.loop import preview, train_step

    made: Session | None = None
    half = run.settings.precision != "fp32"
    with table.row(f"{title}: load", half=False):
        made = session(run)
    if made is None:
        return
    table.rows.pop() if table.rows[-1]["found"] == "nothing" else None
    with table.row(f"{title}: steps", half, in_step=True):
        train_step(made)
        train_step(made)
    with table.row(f"{title}: preview, save", half):
        preview(made)
        made.save()
    made.close()


# ---- sampling


def plans() -> dict[str, tuple[str, OffloadPlan]]:
    """List every speed and offload plan by name."""
    from workbench.sampler.offload_plan import OffloadPlan

    low = {"weights": "int8", "model_offload": True, "sequential_guidance": True, "tiled": True}
    return {
        "exact": ("exact", OffloadPlan()),
        "exact, model offload": ("exact", OffloadPlan(model_offload=True)),
        "exact, block swap": ("exact", OffloadPlan(model_offload=True, blocks_to_swap=2, tiled=True)),
        "fast": ("fast", OffloadPlan()),
        "low-memory": ("low-memory", OffloadPlan(**low)),
        "low-memory, block swap": ("low-memory", OffloadPlan(**low, blocks_to_swap=2)),
    }


def sampling(
    table: Table, title: str, toy: str, workspace: Workspace, files: dict[str, Any], lora: Path | None
) -> None:
    """Sample with each plan, using every input that the model takes."""
    from workbench.families import find_model
    from workbench.jobs.devices import pick_device
    from workbench.sampler import offload_plan
    from workbench.sampler.generate import Sampler
    from workbench.sampler.offload_plan import OffloadPlan
    from workbench.sampler.settings import SampleSettings

    _, model = find_model(toy)
    image = files["image"] if model.task == "image-to-video" else ""
    loras = (str(lora),) if lora else ()
    choose = offload_plan.choose
    for name, (speed, plan) in plans().items():
        with table.row(f"{title}: sample, {name}"):
            offload_plan.choose = lambda *_, plan=plan: plan  # type: ignore[assignment]
            try:
                shot = SampleSettings(
                    model=toy, prompt=PROMPT, steps=2, seed=0, device="cuda", speed=speed, image=image, loras=loras
                )
                sampler = Sampler(toy, pick_device("cuda"), lambda text: None, shot.speed)
                latents: list[Any] = []
                sampler.generate(workspace, shot, partial(_keep_latents, latents))
                sampler.latent_preview().webp(latents[-1], 1.0)
                sampler.generate(workspace, shot.changed(loras=()))
                if plan == OffloadPlan():
                    for more in ({"continue_from": files["video"]}, {"video": files["video"]}):
                        if "video" in more and model.task == "image-to-video":
                            continue
                        sampler.generate(workspace, shot.changed(**{"image": "", **more}))
            finally:
                offload_plan.choose = choose
        sampler = None
        gc.collect()


def _keep_latents(latents: list[Any], done: int, total: int, now: Any) -> None:
    latents[:] = [now]


def warm_worker(table: Table, title: str, toy: str, workspace: Workspace, files: dict[str, Any]) -> None:
    """Check that the sampling worker frees the card when a run needs it."""
    from workbench import jobs
    from workbench.families import find_model
    from workbench.jobs.queue import Lease
    from workbench.sampler.queue import HOLDER, worker_folder
    from workbench.sampler.settings import SampleSettings
    from workbench.sampler.worker import Worker

    image = files["image"] if find_model(toy)[1].task == "image-to-video" else ""
    folder = worker_folder(workspace)
    folder.mkdir(parents=True, exist_ok=True)
    row = table.row(f"{title}: the warm worker lends the card")
    with row, Lease(workspace, HOLDER) as lease, jobs.Job(folder) as job:
        worker = Worker(workspace, job, lease)
        settings = SampleSettings(model=toy, prompt=PROMPT, steps=2, seed=0, device="cuda", image=image)
        sampler = worker._sampler_for("one", settings)
        sampler.generate(workspace, settings)
        assert worker._sampler_for("two", settings) is sampler, "it is not warm"
        del sampler
        worker._unload()
        if left := _on_the_card():
            raise RuntimeError(f"still on the card: {left}")


# ---- setup


def in_half(folder: Path) -> None:
    """Store a miniature's weights in bfloat16, as large models are published."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    for path in folder.rglob("*.safetensors"):
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
        tensors = {name: one.bfloat16() if one.is_floating_point() else one for name, one in load_file(path).items()}
        save_file(tensors, path, metadata)
    assert torch.get_default_dtype() == torch.float32


def settings_of(name: str, toy: str, clips: str, **values: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        "model": toy,
        "dataset": clips,
        "steps": 3,
        "rank": 2,
        "batch_size": 2,
        "held_out": 1,
        "warmup_steps": 1,
        "evaluate_every": 1,
        "save_every": 1,
        "preview_every": 1,
        "preview_steps": 2,
        "preview_prompts": (PROMPT,),
        "image_dropout": 0.3,
        "device": "cuda",
        "oom_fallback": False,
    }
    if "a14b" in name:
        usual["expert"] = "high noise"
    if name.startswith("phenaki"):
        usual |= {"frames": 9, "height": 16, "width": 16}
    return usual | values


def prepared(workspace: Workspace) -> tuple[str, str, dict[str, Any]]:
    """Create two small datasets and the files that samples take as input."""
    import numpy as np
    from PIL import Image

    from workbench.clips import media
    from workbench.dataset_builder import Dataset

    names = []
    for name, color in (("red squares", 200), ("gray squares", 90)):
        source = workspace.root / f"{name} clips"
        source.mkdir()
        for index in range(4):
            frames = np.full((17, 64, 64, 3), 20, np.uint8)
            frames[:, 10 + index : 40, 10:40] = color
            media.encode(frames, source / f"{index}.mp4", 8)
            (source / f"{index}.txt").write_text(f"{PROMPT} {index}")
        dataset = Dataset.ensure(workspace, name)
        dataset.import_files([source])
        names.append(dataset.name)
    picture = workspace.root / "first.png"
    Image.new("RGB", (64, 64), "red").save(picture)
    return names[0], names[1], {"image": str(picture), "video": str(workspace.root / "red squares clips" / "0.mp4")}


def examine(table: Table, options: Any, workspace: Workspace) -> None:
    from workbench.errors import ConfigError
    from workbench.families import families
    from workbench.runs.run import Run
    from workbench.runs.settings import TrainSettings

    clips, known, files = prepared(workspace)
    for family in families():
        if family.name not in options.only:
            continue
        for variant in family.toys:
            if options.toys and variant not in options.toys:
                continue
            name = f"{family.name} {variant}"
            folder = workspace.root / "toys" / name.replace(" ", "-")
            toy = str(family.toy(folder, variant).source)
            in_half(Path(toy))

            def run(title: str, **values: Any) -> Run:
                if "regularization_target" in values:
                    values["regularization_dataset"] = known
                settings = TrainSettings().changed(**settings_of(name, toy, clips, **values))  # noqa: B023
                return Run.create(workspace, settings, title)

            lora = whole_run(table, name, run(name)) if "run" in options.parts else None
            if "levels" in options.parts and (variant in (family.toys[0], family.toys[-1]) or options.toys):
                for title, values in LEVELS.items():
                    if options.levels and title not in options.levels:
                        continue
                    try:
                        made = run(f"{name} {title}", **values)
                    except ConfigError:  # this model has no such setting, and says so before it trains
                        continue
                    level(table, f"{name}, {title}", made)
            if "sampling" in options.parts:
                sampling(table, name, toy, workspace, files, lora)
                warm_worker(table, name, toy, workspace, files)


def main() -> None:
    parser = arguments(
        (__doc__ or "").splitlines()[0], only=["cogvideox"], toys=["sincos"], parts=["levels"], levels=["full"]
    )
    parser.add_argument("--only", nargs="+", choices=FAMILIES, default=list(FAMILIES), help="families")
    parser.add_argument("--toys", nargs="+", default=[], help="miniatures, by name; all without")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=[], help="of the part levels; all without")
    parser.add_argument("--traceback", action="store_true", help="show where each error came from")
    options = parser.parse_args()
    if sentence := simulated_gpu.missing():
        print(sentence)
        report([{"case": "not run", "found": sentence}], options.json)
        sys.exit(0 if options.smallest else 1)
    simulated_gpu.preload()
    from workbench.workspace import Workspace

    with tempfile.TemporaryDirectory() as folder, simulated() as watch:
        table = Table(watch)
        examine(table, options, Workspace.open(Path(folder)))
    report(table.rows, options.json)
    sys.exit(any(row["found"] != "nothing" for row in table.rows))


if __name__ == "__main__":
    main()

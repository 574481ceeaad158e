"""LoRA files with known contents, and folders of runs as a training leaves them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from workbench.workspace import Workspace, write_json

Arrays = dict[str, np.ndarray]


def layer(module: str, rank: int, inputs: int, outputs: int, seed: int = 0) -> Arrays:
    """The pair of matrices of one layer, float32, random from a seed."""
    values = np.random.default_rng([seed, len(module), rank])
    return {
        f"{module}.lora_A.weight": values.standard_normal((rank, inputs)).astype(np.float32),
        f"{module}.lora_B.weight": values.standard_normal((outputs, rank)).astype(np.float32),
    }


def write_lora(path: Path, tensors: Arrays, alpha: float | None = None, **notes: str) -> Path:
    """A file in diffusers' layout."""
    path.parent.mkdir(parents=True, exist_ok=True)
    metadata = {"format": "pt", **notes}
    if alpha is not None:
        rank = next(array.shape[0] for name, array in tensors.items() if "lora_A" in name)
        modules = sorted({name.split(".lora_")[0] for name in tensors})
        adapter = {"transformer.r": rank, "transformer.lora_alpha": alpha, "transformer.target_modules": modules}
        metadata["lora_adapter_metadata"] = json.dumps(adapter)
    whole = {f"transformer.{name}": np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(whole, path, metadata)
    return path


def put_lora(
    workspace: Workspace,
    name: str,
    tensors: Arrays,
    alpha: float | None = None,
    model: str = "tiny-cogvideox",
    **notes: object,
) -> Path:
    """One in the folder `loras`."""
    path = write_lora(workspace.root / "loras" / name / "lora.safetensors", tensors, alpha, base_model=model)
    write_json(path.parent / "lora.json", {"title": name, "model": model, "base_model": model, "time": 1.0, **notes})
    return path


def put_export(
    workspace: Workspace,
    run: str,
    *,
    rank: int,
    alpha: float,
    step: int,
    checkpoints: tuple[int, ...] = (),
    model: str = "tiny-cogvideox",
) -> Path:
    """A finished run's folder with its export, checkpoints and one preview."""
    folder = workspace.run(run)
    write_json(folder / "config.json", {"model": model})
    write_json(folder / "result.json", {"status": "finished", "exit_code": 0})
    tensors = layer("transformer_blocks.0.attn1.to_q", rank, 8, 8)
    notes = {"base_model": model, "trigger_word": "ohwx", "run": run}
    write_lora(folder / "lora.safetensors", tensors, alpha, **notes, step=str(step))
    for one in checkpoints:
        checkpoint = folder / "checkpoints" / f"step-{one:08d}"
        write_lora(checkpoint / "lora.safetensors", tensors, alpha, **notes, step=str(one))
        write_json(checkpoint / "MANIFEST.json", {"step": one, "files": {}})
    preview = folder / "previews" / f"step-{step:08d}" / "0.mp4"
    preview.parent.mkdir(parents=True)
    preview.write_bytes(b"video")
    return folder

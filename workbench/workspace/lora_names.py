"""Names of a workspace's LoRAs and the files they stand for.

runs/RUN           a run's export         runs/RUN/lora.safetensors
runs/RUN@STEP      a checkpoint of it     runs/RUN/checkpoints/step-STEP/lora.safetensors
loras/NAME         a library LoRA         loras/NAME/lora.safetensors, with lora.json beside it
"""

from __future__ import annotations

from pathlib import Path

from workbench.errors import ConfigError
from workbench.workspace.files import read_object
from workbench.workspace.layout import LORA_NAME, Workspace, step_folders

FILE, NOTES = "lora.safetensors", "lora.json"
ALSO = "also.safetensors"  # weights that a run trained in full, in addition to its LoRA
RUNS, LORAS = "runs", "loras"


def folder(workspace: Workspace) -> Path:
    return workspace.root / LORAS


def is_name(text: str) -> bool:
    """Whether a text has the form of a LoRA's name. The LoRA may not exist."""
    return LORA_NAME.fullmatch(text) is not None and ".." not in text


def path_of(workspace: Workspace, name: str) -> Path:
    """Return the file that a name stands for, whether it exists or not. Raises ConfigError if it is not a name."""
    match = LORA_NAME.fullmatch(name)
    if match is None or ".." in name:
        raise ConfigError(f"{name[:120]!r} is not a LoRA's name: write runs/RUN, runs/RUN@STEP or loras/NAME")
    if match[4]:
        return folder(workspace) / match[5] / FILE
    run = workspace.run(match[2])
    return run / FILE if match[3] is None else run / "checkpoints" / f"step-{int(match[3]):08d}" / FILE


def names(workspace: Workspace) -> list[str]:
    """List all exports and library LoRAs, newest first, without checkpoints."""
    exports = [(path, f"{RUNS}/{path.parent.name}") for path in workspace.runs.glob(f"*/{FILE}")]
    others = [(path.parent / FILE, f"{LORAS}/{path.parent.name}") for path in folder(workspace).glob(f"*/{NOTES}")]
    found = [(_time(path), name) for path, name in [*exports, *others] if is_name(name)]
    return [name for _, name in sorted(found, reverse=True)]


def checkpoint_names(workspace: Workspace, run: str) -> list[str]:
    """List a run's complete checkpoints that hold a LoRA, oldest first."""
    found = step_folders(workspace.run(run) / "checkpoints")
    complete = [step for step, path in found.items() if (path / FILE).exists() and (path / "MANIFEST.json").exists()]
    return [f"{RUNS}/{run}@{step}" for step in complete]


def why_none(workspace: Workspace, run: str) -> str:
    """Say why a run has exported no LoRA and what to do. Continues a sentence that begins with the run's name."""
    folder = workspace.run(run)
    if read_object(folder / "config.json").get("method") == "full":
        use = f"choose {RUNS}/{run} as the model, or make a LoRA of it with `workbench loras extract {run}`"
        if (folder / "model_index.json").exists():
            return f"trained all weights, which makes a model rather than a LoRA: {use}"
        return f"trains all weights, which makes a model rather than a LoRA: once it has finished, {use}"
    remedy = f"workbench runs show {run} says how far it is"
    if saved := checkpoint_names(workspace, run):
        remedy = f"use its newest checkpoint, {saved[-1]}, or let it finish"
    return f"has exported no LoRA, which a run does when it finishes: {remedy}"


def _time(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0  # it was just removed

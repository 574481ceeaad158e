"""What a visitor of the demo may do: quotas, and the check that all settings in a visitor's page must pass.

Each operation declares whether visitors may call it, jobs.quota counts jobs, and workspace.named_paths restricts paths.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.clips import made
from workbench.errors import ConfigError
from workbench.families import models
from workbench.jobs.quota import OFF, Quota
from workbench.settings import Settings
from workbench.workspace import LORA_NAME, named_paths

HUB = "WORKBENCH_DEMO_HUB"  # comma-separated repositories that visitors may use; setting it lets the demo go online
MEGABYTE = 1024**2
MODULES = (
    "workbench.trainer",
    "workbench.trainer.previewer",
    "workbench.trainer.trial",
    "workbench.trainer.causes",
    "workbench.jobs.queue",
    "workbench.sampler",
    "workbench.sampler.vae_reconstruction",
    "workbench.dataset_builder",
    "workbench.compare",
    "workbench.loras",
)
# Highest value of a setting (or Class.setting); for a text or list, its maximum length.
MOST = {
    "TrainSettings.steps": 600,
    "batch_size": 8,
    "gradient_accumulation": 1,
    "rank": 32,
    "bucket_limit": 4,
    "preview_count": 1,
    "preview_prompts": 4,
    "preservation_prompts": 8,
    "preview_frames": 17,
    "preview_steps": 75,
    "tokenizer_steps": 600,
    "tokenizer_batch_size": 16,
    "keep_checkpoints": 5,
    "SampleSettings.steps": 100,
    "frames": 17,
    "height": 64,
    "width": 64,
    "videos": 4,
    "loras": 4,
    "prompt": 2000,
    "negative_prompt": 2000,
    "loader_threads": 2,
    "idle_seconds": 120,
    "more_datasets": 2,
}
# Allowed values of a setting. Captioners, prompt enhancers, depth and pose models need a download or a server.
ONLY: dict[str, tuple[str | bool | None, ...]] = {
    "tracker": ("none",),
    "device": ("auto", "cpu"),
    "compile": (False,),
    "captioner": (),
    "maker": tuple(name for name, about in made.ABOUT.items() if not about.models),
    "enhancer": (),
    "push_to_hub": (False,),
}
EMPTY = ("hub_dataset", "own_source", "repo_id", "base_url", "epochs")  # settings that must stay empty
CLIPS = ("chosen", "clips", "clip")  # settings that name clips of a dataset, as clips/ID.mp4
# Settings with free text, which may start with a slash or mention an address.
FREE = re.compile(r"prompt|caption|instruction|text|find|replace")
HUB_ID = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(:[^@]+)?(@[\w./-]+)?")


@dataclass(frozen=True)
class Limits:
    """Limits of the demo."""

    sessions: int = 12  # sessions at once
    per_address: int = 4  # sessions at once from one address
    spare: int = 1  # sessions that are started ahead
    idle: float = 900.0  # seconds without a request after which a session is removed
    longest: float = 7200.0  # seconds after which a session is removed in any case
    job: float = 600.0  # seconds after which a visitor's job is ended
    size: int = 200 * MEGABYTE  # bytes of a session
    total: int = 4000 * MEGABYTE  # bytes of all sessions
    upload: int = 40 * MEGABYTE  # bytes of one upload
    files: int = 200  # uploaded files per visitor
    uploads: int = 4  # uploads at once per visitor

    def variables(self, home: Path) -> dict[str, str]:
        """Return the environment variables that restrict a page and its jobs to a visitor's folder and quota."""
        hub = {HUB: ",".join(allowed())}
        return Quota(str(home), MODULES, size=self.size).variables | named_paths.variables([home]) | hub


def allowed() -> tuple[str, ...]:
    """Return the Hub repositories that visitors may use, none by default."""
    return tuple(name.strip() for name in os.environ.get(HUB, "").split(",") if name.strip())


def notice() -> str:
    """Return what a visitor should know about the demo and their files."""
    limits = Limits()
    steps, minutes = f"{MOST['TrainSettings.steps']:g}", f"{limits.job / 60:.0f}"
    idle, longest = f"{limits.idle / 60:.0f}", f"{limits.longest / 3600:g}"
    return (
        "This is a demo on a small machine. Your workspace is private, and it is removed "
        f"{idle} minutes after you leave, or {longest} hours after you came. You can "
        f"build datasets from your own clips (up to {limits.upload // MEGABYTE} MB per upload), train a built-in model "
        f"(up to {steps} steps and {minutes} minutes, one run at a time), and sample it. Large models, publishing, "
        "other machines and this machine's files are switched off."
    )


# ---- settings -------------------------------------------------------------------------------------------------------


def check(settings: Settings) -> None:
    """Raise ConfigError with a sentence for each setting that a visitor may not use (settings.RULES)."""
    kind, found = type(settings), {}
    for name, value in settings.model_dump().items():
        problem = ""
        if name in EMPTY:
            problem = f"{name} {OFF}" if value else ""
        elif name in ONLY and value not in ONLY[name]:
            problem = f"{name} is {str(value)[:40]!r}, which {OFF}"
        if not problem and value != kind.model_fields[name].get_default():
            problem = _problem(kind.__name__, name, value)
        if problem:
            found[name] = problem
    if found:
        raise ConfigError("; ".join(found.values()), found)


def _problem(kind: str, name: str, value: Any) -> str:
    """Return what is wrong with a setting that was changed from its default, or ""."""
    most = MOST.get(f"{kind}.{name}", MOST.get(name))
    size = value if isinstance(value, int | float) else len(value) if isinstance(value, str | tuple | list) else 0
    if most is not None and size > most:
        return f"{name} is {size}, at most {most:g} in this demo: use {most:g}"
    embedded = [model.id for model in models() if model.embedded]
    if name == "model" and value and value not in (*embedded, *allowed()):
        return f"model is {str(value)[:80]!r}, in this demo only {', '.join(embedded)}: choose it"
    for text in _texts(value):
        if not FREE.search(name) and _elsewhere(text) and not (name in CLIPS and text.startswith("clips/")):
            return f"{name} is {text[:80]!r}, but this demo only reads and writes your own workspace"
    return ""


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value.strip()
    elif isinstance(value, tuple | list):
        for one in value:
            yield from _texts(one)


def _elsewhere(text: str) -> bool:
    """Return whether a text names something outside the visitor's folder: a file, an address, a repository."""
    if "://" in text or text.startswith(("~", "\\", "//")) or "\0" in text or ".." in PurePosixPath(text).parts:
        return True
    if text.startswith("/"):
        return not any(Path(text).resolve().is_relative_to(root) for root in named_paths.roots())
    name = text.rpartition("=")[0] or text
    named = HUB_ID.fullmatch(name)
    return named is not None and not LORA_NAME.fullmatch(name) and named["repo"] not in allowed()

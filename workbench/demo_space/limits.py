"""What a visitor of the demo may do, in numbers. The rules are enforced in the library (workbench.policy)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from workbench.families import models
from workbench.policy import Policy

HUB = "WORKBENCH_DEMO_HUB"  # repositories that visitors may name, by commas; then the demo may go online
MEGABYTE = 1024**2
JOBS = (
    "workbench.trainer",
    "workbench.trainer.previewer",
    "workbench.trainer.trial",
    "workbench.jobs.queue",
    "workbench.sampler",
    "workbench.sampler.vae_reconstruction",
    "workbench.dataset_builder",
    "workbench.compare",
    "workbench.loras",
)
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
# Captions and prompts by a model need a download or a server.
ONLY: dict[str, tuple[str | bool | None, ...]] = {
    "tracker": ("none",),
    "device": ("auto", "cpu"),
    "compile": (False,),
    "captioner": (),
    "enhancer": (),
    "push_to_hub": (False,),
}
EMPTY = ("hub_dataset", "own_source", "repo_id", "base_url", "epochs")


@dataclass(frozen=True)
class Limits:
    """sessions: at once; per_address: of those, from one address; spare: sessions that are kept ready
    idle, longest: seconds without a request, and in all, after which a session is removed
    job: seconds after which a job of a visitor is ended; size, total: bytes of a session, of all sessions
    upload: bytes of one upload; files: uploaded ones of one visitor; uploads: at once; runs: of one visitor
    at_once: jobs of one visitor at once; together, all_at_once: trainings and jobs of all visitors
    memory: bytes that one process may have for its data
    """

    sessions: int = 12
    per_address: int = 4
    spare: int = 1
    idle: float = 900.0
    longest: float = 7200.0
    job: float = 600.0
    size: int = 200 * MEGABYTE
    total: int = 4000 * MEGABYTE
    upload: int = 40 * MEGABYTE
    files: int = 200
    uploads: int = 4
    at_once: int = 4
    together: int = 2
    all_at_once: int = 16
    runs: int = 6
    memory: int = 3000 * MEGABYTE

    def policy(self, home: Path, everybody: Path) -> Policy:
        """The rules of the session whose folder is `home`."""
        return Policy(
            home=str(home),
            jobs=JOBS,
            models=tuple(model.id for model in models() if model.embedded),
            hub=allowed(),
            most=MOST,
            only=ONLY,
            empty=EMPTY,
            everybody=str(everybody),
            **{name: getattr(self, name) for name in ("runs", "size", "at_once", "together", "all_at_once", "memory")},
        )


def allowed() -> tuple[str, ...]:
    """Repositories of the Hub that visitors may name; none unless whoever runs the demo says so."""
    return tuple(name.strip() for name in os.environ.get(HUB, "").split(",") if name.strip())


def notice() -> str:
    """Return what a visitor should know: what the demo is, and what happens to their files."""
    limits = Limits()
    steps, minutes = f"{MOST['TrainSettings.steps']:g}", f"{limits.job / 60:.0f}"
    idle, longest = f"{limits.idle / 60:.0f}", f"{limits.longest / 3600:g}"
    return (
        "This is a demo on a small machine. The workspace you see is yours alone: nobody else can look into it, and "
        f"all of it is removed {idle} minutes after you leave, {longest} hours after you came at the latest. You can "
        f"build datasets of your own clips ({limits.upload // MEGABYTE} MB an upload), train the built-in model "
        f"({steps} steps and {minutes} minutes at most, one run at a time), and sample it. Large models, publishing, "
        "other machines, and this machine's files are switched off."
    )

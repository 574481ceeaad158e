"""Settings for what is to be trained: recipes with their reasons and sources."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, ClassVar

from pydantic import Field

from workbench.families import default_model
from workbench.families.recipes import SUBJECTS
from workbench.fit.gpus import HERE
from workbench.fit.levels import suggest
from workbench.operations.registry import Snapshot, operation
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

GPU_HELP = "Memory of the GPU to estimate for, in GB, as in 24. Else this machine's."
Gpu = Annotated[str, Field(description=GPU_HELP)]


class Recipe(Snapshot):
    """Settings for what is to be trained."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("subject", "evidence")

    subject: str
    """`style`, `character`, `object`, `motion`, `camera` or `effect`."""

    model: str
    """Its title."""

    clips: int
    """For how many; 0 where it is not known."""

    evidence: str
    """How well it is documented, one sentence."""

    warning: str
    """What stands against the dataset; "" when nothing does."""

    settings: dict[str, Any]
    """Setting and value, as a run's config.json has them."""

    reasons: tuple[dict[str, Any], ...]
    """Setting (empty for advice on the dataset), title, value, reason, sources (title, url) of each."""

    gpu: str
    """That memory settings, frames and size are chosen for."""


@operation(path="/recipes", by_hand="recipes")
def recipes(
    workspace: Workspace,
    subject: Annotated[str, Field(description="What is to be trained. Empty: all subjects.")] = "",
    *,
    model: Annotated[str | None, Field(description="The model to train on. Empty: the built-in one.")] = None,
    dataset: Annotated[str, Field(description="Steps for the clips of this dataset.")] = "",
    clips: Annotated[int | None, Field(ge=0, description="Steps for so many clips.")] = None,
    gpu_memory: Gpu = HERE,
) -> list[Recipe]:
    """Show which settings suit a subject, with reasons and sources."""
    settings = TrainSettings(model=workspace.model(model or default_model()), dataset=dataset)
    found = [suggest(workspace, one, settings, gpu_memory, clips) for one in ([subject] if subject else SUBJECTS)]
    return [Recipe.model_validate(asdict(one)) for one in found]

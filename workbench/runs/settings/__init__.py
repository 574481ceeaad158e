"""The settings of a training run, one declaration each, a file a part of the form.

Not covered: rules that need a model's facts, a dataset or a package (runs.checks).
"""

from __future__ import annotations

from workbench.runs.settings.checkpoints import CheckpointSettings
from workbench.runs.settings.data import DataSettings
from workbench.runs.settings.logging import LoggingSettings
from workbench.runs.settings.lora import LoraSettings
from workbench.runs.settings.machine import MachineSettings
from workbench.runs.settings.memory import MemorySettings
from workbench.runs.settings.model import ModelSettings
from workbench.runs.settings.previews import PreviewSettings
from workbench.runs.settings.training import TrainingSettings


# Python reads bases from the last to the first: this is the order of the form, from below.
class TrainSettings(
    MachineSettings,
    MemorySettings,
    LoggingSettings,
    CheckpointSettings,
    PreviewSettings,
    LoraSettings,
    TrainingSettings,
    DataSettings,
    ModelSettings,
):
    """What `runs/<slug>/config.json` holds: a run can be repeated from it alone."""


__all__ = ["TrainSettings"]

"""The settings of a training run, one declaration each.

Not covered: rules that need a model's facts, a dataset or a package (runs.checks).
"""

from __future__ import annotations

from workbench.runs.settings.data import DataSettings, ModelSettings
from workbench.runs.settings.machine import MachineSettings, MemorySettings
from workbench.runs.settings.other_names import OTHER_NAMES
from workbench.runs.settings.outputs import CheckpointSettings, LoggingSettings, PreviewSettings
from workbench.runs.settings.training import LoraSettings, TrainingSettings


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

    ALSO = OTHER_NAMES


__all__ = ["TrainSettings"]

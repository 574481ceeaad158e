"""The settings of a training run, one declaration each, a file a part of the form.

Not covered: rules that need a model's facts, a dataset or a package (runs.checks).
"""

from __future__ import annotations

from workbench.runs.settings.data import DataSettings
from workbench.runs.settings.lora import LoraSettings
from workbench.runs.settings.machine import MachineSettings
from workbench.runs.settings.memory import MemorySettings
from workbench.runs.settings.model import ModelSettings
from workbench.runs.settings.training import TrainingSettings
from workbench.runs.settings.watching import WatchSettings


# Python reads bases from the last to the first: this is the order of the form, from below.
class TrainSettings(
    MachineSettings, MemorySettings, WatchSettings, LoraSettings, TrainingSettings, DataSettings, ModelSettings
):
    """What `runs/<slug>/config.json` holds: a run can be repeated from it alone."""


__all__ = ["TrainSettings"]

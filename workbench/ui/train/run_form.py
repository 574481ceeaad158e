"""The form of a new run: TrainSettings, and a warning below preview prompts that lack the dataset's trigger word."""

from __future__ import annotations

from typing import Any

from workbench.clips.records import read_info
from workbench.errors import ConfigError
from workbench.runs.settings import TrainSettings
from workbench.settings import Spec
from workbench.ui.core.form import Form
from workbench.ui.core.triggers import TriggerPart
from workbench.workspace import Workspace

OF_DATASET = "the dataset's trigger word, which each of its captions has: without it a preview may show little."


class RunForm(Form[TrainSettings]):
    """The form, filled with the defaults."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(TrainSettings, workspace, TrainSettings(), search=True)

    def wire(self, opened: Any) -> None:
        super().wire(opened)
        self._triggers.wire(self, "preview_prompts", ["dataset"])

    def _component(self, spec: Spec, value: Any, **more: Any) -> Any:
        made = super()._component(spec, value, **more)
        if spec.name == "preview_prompts":
            self._triggers = TriggerPart(self._words, OF_DATASET, "preview-")
        return made

    def _words(self, dataset: str) -> list[str]:
        try:
            word = read_info(self.workspace.dataset(dataset)).trigger_word.strip() if dataset else ""
        except ConfigError:  # the form says so when the run is started
            return []
        return [word] if word else []

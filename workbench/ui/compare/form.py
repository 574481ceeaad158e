"""The form of a grid: a run fills in its suggestions; below stand the number of videos and the time they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import gradio as gr

from workbench.compare import GridSettings
from workbench.compare.suggestions import base_of, cost, newest, suggested
from workbench.errors import ConfigError
from workbench.loras.library import words_of_grid
from workbench.sampler.settings import SampleSettings
from workbench.settings import Spec, specs
from workbench.ui.core import render
from workbench.ui.core.boundary import handler, on, send
from workbench.ui.core.form import NONE, Choices, Form, sentences
from workbench.ui.core.triggers import TriggerPart
from workbench.workspace import Workspace

FILLED = ("prompts", "images", "seeds", "checkpoints", "scales")


class GridForm(Form[GridSettings]):
    """The form of GridSettings; `beside` are the model and the speed of its samples."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(GridSettings, workspace, GridSettings())
        sample = {spec.name: spec for spec in specs(SampleSettings)}
        model = replace(sample["model"], help="The model of a grid without a run.")
        with gr.Row(elem_classes="fields"):
            self.beside = [self._component(spec, spec.default) for spec in (model, sample["speed"])]
        self.cost = gr.HTML(elem_id="grid-cost")

    def _component(self, spec: Spec, value: Any, **more: Any) -> Any:
        made = super()._component(spec, value, **more)
        if spec.name == "prompts":
            self._triggers = TriggerPart(self._words, prefix="grid-")
        return made

    def _words(self, run: str, loras: list[str] | None) -> list[str]:
        return words_of_grid(self.workspace, run or "", loras or [])

    def _options(self, spec: Spec, values: Mapping[str, Any] = {}) -> Choices:
        found = super()._options(spec, values)
        return [NONE, *found] if spec.name == "run" else found

    def wire_up(self, opened: Sequence[Any]) -> None:
        """Connect the listeners. opened: the events after which a person sees the form; runs come meanwhile."""
        self._triggers.wire(self, "prompts", ["run", "loras"])
        run, loras, checkpoints = (self._components[name] for name in ("run", "loras", "checkpoints"))
        filled = [self._components[name] for name in FILLED]
        chosen = on(run.input, self._suggested, [run], filled)
        begun = on(list(opened), self._first, [run, self._components["prompts"], loras], [run, *filled])
        on(list(opened), self._runs_and_loras, [], [run, loras])
        on(run.change, self._checkpoints, [run], [checkpoints])
        fields = [*filled, loras, *(self._components[name] for name in ("guidance", "steps")), *self.beside]
        changed = partial(gr.on, [one.change for one in fields])
        for event in (chosen.then, begun.then, changed):
            send(event, handler(self._cost), [*self.beside, *self.inputs], self.cost, trigger_mode="always_last")

    def _runs_and_loras(self) -> list[Any]:
        """The runs and LoRAs there are now."""
        return [gr.update(choices=self._options(spec)) for spec in self.specs if spec.name in ("run", "loras")]

    def _first(self, *touched: Any) -> list[Any]:
        """The suggestions of the newest run that has something to compare, in a form that nobody has changed."""
        name = "" if any(touched) else newest(self.workspace)
        return [gr.update(value=name), *self._suggested(name)] if name else [gr.skip()] * (1 + len(FILLED))

    def _suggested(self, name: str) -> list[Any]:
        """The suggestions of a run for its fields."""
        if not name:
            return [gr.skip()] * len(FILLED)
        found = suggested(self.workspace, name)
        updates = dict(zip([spec.name for spec in self.specs], self.write(found), strict=True))
        updates["checkpoints"] = self._checkpoints(name) | {"value": list(found.checkpoints)}
        return [updates[one] for one in FILLED]

    def _checkpoints(self, name: str) -> Any:
        spec = next(spec for spec in self.specs if spec.name == "checkpoints")
        return gr.update(choices=self._options(spec, {"run": name}))

    def _cost(self, model: str, speed: str, *values: Any) -> str:
        """The number of videos, and about how long they take."""
        try:
            settings = self.parse(values)
            base = base_of(self.workspace, settings, model, speed)
            return render.note(cost(self.workspace, settings, base))
        except ConfigError as error:
            return sentences(error, GridSettings)

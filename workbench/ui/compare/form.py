"""The form of a grid: a run fills in its suggestions; below stand the number of videos and the time they take.

Not covered: the rules (compare.settings, compare.axes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import gradio as gr

from workbench.compare import GridSettings
from workbench.compare.cost import cost
from workbench.compare.suggestions import base_of, newest, suggested
from workbench.errors import ConfigError
from workbench.families import models
from workbench.sampler.settings import SampleSettings
from workbench.settings import Spec
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler, send
from workbench.ui.core.form import NONE, Choices, Form, sentences
from workbench.workspace import Workspace

OF_RUN = "that of the run"
FILLED = ("prompts", "images", "seeds", "checkpoints", "scales")


class GridForm(Form[GridSettings]):
    """The form of GridSettings, with the model and the speed of its samples beside it."""

    def __init__(self, workspace: Workspace) -> None:
        super().__init__(GridSettings, workspace, GridSettings())
        with gr.Row(elem_classes="fields"):
            self.sample_model = gr.Dropdown(
                [(OF_RUN, ""), *((model.title, model.id) for model in models())],
                value="",
                label="Model",
                info="The model of a grid without a run.",
                elem_id="grid-model",
                min_width=150,
            )
            self.speed = gr.Dropdown(
                ["exact", "fast", "low-memory"],
                value="exact",
                label="Speed",
                info="exact: as the stock pipeline. fast: nearly the same in less time. low-memory: for a small GPU.",
                elem_id="grid-speed",
                min_width=150,
            )
        self.cost = gr.HTML(elem_id="grid-cost")

    def _options(self, spec: Spec, values: Mapping[str, Any] = {}) -> Choices:
        found = super()._options(spec, values)
        return [NONE, *found] if spec.name == "run" else found

    @property
    def all_inputs(self) -> list[Any]:
        """The components that `request` takes."""
        return [*self.inputs, self.sample_model, self.speed]

    def wire_up(self, opened: Sequence[Any]) -> None:
        """Connect the listeners. opened: the events after which a person sees the form; runs come meanwhile."""
        run, checkpoints = self._components["run"], self._components["checkpoints"]
        filled = [self._components[name] for name in FILLED]
        chosen = run.input(handler(self._suggested), run, filled, **QUIET)
        send(chosen.then, handler(self._cost), self.all_inputs, self.cost)
        for event in opened:
            event(self.refreshed_choices, None, [run, self._components["loras"]], **QUIET)
            touched = [run, self._components["prompts"], self._components["loras"]]
            begun = event(handler(self._first), touched, [run, *filled], **QUIET)
            send(begun.then, handler(self._cost), self.all_inputs, self.cost)
        run.change(handler(self._checkpoints), run, checkpoints, **QUIET)
        changes = [
            one.change for one in (*filled, *(self._components[name] for name in ("loras", "guidance", "steps")))
        ]
        send(partial(gr.on, changes), handler(self._cost), self.all_inputs, self.cost, trigger_mode="always_last")

    def refreshed_choices(self) -> list[Any]:
        """The runs and LoRAs there are now."""
        return [gr.update(choices=self._options(spec)) for spec in self.specs if spec.name in ("run", "loras")]

    def request(self, *values: Any) -> tuple[GridSettings, SampleSettings]:
        """The settings as the fields hold them, and what the samples begin with. Raises ConfigError."""
        *own, model, speed = values
        settings = self.parse(own)
        return settings, base_of(self.workspace, settings, model or "", speed or "exact")

    def _first(self, *touched: Any) -> list[Any]:
        """The suggestions of the newest run that has something to compare, in a form that nobody has changed."""
        name = "" if any(touched) else newest(self.workspace)
        return [gr.update(value=name), *self._suggested(name)] if name else [gr.skip()] * (1 + len(FILLED))

    def _suggested(self, name: str) -> list[Any]:
        """The suggestions of a run for its fields."""
        if not name:
            return [gr.skip()] * len(FILLED)
        found = suggested(self.workspace, name).model_dump(mode="json")
        updates = dict(zip([spec.name for spec in self.specs], self.write(found), strict=True))
        updates["checkpoints"] = self._checkpoints(name) | {"value": found["checkpoints"]}
        return [updates[one] for one in FILLED]

    def _checkpoints(self, name: str) -> Any:
        spec = next(spec for spec in self.specs if spec.name == "checkpoints")
        return gr.update(choices=self._options(spec, {"run": name}))

    def _cost(self, *values: Any) -> str:
        """The number of videos, and about how long they take."""
        try:
            return render.note(cost(self.workspace, *self.request(*values)))
        except ConfigError as error:
            return sentences(error, GridSettings)

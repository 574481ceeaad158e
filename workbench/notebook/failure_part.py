"""The card of a failed run in a notebook: what happened, what helps, a button for each next step.

Not covered: which card a run gets (runs.failures), what a button does (run_panel).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import ipywidgets as widgets

from workbench.notebook import run_rendering
from workbench.notebook.live import button
from workbench.runs.actions import Action
from workbench.runs.failures import Failure


class FailurePart:
    """Nothing until `show` gets a card."""

    def __init__(self, clicked: Callable[[Callable[[], object]], Callable[[object], None]]) -> None:
        """clicked: makes a click handler of an action, as `Panel.doing` does"""
        self._clicked = clicked
        self._card: Failure | None = None
        self.text = widgets.HTML()
        self.buttons = widgets.HBox([], layout=widgets.Layout(flex_flow="row wrap"))
        self.box = widgets.VBox([self.text, self.buttons])

    def show(self, card: Failure | None, press: Callable[[Failure, Action], object]) -> None:
        """Show a card, or none. press: what a click does."""
        if card == self._card:
            return
        self._card = card
        self.text.value = run_rendering.card_box(card) if card else ""
        made: list[widgets.Button] = []
        if card:
            for action in card.actions:
                each = button(action.label, action.label, style="" if made else "primary")
                each.on_click(self._clicked(partial(press, card, action)))
                made.append(each)
        self.buttons.children = tuple(made)

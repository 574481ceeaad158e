"""Components that follow the disk, and the listeners that change something there and then show it anew."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import gradio as gr

from workbench.ui.core.boundary import TICK, listed, on, tell, tick
from workbench.ui.core.form import Form
from workbench.ui.core.problems import Fields

Values = Mapping[Any, Any]
LATE_SECONDS = 10.0


class Seen:
    """The values that one open page has already, kept with its session: only what changed is sent again.

    A tick may end after the person chose something else: `late` says so, so that the old choice does not overwrite the
    new one.
    """

    def __init__(self) -> None:
        self._marks: dict[Any, int] = {}
        self._choice: tuple[str | None, float] = (None, 0.0)

    def choose(self, name: str | None, typed: Sequence[Any] = ()) -> None:
        """Another run or sample is open from now on: everything is sent again, but for what a person types in."""
        self._marks = {one: mark for one, mark in self._marks.items() if one in typed}
        self._choice = (name, time.monotonic() + LATE_SECONDS)

    def late(self, name: str | None) -> bool:
        """Whether a tick belongs to the choice before."""
        choice, until = self._choice
        return name != choice and time.monotonic() < until

    def would_change(self, names: Iterable[Any], values: Mapping[Any, Any]) -> bool:
        """Whether `changed` would send any of them."""
        return any(name in values and self._marks.get(name) != _mark(values[name]) for name in names)

    def changed(self, names: Iterable[Any], values: Mapping[Any, Any]) -> list[Any]:
        """The values of these names or components; those that the page has already are skipped.

        A value that is costly to make or to compare is given as (signature, function that makes it); a name without a
        value is skipped. When one cannot be made, none counts as sent.
        """
        outputs, marks = [], {}
        for name in names:
            if name not in values:
                outputs.append(gr.skip())
                continue
            value, mark = values[name], _mark(values[name])
            make = value[1] if isinstance(value, tuple) else None
            outputs.append(gr.skip() if self._marks.get(name) == mark else make() if make else value)
            marks[name] = mark
        self._marks |= marks
        return outputs


def _mark(value: Any) -> int:
    """The hash of a value, or of its signature where it has one."""
    return hash(repr(value[0] if isinstance(value, tuple) else value))


class LiveView:
    """The components of a tab that follow what is on the disk: at each tick of a timer, and at once after an action.

    Every output of a listener costs the browser time, changed or not. So a tick sends only the components of `quick`,
    which change all the time; the others are sent when one of them changed.
    """

    def __init__(
        self,
        components: Sequence[Any],
        read: Callable[..., Values],
        inputs: Sequence[Any],
        quick: Sequence[Any] = (),
        typed: Sequence[Any] = (),
    ) -> None:
        """read: called with the values of `inputs`; returns component -> value (see `Seen.changed` for costly ones)

        inputs: the first is the choice, a BrowserState as a rule: which run, dataset or grid is open
        typed: fields that are sent when what they hold of the disk changes, and never else: a button that is pressed
        beside them must not undo what a person typed
        """
        self.choice = inputs[0]
        self._components, self._quick = list(components), list(quick)
        self._typed = list(typed)
        self._slow = [component for component in components if component not in self._quick]
        self._read = read
        self._inputs = [*inputs, gr.State(Seen())]
        self._pulse = gr.State((0,))  # (time) or (time, new choice); a change sends everything that changed
        self._pulse.change(tick(self._pulsed), [*self._inputs, self._pulse], self._components, **TICK)

    def follow(self, timer: gr.Timer, *events: Any) -> None:
        """Read at each tick, and at these events."""
        timer.tick(tick(self._ticked), self._inputs, [*self._quick, self._pulse], **TICK)
        for event in events:
            event(tick(self._whole), self._inputs, self._components, **TICK)

    def act(
        self,
        events: Any,
        action: Callable[..., Any],
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        form: Form[Any] | Fields | None = None,
        **more: Any,
    ) -> Any:
        """Call `action(*inputs)` at an event, or at any of several, and then show everything anew.

        What it returns goes to `outputs`, as a list where there are several, or None where nothing was done. Is the
        first of them the choice, it is the new one. Without outputs a sentence that it returns is shown for a moment.
        form: as `Form.submit`; more: options of Gradio's event
        """
        chooses = bool(outputs) and outputs[0] is self.choice

        @functools.wraps(action)
        def listener(*arguments: Any) -> Any:
            done = action(*arguments)
            if done is None and len(outputs) > 1:
                return gr.skip()
            if not outputs and isinstance(done, str):
                tell(done)
            values = listed(done, len(outputs))
            pulse = (time.monotonic_ns(), *values[:chooses])
            return [*values, pulse] if values else pulse

        connect = form.submit if form else on
        return connect(events, listener, inputs, [*outputs, self._pulse], **more)

    def _values(self, arguments: Sequence[Any]) -> tuple[Values | None, Seen]:
        *inputs, seen = arguments
        return (None if seen.late(inputs[0]) else self._read(*inputs)), seen

    def _ticked(self, *arguments: Any) -> Any:
        values, seen = self._values(arguments)
        if values is None:
            return gr.skip()
        pulse = (time.monotonic_ns(),) if seen.would_change(self._slow, values) else gr.skip()
        return [*seen.changed(self._quick, values), pulse] if self._quick else pulse

    def _pulsed(self, *arguments: Any) -> Any:
        *others, pulse = arguments
        if chosen := pulse[1:]:
            others[-1].choose(*chosen, self._typed)
        return self._whole(*others)

    def _whole(self, *arguments: Any) -> Any:
        values, seen = self._values(arguments)
        if values is None:
            return gr.skip()
        updates = seen.changed(self._components, values)
        return updates if len(updates) > 1 else updates[0]


def visible(on: bool) -> tuple[bool, Callable[[], Any]]:
    """A value of a view: a component that is visible or not."""
    return on, lambda: gr.update(visible=on)


def button(label: str) -> tuple[str, Callable[[], Any]]:
    """A value of a view: a button with a label, hidden without one."""
    return label, lambda: gr.update(visible=bool(label), value=label)


def remembered(name: str, start: Any = None) -> gr.BrowserState:
    """What this browser remembers over reloads and restarts of the server: fixed keys, so that it is found again."""
    return gr.BrowserState(start, storage_key=f"workbench-{name}", secret="workbench")


def unseen_first(page: gr.Blocks) -> None:
    """Put timers and states before all that is seen.

    For each input and output of a listener the browser goes through the page's components in their order until it finds
    it, at every tick. Behind the tabs it went through a thousand components each time.
    """
    page.children.sort(key=lambda child: not isinstance(child, gr.State | gr.BrowserState | gr.Timer))

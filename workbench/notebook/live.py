"""The base of every panel: a box of widgets that shows itself, and a ticker that keeps it up to date.

A thread refreshes a panel, not an asyncio task: tasks stand still while a cell runs (waiting for a run, say), a thread
does not. Works with ipywidgets 7 (Colab) and 8.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets
from IPython.display import HTML, display

from workbench.display import charts
from workbench.display.inline_html import note
from workbench.errors import WorkbenchError

SECONDS = 1.0


class Ticker:
    """Calls a function every second from a thread until it returns False, or until it is stopped."""

    def __init__(self, tick: Callable[[], bool], seconds: float = SECONDS) -> None:
        self._tick = tick
        self._seconds = seconds
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin, or begin again."""
        # A thread of its own each time: the old one may be about to end, and asking whether it does is a race.
        self._over.set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._over,), daemon=True, name="workbench-panel")
        self._thread.start()

    def stop(self) -> None:
        """Return once no further tick can come."""
        self._over.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=10 * self._seconds)

    def _run(self, over: threading.Event) -> None:
        while self._tick() and not over.wait(self._seconds):
            pass


class Panel:
    """A box of widgets. The last line of a cell shows it; `close` ends its updates and removes it from the page.

    A panel over files says in `_show` how they are; `watch` shows them now and as long as there is more to come.
    """

    def __init__(self, children: Sequence[widgets.Widget] = (), seconds: float = SECONDS) -> None:
        """seconds: between two looks at the files"""
        self.box = widgets.VBox(list(children))
        self.message = widgets.HTML()
        self.ticker = Ticker(self._tick, seconds)
        # Ticks come from a thread, clicks from the kernel: one at a time.
        self._lock = threading.RLock()
        self._seen: object = None

    def _ipython_display_(self) -> None:
        # A widget's HTML runs no script; that of a cell's output does.
        display(HTML(f"<script>{charts.script()}</script>"))
        display(self.box)

    def close(self) -> None:
        """End the panel. What it shows goes on."""
        self.ticker.stop()
        self.box.close()

    def watch(self) -> None:
        """Show the files as they are now, and again while there is more to come."""
        if self._tick():
            self.ticker.start()

    def refresh(self) -> bool:
        """Show the files as they are now. True while there may be more to come."""
        return self._guarded(self._show)

    def _show(self) -> bool:
        return False

    def _version(self) -> object:
        """Changes when there is something new to show; None: show it at each tick."""
        return None

    def _tick(self) -> bool:
        return self._guarded(self._show_changes)

    def _show_changes(self) -> bool:
        version = self._version()
        if version is not None and version == self._seen:
            return True
        self._seen = version
        return self._show()

    def _guarded(self, show: Callable[[], bool]) -> bool:
        with self._lock:
            try:
                return show()
            except (WorkbenchError, OSError) as error:
                # A file may be half way between two names; one that stays unreadable is named by the sentence.
                self.say(str(error), "error")
                return True

    def say(self, text: str, kind: str = "plain") -> None:
        """Show a sentence in the panel's own line. kind: plain, error or good"""
        self.message.value = note(text, kind) if text else ""

    def click_handler(self, action: Callable[[], object]) -> Callable[[Any], None]:
        """Calls the action; an error of ours becomes a sentence in the panel, not a traceback in a log."""

        def handler(_: Any) -> None:
            self.say("")
            try:
                action()
            except WorkbenchError as error:
                self.say(str(error), "error")

        return handler

    def add_button(self, text: str, help: str, action: Callable[[], object], icon: str = "", style: str = "") -> Any:
        """A button with a tooltip that calls the action. style: "", primary or danger"""
        made = widgets.Button(
            description=text, tooltip=help, icon=icon, button_style=style, layout=widgets.Layout(width="auto")
        )
        made.on_click(self.click_handler(action))
        return made


def folded(title: str, child: widgets.Widget, opened: bool = False) -> widgets.Accordion:
    """A part of a panel that opens on a click."""
    accordion = widgets.Accordion(children=[child], selected_index=0 if opened else None)
    accordion.set_title(0, title)  # ipywidgets 7 has no `titles`
    return accordion


def visible(widget: widgets.Widget, wanted: bool) -> None:
    """Show a widget, or take it off the page."""
    widget.layout.display = "" if wanted else "none"


def wrapped(*children: widgets.Widget) -> widgets.HBox:
    """Widgets side by side, wrapping where the page ends."""
    return widgets.HBox(children, layout=widgets.Layout(flex_flow="row wrap", align_items="center"))


def progress_bar() -> widgets.FloatProgress:
    """A bar from 0 to 1."""
    return widgets.FloatProgress(min=0.0, max=1.0, layout=widgets.Layout(width="100%", max_width="760px"))

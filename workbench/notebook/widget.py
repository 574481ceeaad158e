"""A widget that shows elements. The library in this kernel answers their calls and pushes what they watch.

Pushes come from a thread, so views also change while a cell runs. Most kernels answer calls only between cells, so when
a cell starts a run and waits for it, `expect` pushes the answers that the view will need. JupyterLab sends messages to
a thread of ipykernel 7 (a subshell), where a cell may overtake them: `catch_up` waits for them.

Messages from the frontend carry `view`, the number of the view, and `number`, which the answer repeats:

    {"call": "noun/verb", "values": {...}}           {"file": path, "version": known}    {"upload": name, "path": ""}
    {"watch": '["noun/verb",{...}]'}                 {"unwatch": the same}               {"gone": true}
    {"state": {"address" or "drafts": ...}}          {"asked": number}, the answer to the same

Answers hold JSON as `text`: {"value"} or {"problem", "problems"}. A file comes in parts, all but the last with `more`.
Watched values go to all views as {"key", "text"}, and what one view has changed as {"state", "by": its number}.
"""

from __future__ import annotations

import json
import mimetypes
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anywidget
import traitlets

from workbench.display import elements
from workbench.errors import WorkbenchError
from workbench.operations.registry import REGISTRY, operations
from workbench.operations.settings import FORMS
from workbench.operations.watched import SECONDS, Watched, named, watched
from workbench.settings import parse
from workbench.workspace import Workspace, finite

PART = 250_000  # bytes of a file in one message
PART_SECONDS = 0.3  # between parts; Jupyter drops output faster than a megabyte per second
CATCH_UP_SECONDS = 5.0  # a view that has not answered by then is gone
POOL = ThreadPoolExecutor(4, thread_name_prefix="workbench-widget")


def address(*names: str) -> str:
    """Return the address of an object, such as "#/train/hiker%202"."""
    return "#/" + "/".join(quote(name, safe="") for name in names)


class View(anywidget.AnyWidget):
    """The elements at an address. `drafts` holds what a person types, by the form's name."""

    _esm = elements.module()
    html: Callable[[], str] = str  # shown without a kernel
    # The frontend knows what it sent. An echo would undo what was typed in the meantime.
    address = traitlets.Unicode("#/").tag(sync=True, echo_update=False)
    drafts = traitlets.Dict().tag(sync=True, echo_update=False)
    label = traitlets.Unicode("Video LoRA Workbench").tag(sync=True)
    height = traitlets.Int(820).tag(sync=True)

    def __init__(
        self, workspace: Workspace, shown: str, form: str = "", values: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        """Show an address.

        Args:
            workspace: The workspace.
            shown: The address.
            form: The form at that address, as `settings/show` names it.
            values: Initial values that replace the form's defaults.
        """
        operations()  # load the modules here, so that threads do not wait for one another to do it
        self.workspace, self.form_name = workspace, form
        self.watched: dict[str, Watched] = {}
        self.sent: dict[str, str] = {}
        self._sending = threading.Lock()
        self._heard_on: int | None = None  # thread of the last message
        self._asked, self._behind, self._caught_up = 0, set[str](), threading.Event()
        self._views = set[str]()  # that have sent messages and were not closed
        super().__init__(address=shown, **more)
        if values:
            self.set(**values)
        self.on_msg(self._heard)

    @property
    def values(self) -> dict[str, Any]:
        """The form's values that differ from their defaults, as typed."""
        self.catch_up()
        return dict(self.drafts.get(self.form_name, {}).get("values", {}))

    def set(self, **values: Any) -> None:
        """Fill in some settings of the form. Raises ConfigError for an unknown setting."""
        kind = FORMS[self.form_name]
        if unknown := {name: value for name, value in values.items() if name not in kind.model_fields}:
            parse(kind, unknown)
        plain = json.loads(json.dumps({**self.values, **values}, default=str))
        kept = self.drafts.get(self.form_name, {})
        self.drafts = {**self.drafts, self.form_name: {**kept, "values": plain}}

    def catch_up(self) -> None:
        """Wait until everything typed before the current cell started is in `drafts` and `address`."""
        if self._heard_on in (None, threading.get_ident()) or not self._views:
            return
        self._asked += 1
        self._behind = set(self._views)
        self._caught_up.clear()
        self.send({"asked": self._asked})
        if not self._caught_up.wait(CATCH_UP_SECONDS):
            self._views -= self._behind

    def expect(self, *asked: tuple[str, Mapping[str, Any]]) -> None:
        """Push the answers to these calls from now on, because views cannot call while a cell runs."""
        for name, values in asked:
            if tuple(name.split("/")) in REGISTRY:
                self._watch(json.dumps([name, values], separators=(",", ":"), ensure_ascii=False))

    def _repr_mimebundle_(self, **more: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**more)
        if bundle is not None and (html := self.html()):
            bundle[0]["text/html"] = html
        return bundle

    def close(self) -> None:
        """Close the widget. Jobs continue."""
        getattr(self, "watched", {}).clear()  # missing if __init__ raised
        super().close()

    # ---- messages from the frontend

    def _heard(self, _: Any, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        self._heard_on = threading.get_ident()
        self._views.add(message["view"])
        if "state" in message:
            self.set_state(message["state"])
            self.send({"state": message["state"], "by": message["view"]})
        elif message.get("asked") == self._asked:
            self._behind.discard(message["view"])
            if not self._behind:
                self._caught_up.set()
        elif "gone" in message:
            self._views.discard(message["view"])
        elif "watch" in message:
            self._watch(message["watch"])
        elif "unwatch" in message:
            self.watched.pop(message["unwatch"], None)
        elif "number" in message:
            POOL.submit(self._answer, message, buffers)

    def _watch(self, key: str) -> None:
        name, values = json.loads(key)
        self.sent.pop(key, None)
        try:
            self.watched[key] = self.watched.get(key) or watched(self.workspace, name, values)
            PUSHES.follow(self)
        except WorkbenchError as error:
            self.send({"key": key, "text": json.dumps({"problem": str(error)})})

    def push(self) -> None:
        """Send the watched values that have changed."""
        for key, one in list(self.watched.items()):
            if (text := one.text()) != self.sent.get(key):
                self.sent[key] = text
                self.send({"key": key, "text": f"{{{text}}}"})

    def _answer(self, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        head = {"view": message["view"], "number": message["number"]}
        value: Any
        parts: Iterator[bytes] = iter(())
        try:
            if "file" in message:  # type and version, and the content unless the frontend has this version
                path = Path(message["file"])
                stat, kind = path.stat(), mimetypes.guess_type(path.name)[0]
                value = {"version": f"{stat.st_mtime_ns} {stat.st_size}", "type": kind or "application/octet-stream"}
                data = b"" if message["version"] == value["version"] else path.read_bytes()
                parts = (data[at : at + PART] for at in range(0, len(data), PART))
            elif "upload" in message:  # a part of a file; the path is "" for the first part
                name = Path(message["upload"]).name
                path = Path(message["path"] or Path(tempfile.mkdtemp(prefix="workbench-upload-")) / name)
                with path.open("ab") as file:
                    file.writelines(buffers)
                value = str(path)
            else:
                one = named(message["call"])
                value = one.plain(one(self.workspace, message["values"]))
                if one.changes:
                    PUSHES.changed()
            with self._sending:
                for part in parts:
                    self.send({**head, "more": True}, [part])
                    time.sleep(PART_SECONDS if len(part) == PART else 0)
                self.send({**head, "text": json.dumps({"value": finite(value)})})
        except (WorkbenchError, OSError) as error:
            problem = {"problem": str(error), "problems": getattr(error, "problems", {})}
            self.send({**head, "text": json.dumps(problem)})


class Pushes:
    """The thread that pushes changes to all views, while any view watches something."""

    def __init__(self) -> None:
        self._views: weakref.WeakSet[View] = weakref.WeakSet()
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def follow(self, view: View) -> None:
        """Push the values that a view watches."""
        with self._lock:
            self._views.add(view)
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="workbench-pushes")
                self._thread.start()

    def changed(self) -> None:
        """Read all values again after an operation changed something."""
        for view in list(self._views):
            for one in list(view.watched.values()):
                one.forget()
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait(SECONDS)
            self._wake.clear()
            with self._lock:
                views = [view for view in self._views if view.watched]
                if not views:
                    self._thread = None
                    return
            for view in views:
                view.push()


PUSHES = Pushes()

"""A widget that shows elements: their calls are answered by the library in this kernel, and what they watch is pushed.

Pushes come from a thread, so that what is shown changes while a cell runs. What the page asks for, a kernel answers
between cells: `expect` pushes what will be asked for when a cell has started a run and waits for it.

Messages of the frontend carry `view`, which of the model's views it is, and `number`, which its answer repeats:

    {"call": "noun/verb", "values": {...}}           {"file": path, "version": as known}    {"upload": name, "path": ""}
    {"watch": '["noun/verb",{...}]'}                 {"unwatch": the same}                  {"gone": true}

Answers hold JSON as `text`: {"value"} or {"problem", "problems"}; a file comes in parts, of which all but the last say
`more`. What is watched comes as {"key", "text"}, to all views.
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
PART_SECONDS = 0.3  # between two: Jupyter drops what a kernel sends faster than a megabyte a second
POOL = ThreadPoolExecutor(4, thread_name_prefix="workbench-widget")


def address(*names: str) -> str:
    """Return the address of an object, such as "#/train/hiker%202"."""
    return "#/" + "/".join(quote(name, safe="") for name in names)


class View(anywidget.AnyWidget):
    """The elements at an address. What a person types into a form is in `drafts`, by the form's name."""

    _esm = elements.module()
    html: Callable[[], str] = str  # what is shown where there is no kernel
    address = traitlets.Unicode("#/").tag(sync=True)
    drafts = traitlets.Dict().tag(sync=True)
    label = traitlets.Unicode("Video LoRA Workbench").tag(sync=True)
    height = traitlets.Int(820).tag(sync=True)

    def __init__(
        self, workspace: Workspace, shown: str, form: str = "", values: Mapping[str, Any] | None = None, **more: Any
    ) -> None:
        """Show an address.

        Args:
            form: The form that is filled in there, as `settings/show` names it.
            values: Its values at first, in place of the defaults.
        """
        operations()  # loaded here: threads that load the same modules at once would wait for one another
        self.workspace, self.form_name = workspace, form
        self.watched: dict[str, Watched] = {}
        self.sent: dict[str, str] = {}
        self._sending = threading.Lock()
        super().__init__(address=shown, **more)
        if values:
            self.set(**values)
        self.on_msg(self._heard)

    @property
    def values(self) -> dict[str, Any]:
        """The form's values that differ from their defaults, as they are typed."""
        return dict(self.drafts.get(self.form_name, {}).get("values", {}))

    def set(self, **values: Any) -> None:
        """Fill in settings of the form; others stay as they are. Raises ConfigError for a name that is no setting."""
        kind = FORMS[self.form_name]
        if unknown := {name: value for name, value in values.items() if name not in kind.model_fields}:
            parse(kind, unknown)
        plain = json.loads(json.dumps({**self.values, **values}, default=str))
        kept = self.drafts.get(self.form_name, {})
        self.drafts = {**self.drafts, self.form_name: {**kept, "values": plain}}

    def expect(self, *asked: tuple[str, Mapping[str, Any]]) -> None:
        """Push these answers from now on: while a cell runs nothing can be asked for."""
        for name, values in asked:
            if tuple(name.split("/")) in REGISTRY:
                self._watch(json.dumps([name, values], separators=(",", ":"), ensure_ascii=False))

    def _repr_mimebundle_(self, **more: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        bundle = super()._repr_mimebundle_(**more)
        if bundle is not None and (html := self.html()):
            bundle[0]["text/html"] = html
        return bundle

    def close(self) -> None:
        """End the widget. What it shows goes on."""
        getattr(self, "watched", {}).clear()  # none where it was refused while it was made
        super().close()

    # ---- what the frontend asks for

    def _heard(self, _: Any, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        if "watch" in message:
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
        """Send what has changed of all that is watched."""
        for key, one in list(self.watched.items()):
            if (text := one.text()) != self.sent.get(key):
                self.sent[key] = text
                self.send({"key": key, "text": f"{{{text}}}"})

    def _answer(self, message: dict[str, Any], buffers: Sequence[Any]) -> None:
        head = {"view": message["view"], "number": message["number"]}
        value: Any
        parts: Iterator[bytes] = iter(())
        try:
            if "file" in message:  # its type and version, and its parts where the frontend has another version
                path = Path(message["file"])
                stat, kind = path.stat(), mimetypes.guess_type(path.name)[0]
                value = {"version": f"{stat.st_mtime_ns} {stat.st_size}", "type": kind or "application/octet-stream"}
                data = b"" if message["version"] == value["version"] else path.read_bytes()
                parts = (data[at : at + PART] for at in range(0, len(data), PART))
            elif "upload" in message:  # a part to append to a file; its path is "" for the first one
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
    """The thread that sends every view what has changed, as long as one watches something."""

    def __init__(self) -> None:
        self._views: weakref.WeakSet[View] = weakref.WeakSet()
        self._wake, self._lock = threading.Event(), threading.Lock()
        self._thread: threading.Thread | None = None

    def follow(self, view: View) -> None:
        """Push what this view watches."""
        with self._lock:
            self._views.add(view)
            self._wake.set()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True, name="workbench-pushes")
                self._thread.start()

    def changed(self) -> None:
        """Read all anew: something was done."""
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

"""A dataset in a notebook: look at files, import them with a result for each, go through the clips and their captions.

The import is a job of its own, as in the web app; what another face changes shows up within a second or two. Not
covered: the clips' cards (clip_cards), the other tasks (task_panel, check_panel).
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.sources.survey import survey
from workbench.errors import ConfigError, WorkbenchError
from workbench.notebook import rendering
from workbench.notebook.caption_tools import CaptionTools
from workbench.notebook.clip_cards import ClipCards
from workbench.notebook.history_part import HistoryPart
from workbench.notebook.live import Panel, Ticker, button, folded
from workbench.notebook.task_panel import TaskLine
from workbench.runs.settings import TrainSettings
from workbench.settings import parse, specs
from workbench.workspace import Workspace, writing

UPLOADS = "uploads"
LINES = 24  # of what a look before the import says
WIDE = "300px"


class DatasetPanel(Panel):
    """Choose or name a dataset, import into it, and go through its clips."""

    def __init__(self, workspace: Workspace, name: str | None = None, settings: TrainSettings | None = None) -> None:
        """settings: whose frame plan is shown under each clip; else what the chosen model was made for."""
        self.workspace = workspace
        # Ticks come from a thread, clicks from the kernel: one at a time.
        self._lock = threading.RLock()
        self._word = ("", "")  # the dataset and its trigger word, as they are shown
        self._make_choice(name)
        self._make_import()
        self.summary, self.results = widgets.HTML(), widgets.HTML()
        self.undo_button = button("Undo", "Take back the newest change", "undo")
        self.redo_button = button("Do again", "Do again what was undone last", "repeat")
        self.cards = ClipCards(settings, self.refresh)
        self.tools = CaptionTools(lambda: self._open().folder, self.refresh, lambda: self.cards.marked)
        self.tools_fold = folded("Change many captions", self.tools.box)
        self.past = HistoryPart(self._open, self.refresh)
        self.past_fold = folded("What was done", self.past.box)
        super().__init__([])
        self.undo_button.on_click(self.doing(lambda: self._went("Undone", self._open().undo().what)))
        self.redo_button.on_click(self.doing(lambda: self._went("Done again", self._open().redo().what)))
        self.box.children = (
            widgets.HBox([_label("Dataset"), self.name, self.trigger]),
            widgets.HBox([_label("Videos"), widgets.VBox([self.paths, self.upload]), self.import_buttons]),
            self.more_fold, self.found, self.line.box, self.said, self.summary,
            widgets.HBox([self.undo_button, self.redo_button]),
            folded("What became of the files", self.results), self.past_fold, self.tools_fold, self.cards.box,
        )  # fmt: skip
        self._seen: tuple[Any, ...] = ()
        self._alive = False
        self.ticker = Ticker(self._look_again)
        self._look_again()
        self.ticker.start()

    def _make_choice(self, name: str | None) -> None:
        known = [dataset.name for dataset in Dataset.all(self.workspace)]
        self.name = widgets.Combobox(
            value=name or "", options=known, placeholder="one of yours, or a new name", ensure_option=False,
            layout=widgets.Layout(width=WIDE),
        )  # fmt: skip
        self.trigger = widgets.Text(
            placeholder="trigger word, if any", continuous_update=False, layout=widgets.Layout(width="200px")
        )
        self.name.observe(lambda _: self._opened(), names="value")
        self.trigger.observe(lambda _: self.doing(self._save_trigger)(None), names="value")

    def _make_import(self) -> None:
        wide = widgets.Layout(width=WIDE)
        known = {spec.name: spec for spec in specs(ImportSettings)}
        self.paths = widgets.Textarea(placeholder="video files, folders or archives, one a line", rows=2, layout=wide)
        self.upload = widgets.FileUpload(multiple=True, description="or choose small files", layout=wide)
        self.look_button = button("Look first", "Say what is there, before anything is decoded", "search", "", "110px")
        self.import_button = button("Import", "Take these videos into the dataset", "download", "primary", "110px")
        self.look_button.on_click(self.doing(self._look_clicked))
        self.import_button.on_click(self.doing(self._import_clicked))
        self.import_buttons = widgets.VBox([self.look_button, self.import_button])
        self.hub = widgets.Text(placeholder="owner/name", layout=wide)
        self.layout = widgets.Dropdown(options=known["layout"].choices, value="auto", layout=wide)
        self.columns = {
            name: widgets.Text(placeholder=usual, layout=wide)
            for name, usual in (("video_column", "file_name"), ("caption_column", "text"))
        }
        self.longest = widgets.Text(placeholder="as it is", layout=wide)
        fields = (
            ("hub_dataset", self.hub), ("layout", self.layout), *self.columns.items(), ("longest_side", self.longest)
        )  # fmt: skip
        rows = [
            widgets.HBox([_label(known[name].title), field, widgets.HTML(rendering.note(known[name].help))])
            for name, field in fields
        ]
        self.more_fold = folded("More", widgets.VBox(rows))
        self.found = widgets.HTML()
        self.line = TaskLine("import", lambda: self._open().task("import"), lambda: self._watch())

    # ---- commands

    @property
    def dataset(self) -> Dataset | None:
        """The dataset that is shown; None while its name is new."""
        try:
            return self._open()
        except ConfigError:
            return None

    def _open(self) -> Dataset:
        """The dataset that is shown. Raises ConfigError while its name is new."""
        return Dataset.open(self.workspace, self.name.value)

    @property
    def _reading(self) -> dict[str, str]:
        """The settings that say how captions lie beside the videos."""
        return {"layout": self.layout.value, **{name: field.value for name, field in self.columns.items()}}

    def look(self, paths: Iterable[Path | str]) -> list[str]:
        """What is in files, folders and archives, shown and returned; nothing is decoded.

        Raises ConfigError, DataError when nothing there has the layout that is set.
        """
        settings = parse(ImportSettings, self._reading)
        lines = survey(_existing(paths), settings.wanted_layout, settings.columns).sentences or ["nothing to import"]
        more = [f"... and {len(lines) - LINES} more"] if len(lines) > LINES else []
        self.found.value = "".join(map(rendering.note, [*lines[:LINES], *more]))
        return lines

    def import_files(self, paths: Iterable[Path | str], name: str | None = None) -> Dataset:
        """Start taking videos and folders of them into the dataset, as the fields under More say.

        Raises ConfigError, CannotWrite.
        """
        hub, longest = self.hub.value.strip(), self.longest.value.strip()
        given = _existing(paths, needed=not hub)
        side = int(longest) if longest.isdecimal() else longest or None
        wanted = {**self._reading, "hub_dataset": hub, "longest_side": side}
        checked = parse(ImportSettings, wanted)
        title = name or self.name.value.strip() or Path(given[0] if given else hub).stem
        dataset = Dataset.ensure(self.workspace, title, self.trigger.value)
        self.name.value = dataset.name
        dataset.start_import(given, **checked.model_dump(include=set(wanted)))
        self._watch()
        return dataset

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait until the import is over or the time is up; the panel stays live. Raises ConfigError."""
        status = self._open().task("import").wait(seconds)
        self.refresh()
        return status

    def close(self) -> None:
        self.ticker.stop()
        super().close()

    def _watch(self) -> None:
        self._alive = self.refresh()
        if not self.ticker.running:
            self.ticker.start()

    @property
    def _typed(self) -> list[str]:
        return [line.strip() for line in self.paths.value.splitlines() if line.strip()]

    def _look_clicked(self) -> None:
        self.look(self._typed)

    def _import_clicked(self) -> None:
        given = self._typed
        uploads = _uploads(self.upload.value)
        if uploads:
            dataset = Dataset.ensure(self.workspace, self.name.value.strip() or "clips", self.trigger.value)
            if dataset.task("import").status.state.alive:
                raise ConfigError("an import is running already: wait until it is done, or stop it")
            self.name.value = dataset.name
            given.append(str(_keep(dataset, uploads)))
        self.import_files(given)
        self.found.value = ""

    def _save_trigger(self) -> None:
        if self.dataset and self.trigger.value != self.dataset.info.trigger_word:
            self.dataset.set_trigger_word(self.trigger.value)
            self.refresh()

    def _went(self, verb: str, what: str) -> None:
        # The field must not write the old word back.
        self.trigger.value = self._open().info.trigger_word
        self.refresh()
        self.say(f"{verb}: {what}.")

    # ---- what is shown

    def _opened(self) -> None:
        self._alive = self.refresh()

    def _look_again(self) -> bool:
        """Show what changed on disk, whoever changed it; costs a few looks when nothing did. The ticker goes on."""
        with self._lock:
            names = tuple(dataset.name for dataset in Dataset.all(self.workspace))
            dataset = self.dataset
            mark = (names, *dataset.version, *dataset.task("import").version) if dataset else (names,)
            if self._alive or mark != self._seen:
                self._seen = mark
                self.name.options = names
                self._alive = self.refresh()
        return True

    def refresh(self) -> bool:
        """Show what is on disk. True while an import goes on."""
        with self._lock:
            try:
                dataset = self.dataset
                return self._show(dataset) if dataset else self._show_nothing()
            except (WorkbenchError, OSError) as error:
                self.say(str(error), "error")
                return False

    def _show_nothing(self) -> bool:
        self.summary.value = self.results.value = ""
        self.line.hide()
        self.tools_fold.layout.display = self.past_fold.layout.display = "none"
        self._word = ("", "")
        self.undo_button.layout.display = self.redo_button.layout.display = "none"
        self.cards.show(None)
        return False

    def _show(self, dataset: Dataset) -> bool:
        problems = dataset.task("import").result.get("problems", ())[:3]
        alive = self.line.refresh(" ".join(["The import is done.", *problems]))
        self.import_button.disabled = alive
        self.summary.value = rendering.note(dataset.summary.sentence)
        results = sorted(dataset.import_results, key=lambda result: result.usable)
        self.results.value = "".join(
            rendering.note(result.sentence, "plain" if result.usable else "error") for result in results
        )
        word = (dataset.name, dataset.info.trigger_word)
        if word != self._word:  # another dataset, or somebody else wrote it
            self._word = word
            self.trigger.value = dataset.info.trigger_word
        for each, verb, standing in (
            (self.undo_button, "Undo", dataset.undoable), (self.redo_button, "Do again", dataset.redoable)
        ):  # fmt: skip
            each.layout.display = "" if standing else "none"
            each.description = f"{verb}: {standing[0].what[:60]}" if standing else verb
        self.tools_fold.layout.display = "" if dataset.clips else "none"
        self.past_fold.layout.display = ""
        self.past.show(dataset)
        self.cards.show(dataset)
        return alive


def dataset_panel(workspace: Workspace, name: str | None = None, settings: TrainSettings | None = None) -> DatasetPanel:
    """Import, look at and caption a dataset: one by name, or a new one."""
    return DatasetPanel(workspace, name, settings)


def _existing(paths: Iterable[Path | str], needed: bool = True) -> list[str]:
    """The paths, when all of them are there. Raises ConfigError; also without any when one is needed."""
    given = [os.path.abspath(os.path.expanduser(str(path))) for path in paths]
    missing = [str(path) for path in given if not os.path.exists(path)]
    if missing or (needed and not given):
        what = f"there is no {missing[0]!r}" if missing else "no videos are named"
        raise ConfigError(f"{what}: give video files, folders of them or archives, one a line")
    return given


def _label(text: str) -> widgets.Widget:
    return widgets.HTML(rendering.escaped(text), layout=widgets.Layout(width="120px"))


# ---- uploads --------------------------------------------------------------------------------------------------------


def _uploads(value: Any) -> list[tuple[str, bytes]]:
    """(name, content) of the chosen files; ipywidgets 7 and 8 give them differently."""
    if isinstance(value, dict):
        return [(name, bytes(item["content"])) for name, item in value.items()]
    return [(item["name"], bytes(item["content"])) for item in value]


def _keep(dataset: Dataset, uploads: Sequence[tuple[str, bytes]]) -> Path:
    """Put uploaded files where the import job finds them; their names may not lead elsewhere. Raises CannotWrite."""
    inbox = dataset.task("import").folder / UPLOADS
    shutil.rmtree(inbox, ignore_errors=True)  # of the last import, which is over
    for name, content in uploads:
        path = inbox / (Path(name.replace("\\", "/")).name.lstrip(".") or "upload.mp4")
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    return inbox

"""A dataset in a notebook: import files with a verdict on each, look at the clips, write their captions, see the plan.

The import is a job of its own, as in the web app. Not covered: splitting, automatic captions (dataset_builder).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.clips import Clip
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError, WorkbenchError
from workbench.families import find_model, models
from workbench.frame_plan import Shape, plan, shape_for
from workbench.notebook import drawing
from workbench.notebook.live import Panel, Ticker, button, folded
from workbench.trainer.settings import TrainSettings
from workbench.workspace import Workspace, writing

PAGE = 10
UPLOADS = "uploads"
PLAYED = 600_000  # bytes; larger clips are shown as a picture until someone wants to see them move


class DatasetPanel(Panel):
    """Choose or name a dataset, import into it, and go through its clips."""

    def __init__(self, workspace: Workspace, name: str | None = None, settings: TrainSettings | None = None) -> None:
        """settings: whose frame plan is shown under each clip; else what the chosen model was made for."""
        self.workspace = workspace
        self._settings = settings
        self._page = 0
        self._cards: list[Clip] = []
        self._make_fields(name)
        self._make_clips()
        into = widgets.HBox([_label("Dataset"), self.name, self.trigger])
        take = widgets.HBox([_label("Videos"), widgets.VBox([self.paths, self.upload]), self.import_button])
        parts = [into, take, self.bar]
        super().__init__(parts)
        self.box.children = (*parts, self.said, self.summary, self.verdicts_fold, self.plan_row, self.grid, self.pager)
        self.ticker = Ticker(self.refresh)
        if self.refresh():
            self.ticker.start()

    def _make_fields(self, name: str | None) -> None:
        wide = widgets.Layout(width="300px")
        known = [dataset.name for dataset in Dataset.all(self.workspace)]
        self.name = widgets.Combobox(
            value=name or "", options=known, placeholder="one of yours, or a new name", ensure_option=False, layout=wide
        )
        self.trigger = widgets.Text(
            placeholder="trigger word, if any", continuous_update=False, layout=widgets.Layout(width="200px")
        )
        self.paths = widgets.Textarea(placeholder="video files or folders, one a line", rows=2, layout=wide)
        self.upload = widgets.FileUpload(multiple=True, description="or choose small files", layout=wide)
        self.import_button = button("Import", "Take these videos into the dataset", "download", "primary", "110px")
        self.bar = widgets.FloatProgress(min=0.0, max=1.0, layout=widgets.Layout(width="100%", max_width="720px"))
        self.import_button.on_click(self.doing(self._import_clicked))
        self.name.observe(lambda _: self._opened(), names="value")
        self.trigger.observe(lambda _: self.doing(self._save_trigger)(None), names="value")

    def _make_clips(self) -> None:
        self.summary, self.verdicts = widgets.HTML(), widgets.HTML()
        self.verdicts_fold = folded("What became of the files", self.verdicts)
        chosen = self._settings.model if self._settings else models()[0].id
        self.model = widgets.Dropdown(
            options=sorted({chosen, *(model.id for model in models())}),
            value=chosen,
            layout=widgets.Layout(width="300px"),
        )
        self.model.observe(lambda _: self._show_page(), names="value")
        self.plan_row = widgets.HBox([_label("Frame plan for"), self.model])
        self.grid = widgets.HBox([], layout=widgets.Layout(flex_flow="row wrap"))
        earlier, later = button("", "Earlier clips", "arrow-left"), button("", "Later clips", "arrow-right")
        self.earlier, self.later, self.place = earlier, later, widgets.HTML()
        earlier.on_click(lambda _: self._turn(-1))
        later.on_click(lambda _: self._turn(1))
        self.pager = widgets.HBox([earlier, self.place, later])

    # ---- commands

    @property
    def dataset(self) -> Dataset | None:
        """The dataset that is shown; None while its name is new."""
        try:
            return Dataset.open(self.workspace, self.name.value)
        except ConfigError:
            return None

    def import_files(self, paths: Iterable[Path | str], name: str | None = None) -> Dataset:
        """Start taking videos and folders of them into the dataset. Raises ConfigError, CannotWrite."""
        given = [str(path) for path in paths]
        missing = [path for path in given if not os.path.exists(os.path.expanduser(path))]
        if missing or not given:
            what = f"there is no {missing[0]!r}" if missing else "no videos are named"
            raise ConfigError(f"{what}: give video files or folders of them, one a line")
        title = name or self.name.value.strip() or Path(given[0]).stem
        dataset = Dataset.ensure(self.workspace, title, self.trigger.value)
        self.name.value = dataset.name
        dataset.start_import(given)
        self.refresh()
        self.ticker.start()
        return dataset

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait until the import is over or the time is up; the panel stays live. Raises ConfigError."""
        dataset = Dataset.open(self.workspace, self.name.value)
        status = dataset.task("import").wait(seconds)
        self.refresh()
        return status

    def close(self) -> None:
        self.ticker.stop()
        super().close()

    def _import_clicked(self) -> None:
        given = [line.strip() for line in self.paths.value.splitlines() if line.strip()]
        uploads = _uploads(self.upload.value)
        if uploads:
            dataset = Dataset.ensure(self.workspace, self.name.value.strip() or "clips", self.trigger.value)
            self.name.value = dataset.name
            given.append(str(_keep(dataset, uploads)))
        self.import_files(given)

    def _save_trigger(self) -> None:
        if self.dataset and self.trigger.value != self.dataset.info.trigger_word:
            self.dataset.set_trigger_word(self.trigger.value)
            self._show_page()

    # ---- what is shown

    def _opened(self) -> None:
        self._page = 0
        if self.refresh():
            self.ticker.start()

    def refresh(self) -> bool:
        """Show what is on disk. True while an import goes on."""
        dataset = self.dataset
        try:
            return self._show(dataset) if dataset else self._show_nothing()
        except (WorkbenchError, OSError) as error:
            self.say(str(error), "error")
            return False

    def _show_nothing(self) -> bool:
        self.summary.value = self.verdicts.value = ""
        self._cards, self.grid.children = [], ()
        self.bar.layout.display = self.plan_row.layout.display = self.pager.layout.display = "none"
        return False

    def _show(self, dataset: Dataset) -> bool:
        status = dataset.task("import").status
        alive = status.state.alive
        self.bar.layout.display = "" if alive else "none"
        self.bar.value = status.step / status.total if status.total else 0.0
        left = f", about {drawing.span(status.seconds_left)} left" if status.seconds_left else ""
        busy = f"importing {status.step} of {status.total}{left} · " if alive else ""
        self.summary.value = drawing.note(f"{busy}{dataset.summary.sentence}")
        self.import_button.disabled = alive
        if status.state in (jobs.State.FAILED, jobs.State.DIED):
            self.say(status.message, "error")
        verdicts = sorted(dataset.verdicts, key=lambda verdict: verdict.usable)
        self.verdicts.value = "".join(
            drawing.note(verdict.sentence, "plain" if verdict.usable else "error") for verdict in verdicts
        )
        if dataset.info.trigger_word and not self.trigger.value:
            self.trigger.value = dataset.info.trigger_word
        if dataset.clips[self._first : self._first + PAGE] != self._cards:
            self._show_page()
        return alive

    @property
    def _first(self) -> int:
        return self._page * PAGE

    def _turn(self, pages: int) -> None:
        self._page += pages
        self._show_page()

    def _show_page(self) -> None:
        dataset = self.dataset
        if dataset is None:
            return
        clips = dataset.clips
        self._page = max(0, min(self._page, (len(clips) - 1) // PAGE))
        self._cards = clips[self._first : self._first + PAGE]
        shape, problem = self._shape()
        self.grid.children = [self._card(dataset, clip, shape) for clip in self._cards]
        self.place.value = drawing.note(
            problem or f"clips {self._first + 1} to {self._first + len(self._cards)} of {len(clips)}"
        )
        self.earlier.disabled = self._page == 0
        self.later.disabled = self._first + PAGE >= len(clips)
        self.plan_row.layout.display = "" if clips else "none"
        self.pager.layout.display = "" if len(clips) > PAGE or problem else "none"

    def _shape(self) -> tuple[Shape | None, str]:
        """What the chosen model sees of a clip, or None and why not."""
        wanted = self._settings if self._settings and self._settings.model == self.model.value else TrainSettings()
        try:
            _, model = find_model(self.model.value)
            return shape_for(model, wanted.frames, wanted.height, wanted.width, wanted.fps), ""
        except ConfigError as error:
            return None, str(error)

    def _card(self, dataset: Dataset, clip: Clip, shape: Shape | None) -> widgets.Widget:
        """A clip: it plays, its caption can be written, its frame plan stands below."""
        caption = widgets.Textarea(
            value=clip.text, rows=3, placeholder="what is to be seen?", continuous_update=False,
            layout=widgets.Layout(width="180px"),
        )  # fmt: skip
        caption.observe(lambda change: self._save_caption(dataset, clip.file_name, change), names="value")
        picture = widgets.HTML(_picture(dataset, clip))
        parts: list[widgets.Widget] = [picture, caption]
        if not _plays_at_once(dataset, clip):
            play = button("Play", "Show the clip itself", "play", width="80px")
            play.on_click(lambda _: setattr(picture, "value", _player(dataset, clip)))
            parts.insert(1, play)
        if shape:
            text = drawing.escaped(plan(clip, shape).sentence)
            parts.append(
                widgets.HTML(f'<div style="width:180px;font-size:85%;line-height:1.3;opacity:.75">{text}</div>')
            )
        return widgets.VBox(parts, layout=widgets.Layout(margin="0 12px 12px 0", width="190px"))

    def _save_caption(self, dataset: Dataset, file_name: str, change: dict[str, Any]) -> None:
        def save() -> None:
            written = dataset.set_caption(file_name, change["new"])
            # What was typed is on the page already: the card stays, and with it the place where one is typing.
            self._cards = [written if clip.file_name == file_name else clip for clip in self._cards]

        self.doing(save)(None)


def dataset_panel(workspace: Workspace, name: str | None = None, settings: TrainSettings | None = None) -> DatasetPanel:
    """Import, look at and caption a dataset: one by name, or a new one."""
    return DatasetPanel(workspace, name, settings)


def _label(text: str) -> widgets.Widget:
    return widgets.HTML(drawing.escaped(text), layout=widgets.Layout(width="120px"))


def _plays_at_once(dataset: Dataset, clip: Clip) -> bool:
    path = dataset.path_of(clip)
    return not path.exists() or path.stat().st_size <= PLAYED


def _picture(dataset: Dataset, clip: Clip) -> str:
    if _plays_at_once(dataset, clip):
        return _player(dataset, clip)
    url = drawing.data_url(dataset.thumbnail_of(clip))
    return f'<img src="{url}" alt="{drawing.escaped(clip.source)}" style="width:180px;border-radius:4px">'


def _player(dataset: Dataset, clip: Clip) -> str:
    return drawing.video(dataset.path_of(clip), 180, clip.width)


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

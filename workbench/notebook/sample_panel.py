"""Sampling in a notebook: the form, progress and a rough picture for every denoising step, the videos, the history.

The videos are drawn by the workspace's sampling worker, a process of its own that the web app and the shell share; a
panel made after a kernel restart shows what is still under way. Not covered: drawing (sampler), grids over settings.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import ipywidgets as widgets
from IPython.display import HTML

from workbench import jobs
from workbench.errors import ConfigError, WorkbenchError
from workbench.families import find_model
from workbench.notebook import rendering
from workbench.notebook.form import WidgetForm
from workbench.notebook.live import Panel, Ticker, button, folded, wrapped
from workbench.notebook.prompt_part import PromptPart
from workbench.sampler import queue
from workbench.sampler.input_files import keep, kept
from workbench.sampler.samples import Sample, Samples, settings_of
from workbench.sampler.settings import BatchSettings, SampleSettings, expand
from workbench.sampler.view import report
from workbench.settings import parse, specs
from workbench.workspace import Workspace, read_json

HISTORY = 8


class SamplePanel(Panel):
    """Settings, Draw, and the videos that were asked for here, side by side."""

    def __init__(self, workspace: Workspace, values: dict[str, Any] | None = None) -> None:
        self.workspace = workspace
        self.form = WidgetForm(SampleSettings, workspace, values)
        self.ids = queue.pending(workspace)
        self._lock = threading.Lock()
        self._shown: list[tuple[queue.Progress, float]] | None = None
        batch = {spec.name: spec for spec in specs(BatchSettings)}
        self.videos_wanted = widgets.IntText(value=1, layout=widgets.Layout(width="70px"))
        self.each_line = widgets.Checkbox(description=batch["each_line"].title, indent=False)
        self.each_line.layout.width = "160px"
        self.upload = widgets.FileUpload(description="First frame", multiple=False)
        self.upload.observe(lambda _: self.doing(self._take_upload)(None), names="value")
        self.again = widgets.FileUpload(description="Settings of a video", accept=".mp4,.json", multiple=False)
        self.again.tooltip = "Fill the form with what made a video, from its mp4 or the JSON beside it"
        self.again.layout.width = "180px"
        self.again.observe(lambda _: self.doing(self._read_back)(None), names="value")
        self.bar = widgets.FloatProgress(min=0.0, max=1.0, layout=widgets.Layout(width="100%", max_width="720px"))
        self.doing_now, self.videos = widgets.HTML(), widgets.HTML()
        self.draw_button = button("Draw", "Draw a video with these settings", "play", "primary", "110px")
        self.both_button = button(
            "Draw with and without", "Draw it with the LoRAs, and by the base model from the same noise", "columns"
        )
        self.cancel_button = button("Cancel", "Give up what is being drawn", "stop", "danger", "110px")
        self.draw_button.on_click(self.doing(self.draw))
        self.both_button.on_click(self.doing(self.draw_with_and_without))
        self.cancel_button.on_click(self.doing(self.cancel))
        wanted = [widgets.HTML(batch["videos"].title), self.videos_wanted, self.each_line, self.upload, self.again]
        buttons = wrapped(self.draw_button, self.both_button, self.cancel_button, *wanted)
        super().__init__([self.form.box, buttons, self.bar, self.doing_now, self.videos])
        self.writer = PromptPart(workspace, self.form)
        self.box.children = (
            self.form.box, folded("Have the prompt written", self.writer.box), buttons, self.said,
            *self.box.children[2:], self._make_history(),
        )  # fmt: skip
        self.ticker = Ticker(self.refresh, seconds=0.5)
        if self.refresh():
            self.ticker.start()

    # ---- commands

    def draw(self, *wanted: SampleSettings) -> list[str]:
        """Ask for videos: of the settings given, else of the form's, as many as it says. Returns their ids.

        Raises ConfigError, DeviceBusy (a training run holds the GPU).
        """
        many = kept(self.workspace, wanted or expand(self.form.settings, self._batch()))
        self.ids = queue.submit_all(self.workspace, many)
        self.refresh()
        self.ticker.start()
        return self.ids

    def draw_with_and_without(self) -> list[str]:
        """The form's video twice, from the same noise: by the base model, and with the LoRAs. Raises ConfigError."""
        settings = self.form.settings.settled()
        if not settings.loras:
            raise ConfigError("loras is empty: name a run whose LoRA is to be compared with the base model")
        return self.draw(settings.changed(loras=[]), settings)

    def cancel(self) -> None:
        """Give up what is not done yet."""
        queue.cancel_all(self.workspace, self.ids)

    def _batch(self) -> BatchSettings:
        return parse(BatchSettings, {"videos": self.videos_wanted.value, "each_line": self.each_line.value})

    def _take_upload(self) -> None:
        """Keep the picture that was given, and name it in the form."""
        with _given(self.upload) as path:
            if path is not None:
                self.form.set({"image": str(keep(self.workspace, path, "picture"))})

    def _read_back(self) -> None:
        """Fill the form with what made the video that was given."""
        with _given(self.again) as path:
            if path is not None:
                self.form.set(settings_of(path, self.workspace).model_dump(mode="json"))

    def wait(self, seconds: float | None = None) -> list[Sample]:
        """Wait for the videos while the panel stays live; returns the finished ones. Raises WorkbenchError."""
        for sample_id in self.ids:
            ended = queue.wait(self.workspace, sample_id, seconds)
            if ended.state is queue.RequestState.FAILED:
                self.refresh()
                raise WorkbenchError(ended.message)
        self.refresh()
        done = [sample for sample in (self._progress(sample_id) for sample_id in self.ids) if sample.video]
        return [Samples(self.workspace).get(sample.id) for sample in done]

    def close(self) -> None:
        self.ticker.stop()
        self.writer.close()
        super().close()

    # ---- what is shown

    def refresh(self) -> bool:
        """Show where the videos are. True while one is under way."""
        with self._lock:
            now = [self._progress(sample_id) for sample_id in self.ids]
            queue.revive(self.workspace)
            shown = [(each, _time(each.picture)) for each in now]
            if shown == self._shown:
                return any(not each.state.over for each in now)
            self._shown = shown
            total = sum(each.total or 1 for each in now)
            done = sum((each.total or 1) if each.state.over else each.step for each in now)
            self.bar.value = done / total if now else 0.0
            self.bar.layout.display = "" if now else "none"
            self.doing_now.value = "".join(_line(each) for each in now if each.state is not queue.RequestState.DONE)
            self.videos.value = rendering.row([_figure(each) for each in now if each.video])
            under_way = any(not each.state.over for each in now)
            self.cancel_button.disabled = not under_way
            if not under_way and self.history_fold.selected_index == 0:
                self._show_history()
            return under_way

    def _progress(self, sample_id: str) -> queue.Progress:
        try:
            return queue.progress(self.workspace, sample_id)
        except ConfigError as error:  # deleted meanwhile
            return queue.Progress(sample_id, queue.RequestState.FAILED, None, message=str(error))

    # ---- the history

    def _make_history(self) -> widgets.Widget:
        self.history_choice = widgets.Dropdown(options=[], layout=widgets.Layout(width="420px"))
        self.history_videos = widgets.HTML()
        restore = button("Use its settings", "Fill the form with what made this video", "reply", width="150px")
        delete = button("Remove", "Move this video out of the history (samples/.removed)", "trash", width="110px")
        restore.on_click(self.doing(self.restore))
        delete.on_click(self.doing(self.remove))
        self.restore_button, self.remove_button = restore, delete
        row = widgets.HBox([self.history_choice, restore, delete])
        self.history_fold = folded("History", widgets.VBox([row, self.history_videos]))
        # Read when it is opened: a long history of large videos would make every panel slow.
        self.history_fold.observe(lambda _: self._show_history(), names="selected_index")
        return self.history_fold

    def _show_history(self) -> None:
        samples = Samples(self.workspace).history(HISTORY)
        chosen, ids = self.history_choice.value, [sample.id for sample in samples]
        self.history_choice.options = [(_title(sample.settings), sample.id) for sample in samples]
        if samples:
            self.history_choice.value = chosen if chosen in ids else ids[0]
        self.history_videos.value = rendering.row(
            [rendering.figure(each.path, _title(each.settings), 120, _width(each.settings)) for each in samples]
        )

    def restore(self) -> None:
        """Fill the form with the chosen video's settings."""
        if self.history_choice.value:
            sample = Samples(self.workspace).get(self.history_choice.value)
            self.form.set(sample.settings.model_dump(mode="json"))

    def remove(self) -> None:
        """Take the chosen video out of the history."""
        if self.history_choice.value:
            Samples(self.workspace).delete(self.history_choice.value)
            self._show_history()


@contextlib.contextmanager
def _given(upload: widgets.FileUpload) -> Iterator[Path | None]:
    """The file that was put into an upload, for as long as it is looked at; None where there is none."""
    given: Any = upload.value
    if not given:
        yield None
        return
    # ipywidgets 8 has a tuple of files, 7 a dictionary of them by name.
    one = next(iter(given.values())) if isinstance(given, dict) else given[0]
    name = str(one.get("name") or one.get("metadata", {}).get("name", ""))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / Path(name).name
        path.write_bytes(bytes(one["content"]))
        yield path


def sample_panel(workspace: Workspace, **values: Any) -> SamplePanel:
    """A form filled with the values given, Draw, the videos and the history. Raises ConfigError."""
    return SamplePanel(workspace, values)


def side_by_side(samples: Sequence[Sample]) -> HTML:
    """Finished samples beside one another, to be kept in the notebook."""
    shown = [rendering.figure(each.path, _title(each.settings), 192, _width(each.settings)) for each in samples]
    return HTML(rendering.row(shown))


def _line(now: queue.Progress) -> str:
    """What one request is doing, in words."""
    name = _title(now.settings)
    if now.state is queue.RequestState.GENERATING:
        left = f", about {jobs.duration(now.seconds_left)} left" if now.seconds_left is not None else ""
        return rendering.note(f"{name}: step {now.step} of {now.total}{left}") + _rough(now.picture)
    kind = "error" if now.state is queue.RequestState.FAILED else "plain"
    return rendering.note(f"{name}: {now.state}. {now.message}", kind)


def _rough(picture: Path | None) -> str:
    """How a video looks so far; it moves."""
    url = rendering.data_url(picture) if picture is not None else None
    return f'<img src="{url}" alt="how it looks so far, roughly" style="width:192px;border-radius:4px">' if url else ""


def _time(picture: Path | None) -> float:
    try:
        return picture.stat().st_mtime if picture is not None else 0.0
    except OSError:  # done meanwhile
        return 0.0


def _figure(now: queue.Progress) -> str:
    assert now.video is not None
    said = f"{_title(now.settings)}. {'. '.join(report(read_json(now.video.with_suffix('.json'))))}"
    return rendering.figure(now.video, said, source_width=_width(now.settings))


def _title(settings: SampleSettings | None) -> str:
    """A sample in a line: what tells it from its neighbours."""
    if settings is None:
        return "a request that cannot be read"
    model = ", ".join(settings.loras) if settings.loras else "base model"
    return f"{settings.prompt or '(no prompt)'} · {model} · seed {settings.seed}"


def _width(settings: SampleSettings | None) -> int | None:
    """The video's own width, pixels; None when its model is not known here."""
    if settings is None:
        return None
    try:
        return settings.width or find_model(settings.model)[1].width
    except ConfigError:
        return None

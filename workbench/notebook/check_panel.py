"""The dataset check in a notebook: start it, see what it found on which clips, fix one finding or all of a kind.

Not covered: the checks (dataset_builder.checks.dataset_check) and the fixes (dataset_builder.checks.fixes).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.clips.records import Clip
from workbench.dataset_builder.checks.findings import FIXES, CheckReport, Finding, Fix, Severity
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.dataset_builder.tasks import Name
from workbench.notebook import rendering
from workbench.notebook.live import button
from workbench.notebook.task_panel import TaskLine, TaskPanel
from workbench.workspace import Workspace

COLOURS = {Severity.STOPS: "#c62828", Severity.HURTS: "#b26a00", Severity.LOOK: "#666"}
MOST_OF_A_KIND = 12  # with pictures and buttons each; the rest is fixed with all of its kind
PICTURES = 6


class CheckPanel(TaskPanel):
    """The form of a check and its findings, each with its clips' pictures and its fixes."""

    task_name = "check"
    settings_class = CheckSettings
    noun = "check"
    words = ("Check", "Look at every clip and caption; nothing is changed")

    def _more(self) -> list[widgets.Widget]:
        self.found = widgets.VBox([])
        self._shown: CheckReport | None = None
        self.fixing = TaskLine("fixing", lambda: self.dataset.task("fix"), self.watch)
        return [self.fixing.box, self.found]

    def fix(self, findings: Sequence[Finding], fix: Fix) -> str:
        """Fix findings alike, in one change that `undo` takes back; says what was done.

        What cuts clips is a task: it is started and "" returned (`wait_fix` waits for it). Raises ConfigError,
        DataError, CannotWrite.
        """
        done = self.dataset.start_fix(findings, fix)
        self.watch()
        self.say(f"{done} Undo takes it back." if done else "", "good")
        return done

    def wait_fix(self, seconds: float | None = None) -> jobs.Status:
        """Wait until a fix that is a task is over or the time is up; the panel stays live."""
        status = self.dataset.task("fix").wait(seconds)
        self.refresh()
        return status

    def _watched(self) -> tuple[Name, ...]:
        return ("check", "fix")

    def refresh(self) -> bool:
        """Show what the folders of check and fix say. True while one of them works."""
        with self._lock:
            alive = super().refresh()
            return self.fixing.refresh(self.dataset.task("fix").result.get("done", "")) or alive

    def _ended(self) -> None:
        report = self.dataset.report
        if report is None or report == self._shown:
            return
        self._shown = report
        clips = {clip.file_name: clip for clip in self.dataset.clips}
        parts: list[widgets.Widget] = [
            widgets.HTML(rendering.note(report.sentence, "plain" if report.findings else "good"))
        ]
        for _, group in groupby(report.findings, key=lambda finding: (finding.severity, finding.title)):
            parts += self._kind(list(group), clips)
        self.found.children = parts

    def _kind(self, findings: list[Finding], clips: dict[str, Clip]) -> list[widgets.Widget]:
        """All findings of one kind: a line with fixes for all, then each."""
        first = findings[0]
        style = f"background:{COLOURS[first.severity]};color:#fff;border-radius:9px;padding:1px 9px"
        title = widgets.HTML(
            f'<div style="line-height:1.8"><span style="{style}">{rendering.escaped(first.severity)}</span> '
            f"<b>{rendering.escaped(first.title)}</b> ({len(findings):,})</div>"
        )
        fixes = [fix for fix in first.fixes if all(fix in other.fixes for other in findings)]
        for_all = [self._button(findings, fix, f"{FIXES[fix]}: all {len(findings):,}") for fix in fixes]
        head = widgets.HBox([title, *(for_all if len(findings) > 1 else [])], layout=_wrapping())
        more = len(findings) - MOST_OF_A_KIND
        rest = [widgets.HTML(rendering.note(f"and {more:,} more"))] if more > 0 else []
        return [head, *(self._finding(finding, clips) for finding in findings[:MOST_OF_A_KIND]), *rest]

    def _finding(self, finding: Finding, clips: dict[str, Clip]) -> widgets.Widget:
        shown = [clips[name] for name in finding.clips[:PICTURES] if name in clips]
        pictures = "".join(rendering.picture(self.dataset.thumbnail_of(clip), clip.source or clip.id) for clip in shown)
        shown_text = f'<div style="display:flex;align-items:center">{pictures}{rendering.note(finding.sentence)}</div>'
        text = widgets.HTML(shown_text, layout=widgets.Layout(flex="1 1 300px"))
        return widgets.HBox(
            [text, *(self._button([finding], fix, FIXES[fix]) for fix in finding.fixes)], layout=_wrapping()
        )

    def _button(self, findings: Sequence[Finding], fix: Fix, words: str) -> widgets.Button:
        made = button(words, f"{FIXES[fix]}; Undo takes it back", width="auto")
        made.on_click(self.doing(partial(self.fix, findings, fix)))
        return made


def check_panel(workspace: Workspace, dataset: str, **values: Any) -> CheckPanel:
    """What could stop or hurt a training; values: settings of CheckSettings. Raises ConfigError."""
    return CheckPanel(workspace, dataset, values)


def _wrapping() -> widgets.Layout:
    return widgets.Layout(flex_flow="row wrap", align_items="center")

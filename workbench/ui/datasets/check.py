"""The dataset check: start it, read what it found, fix one finding or all of a kind."""

from __future__ import annotations

import html
from typing import Any

import gradio as gr

from workbench.dataset_builder.checks.findings import FIXES, CheckReport, Finding, Fix, Severity, common_fixes
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.form import Form
from workbench.ui.datasets.clips import checked_at
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView, start_task
from workbench.ui.datasets.task_part import TaskPart
from workbench.workspace import Workspace

KINDS = {Severity.STOPS: "bad", Severity.HURTS: "going", Severity.LOOK: "idle"}
MOST_OF_A_KIND = 40


class CheckPanel(DatasetPanel):
    """The form, the findings, and a choice of what to fix how."""

    def __init__(self, workspace: Workspace) -> None:
        self.form = Form(CheckSettings, workspace, CheckSettings())
        with gr.Row(elem_classes="buttons"):
            self.start = gr.Button("Check", variant="primary", elem_id="start-check")
            self.checking = TaskPart("check")
        self.checking.build_progress()
        self.found = gr.HTML(elem_id="findings")
        with gr.Row(visible=False, elem_id="fixing", elem_classes="choosing") as self.choosing:
            self.which = gr.Dropdown(
                [],
                label="What to fix",
                multiselect=True,
                elem_id="fix-which",
                info="One finding or several of a kind. Every fix can be undone.",
            )
            self.how = gr.Dropdown([], label="How", elem_id="fix-how")
            self.fix = gr.Button("Fix", variant="primary", elem_id="fix")
        with gr.Row(elem_classes="buttons"):
            self.fixing = TaskPart("fix", "fixing")
        self.fixing.build_progress()

    @property
    def view(self) -> dict[str, Any]:  # type: ignore[override]
        own = {"found": self.found, "choosing": self.choosing, "which": self.which}
        return own | self.checking.view | self.fixing.view

    def values(self, look: DatasetView) -> dict[str, Any]:
        mark = (look.mark, checked_at(look.dataset.folder))

        def which() -> Any:
            found = look.dataset.report
            return gr.update(choices=_choices(found) if found else [], value=[])

        def choosing() -> Any:
            found = look.dataset.report
            return gr.update(visible=bool(found and any(finding.fixes for finding in found.findings)))

        return {
            "found": (mark, lambda: _report(look.dataset.report, look.dataset)),
            "choosing": (mark, choosing),
            "which": (mark, which),
            **self.checking.values(look.dataset),
            **self.fixing.values(look.dataset),
        }

    def wire(self, host: DatasetHost) -> None:
        host.act(self.start.click, self._start, self.form.inputs, [self.form.problems])
        host.act(self.which.input, self._ways, [self.which], [self.how])
        host.act(self.fix.click, self._fix, [self.which, self.how])
        self.checking.wire(host)
        self.fixing.wire(host)

    def _start(self, dataset: Dataset, *values: Any) -> str:
        return start_task(dataset, "check", self.form, values)

    def _ways(self, dataset: Dataset, which: list[str]) -> Any:
        """The fixes that fit everything that is chosen."""
        common = common_fixes(_chosen(dataset, which))
        return gr.update(choices=[(FIXES[fix], fix) for fix in common], value=common[0] if common else None)

    def _fix(self, dataset: Dataset, which: list[str], how: Fix | None) -> str | None:
        if not which or not how:
            raise ConfigError("choose what to fix, and how")
        return dataset.start_fix(_chosen(dataset, which), how) or None


def _choices(report: CheckReport) -> list[tuple[str, str]]:
    """One entry for all findings of a kind, and one for each finding."""
    entries = []
    for group in report.groups:
        findings = [finding for finding in group.findings if finding.fixes]
        if len(findings) > 1:
            entries.append((f"All: {group.title} ({len(findings)})", f"kind:{group.kind}"))
        entries += [(finding.sentence[:110], finding.id) for finding in findings[:MOST_OF_A_KIND]]
    return entries


def _chosen(dataset: Dataset, which: list[str]) -> list[Finding]:
    report = dataset.report
    return [f for f in (report.findings if report else ()) if f.fixes and (f.id in which or f"kind:{f.kind}" in which)]


def _report(report: CheckReport | None, dataset: Dataset) -> str:
    """Everything that was found, by kind, the worst first, with the clips' pictures."""
    if report is None:
        return render.note(
            "Near-duplicates, cuts left inside clips, black bars, blur, captions that are missing or too long: press "
            "Check to find them.",
            "empty",
        )
    pictures = {clip.file_name: (f"thumbs/{clip.id}.jpg", clip.source or clip.id) for clip in dataset.clips}
    parts = [render.note(report.sentence, "good" if not report.findings else "plain")]
    for group in report.groups:
        found = group.findings
        rows = "".join(_finding(finding, dataset, pictures) for finding in found[:MOST_OF_A_KIND])
        more = f"<p>and {len(found) - MOST_OF_A_KIND:,} more</p>" if len(found) > MOST_OF_A_KIND else ""
        parts.append(
            f'<h4 class="finding">{render.badge(group.severity, KINDS[group.severity])} {render.escaped(group.title)} '
            f'({len(found):,})</h4><ul class="findings">{rows}</ul>{more}'
        )
    return "".join(parts)


def _finding(finding: Finding, dataset: Dataset, pictures: dict[str, tuple[str, str]]) -> str:
    images = "".join(
        f'<img src="{html.escape(render.url(dataset.folder / picture))}" alt="{render.escaped(name)}" loading="lazy">'
        for picture, name in (pictures[clip] for clip in finding.clips[:6] if clip in pictures)
    )
    return f"<li><div>{images}</div><span>{render.escaped(finding.sentence)}</span></li>"

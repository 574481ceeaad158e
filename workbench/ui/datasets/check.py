"""The dataset check: start it, read what it found, fix one finding or all of a kind."""

from __future__ import annotations

import html
from itertools import groupby
from typing import Any

import gradio as gr

from workbench.dataset_builder.checks.findings import FIXES, CheckReport, Finding, Fix, Severity
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError
from workbench.ui.core import render
from workbench.ui.core.form import Form
from workbench.ui.datasets import head
from workbench.ui.datasets.clips import checked_at
from workbench.ui.datasets.panel import DatasetHost, DatasetPanel, DatasetView, start_task
from workbench.workspace import Workspace

KINDS = {Severity.STOPS: "bad", Severity.HURTS: "going", Severity.LOOK: "idle"}
MOST_OF_A_KIND = 40


class CheckPanel(DatasetPanel):
    """The form, the findings, and a choice of what to fix how."""

    def __init__(self, workspace: Workspace) -> None:
        self.form = Form(CheckSettings, workspace, CheckSettings())
        with gr.Row(elem_classes="buttons"):
            self.start = gr.Button("Check", variant="primary", elem_id="start-check")
            self.stop = gr.Button("Stop", variant="stop", visible=False)
        self.progress = gr.HTML(elem_id="check-progress")
        self.found = gr.HTML(elem_id="findings")
        with gr.Row(visible=False, elem_id="fixing", elem_classes="choosing") as self.fixing:
            self.which = gr.Dropdown([], label="What to fix", multiselect=True, elem_id="fix-which",
                                     info="One finding or several of a kind. Every fix can be undone.")  # fmt: skip
            self.how = gr.Dropdown([], label="How", elem_id="fix-how")
            self.fix = gr.Button("Fix", variant="primary", elem_id="fix")
        with gr.Row(elem_classes="buttons"):
            self.stop_fixing = gr.Button("Stop fixing", variant="stop", visible=False)
            self.go_on_fixing = gr.Button("Resume fixing", visible=False)
        self.fixed = gr.HTML(elem_id="fix-progress")

    @property
    def view(self) -> dict[str, Any]:  # type: ignore[override]
        names = ("progress", "stop", "found", "fixing", "which", "fixed", "stop_fixing", "go_on_fixing")
        return {name: getattr(self, name) for name in names}

    def values(self, look: DatasetView) -> dict[str, Any]:
        task = look.dataset.task("check")
        status = task.status
        alive = status.state.alive
        fix = look.dataset.task("fix")
        fixing_now, broken = fix.status.state.alive, fix.status.state in ("stopped", "failed", "died")
        mark = (look.mark, checked_at(look.dataset.folder))

        def which() -> Any:
            found = look.dataset.report
            return gr.update(choices=_choices(found) if found else [], value=[])

        def fixing() -> Any:
            found = look.dataset.report
            return gr.update(visible=bool(found and any(finding.fixes for finding in found.findings)))

        return {
            "progress": "" if status.state == "finished" else head.task(status, "check", ""),
            "stop": (alive, lambda: gr.update(visible=alive)),
            "found": (mark, lambda: _report(look.dataset.report, look.dataset)),
            "fixing": (mark, fixing),
            "which": (mark, which),
            "fixed": head.task(fix.status, "fixing", fix.result.get("done", "")),
            "stop_fixing": (fixing_now, lambda: gr.update(visible=fixing_now)),
            "go_on_fixing": (broken, lambda: gr.update(visible=broken)),
        }

    def wire(self, host: DatasetHost) -> None:
        host.act(self.start.click, self._start, self.form.inputs, [self.form.problems])
        host.act(self.stop.click, lambda dataset: dataset.task("check").stop())
        host.act(self.which.input, self._ways, [self.which], [self.how])
        host.act(self.fix.click, self._fix, [self.which, self.how])
        host.act(self.stop_fixing.click, lambda dataset: dataset.task("fix").stop())
        host.act(self.go_on_fixing.click, lambda dataset: None if dataset.task("fix").go_on() else None)

    def _start(self, dataset: Dataset, *values: Any) -> str:
        return start_task(dataset, "check", self.form, values)

    def _ways(self, dataset: Dataset, which: list[str]) -> Any:
        """The fixes that fit everything that is chosen."""
        chosen = _chosen(dataset, which)
        common = [fix for fix in (chosen[0].fixes if chosen else ()) if all(fix in f.fixes for f in chosen)]
        return gr.update(choices=[(FIXES[fix], fix) for fix in common], value=common[0] if common else None)

    def _fix(self, dataset: Dataset, which: list[str], how: Fix | None) -> str | None:
        if not which or not how:
            raise ConfigError("choose what to fix, and how")
        return dataset.start_fix(_chosen(dataset, which), how) or None


def _choices(report: CheckReport) -> list[tuple[str, str]]:
    """One entry for all findings of a kind, and one for each finding."""
    entries = []
    for kind, group in groupby(sorted(report.findings, key=lambda f: f.kind), key=lambda f: f.kind):
        findings = [finding for finding in group if finding.fixes]
        if len(findings) > 1:
            entries.append((f"All: {findings[0].title} ({len(findings)})", f"kind:{kind}"))
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
    for title, group in groupby(report.findings, key=lambda f: (f.severity, f.title)):
        findings = list(group)
        rows = "".join(_finding(finding, dataset, pictures) for finding in findings[:MOST_OF_A_KIND])
        more = f"<p>and {len(findings) - MOST_OF_A_KIND:,} more</p>" if len(findings) > MOST_OF_A_KIND else ""
        parts.append(
            f'<h4 class="finding">{render.badge(title[0], KINDS[title[0]])} {render.escaped(title[1])} '
            f'({len(findings):,})</h4><ul class="findings">{rows}</ul>{more}'
        )
    return "".join(parts)


def _finding(finding: Finding, dataset: Dataset, pictures: dict[str, tuple[str, str]]) -> str:
    shown = "".join(
        f'<img src="{html.escape(render.url(dataset.folder / picture))}" alt="{render.escaped(name)}" loading="lazy">'
        for picture, name in (pictures[clip] for clip in finding.clips[:6] if clip in pictures)
    )
    return f"<li><div>{shown}</div><span>{render.escaped(finding.sentence)}</span></li>"

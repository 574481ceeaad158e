"""The workbench in a notebook: the page's elements in widgets, over the same library, files and jobs.

    from workbench.notebook import attach, clip_cards, sample_panel, show_page, task_panel, train_panel

A panel is shown by the last line of a cell, and so are a `Run`, a `Dataset`, a `Grid` and the `Samples` of a workspace
once this package is imported. Nothing long runs inside one: training, sampling and the tasks of a dataset are processes
of their own. Where there is no kernel, each class's `_repr_html_` shows.
"""

from workbench.notebook.page import PageView, show_page
from workbench.notebook.panels import (
    ClipCards,
    RunPanel,
    SamplePanel,
    SettingsForm,
    TaskPanel,
    TrainPanel,
    attach,
    clip_cards,
    clone_panel,
    fork_panel,
    form,
    preview_table,
    sample_panel,
    show_objects,
    side_by_side,
    task_panel,
    train_panel,
)
from workbench.runs.analysis.comparison import compare as compare_runs

show_objects()

__all__ = [
    "ClipCards",
    "PageView",
    "RunPanel",
    "SamplePanel",
    "SettingsForm",
    "TaskPanel",
    "TrainPanel",
    "attach",
    "clip_cards",
    "clone_panel",
    "compare_runs",
    "fork_panel",
    "form",
    "preview_table",
    "sample_panel",
    "show_objects",
    "show_page",
    "side_by_side",
    "task_panel",
    "train_panel",
]

"""The workbench in a notebook: live panels of ipywidgets over the same library, files and jobs as the web app.

    from workbench.notebook import attach, clip_cards, sample_panel, show_page, task_panel, train_panel

A panel is shown by the last line of a cell. Nothing long runs inside one: training, sampling and the tasks of a dataset
are processes of their own, a panel only reads their files.

Here: forms, live panels, the page inside a notebook, Colab. Not here: what datasets, runs, samples and grids look like
by themselves (each class has `_repr_html_`), and what the panels start (dataset_builder, trainer, sampler).
"""

from workbench.notebook.clip_cards import ClipCards, clip_cards
from workbench.notebook.form import SettingsForm, form
from workbench.notebook.page import PageView, show_page
from workbench.notebook.run_panel import RunPanel, attach, preview_table
from workbench.notebook.sample_panel import SamplePanel, sample_panel, side_by_side
from workbench.notebook.task_panel import TaskPanel, task_panel
from workbench.notebook.train_panel import TrainPanel, clone_panel, fork_panel, train_panel
from workbench.runs.analysis.comparison import compare as compare_runs

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
    "show_page",
    "side_by_side",
    "task_panel",
    "train_panel",
]

"""The workbench in a notebook: panels of ipywidgets over the same library, files and jobs as the web app.

    from workbench.notebook import attach, compare_panel, dataset_panel, sample_panel, train_panel, grid_panel

A panel is shown by the last line of a cell. Nothing long runs inside a panel: imports, training and sampling are
processes of their own, a panel only reads their files. Not covered: what the buttons do (dataset_builder, trainer,
sampler).
"""

from workbench.notebook.check_panel import CheckPanel, check_panel
from workbench.notebook.compare_panel import ComparePanel, compare_panel
from workbench.notebook.cut_panel import CutPanel, cut_panel
from workbench.notebook.dataset_panel import DatasetPanel, dataset_panel
from workbench.notebook.form import WidgetForm, form
from workbench.notebook.grid_panel import GridPanel, grid_panel
from workbench.notebook.model_view_panel import SeesPanel, sees_panel
from workbench.notebook.run_panel import RunPanel, attach, preview_table
from workbench.notebook.sample_panel import SamplePanel, sample_panel, side_by_side
from workbench.notebook.statistics_pictures import statistics_pictures
from workbench.notebook.task_panel import (
    CaptionPanel,
    ExportPanel,
    SplitPanel,
    caption_panel,
    export_panel,
    split_panel,
)
from workbench.notebook.train_panel import TrainPanel, clone_panel, fork_panel, train_panel

__all__ = [
    "CaptionPanel",
    "CheckPanel",
    "ComparePanel",
    "CutPanel",
    "DatasetPanel",
    "ExportPanel",
    "WidgetForm",
    "RunPanel",
    "SamplePanel",
    "SeesPanel",
    "SplitPanel",
    "TrainPanel",
    "GridPanel",
    "attach",
    "caption_panel",
    "check_panel",
    "clone_panel",
    "compare_panel",
    "cut_panel",
    "dataset_panel",
    "export_panel",
    "fork_panel",
    "form",
    "preview_table",
    "sample_panel",
    "sees_panel",
    "side_by_side",
    "split_panel",
    "statistics_pictures",
    "train_panel",
    "grid_panel",
]

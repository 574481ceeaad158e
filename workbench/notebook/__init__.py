"""The workbench in a notebook: panels of ipywidgets over the same library, files and jobs as the web app.

    from workbench.notebook import attach, dataset_panel, sample_panel, train_panel

A panel is shown by the last line of a cell. Nothing runs inside a panel: training and sampling are processes of their
own, a panel only reads their files. Not covered: what the buttons do (dataset_builder, trainer, sampler).
"""

from workbench.notebook.dataset_panel import DatasetPanel, dataset_panel
from workbench.notebook.form import Form, form
from workbench.notebook.run_panel import RunPanel, TrainPanel, attach, preview_table, train_panel
from workbench.notebook.sample_panel import SamplePanel, sample_panel, side_by_side

__all__ = [
    "DatasetPanel",
    "Form",
    "RunPanel",
    "SamplePanel",
    "TrainPanel",
    "attach",
    "dataset_panel",
    "form",
    "preview_table",
    "sample_panel",
    "side_by_side",
    "train_panel",
]

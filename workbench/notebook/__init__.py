"""The workbench in a notebook: the page's elements as widgets, over the same library, files and jobs.

    from workbench.notebook import attach, clip_cards, sample_panel, show_page, task_panel, train_panel

The last line of a cell shows a panel, and once this package is imported also a `Run`, `Dataset`, `Grid` or `Samples`.
Training, sampling and dataset tasks run in processes of their own. Without a kernel, `_repr_html_` shows the object.
"""

from workbench.notebook.page import PageView as PageView
from workbench.notebook.page import show_page as show_page
from workbench.notebook.panels import ClipCards as ClipCards
from workbench.notebook.panels import RunPanel as RunPanel
from workbench.notebook.panels import SamplePanel as SamplePanel
from workbench.notebook.panels import SettingsForm as SettingsForm
from workbench.notebook.panels import TaskPanel as TaskPanel
from workbench.notebook.panels import TrainPanel as TrainPanel
from workbench.notebook.panels import attach as attach
from workbench.notebook.panels import clip_cards as clip_cards
from workbench.notebook.panels import clone_panel as clone_panel
from workbench.notebook.panels import fork_panel as fork_panel
from workbench.notebook.panels import form as form
from workbench.notebook.panels import preview_table as preview_table
from workbench.notebook.panels import sample_panel as sample_panel
from workbench.notebook.panels import show_objects as show_objects
from workbench.notebook.panels import side_by_side as side_by_side
from workbench.notebook.panels import task_panel as task_panel
from workbench.notebook.panels import train_panel as train_panel
from workbench.runs.analysis.comparison import compare as compare_runs

__all__ = ["compare_runs"]

show_objects()

"""`workbench dataset`: everything of the dataset builder in the shell, a file a subject. `group` puts them together."""

from workbench.cli.datasets.group import dataset

__all__ = ["dataset"]

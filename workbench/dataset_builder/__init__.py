"""From video files to a captioned dataset. Importing this package loads neither a decoder nor torch."""

from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.ingest.results import ImportResult
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.snapshot import Summary

__all__ = ["Dataset", "ImportSettings", "Summary", "ImportResult"]

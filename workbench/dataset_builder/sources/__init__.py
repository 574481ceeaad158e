"""Import sources: folders, archives, tables, Hub datasets and other tools' layouts.

This package finds files and captions; dataset_builder.ingest reads the videos.
"""

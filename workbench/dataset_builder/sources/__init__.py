"""What a person gives: folders, archives, tables, Hub datasets and the layouts of other tools.

Not here: what is inside the videos (dataset_builder.ingest).
"""

"""Cut clips: spans, crops, frame rates, splitting at scenes.

Not here: black bars and other findings (dataset_builder.checks).
"""

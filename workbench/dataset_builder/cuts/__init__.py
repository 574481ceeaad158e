"""Spans, crops and frame rates of clips: cut, split at scenes, and back.

Not here: black bars and other findings (dataset_builder.checks).
"""

"""The dataset check: measure clips and captions, find what would hurt a training, and fix it.

Not here: what a run needs before it starts (runs.checks).
"""

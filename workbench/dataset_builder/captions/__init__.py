"""Captions of a dataset: written by a captioner in a job, edited many at once.

Not here: the captioners themselves (workbench.captioners).
"""

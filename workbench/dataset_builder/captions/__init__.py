"""Caption a dataset: with a captioner in a job, or many captions at once by an edit.

Not here: the captioners themselves (workbench.captioners).
"""

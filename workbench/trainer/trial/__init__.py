"""`python -m workbench.trainer.trial FOLDER`: real steps that measure memory and time for `workbench.fit`.

Not here: asking for a measurement and reading it (fit.measurement).
"""

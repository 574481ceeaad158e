"""Runs without torch: a run's folder, its settings, what it has written, and what can be done next.

The page, the notebook, the shell and the trainer read and write runs through these modules. Training is in `trainer`,
estimates of memory and time in `fit`, and the display of runs in `ui`, `notebook` and `cli`.
"""

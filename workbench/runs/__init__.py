"""A run as everyone sees it, without torch: its folder, its settings, what it has written, and what may be done next.

The page, the notebook, the shell and the trainer itself read and write a run through these modules. Training
is in `trainer`, memory and time before a start in `fit`, how a page or a shell shows a run in `ui`, `notebook`, `cli`.
"""

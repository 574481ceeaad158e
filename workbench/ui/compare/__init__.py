"""The Compare tab: videos of the same prompts in lock-step, and the curves of runs over one another.

Here belongs what the page shows of comparisons. Not here: grids themselves (workbench.compare), reading and judging
runs (workbench.runs.analysis).
"""

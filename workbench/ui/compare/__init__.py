"""The Grids tab: videos of the same prompts side by side in lock-step. Not covered: the grids (workbench.compare)."""

"""The Walls tab: videos of the same prompts side by side in lock-step. Not covered: the walls (workbench.compare)."""

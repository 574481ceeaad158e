"""What a run's metrics say: curves, a diagnosis, comparison with other runs. No torch, nothing is changed.

`trainer.evaluation` measures; `runs.metrics` reads single lines.
"""

"""What a run's metrics say: curves, diagnosis, comparison with other runs. No torch; changes nothing.

`trainer.evaluation` measures; `runs.metrics` reads single lines.
"""

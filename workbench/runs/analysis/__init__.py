"""What a run's metrics say: curves, a diagnosis, comparison with other runs, the report. No torch, nothing is changed.

Not here: measuring (trainer.monitoring), reading single lines of metrics (runs.metrics).
"""

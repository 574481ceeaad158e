"""Runs on another machine: reached by ssh, on a Slurm cluster, as a job of the Hub. The folder here stays the run.

A target (`targets`) names a backend (`base`: ssh, slurm, hub_jobs), which carries the run's files (`bundle`) to a
remote folder (`remote_folder`); `sync` brings back what the run writes. `python -m workbench.remote RUN` is the process
that stands for such a run here: page, notebook and shell see the job they know. What belongs here: everything that
sends, watches and fetches a run.
"""

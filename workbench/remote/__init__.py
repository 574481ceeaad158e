"""Runs on another machine: over ssh, on a Slurm cluster, or as a job of the Hub. The local folder stays the run.

A target (`targets`) names a backend (`base`: ssh, slurm, hub_jobs), which sends the run's files (`sync.bundle`) to a
remote folder (`remote_folder`); `sync` brings back what the run writes. `python -m workbench.remote RUN` is the local
process of such a run, so page, notebook and shell see an ordinary job.
"""

"""Runs on another machine: reached by ssh, on a Slurm cluster, as a job of the Hub. The folder here stays the run.

    settings        what a target is (a machine, a cluster, an account), one class a kind
    targets         the targets of a workspace, kept as files
    record          remote.json: where a run is, and what is known of it there
    bundle          all that a run needs, found by content
    remote_folder   the folder on the other side: a small workspace that holds this run alone
    server          `python -m workbench.remote.server`: the remote folder's functions, called through ssh
    base            what a backend must offer; ssh, slurm, hub_jobs are the three
    folder_backend  what ssh and slurm share: a remote folder behind a file system of fsspec
    sync            brings back what the run writes, passes commands on
    backends        choose the target of a run, check a target

`python -m workbench.remote RUN` is the process that stands for such a run here: page, notebook and shell see the job
they know. What belongs here: everything that sends, watches and fetches a run. Not covered: renting machines, one run
on several targets.
"""

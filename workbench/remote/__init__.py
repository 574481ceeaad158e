"""Runs elsewhere: on a machine reached by ssh, on a Slurm cluster, as a job of the Hub. The folder here stays the run.

    settings    what a place is (a machine, a cluster, an account), one class a kind
    places      the places of a workspace, kept as files
    record      remote.json: where a run is, and what is known of it there
    bundle      all that a run needs, found by content
    box         the folder on the other side: a small workspace that holds this run alone
    there       `python -m workbench.remote.server`: the box's functions, asked from afar
    base        what an engine must offer; ssh, slurm, hub_jobs are the three
    mirror      brings back what the run writes, passes commands on
    sending     choose where a run goes

`python -m workbench.remote RUN` is the process that stands for such a run here: page, notebook and shell see the job
they know. Not covered: renting machines, one run over several places.
"""

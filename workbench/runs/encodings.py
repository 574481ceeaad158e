"""Encodings ahead of training that are at work: `cache/encoding/KEY/` of a workspace.

Read by whatever must not change a dataset meanwhile. Not covered: planning and doing them
(trainer.inputs.encoding_job).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from workbench import jobs
from workbench.errors import ConfigError
from workbench.runs.settings import TrainSettings
from workbench.settings import parse
from workbench.workspace import Workspace, read_json

FOLDER, WORK = "encoding", "work.json"


def at_work(workspace: Workspace) -> Iterator[tuple[Path, TrainSettings]]:
    """The jobs that encode now, a machine each, and the settings of the run that they encode for."""
    for config in (workspace.cache / FOLDER).glob(f"*/*/{jobs.CONFIG}"):
        if jobs.status(config.parent).state.alive:
            with contextlib.suppress(ConfigError):  # it is just being written
                yield config.parent, parse(TrainSettings, read_json(config.parent.parent / WORK)["settings"])

"""`workbench dataset preview|import|export`: clips in from anywhere, and out in another tool's layout.

Not covered: layouts, import results, the Hub (workbench.dataset_builder).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from workbench.cli import json_values
from workbench.cli.datasets.tasks import run_task, task_flags, with_dataset
from workbench.cli.options import SettingsCommand, json_flag, settings_flags, settings_from, with_workspace
from workbench.cli.printing import print_json, say, say_lines
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.export.settings import ExportSettings
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.snapshot import task_snapshot
from workbench.errors import ConfigError
from workbench.workspace import Workspace

given_paths = click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
HUB = {"hub_dataset": "--hub"}
PREVIEW = (
    *("layout", "hub_dataset", "revision", "hub_config", "video_column", "caption_column", "first_line"),
    *("frames_as_video", "frame_rate"),
)
ELSEWHERE = ("repo_id", "private", "license")  # of `workbench publish dataset`
NOTHING = "nothing was named: give files, folders or archives, or --hub OWNER/NAME"


@click.command(cls=SettingsCommand)
@given_paths
@settings_flags(ImportSettings, only=PREVIEW, short=HUB)
@json_flag
def preview(paths: tuple[Path, ...], as_json: bool, **flags: Any) -> None:
    """List the videos, pictures and captions in PATHS. No file is opened: an import may still refuse one."""
    settings = settings_from(ImportSettings, (), flags)
    if not paths and not settings.hub_dataset:
        raise ConfigError(NOTHING)
    from workbench.dataset_builder.sources import hub
    from workbench.dataset_builder.sources.survey import survey

    wanted = settings.hub_dataset
    remote = hub.inspect(wanted, settings.revision, settings.hub_config) if wanted else None
    found = survey(paths, settings.wanted_layout, settings.columns, settings.rate_of_frames)
    lines = found.preview
    if as_json:
        print_json(json_values.preview(remote, found, lines))
        return
    if remote is not None:
        say(remote.sentence)
    if paths:
        say_lines(lines or ["no videos"])


@click.command("import", cls=SettingsCommand)
@click.argument("name")
@given_paths
@settings_flags(ImportSettings, leave_out=("sources", "dataset"), short=HUB)
@task_flags
@with_workspace
def import_(
    workspace: Workspace, name: str, paths: tuple[Path, ...], config: tuple[Path, ...], detach: bool, **flags: Any
) -> int:
    """Take videos, pictures, folders and archives into the dataset NAME.

    It is made if need be. Every file gets an import result: taken, converted (how) or refused (why).
    Importing the same files again changes nothing; an import that was stopped or killed resumes where it was.
    """
    given: dict[str, Any] = {"sources": tuple(os.path.abspath(path) for path in paths)} if paths else {}
    settings = settings_from(ImportSettings, config, flags, dataset=name, **given)
    if not settings.sources and not settings.hub_dataset and not settings.own_source:
        raise ConfigError(NOTHING)
    target = Dataset.ensure(workspace, name)
    code = run_task(target, "import", settings.changed(dataset=target.name), detach)
    for one in task_snapshot(target.task("import")).files if code else ():
        say(one.sentence)
    return code


@click.command(cls=SettingsCommand)
@with_dataset
@click.argument("target", required=False, type=click.Path(path_type=Path))
@settings_flags(ExportSettings, leave_out=("target", *ELSEWHERE))
@task_flags
def export(dataset: Dataset, target: Path | None, config: tuple[Path, ...], detach: bool, **flags: Any) -> int:
    """Write the dataset in any layout to a folder or an archive.

    TARGET is a new folder, .zip or .tar; what is there already is never touched. To the Hub: workbench publish dataset.
    """
    given: dict[str, Any] = {"target": os.path.abspath(target.expanduser())} if target else {}
    settings = settings_from(ExportSettings, config, flags, **given)
    if not settings.target or settings.repo_id:
        raise ConfigError("name a TARGET (a new folder, .zip or .tar); to the Hub goes workbench publish dataset")
    return run_task(dataset, "export", settings, detach)

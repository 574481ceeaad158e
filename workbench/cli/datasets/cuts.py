"""`workbench dataset split|trim|crop|set-fps|reset-cut`: parts of source videos, each of which can be made wider again.

Seconds and pixels are those of the whole source video. Not covered: finding cuts and bars (workbench.dataset_builder).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click

from workbench.cli.datasets.clips import about
from workbench.cli.datasets.tasks import run_task, task_flags, with_dataset
from workbench.cli.options import SettingsCommand, settings_flags, settings_from
from workbench.cli.printing import say
from workbench.clips.records import Clip
from workbench.dataset_builder.cuts.cut import cut_of, master_of
from workbench.dataset_builder.cuts.splitting import SplitTask
from workbench.dataset_builder.dataset import Dataset
from workbench.errors import ConfigError


@click.command(cls=SettingsCommand)
@with_dataset
@click.argument("clips", nargs=-1)
@settings_flags(SplitTask, leave_out=("clips",))
@click.option("--at", multiple=True, type=float, metavar="SECONDS", help="Cut the one CLIP here; may be given again.")
@task_flags
def split(
    dataset: Dataset,
    clips: tuple[str, ...],
    at: tuple[float, ...],
    config: tuple[Path, ...],
    detach: bool,
    **flags: Any,
) -> int:
    """Cut CLIPS, or all, between shots or after so many seconds.

    With --preview: say what would be cut, and change nothing.
    """
    if at:
        _split_at(dataset, clips, at)
        return 0
    names: dict[str, Any] = {"clips": tuple(dataset.clip(name).file_name for name in clips)} if clips else {}
    return run_task(dataset, "split", settings_from(SplitTask, config, flags, **names), detach)


def _split_at(dataset: Dataset, clips: tuple[str, ...], at: Sequence[float]) -> None:
    if len(clips) != 1:
        raise ConfigError(f"--at cuts one clip, {len(clips)} are named: name the one that it is about")
    clip = dataset.clip(clips[0])
    master = master_of(dataset.folder, clip)
    cut = cut_of(clip, master)
    begin, end = cut.start / master.fps, cut.end / master.fps
    if outside := [second for second in at if not begin < second < end]:
        raise ConfigError(f"--at is {outside[0]:g}, must lie inside the clip's {begin:g} to {end:g} s")
    _say(dataset.split(clip.file_name, list(pairwise([begin, *sorted(set(at)), end]))))


@click.command()
@with_dataset
@click.argument("clip")
@click.argument("start", type=float)
@click.argument("end", type=float)
def trim(dataset: Dataset, clip: str, start: float, end: float) -> None:
    """Let CLIP be its source video from START to END, in seconds.

    The part may be wider than the clip is now.
    """
    _say([dataset.trim(clip, start, end)])


@click.command()
@with_dataset
@click.argument("clip")
@click.option("--box", nargs=4, type=int, metavar="LEFT TOP WIDTH HEIGHT", help="This part of the picture, in pixels.")
@click.option("--bars", is_flag=True, help="Without the black bars around the picture, which are found by themselves.")
@click.option("--all", "everything", is_flag=True, help="Back to the whole picture.")
def crop(dataset: Dataset, clip: str, box: tuple[int, int, int, int] | None, bars: bool, everything: bool) -> None:
    """Keep a part of the picture: --box, --bars, or --all of it."""
    if (box is not None) + bars + everything != 1:
        raise ConfigError("say what to keep of the picture: one of --box, --bars and --all")
    if bars:
        from workbench.dataset_builder.checks.letterbox import find_letterbox

        box = find_letterbox(master_of(dataset.folder, dataset.clip(clip)).path)
        if box is None:
            raise ConfigError(f"no bars were found around {clip}: give the part to keep with --box")
    _say([dataset.crop(clip, box)])


@click.command("set-fps")
@with_dataset
@click.argument("clips", nargs=-1, required=True)
@click.option("--fps", type=float, metavar="X", help="Frames a second to keep. Else the source video's own again.")
def set_fps(dataset: Dataset, clips: tuple[str, ...], fps: float | None) -> None:
    """Lower the frame rate of CLIPS by leaving frames out."""
    _say(dataset.set_fps(fps, *clips))


@click.command("reset-cut")
@with_dataset
@click.argument("clips", nargs=-1, required=True)
def reset_cut(dataset: Dataset, clips: tuple[str, ...]) -> None:
    """Reset CLIPS to their whole source videos.

    Of several parts of one, the first becomes the whole and the others are removed.
    """
    _say(dataset.reset_cut(*clips))


def _say(made: Sequence[Clip]) -> None:
    for clip in made:
        say(about(clip))

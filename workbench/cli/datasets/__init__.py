"""`workbench dataset`: the dataset builder in the shell, a file a subject. Commands are listed by what they are for.

Not covered: the builder itself (workbench.dataset_builder).
"""

from __future__ import annotations

import click

from workbench.cli.datasets import captions, checks, clips, cuts, model_view, sources, tasks
from workbench.cli.options import workspace_flag

SECTIONS: dict[str, tuple[click.Command, ...]] = {
    "In and out": (sources.preview, sources.import_, sources.export),
    "Looking": (clips.list_, clips.show, checks.stats, model_view.plan, model_view.reconstruct),
    "Captions": (
        captions.caption,
        captions.auto_caption,
        captions.replace,
        captions.prefix,
        captions.suffix,
        captions.trigger,
        captions.tags,
        captions.remove_tag,
    ),
    "Cutting": (cuts.split, cuts.trim, cuts.crop, cuts.set_fps, cuts.reset_cut),
    "Checking": (checks.check, checks.findings, checks.fix),
    "Naming, removing and undoing": (
        clips.rename,
        clips.note,
        clips.group,
        clips.remove,
        clips.restore,
        clips.history,
        clips.undo,
        clips.redo,
    ),
    "Background tasks": (tasks.tasks, tasks.follow, tasks.start, tasks.stop),
}


class SectionedGroup(click.Group):
    """Lists its commands by section, in the order in which they were given."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(command.name or "", command.get_short_help_str(100)) for command in commands])


@click.group(cls=SectionedGroup)
@workspace_flag
def dataset(workspace: str | None) -> None:
    """Build datasets of captioned clips. NAME is a dataset's name, CLIP a clip's file name or id (`show` lists them).

    Nothing is ever deleted: `undo` takes back what was changed. COMMAND --help says more.
    """


for section in SECTIONS.values():
    for command in section:
        dataset.add_command(command)

"""`workbench`: the same library as the page and the notebooks, in a shell.

A command's module is imported when the command runs, so that the shell answers at once. Every error a person can cause
ends as one sentence on stderr and the exit code of `workbench.errors`.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from workbench import __version__
from workbench.cli.printing import say, say_lines, show_crash, shown_by_click
from workbench.errors import ExitCode, WorkbenchError

# name -> (module beside this one, what the list of commands says)
COMMANDS = {
    "status": ("status", "What is happening in the workspace, and what to do next."),
    "dataset": ("operations", "Build datasets of captioned clips."),
    "recipes": ("fit", "Settings for what is to be trained, with reasons and sources."),
    "train": ("training", "Train a LoRA and watch it; sweeps, clones and forks."),
    "fit": ("fit", "Say whether a run fits the GPU: memory, disk and time."),
    "encode": ("encoding", "Encode a dataset ahead of training, by many processes and machines."),
    "runs": ("operations", "List, watch, compare and command training runs."),
    "targets": ("operations", "Machines and clusters to which runs can be sent."),
    "sample": ("samples", "Generate a video from a prompt."),
    "samples": ("operations", "Earlier samples: list, search, star, remove, restore, export."),
    "grid": ("operations", "Compare videos in lock-step: checkpoints, scales, guidance, LoRAs."),
    "loras": ("operations", "LoRAs: list, merge, resize, extract, fuse, import, convert, remove."),
    "publish": ("publish", "Push a LoRA, a demo of it or a dataset to the Hub."),
    "convert": ("files", "Convert a model or a LoRA to its authors' own layout, or back."),
    "record": ("files", "Write what a run showed into a folder, to be replayed anywhere."),
    "replay": ("files", "Show a replay of a run."),
    "webui": ("webui", "Open the page in a browser."),
    "notebooks": ("webui", "Copy the notebooks into a folder, to be run there."),
    "api-token": ("webui", "Print the token with which programs use the page's HTTP API."),
    "mcp": ("webui", "Tools for agents over the Model Context Protocol, on stdin and stdout."),
    "demo": ("demo", "The whole loop on the built-in model, in a few minutes."),
    "doctor": ("status", "Check this machine, import a clip and train two steps."),
}


class LazyGroup(click.Group):
    """Lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name, help = COMMANDS[cmd_name]
        module = importlib.import_module(f"{__name__}.{name}")
        if name == "operations":
            made: click.Command = module.group(cmd_name, help)
            return made
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--workspace", metavar="FOLDER", help="The workspace's folder. Else $WORKBENCH_HOME, else ./workspace.")
@click.version_option(__version__, prog_name="workbench")
def cli(workspace: str | None) -> None:
    """Video LoRA Workbench: clips in, a LoRA and its videos out.

    workbench demo shows the whole loop; workbench COMMAND --help says more.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """The console command. Ends the process with an exit code."""
    for stream in (sys.stdout, sys.stderr):  # a name may hold what cannot be written as text
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.excepthook = show_crash
    try:
        code = cli.main(arguments, prog_name="workbench", standalone_mode=False)
        sys.stdout.flush()
    except WorkbenchError as error:
        say(f"Error: {error}", err=True)
        sys.exit(int(error.exit_code))
    except click.ClickException as error:
        shown_by_click(error)
        sys.exit(error.exit_code)
    except OSError as error:
        _leave(error)
    except (click.Abort, KeyboardInterrupt):
        say_lines(["", "interrupted"], err=True)
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _leave(error: OSError) -> NoReturn:
    """End after the system refused something: a path, or what the command prints."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    printing = not error.filename and (full or error.errno == errno.EPIPE)
    what = "what this command prints" if printing else f"{str(error.filename or 'a file')[:120]!r}"
    if printing:  # nothing more goes there, and Python tries once more when it ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.errno == errno.EPIPE:
        sys.exit(int(ExitCode.CANNOT_WRITE))
    remedy = "free some space" if full else "check the path, its permissions and the disk"
    say(f"Error: {what}: {error.strerror or error}: {remedy}", err=True)
    sys.exit(int(ExitCode.CANNOT_WRITE))

"""The `workbench` command: the library behind the page and the notebooks, in a shell.

A command's module is imported when the command runs, so the shell answers at once. Every error that a person can cause
ends as one sentence on stderr and an exit code of `workbench.errors`.
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
from workbench.cli.printing import say, say_lines, show_crash, show_usage_error
from workbench.errors import ExitCode, WorkbenchError

WORKSPACE_HELP = "The workspace folder. Default: $WORKBENCH_HOME, else ./workspace."

# name -> (module in this package, line in the list of commands)
COMMANDS = {
    "status": ("status", "Show what is happening in the workspace and what to do next."),
    "dataset": ("operations", "Build datasets of captioned clips."),
    "recipes": ("fit", "Suggest settings for a subject, with reasons and sources."),
    "train": ("training", "Train a LoRA and watch it; sweep, clone and fork runs."),
    "fit": ("fit", "Check whether a run fits the GPU: memory, disk and time."),
    "encode": ("training", "Encode a dataset ahead of training, with many processes and machines."),
    "runs": ("operations", "List, watch, compare and control training runs."),
    "targets": ("operations", "Manage the machines and clusters that runs can be sent to."),
    "sample": ("samples", "Generate a video from a prompt."),
    "samples": ("operations", "List, search, star, remove, restore and export samples."),
    "grid": ("operations", "Compare videos in lockstep: checkpoints, scales, guidance, LoRAs."),
    "loras": ("operations", "List, merge, resize, extract, fuse, import, convert and remove LoRAs."),
    "publish": ("operations", "Push a LoRA, a model, a demo or a dataset to the Hub, private unless --no-private."),
    "convert": ("files", "Convert a model or a LoRA to its authors' layout, or back."),
    "record": ("files", "Record a run's curves and previews in a folder, to replay anywhere."),
    "replay": ("files", "Show a replay of a run."),
    "webui": ("webui", "Open the page in a browser."),
    "notebooks": ("webui", "Copy the notebooks into a folder."),
    "api-token": ("webui", "Print the token for the page's HTTP API."),
    "mcp": ("webui", "Serve tools to agents over the Model Context Protocol, on stdin and stdout."),
    "demo": ("demo", "Run the whole loop on the built-in model, in a few minutes."),
    "doctor": ("status", "Check this machine, import a clip and train two steps."),
}


class LazyGroup(click.Group):
    """A group that lists its commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name, help = COMMANDS[cmd_name]
        module = importlib.import_module(f"{__name__}.{name}")
        command: click.Command = (
            module.group(cmd_name, help) if name == "operations" else getattr(module, cmd_name.replace("-", "_"))
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.option("--workspace", metavar="FOLDER", help=WORKSPACE_HELP)
@click.version_option(__version__, prog_name="workbench")
def cli(workspace: str | None) -> None:
    """Video LoRA Workbench: clips in, a LoRA and its videos out.

    Start with: workbench demo. Help on a command: workbench COMMAND --help.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the console command and exit with its code."""
    for stream in (sys.stdout, sys.stderr):  # file names may hold bytes that are not text
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
        show_usage_error(error)
        sys.exit(error.exit_code)
    except OSError as error:
        _exit_after(error)
    except (click.Abort, KeyboardInterrupt):
        say_lines(["", "interrupted"], err=True)
        sys.exit(130)
    sys.exit(code if isinstance(code, int) else 0)


def _exit_after(error: OSError) -> NoReturn:
    """Exit after the operating system refused a path or the command's own output."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    printing = not error.filename and (full or error.errno == errno.EPIPE)
    what = "this command's output" if printing else f"{str(error.filename or 'a file')[:120]!r}"
    if printing:  # or Python would fail again when it flushes at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.errno == errno.EPIPE:
        sys.exit(int(ExitCode.CANNOT_WRITE))
    remedy = "free some space" if full else "check the path, its permissions and the disk"
    say(f"Error: {what}: {error.strerror or error}: {remedy}", err=True)
    sys.exit(int(ExitCode.CANNOT_WRITE))
